//! Large arguments, which are read into buffers of their own: whatever becomes of their requests,
//! none is lost, changed or run twice.

use store_resp::Reply;
use store_server::Server;
use testkit::{GENEROUS, TempFolder, wait_until};

use crate::connection::Connection;

fn connect(server: &Server) -> Connection {
    Connection::unix(server.connect().unwrap())
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// No two of its parts are equal.
fn large(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn waiting(connection: &mut Connection) -> bool {
    let Reply::Bulk(text) = connection.words("INFO clients") else { panic!("no text") };
    String::from_utf8(text).unwrap().contains("blocked_clients:1")
}

#[test]
fn they_come_through_every_way_that_a_request_can_go() {
    let server = Server::builder().any_port().start().unwrap();
    let mut admin = connect(&server);
    for mut client in [connect(&server), Connection::tcp(server.port().unwrap())] {
        for len in [32 * 1024 - 1, 32 * 1024, 1_000_003] {
            let value = large(len);
            let all = Some(Reply::Bulk(value.clone()));
            client.send(&[&b"SET"[..], b"k", &value, b"EX", b"100"]);
            client.send(&["GET", "k"]);
            assert_eq!((client.receive(), client.receive()), (Some(ok()), all.clone()));
            client.send(&["MULTI"]);
            client.send(&[&b"MSET"[..], b"k", &value, b"small", b"1", b"l", &value]);
            client.send(&[&b"APPEND"[..], b"k", &value]);
            client.send(&["GETRANGE", "k", &len.to_string(), "-1"]);
            client.send(&["EXEC"]);
            (0..4).for_each(|_| drop(client.receive()));
            let Some(Reply::Array(replies)) = client.receive() else { panic!("no replies") };
            assert_eq!(replies[1], Reply::Integer(2 * len as i64));
            assert_eq!(Some(replies[2].clone()), all);
            let script = b"redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
            let reply = client.ask(&[&b"EVAL"[..], script, b"1", b"s", &value]);
            assert_eq!(reply, all);
            // One waits, and a large one comes behind it.
            client.send(&["BLPOP", "list", "0"]);
            client.send(&[&b"SET"[..], b"after", &value]);
            client.send(&["GET", "after"]);
            wait_until("it waits", GENEROUS, || waiting(&mut admin));
            admin.words("LPUSH list 1");
            assert!(matches!(client.receive(), Some(Reply::Array(_))));
            assert_eq!((client.receive(), client.receive()), (Some(ok()), all));
        }
    }
}

#[test]
fn one_that_is_held_back_by_a_pause_runs_when_it_is_over() {
    let server = Server::builder().start().unwrap();
    let (mut admin, mut client) = (connect(&server), connect(&server));
    let value = large(1_000_003);
    for _ in 0..2 {
        assert_eq!(admin.words("CLIENT PAUSE 100000 WRITE"), ok());
        client.send(&[&b"SET"[..], b"k", &value]);
        client.send(&[&b"APPEND"[..], b"k", &value]);
        client.send(&["STRLEN", "k"]);
        wait_until("it waits", GENEROUS, || waiting(&mut admin));
        assert_eq!(admin.words("CLIENT UNPAUSE"), ok());
        assert_eq!(client.receive(), Some(ok()));
        assert_eq!(client.receive(), Some(Reply::Integer(2_000_006)));
        assert_eq!(client.receive(), Some(Reply::Integer(2_000_006)));
    }
}

#[test]
fn one_that_comes_while_a_script_runs_is_refused_and_the_next_is_not() {
    let server = Server::builder().setting("busy-reply-threshold", "1").start().unwrap();
    let (mut admin, mut client, mut script) =
        (connect(&server), connect(&server), connect(&server));
    let value = large(1_000_003);
    script.send(&["EVAL", "while true do end", "0"]);
    wait_until("it is busy", GENEROUS, || matches!(admin.words("PING"), Reply::Error(_)));
    let reply = client.ask(&[&b"SET"[..], b"k", &value]);
    assert!(matches!(&reply, Some(Reply::Error(text)) if text.starts_with("BUSY")), "{reply:?}");
    assert_eq!(admin.words("SCRIPT KILL"), ok());
    assert_eq!(client.ask(&[&b"SET"[..], b"k", &value]), Some(ok()));
    assert_eq!(client.ask(&["GET", "k"]), Some(Reply::Bulk(value)));
}

#[test]
fn they_are_found_again_in_files() {
    let folder = TempFolder::create();
    let value = large(1_000_003);
    let compressible = vec![b'z'; 1_000_003];
    let start = || Server::builder().persist(folder.path()).start().unwrap();
    let server = start();
    let mut client = connect(&server);
    assert_eq!(client.ask(&[&b"SET"[..], b"k", &value]), Some(ok()));
    assert_eq!(client.ask(&[&b"SET"[..], b"z", &compressible]), Some(ok()));
    assert_eq!(client.ask(&["APPEND", "k", "x"]), Some(Reply::Integer(1_000_004)));
    drop(server);
    for _ in 0..2 {
        let server = start();
        let mut client = connect(&server);
        let edited = [&value[..], b"x"].concat();
        assert_eq!(client.ask(&["GET", "k"]), Some(Reply::Bulk(edited)));
        assert_eq!(client.ask(&["GET", "z"]), Some(Reply::Bulk(compressible.clone())));
        // From now on a base has them, compressed.
        client.words("BGREWRITEAOF");
        wait_until("it is written", GENEROUS, || {
            let Reply::Bulk(text) = client.words("INFO persistence") else { panic!("no text") };
            let text = String::from_utf8(text).unwrap();
            text.contains("aof_rewrite_in_progress:0") && text.contains("aof_rewrite_scheduled:0")
        });
    }
}
