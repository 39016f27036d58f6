//! A store that serves one purpose runs the scripts it was started with, and no other code.

use store_resp::Reply;
use store_server::Server;

use crate::connection::Connection;

#[test]
fn only_scripts_of_known_digests_run() {
    // Of "return 1".
    let known = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let server = Server::builder().only_scripts([known, "nonsense"]).start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    assert_eq!(connection.ask(&["EVAL", "return 1", "0"]), Some(Reply::Integer(1)));
    assert_eq!(connection.ask(&["EVALSHA", known, "0"]), Some(Reply::Integer(1)));
    connection.words("SCRIPT FLUSH");
    assert_eq!(
        connection.ask(&["SCRIPT", "LOAD", "return 1"]),
        Some(Reply::Bulk(known.as_bytes().to_vec()))
    );
    let library = "#!lua name=x\nredis.register_function('f', function() return 1 end)";
    for words in [
        &["EVAL", "return 2", "0"][..],
        &["EVAL_RO", "return 2", "0"],
        &["EVAL", "return 1 ", "0"],
        &["SCRIPT", "LOAD", "return 2"],
        &["FUNCTION", "LOAD", library],
        &["FUNCTION", "RESTORE", "x"],
    ] {
        let reply = connection.ask(words);
        let is_refused = matches!(&reply, Some(Reply::Error(text)) if text.starts_with("NOPERM"));
        assert!(is_refused, "{words:?} {reply:?}");
    }
    let reply = connection.words("FCALL f 0");
    assert_eq!(reply, Reply::Error("ERR Function not found".into()));
}
