//! The same words to a node of ours and to a real one: the same replies.

use store_resp::Reply;
use testkit::{GENEROUS, RedisServer, ServerProgram, wait_until};

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
CLUSTER FAILOVER FORCE NOW
CLUSTER FAILOVER FORCE TAKEOVER
CLUSTER RESET HARD SOFT
CLUSTER RESET SOFT x y
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

/// To a replica of a master that has all slots.
const REPLICA: &[&[&str]] = &[
    &["CLUSTER", "SETSLOT", "5", "STABLE"],
    &["CLUSTER", "SETSLOT", "x", "NOSUCH"],
    &["CLUSTER", "FAILOVER", "NOW"],
    &["CLUSTER", "FAILOVER", "FORCE", "x"],
    &["CLUSTER", "ADDSLOTS", "5"],
    &["CLUSTER", "REPLICATE", "xx"],
    &["WAIT", "0", "0"],
    &["GET", "nokey"],
    &["SET", "nokey", "1"],
    &["EVAL", "return 1", "0"],
    &["EVAL", "return redis.call('get','nokey')", "0"],
    &["EVAL", "return redis.call('set','nokey',1)", "0"],
    &["EVAL", "return redis.pcall('set','nokey',1)", "0"],
    &["EVAL", "return redis.call('get',KEYS[1])", "1", "nokey"],
    &["EVAL", "return redis.call('set',KEYS[1],1)", "1", "nokey"],
    &["EVAL_RO", "return redis.call('get',KEYS[1])", "1", "nokey"],
    &["EVAL_RO", "return redis.call('set',KEYS[1],1)", "1", "nokey"],
    &["EVAL", "#!lua flags=no-writes\nreturn redis.call('get',KEYS[1])", "1", "nokey"],
    &["EVAL", "#!lua\nreturn redis.call('get',KEYS[1])", "1", "nokey"],
    &["EVALSHA", "4e6d8fc8bb01276962cce5371fa795a7763657ae", "1", "nokey"],
    &["EVALSHA_RO", "4e6d8fc8bb01276962cce5371fa795a7763657ae", "1", "nokey"],
    &["FCALL", "reads", "1", "nokey"],
    &["FCALL_RO", "reads", "1", "nokey"],
    &["FCALL", "may_write", "1", "nokey"],
    &["FCALL_RO", "may_write", "1", "nokey"],
    &["FCALL_RO", "nosuch", "1", "nokey"],
    &["MULTI"],
    &["EVAL_RO", "return redis.call('get',KEYS[1])", "1", "nokey"],
    &["FCALL_RO", "reads", "1", "nokey"],
    &["EXEC"],
];

const FUNCTIONS: &str = "#!lua name=lib\n\
    local function get(keys) return redis.call('get', keys[1]) end\n\
    redis.register_function{function_name='reads', callback=get, flags={'no-writes'}}\n\
    redis.register_function('may_write', get)";

/// Makes `replica` one of `master`, which has all slots and listens for nodes on `bus`.
fn make_replica(master: &mut Connection, replica: &mut Connection, port: u16, bus: u16) {
    serve_all(master);
    assert_eq!(super::text(&master.ask(&["FUNCTION", "LOAD", FUNCTIONS]).unwrap()), "lib");
    let id = super::text(&master.words("CLUSTER MYID"));
    wait_until("it to be a replica", GENEROUS, || {
        replica.words(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        super::text(&replica.words(&format!("CLUSTER REPLICATE {id}"))) == "OK"
    });
    wait_until("it to follow and serve", GENEROUS, || {
        super::text(&replica.words("INFO replication")).contains("master_link_status:up")
            && super::text(&replica.words("CLUSTER INFO")).contains("cluster_state:ok")
    });
}

/// The port of the master is its own in each cluster.
fn without_port(reply: &Reply, port: u16) -> String {
    format!("{reply:?}").replace(&format!(":{port}"), ":port")
}

#[test]
fn a_replica_answers_as_a_real_one() {
    let (nodes, delay) = ([(); 2].map(|()| Node::start(&[])), ["--repl-diskless-sync-delay", "0"]);
    let servers = [(); 2].map(|()| real(&delay));
    let mut ours = nodes[1].connect();
    let our_port = nodes[0].server.port().unwrap();
    make_replica(&mut nodes[0].connect(), &mut ours, our_port, nodes[0].bus_port());
    let mut theirs = Connection::tcp(servers[1].port());
    let their_port = servers[0].port();
    let mut master = Connection::tcp(their_port);
    make_replica(&mut master, &mut theirs, their_port, their_port + 10_000);
    for mode in ["READWRITE", "READONLY"] {
        assert_same(&mut ours, &mut theirs, &[mode]);
        for words in REPLICA {
            let replies = [(&mut ours, our_port), (&mut theirs, their_port)]
                .map(|(connection, port)| without_port(&connection.ask(words).unwrap(), port));
            assert_eq!(replies[0], replies[1], "{mode}: {words:?}");
        }
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
