//! Looks through a file of requests without running them.

use std::io::Read;

use super::encode::Increment;
use super::reader::{AofError, CommandReader};

/// What a file is like.
#[derive(Debug)]
pub struct Report {
    /// Requests that are whole.
    pub requests: u64,
    /// All before this is whole.
    pub valid_len: u64,
    /// Bytes covered by checksums.
    pub summed_len: u64,
    /// The unix second of the last `#TS:` line.
    pub timestamp: Option<u64>,
    /// What is wrong, if anything is.
    pub damage: Option<Damage>,
}

/// What is wrong with a file.
#[derive(Debug)]
pub struct Damage {
    /// Whether it is only cut short, as after a crash: servers start with such a file when
    /// `aof-load-truncated` is on.
    pub is_cut: bool,
    /// What and where.
    pub error: AofError,
}

/// Reads `source`, whose first byte is at `offset` in its file, to its end or first damage. It
/// stands behind the increments `before`. `progress` is told the offset now and
/// then. Fails only when it cannot be read, or when what it continues lacks something.
pub fn check(
    source: impl Read,
    offset: u64,
    before: &[Increment],
    progress: &mut dyn FnMut(u64),
) -> Result<Report, AofError> {
    /// Requests between two calls of `progress`.
    const PROGRESS_REQUESTS: u64 = 65_536;
    let mut reader = CommandReader::new(source, offset).behind(before);
    let damage = loop {
        match reader.advance() {
            Ok(true) if reader.requests().is_multiple_of(PROGRESS_REQUESTS) => {
                progress(reader.offset())
            }
            Ok(true) => {}
            Ok(false) => break None,
            Err(error @ (AofError::Read { .. } | AofError::Discontinued { .. })) => {
                return Err(error);
            }
            Err(error) => {
                let is_cut = matches!(error, AofError::Truncated { .. });
                break Some(Damage { is_cut, error });
            }
        }
    };
    let found = damage.as_ref().and_then(|damage| damage.error.valid_len());
    Ok(Report {
        requests: reader.requests(),
        valid_len: found.unwrap_or(reader.valid_len()),
        summed_len: reader.summed_len(),
        timestamp: reader.timestamp(),
        damage,
    })
}
