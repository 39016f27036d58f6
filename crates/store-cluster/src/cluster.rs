//! One node of a cluster: what it knows, and the doors through which it is driven.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use store_resp::slot::SLOT_COUNT;
use store_types::Rng;

use crate::election::{Election, Manual};
use crate::flaw::Flaw;
use crate::handover::Taken;
use crate::id::NodeId;
use crate::message::{Body, Flags, Header, Message};
use crate::node::{LinkId, Node, NodeIndex};
use crate::nodes::Nodes;
use crate::output::{Event, Output, Role};
use crate::settings::{Now, Settings};
use crate::slots::SlotSet;
use crate::unsaved::SavedClaim;

/// How often `handle_tick` wants to be called, in milliseconds.
pub const TICK_MS: u64 = 100;

/// Nobody owns a slot.
pub(crate) const NOBODY: NodeIndex = NodeIndex::MAX;

/// How the data of this node follows its master, as the driver sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataState {
    /// Bytes of the history that were applied.
    pub offset: u64,
    /// When the master was heard last, by the monotonic clock; `None`: never in step with it.
    pub in_step_at: Option<u64>,
}

/// How carefully a change is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Save {
    #[default]
    No,
    /// Soon.
    Later,
    /// Before anything is said about it.
    First,
}

/// A node, without sockets, clocks and files.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) settings: Settings,
    pub(crate) rng: Rng,
    pub(crate) nodes: Nodes,
    pub(crate) me: NodeIndex,
    pub(crate) owners: Box<[NodeIndex; SLOT_COUNT as usize]>,
    pub(crate) slots_owned: usize,
    /// Slots that their owner no longer claims.
    pub(crate) unclaimed: SlotSet,
    pub(crate) importing: BTreeMap<u16, NodeIndex>,
    pub(crate) migrating: BTreeMap<u16, NodeIndex>,
    /// Slots that went from this node to another. Their keys that a restart brings back do not
    /// count.
    pub(crate) released: SlotSet,
    /// Those of them that have such keys: these go when the owner claims the slot.
    pub(crate) outdated: BTreeSet<u16>,
    /// Slots that this node took from others, who may still seem to claim them.
    pub(crate) taken: BTreeMap<u16, Taken>,
    /// Slots on their way from here that are not claimed of whom they move to any more.
    pub(crate) withheld: BTreeSet<u16>,
    pub(crate) current_epoch: u64,
    pub(crate) last_vote_epoch: u64,
    /// Who got that vote, if it was given since the start.
    pub(crate) voted_for: Option<NodeId>,
    /// When the operator was last told of an epoch that was refused.
    pub(crate) told_of_epoch_at: Option<u64>,
    pub(crate) is_ok: bool,
    /// While nodes.conf cannot be written: what it has.
    pub(crate) unsaved: Option<SavedClaim>,
    pub(crate) are_routes_changed: bool,
    pub(crate) first_look_at: Option<u64>,
    pub(crate) minority_at: Option<u64>,
    /// Whether somebody is suspected; gossip names them all.
    pub(crate) has_suspects: bool,
    pub(crate) election: Election,
    pub(crate) manual: Option<Manual>,
    /// Who must not be learned again yet.
    pub(crate) forgotten: BTreeMap<NodeId, u64>,
    pub(crate) data: DataState,
    pub(crate) ticks: u64,
    pub(crate) links_made: u32,
    pub(crate) marks: Vec<u32>,
    pub(crate) mark: u32,
    pub(crate) now: Now,
    save: Save,
    role: Role,
    staged: Vec<Output>,
    outputs: VecDeque<Output>,
    wakes_at: u64,
    #[cfg(feature = "flaws")]
    flaws: Vec<Flaw>,
}

impl Cluster {
    /// A node that knows nobody. `seed` decides its delays and choices.
    pub fn new(now: Now, id: NodeId, settings: Settings, seed: u64) -> Self {
        let mut nodes = Nodes::default();
        let flags = Flags::MYSELF.with(Flags::MASTER);
        let myself = Node::new(id, flags, settings.address.clone(), now.monotonic_ms);
        let me = nodes.add(myself).expect("an empty table has room");
        let mut cluster = Self {
            settings,
            rng: Rng::seeded(seed),
            nodes,
            me,
            owners: Box::new([NOBODY; SLOT_COUNT as usize]),
            slots_owned: 0,
            unclaimed: SlotSet::default(),
            importing: BTreeMap::new(),
            migrating: BTreeMap::new(),
            released: SlotSet::default(),
            outdated: BTreeSet::new(),
            taken: BTreeMap::new(),
            withheld: BTreeSet::new(),
            current_epoch: 0,
            last_vote_epoch: 0,
            voted_for: None,
            told_of_epoch_at: None,
            is_ok: false,
            unsaved: None,
            are_routes_changed: false,
            first_look_at: None,
            minority_at: None,
            has_suspects: false,
            election: Election::default(),
            manual: None,
            forgotten: BTreeMap::new(),
            data: DataState::default(),
            ticks: 0,
            links_made: 0,
            marks: Vec::new(),
            mark: 0,
            now,
            save: Save::Later,
            role: Role::Master,
            staged: Vec::new(),
            outputs: VecDeque::new(),
            wakes_at: now.monotonic_ms,
            #[cfg(feature = "flaws")]
            flaws: Vec::new(),
        };
        cluster.me_mut().hostname = cluster.settings.hostname.clone();
        cluster.mark_own_wish();
        cluster
    }

    /// Breaks a rule.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: Flaw) {
        self.flaws.push(flaw);
    }

    #[cfg(feature = "flaws")]
    pub(crate) fn breaks(&self, flaw: Flaw) -> bool {
        self.flaws.contains(&flaw)
    }

    #[cfg(not(feature = "flaws"))]
    pub(crate) fn breaks(&self, _flaw: Flaw) -> bool {
        false
    }

    /// Whether this node wants to be promoted is told by a flag of its own.
    pub(crate) fn mark_own_wish(&mut self) {
        match self.settings.never_stands {
            true => self.me_mut().set(Flags::NO_FAILOVER),
            false => self.me_mut().clear(Flags::NO_FAILOVER),
        }
    }

    /// A tenth of a second passed: pings, suspicions, elections, moves.
    pub fn handle_tick(&mut self, now: Now) {
        self.now = now;
        self.tick();
        self.wakes_at = now.monotonic_ms + TICK_MS;
        self.finish();
    }

    /// A connection that was asked for is open.
    pub fn handle_link_up(&mut self, now: Now, link: LinkId) {
        self.now = now;
        self.link_up(link);
        self.finish();
    }

    /// A connection is over, or could not be opened.
    pub fn handle_link_down(&mut self, now: Now, link: LinkId) {
        self.now = now;
        self.link_down(link);
        self.finish();
    }

    /// A packet. `peer` is the address that its connection comes from, `local` this end's.
    pub fn handle_message(&mut self, now: Now, link: LinkId, ends: Ends<'_>, message: &Message) {
        self.now = now;
        self.receive(link, ends, message);
        self.finish();
    }

    /// How the data follows its master; asked for before every tick.
    pub fn handle_data(&mut self, data: DataState) {
        self.data = data;
    }

    /// How the data follows its master, as it was told last.
    pub fn data(&self) -> DataState {
        self.data
    }

    /// What the data does, or is about to do.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Whether this is a replica that was never in step with its master: it never stands, whatever
    /// becomes of that.
    pub fn was_never_in_step(&self) -> bool {
        self.me().is_replica() && self.data.in_step_at.is_none()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How many slots have an owner.
    pub fn slots_owned(&self) -> usize {
        self.slots_owned
    }

    /// Whether slots changed hands, or the state did, since the last call.
    pub fn take_routes_changed(&mut self) -> bool {
        std::mem::take(&mut self.are_routes_changed)
    }

    /// The next thing to do. The last one is always `WaitUntil`.
    pub fn poll_output(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or(Output::WaitUntil(self.wakes_at))
    }

    /// What a call has staged becomes visible, behind the file that must be written first.
    pub(crate) fn finish(&mut self) {
        self.sync_role();
        self.withheld.retain(|slot| self.migrating.contains_key(slot));
        let save = std::mem::take(&mut self.save);
        if save == Save::First {
            self.persist(true);
        }
        self.outputs.extend(self.staged.drain(..));
        if save == Save::Later {
            self.persist(false);
        }
    }

    fn persist(&mut self, is_synced: bool) {
        let (text, claim) = (self.config_text(), self.claim());
        self.outputs.push_back(Output::Persist { text, is_synced, claim });
    }

    /// The data does what the table says.
    fn sync_role(&mut self) {
        let role = self.wanted_role();
        if role != self.role {
            self.role = role.clone();
            // Whoever is told of the new role must find it in effect.
            self.staged.insert(0, Output::Become(role));
        }
    }

    /// The data is told of its role, though it may be the one that it has.
    pub(crate) fn tell_role_again(&mut self) {
        self.role = self.wanted_role();
        self.staged.insert(0, Output::Become(self.role.clone()));
    }

    fn wanted_role(&self) -> Role {
        match self.me().master.filter(|_| self.me().is_replica()) {
            Some(master) => {
                let node = &self.nodes[master];
                let address = Some(node.address.clone()).filter(|a| !a.ip.is_empty());
                Role::ReplicaOf { id: node.id, address }
            }
            None => Role::Master,
        }
    }

    pub(crate) fn save(&mut self, save: Save) {
        self.save = self.save.max(save);
    }

    pub(crate) fn output(&mut self, output: Output) {
        self.staged.push(output);
    }

    pub(crate) fn log(&mut self, event: Event) {
        self.staged.push(Output::Log(event));
    }

    pub(crate) fn ms(&self) -> u64 {
        self.now.monotonic_ms
    }

    /// Myself.
    pub fn me(&self) -> &Node {
        &self.nodes[self.me]
    }

    pub(crate) fn me_mut(&mut self) -> &mut Node {
        &mut self.nodes[self.me]
    }

    /// All nodes that are known.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// My own place in [`Cluster::nodes`].
    pub fn my_index(&self) -> NodeIndex {
        self.me
    }

    /// Whether requests are served.
    pub fn is_ok(&self) -> bool {
        self.is_ok
    }

    /// The greatest epoch that was seen.
    pub fn current_epoch(&self) -> u64 {
        self.current_epoch
    }

    /// Uses the slot sets of `other` where they are the same: many nodes in one process take one
    /// copy of each.
    pub fn share_slots(&mut self, other: &Cluster) {
        for (_, node) in self.nodes.iter_mut() {
            let same = other.nodes.find(node.id).map(|index| &other.nodes[index].slots);
            if let Some(slots) = same.filter(|slots| **slots == node.slots) {
                node.slots = Arc::clone(slots);
            }
        }
    }

    /// How many masters have slots.
    pub fn size(&self) -> usize {
        self.nodes.iter().filter(|(_, node)| node.is_voter()).count()
    }

    /// The head of every packet from here.
    pub(crate) fn header(&self) -> Header {
        let me = self.me();
        let source = me.master.map_or(me, |master| &self.nodes[master]);
        let slots = match me.master {
            Some(_) => Arc::clone(&source.slots),
            None => self.claimed_slots(),
        };
        let own = &self.settings.address;
        Header {
            sender: me.id,
            current_epoch: self.current_epoch,
            config_epoch: self.told_epoch(source.config_epoch),
            offset: self.data.offset,
            slots,
            master: me.master.map(|master| self.nodes[master].id),
            address: own.clone(),
            flags: me.flags,
            is_ok: self.is_ok,
            is_paused: self.is_paused_for_long(),
            is_forced: false,
            hostname: self.settings.hostname.clone(),
        }
    }

    /// Over the connection that was opened from here, if it is up.
    pub(crate) fn send(&mut self, to: NodeIndex, body: Body) {
        let message = Arc::new(Message { header: self.header(), body });
        self.send_message(to, message);
    }

    pub(crate) fn send_message(&mut self, to: NodeIndex, message: Arc<Message>) {
        if let Some(link) = self.nodes[to].link.filter(|link| link.is_up) {
            let link = LinkId::Dialled { node: to, number: link.number };
            let message = match self.withheld.is_empty() {
                true => message,
                false => self.without_withheld(to, message),
            };
            self.output(Output::Send { link, message });
        }
    }

    /// The same, or over the connection from there: who was down for long is heard before it is
    /// reached, and must not serve meanwhile what went to others.
    pub(crate) fn send_either_way(&mut self, to: NodeIndex, body: Body) {
        let node = &self.nodes[to];
        match node.inbound.filter(|_| !node.link.is_some_and(|link| link.is_up)) {
            Some(inbound) => self.answer(LinkId::Inbound(inbound), body),
            None => self.send(to, body),
        }
    }

    /// To everybody whose name is known.
    pub(crate) fn broadcast(&mut self, message: Message) {
        let message = Arc::new(message);
        for index in 0..self.nodes.places() {
            let is_known = |node: &Node| !node.is_in_handshake() && node.link.is_some();
            if index != self.me && self.nodes.get(index).is_some_and(is_known) {
                self.send_message(index, Arc::clone(&message));
            }
        }
    }

    /// Publishes to all nodes, or to those of this shard.
    pub fn publish(&mut self, now: Now, publication: crate::message::Publication) {
        self.now = now;
        let shard = self.me().master.unwrap_or(self.me);
        let is_sharded = publication.is_sharded;
        let message = Arc::new(Message { header: self.header(), body: Body::Publish(publication) });
        for index in 0..self.nodes.places() {
            let Some(node) = self.nodes.get(index).filter(|node| !node.is_in_handshake()) else {
                continue;
            };
            let is_mine = index == shard || node.master == Some(shard);
            if index != self.me && (is_mine || !is_sharded) {
                self.send_message(index, Arc::clone(&message));
            }
        }
        self.finish();
    }
}

/// The addresses of both ends of a connection, as text; empty when they are not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends<'a> {
    /// The other end.
    pub peer: &'a str,
    /// This end.
    pub local: &'a str,
}
