//! A world by seed: events in order until it ends or a rule is broken.

use std::collections::BTreeMap;

use store_replica::LinkPhase;

use super::climate::{AGREES_FOR, AGREES_WITHIN, Climate, FAULTS_FROM, HEALS_AT, server_at};
use super::flaw::Flaw;
use super::judge::{Judge, Rule, Violation};
use super::node::Node;
use super::servers::Accepted;
use crate::clock::Clock;
use crate::network::{ConnectionId, Delivery, Host, Network};
use crate::queue::{Queue, Real};
use crate::random::Random;
use crate::replication;

/// Events of one world, at most: one that goes round in circles is found, too.
const EVENTS_MAX: u64 = 3_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Network(Delivery),
    /// A sentinel wakes by its own clock.
    Wake(usize, u32),
    /// A sentinel's file is on disk.
    Written {
        node: usize,
        life: u32,
        text: String,
    },
    /// A sentinel that stood still goes on.
    Resume(usize, u32),
    RestartNode(usize),
    RestartServer(usize),
    Crash(usize),
    Save,
    Fault,
    /// Something breaks the epoch in a hello.
    BreakEpoch,
    /// A sentinel says that it is where another one is.
    Misaddress,
    /// An operator has a sentinel forget what it knows.
    Reset,
    Heal,
    Check,
}

impl From<Delivery> for Event {
    fn from(delivery: Delivery) -> Self {
        Event::Network(delivery)
    }
}

/// What a world came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentinelOutcome {
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// Failovers that were tried.
    pub tries: u64,
    /// Sentinels that were elected.
    pub elections: u64,
    /// Replicas that were promoted.
    pub promotions: u64,
    /// How long it took after the heal until all agreed.
    pub agreed_after: Real,
    /// What happened, where that was asked for.
    pub trace: Vec<String>,
}

/// Sentinels, the servers that they watch, and whatever breaks them.
#[derive(Debug)]
pub struct World {
    pub(crate) climate: Climate,
    pub(crate) random: Random,
    pub(crate) queue: Queue<Event>,
    /// Between sentinels, and from them to servers.
    pub(crate) network: Network,
    /// The servers, with a network of their own.
    pub(crate) stores: replication::World,
    pub(crate) nodes: Vec<Node>,
    pub(crate) accepted: BTreeMap<ConnectionId, Accepted>,
    pub(crate) judge: Judge,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) outcome: SentinelOutcome,
    /// Whether all have met, so that faults may come.
    pub(crate) has_begun: bool,
    /// Who says that it is at another's address, and until when.
    pub(crate) misaddressed: Option<(usize, usize, Real)>,
    agrees_since: Option<Real>,
    is_over: bool,
}

impl World {
    /// The world of a seed, as it should be.
    pub fn new(seed: u64) -> Self {
        Self::build(seed, None)
    }

    /// The world of a seed with a rule broken, watched for `rule` alone.
    pub fn flawed(seed: u64, flaw: Flaw, rule: Rule) -> Self {
        let mut world = Self::build(seed, Some(flaw));
        world.judge.only = Some(rule);
        world
    }

    /// The same, with a line for whatever a person would want to know.
    pub fn traced(mut self) -> Self {
        self.trace = Some(Vec::new());
        self
    }

    fn build(seed: u64, flaw: Option<Flaw>) -> Self {
        let mut random = Random::seeded(seed);
        let climate = Climate::draw(&mut random, flaw);
        let servers = Random::seeded(random.word());
        let stores = replication::World::attended(servers, climate.servers, HEALS_AT);
        let mut nodes = Vec::new();
        for index in 0..climate.sentinels {
            let off_ppm = random.below(2_000) as i64 - 1_000;
            let file = climate.file(index, flaw);
            nodes.push(Node::new(index, file, Clock::new(off_ppm, 0), &mut random));
        }
        Self {
            network: Network::new(climate.weather),
            climate,
            random,
            queue: Queue::default(),
            stores,
            nodes,
            accepted: BTreeMap::new(),
            judge: Judge::default(),
            flaw,
            trace: None,
            outcome: SentinelOutcome::default(),
            has_begun: false,
            misaddressed: None,
            agrees_since: None,
            is_over: false,
        }
    }

    /// Runs it to its end, or to the first broken rule.
    pub fn run(mut self) -> SentinelOutcome {
        for node in 0..self.nodes.len() {
            self.queue.at(1 + node as Real, Event::Wake(node, 0));
        }
        self.queue.at(1_000, Event::Save);
        self.queue.at(FAULTS_FROM, Event::Fault);
        self.queue.at(FAULTS_FROM + 1, Event::BreakEpoch);
        self.queue.at(FAULTS_FROM + 2, Event::Misaddress);
        self.queue.at(FAULTS_FROM + 3, Event::Reset);
        self.queue.at(HEALS_AT, Event::Heal);
        self.queue.at(HEALS_AT + 1, Event::Check);
        for _ in 0..EVENTS_MAX {
            self.step();
            if self.is_over || self.judge.violation.is_some() {
                return self.finish();
            }
        }
        let now = self.queue.now();
        self.judge.broken(Rule::S2, now, || format!("{EVENTS_MAX} events and no end"));
        self.finish()
    }

    fn step(&mut self) {
        let own = self.queue.next_at().expect("a world goes on until it is over");
        match self.stores.queue.next_at().filter(|at| *at <= own) {
            Some(_) => {
                self.stores.step();
                if let Some(violation) = self.stores.judge.violation.take() {
                    let what = || format!("{}: {}", violation.rule, violation.what);
                    self.judge.broken(Rule::S2, violation.at, what);
                }
            }
            None => {
                let Some(event) = self.queue.take_next() else { return };
                self.stores.queue.move_to(self.queue.now());
                self.happen(event);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Network(delivery) => self.deliver(delivery),
            Event::Wake(node, life) => self.wake(node, life),
            Event::Written { node, life, text } => self.written(node, life, text),
            Event::Resume(node, life) => self.resume(node, life),
            Event::RestartNode(node) => self.restart_node(node),
            Event::RestartServer(server) => self.restart_server(server),
            Event::Crash(server) => self.crash_again(server),
            Event::Save => self.save(),
            Event::Fault => self.fault(),
            Event::BreakEpoch => self.break_epoch(),
            Event::Misaddress => self.misaddress(),
            Event::Reset => self.reset(),
            Event::Heal => self.heal(),
            Event::Check => self.check(),
        }
    }

    fn finish(mut self) -> SentinelOutcome {
        if let Some(violation) = self.judge.violation.clone() {
            self.note(|| format!("{} IS BROKEN: {}", violation.rule, violation.what));
        }
        SentinelOutcome {
            violation: self.judge.violation,
            trace: self.trace.unwrap_or_default(),
            ..self.outcome
        }
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.queue.now() >= HEALS_AT
    }

    /// The place of a sentinel in the network.
    pub(crate) fn host_of(&self, node: usize) -> Host {
        self.climate.servers + node
    }

    /// Which sentinel is at a place, if it is none of a server.
    pub(crate) fn node_at(&self, host: Host) -> Option<usize> {
        host.checked_sub(self.climate.servers)
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let now: Real = self.queue.now();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>7} {}", what()));
        }
    }

    /// After the heal: does everybody agree, and for long enough?
    fn check(&mut self) {
        const EVERY: Real = 500;
        let now = self.queue.now();
        match self.disagreement() {
            None => {
                let since = *self.agrees_since.get_or_insert(now);
                if now - since >= AGREES_FOR {
                    self.outcome.agreed_after = since - HEALS_AT;
                    self.is_over = true;
                    self.note(|| "all agree".to_owned());
                }
            }
            Some(what) => {
                self.agrees_since = None;
                if now > HEALS_AT + AGREES_WITHIN {
                    self.judge.broken(Rule::S2, now, || what);
                    self.is_over = true;
                }
            }
        }
        self.queue.after(EVERY, Event::Check);
    }

    /// What is not yet as it should be in the end.
    fn disagreement(&self) -> Option<String> {
        let address = self.nodes[0].group().address();
        for (index, node) in self.nodes.iter().enumerate() {
            let group = node.group();
            if group.address() != address
                || group.config_epoch() != self.nodes[0].group().config_epoch()
            {
                let own = group.address();
                return Some(format!("{address} for sentinel 0, {own} for sentinel {index}"));
            }
            if let Some(step) = group.failover_step() {
                return Some(format!("sentinel {index} is at {step:?}"));
            }
        }
        let primary = server_at(address).filter(|server| *server < self.climate.servers)?;
        self.unlike(primary)
    }

    /// A server that does not have what the primary has.
    fn unlike(&self, primary: usize) -> Option<String> {
        let leader = &self.stores.servers[primary];
        if !leader.replication.is_primary() {
            return Some(format!("server {primary} is no primary"));
        }
        for (index, server) in self.stores.servers.iter().enumerate() {
            let phase = server.replication.link_phase();
            let is_linked = phase == Some(LinkPhase::Connected);
            let follows = server.replication.role() == self.stores.role_of_replica(primary);
            if index != primary && !(is_linked && follows) {
                let role = server.replication.role();
                return Some(format!("server {index} is {role:?}, {phase:?}"));
            }
            if server.data.digest() != leader.data.digest() {
                return Some(format!("server {index} has other data than {primary}"));
            }
        }
        None
    }
}
