//! What a crowd says, family by family, and who says it.
//!
//! Templates are those of `generate.rs`. In addition `%c` stands for the number of connection c,
//! `%soon` for a moment that is over before the next request, and ` * ` for the next number of a
//! stream's entry. `⟨⟩` and `«»` stand for brackets and braces of a script.

/// Families of one session that the crowd uses, too.
pub(super) const OTHER_FAMILIES: &[&str] = &[
    "strings",
    "bits",
    "keys",
    "lists",
    "hashes",
    "sets",
    "sorted sets",
    "members in order of their bytes",
    "streams",
    "HyperLogLog",
    "geo",
    "SORT",
    "dump",
];

/// Lines of theirs with these words are left out: times that are counted from now would end at
/// another moment on the other server, a directive
/// asks for a comparison that is not ours, and BITFIELD that grows a string and then does not fit
/// is lost from Redis' append-only file.
pub(super) const LEFT_OUT: &[&str] =
    &["@", "EX", "PX", "EXPIRE", "TTL", "0.001", "BLOCK", "RESTORE", "FAIL"];

/// Whether a request has as many keys as it says. One that has not is denied here to users who may
/// not touch every key, since nobody can tell what it is about; with Redis it fails by itself.
pub(super) fn counts_its_keys_well(line: &str) -> bool {
    const COUNTED: &[(&str, usize)] = &[
        ("ZDIFF", 1),
        ("ZINTER", 1),
        ("ZUNION", 1),
        ("ZINTERCARD", 1),
        ("SINTERCARD", 1),
        ("LMPOP", 1),
        ("ZMPOP", 1),
        ("ZDIFFSTORE", 2),
        ("ZINTERSTORE", 2),
        ("ZUNIONSTORE", 2),
        ("BLMPOP", 2),
        ("BZMPOP", 2),
    ];
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some((_, at)) = COUNTED.iter().find(|(name, _)| words.first() == Some(name)) else {
        return true;
    };
    let count = words.get(*at).and_then(|word| word.parse::<usize>().ok()).unwrap_or(0);
    count > 0 && count < words.len() - at
}

/// What is not said while writes are paused: a pause of everything would last as long as that of
/// writes, and CLIENT UNBLOCK of a session that a pause holds back ends redis-server 7.0.15.
pub(super) const NOT_WHILE_PAUSED: &[&str] = &["CLIENT PAUSE 10", "CLIENT UNBLOCK"];

/// What those who subscribe do not say: redis-server writes the messages that these cause into the
/// middle of the reply, which then is none.
pub(super) const NOT_BY_LISTENERS: &[&str] = &["MGET", "ZPOPMIN"];

/// A connection's part in the crowd. Messages of a subscriber would stand in the middle of what
/// EXEC answers, where redis-server 7.0 breaks its own protocol: so those who subscribe queue
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Subscribes. Its requests are answered at once, unless writes are paused.
    Listener,
    /// Queues, waits and runs scripts. It says nothing more until it is answered.
    Worker,
    /// Looks on with MONITOR.
    Monitor,
    /// Turns its replies off and on.
    Quiet,
    /// Keeps the others going: it neither waits nor writes.
    Steward,
}

pub(super) const CONNECTIONS: &[(&str, Part)] = &[
    ("a", Part::Listener),
    ("b", Part::Listener),
    ("c", Part::Worker),
    ("d", Part::Worker),
    ("e", Part::Worker),
    ("f", Part::Worker),
    ("m", Part::Monitor),
    ("q", Part::Quiet),
    ("s", Part::Steward),
];

pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) parts: &'static [Part],
    /// How often it is chosen, in comparison with others.
    pub(super) weight: u64,
    pub(super) templates: &'static [&'static str],
}

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "values",
        parts: &[Part::Listener, Part::Worker, Part::Quiet],
        weight: 8,
        templates: &[
            "SET {k} {v} [{NX|XX}] [GET]",
            "GET {k}",
            "MGET {k} {k}",
            "INCR {k}",
            "APPEND {k} {v}",
            "DEL {k} [{k}]",
            "UNLINK {k}",
            "RENAME {k} {k}",
            "COPY {k} {k} [REPLACE]",
            "TYPE {k}",
            "EXISTS {k} {k}",
            "TOUCH {k} {k}",
            "OBJECT ENCODING {k}",
            "RPUSH {k} {m} [{m}] [{m}]",
            "LPUSH {k} {m}",
            "{LPOP|RPOP} {k} [2]",
            "LRANGE {k} 0 -1",
            "LMOVE {k} {k} LEFT RIGHT",
            "SADD {k} {n} {n}",
            "SREM {k} {n}",
            "SINTERSTORE {k} {k} {k}",
            "HSET {k} {m} {v}",
            "HGET {k} {m}",
            "HDEL {k} {m}",
            "HINCRBY {k} {m} {n}",
            "ZADD {k} {n} {m} [{n} {m}]",
            "ZPOPMIN {k}",
            "ZRANGE {k} 0 -1 WITHSCORES",
            "XADD {k} * {m} {v}",
            "XLEN {k}",
            "XTRIM {k} MAXLEN 3",
            "PFADD {k} {m}",
            "SETBIT {k} {n} 1",
            "SORT {k} ALPHA [STORE {k}]",
        ],
    },
    Family {
        name: "any command",
        parts: &[Part::Worker, Part::Quiet],
        weight: 8,
        // Those of the families of one session.
        templates: &[],
    },
    Family {
        name: "wrong words",
        parts: &[Part::Listener, Part::Worker, Part::Quiet],
        weight: 1,
        templates: &[
            "NOSUCH {k}",
            "GET",
            "SET {k}",
            "EXPIRE {k} x",
            "CONFIG NOSUCH",
            "CLIENT KILL ID x",
            "XADD {k} 0-0 {m} {v}",
            "LPOP {k} -1",
            "ACL SETUSER u +nosuch",
            "EVAL",
            "SUBSCRIBE",
        ],
    },
    Family {
        name: "databases",
        parts: &[Part::Worker],
        weight: 2,
        templates: &[
            "SELECT {0|0|0|1|2|99}",
            "MOVE {k} {0|1|2}",
            "COPY {k} {k} DB {0|1} [REPLACE]",
            "SWAPDB {0|1} {1|2}",
            "DBSIZE",
            "{FLUSHALL|FLUSHDB|PING|PING} {SYNC|ASYNC}",
        ],
    },
    Family {
        name: "expiry",
        parts: &[Part::Listener, Part::Worker],
        weight: 2,
        templates: &[
            "SET {k} {v} PXAT %soon",
            "PEXPIREAT {k} %soon [{NX|XX|GT|LT}]",
            "GETEX {k} PXAT %soon",
            "EXPIREAT {k} 99999999999",
            "PEXPIREAT {k} {1|99999999999999}",
            "PERSIST {k}",
            "PEXPIRETIME {k}",
            "EVAL \"return redis.call('pexpireat',KEYS⟨1⟩,ARGV⟨1⟩)\" 1 {k} %soon",
        ],
    },
    Family {
        name: "transactions",
        parts: &[Part::Worker],
        weight: 5,
        templates: &[
            "WATCH {k} [{k}]",
            "WATCH {k}",
            "UNWATCH",
            "MULTI",
            "MULTI",
            "EXEC",
            "EXEC",
            "EXEC",
            "DISCARD",
        ],
    },
    Family {
        name: "blocking",
        parts: &[Part::Worker],
        weight: 4,
        templates: &[
            "B{L|R}POP {k} {k} 0",
            "BRPOPLPUSH {k} {k} 0",
            "BLMOVE {k} {k} {LEFT|RIGHT} {LEFT|RIGHT} 0",
            "BLMPOP 0 2 {k} {k} {LEFT|RIGHT} COUNT 2",
            "BZPOP{MIN|MAX} {k} {k} 0",
            "BZMPOP 0 2 {k} {k} {MIN|MAX} COUNT 2",
            "XREAD BLOCK 0 STREAMS {k} $",
            "XREAD BLOCK 0 COUNT 1 STREAMS {k} {k} $ 0",
            "XGROUP CREATE {k} g {0|$} MKSTREAM",
            "XREADGROUP GROUP g {ada|bob} BLOCK 0 [NOACK] STREAMS {k} >",
            "XGROUP DESTROY {k} g",
            "WAIT {0|1} 0",
            "BLPOP {k} {-1|x}",
        ],
    },
    Family {
        name: "unblocking",
        parts: &[Part::Steward, Part::Worker],
        weight: 3,
        templates: &[
            "CLIENT UNBLOCK {%c|%d|%e|%f}",
            "CLIENT UNBLOCK {%c|%d|%e|%f} {TIMEOUT|ERROR|x}",
            "CLIENT UNBLOCK {%a|99999}",
        ],
    },
    Family {
        name: "tracking",
        parts: &[Part::Listener, Part::Worker],
        weight: 3,
        templates: &[
            "CLIENT TRACKING ON [NOLOOP]",
            "CLIENT TRACKING ON BCAST [NOLOOP] [PREFIX {k}] [PREFIX {k}]",
            "CLIENT TRACKING ON {OPTIN|OPTOUT} [NOLOOP]",
            "CLIENT TRACKING ON REDIRECT {%a|%b|%c|99999} [BCAST] [NOLOOP]",
            "CLIENT CACHING {YES|NO}",
            "CLIENT TRACKING OFF",
            "CLIENT TRACKING OFF",
            "CLIENT TRACKINGINFO",
            "CLIENT GETREDIR",
            "MGET {k} {k} {k}",
            "EXISTS {k} {k} {k}",
        ],
    },
    Family {
        name: "subscriptions",
        parts: &[Part::Listener],
        weight: 4,
        templates: &[
            "SUBSCRIBE {x|y|z} [{x|y}]",
            "SUBSCRIBE __redis__:invalidate",
            // Without a name they leave in the order of a random hash.
            "UNSUBSCRIBE {x|y|z}",
            "PSUBSCRIBE {x*|?|[xy]}",
            "PSUBSCRIBE __key*",
            "SUBSCRIBE __keyevent@0__:{del|set|rpush|expired}",
            "PUNSUBSCRIBE {x*|?|__key*}",
            "SSUBSCRIBE {x|y}",
            "SUNSUBSCRIBE {x|y}",
            "PING [{v}]",
        ],
    },
    Family {
        name: "publishing",
        parts: &[Part::Listener, Part::Worker, Part::Quiet],
        weight: 3,
        templates: &[
            "PUBLISH {x|y|z|xx} {v}",
            "PUBLISH {x|y|z} {v}",
            "SPUBLISH {x|y} {v}",
            "PUBSUB NUMSUB x y z",
            "PUBSUB SHARDNUMSUB x y",
            "PUBSUB NUMPAT",
            "PUBSUB CHANNELS x",
        ],
    },
    Family {
        name: "events",
        parts: &[Part::Steward],
        weight: 1,
        templates: &[
            "CONFIG SET notify-keyspace-events {KEA|EA|KA|Kg$|Elshz|Exe|KEAmn|\"\"}",
            "CONFIG GET notify-keyspace-events",
        ],
    },
    Family {
        name: "MONITOR",
        parts: &[Part::Monitor],
        weight: 1,
        templates: &["MONITOR", "MONITOR", "PING", "{RESET|QUIT|PING}", "SET {k} {v}"],
    },
    Family {
        name: "replies off and on",
        parts: &[Part::Quiet],
        weight: 2,
        templates: &[
            "CLIENT REPLY {ON|OFF|SKIP|x}",
            "CLIENT REPLY {ON|SKIP}",
            "{SUBSCRIBE|UNSUBSCRIBE|PSUBSCRIBE|PUNSUBSCRIBE} {x|y|quiet}",
            "PING",
            "{HELLO 2|HELLO 3|RESET|PING}",
        ],
    },
    Family {
        name: "pauses",
        parts: &[Part::Steward],
        weight: 1,
        templates: &[
            "CLIENT PAUSE 100000 WRITE",
            "CLIENT PAUSE 10 [ALL]",
            "CLIENT UNPAUSE",
            "CLIENT UNPAUSE",
        ],
    },
    Family {
        name: "other clients",
        parts: &[Part::Steward, Part::Worker],
        weight: 1,
        templates: &[
            "CLIENT KILL ID {%a|%b|%c|%d|%e|%f|%q|99999} [SKIPME {yes|no}]",
            "CLIENT KILL TYPE pubsub",
            "CLIENT KILL USER u [TYPE normal]",
            "CLIENT NO-EVICT {on|off|x}",
            "CLIENT SETNAME {ada|bob|\"\"}",
            "CLIENT GETNAME",
            "CLIENT ID",
        ],
    },
    Family {
        name: "scripts",
        parts: &[Part::Worker, Part::Quiet],
        weight: 4,
        templates: &[
            "EVAL \"return redis.call('{incr|get|del|type}',KEYS⟨1⟩)\" 1 {k}",
            "EVAL \"redis.call('set',KEYS⟨1⟩,ARGV⟨1⟩) return redis.call('get',KEYS⟨1⟩)\" 1 {k} {v}",
            "EVAL \"redis.call('rpush',KEYS⟨1⟩,'s') return redis.call('rpush',KEYS⟨2⟩,'s')\" 2 {k} {k}",
            "EVAL \"redis.call('publish','{x|y}',ARGV⟨1⟩) return 1\" 0 {v}",
            "EVAL \"return redis.call('blpop',KEYS⟨1⟩,0)\" 1 {k}",
            "EVAL \"return redis.pcall('{nosuch|lpush}',KEYS⟨1⟩)\" 1 {k}",
            "EVAL \"return redis.error_reply('{MY|ERR} bad')\" 0",
            "EVAL \"return «err='MY bad'»\" 0",
            "EVAL \"error('bad')\" 0",
            "EVAL \"redis.call('select',1) return redis.call('set',KEYS⟨1⟩,1)\" 1 {k}",
            "EVAL \"return redis.call('zadd',KEYS⟨1⟩,1,'s')\" 1 {k}",
            "EVAL \"#!lua flags=no-writes\\nreturn redis.call('{get|set}',KEYS⟨1⟩,{1|nil})\" 1 {k}",
            "EVAL_RO \"return redis.call('{incr|get}',KEYS⟨1⟩)\" 1 {k}",
            "EVALSHA {e0e1f9fabfc9d4800c877a703b823ac0578ff8db|x} 0",
            "EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
            "SCRIPT LOAD \"return 1\"",
            "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db x",
            "{SCRIPT FLUSH|PING|PING}",
        ],
    },
    Family {
        name: "functions",
        parts: &[Part::Worker],
        weight: 2,
        templates: &[
            "FUNCTION LOAD [REPLACE] \"#!lua name={l1|l2}\\nredis.register_function('{f|g}',\
             function(keys,arguments) return redis.call('{incr|get|del}',keys⟨1⟩) end)\"",
            "FUNCTION LOAD REPLACE \"#!lua name=l3\\nredis.register_function«function_name='h',\
             callback=function(keys) return redis.call('get',keys⟨1⟩) end,flags=«'no-writes'»»\"",
            "FCALL {f|g|h} 1 {k}",
            "FCALL {f|g|h} 1 {k}",
            "FCALL_RO {f|g|h} 1 {k}",
            "FUNCTION DELETE {l1|l2|l3}",
            "{FUNCTION FLUSH|PING|PING}",
        ],
    },
    Family {
        name: "users",
        parts: &[Part::Worker],
        weight: 2,
        templates: &[
            "ACL SETUSER {u|w} {on|off|>p|nopass|~*|~a|&*|&x|+@all|-@all|+@read|resetkeys|-eval}",
            "ACL SETUSER u on >p ~{a|b|*} &x +@all -@dangerous",
            "ACL DELUSER {u|w}",
            "AUTH {u|w|default} {p|x}",
            "AUTH u p",
            "AUTH default x",
            "ACL WHOAMI",
            "{ACL LOG RESET|PING|PING}",
        ],
    },
    Family {
        name: "sessions",
        parts: &[Part::Listener, Part::Worker],
        weight: 1,
        templates: &[
            "RESET",
            "{QUIT|PING|PING}",
            "HELLO {2|3|4}",
            "HELLO 3 [SETNAME {ada|bob}]",
            "HELLO 3 AUTH {u p|default x}",
            "PING",
            "ECHO {v}",
            "READONLY",
        ],
    },
];
