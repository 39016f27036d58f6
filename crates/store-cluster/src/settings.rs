//! What an operator can set, and the clocks.

use crate::message::Address;

/// Readings of the caller's clocks. Every time-out counts by the first, which never steps; the
/// second is only for what other nodes and people read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that never goes back.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

/// The settings of a node, named as in redis.conf.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `cluster-node-timeout`, in milliseconds.
    pub node_timeout: u64,
    /// `cluster-require-full-coverage`.
    pub requires_full_coverage: bool,
    /// `cluster-replica-validity-factor`; 0 lets replicas of any age stand.
    pub validity_factor: u64,
    /// `repl-ping-replica-period`, in milliseconds.
    pub ping_period: u64,
    /// `cluster-migration-barrier`: working replicas that a master keeps.
    pub migration_barrier: usize,
    /// `cluster-allow-replica-migration`.
    pub allows_migration: bool,
    /// `cluster-replica-no-failover`.
    pub never_stands: bool,
    /// `cluster-allow-reads-when-down`.
    pub allows_reads_when_down: bool,
    /// `cluster-allow-pubsubshard-when-down`.
    pub allows_shard_channels_when_down: bool,
    /// Own ports, and the address if it is announced; else others take it from the connection.
    pub address: Address,
    /// `cluster-announce-hostname`.
    pub hostname: Option<std::sync::Arc<str>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_timeout: 15_000,
            requires_full_coverage: true,
            validity_factor: 10,
            ping_period: 10_000,
            migration_barrier: 1,
            allows_migration: true,
            never_stands: false,
            allows_reads_when_down: false,
            allows_shard_channels_when_down: true,
            address: Address::default(),
            hostname: None,
        }
    }
}
