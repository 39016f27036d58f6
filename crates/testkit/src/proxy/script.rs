//! Faults in a written order, or in one that a seed chose.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::rule::{Cut, Direction, Door, PerDirection, Rule};
use crate::random::Random;

/// When a step is taken. Each counts from the moment when the step before it was taken; the first
/// from the moment when the script was given to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// This much later.
    Elapsed(Duration),
    /// When so many bytes have passed in this direction, over all connections, swallowed bytes
    /// included. The step comes exactly between two bytes.
    Bytes(Direction, u64),
    /// When so many connections have been accepted or refused.
    Connections(u64),
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Sets the rule of one direction.
    Rule(Direction, Rule),
    /// Sets the rule of both.
    BothRules(Rule),
    /// Cuts all connections.
    Cut(Cut),
    /// Opens or shuts the door for new ones.
    Door(Door),
}

/// Steps that the proxy takes by itself, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    steps: VecDeque<(When, What)>,
}

/// Long against a round trip on loopback, short against a test.
const RANDOM_WAIT_MAX_MS: u64 = 300;

/// About the length of a request with its reply, so that cuts fall into the midst of both.
const RANDOM_BYTES_MAX: u64 = 600;

impl Script {
    /// A script of these steps.
    #[must_use]
    pub fn new(steps: impl IntoIterator<Item = (When, What)>) -> Self {
        Self { steps: steps.into_iter().collect() }
    }

    /// So many faults as `seed` chooses them, each healed after a while. It ends with nothing
    /// wrong. The seed is printed.
    #[must_use]
    pub fn random(seed: u64, faults: usize) -> Self {
        eprintln!("proxy script of {faults} faults from seed {seed}");
        let mut random = Random::seeded(seed);
        let mut steps = VecDeque::new();
        for _ in 0..faults {
            steps.push_back((random_wait(&mut random), random_fault(&mut random)));
            steps.push_back((random_wait(&mut random), What::BothRules(Rule::Forward)));
            steps.push_back((When::Elapsed(Duration::ZERO), What::Door(Door::Open)));
        }
        Self { steps }
    }

    /// The steps that it has.
    pub fn steps(&self) -> impl Iterator<Item = &(When, What)> {
        self.steps.iter()
    }
}

fn random_wait(random: &mut Random) -> When {
    When::Elapsed(Duration::from_millis(random.in_range(0..RANDOM_WAIT_MAX_MS)))
}

fn random_fault(random: &mut Random) -> What {
    let direction = *random.choose(&Direction::BOTH);
    let cut = *random.choose(&[Cut::Close, Cut::Reset]);
    let wait = Duration::from_millis(random.in_range(1..RANDOM_WAIT_MAX_MS));
    let bytes = random.in_range(0..RANDOM_BYTES_MAX);
    let slice = usize::try_from(random.in_range(1..16)).expect("below 16");
    let pause = Duration::from_millis(random.in_range(0..5));
    *random.choose(&[
        What::Rule(direction, Rule::Delay(wait)),
        What::Rule(direction, Rule::Swallow),
        What::Rule(direction, Rule::HalfOpen),
        What::Rule(direction, Rule::Slice { bytes: slice, pause }),
        What::Rule(direction, Rule::CutAfter { bytes, cut }),
        What::BothRules(Rule::HalfOpen),
        What::Cut(cut),
        What::Door(Door::Refuse),
    ])
}

/// What has happened so far, as far as scripts care.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    pub(super) now: Instant,
    /// Bytes passed on or swallowed.
    pub(super) moved: PerDirection<u64>,
    pub(super) connections: u64,
}

/// A script with its place in it.
#[derive(Debug)]
pub(super) struct RunningScript {
    steps: VecDeque<(When, What)>,
    last_step: Progress,
}

impl RunningScript {
    pub(super) fn start(script: Script, progress: Progress) -> Self {
        Self { steps: script.steps, last_step: progress }
    }

    /// The next step, if its moment has come. Ask until there is none.
    pub(super) fn take_due(&mut self, progress: Progress) -> Option<What> {
        let &(when, what) = self.steps.front()?;
        let since = self.last_step;
        let due = match when {
            When::Elapsed(wait) => progress.now.duration_since(since.now) >= wait,
            When::Bytes(way, count) => progress.moved[way] - since.moved[way] >= count,
            When::Connections(count) => progress.connections - since.connections >= count,
        };
        if !due {
            return None;
        }
        self.steps.pop_front();
        self.last_step = progress;
        Some(what)
    }

    /// When to look again though nothing happens.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        match self.steps.front()? {
            (When::Elapsed(wait), _) => Some(self.last_step.now + *wait),
            _ => None,
        }
    }

    /// How many bytes may pass in this direction before the next step must be looked at.
    pub(super) fn bytes_left(&self, direction: Direction, moved: u64) -> Option<u64> {
        match self.steps.front()? {
            &(When::Bytes(way, count), _) if way == direction => {
                Some((self.last_step.moved[way] + count).saturating_sub(moved))
            }
            _ => None,
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.steps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_script_and_ends_healed() {
        let script = Script::random(42, 6);
        assert_eq!(script, Script::random(42, 6));
        assert_ne!(script, Script::random(43, 6));
        let ends: Vec<_> = script.steps().map(|(_, what)| *what).collect();
        assert!(ends.ends_with(&[What::BothRules(Rule::Forward), What::Door(Door::Open)]));
    }

    #[test]
    fn random_scripts_reach_every_kind_of_fault() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..50 {
            for (_, what) in Script::random(seed, 8).steps() {
                let name = match what {
                    What::Rule(_, rule) => format!("{rule:?}"),
                    other => format!("{other:?}"),
                };
                kinds.insert(name.split(['(', ' ']).next().unwrap().to_owned());
            }
        }
        for kind in ["Delay", "Swallow", "HalfOpen", "Slice", "CutAfter", "Cut", "Door"] {
            assert!(kinds.contains(kind), "no seed gave {kind}: {kinds:?}");
        }
    }

    #[test]
    fn each_step_counts_from_the_one_before() {
        let mut progress =
            Progress { now: Instant::now(), moved: PerDirection::new(100, 0), connections: 3 };
        let refuse = What::Door(Door::Refuse);
        let mut script = RunningScript::start(
            Script::new([
                (When::Bytes(Direction::ToServer, 10), What::Cut(Cut::Reset)),
                (When::Connections(2), refuse),
                (When::Elapsed(Duration::from_secs(1)), What::BothRules(Rule::Swallow)),
            ]),
            progress,
        );
        assert_eq!(script.take_due(progress), None);
        assert_eq!(script.bytes_left(Direction::ToServer, 104), Some(6));
        assert_eq!(script.bytes_left(Direction::ToClient, 0), None);

        progress.moved[Direction::ToServer] = 110;
        assert_eq!(script.take_due(progress), Some(What::Cut(Cut::Reset)));
        progress.connections = 4;
        assert_eq!(script.take_due(progress), None);
        progress.connections = 5;
        assert_eq!(script.take_due(progress), Some(refuse));
        assert_eq!(script.wakes_at(), Some(progress.now + Duration::from_secs(1)));
        progress.now += Duration::from_secs(1);
        assert_eq!(script.take_due(progress), Some(What::BothRules(Rule::Swallow)));
        assert!(script.is_finished());
    }
}
