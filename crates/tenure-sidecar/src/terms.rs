//! From the store's history to terms with gaps between them, as a timeline shows them.

use serde::Serialize;
use tenure::{CloseReason, HistoryEntry, HistoryKind, Token};

use crate::timestamp::Timestamp;

/// One leadership, as history tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TermRecord {
    /// Whose.
    pub(crate) id: String,
    /// The name that it was given.
    pub(crate) instance: String,
    pub(crate) token: u64,
    pub(crate) began_at: Timestamp,
    /// `None` while history does not know its end: it runs, or its lease expired.
    pub(crate) ended_at: Option<Timestamp>,
    /// How it ended, in a stable word.
    pub(crate) reason: Option<&'static str>,
    /// The successor, or an operator's words.
    pub(crate) detail: Option<String>,
    /// How long nobody led before it, by the store's clock; `None` for the first that is known, and
    /// where the store forgot when the term before it ended.
    pub(crate) gap_ms: Option<u64>,
    /// Why nobody could lead in that gap, if the store had lost its past.
    pub(crate) quarantined: Option<String>,
}

/// The terms in `entries`, which come newest first; the oldest term comes first.
pub(crate) fn terms(entries: &[HistoryEntry]) -> Vec<TermRecord> {
    let mut terms: Vec<TermRecord> = Vec::new();
    let mut quarantined = None;
    for entry in entries.iter().rev() {
        let at = Timestamp(entry.at.as_millis());
        let token = entry.token.map_or(0, Token::get);
        match &entry.what {
            HistoryKind::Granted => {
                let ended_at = terms.last().and_then(|term| term.ended_at);
                let ended_at = ended_at.filter(|_| quarantined.is_none());
                terms.push(TermRecord {
                    id: entry.id.to_string(),
                    instance: entry.id.name().to_owned(),
                    token,
                    began_at: at,
                    ended_at: None,
                    reason: None,
                    detail: None,
                    gap_ms: ended_at.map(|ended_at| at.0.saturating_sub(ended_at.0)),
                    quarantined: quarantined.take(),
                });
            }
            HistoryKind::Closed { reason, detail } => {
                if let Some(term) = terms.iter_mut().rev().find(|term| term.token == token) {
                    let is_known = quarantined.is_none() || !is_told_by_store(reason.as_str());
                    term.ended_at = is_known.then(|| at.max(term.began_at));
                    term.reason = Some(reason.as_str());
                    term.detail = Some(detail.clone()).filter(|detail| !detail.is_empty());
                }
            }
            HistoryKind::Quarantined { detail } => {
                // What the store forgot may have been a later end.
                if let Some(term) = terms.last_mut()
                    && term.reason.is_some_and(is_told_by_store)
                {
                    term.ended_at = None;
                }
                quarantined = Some(detail.clone());
            }
            // A word that a newer version wrote.
            _ => {}
        }
    }
    terms
}

/// Whether the store concluded the end from what it knew, rather than hearing of it.
fn is_told_by_store(reason: &str) -> bool {
    let concluded = [CloseReason::Expired, CloseReason::Vanished];
    concluded.iter().any(|one| one.as_str() == reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::{InstanceId, ServerTime};

    fn entry(at_ms: u64, id: &str, token: u64, what: HistoryKind) -> HistoryEntry {
        let (at, token) = (ServerTime(at_ms * 1000), Token::new(token));
        HistoryEntry { at, id: InstanceId::seen(id), token, what }
    }

    #[test]
    fn a_gap_lies_between_the_end_of_one_term_and_the_beginning_of_the_next() {
        let closed =
            HistoryKind::Closed { reason: CloseReason::HandedOver, detail: "bob_1".to_owned() };
        let entries = [
            entry(1250, "bob_1", 8, HistoryKind::Granted),
            entry(1200, "ada_1", 7, closed),
            entry(200, "ada_1", 7, HistoryKind::Granted),
        ];
        let terms = terms(&entries);
        assert_eq!((terms[0].instance.as_str(), terms[0].reason), ("ada", Some("handed-over")));
        assert_eq!((terms[0].gap_ms, terms[1].gap_ms), (None, Some(50)));
        assert_eq!((terms[0].ended_at, terms[1].ended_at), (Some(Timestamp(1200)), None));
    }

    #[test]
    fn across_a_loss_of_data_neither_end_nor_gap_is_known() {
        let expired = HistoryKind::Closed { reason: CloseReason::Expired, detail: String::new() };
        let lost = HistoryKind::Quarantined { detail: "store restarted".to_owned() };
        let entries = [
            entry(9, "bob_1", 8, HistoryKind::Granted),
            entry(6, "~quarantine", 0, lost),
            entry(5, "ada_1", 7, expired),
            entry(1, "ada_1", 7, HistoryKind::Granted),
        ];
        let terms = terms(&entries);
        assert_eq!((terms[0].ended_at, terms[0].reason), (None, Some("expired")));
        assert_eq!(terms[1].gap_ms, None);
    }

    #[test]
    fn what_is_cut_off_at_the_oldest_end_is_no_term() {
        let closed = HistoryKind::Closed { reason: CloseReason::Released, detail: String::new() };
        let lost = HistoryKind::Quarantined { detail: "restarted empty".to_owned() };
        let entries = [
            entry(9, "bob_1", 8, HistoryKind::Granted),
            entry(6, "~quarantine", 0, lost),
            entry(5, "ada_1", 7, closed),
        ];
        let terms = terms(&entries);
        assert_eq!(terms.len(), 1);
        assert_eq!(terms[0].quarantined.as_deref(), Some("restarted empty"));
    }
}
