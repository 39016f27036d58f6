//! Payloads of old versions and compressed ones.

use store_types::crc64::crc64;
use store_types::dump::{ValueRef, dump, restore};
use store_types::lzf::Compressor;
use store_types::{End, Limits, List, Rng};

use crate::redis::{Redis, Reply, assert_same_payload};

fn payload(code: u8, body: &[u8]) -> Vec<u8> {
    let mut payload = vec![code];
    payload.extend_from_slice(body);
    payload.extend_from_slice(&9_u16.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// A ziplist of short texts.
fn ziplist(texts: &[&str]) -> Vec<u8> {
    let mut bytes = vec![0; 10];
    let (mut previous, mut tail) = (0, 10);
    for text in texts {
        tail = bytes.len();
        bytes.extend_from_slice(&[previous, text.len() as u8]);
        bytes.extend_from_slice(text.as_bytes());
        previous = text.len() as u8 + 2;
    }
    bytes.push(0xff);
    let total = bytes.len() as u32;
    bytes[..4].copy_from_slice(&total.to_le_bytes());
    bytes[4..8].copy_from_slice(&(tail as u32).to_le_bytes());
    bytes[8..10].copy_from_slice(&(texts.len() as u16).to_le_bytes());
    bytes
}

fn blob(bytes: &[u8]) -> Vec<u8> {
    let mut blob = vec![0x40 | (bytes.len() >> 8) as u8, bytes.len() as u8];
    blob.extend_from_slice(bytes);
    blob
}

/// What Redis makes of an old payload is what we make of it.
#[test]
fn old_encodings_load_as_redis_loads_them() {
    let mut redis = Redis::start();
    let two_nodes =
        [&[2][..], &blob(&ziplist(&["a", "b"])), &blob(&ziplist(&["c", "12"]))].concat();
    let old_stream = {
        redis.say(&["XADD", "s", "5-1", "f", "v"]);
        redis.say(&["XADD", "s", "6-0", "f", "w"]);
        redis.say(&["XGROUP", "CREATE", "s", "g", "5-1"]);
        let new = redis.dump("s");
        old_stream_body(&new[1..new.len() - 10])
    };
    for (code, body) in [
        (1, b"\x03\x01a\x01b\xc0\x0c".to_vec()),
        (3, b"\x02\x01b\x031.5\x01a\x042.25".to_vec()),
        (9, blob(b"\x02\x03foo\x03\x01bar?\x05hello\x05\x00world\xff")),
        (10, blob(&ziplist(&["a", "b", "12"]))),
        (12, blob(&ziplist(&["a", "1", "b", "1.5"]))),
        (13, blob(&ziplist(&["field", "value", "other", "7"]))),
        (14, two_nodes),
        (15, old_stream),
    ] {
        let payload = payload(code, &body);
        redis.say(&["DEL", "k"]);
        let theirs = redis.ask(&[b"RESTORE", b"k", b"0", &payload]);
        assert_eq!(theirs, Reply::Text(b"OK".to_vec()), "type {code}");
        let ours = restore(&payload, &Limits::default());
        let ours = ours.unwrap_or_else(|error| panic!("type {code}: {error}"));
        let story = format!("type {code}");
        assert_same_payload(&dump(ours.as_ref(), None), &redis.dump("k"), &story);
    }
}

/// The stream of the test above in the first version of the format.
fn old_stream_body(new: &[u8]) -> Vec<u8> {
    // One node: count, sixteen bytes of name behind their length, the listpack behind its own.
    let node_len = usize::from(new[18]);
    let (node, rest) = new.split_at(19 + node_len);
    // length, last name | first name, deleted name, added | one group: name, last name | read | …
    let (kept, rest) = rest.split_at(3);
    let rest = &rest[5..];
    let (group, rest) = rest.split_at(1 + 2 + 2);
    let entries_read = if rest[0] == 0x81 { 9 } else { 1 };
    [node, kept, group, &rest[entries_read..]].concat()
}

/// Compressed payloads of theirs load here and ours there; repeated texts even give equal bytes.
#[test]
fn compressed_strings_pass_both_ways() {
    let mut redis = Redis::with_settings(&[]);
    let mut rng = Rng::seeded(5);
    let mut compressor = Compressor::new();
    let mut same = 0;
    const ROUNDS: usize = 300;
    for round in 0..ROUNDS {
        let words = ["alpha ", "beta ", "gamma", "x", "0123456789", "zz"];
        let text: String = (0..rng.below(400) + 1).map(|_| words[rng.below(words.len())]).collect();
        redis.say(&["SET", "k", &text]);
        let theirs = redis.dump("k");
        let ours = dump(ValueRef::String(text.as_bytes()), Some(&mut compressor));
        same += usize::from(ours == theirs);
        let back = restore(&theirs, &Limits::default()).unwrap();
        assert_same_payload(
            &dump(back.as_ref(), None),
            &dump(ValueRef::String(text.as_bytes()), None),
            &format!("round {round}"),
        );
        redis.say(&["DEL", "copy"]);
        redis.ask(&[b"RESTORE", b"copy", b"0", &ours]);
        assert_eq!(redis.say(&["GET", "copy"]).text(), text.as_bytes(), "round {round}");
    }
    // liblzf starts from a table of whatever was in memory, so now and then it finds more.
    assert!(same * 10 >= ROUNDS * 9, "only {same} of {ROUNDS} payloads are equal");
}

#[test]
fn a_list_of_ours_loads_there_compressed() {
    let mut redis = Redis::with_settings(&[]);
    let mut list = List::new();
    for number in 0..5_000 {
        list.push(End::Back, format!("element:{number}").as_bytes(), &Limits::default());
        redis.say(&["RPUSH", "l", &format!("element:{number}")]);
    }
    let ours = dump(ValueRef::List(&list), Some(&mut Compressor::new()));
    redis.ask(&[b"RESTORE", b"copy", b"0", &ours]);
    let digests = redis.say(&["DEBUG", "DIGEST-VALUE", "l", "copy"]).texts();
    assert_eq!(digests[0], digests[1]);
}

/// Every byte of a payload changed in turn, checksum made right: both refuse or both accept, and
/// whatever we accept we can write again.
#[test]
fn damaged_payloads_never_get_further_than_an_error() {
    let mut redis = Redis::start();
    redis.say(&["ZADD", "z", "1", "a", "2", "b"]);
    redis.say(&["HSET", "h", "f", "v", "g", "1"]);
    redis.say(&["RPUSH", "l", "a", "b", "300"]);
    redis.say(&["SADD", "i", "1", "2", "3000"]);
    redis.say(&["XADD", "s", "5-1", "f", "v"]);
    for key in ["z", "h", "l", "i", "s"] {
        let original = redis.dump(key);
        let body = &original[1..original.len() - 10];
        for at in 0..body.len() {
            for flip in [1_u8, 0x80, 0xff] {
                let mut body = body.to_vec();
                body[at] ^= flip;
                if let Ok(value) = restore(&payload(original[0], &body), &Limits::default()) {
                    let again = dump(value.as_ref(), None);
                    assert!(restore(&again, &Limits::default()).is_ok(), "{key}, byte {at}");
                }
            }
        }
    }
}
