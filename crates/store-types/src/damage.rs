//! The one error of everything that reads foreign bytes.

/// Foreign bytes are not what they claim to be. Nothing was changed; the payload's sender is to
/// blame, and trying again is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged {kind}: {reason}")]
pub struct Damaged {
    /// What was being read: `listpack`, `intset`, `stream` …
    pub kind: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Damaged {
    pub(crate) const fn new(kind: &'static str, reason: &'static str) -> Self {
        Self { kind, reason }
    }
}
