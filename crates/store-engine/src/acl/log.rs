//! What was denied lately.

use std::collections::VecDeque;

/// Denials within this time of each other are told as one.
const GROUPING_MS: u64 = 60_000;
/// Entries looked at for one to count up.
const LOOKED_AT_MAX: usize = 10;

/// Why a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Command,
    Key,
    Auth,
    Channel,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Auth => "auth",
            Reason::Channel => "channel",
        }
    }
}

/// One entry of ACL LOG.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    /// `toplevel`, `multi` or `lua`.
    pub(crate) context: &'static str,
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) at_ms: u64,
    pub(crate) client: String,
}

/// The latest denials, newest first.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    entries: VecDeque<Denial>,
}

impl DenialLog {
    /// Adds an entry, or counts up one like it. No more than `len_max` stay.
    pub(crate) fn add(&mut self, denial: Denial, len_max: usize) {
        let alike = |known: &Denial| {
            known.reason == denial.reason
                && known.context == denial.context
                && denial.at_ms.abs_diff(known.at_ms) <= GROUPING_MS
                && known.object == denial.object
                && known.user == denial.user
        };
        let found = self.entries.iter().take(LOOKED_AT_MAX).position(alike);
        match found.and_then(|at| self.entries.remove(at)) {
            Some(mut known) => {
                known.count += 1;
                (known.at_ms, known.client) = (denial.at_ms, denial.client);
                self.entries.push_front(known);
            }
            None => self.entries.push_front(denial),
        }
        self.entries.truncate(len_max);
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Bytes of all entries: a client's name is in them.
    pub(crate) fn memory(&self) -> usize {
        let entry = |it: &Denial| it.object.capacity() + it.user.capacity() + it.client.capacity();
        let texts: usize = self.entries.iter().map(entry).sum();
        texts + self.entries.capacity() * size_of::<Denial>()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Denial> {
        self.entries.iter()
    }
}
