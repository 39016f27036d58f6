//! A node: the unchanged core, a migration, and data with a disk.

use std::collections::{BTreeMap, VecDeque};

use store_cluster::{
    Cluster, Flaw, Leaving, Migration, NodeId, Now, Output, Refusal, RouteRequest, Settings,
    SlotSet, Verdict,
};
use store_resp::slot::slot_of;

use super::Planted;
use super::world::{KEYS_OF_FIRST, Key, SLOTS, Value};
use crate::queue::Real;

/// What the keys of each slot begin with. The first slot is node 1's in the beginning, the second
/// one node 0's.
const SLOT_TAGS: [&str; SLOTS] = ["{moved}", "{other}"];

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
    /// A migration of keys of each slot.
    pub(super) jobs: [Option<Job>; SLOTS],
    /// What the core wants of the bus.
    pub(super) packets: Vec<Output>,
    /// Keys that went as their slot was heard to be another one's: for the trace.
    pub(super) dropped: Vec<Key>,
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
            jobs: [None, None],
            packets: Vec::new(),
            dropped: Vec::new(),
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
        self.jobs = [None, None];
        self.packets.clear();
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
        for place in (0..SLOTS).filter(|_| is_old) {
            if !self.has_slot(place) {
                for (key, value) in self.moved.iter().filter(|(key, _)| place_of(**key) == place) {
                    self.data.entry(*key).or_insert(*value);
                }
            }
        }
        if !self.data.is_empty() {
            let slots = SlotSet::of(self.data.keys().map(|key| slot_at(place_of(*key))));
            self.core.adopt_keys(now(real), &slots);
        }
        self.obey(real);
    }

    /// Whether the slot is here, or on its way.
    fn has_slot(&self, place: usize) -> bool {
        self.owns_slot(place) || self.core.importing_from(slot_at(place)).is_some()
    }

    pub(super) fn owns_slot(&self, place: usize) -> bool {
        self.core.owner(slot_at(place)) == Some(self.core.my_index())
    }

    /// The keys of a slot that are here.
    pub(super) fn keys_of(&self, place: usize) -> impl Iterator<Item = Key> + '_ {
        self.data.keys().copied().filter(move |key| place_of(*key) == place)
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
        self.drive(real, Cluster::handle_tick);
    }

    /// Something happens to the core.
    pub(super) fn drive<T>(&mut self, real: Real, call: impl FnOnce(&mut Cluster, Now) -> T) -> T {
        let result = call(&mut self.core, now(real));
        self.obey(real);
        result
    }

    /// The file is written before anything is said.
    fn obey(&mut self, real: Real) {
        loop {
            match self.core.poll_output() {
                Output::Persist { text, .. } => self.conf = text,
                Output::DropSlots(slots) => {
                    let is_dropped = |key: &Key| slots.contains(slot_at(place_of(*key)));
                    let keys: Vec<Key> = self.data.keys().copied().filter(is_dropped).collect();
                    keys.iter().for_each(|key| self.change(real, *key, None));
                    self.dropped.extend(keys);
                }
                Output::WaitUntil(_) => return,
                output => self.packets.push(output),
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
    format!("{}:{key}", SLOT_TAGS[place_of(key)]).into_bytes()
}

pub(super) fn key_of(name: &[u8]) -> Key {
    let digits = name.rsplit(|byte| *byte == b':').next().and_then(|it| str::from_utf8(it).ok());
    digits.and_then(|digits| digits.parse().ok()).expect("names are made here")
}

/// Which of both slots a key is in.
pub(super) fn place_of(key: Key) -> usize {
    usize::from(key >= KEYS_OF_FIRST)
}

/// The number of a slot.
pub(super) fn slot_at(place: usize) -> u16 {
    slot_of(SLOT_TAGS[place].as_bytes())
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
