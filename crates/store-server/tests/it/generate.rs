//! The same words to us and to redis-server, made up by a seed.
//!
//! A family is a list of templates. In a template `{k}` stands for one of a few keys, `{v}` for a
//! value, `{i}` for an integer, `{e}` for a time to live, `{n}` for a small count, `{f}` for a
//! number with a fraction, `{m}` for one of a few members, `{w}` for one of many, `{l}` for a
//! long text, `{s}` for a score, `{t}` for a bound of texts, `{p}` for a position, `{d}` for a
//! length with its unit, `{a|b}` for a or b, and `[…]` for something that may be left out. `¦`
//! stands for a bar. Directives of case files may stand in front.

use testkit::Random;

use crate::compare::Pair;
use crate::script::Line;

pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) templates: &'static [&'static str],
}

/// Add your family here.
pub(crate) const FAMILIES: &[Family] = &[
    Family {
        name: "strings",
        templates: &[
            "SET {k} {v} [{NX|XX}] [GET]",
            "SET {k} {v} [KEEPTTL]",
            "SET {k} {v} {EX|PX} {e}",
            "GET {k}",
            "GETSET {k} {v}",
            "GETDEL {k}",
            "GETEX {k} [{PERSIST|EX 10000}]",
            "SETNX {k} {v}",
            "MSET {k} {v} {k} {v}",
            "MSETNX {k} {v} {k} {v}",
            "MGET {k} {k} {k}",
            "APPEND {k} {v}",
            "STRLEN {k}",
            "SETRANGE {k} {n} {v}",
            "GETRANGE {k} {i} {i}",
            "INCR {k}",
            "DECR {k}",
            "INCRBY {k} {i}",
            "DECRBY {k} {i}",
            "LCS {k} {k} [LEN] [IDX] [MINMATCHLEN {n}] [WITHMATCHLEN]",
            "DEL {k} {k}",
            "EXISTS {k} {k}",
            "TYPE {k}",
            "INCRBYFLOAT {k} {f}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "scripting",
        templates: &[
            "EVAL \"return redis.call('{incr|get|del|strlen|type}',unpack(KEYS))\" 1 {k}",
            "EVAL \"return redis.pcall('{lpush|set|append}','{k}',unpack(ARGV))\" 1 {k} {v}",
            "EVAL \"return #KEYS\" {n} {k} {v} {v}",
            "EVAL \"return {-{n}|{n}.7|true|false|nil|nope|KEYS}\" 2 {k} {v}",
            "@unordered EVAL \"redis.setresp({2|3|4}) return redis.call('smembers','{k}')\" 0",
            "EVAL_RO \"return redis.call('{incr|get|del}','{k}')\" 1 {k}",
            "EVALSHA {e0e1f9fabfc9d4800c877a703b823ac0578ff8db|x} {0|{i}}",
            "SCRIPT LOAD \"return {1|2|KEYS|return}\"",
            "SCRIPT EXISTS {e0e1f9fabfc9d4800c877a703b823ac0578ff8db|x}",
            "SCRIPT FLUSH [{SYNC|ASYNC|x}]",
            "FUNCTION LOAD [REPLACE] \"#!lua name={a|b}\\nredis.register_function('{f|g}',\
             function(keys,arguments) return {#keys|arguments|{n}} end)\"",
            "FCALL {f|g|F} {0|1|{i}} {k} {v}",
            "FCALL_RO {f|g} 0",
            "@unordered FUNCTION LIST [LIBRARYNAME {a|b|*}] [WITHCODE]",
            "FUNCTION DELETE {a|b}",
            "FUNCTION STATS",
            "SADD {k} {v}",
            "GET {k}",
            "DEL {k}",
        ],
    },
    Family {
        name: "bits",
        templates: &[
            "SET {k} {v}",
            "SETBIT {k} {n} {0|1}",
            "SETBIT {k} {i} {n}",
            "GETBIT {k} {n}",
            "GETBIT {k} {i}",
            "BITCOUNT {k} [{i} {i} [{BIT|BYTE|x}]]",
            "BITPOS {k} {0|1|2} [{i} [{i} [{BIT|BYTE}]]]",
            "BITOP {AND|OR|XOR|NOT} {k} {k} [{k}] [{k}]",
            "BITFIELD {k} [OVERFLOW {WRAP|SAT|FAIL}] {SET|INCRBY} {i|u}{n} {n} {i} [GET u{n} {n}]",
            "BITFIELD {k} {GET|SET} {i8|u63|i64|u1} #{n} {i}",
            "BITFIELD_RO {k} GET {i|u}{n} {n}",
            "GET {k}",
            "STRLEN {k}",
            "OBJECT ENCODING {k}",
            "DEL {k}",
        ],
    },
    Family {
        name: "keys",
        templates: &[
            "SET {k} {v}",
            "DEL {k} {k}",
            "UNLINK {k} [{k}]",
            "EXISTS {k} {k}",
            "RENAME {k} {k}",
            "RENAMENX {k} {k}",
            "COPY {k} {k} [DB {n}] [REPLACE]",
            "MOVE {k} {n}",
            "SELECT {0|0|1|2}",
            "SWAPDB {0|1|2} {0|1|2}",
            "EXPIRE {k} {e} [{NX|XX|GT|LT}] [{NX|XX|GT|LT}]",
            "PEXPIREAT {k} {99999999999999|1|x|-1}",
            "PERSIST {k}",
            "@near 2 TTL {k}",
            "@near 2 EXPIRETIME {k}",
            "GETEX {k} [{PERSIST|EX 10000|PX {e}}]",
            "TYPE {k}",
            "TOUCH {k} {k}",
            "DBSIZE",
            "@unordered KEYS {*|a*|[a-c]|?}",
            "@unordered SCAN 0 COUNT 1000 [MATCH {*|[ab]}] [TYPE {string|list}]",
            "{FLUSHDB|PING|PING|PING|PING|PING|PING}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "transactions",
        templates: &[
            "MULTI",
            "EXEC",
            "DISCARD",
            "WATCH {k} [{k}]",
            "UNWATCH",
            "@on b SET {k} {v}",
            "@on b {GET|DEL|INCR} {k}",
            "@on b EXPIRE {k} {100|-1}",
            "SET {k} {v}",
            "INCR {k}",
            "GET {k}",
            "NOSUCH",
            "SELECT {0|1}",
        ],
    },
    Family {
        name: "lists",
        templates: &[
            "LPUSH {k} {v} [{v} {v}]",
            "RPUSH {k} {v} {l} [{v} {m} {m}]",
            "LPUSHX {k} {v}",
            "RPUSHX {k} {v} [{v}]",
            "LPOP {k} [{n}]",
            "RPOP {k} [{i}]",
            "LLEN {k}",
            "LRANGE {k} {i} {i}",
            "LRANGE {k} 0 -1",
            "LINDEX {k} {i}",
            "LSET {k} {i} {v}",
            "LINSERT {k} {BEFORE|AFTER|x} {v} {v}",
            "LTRIM {k} {0|1|{i}} {-1|-2|{i}}",
            "LREM {k} {i} {v}",
            "LPOS {k} {v} [RANK {i}] [COUNT {i}] [MAXLEN {n}]",
            "LMOVE {k} {k} {LEFT|RIGHT} {LEFT|RIGHT}",
            "RPOPLPUSH {k} {k}",
            "LMPOP {1|2|3} {k} {k} {LEFT|RIGHT} [COUNT {n}]",
            "B{L|R}POP {k} {k} 0.001",
            "BLMOVE {k} {k} {LEFT|RIGHT} {LEFT|RIGHT} 0.001",
            "BLMPOP 0.001 2 {k} {k} {LEFT|RIGHT} [COUNT {n}]",
            "{PING|PING|DEL {k}|SET {k} {v}}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "hashes",
        templates: &[
            "HSET {k} {m} {v} [{m} {i}] [{v} {m}]",
            "HMSET {k} {m} {f} {m} {i}",
            "HSETNX {k} {m} {v}",
            "HGET {k} {m}",
            "HMGET {k} {m} {m} {v}",
            "HDEL {k} {m} [{m} {m}]",
            "HLEN {k}",
            "HEXISTS {k} {m}",
            "HSTRLEN {k} {m}",
            "@unordered HGETALL {k}",
            "@unordered HKEYS {k}",
            "@unordered HVALS {k}",
            "HINCRBY {k} {m} {i}",
            "HINCRBYFLOAT {k} {m} {f}",
            "@unordered HRANDFIELD {k} 1000 [WITHVALUES]",
            "@type HRANDFIELD {k} [{-3|0|1|x} [WITHVALUES]]",
            "@unordered HSCAN {k} 0 COUNT 1000 [MATCH {m*|*1*|x}]",
            "HSET {k} {m} {l}",
            "{PING|PING|DEL {k}|SET {k} {v}}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "sets",
        templates: &[
            "SADD {k} {m} [{v} {m}]",
            "SADD {k} {n} {n} {n} [{n}] [{i}]",
            "SREM {k} {m} {n} [{v} {i}]",
            "SMOVE {k} {k} {{m}|{n}}",
            "SISMEMBER {k} {{m}|{n}}",
            "SMISMEMBER {k} {m} {n} {v}",
            "SCARD {k}",
            "@unordered SMEMBERS {k}",
            "@unordered SINTER {k} [{k}] [{k}]",
            "@unordered SUNION {k} [{k}] [{k}]",
            "@unordered SDIFF {k} [{k}] [{k}]",
            "S{INTER|UNION|DIFF}STORE {k} {k} [{k}] [{k}]",
            "SINTERCARD {1|2|{i}} {k} {k} [LIMIT {n}]",
            "@unordered SPOP {k} {100|0|-1|x}",
            "@unordered SRANDMEMBER {k} {100|0|x}",
            "@type SRANDMEMBER {k} [{1|-3|-1}]",
            "@unordered SSCAN {k} 0 COUNT 1000 [MATCH {m*|*1*|x}]",
            "{PING|PING|DEL {k}|SET {k} {v}}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "sorted sets",
        templates: &[
            "ZADD {k} {s} {m} [{s} {m}] [{s} {v}]",
            "ZADD {k} [{NX|XX}] [{GT|LT}] [CH] {s} {m} [{f} {m}]",
            "ZADD {k} [{NX|XX}] [{GT|LT}] INCR {f} {m}",
            "ZINCRBY {k} {f} {m}",
            "ZREM {k} {m} [{m} {v}]",
            "ZSCORE {k} {m}",
            "ZMSCORE {k} {m} {m} {v}",
            "Z{RANK|REVRANK} {k} {m}",
            "ZCARD {k}",
            "ZCOUNT {k} [(]{s} [(]{s}",
            "ZRANGE {k} {i} {i} [REV] [WITHSCORES]",
            "ZRANGE {k} [(]{s} [(]{s} BYSCORE [REV] [LIMIT {i} {i}] [WITHSCORES]",
            "Z{RANGE|REVRANGE} {k} 0 -1 [WITHSCORES]",
            "Z{RANGE|REVRANGE}BYSCORE {k} [(]{f} [(]{f} [LIMIT {n} {i}] [WITHSCORES]",
            "ZRANGESTORE {k} {k} {i} {i} [REV]",
            "ZRANGESTORE {k} {k} {s} {s} BYSCORE [LIMIT {n} {n}]",
            "ZREMRANGEBYRANK {k} {0|1|{i}} {0|1|{i}}",
            "ZREMRANGEBYSCORE {k} [(]{s} [(]{s}",
            "Z{UNION|INTER|DIFF} 2 {k} {k} [WITHSCORES]",
            "Z{UNION|INTER} 3 {k} {k} {k} WEIGHTS {f} {s} {s} [AGGREGATE {MIN|MAX|SUM}] WITHSCORES",
            "Z{UNION|INTER|DIFF}STORE {k} {1|2|{i}} {k} {k}",
            "Z{UNION|INTER}STORE {k} 2 {k} {k} WEIGHTS {s} {s} [AGGREGATE {MIN|MAX|SUM}]",
            "ZINTERCARD 2 {k} {k} [LIMIT {n}]",
            "Z{POPMIN|POPMAX} {k} [{n}]",
            "ZMPOP {1|2|3} {k} {k} {MIN|MAX} [COUNT {n}]",
            "B{ZPOPMIN|ZPOPMAX} {k} {k} 0.001",
            "BZMPOP 0.001 2 {k} {k} {MIN|MAX} [COUNT {n}]",
            "@unordered ZRANDMEMBER {k} 1000 [WITHSCORES]",
            "@type ZRANDMEMBER {k} [{-3|0|1|x} [WITHSCORES]]",
            "@unordered ZSCAN {k} 0 COUNT 1000 [MATCH {m*|*1*|x}]",
            "ZADD {k} {s} {l}",
            "{PING|PING|DEL {k}|SET {k} {v}|SADD {k} {m} {m} {m}}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "members in order of their bytes",
        templates: &[
            "ZADD {k} 0 {m} 0 {m} 0 {v}",
            "ZADD {k} 0 {w} 0 {w} 0 {w} 0 {w} 0 {w} 0 {w} 0 {w} 0 {w} 0 {w} 0 {w} 0 {w} 0 {w}",
            "ZREM {k} {m} {w}",
            "ZRANGEBYLEX {k} {t} {t} [LIMIT {n} {i}]",
            "ZREVRANGEBYLEX {k} {t} {t} [LIMIT {n} {i}]",
            "ZRANGE {k} {t} {t} BYLEX [REV] [LIMIT {n} {n}]",
            "ZLEXCOUNT {k} {t} {t}",
            "{PING|ZREMRANGEBYLEX {k} {t} {t}}",
            "ZRANGESTORE {k} {k} {t} {t} BYLEX [REV]",
            "ZRANK {k} {w}",
            "ZRANGE {k} 0 -1",
            "{PING|PING|PING|DEL {k}}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "large collections",
        templates: &[
            "ZADD {k}z {n} {w} {s} {w} {n} {w} {s} {w} {n} {w} {n} {w} {n} {w} {n} {w} {n} {w}",
            "ZREM {k}z {w}",
            "ZRANGE {k}z {i} {i} [REV] [WITHSCORES]",
            "ZRANGEBYSCORE {k}z [(]{n} [(]{n} [LIMIT {n} {n}] [WITHSCORES]",
            "ZCOUNT {k}z [(]{n} [(]{n}",
            "Z{RANK|REVRANK} {k}z {w}",
            "Z{POPMIN|POPMAX} {k}z [{n}]",
            "{PING|PING|ZREMRANGEBYRANK {k}z {n} {n}|ZUNIONSTORE {k}z 2 {k}z {k}z}",
            "SADD {k}s {w} {w} {w} {w} {w} {w} {n} {n}{n} {n}{n}{n} {n}{n}{n} {n}{n}{n}",
            "SADD {k}i {n} {n}{n} {n}{n}{n} {n}{n}{n} {n}{n}{n} {n}{n}{n} {n}{n}{n} {n}{n}{n}",
            "SREM {k}{s|i} {w} {n} {n}{n}",
            "@unordered S{INTER|UNION|DIFF} {k}{s|i} {k}{s|i}",
            "S{INTER|UNION|DIFF}STORE {k}i {k}i {k}i",
            "HSET {k}h {w} {v} {w} {v} {w} {v} {w} {v} {w} {v} {w} {v} {w} {v} {w} {v} {w} {v}",
            "HDEL {k}h {w} {w}",
            "HGET {k}h {w}",
            "@unordered HGETALL {k}h",
            "RPUSH {k}l {w} {l} {w} {w} {l} {w} {w} {l} {w} {w} {w} {w} {w} {w} {l} {w} {w}",
            "LPUSH {k}l {l} {w} {w} {w} {l} {l} {w} {w} {w} {w} {l} {w} {l} {w} {w} {w} {w}",
            "LINSERT {k}l {BEFORE|AFTER} {w} {l}",
            "LREM {k}l {i} {w}",
            "LSET {k}l {n} {l}",
            "LPOS {k}l {w} [RANK {i}] [COUNT {n}]",
            "LRANGE {k}l {i} {i}",
            "LINDEX {k}l {n}{n}",
            "{LPOP|RPOP} {k}l {n}",
            "{PING|PING|LTRIM {k}l {n} -{n}}",
            "OBJECT ENCODING {k}{z|s|i|h|l}",
        ],
    },
    Family {
        name: "streams",
        templates: &[
            "XADD {k} {n}{n}-{n} {f1|f2} {v} [{m} {v}]",
            "XADD {k} {n}{n}{n}-* {f1|f2} {v} [f2 {v}]",
            "XADD {k} {n}{n}{n}-* f1 {v} f2 {v}",
            "XADD {k} [NOMKSTREAM] [MAXLEN [{=|~}] {n} [LIMIT {i}]] {n}{n}{n}-{n} f1 {v}",
            "XADD {k} [MINID [{=|~}] {n}{n} [LIMIT {n}]] {n}{n}{n}-{n} f1 {v}",
            "XADD {k} {{i}|-|+|{n}-x|0-0} f1 {v}",
            "@repeat 30 XADD {k} 5{n}{n}-* f {v}",
            "XLEN {k}",
            "XRANGE {k} {-|{n}{n}|({n}{n}-{n}|{i}} {+|{n}{n}{n}|({n}{n}-{n}|{i}} [COUNT {i}]",
            "XREVRANGE {k} {+|{n}{n}{n}|({n}{n}-{n}} {-|{n}{n}|({n}{n}-{n}} [COUNT {n}]",
            "XDEL {k} {n}{n}-{n} {n}{n}{n}-0 [{i}]",
            "XTRIM {k} {MAXLEN|MINID} [{=|~}] {n}{n} [LIMIT {n}{n}]",
            "XTRIM {k} MAXLEN {n}",
            "XSETID {k} {n}{n}{n}-{n} [ENTRIESADDED {i}] [MAXDELETEDID {n}{n}-{n}]",
            "XREAD [COUNT {n}] STREAMS {k} {k} {0|$|{n}{n}} {0|$|{n}{n}-{n}}",
            "XREAD [COUNT {i}] [BLOCK 1] STREAMS {k} {$|{i}|{n}-{n}|>}",
            "XINFO STREAM {k}",
            "@near 5000 XINFO STREAM {k} FULL [COUNT {n}]",
            "XINFO GROUPS {k}",
            "XGROUP CREATE {k} {g|h} {0|$|{n}{n}} [MKSTREAM] [ENTRIESREAD {i}]",
            "XGROUP CREATE {k} {g|h} 0 MKSTREAM",
            "XGROUP SETID {k} {g|h} {0|$|{n}{n}} [ENTRIESREAD {i}]",
            "XGROUP {CREATECONSUMER|DELCONSUMER} {k} {g|h} {m}",
            "XGROUP {DESTROY|PING|PING} {k} {g|h}",
            "XREADGROUP GROUP {g|h} {ada|bob} [COUNT {n}] [NOACK] STREAMS {k} >",
            "XREADGROUP GROUP {g|h} {ada|bob} [COUNT {n}] STREAMS {k} {k} {>|0} {>|{n}{n}}",
            "XREADGROUP GROUP {g|h} {ada|bob} STREAMS {k} {0|{i}|$}",
            "XACK {k} {g|h} {n}{n}-{n} {n}{n}{n}-0 [{i}]",
            "XPENDING {k} {g|h}",
            "@near 5000 XPENDING {k} {g|h} IDLE 100000 {-|{n}{n}} {+|{n}{n}{n}} {i} [{ada|bob}]",
            "XCLAIM {k} {g|h} {ada|bob} {0|100000} {n}{n}{n}-0 {n}{n}-{n} [IDLE 200000] [JUSTID]",
            "XCLAIM {k} {g|h} {ada|bob} 0 {n}{n}{n}-0 5{n}{n}-1 [FORCE] [RETRYCOUNT {i}] [JUSTID]",
            "XCLAIM {k} {g|h} {ada|cid} {i} {n}{n}-{n} [TIME 1000000000000] [LASTID {n}{n}{n}-0]",
            "XAUTOCLAIM {k} {g|h} {ada|bob} {0|100000} {0|-|({n}{n}-{n}} [COUNT {n}] [JUSTID]",
            "COPY {k} {k} [REPLACE]",
            "{DEL|PING|PING} {k}",
            "{SET|PING|PING|PING|PING} {k} x",
        ],
    },
    Family {
        name: "HyperLogLog",
        templates: &[
            "PFADD {k} {v} [{m}] [{m}]",
            "PFADD {k} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w}",
            "PFADD {k} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w} {w}",
            "PFADD {k}",
            "PFCOUNT {k} [{k}] [{k}]",
            "PFMERGE {k} {k} [{k}]",
            "GET {k}",
            "STRLEN {k}",
            "OBJECT ENCODING {k}",
            "PFDEBUG {ENCODING|DECODE|TODENSE|nosuch} {k}",
            "{PFDEBUG GETREG {k}|PING|PING|PING}",
            "CONFIG SET hll-sparse-max-bytes {3000|100|20}",
            "DEL {k}",
            "{SET {k} {v}|PING|PING}",
        ],
    },
    Family {
        name: "geo",
        templates: &[
            "GEOADD {k} [{NX|XX}] [CH] {p} {m} [{p} {m}]",
            "GEOADD {k} {p} {w} {p} {w} {p} {w} {p} {w}",
            "GEOADD {k} {f} {f} {m}",
            "GEOPOS {k} {m} {m}",
            "GEOHASH {k} {m} {m}",
            "GEODIST {k} {m} {m} [{m|km|ft|mi|MI|x}]",
            "GEOSEARCH {k} {FROMLONLAT {p}|FROMMEMBER {m}} BYRADIUS {d} {ASC|DESC} [WITHDIST]",
            "GEOSEARCH {k} {FROMLONLAT {p}|FROMMEMBER {m}} BYBOX {n}000 {d} {ASC|DESC} [COUNT {n}]",
            "GEOSEARCH {k} FROMLONLAT {p} BYRADIUS {d} [WITHCOORD] [WITHHASH] [COUNT {n} [ANY]]",
            "GEOSEARCH {k} FROMLONLAT {p} BYBOX {n}00 {d} [WITHDIST] [COUNT {i}] [ASC]",
            "GEOSEARCHSTORE {k} {k} FROMLONLAT {p} BYRADIUS {d} [COUNT {n}] [WITHDIST]",
            // Distances make positions that are all the same, so that many are equally far.
            "GEOSEARCHSTORE {k} {k} FROMMEMBER {m} BYBOX {n}000 {d} STOREDIST",
            "GEORADIUS {k} {p} {d} [WITHDIST] [WITHCOORD] [STORE {k}] [COUNT {n}] [ASC]",
            "GEORADIUS {k} {p} {d} STOREDIST {k} [COUNT {n}] [ASC]",
            "GEORADIUS_RO {k} {p} {d} [WITHHASH] [STORE {k}]",
            "GEORADIUSBYMEMBER {k} {m} {d} [WITHDIST] [{STORE {k}|STOREDIST {k}}] [DESC]",
            "GEORADIUSBYMEMBER_RO {k} {m} {d} [COUNT {n} [ANY]]",
            "ZRANGE {k} 0 -1 WITHSCORES",
            "{DEL|PING|PING} {k}",
            "{SET {k} x|PING|PING|PING}",
        ],
    },
    Family {
        name: "SORT",
        templates: &[
            "RPUSH {la|lb} {n} {n} {i}",
            "RPUSH {la|lb} {m} {m} {m}",
            "SADD {sa|sb} {n} {n} {m}",
            "ZADD {za|zb} {s} {n} {s} {m}",
            "SET w_{{n}|{m}} {i}",
            // Without 1e400: its ERANGE stays in errno and makes later SORTs of Redis fail.
            "SET w_{{n}|{m}} {1.5|-2.25|3.0e2|inf|-inf|nan|x}",
            "HSET h_{{n}|{m}} f {n} g {m}",
            "DEL {w_|h_}{{n}|{m}}",
            "SORT {la|sa|za|lb|sb|zb} [{ASC|DESC}] [LIMIT {n} {n}]",
            "SORT {la|sa|za|lb|sb|zb} ALPHA [{ASC|DESC}] [LIMIT {n} {i}] [GET #] [GET w_*]",
            "SORT {la|sa|za|lb|sb|zb} BY w_* [DESC] [LIMIT {n} {n}] [GET # GET w_*] [GET h_*->g]",
            "SORT {la|sa|za|lb|sb|zb} BY h_*->f [DESC] [LIMIT {i} {n}] [GET h_*->f]",
            "SORT {la|lb} BY w_* ALPHA [{ASC|DESC}] [GET #]",
            "SORT {la|za|lb|zb} BY nosort [DESC] [LIMIT {i} {i}] [GET #] [GET w_*]",
            "@unordered SORT {sa|sb} BY nosort [GET #]",
            "SORT {la|sa|za} {BY nosort|ALPHA} [DESC] [LIMIT {n} {n}] [GET h_*->g] STORE {lc|ld|la}",
            "SORT {la|sa|za} BY w_* [GET # GET w_*] STORE {lc|ld}",
            "SORT_RO {la|sa|za} ALPHA [STORE lc]",
            "SORT {w_|h_}{m} [ALPHA]",
            "LRANGE {la|lb|lc|ld} 0 -1",
            "{DEL|PING|PING|PING} {la|lb|sa|sb|za|zb|lc|ld}",
        ],
    },
    Family {
        name: "dump",
        templates: &[
            "SET {k} {v}",
            "SET {k} {i}",
            "APPEND {k} {l}",
            "RPUSH {k} {v} {i} {l}",
            "HSET {k} {m} {v}",
            "ZADD {k} {s} {m}",
            "SADD {k} {n} {n}",
            "XADD {k} {n}{n}-{n} {m} {v}",
            "XTRIM {k} MAXLEN {n}",
            "XDEL {k} {n}{n}-{n}",
            "XGROUP CREATE {k} {m} {n} [ENTRIESREAD {n}]",
            "PFADD {k} {m} {w}",
            "DUMP {k}",
            "DUMP {k}",
            "CONFIG SET rdbcompression {yes|yes|no}",
            "RESTORE {k} {i} {v} [REPLACE] [ABSTTL] [IDLETIME {i}] [FREQ {i}]",
            "DEL {k}",
        ],
    },
    Family {
        name: "acl",
        templates: &[
            "ACL SETUSER {u|w} {on|off|nopass|resetpass|>p|>q|<p|clearselectors}",
            "ACL SETUSER {u|w} {~{k}|%R~{k}|%W~{k}|~*|resetkeys|allkeys|%RW~{k}|~[ab]}",
            "ACL SETUSER {u|w} {&x|&*|&x*|resetchannels|allchannels}",
            "ACL SETUSER {u|w} {+|-}@{read|write|string|list|keyspace|fast|slow|pubsub|dangerous}",
            "ACL SETUSER {u|w} {+|-}{get|set|config|config¦get|client¦id|publish|sort|debug}",
            "ACL SETUSER {u|w} +{select¦0|debug¦sleep|get¦a|config¦nosuch|nosuch|client¦}",
            "ACL SETUSER {u|w} {+@all|-@all|reset|nosuch|+@nosuch}",
            "ACL SETUSER {u|w} ({~|%R~|%W~}{k} {+get|+set|+@list|+@all|nosuch|&x})",
            "ACL DELUSER {u|w|nobody}",
            "ACL DRYRUN {u|w} {GET|INCR|STRLEN|EXISTS|TTL|GETDEL|TYPE|DEL|LPOP|OBJECT ENCODING} {k}",
            "ACL DRYRUN {u|w} {SET|APPEND|GETSET|LPUSH|RENAME|COPY|SINTERSTORE|LMPOP} {k} {k}",
            "ACL DRYRUN {u|w} SET {k} v [GET] [EX 10]",
            "ACL DRYRUN {u|w} MSET {k} v {k} v",
            "ACL DRYRUN {u|w} SORT {k} [BY w*] [GET x] [STORE {k}]",
            "ACL DRYRUN {u|w} BITFIELD {k} {GET|SET} u8 0 [1]",
            "ACL DRYRUN {u|w} ZUNIONSTORE {k} {1|2} {k} {k}",
            "ACL DRYRUN {u|w} XREAD [COUNT 1] STREAMS {k} {k} 0 0",
            "ACL DRYRUN {u|w} {PUBLISH|SPUBLISH} {x|y|xy} m",
            "ACL DRYRUN {u|w} {SUBSCRIBE|PSUBSCRIBE|SSUBSCRIBE|UNSUBSCRIBE} {x|y|x*} [y]",
            "ACL DRYRUN {u|w} {CONFIG GET x|CONFIG SET x y|CLIENT ID|SELECT 0|SELECT 1|DEBUG SLEEP 0}",
            "ACL DRYRUN {u|w} {KEYS *|FLUSHALL|PING|DBSIZE|AUTH x y|NOSUCH|GET}",
            "@on a {RESET|AUTH {u|w} {p|q|x}|ACL WHOAMI}",
            "@on a {GET|SET|DEL|LPUSH|MGET} {k} [{k}]",
            "@on a {MULTI|EXEC|DISCARD|RESET}",
            "@on a PUBLISH {x|y} m",
        ],
    },
    Family {
        name: "clients",
        templates: &[
            "CLIENT {GETNAME|NOSUCH|UNPAUSE|GETREDIR|TRACKINGINFO} [x x]",
            "CLIENT SETNAME {bob|\"a b\"|\"\"}",
            "CLIENT KILL {ID {0|-1|x|99999}|TYPE {normal|pubsub|nosuch}|ADDR x|USER {x|default SKIPME yes ID 99999}|SKIPME {yes|x}}",
            "CLIENT KILL ID 99999 {TYPE normal|USER default|SKIPME no|x y|ID {0|x}}",
            "CLIENT UNBLOCK {0|-1|x|99999} [{TIMEOUT|ERROR|x}]",
            "CLIENT NO-EVICT {on|off|x}",
            "CLIENT LIST {TYPE {master|nosuch}|ID {x|99999}|x|ID}",
            "CLIENT TRACKING {ON|OFF|x} [OPTIN] [OPTOUT] [NOLOOP] [BCAST] [PREFIX {k}] [PREFIX {k}]",
            "CLIENT CACHING {YES|NO|x}",
            "CLIENT PAUSE {0|-1|x} [{WRITE|x}]",
            "{SLOWLOG|LATENCY|MEMORY|PUBSUB|CLUSTER|MODULE|DEBUG|ACL} NOSUCH",
            "SLOWLOG GET {i}",
            "MEMORY USAGE {nosuch} [SAMPLES {i}]",
            "{ROLE|READONLY|FAILOVER|REPLCONF x|WAIT 0 {i}|ASKING}",
            "OBJECT {FREQ|ENCODING|REFCOUNT|x} {k}",
            "@near 60 OBJECT IDLETIME {k}",
            "DEBUG {DIGEST|DIGEST-VALUE {k} {k}|DIGEST-VALUE|SLEEP 0|ERROR {bad|\"MY bad\"}|x}",
            "SET {k} {v} [EX 1000]",
            "RPUSH {k} {v} {v}",
            "SADD {k} {v} {i}",
            "HSET {k} {v} {v} {i} {f}",
            "ZADD {k} {n} {v} 2.5 {v}",
            "DEL {k} {k}",
            "DEBUG DIGEST",
            "{RESET|SELECT 1|SELECT 0|PING|PING|ECHO {v}|LOLWUT}",
        ],
    },
];

/// Commands per family, seed and protocol in the everyday run. `COMPAT_COMMANDS` asks for more,
/// `COMPAT_SEEDS` for more seeds, and `COMPAT_FAMILY` for the families with this in their name
/// alone.
const COMMANDS: usize = 1500;

impl Family {
    /// One made-up line.
    pub(crate) fn line(&self, random: &mut Random) -> String {
        let template = *random.choose(self.templates);
        // A bar that separates nothing.
        expand(template, random).replace('¦', "|")
    }
}

pub(crate) fn expand(template: &str, random: &mut Random) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '[']) {
        text.push_str(&rest[..at]);
        let inner = enclosed(&rest[at..]);
        if rest[at..].starts_with('[') {
            if random.in_range(0..2) == 1 {
                text.push_str(&expand(inner, random));
            }
        } else {
            text.push_str(&placeholder(inner, random));
        }
        rest = &rest[at + inner.len() + 2..];
    }
    text + rest
}

/// What stands between the bracket at the front and its partner.
fn enclosed(text: &str) -> &str {
    let mut depth = 0;
    for (at, character) in text.char_indices() {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[1..at];
        }
    }
    panic!("unbalanced template {text}");
}

const KEYS: &[&str] = &["a", "b", "c", "d", "e"];
const VALUES: &[&str] = &[
    "x",
    "hello",
    "\"\"",
    "10",
    "-3",
    "0",
    "3.14",
    "9223372036854775807",
    "abcabcabc",
    "\"two words\"",
    "\"\\x00\\xff\"",
    "01",
    "1e5",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "5",
    "-5",
    "100",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "x",
    "1.5",
    "",
];
const FLOATS: &[&str] = &["0", "1.5", "-2.25", "3.0e2", "inf", "-inf", "nan", "x", "1e400"];
/// Times that are over, far away or no times: what ends soon would end on one side first.
const ENDS: &[&str] =
    &["0", "-1", "-100", "100000", "5000000", "9223372036854775807", "-9223372036854775808", "x"];
const SCORES: &[&str] =
    &["1", "1", "2", "3", "2.5", "0.1", "0.7", "-1", "0", "-0", "10", "1e20", "inf", "-inf"];
const TEXT_BOUNDS: &[&str] = &[
    "-",
    "+",
    "[m1",
    "(m1",
    "[m5",
    "(m5",
    "[m",
    "(m9",
    "[wide3",
    "(wide5",
    "[wide1400",
    "[",
    "(",
    "x",
    "[hello",
];

/// Radii and heights, from none to around the earth.
const LENGTHS: [&str; 9] = ["0", "0.5", "100", "1000", "5000", "12000", "200000", "1e7", "3e7"];

/// A longitude and a latitude, now and then on the edge of the map.
fn position(random: &mut Random) -> String {
    let edge = random.in_range(0..12);
    let longitude = random.in_range(0..360_000) as f64 / 1000.0 - 180.0;
    let latitude = random.in_range(0..170_000) as f64 / 1000.0 - 85.0;
    match edge {
        0 => format!("180 {latitude:.3}"),
        1 => format!("-180 {latitude:.3}"),
        2 => format!("{longitude:.3} 85.05112878"),
        3 => format!("{longitude:.3} -85.05112878"),
        _ => format!("{longitude:.3} {latitude:.3}"),
    }
}

fn placeholder(name: &str, random: &mut Random) -> String {
    match name {
        "k" => (*random.choose(KEYS)).to_owned(),
        "v" => (*random.choose(VALUES)).to_owned(),
        "i" => match *random.choose(INTEGERS) {
            "" => "\"\"".to_owned(),
            text => text.to_owned(),
        },
        "e" => (*random.choose(ENDS)).to_owned(),
        "f" => (*random.choose(FLOATS)).to_owned(),
        "n" => random.in_range(0..12).to_string(),
        "m" => format!("m{}", random.in_range(0..12)),
        "w" => format!("wide{}", random.in_range(0..1500)),
        "l" => format!("long{:0>90}", random.in_range(0..12)),
        "s" => (*random.choose(SCORES)).to_owned(),
        "t" => (*random.choose(TEXT_BOUNDS)).to_owned(),
        "p" => position(random),
        "d" => format!("{} {}", random.choose(&LENGTHS), random.choose(&["m", "km", "ft", "mi"])),
        choices => {
            let choices = split_choices(choices);
            let chosen = *random.choose(&choices);
            expand(chosen, random)
        }
    }
}

/// Splits at `|`, but not within inner brackets.
fn split_choices(text: &str) -> Vec<&str> {
    let (mut choices, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            '|' if depth == 0 => {
                choices.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    choices.push(&text[start..]);
    choices
}

/// Commands that one test tries.
pub(crate) fn commands_wanted() -> usize {
    commands_wanted_or(COMMANDS)
}

/// The same for one whose everyday run has another length.
pub(crate) fn commands_wanted_or(everyday: usize) -> usize {
    number_from_environment("COMPAT_COMMANDS").map_or(everyday, |count| count as usize)
}

/// Seeds that one test tries.
pub(crate) fn seeds_wanted() -> impl Iterator<Item = u64> {
    let first = testkit::seed();
    let count = number_from_environment("COMPAT_SEEDS").unwrap_or(1);
    (0..count).map(move |offset| first.wrapping_add(offset))
}

fn number_from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// A line per family begins with this; `cargo xtask compat` shows them.
pub(crate) const RESULT: &str = "compat:";

#[test]
fn made_up_commands_get_equal_replies() {
    let seeds: Vec<u64> = seeds_wanted().collect();
    let only = std::env::var("COMPAT_FAMILY").unwrap_or_default();
    let mut differences = Vec::new();
    let families: Vec<&Family> =
        FAMILIES.iter().filter(|family| family.name.contains(&only)).collect();
    assert!(!families.is_empty(), "no family has {only:?} in its name");
    for family in families {
        let (mut compared, before) = (0, differences.len());
        for seed in &seeds {
            for protocol in [2, 3] {
                let run = Run { family, seed: *seed, protocol, commands: commands_wanted() };
                compared += run.compare(&mut differences);
            }
        }
        let found = differences.len() - before;
        println!("{RESULT} {:<32} {compared:>9} compared {found:>4} differences", family.name);
    }
    let count = differences.len();
    assert!(differences.is_empty(), "{count} differences\n{}", differences.join("\n"));
}

/// One family, one seed, one protocol.
struct Run<'a> {
    family: &'a Family,
    seed: u64,
    protocol: u8,
    commands: usize,
}

impl Run<'_> {
    /// Returns how many replies were compared. Ends at the first difference: whatever comes
    /// behind it would differ for the same reason.
    fn compare(&self, differences: &mut Vec<String>) -> usize {
        let Self { family, seed, protocol, commands } = self;
        let mut random = Random::seeded(*seed);
        let mut pair = Pair::start(*protocol);
        // What is slow depends on the machine.
        pair.run(&Line::parse("CONFIG SET slowlog-log-slower-than -1")).expect("it is taken");
        pair.set_pushes_aside();
        let mut history = Vec::new();
        for at in 0..=*commands {
            let text = family.line(&mut random);
            let result = match at < *commands {
                true => pair.run(&Line::parse(&text)),
                false => pair.compare_pushes(),
            };
            history.push(text);
            if let Err(difference) = result {
                let recent = history[history.len().saturating_sub(12)..].join("\n    ");
                let name = family.name;
                differences.push(format!(
                    "{name} RESP{protocol}, seed {seed}, after\n    {recent}\n{difference}"
                ));
                break;
            }
        }
        pair.compared
    }
}
