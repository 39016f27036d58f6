//! What happened, numbered and kept for a while, so that a reader who was away can go on where it
//! stopped. Readers hold a number, not a queue: a slow one costs nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::clock;
use crate::timestamp::Timestamp;

/// How many entries are kept: some hours of an ordinary fleet, half a megabyte at the most.
pub(crate) const ENTRIES_KEPT_MAX: usize = 1024;
/// The longest text of an entry, in characters: it may quote what others wrote.
const TEXT_LEN_MAX: usize = 400;

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    /// 1, 2, 3, … since this sidecar started.
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    /// Which resource.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) what: EntryDetails,
}

/// What happened, in a stable word, and what a person should read.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct EntryDetails {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// Whose deed it was, where that is not this instance's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// How long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) took_ms: Option<f64>,
}

/// The entries since some number.
#[derive(Debug)]
pub(crate) struct EntriesSince {
    /// How many came in between that are not kept any more.
    pub(crate) missed: u64,
    pub(crate) entries: Vec<Arc<Entry>>,
}

pub(crate) struct Journal {
    /// Tells the numbers of one process from those of another.
    life: u32,
    entries: Mutex<VecDeque<Arc<Entry>>>,
    latest: watch::Sender<u64>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Journal {
            life: fastrand::u32(..),
            entries: Mutex::default(),
            latest: watch::Sender::new(0),
        }
    }

    pub(crate) fn add(&self, name: &str, mut what: EntryDetails) {
        what.text = plain(&what.text);
        let mut entries = self.lock();
        let number = *self.latest.borrow() + 1;
        let at = Timestamp(clock::unix_ms());
        if entries.len() == ENTRIES_KEPT_MAX {
            entries.pop_front();
        }
        entries.push_back(Arc::new(Entry { number, at, name: name.to_owned(), what }));
        self.latest.send_replace(number);
    }

    pub(crate) fn latest(&self) -> u64 {
        *self.latest.borrow()
    }

    /// Tells when there is more.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// What came after `number`, at most `max` entries.
    pub(crate) fn since(&self, number: u64, max: usize) -> EntriesSince {
        let entries = self.lock();
        let oldest = entries.front().map_or(self.latest() + 1, |entry| entry.number);
        let missed = oldest.saturating_sub(number + 1);
        let skipped = entries.partition_point(|entry| entry.number <= number);
        EntriesSince { missed, entries: entries.iter().skip(skipped).take(max).cloned().collect() }
    }

    /// The name of an entry for readers who come back.
    pub(crate) fn mark(&self, number: u64) -> String {
        format!("{:08x}-{number}", self.life)
    }

    /// The number that a mark stands for; `None` when it is of another life, or of none.
    pub(crate) fn number_of(&self, mark: &str) -> Option<u64> {
        let (life, number) = mark.split_once('-')?;
        let number = number.parse().ok()?;
        let known = u32::from_str_radix(life, 16).ok()? == self.life && number <= self.latest();
        known.then_some(number)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Others' words without deceptive characters, cut to a sane length.
fn plain(text: &str) -> String {
    tenure_core::text::plain(text, TEXT_LEN_MAX, '\u{fffd}')
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("latest", &self.latest()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal_of(count: usize) -> Journal {
        let journal = Journal::new();
        for _ in 0..count {
            journal.add("report", EntryDetails { kind: "test", ..EntryDetails::default() });
        }
        journal
    }

    fn numbers(since: &EntriesSince) -> Vec<u64> {
        since.entries.iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn a_reader_goes_on_where_it_stopped() {
        let journal = journal_of(5);
        let since = journal.since(journal.number_of(&journal.mark(3)).unwrap(), 10);
        assert_eq!((since.missed, numbers(&since)), (0, vec![4, 5]));
        assert_eq!(numbers(&journal.since(0, 2)), [1, 2], "a page at a time");
        assert!(journal.since(5, 10).entries.is_empty());
    }

    #[test]
    fn a_reader_who_was_away_too_long_is_told_how_much_it_missed() {
        let journal = journal_of(ENTRIES_KEPT_MAX + 7);
        let since = journal.since(2, 1);
        assert_eq!((since.missed, numbers(&since)), (5, vec![8]));
    }

    #[test]
    fn marks_of_another_life_are_not_understood() {
        let (journal, other) = (journal_of(3), Journal { life: 0, ..journal_of(3) });
        assert_eq!(journal.number_of(&Journal { life: 1, ..journal_of(3) }.mark(2)), None);
        assert_eq!(other.number_of("00000000-9"), None, "from the future");
        for nonsense in ["", "-", "x-1", "00000000-", "1"] {
            assert_eq!(other.number_of(nonsense), None);
        }
    }

    #[test]
    fn the_words_of_others_stay_one_line() {
        let journal = Journal::new();
        journal.add("report", EntryDetails { text: "a\nb".repeat(400), ..EntryDetails::default() });
        let text = &journal.since(0, 1).entries[0].what.text;
        assert!(text.starts_with("a\u{fffd}b") && text.chars().count() == TEXT_LEN_MAX);
    }
}
