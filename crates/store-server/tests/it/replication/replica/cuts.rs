//! Links that break, and primaries that restart.

use std::sync::Arc;
use std::time::Duration;

use store_resp::Reply;
use testkit::proxy::{Cut, Direction, Proxy, Rule};

use super::{Ours, ok, primary, their_fact};
use crate::connection::Connection;

#[test]
fn a_link_that_is_cut_anywhere_in_the_stream_goes_on_where_it_was() {
    let theirs = primary();
    theirs.cli(&["SET", "before", "1"]);
    theirs.cli(&["CONFIG", "SET", "repl-backlog-size", "10mb"]);
    let proxy = Proxy::in_front_of(&theirs);
    let mut ours = Ours::following(proxy.port());
    let mut client = Connection::tcp(theirs.port());
    let incarnation = ours.fact("tenure_incarnation");
    // Pieces of a few bytes, so that each cut falls somewhere else: into SELECT, MULTI or a value.
    proxy
        .set_rule(Direction::ToClient, Rule::Slice { bytes: 7, pause: Duration::from_micros(200) });
    for round in 0..12 {
        ours.wait_for("master_link_status", "up");
        for line in [
            &format!("SELECT {}", round % 3),
            &format!("SET k{round} {}", "value".repeat(20)),
            "MULTI",
            "INCR counter",
            &format!("RPUSH list {round} x"),
            "EXEC",
        ] {
            client.words(line);
        }
        std::thread::sleep(Duration::from_millis(3 * round));
        proxy.cut(if round % 2 == 0 { Cut::Close } else { Cut::Reset });
    }
    proxy.heal();
    ours.wait_until_equal(&theirs);
    assert_eq!(their_fact(&theirs, "sync_full"), "1", "one payload was enough");
    let partial: u64 = their_fact(&theirs, "sync_partial_ok").parse().unwrap();
    assert!(partial >= 10, "only {partial} links went on");
    assert!(ours.has_logged("Successful partial resynchronization with master."));
    assert_eq!(ours.fact("tenure_incarnation"), incarnation, "the same data all the time");
}

#[test]
fn a_payload_that_breaks_off_changes_nothing_and_is_asked_for_again() {
    let theirs = primary();
    theirs.cli(&["CONFIG", "SET", "rdbcompression", "no"]);
    theirs.cli(&["DEBUG", "POPULATE", "8000", "key", "1000"]);
    let proxy = Proxy::in_front_of(&theirs);
    proxy.set_rule(
        Direction::ToClient,
        Rule::Slice { bytes: 4096, pause: Duration::from_millis(1) },
    );
    let mut ours = Ours::start();
    ours.words("SET own 1");
    ours.follow(proxy.port());
    for _ in 0..2 {
        testkit::wait_until("some of the payload", testkit::GENEROUS, || {
            super::fact(&mut ours.connection, "master_sync_read_bytes")
                .is_some_and(|read| read.parse::<u64>().unwrap() > 100_000)
        });
        assert_eq!(ours.words("GET own"), Reply::Bulk(b"1".to_vec()), "the old data is served");
        proxy.cut(Cut::Reset);
        ours.wait_for("master_sync_in_progress", "0");
        assert_eq!(ours.words("GET own"), Reply::Bulk(b"1".to_vec()));
    }
    proxy.heal();
    ours.wait_for("master_link_status", "up");
    ours.wait_until_equal(&theirs);
    let left: Vec<_> = std::fs::read_dir(ours._folder.path()).unwrap().collect();
    assert!(left.is_empty(), "no file of a payload stays: {left:?}");
}

#[test]
fn a_primary_that_comes_back_empty_or_full_is_followed() {
    let mut theirs = primary();
    theirs.cli(&["SET", "a", "1"]);
    let mut ours = Ours::following(theirs.port());
    ours.wait_until_equal(&theirs);
    // With its data: it knows its history from the file, so a partial sync will do.
    // The process that made the payload may still be there.
    testkit::wait_until("a saved file", testkit::GENEROUS, || theirs.cli(&["SAVE"]) == "OK");
    theirs.terminate();
    ours.wait_for("master_link_status", "down");
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"1".to_vec()));
    theirs.restart();
    ours.wait_for("master_link_status", "up");
    theirs.cli(&["SET", "b", "2"]);
    ours.wait_until_equal(&theirs);
    // Without it: what it has counts.
    theirs.cli(&["CONFIG", "SET", "save", ""]);
    theirs.kill();
    let _ = std::fs::remove_file(theirs.folder().join("dump.rdb"));
    theirs.restart();
    ours.wait_for("master_link_status", "up");
    theirs.cli(&["SET", "c", "3"]);
    ours.wait_until_equal(&theirs);
    assert_eq!(ours.words("EXISTS a"), Reply::Integer(0));
    assert!(ours.has_logged("!!! The master has no keys, and all of this replica (keys: 2)"));
}

#[test]
fn a_replica_changes_from_one_primary_to_another_and_back() {
    let (first, second) = (primary(), primary());
    first.cli(&["SET", "of", "first"]);
    second.cli(&["SET", "of", "second"]);
    let mut ours = Ours::following(first.port());
    ours.wait_until_equal(&first);
    for theirs in [&second, &first] {
        ours.follow(theirs.port());
        ours.wait_for("master_link_status", "up");
        ours.wait_until_equal(theirs);
    }
    assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
    assert_eq!(ours.words("SET of none"), ok());
}

#[test]
fn what_a_replica_has_is_appended_and_found_again() {
    ["disabled", "swapdb"].into_iter().for_each(check_appended);
}

fn check_appended(diskless_load: &str) {
    let theirs = primary();
    theirs.cli(&["DEBUG", "POPULATE", "1000"]);
    let mut ours = Ours::start_with(|builder| {
        builder.setting("appendonly", "yes").setting("repl-diskless-load", diskless_load)
    });
    ours.words("SET own 1");
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    theirs.cli(&["SET", "later", "1"]);
    ours.wait_until_equal(&theirs);
    ours.wait_for("aof_enabled", "1");
    ours.wait_for("aof_rewrite_in_progress", "0");
    let before = ours.words("DEBUG DIGEST");
    assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
    assert_eq!(ours.words("DEBUG LOADAOF"), ok());
    assert_eq!(ours.words("DEBUG DIGEST"), before);
}

#[test]
fn a_replica_that_restarts_goes_on_where_its_file_ends() {
    let theirs = primary();
    theirs.cli(&["-n", "2", "SET", "a", "1"]);
    let folder = testkit::TempFolder::create();
    let start = || {
        Ours::start_with(|builder| {
            builder
                .setting("dir", folder.path().to_str().unwrap())
                .setting("save", "3600 1")
                .setting("replicaof", &format!("127.0.0.1 {}", theirs.port()))
        })
    };
    let mut ours = start();
    ours.wait_until_equal(&theirs);
    theirs.cli(&["-n", "2", "SET", "short", "1", "PX", "100"]);
    theirs.cli(&["-n", "2", "INCR", "a"]);
    ours.wait_until_equal(&theirs);
    let incarnation = ours.fact("tenure_incarnation");
    ours.connection.send(&["SHUTDOWN"]);
    ours.server.wait().unwrap();
    // What follows names no database: the file does.
    theirs.cli(&["-n", "2", "INCR", "a"]);
    let mut ours = start();
    ours.wait_until_equal(&theirs);
    assert_eq!(their_fact(&theirs, "sync_full"), "1", "one payload was enough");
    assert_eq!(their_fact(&theirs, "sync_partial_ok"), "1");
    assert_eq!(ours.fact("tenure_incarnation"), incarnation, "a clean end, and the same data");
}

/// The server itself begins its append-only file anew after a full sync.
#[test]
fn a_replica_that_was_promoted_ends_cleanly_with_its_append_only_file() {
    let theirs = primary();
    theirs.cli(&["SET", "a", "1"]);
    let folder = testkit::TempFolder::create();
    let start = || {
        Ours::start_with(|builder| {
            let builder = builder.setting("dir", folder.path().to_str().unwrap());
            builder.setting("appendonly", "yes")
        })
    };
    let mut ours = start();
    ours.follow(theirs.port());
    ours.wait_until_equal(&theirs);
    ours.wait_for("aof_enabled", "1");
    ours.wait_for("aof_rewrite_in_progress", "0");
    assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
    assert_eq!(ours.words("SET b 1"), ok());
    let incarnation = ours.fact("tenure_incarnation");
    ours.connection.send(&["SHUTDOWN"]);
    let lines = Arc::clone(&ours.lines);
    ours.server.wait().unwrap();
    let lines = lines.lock().unwrap();
    let unknown = lines.iter().find(|line| line.contains("will not know of this clean end"));
    assert_eq!(unknown, None);
    assert_eq!(start().fact("tenure_incarnation"), incarnation, "a clean end, and the same data");
}

/// What a kill leaves of a folder.
fn copied(folder: &testkit::TempFolder) -> testkit::TempFolder {
    let copy = testkit::TempFolder::create();
    let from = format!("{}/.", folder.path().display());
    let status = std::process::Command::new("cp").arg("-r").arg(from).arg(copy.path()).status();
    assert!(status.unwrap().success());
    copy
}

fn always(folder: &testkit::TempFolder, key_delay_us: &str) -> Ours {
    Ours::start_with(|builder| {
        builder
            .setting("dir", folder.path().to_str().unwrap())
            .setting("save", "")
            .setting("appendonly", "yes")
            .setting("appendfsync", "always")
            .setting("rdb-key-save-delay", key_delay_us)
    })
}

#[test]
fn a_replica_promoted_before_its_new_file_counts_acknowledges_no_write_that_a_kill_loses() {
    let theirs = primary();
    theirs.cli(&["DEBUG", "POPULATE", "1000"]);
    let folder = testkit::TempFolder::create();
    let mut ours = always(&folder, "3000");
    assert_eq!(ours.words("SET old 1"), ok());
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
    let is_refused = |reply: Reply| match reply {
        Reply::Error(text) => text.contains("MISCONF The data came from a master"),
        _ => false,
    };
    assert!(is_refused(ours.words("SET acked 1")));
    assert!(is_refused(ours.ask(&["EVAL", "return redis.call('SET', 'acked', '1')", "0"])));
    assert_eq!(ours.words("PING"), Reply::Simple("PONG".into()), "it is well");
    let after = copied(&folder);
    let mut killed = always(&after, "0");
    assert_eq!(killed.words("DBSIZE"), Reply::Integer(0), "nothing from before the sync");
    assert!(killed.has_logged("this server begins empty"));
    // It passes by itself.
    testkit::wait_until("a write", testkit::GENEROUS, || ours.words("SET acked 1") == ok());
    let after = copied(&folder);
    let mut killed = always(&after, "0");
    assert_eq!(killed.words("GET acked"), Reply::Bulk(b"1".to_vec()));
    assert_eq!(killed.words("DBSIZE"), Reply::Integer(1001));
    let aside = folder.path().join("appendonlydir/appendonly.aof.manifest.superseded");
    testkit::wait_until("the old files are gone", testkit::GENEROUS, || !aside.exists());
}
