//! Why a command failed, in the words that clients know from Redis.

use std::borrow::Cow;

/// An error reply: its text begins with a code such as `ERR` or `WRONGTYPE`.
///
/// Texts are answered to clients and compared by them, so each stands here or at its command
/// exactly as Redis 7.0 spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(Cow<'static, [u8]>);

/// What running a command comes to; the reply itself is written to the context.
pub type CommandResult = Result<(), CommandError>;

impl CommandError {
    /// Options that make no sense together, or none at all.
    pub const SYNTAX: Self = Self::text("ERR syntax error");
    /// The key holds a value of another kind.
    pub const WRONG_TYPE: Self =
        Self::text("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// Not an integer where one must be.
    pub const NOT_INTEGER: Self = Self::text("ERR value is not an integer or out of range");
    /// Not a number where one must be.
    pub const NOT_FLOAT: Self = Self::text("ERR value is not a valid float");
    /// Outside the range the command allows.
    pub const OUT_OF_RANGE: Self = Self::text("ERR value is out of range");
    /// Negative where only positive makes sense.
    pub const NOT_POSITIVE: Self = Self::text("ERR value is out of range, must be positive");
    /// An index behind the end.
    pub const INDEX_OUT_OF_RANGE: Self = Self::text("ERR index out of range");
    /// The key must be there.
    pub const NO_SUCH_KEY: Self = Self::text("ERR no such key");
    /// A database number that does not exist.
    pub const DB_INDEX: Self = Self::text("ERR DB index is out of range");
    /// A string would outgrow `proto-max-bulk-len`.
    pub const STRING_TOO_LONG: Self =
        Self::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    /// A SCAN cursor that is none.
    pub const INVALID_CURSOR: Self = Self::text("ERR invalid cursor");

    /// Too few replicas would keep what is written.
    pub const FEW_REPLICAS: Self = Self::text("NOREPLICAS Not enough good replicas to write.");
    /// A replica takes no writes but its primary's.
    pub const READ_ONLY: Self = Self::text("READONLY You can't write against a read only replica.");
    /// What a replica has may be old, and is not to be served then.
    pub const STALE: Self = Self::text(
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    );
    /// What a node of a cluster must not forget cannot be kept.
    pub const UNSAVED_NODES: Self = Self::text(
        "ERR nodes.conf cannot be written: make it and its folder writable, free the disk, then \
         try again",
    );
    /// The same for a change that had been made when that was noticed.
    pub const UNKEPT_CHANGE: Self = Self::text(
        "ERR nodes.conf cannot be written: the change is in force, and would be lost by a crash. \
         Make the file and its folder writable and free the disk, until CLUSTER SAVECONFIG says OK",
    );
    /// The append-only file does not count yet, and `always` promises that it does.
    pub const UNKEPT: Self = Self::text(
        "MISCONF The data came from a master, and is being written to a new AOF file. Until that is \
         done no write is safe on disk, as appendfsync always promises. This passes by itself: try \
         again",
    );
    /// Writes are refused as long as saving fails.
    pub const SAVING_FAILS: Self = Self::text(
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist \
         to disk. Commands that may modify the data set are disabled, because this instance is \
         configured to report errors during writes if RDB snapshotting fails \
         (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the \
         RDB error.",
    );

    /// A fixed text.
    pub const fn text(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }

    /// A text made up at run time.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The whole reply without its leading `-`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The code: the first word.
    pub fn code(&self) -> &[u8] {
        self.0.split(|byte| *byte == b' ').next().unwrap_or_default()
    }
}
