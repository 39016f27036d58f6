//! The same words to a node of ours and to a real one: the same replies.

use store_resp::Reply;
use testkit::{RedisServer, ServerProgram};

use super::{Node, serve_all};
use crate::connection::Connection;

/// With all slots served: what a cluster refuses, and how CLUSTER answers.
const ALONE: &str = "
SELECT 0
SELECT 1
SELECT 99
SELECT x
MOVE foo 1
SWAPDB 0 1
SET foo bar
COPY foo foo2 DB 1
COPY foo foo2
COPY {t}a {t}b
REPLICAOF NO ONE
REPLICAOF 127.0.0.1 1
FAILOVER
MSET a 1 b 2
MSET {x}a 1 {x}b 2
MGET {x}a {x}b
DEL {x}a {x}b {y}c
RPUSH {l}l 3 1 2
SORT {l}l BY nosort
SORT {l}l BY {l}w_*
SORT {l}l BY w_* GET x_*
SORT {l}l GET #
SORT_RO {l}l BY w_*
RENAME foo other
RENAME foo foo{foo}
SINTERSTORE {a}d {a}1 {a}2
SINTERSTORE {a}d {b}1
XREAD STREAMS {a}s {b}s 0 0
BLPOP {a}l {b}l 0
ASKING
READONLY
READWRITE
MULTI
SET {m}a 1
SET {m}b 2
EXEC
MULTI
SET a 1
SET b 2
EXEC
MULTI
MSET a 1 b 2
GET a
EXEC
MULTI
EXEC
EXEC
WATCH a b
WATCH a
UNWATCH
SSUBSCRIBE a b
SPUBLISH a hello
SUNSUBSCRIBE
PUBLISH ch hello
PUBSUB SHARDCHANNELS
CLUSTER KEYSLOT foo{bar}
CLUSTER COUNTKEYSINSLOT 12182
CLUSTER COUNTKEYSINSLOT x
CLUSTER COUNTKEYSINSLOT 16384
CLUSTER GETKEYSINSLOT 12182 10
CLUSTER GETKEYSINSLOT 12182 -1
CLUSTER GETKEYSINSLOT x 1
CLUSTER GETKEYSINSLOT 1 x
CLUSTER ADDSLOTS 0
CLUSTER ADDSLOTS 16384
CLUSTER ADDSLOTS x
CLUSTER ADDSLOTSRANGE 1
CLUSTER ADDSLOTSRANGE 1 2 3
CLUSTER ADDSLOTSRANGE 5 2
CLUSTER ADDSLOTSRANGE 5 99999
CLUSTER DELSLOTS 99999
CLUSTER DELSLOTS 7 7
CLUSTER DELSLOTSRANGE 1 5 5 9
CLUSTER FLUSHSLOTS
CLUSTER SETSLOT 0 MIGRATING xx
CLUSTER SETSLOT 0 IMPORTING xx
CLUSTER SETSLOT 0 NODE xx
CLUSTER SETSLOT 0 STABLE
CLUSTER SETSLOT 0 STABLE x
CLUSTER SETSLOT 0 NOSUCH
CLUSTER SETSLOT x STABLE
CLUSTER FORGET xx
CLUSTER REPLICATE xx
CLUSTER REPLICAS xx
CLUSTER SLAVES xx
CLUSTER FAILOVER
CLUSTER FAILOVER NOW
CLUSTER RESET MAYBE
CLUSTER RESET
CLUSTER SET-CONFIG-EPOCH -1
CLUSTER SET-CONFIG-EPOCH x
CLUSTER SET-CONFIG-EPOCH 5
CLUSTER SET-CONFIG-EPOCH 6
CLUSTER BUMPEPOCH
CLUSTER BUMPEPOCH x
CLUSTER SAVECONFIG
CLUSTER MEET x 1
CLUSTER MEET 127.0.0.1 x
CLUSTER MEET 127.0.0.1 70000
CLUSTER MEET 127.0.0.1 1 x
CLUSTER MEET 127.0.0.1 1 2 3
CLUSTER COUNT-FAILURE-REPORTS xx
CLUSTER NOSUCH
CLUSTER
CLUSTER LINKS
CONFIG GET cluster-enabled
CONFIG SET cluster-enabled no
CONFIG SET cluster-announce-hostname a_b
CONFIG SET cluster-announce-hostname h.example
CONFIG SET cluster-node-timeout -1
CONFIG GET cluster-node-timeout
CONFIG SET cluster-require-full-coverage no
DEBUG CLUSTERLINK KILL all xx
";

/// Scripts have words with blanks.
const SCRIPTS: &[&[&str]] = &[
    &["EVAL", "return redis.call('get','foo')", "0"],
    &["EVAL", "#!lua flags=no-cluster\nreturn 1", "0"],
    &["EVAL", "redis.call('set',KEYS[1],1) return redis.call('get','{x}a')", "1", "{x}b"],
    &["EVAL", "redis.call('set',KEYS[1],1) return redis.call('get','{y}a')", "1", "{x}b"],
    &["EVAL", "redis.call('get','{q}a') return redis.call('get','{w}a')", "0"],
    &["EVAL", "return redis.call('mget','{q}a','{w}a')", "0"],
    &["EVAL", "return redis.pcall('mget','{q}a','{w}a')", "0"],
    &["EVAL", "return 1", "2", "{q}a", "{w}a"],
    &["EVAL", "#!lua\nredis.call('get','{q}a') return redis.call('get','{w}a')", "0"],
    &[
        "EVAL",
        "#!lua flags=allow-cross-slot-keys\nredis.call('get','{q}a') return redis.call('get','{w}a')",
        "0",
    ],
    &["EVAL", "#!lua\nredis.call('set',KEYS[1],1) return redis.call('get','{y}a')", "1", "{x}b"],
    &["EVAL", "#!lua\nreturn redis.call('mget','{q}a','{w}a')", "0"],
    &["EVAL", "return redis.call('select', 1)", "0"],
    &["EVAL", "return redis.call('cluster', 'keyslot', 'a')", "0"],
];

fn real(more: &[&str]) -> RedisServer {
    RedisServer::builder()
        .program(ServerProgram::redis())
        .args(["--cluster-enabled", "yes", "--enable-debug-command", "yes"])
        .args(["--cluster-node-timeout", super::TIMEOUT_MS])
        .args(more)
        .start()
}

#[track_caller]
fn assert_same(ours: &mut Connection, theirs: &mut Connection, words: &[&str]) {
    let replies = [ours, theirs].map(|connection| {
        connection.send(words);
        connection.receive().unwrap()
    });
    assert_eq!(replies[0], replies[1], "{words:?}");
}

#[test]
fn a_node_alone_answers_as_a_real_one() {
    let (node, server) = (Node::start(&[]), real(&[]));
    let (mut ours, mut theirs) = (node.connect(), Connection::tcp(server.port()));
    // Before it serves anything.
    for words in [["GET", "foo"], ["MGET", "foo"], ["CLUSTER", "SLOTS"], ["SSUBSCRIBE", "a"]] {
        assert_same(&mut ours, &mut theirs, &words);
    }
    serve_all(&mut ours);
    serve_all(&mut theirs);
    for line in ALONE.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_same(&mut ours, &mut theirs, &words);
    }
    for words in SCRIPTS {
        assert_same(&mut ours, &mut theirs, words);
    }
}

/// What kinds of replies stand where, with texts that are the same everywhere.
fn shape(reply: &Reply) -> String {
    match reply {
        Reply::Array(items) => format!("[{}]", items.iter().map(shape).collect::<String>()),
        Reply::Bulk(text) => match text.len() {
            40 => "id ".to_owned(),
            _ => format!("{} ", String::from_utf8_lossy(text)),
        },
        Reply::Integer(number @ (0 | 16_383)) => format!("{number} "),
        Reply::Integer(_) => "n ".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn what_cluster_shows_has_the_shape_of_a_real_node() {
    let host = [("cluster-announce-hostname", "h.example")];
    let (node, server) = (Node::alone(&host), real(&["--cluster-announce-hostname", "h.example"]));
    let (mut ours, mut theirs) = (node.connect(), Connection::tcp(server.port()));
    serve_all(&mut theirs);
    for kind in ["ip", "hostname", "unknown-endpoint"] {
        for connection in [&mut ours, &mut theirs] {
            connection.words(&format!("CONFIG SET cluster-preferred-endpoint-type {kind}"));
        }
        for words in ["CLUSTER SLOTS", "CLUSTER SHARDS"] {
            let replies = [&mut ours, &mut theirs].map(|it| shape(&it.words(words)));
            assert_eq!(replies[0], replies[1], "{words} with {kind}");
        }
    }
    let names = |connection: &mut Connection| {
        let text = super::text(&connection.words("CLUSTER INFO"));
        text.lines().map(|line| line.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut ours), names(&mut theirs));
    let line = |connection: &mut Connection| {
        let text = super::text(&connection.words("CLUSTER NODES"));
        text.split(' ').skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line(&mut ours), line(&mut theirs));
}
