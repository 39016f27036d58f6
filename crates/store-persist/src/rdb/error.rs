//! What may be wrong with a file.

use std::io;

use store_types::dump::LoadError;

use super::VERSION;

/// Why a snapshot file was refused. Nobody has changed it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdbError {
    /// The file could not be read.
    #[error("cannot read on at byte {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its bytes make no sense.
    #[error("byte {offset}: {fault}; {}", .fault.next_step())]
    Damaged {
        /// Where it was noticed.
        offset: u64,
        /// What is wrong.
        fault: Fault,
    },
}

/// What is wrong with the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It does not begin as such files do.
    #[error("this is no RDB file: it does not begin with REDIS and four digits")]
    NoRdb,
    /// Its version is one we do not know.
    #[error("the file has RDB version {0}, and this program reads 1 to {VERSION}")]
    Version(u16),
    /// It ends too early.
    #[error("the file ends in the middle of its data")]
    Truncated,
    /// A value is damaged.
    #[error("{}: {error}", describe_key(.key))]
    Value {
        /// The key of the value.
        key: Vec<u8>,
        /// What is wrong with it.
        error: LoadError,
    },
    /// Something that is not a value is damaged.
    #[error("{0}")]
    Record(LoadError),
    /// The checksum at the end is not that of the bytes before it.
    #[error("the checksum is {found:016x}, and the bytes before it give {expected:016x}")]
    Checksum {
        /// That of the bytes.
        expected: u64,
        /// The one in the file.
        found: u64,
    },
    /// A value of a module.
    #[error("{} belongs to the module {module:?}", describe_key(.key))]
    Module {
        /// The key of the value.
        key: Vec<u8>,
        /// The module's name.
        module: String,
    },
    /// Functions as test versions of Redis 7.0 wrote them.
    #[error("functions in the format of a Redis 7.0 release candidate")]
    PreReleaseFunction,
    /// A function library that does not load.
    #[error("a function library does not load: {0}")]
    Function(String),
    /// A database that this server has not.
    #[error("the file has data in database {db}, and the setting databases is {databases}")]
    Database {
        /// Its number.
        db: u64,
        /// How many there are.
        databases: usize,
    },
    /// There is more behind the end of what another server sent.
    #[error("it goes on behind its end")]
    GoesOn,
    /// The same key twice.
    #[error("{} comes twice", describe_key(.0))]
    DuplicateKey(Vec<u8>),
}

impl Fault {
    /// What to do about it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::NoRdb => "check the settings dir and dbfilename, or move the file away",
            Self::Version(_) => "save it with an older server, or load it with a newer one",
            Self::Module { .. } => "delete the keys of modules in the server that has them",
            Self::PreReleaseFunction => "save it with a released version of Redis 7",
            Self::Function(_) => "delete the library in the server that saved it, and save again",
            Self::Database { .. } => "raise the setting databases",
            _ => {
                "restore the file from a backup or a replica, or move it away to start without \
                 its data"
            }
        }
    }
}

pub(super) fn describe_key(key: &[u8]) -> String {
    const SHOWN_MAX: usize = 64;
    let shown = key[..key.len().min(SHOWN_MAX)].escape_ascii();
    let more = if key.len() > SHOWN_MAX { "…" } else { "" };
    format!("key \"{shown}{more}\"")
}
