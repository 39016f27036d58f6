//! Every setting that the server acts on, as a value: read once, when it is set.
//!
//! Texts are for CONFIG GET and CONFIG REWRITE. Whoever acts on a setting finds it here, by field.

mod clients;
mod cluster;
mod files;
mod process;
mod replication;

pub use clients::{ClientSettings, OutputLimit, OutputLimits, Permission};
pub use cluster::{AnnounceSettings, ClusterSettings, EndpointType};
pub use files::{AppendSettings, SnapshotSettings};
pub use process::{
    ClientAuth, ListenSettings, OomMode, OomSettings, ProcessSettings, ShutdownOptions,
    Supervision, SystemLogSettings, TlsSettings,
};
pub use replication::{LoadMode, ReplicaSettings};

use store_script::LogLevel;
use store_types::Limits;

use super::Texts;
use crate::eviction::{EvictionSettings, Policy};
use crate::keyspace::{Freeing, FreeingSettings};

/// All settings as values.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What clients may do, and how much.
    pub clients: ClientSettings,
    /// The snapshot file, and the folder of all files.
    pub snapshot: SnapshotSettings,
    /// The append-only file.
    pub append: AppendSettings,
    /// Where the server listens.
    pub listen: ListenSettings,
    /// How connections are encrypted.
    pub tls: TlsSettings,
    /// The process around the server.
    pub process: ProcessSettings,
    /// What is logged.
    pub logs: LogSettings,
    /// How much memory keys may take, and which go first.
    pub(crate) memory: MemorySettings,
    /// How keys are kept.
    pub(crate) keys: KeySettings,
    /// How the server follows and is followed.
    pub replication: store_replica::Settings,
    /// What concerns a replica alone.
    pub replica: ReplicaSettings,
    /// How the server is a node of a cluster.
    pub cluster: ClusterSettings,
    /// `busy-reply-threshold`: how long a script runs before others are told that it does.
    pub busy_after_ms: u64,
}

/// What is logged and measured.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// `loglevel`: less important lines are not logged.
    pub level: LogLevel,
    /// `slowlog-log-slower-than` in microseconds, negative for never.
    pub slow_over_us: i64,
    /// `slowlog-max-len`.
    pub slow_len_max: usize,
    /// `acllog-max-len`.
    pub acl_len_max: usize,
    /// `latency-monitor-threshold`, 0 for off.
    pub latency_over_ms: u64,
    /// `latency-tracking`.
    pub tracks_latency: bool,
    /// `latency-tracking-info-percentiles`, as they are shown.
    pub percentiles: Vec<String>,
}

/// How much memory keys may take, and which go first.
#[derive(Clone, Debug)]
pub(crate) struct MemorySettings {
    /// `maxmemory`, 0 for no limit.
    pub(crate) max: usize,
    /// `replica-ignore-maxmemory`.
    pub(crate) replica_ignores_max: bool,
    pub(crate) eviction: EvictionSettings,
    /// `lfu-log-factor` and `lfu-decay-time`.
    pub(crate) lfu_log_factor: u32,
    pub(crate) lfu_decay_minutes: u32,
    pub(crate) freeing: FreeingSettings,
}

/// How keys are kept.
#[derive(Clone, Debug)]
pub(crate) struct KeySettings {
    /// `databases`.
    pub(crate) databases: usize,
    /// `notify-keyspace-events`.
    pub(crate) event_mask: u32,
    /// `hz`.
    pub(crate) hz: u64,
    /// `active-expire-effort`.
    pub(crate) expiry_effort: usize,
    /// Where small forms end; the seed is not a setting.
    pub(crate) limits: Limits,
    /// `min-replicas-to-write`, as long as `min-replicas-max-lag` is set, too.
    pub(crate) replicas_min: usize,
    /// `repl-backlog-size`.
    pub(crate) backlog_bytes: usize,
}

impl Settings {
    /// `maxmemory`, 0 for no limit.
    pub fn memory_max(&self) -> usize {
        self.memory.max
    }

    pub(super) fn read(texts: &Texts) -> Self {
        Self {
            clients: ClientSettings::read(texts),
            snapshot: SnapshotSettings::read(texts),
            append: AppendSettings::read(texts),
            listen: ListenSettings::read(texts),
            tls: TlsSettings::read(texts),
            process: ProcessSettings::read(texts),
            logs: LogSettings::read(texts),
            memory: MemorySettings::read(texts),
            keys: KeySettings::read(texts),
            replication: replication::read(texts),
            replica: ReplicaSettings::read(texts),
            cluster: ClusterSettings::read(texts),
            busy_after_ms: texts.number("busy-reply-threshold") as u64,
        }
    }
}

impl LogSettings {
    fn read(texts: &Texts) -> Self {
        let percentiles = texts.text("latency-tracking-info-percentiles");
        Self {
            level: match texts.text("loglevel") {
                "debug" => LogLevel::Debug,
                "verbose" => LogLevel::Verbose,
                "warning" => LogLevel::Warning,
                _ => LogLevel::Notice,
            },
            slow_over_us: texts.number("slowlog-log-slower-than"),
            slow_len_max: texts.size("slowlog-max-len"),
            acl_len_max: texts.size("acllog-max-len"),
            latency_over_ms: texts.number("latency-monitor-threshold") as u64,
            tracks_latency: texts.is_on("latency-tracking"),
            percentiles: percentiles.split_ascii_whitespace().map(str::to_owned).collect(),
        }
    }
}

impl MemorySettings {
    fn read(texts: &Texts) -> Self {
        let freeing = |name| Freeing::lazily_if(texts.is_on(name));
        let max = texts.size("maxmemory");
        Self {
            max,
            replica_ignores_max: texts.is_on("replica-ignore-maxmemory"),
            eviction: EvictionSettings {
                policy: Policy::named(texts.text("maxmemory-policy")),
                samples: texts.size("maxmemory-samples"),
                tenacity: texts.number("maxmemory-eviction-tenacity") as u32,
                has_limit: max > 0,
            },
            lfu_log_factor: texts.number("lfu-log-factor") as u32,
            lfu_decay_minutes: texts.number("lfu-decay-time") as u32,
            freeing: FreeingSettings {
                eviction: freeing("lazyfree-lazy-eviction"),
                expire: freeing("lazyfree-lazy-expire"),
                server_del: freeing("lazyfree-lazy-server-del"),
                user_del: freeing("lazyfree-lazy-user-del"),
                user_flush: freeing("lazyfree-lazy-user-flush"),
            },
        }
    }
}

impl KeySettings {
    /// Between looks for keys that ended, when none is overdue: `hz` times a second.
    pub(crate) fn expiry_period_ms(&self) -> u64 {
        1000 / self.hz.clamp(1, 500)
    }

    fn read(texts: &Texts) -> Self {
        let limits = Limits {
            hash_listpack_entries_max: texts.size("hash-max-listpack-entries"),
            hash_listpack_value_max: texts.size("hash-max-listpack-value"),
            set_intset_entries_max: texts.size("set-max-intset-entries"),
            zset_listpack_entries_max: texts.size("zset-max-listpack-entries"),
            zset_listpack_value_max: texts.size("zset-max-listpack-value"),
            list_node_size: texts.number("list-max-listpack-size") as i32,
            stream_node_bytes_max: texts.size("stream-node-max-bytes"),
            stream_node_entries_max: texts.size("stream-node-max-entries"),
            hll_sparse_bytes_max: texts.size("hll-sparse-max-bytes"),
            hash_seed: 0,
        };
        let counts_replicas = texts.number("min-replicas-max-lag") > 0;
        Self {
            databases: texts.size("databases"),
            event_mask: texts.event_mask,
            hz: texts.number("hz") as u64,
            expiry_effort: texts.size("active-expire-effort"),
            limits,
            replicas_min: if counts_replicas { texts.size("min-replicas-to-write") } else { 0 },
            backlog_bytes: texts.size("repl-backlog-size"),
        }
    }
}
