//! How a client fails, and the exit code of each failure.

use std::io;
use std::process::ExitCode;

use store_resp::ReplyError;

/// What went wrong. Texts name the place and the next step, and never a password.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// The words or the environment make no sense.
    #[error("{0}")]
    Usage(String),
    /// Nobody answers there.
    #[error("Could not connect to the store at {place}: {why}")]
    Unreachable { place: String, why: String },
    /// The local store was asked for and is not there.
    #[error("{0}")]
    NoLocalStore(String),
    /// The store answers, but not to us.
    #[error("{step} failed: {text}")]
    Refused { step: &'static str, text: String },
    /// The connection broke while a reply was awaited.
    #[error("connection lost ({0}): the command may or may not have been carried out")]
    Lost(String),
    /// It takes connections, and does not answer in time.
    #[error("no answer in time: it is busy, stopped or cut off")]
    Silent,
    /// What came back is a TLS alert.
    #[error("this port speaks TLS: write rediss:// in the address, or add --tls")]
    Encrypted,
    /// What came back is no reply.
    #[error("the store's answer is not RESP ({0}): is this the port of Redis or Valkey?")]
    Garbage(#[from] ReplyError),
    /// Ctrl-C while waiting.
    #[error("interrupted")]
    Interrupted,
    /// The standard output or input of this program failed.
    #[error("{0}")]
    Local(io::Error),
}

impl ClientError {
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => 64,
            Self::Unreachable { .. }
            | Self::NoLocalStore(_)
            | Self::Lost(_)
            | Self::Silent
            | Self::Encrypted
            | Self::Garbage(_) => 69,
            Self::Interrupted => 130,
            Self::Refused { .. } | Self::Local(_) => 1,
        })
    }

    /// Whether the reader of our output has gone, which is nothing to talk about.
    pub(super) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Local(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
