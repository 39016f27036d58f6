//! Primaries that cannot be followed: data stays, and the log says what to do.

use std::io::Write;

use store_resp::Reply;
use testkit::RedisServer;

use super::{Ours, ok};
use crate::replication::support::scripted_primary;

fn wait_for_line(ours: &Ours, part: &str) {
    testkit::wait_until(part, testkit::GENEROUS, || ours.has_logged(part));
}

#[test]
fn who_follows_itself_or_in_a_circle_or_nobody_is_told_so_and_keeps_its_data() {
    let mut ours = Ours::start();
    ours.words("SET own 1");
    ours.follow(ours.server.port().unwrap());
    wait_for_line(&ours, "follow themselves or each other in a circle");
    assert_eq!(ours.words("GET own"), Reply::Bulk(b"1".to_vec()));

    let mut second = Ours::start();
    second.words("SET second 1");
    ours.follow(second.server.port().unwrap());
    second.follow(ours.server.port().unwrap());
    wait_for_line(&second, "follow themselves or each other in a circle");
    assert_eq!(second.words("GET second"), Reply::Bulk(b"1".to_vec()));
    assert_eq!(second.words("REPLICAOF NO ONE"), ok());
    assert_eq!(second.words("SET more 1"), ok());

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut third = Ours::start();
    third.words("SET third 1");
    third.follow(port);
    wait_for_line(&third, "Error condition on socket for SYNC: Connection refused");
    assert_eq!(third.words("REPLICAOF no-such-host.invalid 6379"), ok());
    wait_for_line(&third, "Connecting to MASTER no-such-host.invalid:6379");
    assert_eq!(third.words("GET third"), Reply::Bulk(b"1".to_vec()));
}

/// Redis says that something is wrong and goes on in another database.
#[test]
fn a_primary_with_more_databases_is_followed_up_to_the_first_that_is_missing() {
    let theirs = RedisServer::builder()
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        .args(["--databases", "32"])
        .start();
    let mut ours = Ours::start_with(|builder| builder.setting("repl-diskless-load", "swapdb"));
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    theirs.cli(&["SET", "first", "1"]);
    theirs.cli(&["-n", "20", "SET", "astray", "1"]);
    theirs.cli(&["-n", "20", "SET", "astray", "2"]);
    wait_for_line(&ours, "Start this replica with as many as the master has");
    assert_eq!(ours.words("KEYS *"), Reply::Array(vec![Reply::Bulk(b"first".to_vec())]));
    let lost =
        ours.lines.lock().unwrap().iter().filter(|line| line.contains("databases is")).count();
    assert!(lost < 50, "it tries again and again: {lost} times");

    // In a payload, too.
    let mut fresh = Ours::start_with(|builder| builder.setting("repl-diskless-load", "swapdb"));
    fresh.words("SET own 1");
    fresh.follow(theirs.port());
    wait_for_line(&fresh, "databases");
    assert_eq!(fresh.words("REPLICAOF NO ONE"), ok());
    assert_eq!(fresh.words("GET own"), Reply::Bulk(b"1".to_vec()));
}

/// The payload of a server that follows another names the database of the stream behind it.
#[test]
fn a_stream_in_a_database_that_is_missing_is_applied_to_no_other_one() {
    const PAYLOAD: &[u8] = b"REDIS0010\xfa\x0erepl-stream-db\x0220\xff\0\0\0\0\0\0\0\0";
    let port = scripted_primary(|stream, _| {
        let head = format!("+FULLRESYNC {} 7\r\n${}\r\n", "b".repeat(40), PAYLOAD.len());
        let _ = stream.write_all(&[head.as_bytes(), PAYLOAD].concat());
        let _ = stream.write_all(b"*3\r\n$3\r\nSET\r\n$6\r\nastray\r\n$1\r\n1\r\n");
    });
    let mut ours = Ours::start();
    ours.follow(port);
    wait_for_line(&ours, "Start this replica with as many as the master has");
    ours.words("REPLICAOF NO ONE");
    for db in 0..16 {
        ours.words(&format!("SELECT {db}"));
        assert_eq!(ours.words("DBSIZE"), Reply::Integer(0), "database {db}");
    }
}
