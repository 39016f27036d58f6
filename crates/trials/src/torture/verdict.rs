//! What a history says about the promises: a function of the history and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tenure_core::Moment;

use super::history::{Entry, History, Set, What};
use crate::record::{Acting, Overlap, Record};

/// More findings than anybody reads; the counts are complete.
const SHOWN_MAX: usize = 10;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How many terms there were.
    pub terms: usize,
    /// Terms that were valid at the same time.
    pub overlaps: Vec<Overlap>,
    /// Neighbours in time whose tokens do not grow.
    pub disorder: Vec<(Acting, Acting)>,
    /// Who still took itself for the leader when, though its term was over.
    pub late: Vec<(String, Moment)>,
    /// The longest time without a leader, up to the end of the history.
    pub leaderless_longest: Duration,
    /// The set that the resource takes from anybody.
    pub plain: Writes,
    /// The set whose resource checks tokens.
    pub fenced: Writes,
    /// What became of ticks.
    pub ticks: Ticks,
}

/// What became of ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// How many were done.
    pub done: usize,
    /// Ticks that were begun after they were done: which, and by whom.
    pub repeated: Vec<(u64, String)>,
    /// Ticks at which two worked at once: which, and who was at it while another had begun.
    pub doubled: Vec<(u64, String)>,
}

/// What became of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// How many were confirmed.
    pub confirmed: usize,
    /// How many of those are not in the set in the end: a stale write went over them.
    pub lost: usize,
    /// How many were refused.
    pub refused: usize,
}

impl Verdict {
    /// Whether two terms were valid at once, or somebody led after its end.
    pub fn is_broken(&self) -> bool {
        !self.overlaps.is_empty() || !self.late.is_empty()
    }

    /// Whether anything is wrong that is never allowed to be, whatever the fault.
    pub fn is_wrong_under_any_fault(&self) -> bool {
        self.fenced.lost > 0 || !self.late.is_empty()
    }
}

/// Judges a history.
pub fn judge(history: &History) -> Verdict {
    let mut entries: Vec<&Entry> = history.entries.iter().collect();
    entries.sort_by_key(|entry| entry.at);
    let terms = terms_of(&entries);
    let mut record = Record::default();
    terms.iter().for_each(|term| record.add(term.clone()));
    Verdict {
        terms: terms.len(),
        overlaps: record.overlaps(),
        disorder: record.token_disorder(),
        late: late_leaders(&entries, &terms),
        leaderless_longest: leaderless_longest(&record, &entries),
        plain: writes(&entries, false),
        fenced: writes(&entries, true),
        ticks: ticks(&entries),
    }
}

/// The stretches in which somebody was entitled to act by what its own process had been told: up
/// to the end of its lease, unless it said before that the term is over, or was killed.
fn terms_of(entries: &[&Entry]) -> Vec<Acting> {
    let mut open: BTreeMap<(&str, u64), Acting> = BTreeMap::new();
    let mut closed = Vec::new();
    for entry in entries {
        let who = entry.who.as_str();
        match &entry.what {
            What::Granted { token, until } => {
                let acting = Acting {
                    resource: "job".to_owned(),
                    who: who.to_owned(),
                    token: Some(*token),
                    from: entry.at,
                    until: *until,
                };
                open.insert((who, *token), acting);
            }
            What::Renewed { token, until } => {
                if let Some(acting) = open.get_mut(&(who, *token)) {
                    acting.until = acting.until.max(*until);
                }
            }
            What::Lost { token, .. } => {
                if let Some(mut acting) = open.remove(&(who, *token)) {
                    acting.until = acting.until.min(entry.at);
                    closed.push(acting);
                }
            }
            What::Killed(whom) => {
                for acting in open.values_mut().filter(|acting| acting.who == *whom) {
                    acting.until = acting.until.min(entry.at);
                }
            }
            _ => {}
        }
    }
    closed.extend(open.into_values());
    closed
}

/// Everybody whose `is_leader()` said yes after the end of its latest term.
fn late_leaders(entries: &[&Entry], terms: &[Acting]) -> Vec<(String, Moment)> {
    let is_late = |entry: &&&Entry| {
        let mine = terms.iter().filter(|term| term.who == entry.who && term.from <= entry.at);
        entry.what == What::Led
            && mine.map(|term| term.until).max().is_some_and(|until| entry.at >= until)
    };
    entries.iter().filter(is_late).map(|entry| (entry.who.clone(), entry.at)).collect()
}

fn leaderless_longest(record: &Record, entries: &[&Entry]) -> Duration {
    let between = record.longest_gap().unwrap_or_default();
    let ended_at = record.stretches().iter().map(|acting| acting.until).max();
    let in_the_end = match (ended_at, entries.last()) {
        (Some(ended_at), Some(last)) => last.at.since(ended_at),
        _ => Duration::ZERO,
    };
    between.max(in_the_end)
}

fn writes(entries: &[&Entry], fenced: bool) -> Writes {
    let mut held: BTreeMap<&Set, BTreeSet<&str>> = BTreeMap::new();
    for entry in entries {
        if let What::Holds { set, elements } = &entry.what {
            held.entry(set).or_default().extend(elements.iter().map(String::as_str));
        }
    }
    let mut writes = Writes::default();
    for entry in entries {
        match &entry.what {
            What::Added { set, element } if set.fenced == fenced => {
                writes.confirmed += 1;
                let is_there = held.get(set).is_some_and(|held| held.contains(element.as_str()));
                writes.lost += usize::from(!is_there);
            }
            What::Refused => writes.refused += usize::from(fenced),
            _ => {}
        }
    }
    writes
}

/// Entries are in the order of time.
fn ticks(entries: &[&Entry]) -> Ticks {
    let mut found = Ticks::default();
    let mut done = BTreeSet::new();
    // Who began a tick last.
    let mut begun: BTreeMap<u64, &str> = BTreeMap::new();
    for entry in entries {
        match entry.what {
            What::TickBegun(tick) => {
                if done.contains(&tick) {
                    found.repeated.push((tick, entry.who.clone()));
                }
                begun.insert(tick, &entry.who);
            }
            What::TickUnderWay(tick) if begun.get(&tick).is_some_and(|last| *last != entry.who) => {
                found.doubled.push((tick, entry.who.clone()));
            }
            What::TickDone(tick) => {
                done.insert(tick);
            }
            _ => {}
        }
    }
    found.done = done.len();
    found
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} terms", self.terms)?;
        writeln!(f, "{} overlaps", self.overlaps.len())?;
        for overlap in self.overlaps.iter().take(SHOWN_MAX) {
            writeln!(f, "  {overlap}")?;
        }
        writeln!(f, "{} tokens out of order", self.disorder.len())?;
        for (first, second) in self.disorder.iter().take(SHOWN_MAX) {
            let (before, after) = (first.token.unwrap_or(0), second.token.unwrap_or(0));
            writeln!(f, "  {before} of {}, then {after} of {}", first.who, second.who)?;
        }
        writeln!(f, "{} led after their end", self.late.len())?;
        for (who, at) in self.late.iter().take(SHOWN_MAX) {
            writeln!(f, "  {who} at {at:?}")?;
        }
        for (name, writes) in [("unfenced", self.plain), ("fenced", self.fenced)] {
            let Writes { confirmed, lost, refused } = writes;
            writeln!(f, "{confirmed} {name} writes confirmed, {lost} lost, {refused} refused")?;
        }
        let Ticks { done, repeated, doubled } = &self.ticks;
        if *done > 0 {
            let (repeated, doubled) = (repeated.len(), doubled.len());
            writeln!(f, "{done} ticks done, {repeated} begun again, {doubled} by two at once")?;
        }
        write!(f, "leaderless for {:?} at the longest", self.leaderless_longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &str) -> Verdict {
        judge(&History::parse(lines).unwrap())
    }

    #[test]
    fn terms_that_follow_each_other_are_in_order() {
        let verdict = judged(
            "10 a granted 1 30\n20 a renewed 1 40\n35 a led\n40 a lost 1 lease-ended\n\
             45 b granted 2 60\n50 b lost 2 released\n52 c granted 3 70\n",
        );
        assert_eq!((verdict.terms, verdict.is_broken()), (3, false), "{verdict}");
        assert_eq!(verdict.disorder, []);
        assert_eq!(verdict.leaderless_longest, Duration::from_nanos(5));
    }

    #[test]
    fn a_planted_overlap_is_found_though_the_first_never_said_another_word() {
        // Stopped, or cut off: its lease runs on.
        let verdict = judged("10 a granted 1 30\n20 a renewed 1 40\n35 b granted 2 60\n");
        assert_eq!(verdict.overlaps.len(), 1, "{verdict}");
        assert!(verdict.is_broken());
    }

    #[test]
    fn whoever_was_killed_acts_no_more() {
        let verdict = judged("10 a granted 1 30\n20 nemesis killed a\n25 b granted 2 60\n");
        assert_eq!(verdict.overlaps, []);
        let other = judged("10 a granted 1 30\n20 nemesis killed c\n25 b granted 2 60\n");
        assert_eq!(other.overlaps.len(), 1, "it was another who was killed");
    }

    #[test]
    fn a_renewal_that_is_told_late_does_not_bring_a_term_back() {
        let lines = "10 a granted 1 30\n25 a lost 1 taken\n26 a renewed 1 90\n40 b granted 2 60\n";
        assert_eq!(judged(lines).overlaps, []);
    }

    #[test]
    fn a_planted_repetition_of_a_token_is_found() {
        let verdict = judged("10 a granted 5 20\n30 b granted 5 40\n50 c granted 4 60\n");
        assert_eq!(verdict.disorder.len(), 2, "{verdict}");
    }

    #[test]
    fn a_leader_that_says_yes_after_its_end_is_found() {
        let verdict = judged("10 a granted 1 30\n31 a led\n");
        assert_eq!(verdict.late.len(), 1, "{verdict}");
        assert!(verdict.is_wrong_under_any_fault());
        assert!(judged("10 a granted 1 30\n29 a led\n").late.is_empty());
    }

    #[test]
    fn a_planted_lost_update_is_counted_on_its_side_of_the_fence() {
        let verdict = judged(
            "1 a added plain:1 a.1\n2 a added plain:1 a.2\n3 b added fenced:1 b.1\n\
             4 b refused\n9 nemesis holds plain:1 a.2\n9 nemesis holds fenced:1 b.1\n",
        );
        assert_eq!(verdict.plain, Writes { confirmed: 2, lost: 1, refused: 0 });
        assert_eq!(verdict.fenced, Writes { confirmed: 1, lost: 0, refused: 1 });
        assert!(!verdict.is_wrong_under_any_fault());
        let gone = judged("3 b added fenced:1 b.1\n9 nemesis holds fenced:1\n");
        assert!(gone.is_wrong_under_any_fault());
    }

    #[test]
    fn a_tick_that_is_begun_after_it_was_done_is_found() {
        let lines = "1 a tick-begun 7\n2 a tick-under-way 7\n3 a tick-done 7\n4 b tick-begun 8\n";
        assert_eq!(judged(lines).ticks, Ticks { done: 1, ..Ticks::default() });
        let again = judged(&format!("{lines}5 b tick-begun 7\n"));
        assert_eq!(again.ticks.repeated, [(7, "b".to_owned())], "{again}");
    }

    #[test]
    fn two_who_work_at_one_tick_are_found_and_one_that_was_stopped_is_none() {
        let first = "1 a tick-begun 7\n2 a tick-under-way 7\n3 b tick-begun 7\n";
        assert_eq!(judged(first).ticks.doubled, []);
        let both = judged(&format!("{first}4 a tick-under-way 7\n"));
        assert_eq!(both.ticks.doubled, [(7, "a".to_owned())], "{both}");
    }

    #[test]
    fn an_election_that_never_comes_back_counts_as_leaderless() {
        let verdict = judged("10 a granted 1 30\n500 nemesis healed\n");
        assert_eq!(verdict.leaderless_longest, Duration::from_nanos(470));
    }
}
