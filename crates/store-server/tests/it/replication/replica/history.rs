//! The history that a replica goes on from is that of the data that it has, whatever became of a
//! payload and whatever was set meanwhile.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use store_resp::Reply;
use testkit::TempFolder;
use testkit::proxy::{Cut, Direction, Proxy, Rule};

use super::{Ours, ok, primary, their_fact};
use crate::replication::support::{self, scripted_primary};

const MODES: [&str; 3] = ["disabled", "on-empty-db", "swapdb"];

/// A primary that sends all of `payload` at once.
fn primary_with(payload: &'static [u8]) -> u16 {
    scripted_primary(move |stream, _| {
        let head = format!("+FULLRESYNC {} 7\r\n${}\r\n", "b".repeat(40), payload.len());
        let _ = stream.write_all(&[head.as_bytes(), payload].concat());
    })
}

/// One that saves at its end.
fn start_saving(folder: &TempFolder, mode: &str) -> Ours {
    Ours::start_with(|builder| {
        let builder = builder.setting("dir", folder.path().to_str().unwrap());
        builder.setting("save", "3600 1").setting("repl-diskless-load", mode)
    })
}

#[test]
fn a_payload_that_cannot_be_loaded_costs_no_history() {
    for mode in MODES {
        let theirs = primary();
        theirs.cli(&["SET", "a", "1"]);
        let mut ours = Ours::start_with(|builder| builder.setting("repl-diskless-load", mode));
        ours.follow(theirs.port());
        ours.wait_until_equal(&theirs);
        ours.follow(primary_with(b"REDIS0009\x00\x01k\x01v\xffwrong su"));
        testkit::wait_until("a payload of no use", testkit::GENEROUS, || {
            ours.has_logged("the checksum is")
        });
        theirs.cli(&["INCR", "a"]);
        ours.follow(theirs.port());
        ours.wait_until_equal(&theirs);
        assert_eq!(their_fact(&theirs, "sync_full"), "1", "{mode}: the data was there");
        assert_eq!(their_fact(&theirs, "sync_partial_ok"), "1", "{mode}");
    }
}

/// Half of a payload is no data. A server that ends meanwhile keeps the file that it had, and what
/// it says of its history is true.
#[test]
fn a_server_that_ends_while_it_loads_comes_back_with_data_that_its_history_tells_of() {
    const KEYS: &[u8] =
        b"REDIS0010\x00\x01b\x01v\x00\x01c\x01v\x00\x01d\x01v\x00\x01e\x01v\xff\0\0\0\0\0\0\0\0";
    for mode in MODES {
        let theirs = primary();
        theirs.cli(&["SET", "a", "1"]);
        let folder = TempFolder::create();
        let start = || start_saving(&folder, mode);
        let mut ours = start();
        ours.follow(theirs.port());
        ours.wait_until_equal(&theirs);
        assert_eq!(ours.words("SAVE"), ok());
        assert_eq!(ours.words("CONFIG SET key-load-delay 200000"), ok());
        ours.follow(primary_with(KEYS));
        ours.wait_for("loading", "1");
        ours.connection.send(&["SHUTDOWN"]);
        ours.server.wait().unwrap();
        let mut ours = start();
        assert_eq!(ours.words("KEYS *"), Reply::Array(vec![Reply::Bulk(b"a".to_vec())]), "{mode}");
        theirs.cli(&["INCR", "a"]);
        ours.follow(theirs.port());
        ours.wait_until_equal(&theirs);
    }
}

/// The file is as old as the last save, and a start from it is told so.
#[test]
fn data_of_a_full_sync_that_no_file_has_is_not_taken_for_saved() {
    for mode in MODES {
        let theirs = primary();
        theirs.cli(&["SET", "a", "1"]);
        let folder = TempFolder::create();
        let start = || start_saving(&folder, mode);
        let mut ours = start();
        assert_eq!(ours.words("SET own 1"), ok());
        assert_eq!(ours.words("SAVE"), ok());
        ours.follow(theirs.port());
        ours.wait_until_equal(&theirs);
        assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
        let incarnation = ours.fact("tenure_incarnation");
        ours.connection.send(&["SHUTDOWN", "NOSAVE"]);
        ours.server.wait().unwrap();
        let mut ours = start();
        assert_eq!(ours.words("GET own"), Reply::Bulk(b"1".to_vec()), "{mode}");
        assert_ne!(ours.fact("tenure_incarnation"), incarnation, "{mode}: this is older data");
    }
}

#[test]
fn how_payloads_are_loaded_may_change_at_any_moment() {
    let server = support::primary().setting("rdbcompression", "no").start().unwrap();
    let mut theirs = support::connect(&server);
    theirs.words("DEBUG POPULATE 2000 key 1000");
    let proxy = Proxy::to(SocketAddr::from(([127, 0, 0, 1], server.port().unwrap())));
    let mut ours = Ours::following(proxy.port());
    let slow = Rule::Slice { bytes: 16 * 1024, pause: Duration::from_millis(5) };
    for (round, mode) in MODES.iter().enumerate() {
        support::assert_equal(&mut theirs, &mut ours.connection);
        // Under another name all of it is asked for.
        proxy.set_rule(Direction::ToClient, slow);
        theirs.words("DEBUG CHANGE-REPL-ID");
        theirs.words("INCR round");
        proxy.cut(Cut::Reset);
        for next in [*mode, MODES[(round + 1) % 3]] {
            testkit::wait_until("some of the payload", testkit::GENEROUS, || {
                super::fact(&mut ours.connection, "master_sync_read_bytes")
                    .is_some_and(|read| read.parse::<u64>().unwrap() > 50_000)
            });
            assert_eq!(ours.words(&format!("CONFIG SET repl-diskless-load {next}")), ok());
            if next == *mode {
                proxy.cut(Cut::Reset);
                ours.wait_for("master_sync_in_progress", "0");
            }
        }
        proxy.heal();
        ours.wait_for("master_link_status", "up");
    }
    support::assert_equal(&mut theirs, &mut ours.connection);
}

#[test]
fn a_payload_that_cannot_be_loaded_is_asked_for_less_and_less_often() {
    let mut ours = Ours::start();
    let port = primary_with(b"REDIS0012\xff\0\0\0\0\0\0\0\0");
    ours.follow(port);
    let told = |ours: &Ours, seconds: u64| {
        let words = format!("The data is asked for again in {seconds} s");
        ours.lines.lock().unwrap().iter().filter(|line| line.contains(&words)).count()
    };
    testkit::wait_until("a longer pause", testkit::GENEROUS, || told(&ours, 4) == 1);
    assert_eq!((told(&ours, 1), told(&ours, 2)), (1, 1), "twice as long each time");
    // The operator may have mended it, and says so.
    let again = Reply::Simple("OK Already connected to specified master".into());
    assert_eq!(ours.words(&format!("REPLICAOF 127.0.0.1 {port}")), again);
    testkit::wait_until("another attempt", testkit::GENEROUS, || told(&ours, 1) == 2);
}
