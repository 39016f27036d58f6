//! Who acted when, and whether that was right.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tenure_core::Moment;

/// A stretch of time in which somebody acted as the leader of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    /// What was led.
    pub resource: String,
    /// Who led.
    pub who: String,
    /// Under which token; `None` for a rival that has none.
    pub token: Option<u64>,
    /// From.
    pub from: Moment,
    /// Until, exclusively.
    pub until: Moment,
}

/// Two that acted at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The one that began first.
    pub first: Acting,
    /// The one that began before the first had ended.
    pub second: Acting,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.first.until.min(self.second.until);
        write!(
            f,
            "{}: {} acted {:?}–{:?} and {} acted {:?}–{:?}, together for {:?}",
            self.first.resource,
            self.first.who,
            self.first.from,
            self.first.until,
            self.second.who,
            self.second.from,
            self.second.until,
            end.since(self.second.from)
        )
    }
}

/// Everything a trial saw.
#[derive(Clone, Debug, Default)]
pub struct Record {
    stretches: Vec<Acting>,
}

impl Record {
    /// Adds one stretch; an empty one is nothing.
    pub fn add(&mut self, acting: Acting) {
        if acting.from < acting.until {
            self.stretches.push(acting);
        }
    }

    /// How many stretches were recorded.
    pub fn len(&self) -> usize {
        self.stretches.len()
    }

    /// Whether nothing was recorded: a trial in which nobody led shows nothing.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// All stretches, in the order in which they were added.
    pub fn stretches(&self) -> &[Acting] {
        &self.stretches
    }

    /// Every pair of neighbours in time that acted on one resource at once.
    pub fn overlaps(&self) -> Vec<Overlap> {
        let mut found = Vec::new();
        for stretches in self.by_resource().values() {
            // The stretch that ends last so far: any later start before that end overlaps it.
            let mut latest: Option<&Acting> = None;
            for acting in stretches {
                if let Some(first) = latest.filter(|first| acting.from < first.until) {
                    found.push(Overlap { first: first.clone(), second: (*acting).clone() });
                }
                if latest.is_none_or(|first| first.until < acting.until) {
                    latest = Some(acting);
                }
            }
        }
        found
    }

    /// Every pair of consecutive terms whose tokens do not grow.
    pub fn token_disorder(&self) -> Vec<(Acting, Acting)> {
        let mut found = Vec::new();
        for stretches in self.by_resource().values() {
            let terms: Vec<_> = stretches.iter().filter(|acting| acting.token.is_some()).collect();
            for pair in terms.windows(2) {
                if pair[0].token >= pair[1].token {
                    found.push(((*pair[0]).clone(), (*pair[1]).clone()));
                }
            }
        }
        found
    }

    /// The longest time between two stretches of one resource in which nobody acted.
    pub fn longest_gap(&self) -> Option<Duration> {
        let mut longest = None;
        for stretches in self.by_resource().values() {
            let mut busy_until = stretches[0].until;
            for acting in &stretches[1..] {
                longest = longest.max(Some(acting.from.since(busy_until)));
                busy_until = busy_until.max(acting.until);
            }
        }
        longest
    }

    fn by_resource(&self) -> BTreeMap<&str, Vec<&Acting>> {
        let mut map: BTreeMap<&str, Vec<&Acting>> = BTreeMap::new();
        for acting in &self.stretches {
            map.entry(&acting.resource).or_default().push(acting);
        }
        for stretches in map.values_mut() {
            stretches.sort_by_key(|acting| (acting.from, acting.until));
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acting(who: &str, token: Option<u64>, from: u64, until: u64) -> Acting {
        Acting {
            resource: "job".into(),
            who: who.into(),
            token,
            from: Moment::from_nanos(from),
            until: Moment::from_nanos(until),
        }
    }

    fn record(stretches: impl IntoIterator<Item = Acting>) -> Record {
        let mut record = Record::default();
        stretches.into_iter().for_each(|acting| record.add(acting));
        record
    }

    #[test]
    fn neighbours_that_touch_do_not_overlap() {
        let record = record([acting("b", None, 10, 20), acting("a", None, 0, 10)]);
        assert_eq!(record.overlaps(), []);
    }

    #[test]
    fn a_planted_overlap_is_found_even_behind_a_short_stretch() {
        let record = record([
            acting("a", None, 0, 100),
            acting("b", None, 10, 12),
            acting("c", None, 50, 60),
        ]);
        let pairs: Vec<_> =
            record.overlaps().iter().map(|o| (o.first.who.clone(), o.second.who.clone())).collect();
        assert_eq!(pairs, [("a".into(), "b".into()), ("a".into(), "c".into())]);
    }

    #[test]
    fn the_longest_gap_counts_from_the_latest_end() {
        let record = record([
            acting("a", None, 0, 100),
            acting("b", None, 10, 20),
            acting("c", None, 130, 140),
        ]);
        assert_eq!(record.longest_gap(), Some(Duration::from_nanos(30)));
    }

    #[test]
    fn another_resource_is_another_matter() {
        let mut other = acting("b", None, 0, 10);
        other.resource = "other".into();
        assert_eq!(record([acting("a", None, 0, 10), other]).overlaps(), []);
    }

    #[test]
    fn a_planted_repetition_of_a_token_is_found() {
        let terms = [acting("a", Some(1), 0, 1), acting("b", Some(3), 2, 3)];
        assert_eq!(record(terms.clone()).token_disorder(), []);
        let repeated = acting("c", Some(3), 4, 5);
        assert_eq!(record(terms.into_iter().chain([repeated])).token_disorder().len(), 1);
    }
}
