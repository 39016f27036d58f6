//! The server apart from its keys: settings, counters, sessions, identity.

use std::collections::{BTreeMap, BTreeSet};

use store_types::Limits;

use crate::acl::Acl;
use crate::cluster::ClusterState;
use crate::config::Config;
use crate::effects::Effects;
use crate::eviction::Eviction;
use crate::latency::LatencyMonitor;
use crate::migration::Migrations;
use crate::persistence::PersistenceStatus;
use crate::persistence::snapshot::Saving;
use crate::platform::Platform;
use crate::pubsub::PubSub;
use crate::rates::{Amounts, RateMeter};
use crate::registry::Registry;
use crate::replication::ReplicationFacts;
use crate::scripting::Scripting;
use crate::sentinel::SentinelFacts;
use crate::session::{SessionId, Sessions};
use crate::slow_log::SlowLog;
use crate::tracking::TrackingTable;

/// How many distinct error codes INFO errorstats counts; scripts can make up any.
const ERROR_CODES_MAX: usize = 128;

/// Conditions of the whole server that send requests through all gates.
pub mod server_gate {
    /// `maxmemory` is set.
    pub const MEMORY_LIMIT: u32 = 1 << 0;
    /// Some session runs MONITOR.
    pub const MONITORED: u32 = 1 << 1;
    /// CLIENT PAUSE is in force.
    pub const PAUSED: u32 = 1 << 2;
    /// A script has run for too long.
    pub const BUSY_SCRIPT: u32 = 1 << 3;
    /// `min-replicas-to-write` asks for more replicas than there are.
    pub const FEW_REPLICAS: u32 = 1 << 8;
    /// Saving fails, and `stop-writes-on-bgsave-error` is on.
    pub const SAVING_FAILS: u32 = 1 << 4;
    /// Data is being loaded.
    pub const LOADING: u32 = 1 << 5;
    /// Data is being loaded beside the data in use.
    pub const LOADING_ASIDE: u32 = 1 << 12;
    /// Files cannot be written: no command may change data.
    pub const DISK_TROUBLE: u32 = 1 << 6;
    /// The append-only file is begun anew with data of a primary, and `appendfsync` is `always`.
    pub const UNKEPT: u32 = 1 << 15;
    /// This is a replica, and takes no writes but its primary's.
    pub const READ_ONLY: u32 = 1 << 10;
    /// The primary's stream is not followed, and `replica-serve-stale-data` is off.
    pub const STALE: u32 = 1 << 11;
    /// Keys are on their way to another server.
    pub const LEAVING: u32 = 1 << 14;
    /// This is a node of a cluster: requests belong to the node that serves their keys.
    pub const CLUSTER: u32 = 1 << 13;
    /// A script was ended in the middle of its writes, for the server ends: half of it is in
    /// memory, and nothing may be made of that.
    pub const TORN: u32 = 1 << 9;
}

/// Who this server is, as INFO tells.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Forty hexadecimal digits, new at each start.
    pub run_id: String,
    /// Forty hexadecimal digits, kept across a clean restart.
    pub incarnation: String,
    /// Whether all data of the incarnation is known to be there.
    pub history_complete: bool,
    /// Process id.
    pub process_id: u32,
    /// The port clients reach it at, 0 without one.
    pub tcp_port: u16,
    /// The operating system with its version, as INFO tells.
    pub system: String,
    /// Path of the program.
    pub executable: String,
    /// Path of the configuration file, empty without one.
    pub config_file: String,
    /// When it started, unix milliseconds.
    pub started_at_ms: u64,
    /// Since when it has the incarnation, unix milliseconds: its start, or the last promotion or
    /// full sync.
    pub incarnation_since_ms: u64,
    /// Whether it is a sentinel: it has no keys, and commands of its own.
    pub is_sentinel: bool,
}

/// What the driver counts, told to the engine for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Bytes read from clients.
    pub input_bytes: u64,
    /// Bytes written to clients.
    pub output_bytes: u64,
    /// Times that clients were read from.
    pub reads: u64,
    /// Times that clients were written to.
    pub writes: u64,
    /// Processor time of the longest turn of the loop, in microseconds.
    pub longest_turn_us: u64,
    /// Clients refused for `maxclients`.
    pub rejected_connections: u64,
    /// Clients closed for `maxmemory-clients`.
    pub evicted_clients: u64,
}

/// Counters that INFO tells.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Clients that connected.
    pub connections: u64,
    /// Requests run.
    pub commands: u64,
    /// Error replies by their code.
    pub errors: BTreeMap<Vec<u8>, u64>,
    /// All error replies.
    pub error_replies: u64,
    /// Requests of a primary's stream that were answered with an error.
    pub unexpected_errors: u64,
    /// Failed attempts to authenticate.
    pub auth_failures: u64,
    /// The most memory ever used.
    pub memory_peak: usize,
}

impl Stats {
    /// Counts an error reply.
    #[cold]
    pub fn count_error(&mut self, code: &[u8]) {
        self.error_replies += 1;
        // A script may return any text as an error, and INFO shows the code in a line.
        let is_code = !code.iter().any(u8::is_ascii_control);
        let code = if is_code { code } else { b"ERR" };
        if self.errors.len() < ERROR_CODES_MAX || self.errors.contains_key(code) {
            *self.errors.entry(code.to_vec()).or_default() += 1;
        }
    }
}

/// CLIENT PAUSE in force.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// Unix milliseconds.
    pub until_ms: u64,
    /// Whether reads wait too.
    pub all: bool,
}

/// Switches of DEBUG, all off at the start: for tests of servers and clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct DebugSwitches {
    /// SET-DISABLE-DENY-SCRIPTS: scripts may call commands of administrators.
    pub scripts_administrate: bool,
    /// SET-SKIP-CHECKSUM-VALIDATION: payloads and files are taken whatever their checksums say.
    pub skips_checksums: bool,
    /// PAUSE-CRON: nothing happens by itself. No key that ended is looked for, no snapshot begins
    /// at a save point, no client is closed for idling.
    pub pauses_cron: bool,
    /// AOF-FLUSH-SLEEP: how long everybody waits before the append-only file is written.
    pub flush_sleep_us: u64,
}

/// The server apart from its keys.
pub struct ServerState {
    /// Settings.
    pub config: Config,
    /// The command table with its counters.
    pub registry: Registry,
    /// All sessions but the one that runs.
    pub sessions: Sessions,
    /// Counters.
    pub stats: Stats,
    /// Who this is.
    pub identity: Identity,
    /// What the driver counted.
    pub measured: Measured,
    /// What the driver tells of files.
    pub persistence: PersistenceStatus,
    /// What the driver tells of replication.
    pub replication: ReplicationFacts,
    /// What the driver tells of a sentinel.
    pub sentinel: SentinelFacts,
    /// The node of a cluster that this server is, if it is one.
    pub cluster: Option<Box<ClusterState>>,
    /// The driver, for what it alone can do.
    pub platform: Box<dyn Platform>,
    /// Bytes in use before the first key.
    pub base_memory: usize,
    /// Bytes that clients hold, as the driver last told.
    pub clients_memory: usize,
    /// Settings that decide on encodings, as the values take them.
    pub limits: Limits,
    /// How keys go when memory is short.
    pub eviction: Eviction,
    /// Bits of [`server_gate`].
    pub gates: u32,
    /// Users and what was denied to them.
    pub acl: Acl,
    /// Scripts and libraries.
    pub scripting: Scripting,
    /// Channels and who listens.
    pub pubsub: PubSub,
    /// Keys that sessions keep.
    pub tracking: TrackingTable,
    /// Sessions that run MONITOR.
    pub monitors: BTreeSet<SessionId>,
    /// CLIENT PAUSE, if it is in force.
    pub pause: Option<Pause>,
    /// Whether writes are held back for another reason: the offset of the stream must stand still.
    pub holds_writes: bool,
    /// Sessions that wait for its end.
    pub postponed: Vec<SessionId>,
    /// Keys that move to other servers.
    pub migrations: Migrations,
    /// Snapshots to files.
    pub saving: Saving,
    /// How much happens per second.
    pub rate_meter: RateMeter,
    /// Requests that took long.
    pub slow_log: SlowLog,
    /// Events that took long.
    pub latency: LatencyMonitor,
    /// Requests that took at least so many microseconds concern one of the two.
    pub slow_from_us: u64,
    /// Whether durations go into histograms (`latency-tracking`).
    pub tracks_latency: bool,
    /// What DEBUG turned on.
    pub debug: DebugSwitches,
    /// What waits to be done after the request, or to be fetched by the driver.
    pub effects: Effects,
}

impl ServerState {
    /// The counters that rates are made of.
    pub(crate) fn amounts(&self) -> Amounts {
        Amounts {
            commands: self.stats.commands,
            input_bytes: self.measured.input_bytes,
            output_bytes: self.measured.output_bytes,
            received_bytes: self.replication.received_bytes,
            sent_bytes: self.replication.sent_bytes,
        }
    }

    /// Whether anything is held back, so that nothing may change by itself.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some() || self.holds_writes
    }

    /// Bytes that connections to other nodes hold.
    pub(crate) fn cluster_memory(&self) -> usize {
        self.cluster.as_ref().map_or(0, |cluster| cluster.links_memory)
    }

    /// What kind of server it is, as INFO and HELLO tell.
    pub fn mode(&self) -> &'static str {
        match (self.identity.is_sentinel, &self.cluster) {
            (true, _) => "sentinel",
            (false, Some(_)) => "cluster",
            (false, None) => "standalone",
        }
    }

    /// Whether clients have to log in.
    pub fn needs_login(&self) -> bool {
        !self.acl.is_open()
    }
}
