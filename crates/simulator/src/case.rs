//! The rows of the table: which faults meet whom, and what is promised then.

use std::time::Duration;

use tenure_core::{Failback, InstanceId, Settings, Timing, TimingSettings};

use crate::algorithm::Algorithm;
use crate::clock::{Clock, MILLISECOND, SECOND};
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::ours::Ours;
use crate::party::{Link, Party, Work};
use crate::promise::Promise;
use crate::random::Random;
use crate::rival::{LEASE, Rival, RivalKind};
use crate::world::{Climate, LEASE_STEP, World, span};

/// A family of worlds.
#[derive(Debug)]
pub struct Case {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What happens in it.
    pub about: &'static str,
    /// Whether P1 to P6 are promised in it. Where they are not, a broken one must be found.
    pub promised: bool,
    pub(crate) faults: &'static [(Fault, u32)],
    wires: Wires,
    has_replica: bool,
}

/// How bad the wires are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wires {
    Good,
    Bad,
    Any,
}

/// Whether faults go on to the end or are healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Faults to the end: P1 to P5.
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

/// Who lives in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Our own election as it is.
    Ours,
    /// Our own election with one rule broken.
    Flawed(Flaw),
    /// A control.
    Rival(RivalKind),
}

impl Subject {
    pub(crate) fn flaw(self) -> Option<Flaw> {
        match self {
            Subject::Flawed(flaw) => Some(flaw),
            _ => None,
        }
    }

    pub(crate) fn speaks_protocol(self) -> bool {
        !matches!(self, Subject::Rival(_))
    }

    /// Promises that would be broken by the mere look of a flaw, before it does any harm.
    pub(crate) fn ignores(self) -> &'static [Promise] {
        match self {
            Subject::Flawed(Flaw::DeadlineFromAnswer) => &[Promise::P4],
            Subject::Flawed(Flaw::IdWithoutToken | Flaw::ThirdPartyRelease) => &[Promise::P5],
            _ => &[],
        }
    }
}

/// A control: something broken on purpose that must be caught.
#[derive(Debug)]
pub struct Control {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is wrong with it.
    pub about: &'static str,
    /// Who.
    pub subject: Subject,
    /// In which case it is run.
    pub case: &'static str,
}

/// All controls.
pub const CONTROLS: &[Control] = &[
    control("S0", "unconditional expire, wall clock", Subject::Rival(RivalKind::S0), "mixture"),
    control("S1", "get, compare locally, expire", Subject::Rival(RivalKind::S1), "mixture"),
    control("S2", "compare-and-expire, no deadline", Subject::Rival(RivalKind::S2), "mixture"),
    control("S3a", "a lease that nothing renews", Subject::Rival(RivalKind::S3a), "mixture"),
    control("S3b", "setnx, then expire", Subject::Rival(RivalKind::S3b), "mixture"),
    control(
        "deadline-from-answer",
        "the lease is counted from the answer",
        Subject::Flawed(Flaw::DeadlineFromAnswer),
        "wires",
    ),
    control(
        "id-without-token",
        "renew and release compare the id alone",
        Subject::Flawed(Flaw::IdWithoutToken),
        "mixture",
    ),
    control(
        "attempt-per-process",
        "every acquire has the same number",
        Subject::Flawed(Flaw::AttemptPerProcess),
        "mixture",
    ),
    control(
        "no-quarantine",
        "a store that lost data grants at once",
        Subject::Flawed(Flaw::NoQuarantine),
        "failover",
    ),
    control(
        "close-without-release",
        "a closed term is not given back",
        Subject::Flawed(Flaw::CloseWithoutRelease),
        "mixture",
    ),
    control(
        "third-party-release",
        "resigning is done by releasing the leader's key",
        Subject::Flawed(Flaw::ThirdPartyRelease),
        "hand-overs",
    ),
];

const fn control(
    name: &'static str,
    about: &'static str,
    subject: Subject,
    case: &'static str,
) -> Control {
    Control { name, about, subject, case }
}

const PEOPLE: &[(Fault, u32)] = &[
    (Fault::AskToResign, 4),
    (Fault::AskToHandOver, 6),
    (Fault::Resign, 4),
    (Fault::HandOver, 6),
    (Fault::OperatorPause, 1),
    (Fault::OperatorResume, 2),
    (Fault::Clear, 1),
    (Fault::Unready, 2),
    (Fault::Ready, 3),
    (Fault::PauseHere, 1),
    (Fault::ResumeHere, 2),
    (Fault::BeatsFail, 2),
    (Fault::RenewNow, 2),
    (Fault::Break, 2),
];

const MIXTURE: &[(Fault, u32)] = &[
    (Fault::Pause, 5),
    (Fault::Suspend, 3),
    (Fault::Crash, 3),
    (Fault::Stop, 3),
    (Fault::Break, 5),
    (Fault::CutOff, 4),
    (Fault::CutReplies, 4),
    (Fault::Slow, 4),
    (Fault::Deaf, 2),
    (Fault::ForgedHint, 4),
    (Fault::ClockRate, 2),
    (Fault::ServerPause, 2),
    (Fault::RestartEmpty, 2),
    (Fault::Failover, 2),
    (Fault::AskToResign, 3),
    (Fault::AskToHandOver, 3),
    (Fault::Resign, 2),
    (Fault::HandOver, 3),
    (Fault::OperatorPause, 1),
    (Fault::OperatorResume, 2),
    (Fault::Clear, 1),
    (Fault::Unready, 1),
    (Fault::Ready, 2),
    (Fault::PauseHere, 1),
    (Fault::ResumeHere, 2),
    (Fault::BeatsFail, 1),
    (Fault::RenewNow, 2),
];

/// All cases, by what PROTOCOL says of mode `available`.
pub const CASES: &[Case] = &[
    Case {
        name: "calm",
        about: "nothing but people's wishes now and then",
        promised: true,
        faults: &[(Fault::Resign, 1), (Fault::HandOver, 1), (Fault::AskToHandOver, 1)],
        wires: Wires::Good,
        has_replica: false,
    },
    Case {
        name: "drift",
        about: "clocks up to 1 % apart, changing their rates",
        promised: true,
        faults: &[(Fault::ClockRate, 6), (Fault::Pause, 2), (Fault::CutOff, 3), (Fault::Crash, 1)],
        wires: Wires::Good,
        has_replica: false,
    },
    Case {
        name: "pauses",
        about: "processes and the store stand still",
        promised: true,
        faults: &[(Fault::Pause, 6), (Fault::ServerPause, 2), (Fault::Resign, 1)],
        wires: Wires::Any,
        has_replica: false,
    },
    Case {
        name: "suspend",
        about: "hosts sleep and wake",
        promised: true,
        faults: &[(Fault::Suspend, 6), (Fault::Pause, 1), (Fault::Break, 1)],
        wires: Wires::Any,
        has_replica: false,
    },
    Case {
        name: "wires",
        about: "loss, delay beyond the lease, copies, broken connections",
        promised: true,
        faults: &[
            (Fault::Break, 3),
            (Fault::CutOff, 3),
            (Fault::CutReplies, 4),
            (Fault::Slow, 6),
            (Fault::Resign, 1),
        ],
        wires: Wires::Bad,
        has_replica: false,
    },
    Case {
        name: "hints",
        about: "hints lost, doubled and forged",
        promised: true,
        faults: &[(Fault::ForgedHint, 20), (Fault::Deaf, 4), (Fault::Crash, 2), (Fault::Resign, 3)],
        wires: Wires::Any,
        has_replica: false,
    },
    Case {
        name: "hand-overs",
        about: "a storm of resignations, hand-overs, pauses and clears",
        promised: true,
        faults: PEOPLE,
        wires: Wires::Any,
        has_replica: false,
    },
    Case {
        name: "churn",
        about: "processes crash, stop and start",
        promised: true,
        faults: &[(Fault::Crash, 5), (Fault::Stop, 4), (Fault::Pause, 1), (Fault::Break, 2)],
        wires: Wires::Any,
        has_replica: false,
    },
    Case {
        name: "restart-empty",
        about: "the store restarts with nothing in it",
        promised: true,
        faults: &[
            (Fault::RestartEmpty, 3),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::CutOff, 2),
            (Fault::Resign, 1),
        ],
        wires: Wires::Any,
        has_replica: false,
    },
    Case {
        name: "failover",
        about: "a lagging replica takes over from a dead primary",
        promised: true,
        faults: &[
            (Fault::Failover, 4),
            (Fault::Pause, 1),
            (Fault::Crash, 2),
            (Fault::CutReplies, 2),
            (Fault::Resign, 2),
            (Fault::HandOver, 3),
        ],
        wires: Wires::Any,
        has_replica: true,
    },
    Case {
        name: "flush-veterans",
        about: "FLUSHALL while everyone has seen a token",
        promised: true,
        faults: &[
            (Fault::FlushAmongVeterans, 2),
            (Fault::Pause, 2),
            (Fault::CutOff, 1),
            (Fault::Resign, 2),
        ],
        wires: Wires::Any,
        has_replica: false,
    },
    Case {
        name: "mixture",
        about: "everything above at once",
        promised: true,
        faults: MIXTURE,
        wires: Wires::Any,
        has_replica: true,
    },
    Case {
        name: "isolated-primary",
        about: "the old primary goes on serving some",
        promised: false,
        faults: &[(Fault::IsolatedPrimary, 3), (Fault::Pause, 1), (Fault::Crash, 1)],
        wires: Wires::Good,
        has_replica: true,
    },
    Case {
        name: "server-clock",
        about: "the store's clock steps forward",
        promised: false,
        faults: &[(Fault::ServerClockForward, 3), (Fault::Pause, 1), (Fault::CutOff, 1)],
        wires: Wires::Good,
        has_replica: false,
    },
    Case {
        name: "flush-newcomer",
        about: "FLUSHALL, and somebody comes who never saw a token",
        promised: false,
        faults: &[(Fault::FlushForNewcomer, 2), (Fault::Pause, 2)],
        wires: Wires::Good,
        has_replica: false,
    },
    Case {
        name: "vm-pause",
        about: "a host is frozen with its clock",
        promised: false,
        faults: &[(Fault::VmPause, 4), (Fault::Break, 1)],
        wires: Wires::Good,
        has_replica: false,
    },
];

impl Case {
    /// The case called `name`.
    pub fn named(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
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
        Climate {
            lease,
            strikes_every: random.share(lease, 150, 1_500),
            delay_max,
            loss_percent,
            copy_percent,
            hint_loss_percent,
            reorders: is_bad && random.percent(50),
            stubborn_percent: random.between(0, 30),
            lag_max: random.share(lease, 0, 2_000),
        }
    }
}

impl World<'_> {
    /// An empty place: a host with its clock.
    pub(crate) fn build_party(&mut self, party: usize) -> Party {
        if party == 0 {
            self.judge.ignores = self.subject.ignores();
            if self.case.has_replica {
                self.attach_replica();
            }
        }
        let clock = Clock::new(self.random.between(SECOND, 100_000 * SECOND), self.drift());
        let name = (b'a' + party as u8) as char;
        let (timing, algorithm) = self.build_process(party, name, 0, &clock);
        let id = process_id(name, 0);
        Party {
            name,
            life: 0,
            algorithm,
            caller: self.caller(id),
            timing,
            clock,
            is_alive: false,
            paused_until: 0,
            held: Vec::new(),
            link: Link { is_up: false, ..Link::to(0) },
            asks: Vec::new(),
            wake: 0,
            belief: None,
            permits: Vec::new(),
            work: Work::default(),
            requires_beat: false,
            beats_fail_until: 0,
            has_seen_token: false,
        }
    }

    /// Another process in the same place: a new id, nothing remembered.
    pub(crate) fn renew_process(&mut self, party: usize) {
        let life = self.parties[party].life + 1;
        let (name, clock) = (self.parties[party].name, self.parties[party].clock.clone());
        let (timing, algorithm) = self.build_process(party, name, life, &clock);
        let caller = self.caller(process_id(name, life));
        let place = &mut self.parties[party];
        place.life = life;
        place.algorithm = algorithm;
        place.timing = timing;
        place.caller = caller;
        place.link = Link { epoch: place.link.epoch + 1, is_up: false, ..Link::to(0) };
        place.paused_until = 0;
        place.asks.clear();
        place.held.clear();
        place.belief = None;
        place.permits.clear();
        place.work = Work::default();
        place.has_seen_token = false;
    }

    fn build_process(
        &mut self,
        party: usize,
        name: char,
        life: u32,
        clock: &Clock,
    ) -> (Timing, Box<dyn Algorithm>) {
        let now = tenure_core::Moment::from_nanos(clock.at(self.now));
        let lease = span(self.climate.lease);
        let settings = TimingSettings {
            ttl: self.lease_of(party),
            fleet_max_ttl: Some(lease),
            ..TimingSettings::default()
        };
        let ttl = settings.ttl;
        let flaw = self.subject.flaw();
        let settings = flaw.map_or(settings.clone(), |flaw| flaw.timing(settings));
        let timing = Timing::new(&settings).expect("the budget of a world is a valid one");
        if let Subject::Rival(kind) = self.subject {
            let delay = span(self.random.below(10 * SECOND));
            // A restarted process has the same configured id where there is no nonce.
            let id = match kind {
                RivalKind::S3b => name.to_string(),
                _ => process_id(name, life).as_str().to_owned(),
            };
            return (timing, Box::new(Rival::new(kind, id, now, delay)));
        }
        let settings = self.election_settings(party, name, life, timing, ttl);
        let seed = self.random.word();
        (timing, Box::new(Ours::new(settings, ttl, flaw, seed, now)))
    }

    /// In some worlds instances ask for different leases.
    fn lease_of(&self, party: usize) -> Duration {
        let lease = self.climate.lease;
        let is_mixed = self.climate.lag_max % 5 == 0 && party % 2 == 1;
        span(if is_mixed { lease / 2 / MILLISECOND * MILLISECOND } else { lease })
    }

    fn election_settings(
        &mut self,
        party: usize,
        name: char,
        life: u32,
        timing: Timing,
        ttl: Duration,
    ) -> Settings {
        let id = process_id(name, life);
        let mut settings = Settings::new(self.resource.clone(), id, timing);
        settings.priority = self.random.below(3) as i32;
        if self.random.percent(30) {
            settings.failback = Some(Failback { delay: ttl * 2, min_tenure: ttl });
        }
        if self.random.percent(20) {
            settings.require_beat = Some(ttl);
        }
        if let Some(place) = self.parties.get_mut(party) {
            place.requires_beat = settings.require_beat.is_some();
        }
        settings
    }
}

fn process_id(name: char, life: u32) -> InstanceId {
    InstanceId::new(&name.to_string(), u64::from(life)).expect("one letter is a good name")
}
