//! A node: the unchanged core, a migration, and data with a disk.

use std::collections::{BTreeMap, VecDeque};

use std::sync::Arc;

use store_cluster::{
    Address, Body, Cluster, Ends, Flags, Flaw, Header, Leaving, LinkId, Message, Migration, NodeId,
    Now, Output, Refusal, RouteRequest, Settings, SlotSet, Verdict,
};
use store_resp::slot::slot_of;

use super::Planted;
use super::world::{Key, Value};
use crate::queue::Real;

/// The slot of all keys.
pub(super) const SLOT_TAG: &str = "{moved}";

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Read,
    Write(Value),
}

/// What a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Value(Option<Value>),
    Written,
    Moved,
    Ask,
    /// It serves nobody, or not now.
    Later,
}

/// A migration under way, with its connection.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) machine: Migration,
    pub(super) replaces: bool,
    pub(super) connection: u64,
    /// When the other end gets the last of what was sent: nothing overtakes.
    pub(super) arrives_at: Real,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) core: Cluster,
    /// nodes.conf.
    conf: String,
    pub(super) is_up: bool,
    pub(super) life: u32,
    pub(super) data: BTreeMap<Key, Value>,
    /// What is not on disk yet: when it is, and what was there before.
    undurable: VecDeque<(Real, Key, Option<Value>)>,
    /// Keys that have moved from here, as an old snapshot has them.
    pub(super) moved: BTreeMap<Key, Value>,
    pub(super) leaving: Leaving,
    pub(super) job: Option<Job>,
    /// Requests that wait for a key to leave: of which client, and which of its questions.
    pub(super) postponed: Vec<(usize, u64)>,
    flaw: Option<Planted>,
}

impl Node {
    pub(super) fn new(id: NodeId, conf: String, flaw: Option<Planted>) -> Self {
        let mut node = Self {
            id,
            core: core_of(0, &conf, flaw),
            conf,
            is_up: true,
            life: 0,
            data: BTreeMap::new(),
            undurable: VecDeque::new(),
            moved: BTreeMap::new(),
            leaving: Leaving::default(),
            job: None,
            postponed: Vec::new(),
            flaw,
        };
        node.forget(0);
        node
    }

    /// All that is not on a disk is as it was at the first start.
    fn forget(&mut self, real: Real) {
        self.core = core_of(real, &self.conf, self.flaw);
        self.leaving = Leaving::default();
        if self.flaw == Some(Planted::NoLeavingSet) {
            self.leaving.ignore();
        }
        self.job = None;
        self.postponed.clear();
    }

    pub(super) fn crash(&mut self, real: Real) {
        self.is_up = false;
        self.life += 1;
        self.settle(real);
        while let Some((_, key, before)) = self.undurable.pop_back() {
            match before {
                Some(value) => _ = self.data.insert(key, value),
                None => _ = self.data.remove(&key),
            }
        }
    }

    /// Starts again. `is_old`: keys of the slot that were here before it went elsewhere are here
    /// again.
    pub(super) fn restart(&mut self, real: Real, is_old: bool) {
        self.is_up = true;
        self.forget(real);
        if is_old && !self.has_slot() {
            for (key, value) in &self.moved {
                self.data.entry(*key).or_insert(*value);
            }
        }
        if !self.data.is_empty() {
            self.core.adopt_keys(now(real), &SlotSet::of([slot_of(&name_of(0))]));
        }
        self.obey(real);
    }

    /// Whether the slot is here, or on its way.
    fn has_slot(&self) -> bool {
        self.owns_slot() || self.core.importing_from(slot_of(&name_of(0))).is_some()
    }

    pub(super) fn owns_slot(&self) -> bool {
        self.core.owner(slot_of(&name_of(0))) == Some(self.core.my_index())
    }

    /// What the node says of itself to the other.
    pub(super) fn heartbeat(&self, address: Address) -> Message {
        let me = self.core.me();
        let header = Header {
            sender: me.id,
            current_epoch: self.core.current_epoch(),
            config_epoch: me.config_epoch,
            offset: 0,
            slots: Arc::clone(&me.slots),
            master: None,
            address,
            flags: Flags::MASTER,
            is_ok: self.core.is_ok(),
            is_paused: false,
            is_forced: false,
            hostname: None,
        };
        Message { header, body: Body::Ping(Vec::new()) }
    }

    pub(super) fn hear(&mut self, real: Real, message: &Message) {
        let ends = Ends::default();
        self.core.handle_message(now(real), LinkId::Inbound(1), ends, message);
        self.obey(real);
    }

    /// Where this node knows another to be.
    pub(super) fn address_of(&self, id: NodeId) -> Address {
        let index = self.core.nodes().find(id).expect("both know each other");
        self.core.nodes()[index].address.clone()
    }

    /// What is on disk by now cannot be lost any more.
    fn settle(&mut self, real: Real) {
        while self.undurable.front().is_some_and(|(at, _, _)| *at <= real) {
            self.undurable.pop_front();
        }
    }

    /// Changes a key; it is on disk at `durable_at`.
    pub(super) fn change(&mut self, durable_at: Real, key: Key, value: Option<Value>) {
        let before = match value {
            Some(value) => self.data.insert(key, value),
            None => self.data.remove(&key),
        };
        let durable_at = durable_at.max(self.speaks_at(0));
        self.undurable.push_back((durable_at, key, before));
    }

    /// When what is said now leaves: everything before it is on disk.
    pub(super) fn speaks_at(&self, real: Real) -> Real {
        self.undurable.back().map_or(real, |(at, _, _)| real.max(*at))
    }

    pub(super) fn tick(&mut self, real: Real) {
        self.settle(real);
        self.core.handle_tick(now(real));
        self.obey(real);
    }

    /// Changes the core as an operator wants it. Whether it did.
    pub(super) fn command<E>(
        &mut self,
        real: Real,
        change: impl FnOnce(&mut Cluster, Now) -> Result<(), E>,
    ) -> bool {
        let is_done = change(&mut self.core, now(real)).is_ok();
        self.obey(real);
        is_done
    }

    /// The file is written before an answer. What the node says to the other is asked for instead.
    fn obey(&mut self, real: Real) {
        loop {
            match self.core.poll_output() {
                Output::Persist { text, .. } => self.conf = text,
                // The world has one slot with keys.
                Output::DropSlots(slots) if slots.contains(slot_of(&name_of(0))) => {
                    let keys: Vec<Key> = self.data.keys().copied().collect();
                    keys.into_iter().for_each(|key| self.change(real, key, None));
                }
                Output::WaitUntil(_) => return,
                _ => {}
            }
        }
    }

    /// Whether the node serves a key, and how.
    pub(super) fn route(&self, key: Key, is_write: bool, is_asking: bool) -> Option<Answer> {
        let name = name_of(key);
        let request = RouteRequest {
            keys: &[&name],
            is_write,
            is_asking,
            is_read_only_session: false,
            is_migrate: false,
            is_shard_channel: false,
        };
        match self.core.route(request, |_| self.data.contains_key(&key)) {
            Verdict::Here => None,
            Verdict::Refused(Refusal::Moved { .. }) => Some(Answer::Moved),
            Verdict::Refused(Refusal::Ask { .. }) => Some(Answer::Ask),
            Verdict::Refused(_) => Some(Answer::Later),
        }
    }

    /// The gate, and what is behind it. `None` when the request waits for the key to leave.
    pub(super) fn serve(
        &mut self,
        durable_at: Real,
        key: Key,
        question: Question,
        is_asking: bool,
    ) -> Option<Answer> {
        let is_write = matches!(question, Question::Write(_));
        if let Some(refusal) = self.route(key, is_write, is_asking) {
            return Some(refusal);
        }
        match question {
            Question::Read => Some(Answer::Value(self.data.get(&key).copied())),
            Question::Write(_) if self.leaving.contains(0, &name_of(key)) => None,
            Question::Write(value) => {
                self.change(durable_at, key, Some(value));
                Some(Answer::Written)
            }
        }
    }
}

pub(super) fn name_of(key: Key) -> Vec<u8> {
    format!("{SLOT_TAG}:{key}").into_bytes()
}

pub(super) fn key_of(name: &[u8]) -> Key {
    let digits = std::str::from_utf8(&name[SLOT_TAG.len() + 1..]);
    digits.ok().and_then(|digits| digits.parse().ok()).expect("names are made here")
}

fn now(real: Real) -> Now {
    Now { monotonic_ms: real + 1, unix_ms: real + 1_700_000_000_000 }
}

/// Nobody is suspected in this world, and whom a node reaches does not matter.
fn core_of(real: Real, conf: &str, flaw: Option<Planted>) -> Cluster {
    let settings = Settings { node_timeout: 1_000_000_000, ..Settings::default() };
    let core = Cluster::restore(now(real), conf, settings, 1);
    let mut core = core.expect("a file that was written can be read");
    core.plant(Flaw::NoMinorityRule);
    if let Some(Planted::Core(flaw)) = flaw {
        core.plant(flaw);
    }
    core
}
