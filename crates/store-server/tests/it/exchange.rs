//! Payloads travel both ways: what we DUMP a real redis-server RESTOREs, and the other way round.

use store_resp::Reply;
use store_server::Server;
use testkit::RedisServer;

use crate::connection::Connection;

/// Values of every kind and encoding; `{i}` counts.
pub(crate) const VALUES: &[(usize, &str)] = &[
    (1, "SET text hello"),
    (1, "SET integer -12345678901"),
    (60, "APPEND long some-text-that-repeats-{i}-"),
    (5, "RPUSH list {i} a{i} -{i}00000"),
    (900, "RPUSH quicklist element-number-{i} {i}"),
    (9, "SADD intset {i}00000"),
    (9, "SADD set member-{i} {i}"),
    (700, "SADD table member-{i}"),
    (9, "HSET hash field-{i} {i} {i} text"),
    (700, "HSET hashtable field-{i} value-{i}"),
    (9, "ZADD sorted {i}.5 member-{i}"),
    (300, "ZADD skiplist -{i}.25 member-{i} inf top"),
    (9, "GEOADD geo {i}.5 {i}.25 place-{i}"),
    (300, "PFADD sparse {i}"),
    (1, "PFADD dense x"),
    (1, "PFDEBUG TODENSE dense"),
    (350, "XADD stream {i}-1 name {i} same value"),
    (20, "XADD stream 9{i}00-1 other-{i} x name y"),
    (40, "XDEL stream {i}3-1"),
    (1, "XTRIM stream MAXLEN 300"),
    (1, "XGROUP CREATE stream readers 0"),
    (1, "XGROUP CREATE stream idle $ ENTRIESREAD 12"),
    (3, "XREADGROUP GROUP readers reader-{i} COUNT 7 STREAMS stream >"),
    (1, "XGROUP CREATECONSUMER stream readers nobody"),
    (1, "XACK stream readers 101-1 102-1"),
    (1, "XGROUP CREATE empty g 5-5 MKSTREAM"),
];

/// How to read a value in full.
fn readings(key: &str) -> Vec<String> {
    let words = ["GET *", "LRANGE * 0 -1", "SMEMBERS *", "HGETALL *", "ZRANGE * 0 -1 WITHSCORES"];
    let more = ["XINFO STREAM * FULL COUNT 0", "PFCOUNT *", "OBJECT ENCODING *", "TYPE *"];
    words.iter().chain(&more).map(|line| line.replace('*', key)).collect()
}

/// A reply as text; what has no order is put into one.
fn told(connection: &mut Connection, line: &str) -> String {
    match connection.words(line) {
        Reply::Array(items) if line.starts_with("SMEMBERS") => {
            let mut texts: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            texts.sort();
            texts.join(" ")
        }
        Reply::Array(items) if line.starts_with("HGETALL") => {
            let mut texts: Vec<String> = items.chunks(2).map(|pair| format!("{pair:?}")).collect();
            texts.sort();
            texts.join(" ")
        }
        reply => format!("{reply:?}"),
    }
}

fn carry(from: &mut Connection, to: &mut Connection, key: &str, target: &str) {
    let Some(Reply::Bulk(payload)) = from.ask(&["DUMP", key]) else { panic!("no payload") };
    let words = [&b"RESTORE"[..], target.as_bytes(), b"0", &payload];
    assert_eq!(to.ask(&words), Some(Reply::Simple("OK".into())), "{key}");
}

#[test]
fn payloads_are_understood_by_redis_and_theirs_by_us() {
    // Every payload of theirs is looked through in full, as ours always are.
    let theirs = RedisServer::builder().args(["--sanitize-dump-payload", "yes"]).start();
    let ours = Server::builder().any_port().start().expect("our server starts");
    let mut ours = Connection::tcp(ours.port().expect("our server listens"));
    let mut theirs = Connection::tcp(theirs.port());
    for (times, line) in VALUES {
        for index in 0..*times {
            let line = line.replace("{i}", &index.to_string());
            ours.words(&line);
            theirs.words(&line);
        }
    }
    let Reply::Array(keys) = theirs.words("KEYS *") else { panic!("no keys") };
    assert_eq!(keys.len(), 17, "one key of each kind");
    for key in keys {
        let Reply::Bulk(key) = key else { panic!("no key") };
        let key = String::from_utf8(key).unwrap();
        let (from_us, from_them) = (format!("from-us-{key}"), format!("from-them-{key}"));
        carry(&mut ours, &mut theirs, &key, &from_us);
        carry(&mut theirs, &mut ours, &key, &from_them);
        for ((line, there), here) in
            readings(&key).iter().zip(readings(&from_us)).zip(readings(&from_them))
        {
            assert_eq!(told(&mut ours, line), told(&mut theirs, &there), "{there}");
            assert_eq!(told(&mut theirs, line), told(&mut ours, &here), "{here}");
        }
    }
}
