//! Hashes, sets and sorted sets: equal payloads where order is fixed, equal digests where not.

use store_types::dump::{Value, ValueRef, dump, restore};
use store_types::{Hash, Inserted, Limits, Rng, Set, SortedSet};

use crate::redis::{Redis, Reply, assert_same_payload};

fn limits() -> Limits {
    Limits {
        hash_listpack_entries_max: 32,
        set_intset_entries_max: 32,
        zset_listpack_entries_max: 32,
        hash_seed: 77,
        ..Limits::default()
    }
}

fn redis() -> Redis {
    Redis::with_settings(&[
        "--rdbcompression",
        "no",
        "--hash-max-listpack-entries",
        "32",
        "--set-max-intset-entries",
        "32",
        "--zset-max-listpack-entries",
        "32",
    ])
}

fn text(rng: &mut Rng, kinds: usize) -> Vec<u8> {
    match rng.below(30) {
        0 => vec![b'x'; rng.below(70)],
        1..10 => (rng.next_u64() as i64 >> rng.below(64)).to_string().into_bytes(),
        _ => format!("m{}", rng.below(kinds)).into_bytes(),
    }
}

/// Our payload restored there is the value they hold.
fn assert_same_digest(redis: &mut Redis, key: &str, payload: &[u8], story: &str) {
    redis.say(&["DEL", "copy"]);
    let restored = redis.ask(&[b"RESTORE", b"copy", b"0", payload]);
    assert_eq!(restored, Reply::Text(b"OK".to_vec()), "{story}");
    let digests = redis.say(&["DEBUG", "DIGEST-VALUE", key, "copy"]).texts();
    assert_eq!(digests[0], digests[1], "{story}");
}

#[test]
fn hashes_hold_the_same_bytes() {
    let mut redis = redis();
    for seed in 0..6 {
        let mut rng = Rng::seeded(seed);
        let mut hash = Hash::new();
        redis.say(&["DEL", "h"]);
        for step in 0..200 {
            let field = text(&mut rng, 15 + seed as usize * 10);
            let story = format!("seed {seed}, step {step}");
            if rng.below(4) == 0 {
                let theirs = redis.ask(&[b"HDEL", b"h", &field]).integer() == 1;
                assert_eq!(hash.remove(&field), theirs, "{story}");
            } else {
                let value = text(&mut rng, 1_000);
                let theirs = redis.ask(&[b"HSET", b"h", &field, &value]).integer() == 1;
                assert_eq!(hash.insert(&field, &value, &limits()), theirs, "{story}");
            }
            if step % 5 > 0 || hash.is_empty() {
                if hash.is_empty() {
                    hash = Hash::new();
                }
                continue;
            }
            let encoding = redis.say(&["OBJECT", "ENCODING", "h"]).text();
            assert_eq!(encoding, hash.encoding().name().as_bytes(), "{story}");
            let payload = dump(ValueRef::Hash(&hash), None);
            if encoding == b"listpack" {
                assert_same_payload(&payload, &redis.dump("h"), &story);
            }
            assert_same_digest(&mut redis, "h", &payload, &story);
            let Ok(Value::Hash(back)) = restore(&redis.dump("h"), &limits()) else {
                panic!("{story}: a payload of Redis is refused");
            };
            assert_eq!(back.len(), hash.len());
            assert!(back.iter().all(|(field, value)| {
                hash.get(&field.to_vec()).is_some_and(|ours| ours == value)
            }));
        }
    }
}

#[test]
fn sets_hold_the_same_members() {
    let mut redis = redis();
    for seed in 0..6 {
        let mut rng = Rng::seeded(seed);
        let mut set = Set::new();
        redis.say(&["DEL", "s"]);
        for step in 0..200 {
            let member = if seed % 2 == 0 {
                (rng.next_u64() as i64 >> (rng.below(16) * 4)).to_string().into_bytes()
            } else {
                text(&mut rng, 60)
            };
            let story = format!("seed {seed}, step {step}");
            if rng.below(4) == 0 {
                let theirs = redis.ask(&[b"SREM", b"s", &member]).integer() == 1;
                assert_eq!(set.remove(&member), theirs, "{story}");
            } else {
                let theirs = redis.ask(&[b"SADD", b"s", &member]).integer() == 1;
                assert_eq!(set.insert(&member, &limits()), theirs, "{story}");
            }
            if set.is_empty() {
                set = Set::new();
            } else if step % 5 == 0 {
                let encoding = redis.say(&["OBJECT", "ENCODING", "s"]).text();
                assert_eq!(encoding, set.encoding().name().as_bytes(), "{story}");
                let payload = dump(ValueRef::Set(&set), None);
                if encoding == b"intset" {
                    assert_same_payload(&payload, &redis.dump("s"), &story);
                }
                assert_same_digest(&mut redis, "s", &payload, &story);
                let Ok(Value::Set(back)) = restore(&redis.dump("s"), &limits()) else {
                    panic!("{story}: a payload of Redis is refused");
                };
                assert_eq!(back.len(), set.len());
                assert!(back.iter().all(|member| set.contains_element(member)));
            }
        }
    }
}

fn score(rng: &mut Rng) -> f64 {
    match rng.below(6) {
        0 => f64::INFINITY,
        1 => rng.below(10) as f64 / 3.0,
        2 => (rng.next_u64() as i64 >> rng.below(64)) as f64,
        3 => -1e300 * rng.below(5) as f64,
        _ => rng.below(5) as f64,
    }
}

/// Sorted sets are written in order in both forms: every payload is equal.
#[test]
fn sorted_sets_hold_the_same_bytes() {
    let mut redis = redis();
    for seed in 0..6 {
        let mut rng = Rng::seeded(seed);
        let mut set = SortedSet::new();
        redis.say(&["DEL", "z"]);
        for step in 0..250 {
            let member = text(&mut rng, 15 + seed as usize * 20);
            let story = format!("seed {seed}, step {step}");
            if rng.below(5) == 0 {
                let theirs = redis.ask(&[b"ZREM", b"z", &member]).integer() == 1;
                assert_eq!(set.remove(&member).is_some(), theirs, "{story}");
            } else {
                let score = score(&mut rng);
                let text = format!("{score:e}");
                let words: [&[u8]; 5] = [b"ZADD", b"z", b"CH", text.as_bytes(), &member];
                let theirs = redis.ask(&words).integer() == 1;
                let ours = set.insert(&member, score, &limits()) != Inserted::Unchanged;
                assert_eq!(ours, theirs, "{story}");
            }
            if set.is_empty() {
                set = SortedSet::new();
                continue;
            }
            let payload = dump(ValueRef::SortedSet(&set), None);
            assert_same_payload(&payload, &redis.dump("z"), &story);
            if step % 10 == 0 {
                assert_same_digest(&mut redis, "z", &payload, &story);
                let Ok(Value::SortedSet(back)) = restore(&payload, &limits()) else {
                    panic!("{story}: our own payload is refused");
                };
                assert!(back.iter().eq(set.iter()), "{story}");
                let theirs = redis.ask(&[b"ZRANK", b"z", &member]);
                let ours = set.rank(&member).map_or(Reply::Nothing, |r| Reply::Integer(r as i64));
                assert_eq!(ours, theirs, "{story}");
            }
        }
    }
}

#[test]
fn strings_are_written_in_the_same_form() {
    let mut redis = redis();
    for text in [
        "",
        "a",
        "0",
        "-1",
        "127",
        "128",
        "-128",
        "-129",
        "32767",
        "32768",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "12345678901",
        "007",
        "1e5",
        "a text that is longer than twenty bytes",
    ] {
        redis.say(&["SET", "k", text]);
        let ours = dump(ValueRef::String(text.as_bytes()), None);
        assert_same_payload(&ours, &redis.dump("k"), text);
    }
    for length in [63_usize, 64, 16_383, 16_384, 70_000] {
        let text: Vec<u8> = (0..length).map(|at| (at * at % 251) as u8).collect();
        redis.ask(&[b"SET", b"k", &text]);
        assert_same_payload(&dump(ValueRef::String(&text), None), &redis.dump("k"), "long");
    }
}
