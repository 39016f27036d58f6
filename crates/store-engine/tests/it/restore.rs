//! RESTORE of payloads that were damaged on purpose: refused or sound, and never a panic.

use proptest::prelude::*;
use store_resp::{OwnedRequest, Reply};
use store_types::crc64::crc64;

use crate::world::{World, bulk};

/// Values of every kind and encoding, small enough that a changed byte matters.
const VALUES: &[&str] = &[
    "SET string hello",
    "SET integer 12345",
    "SET long aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    "RPUSH list a 1 bb 100000 -7 ccccccccccccccccccccccccccccccccccccccccccccccc",
    "SADD intset 1 2 300 70000",
    "SADD set a b 1",
    "HSET hash a 1 b 2 c three",
    "HSET table a 1 b ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd",
    "ZADD sorted 1 a 2.5 b -3 c",
    "ZADD tree 1 a 2 eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee",
    "XADD stream 1-1 a 1 b 2",
    "XADD stream 2-1 a 1 b 2",
    "XADD stream 3-1 c 1",
    "XDEL stream 2-1",
    "XGROUP CREATE stream g 0",
    "XREADGROUP GROUP g ada COUNT 1 STREAMS stream >",
    "PFADD counter a b c",
];

/// What is done with whatever came out of a payload; wrong kinds answer with an error.
const USES: &[&str] = &[
    "GET key",
    "LRANGE key 0 -1",
    "LINSERT key BEFORE a x",
    "LREM key 1 bb",
    "LPOP key",
    "RPUSH key y",
    "SMEMBERS key",
    "SADD key 5 x",
    "SREM key 1",
    "HGETALL key",
    "HSET key a 9 z 1",
    "HDEL key b",
    "ZRANGE key 0 -1 WITHSCORES",
    "ZADD key 7 a 8 z",
    "ZREM key b",
    "XRANGE key - +",
    "XREVRANGE key + -",
    "XINFO STREAM key FULL",
    "XREADGROUP GROUP g bob STREAMS key >",
    "XAUTOCLAIM key g bob 0 0",
    "XADD key 99-* f v",
    "XDEL key 1-1 3-1",
    "XTRIM key MAXLEN 1",
    "PFADD key z",
    "PFCOUNT key",
    "SORT key ALPHA",
    "COPY key copy REPLACE",
    "DUMP key",
    "OBJECT ENCODING key",
    "DEL key",
];

fn payloads(world: &mut World) -> Vec<Vec<u8>> {
    for line in VALUES {
        let reply = world.run(line);
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    }
    let Reply::Array(keys) = world.run("KEYS *") else { panic!("no keys") };
    let mut payloads: Vec<Vec<u8>> = keys
        .into_iter()
        .map(|key| {
            let Reply::Bulk(key) = key else { panic!("no key") };
            match ask(world, &[b"DUMP", &key]) {
                Reply::Bulk(payload) => payload,
                other => panic!("no payload: {other:?}"),
            }
        })
        .collect();
    payloads.sort();
    payloads
}

fn ask(world: &mut World, words: &[&[u8]]) -> Reply {
    let request = OwnedRequest::from_args(words.iter().copied());
    world.execute("main", request.as_request());
    world.take_reply("main").expect("every request has a reply")
}

/// With the checksum that makes damaged bytes look sound.
fn signed(mut body: Vec<u8>) -> Vec<u8> {
    body.extend([10, 0]);
    let checksum = crc64(0, &body);
    body.extend(checksum.to_le_bytes());
    body
}

/// Bytes changed, cut away or put in.
fn damage(body: &mut Vec<u8>, edits: &[(u8, prop::sample::Index, u8)]) {
    for (kind, place, byte) in edits {
        if body.is_empty() {
            return;
        }
        let at = place.index(body.len());
        match kind % 5 {
            0 => body[at] = *byte,
            1 => body[at] = body[at].wrapping_add(1),
            2 => body.insert(at, *byte),
            3 => drop(body.remove(at)),
            _ => body.truncate(at),
        }
    }
}

/// Restores a payload over a key that is there, then uses what came of it.
fn try_out(payload: &[u8]) {
    let mut world = World::seeded(7);
    world.run("SET key before");
    match ask(&mut world, &[b"RESTORE", b"key", b"0", payload, b"REPLACE"]) {
        Reply::Error(text) => {
            assert!(text == "ERR Bad data format" || text.contains("checksum"), "{text}");
            assert_eq!(world.run("GET key"), bulk("before"), "a refused payload changed the key");
        }
        _ => {
            for line in USES {
                world.run(line);
            }
            // What is sound can be told and taken in again.
            if let Reply::Bulk(again) = ask(&mut world, &[b"DUMP", b"copy"]) {
                let reply = ask(&mut world, &[b"RESTORE", b"again", b"0", &again]);
                assert_eq!(reply, crate::world::ok());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn damaged_payloads_are_refused_or_sound(
        which: prop::sample::Index,
        edits in prop::collection::vec(any::<(u8, prop::sample::Index, u8)>(), 1..6),
    ) {
        let mut world = World::seeded(7);
        let payloads = payloads(&mut world);
        let payload = &payloads[which.index(payloads.len())];
        let mut body = payload[..payload.len() - 10].to_vec();
        damage(&mut body, &edits);
        try_out(&signed(body));
    }

    #[test]
    fn made_up_payloads_are_refused_or_sound(
        kind in 0_u8..22,
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        try_out(&signed([vec![kind], bytes].concat()));
    }

    #[test]
    fn whatever_is_no_payload_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        try_out(&bytes);
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let mut world = World::seeded(8);
    for payload in payloads(&mut world) {
        for at in 0..payload.len() {
            let refused = |world: &mut World, payload: &[u8]| {
                let reply = ask(world, &[b"RESTORE", b"new", b"0", payload]);
                let text = "ERR DUMP payload version or checksum are wrong";
                assert_eq!(reply, Reply::Error(text.into()));
            };
            refused(&mut world, &payload[..at]);
            let mut flipped = payload.clone();
            flipped[at] ^= 1 << (at % 8);
            refused(&mut world, &flipped);
        }
        assert_eq!(ask(&mut world, &[b"RESTORE", b"new", b"0", &payload]), crate::world::ok());
        world.run("DEL new");
    }
}

#[test]
fn options_and_times_hold() {
    let mut world = World::seeded(9);
    world.engine.set_feeding_file(true);
    world.run("SET a 1");
    let Reply::Bulk(payload) = world.run("DUMP a") else { panic!("no payload") };
    let restore = |world: &mut World, words: &[&str]| {
        let words = words.iter().map(|word| word.as_bytes());
        let mut args: Vec<&[u8]> = [&b"RESTORE"[..]].into_iter().chain(words).collect();
        args.insert(3, &payload);
        ask(world, &args)
    };
    let busy = Reply::Error("BUSYKEY Target key name already exists.".into());
    assert_eq!(restore(&mut world, &["a", "0"]), busy);
    assert_eq!(restore(&mut world, &["b", "500"]), crate::world::ok());
    assert_eq!(world.run("PEXPIRETIME b"), Reply::Integer(1_000_500));
    assert_eq!(restore(&mut world, &["c", "1000700", "ABSTTL"]), crate::world::ok());
    assert_eq!(world.run("PEXPIRETIME c"), Reply::Integer(1_000_700));
    restore(&mut world, &["c", "1000", "ABSTTL", "REPLACE"]);
    assert_eq!(world.run("EXISTS c"), Reply::Integer(0));
    restore(&mut world, &["d", "9223372036854775807"]);
    assert_eq!(world.run("EXISTS d"), Reply::Integer(0));
    restore(&mut world, &["e", "0", "IDLETIME", "77"]);
    assert_eq!(world.run("OBJECT IDLETIME e"), Reply::Integer(77));
    let units = world.take_units();
    let words = |at: usize| format!("{:?}", units[at].requests[0].1.as_request());
    assert!(words(1).contains("1000500") && words(1).ends_with("\"ABSTTL\"]"), "{}", words(1));
    assert_eq!(words(3), r#"["DEL", "c"]"#);
    assert_eq!(units.len(), 5);
}
