//! A world by seed: events in order until it ends or a rule is broken.

use std::collections::BTreeMap;

use store_cluster::{Cluster, NodeId, Now, Role};

use super::climate::{Climate, HEALS_AT, address_of};
use super::faults::Duel;
use super::flaw::Planted;
use super::host::{Data, Host};
use super::judge::{Judge, Rule, Violation};
use super::links::{Delivery, Links};
use super::operator::Order;
use super::scale::Counts;
use crate::clock::Clock;
use crate::network::Host as HostIndex;
use crate::queue::{Queue, Real};
use crate::random::Random;

/// Events of one world, at most: one that goes round in circles is found, too.
const EVENTS_MAX: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Network {
        link: usize,
        delivery: Delivery,
    },
    Tick {
        host: HostIndex,
        life: u32,
    },
    OnDisk {
        host: HostIndex,
        life: u32,
        write: u64,
    },
    Fault,
    Restart(HostIndex),
    Order(Order),
    Heal,
    /// Slots that nobody has are given to somebody, as `redis-cli --cluster fix` does.
    Fix,
    /// Everybody must agree.
    Settled,
    End,
}

/// What a world came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOutcome {
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// Messages that arrived.
    pub messages: u64,
    /// Elections that were won.
    pub elections: u64,
    /// Failures that were found.
    pub failures: u64,
    /// Replicas that moved by themselves.
    pub moves: u64,
    /// Slots that operators moved.
    pub slots_moved: u64,
    /// Every event on a line, where that was asked for.
    pub trace: Vec<String>,
}

/// Nodes, their network, and everybody who uses or breaks them.
#[derive(Debug)]
pub struct World {
    pub(crate) climate: Climate,
    pub(crate) random: Random,
    pub(crate) queue: Queue<Event>,
    pub(crate) links: Links,
    pub(crate) hosts: Vec<Host>,
    pub(crate) by_id: BTreeMap<NodeId, HostIndex>,
    pub(crate) judge: Judge,
    pub(crate) flaw: Option<Planted>,
    pub(crate) outcome: ClusterOutcome,
    pub(crate) is_traced: bool,
    pub(crate) dead_at_last: Option<HostIndex>,
    pub(crate) duel: Option<Duel>,
    /// Somebody who took over died for good.
    pub(crate) has_lost_heir: bool,
    pub(crate) counts: Counts,
}

impl World {
    /// The world of a seed, as it should be.
    pub fn new(seed: u64) -> Self {
        Self::build(seed, None, None)
    }

    /// The world of a seed with a rule broken, watched for `rule` alone.
    pub fn flawed(seed: u64, flaw: Planted, rule: Rule) -> Self {
        let mut world = Self::build(seed, Some(flaw), None);
        world.judge.only = Some(rule);
        world
    }

    /// The same, with a line for every event.
    pub fn traced(mut self) -> Self {
        self.is_traced = true;
        self
    }

    pub(crate) fn build(seed: u64, flaw: Option<Planted>, climate: Option<Climate>) -> Self {
        let mut random = Random::seeded(seed);
        let climate = climate.unwrap_or_else(|| Climate::draw(&mut random));
        let ids: Vec<NodeId> = (0..climate.hosts()).map(|_| any_id(&mut random)).collect();
        let mut world = Self {
            links: Links::new(climate.weather),
            judge: Judge::new(climate.hosts()),
            climate,
            random,
            queue: Queue::default(),
            hosts: Vec::new(),
            by_id: ids.iter().enumerate().map(|(host, id)| (*id, host)).collect(),
            flaw,
            outcome: ClusterOutcome::default(),
            is_traced: false,
            dead_at_last: None,
            duel: None,
            has_lost_heir: false,
            counts: Counts::default(),
        };
        for host in 0..ids.len() {
            let text = world.climate.first_config(host, &ids);
            let mut new = world.new_host(host, ids[host], text);
            if let Some(first) = world.hosts.first() {
                new.core.share_slots(&first.core);
            }
            world.hosts.push(new);
        }
        world
    }

    fn new_host(&mut self, host: HostIndex, id: NodeId, text: String) -> Host {
        let skew = self.climate.skew_max;
        let off_ppm = self.random.below(2_000) as i64 - 1_000;
        let ahead = self.random.below(2 * skew as u64 + 1) as i64 - skew;
        let clock = Clock::new(off_ppm, ahead);
        let now = Now { monotonic_ms: clock.monotonic(0), unix_ms: clock.wall(0) };
        let core = self.new_core(host as u32, now, &text);
        let claim = core.claim();
        Host {
            id,
            ip: host as u32,
            ip_text: address_of(host as u32).ip,
            core,
            clock,
            life: 0,
            is_up: true,
            is_gone: false,
            paused_until: 0,
            disk: (0, (text, claim)),
            full_until: 0,
            has_failed: false,
            writes: Default::default(),
            writes_made: 0,
            held: Default::default(),
            dialled: Vec::new(),
            role: Role::Master,
            data: Data::default(),
            is_paused_for_failover: false,
            wakes_at: 0,
        }
    }

    pub(crate) fn new_core(&mut self, ip: u32, now: Now, text: &str) -> Cluster {
        let settings = self.climate.settings(ip);
        let seed = self.random.word();
        let core = Cluster::restore(now, text, settings, seed);
        let mut core = core.expect("a file that was written can be read");
        if let Some(Planted::Core(flaw)) = self.flaw {
            core.plant(flaw);
        }
        core
    }

    /// Runs it to its end, or to the first broken rule.
    pub fn run(mut self) -> ClusterOutcome {
        for host in 0..self.hosts.len() {
            let delay = self.random.below(100);
            self.queue.at(delay, Event::Tick { host, life: 0 });
        }
        let settled_at = HEALS_AT + self.climate.settle_ms();
        self.queue.at(4_000, Event::Fault);
        self.queue.at(HEALS_AT, Event::Heal);
        self.queue.at(HEALS_AT + 5_000 + 2 * self.climate.node_timeout, Event::Fix);
        self.queue.at(settled_at, Event::Settled);
        self.queue.at(settled_at + self.climate.failover_ms(), Event::End);
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.queue.take_next() else { break };
            if matches!(event, Event::End) {
                self.judge_end();
                return self.finish();
            }
            let is_last = matches!(event, Event::Settled) && !self.climate.has_last_death;
            self.happen(event);
            if is_last || self.judge.violation.is_some() {
                return self.finish();
            }
        }
        let now = self.queue.now();
        self.judge.broken(Rule::K5, now, || format!("{EVENTS_MAX} events and no end"));
        self.finish()
    }

    fn finish(mut self) -> ClusterOutcome {
        if let Some(violation) = self.judge.violation.take() {
            for host in 0..self.hosts.len() {
                let text = self.hosts[host].core.config_text();
                self.note(|| format!("{host} knows\n{text}"));
            }
            self.note(|| format!("{} IS BROKEN: {}", violation.rule, violation.what));
            self.outcome.violation = Some(violation);
        }
        self.outcome
    }

    pub(crate) fn happen(&mut self, event: Event) {
        if let Some(until) = self.held_up_until(&event) {
            return self.queue.at(until, event);
        }
        match event {
            Event::Network { link, delivery } => self.deliver(link, delivery),
            Event::Tick { host, life } => self.tick(host, life),
            Event::OnDisk { host, life, write } => self.finish_write(host, life, write),
            Event::Fault => self.fault(),
            Event::Restart(host) => self.restart(host),
            Event::Order(order) => self.obey(order),
            Event::Heal => self.heal(),
            Event::Fix => self.fix(),
            Event::Settled => self.judge_settled(),
            Event::End => {}
        }
    }

    /// A host that is paused sees nothing; it all waits for it.
    fn held_up_until(&self, event: &Event) -> Option<Real> {
        let host = match event {
            Event::Network { link, delivery } => {
                let end = match delivery {
                    Delivery::Knock => super::links::End::Listener,
                    Delivery::Opened => super::links::End::Dialer,
                    Delivery::Message(end, _) | Delivery::Closed(end) => *end,
                };
                self.links.all[*link].hosts[end as usize]
            }
            Event::Tick { host, .. } | Event::OnDisk { host, .. } => *host,
            _ => return None,
        };
        let until = self.hosts[host].paused_until;
        (until > self.queue.now()).then_some(until)
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.queue.now() >= HEALS_AT
    }

    /// Any host of this cluster.
    pub(crate) fn any_host(&mut self) -> HostIndex {
        self.random.below((self.climate.masters + self.climate.replicas) as u64) as HostIndex
    }

    pub(crate) fn members(&self) -> std::ops::Range<HostIndex> {
        0..self.climate.masters + self.climate.replicas
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.is_traced {
            let line = format!("{:>6} {}", self.queue.now(), what());
            self.outcome.trace.push(line);
        }
    }
}

fn any_id(random: &mut Random) -> NodeId {
    let mut bytes = [0; 20];
    bytes.iter_mut().for_each(|byte| *byte = random.word() as u8);
    NodeId::from_bytes(bytes)
}
