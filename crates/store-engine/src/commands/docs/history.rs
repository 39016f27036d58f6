// tidy: table
//! What changed in which version of Redis, and what took the place of what. In our own words: the
//! versions are facts, and a test compares them with those of redis-server.

/// What happened to a command in a version.
pub(super) type Change = (&'static str, &'static str);

const TIMEOUT: &[Change] = &[("6.0.0", "The timeout may have a fraction.")];
const UNIT: &[Change] = &[("7.0.0", "Units may be written in capitals.")];
const CONDITION: &[Change] = &[("7.0.0", "Takes NX, XX, GT and LT.")];
const FLUSH: &[Change] = &[("4.0.0", "Takes ASYNC."), ("6.2.0", "Takes SYNC.")];
const MANY_ELEMENTS_2: &[Change] = &[("2.4.0", "Takes several elements.")];
const MANY_ELEMENTS_4: &[Change] = &[("4.0.0", "Takes several elements.")];
const MANY_MEMBERS: &[Change] = &[("2.4.0", "Takes several members.")];
const COUNT: &[Change] = &[("6.2.0", "Takes a count.")];
const MISSING: &[Change] = &[("2.8.0", "Answers -2 when there is no key.")];
const EXCLUSIVE: &[Change] = &[("6.2.0", "Bounds may be exclusive.")];
const BITS: &[Change] = &[("7.0.0", "Takes BYTE and BIT.")];
const RESTORE: &[Change] = &[
    ("3.0.0", "Takes REPLACE."),
    ("5.0.0", "Takes ABSTTL."),
    ("5.0.0", "Takes IDLETIME and FREQ."),
];

/// By name.
pub(super) const HISTORY: &[(&str, &[Change])] = &[
    (
        "acl|getuser",
        &[
            ("6.2.0", "Tells the channels."),
            ("7.0.0", "Tells selectors, and patterns as rules instead of lists."),
        ],
    ),
    (
        "acl|setuser",
        &[("6.2.0", "Takes channels."), ("7.0.0", "Takes selectors, and kinds of access to keys.")],
    ),
    ("auth", &[("6.0.0", "Takes the name of a user.")]),
    ("bgsave", &[("3.2.2", "Takes SCHEDULE.")]),
    ("bitcount", BITS),
    ("bitpos", BITS),
    ("blpop", TIMEOUT),
    ("brpop", TIMEOUT),
    ("brpoplpush", TIMEOUT),
    ("bzpopmax", TIMEOUT),
    ("bzpopmin", TIMEOUT),
    (
        "client|kill",
        &[
            ("2.8.12", "Takes filters by name."),
            ("2.8.12", "Takes ID."),
            ("3.2.0", "TYPE may be master."),
            ("5.0.0", "TYPE may be replica, besides slave."),
            ("6.2.0", "Takes LADDR."),
        ],
    ),
    (
        "client|list",
        &[
            ("2.8.12", "Tells id."),
            ("5.0.0", "Takes TYPE."),
            ("6.0.0", "Tells user."),
            ("6.2.0", "Tells argv-mem, tot-mem, laddr and redir; takes ID."),
            ("7.0.0", "Tells resp, multi-mem, rbs and rbp."),
            ("7.0.3", "Tells ssub."),
        ],
    ),
    ("client|pause", &[("6.2.0", "Takes WRITE and ALL.")]),
    ("cluster|meet", &[("4.0.0", "Takes the port of the bus.")]),
    (
        "cluster|slots",
        &[("4.0.0", "Tells the ids of nodes."), ("7.0.0", "Tells more about how to reach them.")],
    ),
    ("command|info", &[("7.0.0", "Without a name, tells of all commands.")]),
    ("config|get", &[("7.0.0", "Takes several patterns.")]),
    ("config|set", &[("7.0.0", "Takes several settings.")]),
    ("exists", &[("3.0.3", "Takes several keys.")]),
    ("expire", CONDITION),
    ("expireat", CONDITION),
    ("flushall", FLUSH),
    ("flushdb", FLUSH),
    ("geoadd", &[("6.2.0", "Takes CH, NX and XX.")]),
    ("georadius", &[("6.2.0", "COUNT takes ANY."), ("7.0.0", "Units may be written in capitals.")]),
    ("georadius_ro", &[("6.2.0", "COUNT takes ANY.")]),
    ("georadiusbymember", UNIT),
    ("geosearch", UNIT),
    ("geosearchstore", UNIT),
    ("hdel", &[("2.4.0", "Takes several fields.")]),
    ("hello", &[("6.2.0", "Without a version, only tells about the connection.")]),
    ("hset", &[("4.0.0", "Takes several fields with their values.")]),
    ("info", &[("7.0.0", "Takes several sections.")]),
    ("lpop", COUNT),
    ("lpush", MANY_ELEMENTS_2),
    ("lpushx", MANY_ELEMENTS_4),
    (
        "migrate",
        &[
            ("3.0.0", "Takes COPY and REPLACE."),
            ("3.0.6", "Takes KEYS."),
            ("4.0.7", "Takes AUTH."),
            ("6.0.0", "Takes AUTH2."),
        ],
    ),
    ("pexpire", CONDITION),
    ("pexpireat", CONDITION),
    ("pttl", MISSING),
    ("renamenx", &[("3.2.0", "Both names may be the same.")]),
    ("restore", RESTORE),
    ("restore-asking", RESTORE),
    ("rpop", COUNT),
    ("rpush", MANY_ELEMENTS_2),
    ("rpushx", MANY_ELEMENTS_4),
    ("sadd", MANY_MEMBERS),
    ("scan", &[("6.0.0", "Takes TYPE.")]),
    ("script|flush", &[("6.2.0", "Takes ASYNC and SYNC.")]),
    (
        "set",
        &[
            ("2.6.12", "Takes EX, PX, NX and XX."),
            ("6.0.0", "Takes KEEPTTL."),
            ("6.2.0", "Takes GET, EXAT and PXAT."),
            ("7.0.0", "NX and GET may come together."),
        ],
    ),
    ("shutdown", &[("7.0.0", "Takes NOW, FORCE and ABORT.")]),
    ("slowlog|get", &[("4.0.0", "Tells address and name of the client.")]),
    ("spop", &[("3.2.0", "Takes a count.")]),
    ("srandmember", &[("2.6.0", "Takes a count.")]),
    ("srem", MANY_MEMBERS),
    ("ttl", MISSING),
    (
        "xadd",
        &[
            ("6.2.0", "Takes NOMKSTREAM, MINID and LIMIT."),
            ("7.0.0", "Of an id, the moment alone may be given."),
        ],
    ),
    ("xautoclaim", &[("7.0.0", "Tells which entries were gone.")]),
    ("xgroup|create", &[("7.0.0", "Takes ENTRIESREAD.")]),
    ("xgroup|setid", &[("7.0.0", "Takes ENTRIESREAD.")]),
    ("xinfo|groups", &[("7.0.0", "Tells entries-read and lag.")]),
    (
        "xinfo|stream",
        &[
            ("6.0.0", "Takes FULL."),
            ("7.0.0", "Tells how much was ever added and deleted, and how far groups have read."),
        ],
    ),
    ("xpending", &[("6.2.0", "Takes IDLE; bounds may be exclusive.")]),
    ("xrange", EXCLUSIVE),
    ("xrevrange", EXCLUSIVE),
    ("xsetid", &[("7.0.0", "Takes ENTRIESADDED and MAXDELETEDID.")]),
    ("xtrim", &[("6.2.0", "Takes MINID and LIMIT.")]),
    (
        "zadd",
        &[
            ("2.4.0", "Takes several members."),
            ("3.0.2", "Takes XX, NX, CH and INCR."),
            ("6.2.0", "Takes GT and LT."),
        ],
    ),
    ("zrange", &[("6.2.0", "Takes REV, BYSCORE, BYLEX and LIMIT.")]),
    ("zrangebyscore", &[("2.0.0", "Takes WITHSCORES.")]),
    ("zrem", MANY_MEMBERS),
    ("zrevrangebyscore", &[("2.1.6", "Bounds may be exclusive.")]),
];

/// Commands that nothing new should use, since when, and what to use. By name.
pub(super) const DEPRECATED: &[(&str, &str, &str)] = &[
    ("brpoplpush", "6.2.0", "`BLMOVE … RIGHT LEFT`"),
    ("cluster|slaves", "5.0.0", "`CLUSTER REPLICAS`"),
    ("cluster|slots", "7.0.0", "`CLUSTER SHARDS`"),
    ("georadius", "6.2.0", "`GEOSEARCH` or `GEOSEARCHSTORE`, `BYRADIUS`"),
    ("georadius_ro", "6.2.0", "`GEOSEARCH … BYRADIUS`"),
    ("georadiusbymember", "6.2.0", "`GEOSEARCH` or `GEOSEARCHSTORE`, `FROMMEMBER … BYRADIUS`"),
    ("georadiusbymember_ro", "6.2.0", "`GEOSEARCH … FROMMEMBER … BYRADIUS`"),
    ("getset", "6.2.0", "`SET … GET`"),
    ("hmset", "4.0.0", "`HSET`, which takes several fields"),
    ("rpoplpush", "6.2.0", "`LMOVE … RIGHT LEFT`"),
    ("slaveof", "5.0.0", "`REPLICAOF`"),
    ("substr", "2.0.0", "`GETRANGE`"),
    ("zrangebylex", "6.2.0", "`ZRANGE … BYLEX`"),
    ("zrangebyscore", "6.2.0", "`ZRANGE … BYSCORE`"),
    ("zrevrange", "6.2.0", "`ZRANGE … REV`"),
    ("zrevrangebylex", "6.2.0", "`ZRANGE … BYLEX REV`"),
    ("zrevrangebyscore", "6.2.0", "`ZRANGE … BYSCORE REV`"),
];

/// Commands that servers send to each other, or that serve tests. By name.
pub(super) const SYSTEM: &[&str] =
    &["debug", "pfdebug", "pfselftest", "replconf", "restore-asking"];
