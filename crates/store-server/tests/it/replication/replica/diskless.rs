//! `repl-diskless-load`: payloads that are loaded as they arrive.

use std::io::Write;

use store_resp::Reply;
use testkit::RedisServer;
use testkit::proxy::{Cut, Door, Proxy};

use super::{Ours, ok, primary, their_fact};
use crate::replication::support::scripted_primary;

const SWAP: (&str, &str) = ("repl-diskless-load", "swapdb");

/// A primary whose backlog is so short that a replica that comes back gets everything, although
/// it followed the same history.
fn make_backlog_too_short(theirs: &RedisServer) {
    theirs.cli(&["CONFIG", "SET", "repl-backlog-size", "16384"]);
    theirs.cli(&["DEBUG", "POPULATE", "300", "new", "500"]);
    for _ in 0..20 {
        theirs.cli(&["SET", "filler", &"x".repeat(4096)]);
    }
}

#[test]
fn old_data_of_the_same_history_is_served_while_the_new_is_loaded_aside() {
    let theirs = primary();
    theirs.cli(&["SET", "a", "1"]);
    let proxy = Proxy::in_front_of(&theirs);
    let mut ours = Ours::start_with(|builder| builder.setting(SWAP.0, SWAP.1));
    ours.follow(proxy.port());
    ours.wait_until_equal(&theirs);
    let mut watcher = ours.another_connection();
    watcher.words("WATCH a");
    proxy.set_door(Door::Refuse);
    proxy.cut(Cut::Close);
    ours.wait_for("master_link_status", "down");
    theirs.cli(&["SET", "a", "2"]);
    let library = "#!lua name=l\nredis.register_function{function_name='f', \
        callback=function() return 7 end, flags={'no-writes'}}";
    theirs.cli(&["FUNCTION", "LOAD", library]);
    make_backlog_too_short(&theirs);
    // So that there is time to look.
    assert_eq!(ours.words("CONFIG SET key-load-delay 2000"), ok());
    proxy.set_door(Door::Open);
    ours.wait_for("async_loading", "1");
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"1".to_vec()), "the old data is served");
    assert_eq!(ours.fact("loading"), "0");
    assert!(
        matches!(ours.words("REPLICAOF NO ONE"), Reply::Error(text) if text.starts_with("LOADING"))
    );
    assert_eq!(ours.words("CONFIG SET key-load-delay 0"), ok());
    ours.wait_for("async_loading", "0");
    ours.wait_until_equal(&theirs);
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"2".to_vec()));
    assert_eq!(ours.words("FCALL_RO f 0"), Reply::Integer(7));
    watcher.words("MULTI");
    watcher.words("GET a");
    assert_eq!(watcher.words("EXEC"), Reply::NullArray, "what it watched is another key now");
    assert_eq!(their_fact(&theirs, "sync_full"), "2");
}

#[test]
fn an_empty_replica_and_one_of_another_history_load_as_it_arrives_and_say_so() {
    let theirs = primary();
    theirs.cli(&["DEBUG", "POPULATE", "300", "key", "100"]);
    for mode in ["on-empty-db", "swapdb"] {
        let mut ours = Ours::start_with(|builder| builder.setting("repl-diskless-load", mode));
        if mode == "swapdb" {
            ours.words("SET own 1");
        }
        ours.words("CONFIG SET key-load-delay 2000");
        ours.follow(theirs.port());
        ours.wait_for("loading", "1");
        assert_eq!(
            ours.words("GET own"),
            Reply::Error("LOADING Redis is loading the dataset in memory".into())
        );
        ours.words("CONFIG SET key-load-delay 0");
        ours.wait_for("master_link_status", "up");
        ours.wait_until_equal(&theirs);
        assert_eq!(ours.words("DBSIZE"), Reply::Integer(300));
    }
}

/// A primary that sends `payload`, whatever it is.
fn false_primary(payload: &'static [u8]) -> u16 {
    scripted_primary(move |stream, _| {
        let head = format!("+FULLRESYNC {} 7\r\n${}\r\n", "b".repeat(40), payload.len());
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(payload);
    })
}

/// Payloads that cannot be loaded, and what the log says of them. Those of newer servers are as
/// Valkey 8 and Redis 8 begin them; a sum of zero is none.
const BAD: [(&[u8], &str); 11] = [
    (b"nonsense", "this is no RDB file"),
    (b"REDIS9999\xff\0\0\0\0\0\0\0\0", "RDB version 9999"),
    (
        b"REDIS0011\xfa\x0avalkey-ver\x058.1.0\xfe\0\xfb\x01\0\x14\x01k\x09\x09\0\0\0\x01\0\x81a\x02\xff\
          \xff\0\0\0\0\0\0\0\0",
        "RDB version 11, and this program reads 1 to 10; follow a master of Redis 7.0 or older",
    ),
    (
        b"REDIS0012\xfa\x09redis-ver\x058.0.0\xfe\0\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0",
        "RDB version 12, and this program reads 1 to 10; follow a master of Redis 7.0 or older",
    ),
    (b"REDIS0009\x00\x01a", "ends in the middle"),
    (b"REDIS0009\x00\x01k\x01v\xffwrong su", "the checksum is"),
    // Whole, and of a kind that this server does not know.
    (b"REDIS0010\x00\x01a\x01v\x18\x01k\x01v\xff\0\0\0\0\0\0\0\0", "delete the keys of newer types"),
    (b"REDIS0010\x00\x01a\x01v\x07\x01k\x40\x40\0\xff\0\0\0\0\0\0\0\0", "belongs to the module"),
    (b"REDIS0010\x00\x01a\x01v\xfe\x40\xff\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0", "raise the setting databases"),
    (b"REDIS0010\x00\x01a\x01v\xf5\x05local\xff\0\0\0\0\0\0\0\0", "a function library does not load"),
    (b"REDIS0010\x00\x01a\x01v\xff\0\0\0\0\0\0\0\0and so on", "it goes on behind its end"),
];

#[test]
fn a_payload_that_cannot_be_loaded_leaves_the_old_data_as_it_was() {
    for mode in ["disabled", "swapdb"] {
        let mut ours = Ours::start_with(|builder| builder.setting("repl-diskless-load", mode));
        ours.words("SET own 1");
        for (payload, words) in BAD {
            ours.follow(false_primary(payload));
            testkit::wait_until(words, testkit::GENEROUS, || ours.has_logged(words));
            assert!(ours.has_logged("Failed trying to load the MASTER synchronization DB"));
            assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
            assert_eq!(ours.words("GET own"), Reply::Bulk(b"1".to_vec()), "{mode}: {words}");
            assert_eq!(ours.fact("loading"), "0");
            assert_ne!(ours.fact("rdb_changes_since_last_save"), "0", "no file has it");
            assert_eq!(ours.words("SET more 1"), ok());
            ours.lines.lock().unwrap().clear();
        }
    }
}
