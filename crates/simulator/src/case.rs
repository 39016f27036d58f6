//! A family of worlds: which faults meet whom, on which kind of store, and what is promised then.

use crate::clock::MILLISECOND;
use crate::control::Subject;
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::promise::Promise;
use crate::random::Random;
use crate::rival::LEASE;
use crate::rows::CASES;
use crate::world::{Climate, LEASE_STEP};

/// A family of worlds.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What happens in it.
    pub about: &'static str,
    /// The promises that are not given in it: a broken one must be found. All others hold.
    pub excused: &'static [Promise],
    pub(crate) faults: &'static [(Fault, u32)],
    wires: Wires,
    pub(crate) replicas: Replicas,
    pub(crate) history: History,
    pub(crate) leases: Leases,
    inhabitants: Inhabitants,
    /// How far the clock of a replica may be ahead or behind, in thousandths of a lease.
    pub(crate) clocks_apart: u64,
    /// How far faults lie apart on average, at least and at most, in thousandths of a lease.
    pace: (u64, u64),
}

/// Who stands by to take the store over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replicas {
    None,
    /// One, somewhat behind: mode `available`.
    Lagging,
    /// One to three that must all confirm what counts: mode `strict`.
    Confirming,
    /// None: three or five independent nodes decide together: mode `quorum`.
    Quorum,
    /// None: the slot of the resource lies on one of several nodes of a cluster, and moves.
    Slots,
    /// None: a store that can only compare and swap, and has a clock.
    Swapped,
    /// The same without a clock: expiry is observed.
    Observed,
}

impl Replicas {
    /// Whether instances read, decide and write themselves.
    pub(crate) fn is_swapped(self) -> bool {
        matches!(self, Replicas::Swapped | Replicas::Observed)
    }
}

/// What a store says about its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    /// Nothing, as Redis does.
    Unknown,
    /// That it is complete, as our own store does until it lost something.
    Vouched,
}

/// Which leases the processes of a world ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leases {
    /// The settings of a process may differ from those of others, and never change.
    Fixed,
    /// At first all are shorter; a fault starts every process again with longer ones.
    Raised,
}

/// What the processes of a world are there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inhabitants {
    /// To lead for as long as they can.
    Candidates,
    /// To run jobs, each once per tick across the fleet.
    Runners,
}

/// How bad the wires are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wires {
    Good,
    Bad,
    Any,
}

/// Whether faults go on to the end or are healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Faults to the end: everything but P6.
    Safety,
    /// Faults, then none: P6 as well.
    Liveness,
}

impl Mode {
    /// Half of the seeds run in each mode.
    pub fn of_seed(seed: u64) -> Self {
        if seed.is_multiple_of(2) { Mode::Safety } else { Mode::Liveness }
    }
}

/// A case in which everything is promised, with one store, on wires of any kind.
pub(crate) const fn row(
    name: &'static str,
    about: &'static str,
    faults: &'static [(Fault, u32)],
) -> Case {
    Case {
        name,
        about,
        excused: &[],
        faults,
        wires: Wires::Any,
        replicas: Replicas::None,
        history: History::Unknown,
        leases: Leases::Fixed,
        inhabitants: Inhabitants::Candidates,
        clocks_apart: 250,
        pace: (150, 1_500),
    }
}

impl Case {
    pub(crate) const fn wires(self, wires: Wires) -> Self {
        Case { wires, ..self }
    }

    pub(crate) const fn store(self, replicas: Replicas) -> Self {
        Case { replicas, ..self }
    }

    pub(crate) const fn vouched(self) -> Self {
        Case { history: History::Vouched, ..self }
    }

    pub(crate) const fn raised(self) -> Self {
        Case { leases: Leases::Raised, ..self }
    }

    pub(crate) const fn runners(self) -> Self {
        Case { inhabitants: Inhabitants::Runners, ..self }
    }

    /// The same with faults in quick succession.
    pub(crate) const fn hectic(self) -> Self {
        Case { pace: (50, 500), ..self }
    }

    /// The same with replicas whose clocks were never set alike.
    pub(crate) const fn clocks_unset(self) -> Self {
        Case { clocks_apart: 6_000, ..self }
    }

    /// The same, but these promises are not given.
    pub(crate) const fn without(self, excused: &'static [Promise]) -> Self {
        Case { excused, ..self }
    }

    /// Whether all promises are given in it.
    pub fn is_promised(&self) -> bool {
        self.excused.is_empty()
    }

    /// The case called `name`.
    pub fn named(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.faults.iter().any(|(known, _)| *known == fault)
    }

    /// Whether the processes of this case run jobs.
    pub(crate) fn runs_jobs(&self) -> bool {
        self.inhabitants == Inhabitants::Runners
    }

    pub(crate) fn climate(&self, random: &mut Random, subject: Subject) -> Climate {
        let lease = match subject {
            Subject::Rival(_) => LEASE.as_nanos() as u64,
            _ => LEASE_STEP * random.between(2, 6),
        };
        let is_bad = match self.wires {
            Wires::Good => false,
            Wires::Bad => true,
            Wires::Any => random.percent(50),
        };
        let mut when_bad = |value: u64| if is_bad { random.between(0, value) } else { 0 };
        let (loss_percent, copy_percent) = (when_bad(15), when_bad(15));
        let hint_loss_percent = when_bad(60);
        let delay_max = when_bad(lease / 3).max(5 * MILLISECOND);
        let replicas = match (self.replicas, subject) {
            (Replicas::Confirming, Subject::Flawed(Flaw::FewerReplicas)) => random.between(2, 3),
            (Replicas::Confirming, _) => random.between(1, 3),
            _ => 0,
        };
        Climate {
            lease,
            strikes_every: random.share(lease, self.pace.0, self.pace.1),
            delay_max,
            loss_percent,
            copy_percent,
            hint_loss_percent,
            reorders: is_bad && random.percent(50),
            stubborn_percent: random.between(0, 30),
            lag_max: random.share(lease, 0, 2_000),
            replicas: replicas as usize,
            nodes: match self.replicas {
                Replicas::Quorum => *random.pick(&[3, 5]),
                _ => 1,
            },
            leases_differ: random.percent(30),
            fleets_differ: random.percent(30),
            lock_delay: if random.percent(10) { random.share(lease, 100, 1_000) } else { 0 },
        }
    }
}
