//! A world by seed: events in order until it ends or a rule is broken.

use store_cluster::{Flaw, Loss, Message, NodeId};

use super::Planted;
use super::client::Client;
use super::node::{Answer, Node, slot_at};
use super::operator::Operator;
use crate::cluster::links::{Delivery, Links, Weather};
use crate::cluster::{Rule, Violation};
use crate::queue::{Queue, Real};
use crate::random::Random;

pub(super) type Key = u32;
pub(super) type Value = u64;

/// When faults end, and when all is looked at.
const HEALS_AT: Real = 15_000;
const ENDS_AT: Real = 22_000;
/// Keys, each with a client; the first of them are in the first slot.
const KEYS: u32 = 8;
pub(super) const KEYS_OF_FIRST: u32 = 5;
/// Slots that have keys.
pub(super) const SLOTS: usize = 2;
/// Events of one world, at most.
const EVENTS_MAX: u64 = 200_000;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Tick(usize),
    Rested(usize),
    Question {
        node: usize,
        life: u32,
        client: usize,
        number: u64,
        is_asking: bool,
    },
    Answer {
        node: usize,
        life: u32,
        leaves_at: Real,
        client: usize,
        number: u64,
        answer: Answer,
    },
    AskAgain {
        client: usize,
        number: u64,
    },
    Impatient {
        client: usize,
        number: u64,
    },
    /// The operator of a slot gives an order.
    Operate(usize),
    Network {
        link: usize,
        delivery: Delivery,
    },
    CutBus,
    Connected {
        node: usize,
        life: u32,
        connection: u64,
        peer_life: u32,
    },
    Restore {
        from: usize,
        connection: u64,
        peer_life: u32,
        key: Key,
        value: Value,
        replaces: bool,
    },
    Restored {
        node: usize,
        connection: u64,
        peer_life: u32,
        leaves_at: Real,
        refusal: Option<&'static str>,
    },
    Closed {
        node: usize,
        connection: u64,
    },
    OrderEnded {
        node: usize,
        place: usize,
        life: u32,
        leaves_at: Real,
        is_done: bool,
    },
    Silence {
        node: usize,
        life: u32,
    },
    Fault,
    Restart(usize),
}

/// What a world came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovesOutcome {
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// Writes that were confirmed.
    pub writes: u64,
    /// Keys that moved.
    pub keys_moved: u64,
    /// How often the slot went to the other node.
    pub slots_moved: u64,
    /// Requests that waited for a key to leave.
    pub postponed: u64,
    /// Nodes that crashed.
    pub crashes: u64,
    /// Every event on a line, where that was asked for.
    pub trace: Vec<String>,
}

/// Two nodes, an operator for each of two slots, and clients.
#[derive(Debug)]
pub struct World {
    pub(super) random: Random,
    pub(super) queue: Queue<Event>,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    /// By slot. In the beginning they move them in opposite directions.
    pub(super) operators: [Operator; SLOTS],
    pub(super) links: Links,
    pub(super) outcome: MovesOutcome,
    pub(super) flaw: Option<Planted>,
    /// Numbers of connections given so far.
    pub(super) connections: u64,
    /// When the last answer to a migration arrives: nothing overtakes.
    pub(super) replies_at: [Real; SLOTS],
    pub(super) delay_max: u64,
    disk_max: u64,
    /// Whether both slots move.
    has_two: bool,
    /// Whether one node follows the rules of Redis.
    has_redis: bool,
    cut_every: u64,
    fault_every: u64,
    /// How often keys that went elsewhere are there again after a restart, and how often the
    /// operator gives up.
    old_percent: u64,
    pub(super) gives_up_percent: u64,
    /// When each life of a node ended.
    crashed_at: [Vec<Real>; 2],
    is_traced: bool,
}

impl World {
    /// The world of a seed, as it should be.
    pub fn new(seed: u64) -> Self {
        Self::build(seed, None)
    }

    /// The world of a seed with a rule broken. There is one rule to watch.
    pub fn flawed(seed: u64, flaw: Planted, _: Rule) -> Self {
        Self::build(seed, Some(flaw))
    }

    /// The same, with a line for every event.
    pub fn traced(mut self) -> Self {
        self.is_traced = true;
        self
    }

    fn build(seed: u64, flaw: Option<Planted>) -> Self {
        let mut random = Random::seeded(seed);
        let ids = [7, 9].map(|byte| NodeId::from_bytes([byte; 20]));
        let conf = |own: usize| {
            let line = |node: usize| {
                let (myself, slots) =
                    (if node == own { "myself," } else { "" }, ["8192-16383", "0-8191"][node]);
                let epoch = node + 1;
                format!(
                    "{} 10.0.0.{epoch}:6379@16379 {myself}master - 0 0 {epoch} connected {slots}\n",
                    ids[node]
                )
            };
            format!("{}{}vars currentEpoch 2 lastVoteEpoch 0\n", line(0), line(1))
        };
        // One node may be Redis's. The other one must be enough while the bus is quicker than the
        // operators: what Redis hears when it has taken a slot back, it takes for new.
        let has_redis = random.percent(25);
        let redis = random.below(2) as usize;
        let flaws = [0, 1].map(|node| match has_redis && node == redis {
            true => Some(Planted::Core(Flaw::NoHandover)),
            false => flaw,
        });
        let delay_max = random.between(2, 60);
        let weather = match has_redis {
            true => Weather { delay_max: delay_max.min(4), loss_percent: 0, repeat_percent: 0 },
            false => Weather {
                delay_max,
                loss_percent: if random.percent(50) { 0 } else { 2 },
                repeat_percent: 0,
            },
        };
        Self {
            queue: Queue::default(),
            links: Links::new(weather),
            nodes: (0..2).map(|node| Node::new(ids[node], conf(node), flaws[node])).collect(),
            clients: (0..KEYS).map(Client::new).collect(),
            operators: [Operator::new(1), Operator::new(0)],
            has_redis,
            has_two: random.percent(70),
            cut_every: random.between(200, 3_000),
            outcome: MovesOutcome::default(),
            flaw,
            connections: 0,
            replies_at: [0; SLOTS],
            delay_max,
            disk_max: if random.percent(50) { 1 } else { random.between(1, 80) },
            fault_every: random.between(600, 5_000),
            old_percent: if random.percent(50) { 70 } else { 0 },
            gives_up_percent: if random.percent(30) { 10 } else { 0 },
            random,
            crashed_at: [Vec::new(), Vec::new()],
            is_traced: false,
        }
    }

    /// Runs it to its end, or to the first broken rule.
    pub fn run(mut self) -> MovesOutcome {
        for node in 0..self.nodes.len() {
            self.queue.at(0, Event::Tick(node));
        }
        for client in 0..self.clients.len() {
            self.queue.at(3_000, Event::Rested(client));
        }
        for place in 0..if self.has_two { SLOTS } else { 1 } {
            self.queue.at(3_500, Event::Operate(place));
        }
        if !self.has_redis {
            self.queue.at(3_500, Event::CutBus);
        }
        self.queue.at(4_000, Event::Fault);
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.queue.take_next() else { break };
            if self.queue.now() > ENDS_AT {
                self.judge_end();
                break;
            }
            self.note(|| format!("{event:?}"));
            self.happen(event);
            if self.outcome.violation.is_some() {
                break;
            }
        }
        self.outcome
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(node) => {
                let now = self.queue.now();
                if self.nodes[node].is_up {
                    self.nodes[node].tick(now);
                    self.pass_on(node);
                }
                self.queue.after(store_cluster::TICK_MS, Event::Tick(node));
            }
            Event::Rested(client) => self.begin_question(client),
            Event::Question { node, life, client, number, is_asking } => {
                self.take_question(node, life, (client, number), is_asking);
            }
            Event::Answer { node, life, leaves_at, client, number, answer } => {
                // It never left if the node crashed first.
                match self.has_left(node, life, leaves_at) {
                    true => self.take_answer(node, client, number, answer),
                    false => self.lose_patience(client, number),
                }
            }
            Event::AskAgain { client, number } => self.ask_again(client, number),
            Event::Impatient { client, number } => self.lose_patience(client, number),
            Event::Operate(place) => self.operate(place),
            Event::Network { link, delivery } => self.deliver(link, delivery),
            Event::CutBus if self.queue.now() < HEALS_AT => {
                self.cut_bus();
                let delay = self.random.between(1, 2 * self.cut_every);
                self.queue.after(delay, Event::CutBus);
            }
            Event::CutBus => {}
            Event::Connected { node, life, connection, peer_life } => {
                if self.nodes[node].life == life {
                    self.take_connected(node, connection, peer_life);
                }
            }
            Event::Restore { from, connection, peer_life, key, value, replaces } => {
                self.take_restore((from, connection), peer_life, (key, value), replaces);
            }
            Event::Restored { node, connection, peer_life, leaves_at, refusal } => {
                let has_left = self.has_left(1 - node, peer_life, leaves_at);
                self.on_job(node, connection, |machine, now| match has_left {
                    true => machine.handle_reply(now, refusal),
                    false => machine.handle_lost(now, Loss::Closed),
                });
            }
            Event::Closed { node, connection } => {
                self.on_job(node, connection, |it, now| it.handle_lost(now, Loss::Closed));
            }
            Event::OrderEnded { node, place, life, leaves_at, is_done } => {
                self.end_order(place, is_done && self.has_left(node, life, leaves_at));
            }
            Event::Silence { node, life } => {
                let is_same_life = self.nodes[node].life == life;
                (0..SLOTS).filter(|_| is_same_life).for_each(|place| self.end_silence(node, place));
            }
            Event::Fault => self.fault(),
            Event::Restart(node) => {
                let now = self.queue.now();
                let is_old = self.old_percent > 0 && self.random.percent(self.old_percent);
                self.note(|| format!("node {node} starts, with old keys: {is_old}"));
                self.nodes[node].restart(now, is_old);
                self.pass_on(node);
            }
        }
    }

    /// Without a move, only the owner has keys of the slot once it was heard.
    pub(super) fn judge_outdated(&mut self, owner: usize, heard: &Message) {
        let other = 1 - owner;
        for place in 0..SLOTS {
            let is_claimed = heard.header.slots.contains(slot_at(place));
            let has_slot =
                self.nodes[owner].owns_slot(place) && !self.nodes[other].owns_slot(place);
            let count = self.nodes[other].keys_of(place).count();
            if is_claimed && has_slot && count > 0 && self.operators[place].is_idle() {
                self.broken(Rule::K8, || {
                    format!("node {other} keeps {count} keys of an earlier time")
                });
            }
        }
    }

    /// A migration may have waited long enough.
    fn end_silence(&mut self, node: usize, place: usize) {
        let now = self.queue.now();
        if let Some(job) = self.nodes[node].jobs[place].as_mut()
            && job.machine.wakes_at_ms().is_some_and(|at| at <= now)
        {
            job.machine.handle_time(now);
            self.turn_job(node, place);
        }
    }

    /// Whether what a node said in that life left before it crashed.
    fn has_left(&self, node: usize, life: u32, leaves_at: Real) -> bool {
        let this = &self.nodes[node];
        let crashed_at = self.crashed_at[node].get(life as usize);
        this.life == life || crashed_at.is_some_and(|at| leaves_at <= *at)
    }

    fn fault(&mut self) {
        let now = self.queue.now();
        if now >= HEALS_AT {
            return;
        }
        let node = self.random.below(2) as usize;
        if self.nodes[node].is_up {
            self.note(|| format!("node {node} crashes"));
            self.nodes[node].crash(now);
            self.crashed_at[node].push(now);
            self.outcome.crashes += 1;
            self.drop_links(node);
            for place in 0..SLOTS {
                if self.nodes[node].jobs[place].take().is_some() {
                    self.end_order(place, false);
                }
                let job = self.nodes[1 - node].jobs[place].as_ref();
                if let Some(connection) = job.map(|job| job.connection) {
                    let delay = self.random.between(1, self.delay_max);
                    self.queue.after(delay, Event::Closed { node: 1 - node, connection });
                }
            }
            let pause = self.random.between(1, 1_500);
            self.queue.after(pause, Event::Restart(node));
        }
        let delay = self.random.between(1, 2 * self.fault_every);
        self.queue.after(delay, Event::Fault);
    }

    /// When what is done now is on disk.
    pub(super) fn durable_at(&mut self) -> Real {
        self.queue.now() + self.random.below(self.disk_max)
    }

    /// Each key is on one side, with what was confirmed or something newer.
    fn judge_end(&mut self) {
        for client in self.clients.clone() {
            let values: Vec<Value> =
                self.nodes.iter().filter_map(|node| node.data.get(&client.key).copied()).collect();
            let has_last = values.iter().any(|value| *value >= client.confirmed);
            if client.confirmed > 0 && !has_last {
                self.broken(Rule::K8, || {
                    format!(
                        "key {} has {values:?} in the end, {} was confirmed",
                        client.key, client.confirmed
                    )
                });
            }
            let is_moving = self.nodes.iter().any(|node| node.jobs.iter().any(Option::is_some));
            if values.len() > 1 && !is_moving && self.is_settled() {
                self.broken(Rule::K8, || format!("key {} is on both sides", client.key));
            }
        }
    }

    /// Whether no slot is on its way.
    fn is_settled(&self) -> bool {
        self.nodes.iter().all(|node| node.core.open_slots().is_empty())
    }

    pub(super) fn broken(&mut self, rule: Rule, what: impl FnOnce() -> String) {
        let at = self.queue.now();
        let violation = Violation { rule, at, what: what() };
        self.note(|| format!("{} IS BROKEN: {}", violation.rule, violation.what));
        self.outcome.violation.get_or_insert(violation);
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.is_traced {
            let line = format!("{:>6} {}", self.queue.now(), what());
            self.outcome.trace.push(line);
        }
    }
}
