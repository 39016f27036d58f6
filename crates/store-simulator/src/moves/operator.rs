//! Operators: each moves a slot from one node to the other and back, as `redis-cli` does, and tries
//! again what was not answered.

use store_cluster::{Loss, Migration, MigrationEnd, MigrationOrder, MigrationOutput, SlotChange};

use super::Planted;
use super::node::{Answer, Job, key_of, name_of, place_of, slot_at};
use super::world::{Event, World};

/// How long a migration may be silent, at least: longer than anything is under way.
const SILENCE_MIN: u64 = 500;

/// How long a move that was ended half-way stays so.
const GIVEN_UP_MAX: u64 = 2_000;

/// What the operator does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Import,
    Migrate,
    MoveKeys { replaces: bool },
    GiveToTaker,
    TellGiver,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operator {
    pub(super) giver: usize,
    step: Step,
    /// An order that waits for the end of a migration, by its number.
    waits_for: Option<u64>,
    orders: u64,
    /// Whether the move was ended half-way once.
    gave_up: bool,
}

impl Operator {
    pub(super) fn new(giver: usize) -> Self {
        Self { giver, step: Step::Import, waits_for: None, orders: 0, gave_up: false }
    }

    /// Whether no move has begun.
    pub(super) fn is_idle(&self) -> bool {
        self.step == Step::Import && !self.gave_up
    }
}

impl World {
    /// One order. What comes of it leads to the next.
    pub(super) fn operate(&mut self, place: usize) {
        if self.operators[place].waits_for.is_some() {
            return;
        }
        let (giver, step) = (self.operators[place].giver, self.operators[place].step);
        let (taker, slot) = (1 - giver, slot_at(place));
        let ids = [self.nodes[giver].id, self.nodes[taker].id];
        let at = match step {
            Step::Import | Step::GiveToTaker => taker,
            Step::Migrate | Step::MoveKeys { .. } | Step::TellGiver => giver,
        };
        let delay = self.random.between(5, 60);
        if !self.nodes[at].is_up {
            return self.queue.after(delay, Event::Operate(place));
        }
        let gives_up = self.gives_up_percent > 0 && self.random.percent(self.gives_up_percent);
        let has_keys = self.nodes[at].keys_of(place).next().is_some();
        let (real, node) = (self.queue.now(), &mut self.nodes[at]);
        let change = match step {
            Step::Import => SlotChange::Importing(ids[0]),
            Step::Migrate => SlotChange::Migrating(ids[1]),
            Step::GiveToTaker | Step::TellGiver => SlotChange::Node(ids[1]),
            Step::MoveKeys { .. } if gives_up => return self.give_up(place, taker),
            Step::MoveKeys { replaces } => return self.begin_move(place, giver, replaces),
        };
        let is_done =
            node.drive(real, |core, now| core.set_slot(now, slot, change, has_keys).is_ok());
        self.note(|| format!("operator of {slot}: {step:?} at {at}: {is_done}"));
        self.pass_on(at);
        let node = &self.nodes[at];
        let is_owner = node.core.owner(slot) == Some(node.core.my_index());
        self.operators[place].step = match step {
            // It was done before, and the answer was lost.
            Step::Import if is_done || is_owner => Step::Migrate,
            Step::Migrate if is_done || !is_owner => Step::MoveKeys { replaces: false },
            Step::GiveToTaker if is_done => Step::TellGiver,
            Step::TellGiver if is_done => {
                self.operators[place].giver = taker;
                self.operators[place].gave_up = false;
                self.outcome.slots_moved += 1;
                Step::Import
            }
            // Keys came back with a crash.
            Step::TellGiver => Step::MoveKeys { replaces: true },
            other => other,
        };
        self.queue.after(delay, Event::Operate(place));
    }

    /// Ends a move half-way, and begins it again a while later.
    fn give_up(&mut self, place: usize, taker: usize) {
        let (real, slot) = (self.queue.now(), slot_at(place));
        if self.nodes[taker].is_up {
            let node = &mut self.nodes[taker];
            _ = node.drive(real, |core, now| core.set_slot(now, slot, SlotChange::Stable, true));
            self.note(|| format!("operator of {slot}: Stable at {taker}"));
            self.pass_on(taker);
        }
        self.operators[place].step = Step::Import;
        self.operators[place].gave_up = true;
        let delay = self.random.between(5, GIVEN_UP_MAX);
        self.queue.after(delay, Event::Operate(place));
    }

    fn begin_move(&mut self, place: usize, giver: usize, replaces: bool) {
        let count = self.random.between(1, 4) as usize;
        let keys: Vec<Vec<u8>> =
            self.nodes[giver].keys_of(place).take(count).map(name_of).collect();
        let delay = self.random.between(5, 60);
        if keys.is_empty() {
            self.operators[place].step = Step::GiveToTaker;
            return self.queue.after(delay, Event::Operate(place));
        }
        if self.nodes[giver].jobs[place].is_some() {
            return self.queue.after(delay, Event::Operate(place));
        }
        keys.iter().for_each(|key| self.nodes[giver].leaving.insert(0, key));
        let timeout_ms = SILENCE_MIN + self.random.below(500);
        let order = MigrationOrder { keys, db: 0, copies: false, timeout_ms, credentials: None };
        let mut machine = Migration::new(self.queue.now(), order);
        if self.flaw == Some(Planted::DeleteBeforeAnswer) {
            machine.remove_early();
        }
        let job = Job { machine, replaces, connection: 0, arrives_at: 0 };
        self.nodes[giver].jobs[place] = Some(job);
        let operator = &mut self.operators[place];
        operator.orders += 1;
        operator.waits_for = Some(operator.orders);
        self.turn_job(giver, place);
    }

    /// The node that ran the operator's order is gone, or has answered.
    pub(super) fn end_order(&mut self, place: usize, is_done: bool) {
        if self.operators[place].waits_for.take().is_some() {
            if !is_done {
                self.operators[place].step = Step::MoveKeys { replaces: true };
            }
            let delay = self.random.between(5, 60);
            self.queue.after(delay, Event::Operate(place));
        }
    }

    /// Does what the migration of a node asks for.
    pub(super) fn turn_job(&mut self, node: usize, place: usize) {
        let Some(mut job) = self.nodes[node].jobs[place].take() else { return };
        let mut is_over = false;
        loop {
            while let Some(output) = job.machine.poll_output() {
                is_over |= self.obey_migration((node, place), &mut job, output);
            }
            let Some(name) = job.machine.next_key() else { break };
            self.send_key(node, &mut job, &name);
        }
        if !is_over {
            if let Some(at) = job.machine.wakes_at_ms() {
                let life = self.nodes[node].life;
                self.queue.at(at, Event::Silence { node, life });
            }
            self.nodes[node].jobs[place] = Some(job);
        }
        self.resume_postponed(node);
    }

    /// True when the migration is over.
    fn obey_migration(
        &mut self,
        (node, place): (usize, usize),
        job: &mut Job,
        output: MigrationOutput,
    ) -> bool {
        let now = self.queue.now();
        match output {
            MigrationOutput::Connect { .. } => {
                self.connections += 1;
                job.connection = self.connections;
                job.arrives_at = now;
                let delay = self.random.between(1, self.delay_max);
                let (life, connection) = (self.nodes[node].life, job.connection);
                let peer_life = self.nodes[1 - node].life;
                let event = Event::Connected { node, life, connection, peer_life };
                self.queue.after(delay, event);
            }
            MigrationOutput::Send(_) => {}
            MigrationOutput::Moved(name) => {
                self.nodes[node].leaving.remove(0, &name);
                let (durable_at, key) = (self.durable_at(), key_of(&name));
                if let Some(value) = self.nodes[node].data.get(&key).copied() {
                    self.nodes[node].moved.insert(key, value);
                }
                self.nodes[node].change(durable_at, key, None);
                self.outcome.keys_moved += 1;
            }
            MigrationOutput::Stays(name) => self.nodes[node].leaving.remove(0, &name),
            MigrationOutput::Finish { end, .. } => {
                self.note(|| format!("node {node}: MIGRATE ends with {end}"));
                let leaves_at = self.nodes[node].speaks_at(now);
                let arrives_at = leaves_at + self.random.between(1, self.delay_max);
                let (life, is_done) = (self.nodes[node].life, end == MigrationEnd::Moved);
                let event = Event::OrderEnded { node, place, life, leaves_at, is_done };
                self.queue.at(arrives_at, event);
                return true;
            }
        }
        false
    }

    fn send_key(&mut self, node: usize, job: &mut Job, name: &[u8]) {
        let (now, key) = (self.queue.now(), key_of(name));
        let Some(value) = self.nodes[node].data.get(&key).copied() else {
            return job.machine.handle_gone(now);
        };
        job.arrives_at = job.arrives_at.max(now) + self.random.between(1, self.delay_max);
        let (connection, replaces) = (job.connection, job.replaces);
        let peer_life = self.nodes[1 - node].life;
        let event = Event::Restore { from: node, connection, peer_life, key, value, replaces };
        self.queue.at(job.arrives_at, event);
        job.machine.handle_prepared(now);
    }

    /// A key arrives at the other node.
    pub(super) fn take_restore(
        &mut self,
        (from, connection): (usize, u64),
        peer_life: u32,
        (key, value): (u32, u64),
        replaces: bool,
    ) {
        let to = 1 - from;
        if !self.nodes[to].is_up || self.nodes[to].life != peer_life {
            return self.queue.after(1, Event::Closed { node: from, connection });
        }
        let refusal = match self.nodes[to].route(key, true, true) {
            Some(Answer::Moved | Answer::Ask) => Some("MOVED"),
            Some(_) => Some("CLUSTERDOWN"),
            None if self.nodes[to].data.contains_key(&key) && !replaces => Some("BUSYKEY"),
            None => {
                let durable_at = self.durable_at();
                self.nodes[to].change(durable_at, key, Some(value));
                None
            }
        };
        let leaves_at = self.nodes[to].speaks_at(self.queue.now());
        let arrives_at = leaves_at + self.random.between(1, self.delay_max);
        let replies_at = &mut self.replies_at[place_of(key)];
        let arrives_at = arrives_at.max(*replies_at);
        *replies_at = arrives_at;
        let answer = Event::Restored { node: from, connection, peer_life, leaves_at, refusal };
        self.queue.at(arrives_at, answer);
    }

    /// Something happened to a connection of a migration.
    pub(super) fn on_job(
        &mut self,
        node: usize,
        connection: u64,
        happen: impl FnOnce(&mut Migration, u64),
    ) {
        let now = self.queue.now();
        let jobs = self.nodes[node].jobs.iter_mut().enumerate();
        let mut jobs = jobs.filter_map(|(place, job)| Some((place, job.as_mut()?)));
        if let Some((place, job)) = jobs.find(|(_, job)| job.connection == connection) {
            happen(&mut job.machine, now);
            self.turn_job(node, place);
        }
    }

    pub(super) fn take_connected(&mut self, node: usize, connection: u64, peer_life: u32) {
        let peer = &self.nodes[1 - node];
        let is_there = peer.is_up && peer.life == peer_life;
        self.on_job(node, connection, |machine, now| match is_there {
            true => machine.handle_connected(now, Some(0)),
            false => machine.handle_lost(now, Loss::Closed),
        });
    }
}
