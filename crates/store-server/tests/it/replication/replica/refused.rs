//! Requests of a primary that fail here: nothing behind them is confirmed, and the log says so.

use std::io::Write;
use std::sync::{Arc, Mutex};

use store_resp::Reply;
use testkit::{GENEROUS, wait_until};

use super::Ours;
use super::bytes::{full_sync, request};
use crate::replication::support::{
    self, assert_equal, connect, follow, scripted_primary, wait_for_link,
};

/// A primary that sends `lines` behind every full sync, and what it was asked for.
fn primary_that_sends(lines: &[&[&str]]) -> (u16, Arc<Mutex<Vec<String>>>) {
    let stream: String = lines.iter().map(|words| request(words)).collect();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let port = scripted_primary(move |peer, offset| {
        heard.lock().unwrap().push(offset.to_owned());
        full_sync(peer);
        let _ = peer.write_all(stream.as_bytes());
    });
    (port, asked)
}

#[test]
fn what_a_primary_allows_is_applied_whatever_the_replica_allows_its_own_clients() {
    let primary = support::primary().start().unwrap();
    let replica = support::primary().setting("proto-max-bulk-len", "1mb").start().unwrap();
    let (mut above, mut below) = (connect(&primary), connect(&replica));
    follow(&mut below, primary.port().unwrap());
    wait_for_link(&mut below);
    for line in ["MULTI", "SET first 1", "SETRANGE big 1500000 x", "EXEC"] {
        above.words(line);
    }
    above.words("SETBIT bits 16000000 1");
    above.words("BITFIELD field SET u8 #1500000 255");
    above.words("APPEND big y");
    assert_eq!(above.words("WAIT 1 0"), Reply::Integer(1));
    assert_equal(&mut above, &mut below);
    assert_eq!(below.words("STRLEN big"), Reply::Integer(1_500_002));
}

#[test]
fn a_write_that_fails_is_not_confirmed_and_everything_is_asked_for() {
    let failing: [&[&[&str]]; 2] = [
        &[&["SET", "s", "x"], &["LPUSH", "s", "1"], &["SET", "after", "1"]],
        &[
            &["SET", "s", "x"],
            &["MULTI"],
            &["SET", "a", "1"],
            &["LPUSH", "s", "1"],
            &["EXEC"],
            &["SET", "after", "1"],
        ],
    ];
    for lines in failing {
        let (port, asked) = primary_that_sends(lines);
        let mut ours = Ours::start();
        ours.follow(port);
        wait_until("two more syncs", GENEROUS, || asked.lock().unwrap().len() >= 3);
        let asked = asked.lock().unwrap().clone();
        assert!(asked.iter().all(|offset| offset == "-1"), "of everything: {asked:?}");
        assert!(ours.has_logged("== CRITICAL =="));
        assert!(ours.has_logged("A write of MASTER failed here"));
        assert_eq!(ours.words("EXISTS after"), Reply::Integer(0), "nothing behind it");
    }
}

#[test]
fn what_fails_and_changes_no_key_ends_no_link() {
    let (port, asked) = primary_that_sends(&[
        &["SET", "s", "x"],
        &["LLEN", "s"],
        &["SCRIPT", "LOAD", "no lua ="],
        &["FUNCTION", "LOAD", "no library"],
        &["EVAL", "return redis.call('LLEN', 's')", "0"],
        &["NOSUCH", "command"],
        &["CONFIG", "SET", "requirepass", "owned"],
        &["SET", "after", "1"],
    ]);
    let mut ours = Ours::start();
    ours.follow(port);
    wait_until("the last", GENEROUS, || ours.words("EXISTS after") == Reply::Integer(1));
    assert_eq!(asked.lock().unwrap().len(), 1);
    assert!(ours.has_logged("== CRITICAL =="));
    assert_eq!(ours.another_connection().words("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn a_writable_replica_goes_on_when_its_own_data_is_in_the_way() {
    let (port, asked) =
        primary_that_sends(&[&["SET", "s", "x"], &["LPUSH", "s", "1"], &["SET", "after", "1"]]);
    let mut ours = Ours::start_with(|builder| builder.setting("replica-read-only", "no"));
    ours.follow(port);
    wait_until("the last", GENEROUS, || ours.words("EXISTS after") == Reply::Integer(1));
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[test]
fn a_primary_administrates_nobody_inside_of_a_transaction_either() {
    for words in [
        &["CONFIG", "SET", "requirepass", "owned"][..],
        &["ACL", "SETUSER", "evil", "on", "nopass", "~*", "+@all"],
        &["SHUTDOWN", "NOSAVE"],
        &["REPLICAOF", "NO", "ONE"],
    ] {
        let (port, _) = primary_that_sends(&[&["MULTI"], &["SET", "half", "1"], words, &["EXEC"]]);
        let mut ours = Ours::start();
        ours.follow(port);
        wait_until("it is told", GENEROUS, || ours.has_logged("cannot be applied here"));
        assert!(ours.has_logged("a primary may not ask for this command"));
        let mut client = ours.another_connection();
        assert_eq!(client.words("PING"), Reply::Simple("PONG".into()), "{words:?}");
        assert_eq!(ours.fact("role"), "slave", "{words:?}");
        assert_eq!(ours.words("EXISTS half"), Reply::Integer(0), "all or nothing");
        let Reply::Array(users) = ours.words("ACL USERS") else { panic!("no list of users") };
        assert_eq!(users.len(), 1);
    }
}

fn deafened() -> Ours {
    let (port, _) = primary_that_sends(&[&["EVAL", "while true do end", "0"]]);
    let mut ours = Ours::start_with(|builder| builder.setting("busy-reply-threshold", "20"));
    ours.follow(port);
    let busy = |reply: Reply| matches!(reply, Reply::Error(text) if text.starts_with("BUSY"));
    wait_until("BUSY", GENEROUS, || busy(ours.words("PING")));
    ours
}

#[test]
fn a_script_of_the_primary_leaves_clients_answered_and_the_server_can_be_ended() {
    let mut ours = deafened();
    let Reply::Error(text) = ours.words("SCRIPT KILL") else { panic!("it was killed") };
    assert!(text.starts_with("UNKILLABLE The busy script was sent by a master"), "{text}");
    ours.connection.send(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(ours.connection.receive(), None, "it ended");
    // What a signal does.
    let ours = deafened();
    ours.server.stopper().stop();
    ours.server.wait().unwrap();
}
