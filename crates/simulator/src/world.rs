//! A world by seed: events in the order of real time, each handled to its end, each judged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::time::Duration;

use tenure_core::protocol::Hint;
use tenure_core::quorum::Quorum;
use tenure_core::{InstanceId, Resource, StoreError};

use crate::algorithm::{Op, Reply, Want};
use crate::case::{Case, Leases, Mode};
use crate::clock::{MILLISECOND, Real, SECOND};
use crate::cluster::{Caller, Cluster};
use crate::control::Subject;
use crate::fault::Fault;
use crate::party::Party;
use crate::pauses::PauseWatch;
use crate::promise::{Judge, Promise, Violation};
use crate::random::Random;
use crate::runner::WorkEnd;

/// A world in which more happens than this is itself a bug: something asks without end.
const EVENTS_MAX: u64 = 400_000;

/// Something that happens at one real time.
#[derive(Debug)]
pub(crate) enum Event {
    /// The timer that a process set.
    Wake { party: usize, life: u32, wake: u32 },
    /// A request reaches its node.
    Arrive(Box<SentRequest>),
    /// Replicas have, or should have, heard of what a request did.
    Confirm(Box<Awaited>),
    /// A reply, or the end of waiting for one, reaches its process.
    Reply {
        party: usize,
        life: u32,
        line: usize,
        epoch: u32,
        ask: u64,
        step: u32,
        /// In a box: events are moved often, and most are small.
        reply: Box<Result<Reply, StoreError>>,
    },
    /// A hint reaches a process.
    Hint { party: usize, life: u32, line: usize, hint: Hint },
    /// A process is connected again.
    Connected { party: usize, life: u32, line: usize, epoch: u32 },
    /// Work under a term begins or ends.
    Work { party: usize, life: u32, plan: u32, running: bool },
    /// The work of a job has ended, and its runner goes on.
    Worked { party: usize, life: u32, ended: WorkEnd },
    /// The driver of a process hears whether its work runs.
    WorkHeard { party: usize, life: u32 },
    /// The application wants something.
    Want { party: usize, life: u32, want: Want },
    /// A pause of a process, or of its driver, is over.
    Resumed { party: usize },
    /// A host that was frozen as a whole goes on.
    Thawed { party: usize, off_ppm: i64 },
    /// A new process starts in an empty place.
    Starts { party: usize },
    /// A process ends itself after it was asked to stop.
    Exits { party: usize, life: u32 },
    /// An isolated primary is found out and ends.
    Demoted { node: usize },
    /// The next fault.
    Strike,
    /// All faults end.
    Heal,
    /// Healed worlds must have a leader by now.
    LeaderDue { since: Real },
    /// Somebody gave the resource back: there must be a leader again by now.
    SuccessorDue { terms: u64, within: u64 },
    /// In a healed world the leader is asked to step down.
    Unseat,
    /// In a healed world the leader's connection finds a server with old data first.
    Stray,
    /// In a healed world an operator pauses the election.
    ElectionPauses,
    /// Somebody wants another leader while the election is paused.
    PausedWish,
    /// The pause is nearly over, or is ended by hand.
    PauseEnds { by_hand: bool },
    /// Somebody publishes that a term began, again.
    Storm,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    pub(crate) party: usize,
    pub(crate) life: u32,
    pub(crate) line: usize,
    pub(crate) epoch: u32,
    pub(crate) node: usize,
    pub(crate) sent_at: Real,
    pub(crate) ask: u64,
    pub(crate) step: u32,
    pub(crate) caller: Caller,
    pub(crate) op: Op,
    /// A second copy of a request: its answer goes nowhere.
    pub(crate) is_copy: bool,
}

/// A reply that waits for replicas.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) sent: SentRequest,
    pub(crate) reply: Reply,
    /// The write that replicas must have heard of.
    pub(crate) write: u64,
    /// How many of them.
    pub(crate) count: usize,
}

#[derive(Debug)]
struct Scheduled {
    at: Real,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// How the people, machines and wires of this world behave, drawn from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Climate {
    /// The unit in which faults are measured: the longest lease, in nanoseconds.
    pub(crate) lease: u64,
    pub(crate) strikes_every: u64,
    pub(crate) delay_max: u64,
    pub(crate) loss_percent: u64,
    pub(crate) copy_percent: u64,
    pub(crate) hint_loss_percent: u64,
    pub(crate) reorders: bool,
    /// In percent, how often work does not stop when told to.
    pub(crate) stubborn_percent: u64,
    pub(crate) lag_max: u64,
    /// How many replicas there are where they must confirm.
    pub(crate) replicas: usize,
    /// How many nodes there are that decide together; one decides alone.
    pub(crate) nodes: usize,
    /// Whether some instances ask for shorter leases than others.
    pub(crate) leases_differ: bool,
    /// Whether some instances are told of longer leases than there are.
    pub(crate) fleets_differ: bool,
    /// How long the resource stays free after a crash, where instances ask for that.
    pub(crate) lock_delay: u64,
}

/// One world.
pub struct World<'a> {
    pub(crate) now: Real,
    pub(crate) case: &'a Case,
    pub(crate) subject: Subject,
    pub(crate) random: Random,
    pub(crate) climate: Climate,
    pub(crate) resource: Resource,
    pub(crate) cluster: Cluster,
    pub(crate) parties: Vec<Party>,
    pub(crate) judge: Judge,
    /// Several nodes that decide together.
    pub(crate) quorum: Option<Quorum>,
    pub(crate) healed_at: Option<Real>,
    /// From here on nothing of the faults is left, no quarantine either.
    pub(crate) settled_at: Real,
    /// Whether anybody led since faults were healed, or since the last pause after that was over.
    pub(crate) led_since_heal: bool,
    pub(crate) pause: PauseWatch,
    /// The longest lease that processes which start now ask for.
    pub(crate) lease_now: u64,
    /// The longest lease that any process was ever told of.
    pub(crate) fleet_longest: u64,
    /// How far the store's clock is ahead of the time, where that is set right one day.
    pub(crate) clock_ahead: u64,
    /// Whether somebody keeps publishing forged hints.
    pub(crate) storms: bool,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    ends_at: Real,
    trace: Option<Vec<String>>,
}

/// What became of a world.
#[derive(Clone, Debug)]
pub struct WorldOutcome {
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// How many terms began.
    pub terms: u64,
    /// How many events there were.
    pub events: u64,
    /// Every event on a line, where that was asked for.
    pub trace: Vec<String>,
}

impl<'a> World<'a> {
    /// The world of `case` and `seed`, inhabited by `subject`.
    pub fn new(case: &'a Case, subject: Subject, seed: u64, mode: Mode) -> Self {
        let mut random = Random::seeded(seed);
        let climate = case.climate(&mut random, subject);
        let flaw = subject.flaw();
        let up_for = random.between(SECOND, 10 * climate.lease);
        let off_ppm = random.between(0, 10_000) as i64 - 5_000;
        let faults_last = 24 * climate.lease;
        let mut world = World {
            now: 0,
            case,
            subject,
            cluster: Cluster::new(off_ppm, up_for, (case.history, flaw)),
            resource: Resource::named("job").expect("it is a good name"),
            parties: Vec::new(),
            judge: Judge::of(case),
            quorum: Quorum::of(climate.nodes).ok(),
            healed_at: None,
            settled_at: Real::MAX,
            led_since_heal: false,
            pause: PauseWatch::default(),
            lease_now: match case.leases {
                Leases::Fixed => climate.lease,
                Leases::Raised => climate.lease * 2 / 5,
            },
            fleet_longest: 0,
            clock_ahead: 0,
            storms: false,
            queue: BinaryHeap::new(),
            scheduled: 0,
            ends_at: faults_last + 8 * climate.lease,
            trace: None,
            climate,
            random,
        };
        if case.has(Fault::ClockCorrected) {
            // Further than this world lasts: no number comes twice.
            world.clock_ahead = world.climate.lease * 100;
            world.cluster.primary().clock.step_forward(0, world.clock_ahead);
        }
        world.add_nodes();
        world.populate();
        if mode == Mode::Liveness {
            world.at(faults_last * 2 / 3, Event::Heal);
            if world.watches_pauses() {
                // There is time to pause it again when all is well.
                world.ends_at += 16 * world.climate.lease;
            }
        }
        world.strike_later();
        world
    }

    /// Does not look at these promises.
    pub fn ignoring(mut self, promises: &[Promise]) -> Self {
        self.judge.ignore(promises);
        self
    }

    /// Looks at this promise and at no other.
    pub fn judging_only(mut self, promise: Promise) -> Self {
        let others: Vec<Promise> =
            Promise::ALL.iter().copied().filter(|other| *other != promise).collect();
        self.judge.ignore(&others);
        self
    }

    /// Writes down every event.
    pub fn traced(mut self) -> Self {
        self.trace = Some(Vec::new());
        self
    }

    /// Lets the world run to its end or to the first broken promise.
    pub fn run(mut self) -> WorldOutcome {
        let mut events = 0;
        while let Some(Reverse(scheduled)) = self.queue.pop() {
            if scheduled.at > self.ends_at || self.judge.violation().is_some() {
                break;
            }
            events += 1;
            assert!(events < EVENTS_MAX, "a world without end: something asks again and again");
            self.now = scheduled.at;
            self.happen(scheduled.event);
        }
        if let Some(violation) = self.judge.violation().cloned() {
            self.note("world", || format!("{} IS BROKEN: {}", violation.promise, violation.what));
        }
        WorldOutcome {
            terms: self.judge.terms(),
            violation: self.judge.into_violation(),
            events,
            trace: self.trace.unwrap_or_default(),
        }
    }

    fn happen(&mut self, event: Event) {
        let Some(event) = self.held_back(event) else { return };
        match event {
            Event::Wake { party, wake, .. } => self.wake(party, wake),
            Event::Arrive(sent) => self.arrive(*sent),
            Event::Confirm(awaited) => self.confirm(*awaited),
            Event::Reply { party, line, epoch, ask, step, reply, .. } => {
                self.deliver_reply(party, (line, epoch), (ask, step), *reply);
            }
            Event::Hint { party, line, hint, .. } => self.deliver_hint(party, line, hint),
            Event::Connected { party, line, epoch, .. } => self.connected(party, line, epoch),
            Event::Work { party, plan, running, .. } => self.work(party, plan, running),
            Event::Worked { party, ended, .. } => self.worked(party, ended),
            Event::WorkHeard { party, .. } => self.work_heard(party),
            Event::Want { party, want, .. } => self.want(party, want),
            Event::Resumed { party } => self.resumed(party),
            Event::Thawed { party, off_ppm } => self.thawed(party, off_ppm),
            Event::Starts { party } => self.start_process(party),
            Event::Exits { party, .. } => self.end_process(party),
            Event::Demoted { node } => self.demoted(node),
            Event::Strike => self.strike(),
            Event::Heal => self.heal(),
            Event::LeaderDue { since } => self.leader_due(since),
            Event::SuccessorDue { terms, within } => self.successor_due(terms, within),
            Event::Unseat => self.unseat(),
            Event::Stray => self.stray(),
            Event::ElectionPauses => self.election_pauses(),
            Event::PausedWish => self.paused_wish(),
            Event::PauseEnds { by_hand } => self.pause_ends(by_hand),
            Event::Storm => self.storm(),
        }
    }

    /// Drops what was meant for a process that is no more, keeps what a stopped one cannot hear.
    fn held_back(&mut self, event: Event) -> Option<Event> {
        let (party, life) = match &event {
            Event::Wake { party, life, .. }
            | Event::Reply { party, life, .. }
            | Event::Hint { party, life, .. }
            | Event::Connected { party, life, .. }
            | Event::Work { party, life, .. }
            | Event::Worked { party, life, .. }
            | Event::WorkHeard { party, life }
            | Event::Want { party, life, .. }
            | Event::Exits { party, life } => (*party, *life),
            _ => return Some(event),
        };
        let party = &mut self.parties[party];
        if !party.is_alive || party.life != life {
            return None;
        }
        // What the application does by itself needs no driver.
        let needs_driver = !matches!(event, Event::Work { .. } | Event::Exits { .. });
        if party.is_paused(self.now) || needs_driver && party.is_held(self.now) {
            party.held.push(event);
            return None;
        }
        Some(event)
    }

    pub(crate) fn at(&mut self, at: Real, event: Event) {
        self.scheduled += 1;
        let scheduled = Scheduled { at: at.max(self.now), number: self.scheduled, event };
        self.queue.push(Reverse(scheduled));
    }

    /// Everything that is to happen, in no particular order.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.queue.iter().map(|Reverse(scheduled)| &scheduled.event)
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now.saturating_add(delay), event);
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed_at.is_some()
    }

    pub(crate) fn caller(&self, id: InstanceId, fleet_max_ttl: Duration) -> Caller {
        Caller { id, resource: self.resource.clone(), fleet_max_ttl }
    }

    /// Somebody with a terminal, who knows how long leases are.
    pub(crate) fn operator(&self, id: InstanceId) -> Caller {
        self.caller(id, span(self.lease_now))
    }

    fn strike_later(&mut self) {
        let mean = self.climate.strikes_every;
        let delay = self.random.between(mean / 10, mean * 19 / 10);
        self.after(delay, Event::Strike);
    }

    fn strike(&mut self) {
        if self.is_healed() {
            return;
        }
        let weights = self.case.faults.iter().map(|(_, weight)| *weight);
        let fault: Fault = self.case.faults[self.random.weighted(weights)].0;
        self.save_nodes();
        self.inflict(fault);
        self.strike_later();
    }

    /// Writes a line of the trace, where one is kept.
    pub(crate) fn note<T: fmt::Display>(&mut self, who: &str, what: impl FnOnce() -> T) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            let (seconds, rest) = (now / SECOND, now % SECOND / 1_000);
            trace.push(format!("{seconds:>5}.{rest:06}  {who:<6} {}", what()));
        }
    }

    pub(crate) fn note_party<T: fmt::Display>(&mut self, party: usize, what: impl FnOnce() -> T) {
        if self.trace.is_some() {
            let Party { name, life, .. } = &self.parties[party];
            let who = format!("{name}{life}");
            self.note(&who, what);
        }
    }
}

/// A span of the world's time as the core knows it.
pub(crate) fn span(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// The least lease in a world, and the step between two.
pub(crate) const LEASE_STEP: u64 = 500 * MILLISECOND;
