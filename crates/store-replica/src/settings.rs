//! What an operator can set, as the core needs it.

use std::fmt;
use std::time::Duration;

/// Where a primary is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Name or number of the host.
    pub host: String,
    /// Port of its clients.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// `masteruser` and `masterauth`. Its debug text shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user, unless it is the default one.
    pub user: Option<String>,
    /// Never logged.
    pub password: Vec<u8>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// `client-output-buffer-limit replica`. Zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// More unsent bytes than this: closed at once.
    pub hard_max: u64,
    /// More than this for `soft_for`: closed, too.
    pub soft_max: u64,
    /// For how long the soft limit may be exceeded.
    pub soft_for: Duration,
}

/// How large the blocks are in which the stream is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Small writes share a block of this size.
    pub min: usize,
    /// A large value is cut into blocks of this size. A block goes as a whole, so one as large as
    /// a value would keep a backlog that is over its size, and replicas would be sent the value
    /// that is over their limit again and again.
    pub max: usize,
}

impl BlockSize {
    /// As Redis has them, for a backlog of `backlog_size` bytes.
    pub fn for_backlog(backlog_size: usize) -> Self {
        const MIN: usize = 16 * 1024;
        Self { min: MIN, max: MIN.max(backlog_size / 16) }
    }
}

/// All settings of replication. They may change at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `repl-backlog-size`: how many bytes of the stream are kept for those who come back.
    pub backlog_size: usize,
    /// How it is cut.
    pub block_size: BlockSize,
    /// `repl-backlog-ttl`: how long it is kept without replicas. Zero is for ever.
    pub backlog_ttl: Duration,
    /// `repl-timeout`.
    pub timeout: Duration,
    /// `repl-ping-replica-period`.
    pub ping_every: Duration,
    /// `repl-diskless-sync`: payloads go straight to sockets where a replica can take that.
    pub diskless: bool,
    /// `repl-diskless-sync-delay`: how long the first waits for others.
    pub diskless_delay: Duration,
    /// `repl-diskless-sync-max-replicas`: when so many wait, it begins. Zero is never.
    pub diskless_max_replicas: usize,
    /// `client-output-buffer-limit replica`.
    pub output_limit: OutputLimit,
    /// `min-replicas-to-write`.
    pub min_replicas: usize,
    /// `min-replicas-max-lag`. Zero turns `min_replicas` off.
    pub min_replicas_lag: Duration,
    /// The port that a primary is told.
    pub listening_port: u16,
    /// `replica-announce-ip`.
    pub announce_ip: Option<String>,
    /// How to log in at a primary.
    pub login: Option<Login>,
    /// `replica-read-only`.
    pub read_only: bool,
    /// A request or transaction of the stream that is longer is not read on.
    pub intake_max: usize,
    /// Memory that may be behind a transaction of the stream until its EXEC comes. Many small
    /// requests take several times their bytes.
    pub transaction_max: usize,
}

impl Settings {
    /// How many bytes a replica may lack; `None` where nothing limits it. Below the size of the
    /// backlog a limit would close what a partial sync gives back at once.
    pub(crate) fn unsent_max(&self) -> Option<u64> {
        let hard_max = self.output_limit.hard_max;
        (hard_max > 0).then(|| hard_max.max(self.backlog_size as u64))
    }
}

impl Default for Settings {
    fn default() -> Self {
        let backlog_size = 1024 * 1024;
        Self {
            backlog_size,
            block_size: BlockSize::for_backlog(backlog_size),
            backlog_ttl: Duration::from_secs(3600),
            timeout: Duration::from_secs(60),
            ping_every: Duration::from_secs(10),
            diskless: true,
            diskless_delay: Duration::from_secs(5),
            diskless_max_replicas: 0,
            output_limit: OutputLimit {
                hard_max: 256 * 1024 * 1024,
                soft_max: 64 * 1024 * 1024,
                soft_for: Duration::from_secs(60),
            },
            min_replicas: 0,
            min_replicas_lag: Duration::from_secs(10),
            listening_port: 6379,
            announce_ip: None,
            login: None,
            read_only: true,
            intake_max: 1024 * 1024 * 1024,
            transaction_max: 2 * 1024 * 1024 * 1024,
        }
    }
}
