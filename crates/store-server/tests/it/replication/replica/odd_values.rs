//! Values that redis-server takes by RESTORE although no server writes them.

use store_resp::Reply;
use store_types::crc64::crc64;
use testkit::{GENEROUS, RedisServer, wait_until};

use super::{Ours, ok, primary};
use crate::connection::Connection;

/// What DUMP would answer for a value of this type with this body.
fn payload(code: u8, body: &[u8]) -> Vec<u8> {
    let mut payload = [&[code][..], body, &10_u16.to_le_bytes()].concat();
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    payload
}

fn blob(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8][..], bytes].concat()
}

/// 3, 1 and 2.
const UNSORTED: &[u8] = b"\x02\0\0\0\x03\0\0\0\x03\0\x01\0\x02\0";
/// b with 2, a with 1.
const ZSET: &[u8] = b"\x11\0\0\0\x04\0\x81b\x02\x02\x01\x81a\x02\x01\x01\xff";
/// The field f with v, then with w.
const TWICE: &[u8] = b"\x13\0\0\0\x04\0\x81f\x02\x81v\x02\x81f\x02\x81w\x02\xff";
/// One entry whose head says that there are five.
const MISCOUNTED: &[u8] = b"\x0d\0\0\0\x05\0\x81f\x02\x81v\x02\xff";

/// The odd values, and what redis-server says about them.
fn odd_values() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("intset", payload(11, &blob(UNSORTED))),
        ("zset", payload(17, &blob(ZSET))),
        ("scores", payload(3, b"\x02\x01a\x04 1e1\x01b\x043.5x")),
        ("hash", payload(16, &blob(TWICE))),
        ("old-hash", payload(4, b"\x02\x01f\x01v\x01f\x01w")),
    ]
}

fn restore(theirs: &RedisServer, key: &str, payload: &[u8]) {
    let mut client = Connection::tcp(theirs.port());
    let restored = client.ask(&[&b"RESTORE"[..], key.as_bytes(), b"0", payload]);
    assert_eq!(restored, Some(ok()), "redis-server takes {key}");
}

fn assert_mended(ours: &mut Ours) {
    let bulk = |text: &str| Reply::Bulk(text.into());
    for (words, reply) in [
        ("ZRANGE zset 0 -1", Reply::Array(vec![bulk("a"), bulk("b")])),
        ("ZSCORE scores a", bulk("10")),
        ("ZSCORE scores b", bulk("3.5")),
        ("HGET hash f", bulk("v")),
        ("HGET old-hash f", bulk("v")),
        ("SMEMBERS intset", Reply::Array(vec![bulk("1"), bulk("2"), bulk("3")])),
    ] {
        assert_eq!(ours.words(words), reply, "{words}");
    }
}

#[test]
fn odd_values_of_a_real_primary_are_made_whole_wherever_they_come_from() {
    for diskless_load in ["disabled", "swapdb"] {
        let theirs = primary();
        for (key, payload) in odd_values() {
            restore(&theirs, key, &payload);
        }
        let mut ours = Ours::start_with(|builder| {
            builder.setting("repl-diskless-load", diskless_load).setting("appendonly", "yes")
        });
        ours.follow(theirs.port());
        ours.wait_for("master_link_status", "up");
        assert_mended(&mut ours);
        assert!(ours.has_logged("values contradict themselves and were made whole"));
        // In the stream, too.
        theirs.cli(&["FLUSHALL"]);
        for (key, payload) in odd_values() {
            restore(&theirs, key, &payload);
        }
        theirs.cli(&["SET", "last", "1"]);
        wait_until("the stream", GENEROUS, || ours.words("EXISTS last") == Reply::Integer(1));
        assert_mended(&mut ours);
        assert!(ours.has_logged("the value of key \"intset\" was made whole"));
        assert_eq!(super::their_fact(&theirs, "sync_full"), "1", "{diskless_load}");
        // From the file that has the requests as they came.
        assert_eq!(ours.words("DEBUG LOADAOF"), ok());
        assert_mended(&mut ours);
    }
}

#[test]
fn a_client_that_restores_an_odd_value_is_refused() {
    let mut ours = Ours::start();
    for (key, payload) in odd_values() {
        let reply = ours.connection.ask(&[&b"RESTORE"[..], key.as_bytes(), b"0", &payload]);
        assert_eq!(reply, Some(Reply::Error("ERR Bad data format".into())), "{key}");
    }
}

#[test]
fn what_cannot_be_made_whole_ends_in_a_few_syncs_and_one_line_and_goes_on_when_it_is_gone() {
    for diskless_load in ["disabled", "swapdb"] {
        let theirs = primary();
        theirs.cli(&["SET", "good", "1"]);
        let mut ours =
            Ours::start_with(|builder| builder.setting("repl-diskless-load", diskless_load));
        ours.follow(theirs.port());
        ours.wait_for("master_link_status", "up");
        restore(&theirs, "broken", &payload(16, &blob(MISCOUNTED)));
        ours.wait_for("tenure_master_link_stopped", "1");
        let syncs = super::their_fact(&theirs, "sync_full");
        assert!(syncs.parse::<u32>().unwrap() <= 5, "{syncs} full syncs");
        assert!(ours.has_logged("key \"broken\": damaged listpack"));
        assert!(ours.has_logged("delete or rewrite that key on the master"));
        let next = format!("run REPLICAOF 127.0.0.1 {} here", theirs.port());
        assert!(ours.has_logged(&next));
        assert_eq!(ours.fact("role"), "slave");
        assert_eq!(ours.fact("master_link_status"), "down");
        assert_eq!(ours.words("GET good"), Reply::Bulk(b"1".to_vec()), "it serves what it has");
        // As the line says.
        theirs.cli(&["DEL", "broken"]);
        ours.words(&format!("REPLICAOF 127.0.0.1 {}", theirs.port()));
        ours.wait_for("master_link_status", "up");
        ours.wait_until_equal(&theirs);
    }
}
