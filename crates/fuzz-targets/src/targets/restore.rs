//! RESTORE: a value as bytes from anywhere. Its checksum is made right, so that mutations come
//! through to the reader.

use store_resp::Reply;
use store_types::crc64::crc64;
use store_types::dump::VERSION;

use super::Target;
use super::world::World;

pub(super) const TARGET: Target = Target {
    name: "restore",
    about: "payloads of RESTORE, with a right checksum",
    run,
    words: &[
        b"\xff",
        b"\xff\xff\xff\xff",
        b"\x80\x00\x00\x00\x00",
        b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xc0\x01",
        b"\xc3",
        b"\x00\x00\x00\x00",
        b"\xf1\x7f",
        b"\x0b\x00\x00\x00",
    ],
};

/// What is done with whatever came out of a payload; wrong kinds answer with an error.
const USES: &[&[&[u8]]] = &[
    &[b"DUMP", b"key"],
    &[b"OBJECT", b"ENCODING", b"key"],
    &[b"GET", b"key"],
    &[b"LRANGE", b"key", b"0", b"-1"],
    &[b"LINSERT", b"key", b"BEFORE", b"a", b"x"],
    &[b"LPOP", b"key"],
    &[b"SMEMBERS", b"key"],
    &[b"SADD", b"key", b"5", b"x"],
    &[b"HGETALL", b"key"],
    &[b"HSET", b"key", b"a", b"9"],
    &[b"ZRANGE", b"key", b"0", b"-1", b"WITHSCORES"],
    &[b"ZADD", b"key", b"7", b"a"],
    &[b"XRANGE", b"key", b"-", b"+"],
    &[b"XINFO", b"STREAM", b"key", b"FULL"],
    &[b"XREADGROUP", b"GROUP", b"g", b"bob", b"STREAMS", b"key", b">"],
    &[b"XADD", b"key", b"*", b"f", b"v"],
    &[b"PFCOUNT", b"key"],
    &[b"SORT", b"key", b"ALPHA"],
    &[b"COPY", b"key", b"copy", b"REPLACE"],
    &[b"DEL", b"key"],
];

fn run(bytes: &[u8]) {
    let mut payload = bytes.to_vec();
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    let mut world = World::new();
    match world.ask(&[b"RESTORE", b"key", b"0", &payload, b"REPLACE"]) {
        Some(Reply::Simple(_)) => {}
        Some(Reply::Error(_)) => return assert_absent(&mut world),
        other => panic!("RESTORE answered {other:?}"),
    }
    // What was taken can be written and read again as the same value.
    let Some(Reply::Bulk(dumped)) = world.ask(&[b"DUMP", b"key"]) else {
        panic!("a restored value cannot be dumped")
    };
    let again = world.ask(&[b"RESTORE", b"again", b"0", &dumped]);
    assert!(matches!(again, Some(Reply::Simple(_))), "our own dump is refused: {again:?}");
    for words in USES {
        assert!(world.ask(words).is_some(), "no answer to {words:?}");
    }
}

fn assert_absent(world: &mut World) {
    let exists = world.ask(&[b"EXISTS", b"key"]);
    assert_eq!(exists, Some(Reply::Integer(0)), "a refused payload left something behind");
}
