//! What is there again after a restart.

use store_resp::Reply;
use store_server::Server;
use testkit::TempFolder;

use super::{connect, digest, fact, files, fill, ok, persistent, wait_for_fact};

#[test]
fn an_embedded_server_keeps_nothing_unless_asked_to() {
    let folder = TempFolder::create();
    let builder = || Server::builder().setting("dir", folder.path().to_str().unwrap());
    let server = builder().start().unwrap();
    assert_eq!(connect(&server).words("SET a 1"), ok());
    drop(server);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(connect(&builder().start().unwrap()).words("GET a"), Reply::Null);
}

#[test]
fn data_of_every_kind_is_there_again_in_every_form() {
    for settings in [
        [("appendfsync", "everysec"), ("aof-use-rdb-preamble", "yes")],
        [("appendfsync", "no"), ("aof-use-rdb-preamble", "no")],
        [("appendfsync", "no"), ("aof-timestamp-enabled", "yes")],
    ] {
        let folder = TempFolder::create();
        let start = || {
            let builder = persistent(folder.path());
            let set = |builder: store_server::ServerBuilder, (name, value): &(&str, &str)| {
                builder.setting(name, value)
            };
            settings.iter().fold(builder, set).start().unwrap()
        };
        let server = start();
        let mut connection = connect(&server);
        fill(&mut connection);
        let before = digest(&mut connection);
        // In the middle of the file: from here on the base has all of that.
        connection.words("BGREWRITEAOF");
        wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
        assert_eq!(fact(&mut connection, "aof_last_bgrewrite_status"), "ok");
        connection.words("SET late 1");
        let after = digest(&mut connection);
        assert_ne!(before, after);
        drop(server);
        let server = start();
        let mut connection = connect(&server);
        assert_eq!(digest(&mut connection), after, "{settings:?}");
        assert_eq!(connection.words("FCALL f 0"), Reply::Integer(7));
    }
}

#[test]
fn a_rewrite_takes_what_changes_meanwhile_and_removes_what_it_replaces() {
    let folder = TempFolder::create();
    let server = persistent(folder.path()).start().unwrap();
    let mut connection = connect(&server);
    for line in ["DEBUG POPULATE 20000", "SET counter 0"] {
        connection.words(line);
    }
    for round in 1..=3 {
        connection.words("BGREWRITEAOF");
        while fact(&mut connection, "aof_rewrite_in_progress") == "1" {
            connection.words("INCR counter");
            connection.words("APPEND key:1 x");
        }
        assert_eq!(fact(&mut connection, "aof_rewrites"), round.to_string());
    }
    let expected = [
        "appendonly.aof.4.base.rdb".to_owned(),
        "appendonly.aof.4.incr.aof".to_owned(),
        "appendonly.aof.manifest".to_owned(),
    ];
    testkit::wait_until("old files are gone", testkit::GENEROUS, || {
        files(folder.path()) == expected
    });
    let before = digest(&mut connection);
    drop(server);
    let server = persistent(folder.path()).start().unwrap();
    assert_eq!(digest(&mut connect(&server)), before);
}

#[test]
fn a_file_that_has_grown_is_rewritten_by_itself() {
    let folder = TempFolder::create();
    let server = persistent(folder.path())
        .setting("auto-aof-rewrite-min-size", "64kb")
        .setting("auto-aof-rewrite-percentage", "100")
        .start()
        .unwrap();
    let mut connection = connect(&server);
    let value = "x".repeat(1000);
    testkit::wait_until("a rewrite by itself", testkit::GENEROUS, || {
        for _ in 0..20 {
            connection.words(&format!("SET key {value}"));
        }
        fact(&mut connection, "aof_rewrites") != "0"
    });
    wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
    let size: u64 = fact(&mut connection, "aof_current_size").parse().unwrap();
    assert!(size < 64 * 1024, "{size}");
}

#[test]
fn the_file_can_be_turned_on_and_off_while_the_server_runs() {
    let folder = TempFolder::create();
    let dir = folder.path().to_str().unwrap();
    let server = Server::builder().setting("dir", dir).start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET before 1");
    assert_eq!(connection.words("CONFIG SET appendonly yes"), ok());
    connection.words("SET during 1");
    wait_for_fact(&mut connection, "aof_rewrite_scheduled", "0");
    wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
    connection.words("SET after 1");
    assert_eq!(connection.words("CONFIG SET appendonly no"), ok());
    connection.words("SET unseen 1");
    drop(server);
    let server = persistent(folder.path()).start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("EXISTS before during after"), Reply::Integer(3));
    assert_eq!(connection.words("EXISTS unseen"), Reply::Integer(0));
}

#[test]
fn a_key_that_ended_before_its_next_change_stays_ended_and_one_that_did_not_stays() {
    let folder = TempFolder::create();
    let server = persistent(folder.path()).start().unwrap();
    let mut connection = connect(&server);
    // Persisted in time, though its first end is long past when it is loaded.
    connection.words("SET kept 1 PX 300");
    connection.words("APPEND kept 2");
    connection.words("PERSIST kept");
    connection.words("SET gone 1 PX 1");
    testkit::wait_until("the key has ended", testkit::GENEROUS, || {
        connection.words("EXISTS gone") == Reply::Integer(0)
    });
    connection.words("APPEND gone 2");
    std::thread::sleep(std::time::Duration::from_millis(350));
    drop(server);
    let server = persistent(folder.path()).start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("GET kept"), Reply::Bulk(b"12".to_vec()));
    assert_eq!(connection.words("GET gone"), Reply::Bulk(b"2".to_vec()));
}

#[test]
fn clients_are_told_to_wait_while_data_is_loaded() {
    let folder = TempFolder::create();
    let server = persistent(folder.path()).setting("auto-aof-rewrite-percentage", "0").start();
    let server = server.unwrap();
    let mut connection = connect(&server);
    // Work for a second or so at the next start.
    for index in 0..40 {
        connection.words(&format!("SADD set{index} a b c"));
    }
    let script = "for i = 1, 4000 do redis.call('SUNIONSTORE', 'all', unpack(KEYS)) end";
    let mut words = vec!["EVAL".to_owned(), script.to_owned(), "40".to_owned()];
    words.extend((0..40).map(|index| format!("set{index}")));
    connection.ask(&words).unwrap();
    drop(server);
    let socket = folder.path().join("socket");
    let path = socket.clone();
    let dir = folder.path().to_owned();
    let starting = std::thread::spawn(move || persistent(&dir).unix_socket(path).start().unwrap());
    testkit::wait_until("the socket is there", testkit::GENEROUS, || socket.exists());
    let stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let mut early = crate::connection::Connection::unix(stream);
    let refusal = "LOADING Redis is loading the dataset in memory";
    assert_eq!(early.words("GET a"), Reply::Error(refusal.into()));
    assert_eq!(fact(&mut early, "loading"), "1");
    let _: u64 = fact(&mut early, "loading_total_bytes").parse().unwrap();
    let server = starting.join().unwrap();
    assert_eq!(early.words("SCARD all"), Reply::Integer(3));
    assert_eq!(fact(&mut early, "loading"), "0");
    drop(server);
}

#[test]
fn debug_loadaof_brings_back_what_the_file_has() {
    let folder = TempFolder::create();
    let server = persistent(folder.path()).start().unwrap();
    let mut connection = connect(&server);
    fill(&mut connection);
    let expected = digest(&mut connection);
    assert_eq!(connection.words("DEBUG LOADAOF"), ok());
    assert_eq!(digest(&mut connection), expected);
    assert_eq!(connection.words("FCALL f 0"), Reply::Integer(7));
    // Nothing of it was appended again, and what follows is.
    connection.words("SET after 1");
    let expected = digest(&mut connection);
    drop(server);
    let server = persistent(folder.path()).start().unwrap();
    assert_eq!(digest(&mut connect(&server)), expected);

    // A file that is not continued is loaded, too; where there is none, nothing is forgotten.
    drop(server);
    let server = persistent(folder.path()).setting("appendonly", "no").start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET lost 1");
    assert_eq!(connection.words("DEBUG LOADAOF"), ok());
    assert_eq!(digest(&mut connection), expected);
    drop(server);
    std::fs::remove_dir_all(folder.path().join("appendonlydir")).unwrap();
    let server = persistent(folder.path()).setting("appendonly", "no").start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET kept 1");
    let reply = connection.words("DEBUG LOADAOF");
    assert!(matches!(&reply, Reply::Error(text) if text.contains("appendonly")), "{reply:?}");
    assert_eq!(connection.words("DBSIZE"), Reply::Integer(1));
}

/// A script can keep from the file what its next writes rely on.
#[test]
fn debug_loadaof_of_a_file_that_cannot_be_loaded_leaves_it_as_it_is() {
    const INCREMENT: &str = "appendonlydir/appendonly.aof.1.incr.aof";
    let folder = TempFolder::create();
    let server = persistent(folder.path()).setting("appendfsync", "always").start().unwrap();
    let mut connection = connect(&server);
    connection.words("INCR counter");
    connection.words("SET list 1");
    let script = "redis.set_repl(redis.REPL_NONE) return redis.call('del', 'list')";
    assert_eq!(connection.ask(&["EVAL", script, "0"]), Some(Reply::Integer(1)));
    assert_eq!(connection.words("RPUSH list 1"), Reply::Integer(1));
    let content = || std::fs::read(folder.path().join(INCREMENT)).unwrap();
    let before = content();
    connection.send(&["DEBUG", "LOADAOF"]);
    assert_eq!(connection.receive(), None, "the server ends");
    drop(server);
    assert_eq!(content(), before);
}
