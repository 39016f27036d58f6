//! The table of settings: every name that Redis 7.0 knows, its kind and its default.
//!
//! It is the only list: CONFIG GET, SET and REWRITE, redis.conf and the command line read it.
//! Names that other programs only set because Redis has them are kept and answered, whatever
//! we make of them.

use super::setting::Kind::*;
use super::setting::{HOSTNAME_MAX, Kind, Setting};

const ONE_THREAD: &str = "one thread does everything";
const KEEPS_NAME: &str = "the process keeps the name that it was started with";

/// The longest address that fits into a packet between nodes.
const PACKET_ADDRESS_MAX: usize = 45;

const FILE_NAME: Kind = FileName { what: "filename", may_be_empty: false };
const FOLDER_NAME: Kind = FileName { what: "dirname", may_be_empty: false };
const SNAPSHOT_NAME: Kind = FileName { what: "filename", may_be_empty: true };

/// Sorted by name.
pub const SETTINGS: &[Setting] = &[
    Setting::new("acl-pubsub-default", Choice(&["allchannels", "resetchannels"]), "resetchannels"),
    Setting::new("aclfile", Text, "").fixed(),
    Setting::new("acllog-max-len", Integer(0, i64::MAX), "128"),
    Setting::new("active-defrag-cycle-max", Integer(1, 99), "25")
        .inert("activedefrag cannot be turned on"),
    Setting::new("active-defrag-cycle-min", Integer(1, 99), "1")
        .inert("activedefrag cannot be turned on"),
    Setting::new("active-defrag-ignore-bytes", Memory(1, i64::MAX), "104857600")
        .inert("activedefrag cannot be turned on"),
    Setting::new("active-defrag-max-scan-fields", Integer(1, i64::MAX), "1000")
        .inert("activedefrag cannot be turned on"),
    Setting::new("active-defrag-threshold-lower", Integer(0, 1000), "10")
        .inert("activedefrag cannot be turned on"),
    Setting::new("active-defrag-threshold-upper", Integer(0, 1000), "100")
        .inert("activedefrag cannot be turned on"),
    Setting::new("active-expire-effort", Integer(1, 10), "1"),
    Setting::new("activedefrag", YesNo, "no")
        .only_default("the allocator of this program cannot move memory in use"),
    Setting::new("activerehashing", YesNo, "yes")
        .inert("the table of keys grows in steps, with nothing left to do later"),
    Setting::new("always-show-logo", YesNo, "no").fixed(),
    Setting::new("aof-checksum", YesNo, "yes"),
    Setting::new("aof-disable-auto-gc", YesNo, "no")
        .inert("files that a rewrite has replaced are removed at once"),
    Setting::new("aof-load-truncated", YesNo, "yes"),
    Setting::new("aof-rewrite-incremental-fsync", YesNo, "yes")
        .inert("a new base is synced once, when it is whole"),
    Setting::new("aof-timestamp-enabled", YesNo, "no"),
    Setting::new("aof-use-rdb-preamble", YesNo, "yes"),
    Setting::new("aof_rewrite_cpulist", Text, "").fixed().only_default(ONE_THREAD),
    Setting::new("appenddirname", FOLDER_NAME, "appendonlydir").fixed(),
    Setting::new("appendfilename", FILE_NAME, "appendonly.aof").fixed(),
    Setting::new("appendfsync", Choice(&["everysec", "always", "no"]), "everysec"),
    Setting::new("appendonly", YesNo, "no"),
    Setting::new("auto-aof-rewrite-min-size", Memory(0, i64::MAX), "67108864"),
    Setting::new("auto-aof-rewrite-percentage", Integer(0, i32::MAX as i64), "100"),
    Setting::new("bgsave_cpulist", Text, "").fixed().only_default(ONE_THREAD),
    Setting::new("bind", Words, "127.0.0.1 -::1"),
    Setting::new("bind-source-addr", Text, "")
        .only_default("connections to others leave from the address that the system chooses"),
    Setting::new("bio_cpulist", Text, "").fixed().only_default(ONE_THREAD),
    Setting::new("busy-reply-threshold", Integer(0, i64::MAX), "5000").alias("lua-time-limit"),
    Setting::new(
        "client-output-buffer-limit",
        OutputLimits,
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
    Setting::new("client-query-buffer-limit", Memory(1024 * 1024, i64::MAX), "1073741824"),
    Setting::new("cluster-allow-pubsubshard-when-down", YesNo, "yes"),
    Setting::new("cluster-allow-reads-when-down", YesNo, "no"),
    Setting::new("cluster-allow-replica-migration", YesNo, "yes"),
    Setting::new("cluster-announce-bus-port", Integer(0, 65535), "0"),
    Setting::new("cluster-announce-hostname", Hostname, ""),
    Setting::new("cluster-announce-ip", HostAddress { len_max: PACKET_ADDRESS_MAX }, ""),
    Setting::new("cluster-announce-port", Integer(0, 65535), "0"),
    Setting::new("cluster-announce-tls-port", Integer(0, 65535), "0"),
    Setting::new("cluster-config-file", Text, "nodes.conf").fixed(),
    Setting::new("cluster-enabled", YesNo, "no").fixed(),
    Setting::new("cluster-link-sendbuf-limit", Memory(0, i64::MAX), "0"),
    Setting::new("cluster-migration-barrier", Integer(0, i32::MAX as i64), "1"),
    Setting::new("cluster-node-timeout", Integer(0, i64::MAX), "15000"),
    Setting::new("cluster-port", Integer(0, 65535), "0").fixed(),
    Setting::new(
        "cluster-preferred-endpoint-type",
        Choice(&["ip", "hostname", "unknown-endpoint"]),
        "ip",
    ),
    Setting::new("cluster-replica-no-failover", YesNo, "no").alias("cluster-slave-no-failover"),
    Setting::new("cluster-replica-validity-factor", Integer(0, i32::MAX as i64), "10")
        .alias("cluster-slave-validity-factor"),
    Setting::new("cluster-require-full-coverage", YesNo, "yes"),
    Setting::new("crash-log-enabled", YesNo, "yes")
        .inert("a crash prints where it happened, and nothing else"),
    Setting::new("crash-memcheck-enabled", YesNo, "yes")
        .inert("a crash prints where it happened, and nothing else"),
    Setting::new("daemonize", YesNo, "no").fixed(),
    Setting::new("databases", Integer(1, i32::MAX as i64), "16").fixed(),
    Setting::new("dbfilename", SNAPSHOT_NAME, "dump.rdb").protected(),
    Setting::new("dir", Text, ".").protected(),
    Setting::new("disable-thp", YesNo, "yes").fixed(),
    Setting::new("dynamic-hz", YesNo, "yes")
        .inert("timers wake the loop when something is due, however many clients there are"),
    Setting::new("enable-debug-command", Choice(&["no", "yes", "local"]), "no").fixed(),
    Setting::new("enable-module-command", Choice(&["no", "yes", "local"]), "no").fixed(),
    Setting::new("enable-protected-configs", Choice(&["no", "yes", "local"]), "no").fixed(),
    Setting::new("hash-max-listpack-entries", Integer(0, i64::MAX), "512")
        .alias("hash-max-ziplist-entries"),
    Setting::new("hash-max-listpack-value", Memory(0, i64::MAX), "64")
        .alias("hash-max-ziplist-value"),
    Setting::new("hll-sparse-max-bytes", Memory(0, i64::MAX), "3000"),
    Setting::new("hz", Integer(0, i32::MAX as i64), "10"),
    Setting::new("ignore-warnings", Text, "").inert("no warning keeps the server from starting"),
    Setting::new("io-threads", Integer(1, 128), "1").fixed().inert(ONE_THREAD),
    Setting::new("io-threads-do-reads", YesNo, "no").fixed().inert(ONE_THREAD),
    Setting::new("jemalloc-bg-thread", YesNo, "yes").inert("the allocator is not jemalloc"),
    Setting::new("key-load-delay", Integer(i32::MIN as i64, i32::MAX as i64), "0").hidden(),
    Setting::new("latency-monitor-threshold", Integer(0, i64::MAX), "0"),
    Setting::new("latency-tracking", YesNo, "yes"),
    Setting::new("latency-tracking-info-percentiles", Percentiles, "50 99 99.9"),
    Setting::new("lazyfree-lazy-eviction", YesNo, "no"),
    Setting::new("lazyfree-lazy-expire", YesNo, "no"),
    Setting::new("lazyfree-lazy-server-del", YesNo, "no"),
    Setting::new("lazyfree-lazy-user-del", YesNo, "no"),
    Setting::new("lazyfree-lazy-user-flush", YesNo, "no"),
    Setting::new("lfu-decay-time", Integer(0, i32::MAX as i64), "1"),
    Setting::new("lfu-log-factor", Integer(0, i32::MAX as i64), "10"),
    Setting::new("list-compress-depth", Integer(0, i32::MAX as i64), "0")
        .inert("lists are kept uncompressed"),
    Setting::new("list-max-listpack-size", Integer(i32::MIN as i64, i32::MAX as i64), "-2")
        .alias("list-max-ziplist-size"),
    Setting::new(
        "loading-process-events-interval-bytes",
        Integer(1024, i32::MAX as i64),
        "2097152",
    )
    .hidden()
    .inert("clients are answered every few milliseconds, however many bytes that is"),
    Setting::new("logfile", Text, "").fixed(),
    Setting::new("loglevel", Choice(&["debug", "verbose", "notice", "warning"]), "notice"),
    Setting::new("lua-enable-deprecated-api", YesNo, "no")
        .fixed()
        .hidden()
        .only_default("scripts have the functions of Redis 7.0 and no older ones"),
    Setting::new("masterauth", Text, "").secret(),
    Setting::new("masteruser", Text, "").secret(),
    Setting::new("maxclients", Integer(1, u32::MAX as i64), "10000"),
    Setting::new("maxmemory", Memory(0, i64::MAX), "0"),
    Setting::new("maxmemory-clients", MemoryOrPercent, "0"),
    Setting::new("maxmemory-eviction-tenacity", Integer(0, 100), "10"),
    Setting::new(
        "maxmemory-policy",
        Choice(&[
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "noeviction",
        ]),
        "noeviction",
    ),
    Setting::new("maxmemory-samples", Integer(1, i32::MAX as i64), "5"),
    Setting::new("min-replicas-max-lag", Integer(0, i32::MAX as i64), "10")
        .alias("min-slaves-max-lag"),
    Setting::new("min-replicas-to-write", Integer(0, i32::MAX as i64), "0")
        .alias("min-slaves-to-write"),
    Setting::new("no-appendfsync-on-rewrite", YesNo, "no"),
    Setting::new("notify-keyspace-events", EventClasses, ""),
    Setting::new("oom-score-adj", OomScore, "no"),
    Setting::new("oom-score-adj-values", OomScores, "0 200 800"),
    Setting::new("pidfile", Text, "").fixed(),
    Setting::new("port", Integer(0, 65535), "6379"),
    Setting::new("proc-title-template", TitleTemplate, "{title} {listen-addr} {server-mode}")
        .inert(KEEPS_NAME),
    Setting::new(
        "propagation-error-behavior",
        Choice(&["ignore", "panic", "panic-on-replicas"]),
        "ignore",
    )
    .inert("an error in the stream of a primary is logged as critical, and never ends the server"),
    Setting::new("protected-mode", YesNo, "yes"),
    Setting::new("proto-max-bulk-len", Memory(1024 * 1024, i64::MAX), "536870912"),
    Setting::new("rdb-del-sync-files", YesNo, "no")
        .inert("files for full syncs have no name or are removed at once"),
    Setting::new("rdb-key-save-delay", Integer(i32::MIN as i64, i32::MAX as i64), "0").hidden(),
    Setting::new("rdb-save-incremental-fsync", YesNo, "yes")
        .inert("a snapshot is always synced after every 32 MiB"),
    Setting::new("rdbchecksum", YesNo, "yes").fixed(),
    Setting::new("rdbcompression", YesNo, "yes"),
    Setting::new("repl-backlog-size", Memory(1, i64::MAX), "1048576").at_least(16 * 1024),
    Setting::new("repl-backlog-ttl", Integer(0, i64::MAX), "3600"),
    Setting::new("repl-disable-tcp-nodelay", YesNo, "no"),
    Setting::new("repl-diskless-load", Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled"),
    Setting::new("repl-diskless-sync", YesNo, "yes"),
    Setting::new("repl-diskless-sync-delay", Integer(0, i32::MAX as i64), "5"),
    Setting::new("repl-diskless-sync-max-replicas", Integer(0, i32::MAX as i64), "0"),
    Setting::new("repl-ping-replica-period", Integer(1, i32::MAX as i64), "10")
        .alias("repl-ping-slave-period"),
    Setting::new("repl-timeout", Integer(1, i32::MAX as i64), "60"),
    Setting::new("replica-announce-ip", HostAddress { len_max: HOSTNAME_MAX }, "")
        .alias("slave-announce-ip"),
    Setting::new("replica-announce-port", Integer(0, 65535), "0").alias("slave-announce-port"),
    Setting::new("replica-announced", YesNo, "yes"),
    Setting::new("replica-ignore-disk-write-errors", YesNo, "no")
        .inert("a replica goes on following when its files cannot be written, and logs it"),
    Setting::new("replica-ignore-maxmemory", YesNo, "yes").alias("slave-ignore-maxmemory"),
    Setting::new("replica-lazy-flush", YesNo, "no").alias("slave-lazy-flush"),
    Setting::new("replica-priority", Integer(0, i32::MAX as i64), "100").alias("slave-priority"),
    Setting::new("replica-read-only", YesNo, "yes").alias("slave-read-only"),
    Setting::new("replica-serve-stale-data", YesNo, "yes").alias("slave-serve-stale-data"),
    Setting::new("replicaof", Primary, "").alias("slaveof").fixed(),
    Setting::new("requirepass", Text, "").secret(),
    Setting::new("sanitize-dump-payload", Choice(&["no", "yes", "clients"]), "no")
        .inert("payloads are always checked in full"),
    Setting::new("save", Save, "3600 1 300 100 60 10000"),
    Setting::new("server_cpulist", Text, "").fixed(),
    Setting::new("set-max-intset-entries", Integer(0, i64::MAX), "512"),
    Setting::new("set-proc-title", YesNo, "yes").fixed().inert(KEEPS_NAME),
    Setting::new("shutdown-on-sigint", Shutdown, "default"),
    Setting::new("shutdown-on-sigterm", Shutdown, "default"),
    Setting::new("shutdown-timeout", Integer(0, i32::MAX as i64), "10"),
    Setting::new("slowlog-log-slower-than", Integer(-1, i64::MAX), "10000"),
    Setting::new("slowlog-max-len", Integer(0, i64::MAX), "128"),
    Setting::new("socket-mark-id", Integer(0, u32::MAX as i64), "0")
        .fixed()
        .only_default("sockets cannot be marked"),
    Setting::new("stop-writes-on-bgsave-error", YesNo, "yes"),
    Setting::new("stream-node-max-bytes", Memory(0, i64::MAX), "4096"),
    Setting::new("stream-node-max-entries", Integer(0, i64::MAX), "100"),
    Setting::new("supervised", Choice(&["upstart", "systemd", "auto", "no"]), "no").fixed(),
    Setting::new("syslog-enabled", YesNo, "no").fixed(),
    Setting::new(
        "syslog-facility",
        Choice(&[
            "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
        ]),
        "local0",
    )
    .fixed(),
    Setting::new("syslog-ident", Text, "redis").fixed(),
    Setting::new("tcp-backlog", Integer(0, i32::MAX as i64), "511").fixed(),
    Setting::new("tcp-keepalive", Integer(0, i32::MAX as i64), "300"),
    Setting::new("timeout", Integer(0, i32::MAX as i64), "0"),
    Setting::new("tls-auth-clients", Choice(&["no", "yes", "optional"]), "yes"),
    Setting::new("tls-ca-cert-dir", Text, ""),
    Setting::new("tls-ca-cert-file", Text, ""),
    Setting::new("tls-cert-file", Text, ""),
    Setting::new("tls-ciphers", Text, ""),
    Setting::new("tls-ciphersuites", Text, ""),
    Setting::new("tls-client-cert-file", Text, ""),
    Setting::new("tls-client-key-file", Text, ""),
    Setting::new("tls-client-key-file-pass", Text, "").secret(),
    Setting::new("tls-cluster", YesNo, "no"),
    Setting::new("tls-dh-params-file", Text, ""),
    Setting::new("tls-key-file", Text, ""),
    Setting::new("tls-key-file-pass", Text, "").secret(),
    Setting::new("tls-port", Integer(0, 65535), "0"),
    Setting::new("tls-prefer-server-ciphers", YesNo, "no"),
    Setting::new("tls-protocols", Text, ""),
    Setting::new("tls-replication", YesNo, "no"),
    Setting::new("tls-session-cache-size", Integer(0, i32::MAX as i64), "20480"),
    Setting::new("tls-session-cache-timeout", Integer(0, i32::MAX as i64), "300")
        .inert("sessions are forgotten by number, not by age"),
    Setting::new("tls-session-caching", YesNo, "yes"),
    Setting::new("tracking-table-max-keys", Integer(0, i64::MAX), "1000000"),
    Setting::new("unixsocket", Text, "").fixed(),
    Setting::new("unixsocketperm", Octal, "0").fixed(),
    Setting::new("use-exit-on-panic", YesNo, "no")
        .hidden()
        .inert("a crash prints where it happened, and nothing else"),
    Setting::new("watchdog-period", Integer(0, i32::MAX as i64), "0")
        .hidden()
        .inert("there is no watchdog"),
    Setting::new("zset-max-listpack-entries", Integer(0, i64::MAX), "128")
        .alias("zset-max-ziplist-entries"),
    Setting::new("zset-max-listpack-value", Memory(0, i64::MAX), "64")
        .alias("zset-max-ziplist-value"),
];
