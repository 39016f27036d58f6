//! A node of a cluster around the engine: the bus, nodes.conf, and what the machine asks for.
//!
//! ```text
//! time, connections, packets ─► Engine: Cluster ─► Output ─► in order:
//!     Persist ─► a thread ─► only then the packets behind it
//!     Become ─► replication · DropSlots, Publish ─► Engine · Dial, Close ─► peers
//! ```
//! The machine decides everything; it lives in the engine, where the gate asks it. The loop feeds
//! it and does what it asks for (`event_loop/cluster.rs`). What is said may tell of epochs and
//! votes, so it waits until nodes.conf has them; the loop itself never waits for the disk.

mod file;
mod held;
mod log;
mod settings;
mod start;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use store_cluster::wire::{DecodeError, LinkError, decode, kind_of, packet_len};
use store_cluster::{Cluster, Ends, LinkId, Message, NodeId, Now, Output, SavedClaim};
use store_engine::{ClusterState, SessionId};

use crate::listen::Listener;
use crate::peers::PeerId;
use crate::persistence::Mailbox;
use file::open_nodes_file;
pub(crate) use file::{NodesFile, Written};
use held::{Held, HeldQueue};
pub(crate) use log::words;
pub(crate) use settings::settings_of;
use settings::{BusPort, bus_port};
pub(crate) use start::prepare;

/// The longest packet of somebody who is not known: the gossip of a full table fits.
const STRANGER_PACKET_MAX: u32 = 512 * 1024;
/// Connections of strangers at once. For another one, the one that was silent for longest goes.
const STRANGERS_MAX: usize = 128;
/// What may wait for a stranger: a packet with the gossip of a full table fits twice.
const STRANGER_BUFFER_MAX: usize = 1024 * 1024;
/// The least time that a stranger may be silent.
const SILENCE_MIN_MS: u64 = 1000;
/// How often the log tells that there are many strangers.
const TELL_MS: u64 = 60_000;
/// Bytes of packets that are not whole yet, over all connections.
const UNPARSED_MAX: usize = 1024 * 1024 * 1024;
/// Outputs that wait for the end of a script: messages for subscribers, mostly.
const PENDING_MAX: usize = 10_000;
/// What may wait for one node when `cluster-link-sendbuf-limit` sets no limit.
pub(crate) const LINK_BUFFER_MAX: usize = 256 * 1024 * 1024;

/// A connection of the bus.
pub(crate) struct BusConnection {
    pub(crate) peer: PeerId,
    /// Whom it leads to, or who named itself on it.
    pub(crate) node: Option<NodeId>,
    /// Unix milliseconds.
    pub(crate) opened_at_ms: u64,
    /// When the last whole packet came, or it was opened, by the clock that nobody sets.
    heard_at_ms: u64,
    /// The addresses of this end and of the other.
    pub(crate) hosts: (String, String),
    /// Bytes that are no whole packet yet.
    unparsed: Vec<u8>,
}

impl BusConnection {
    /// The packets that are whole.
    fn take_packets(&mut self, packet_max: u32) -> Result<Vec<Vec<u8>>, LinkError> {
        let (mut at, mut packets) = (0, Vec::new());
        while let Some(len) = packet_len(&self.unparsed[at..], packet_max)? {
            let Some(packet) = self.unparsed.get(at..at + len) else { break };
            packets.push(packet.to_vec());
            at += len;
        }
        self.unparsed.drain(..at);
        if self.unparsed.is_empty() {
            // A large message is not the rule.
            self.unparsed.shrink_to(STRANGER_PACKET_MAX as usize);
        }
        Ok(packets)
    }
}

/// What need not wait any longer.
pub(crate) enum Released {
    Packet(LinkId, Arc<Message>),
    /// To a session; `Err` when nodes.conf cannot be written.
    Reply(SessionId, Result<(), ()>),
}

/// What a node begins with.
pub(crate) struct ClusterStart {
    pub(crate) file: NodesFile,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) bus_port: u16,
    /// Whether there was no nodes.conf.
    pub(crate) is_new: bool,
}

/// One node, as the loop drives it.
pub(crate) struct ClusterDriver {
    pub(crate) file: NodesFile,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) bus_port: u16,
    /// Whether data is loaded, so that the node may talk to others.
    pub(crate) is_started: bool,
    pub(crate) links: BTreeMap<LinkId, BusConnection>,
    pub(crate) of_peers: BTreeMap<PeerId, LinkId>,
    /// Connections that may have something to read.
    pub(crate) ready: BTreeSet<PeerId>,
    /// Listeners that may have more connections.
    pub(crate) to_accept: BTreeSet<usize>,
    /// When the data last was in step with this master, by the clock that nobody sets.
    pub(crate) in_step: Option<(NodeId, u64)>,
    /// When the machine wants to hear of time.
    pub(crate) wakes_at_ms: u64,
    /// Scratch for reads.
    pub(crate) buffer: Vec<u8>,
    held: HeldQueue,
    /// What a script keeps from being done.
    pending: VecDeque<Output>,
    inbound_count: u64,
    unparsed_bytes: usize,
    crowd_told_at_ms: Option<u64>,
    /// The packet that was encoded last: a broadcast is encoded once.
    encoded: Option<(Arc<Message>, Vec<u8>)>,
}

impl ClusterDriver {
    pub(crate) fn new(start: ClusterStart, mailbox: Mailbox) -> Self {
        Self {
            file: start.file.with_mailbox(mailbox),
            listeners: start.listeners,
            bus_port: start.bus_port,
            is_started: false,
            links: BTreeMap::new(),
            of_peers: BTreeMap::new(),
            ready: BTreeSet::new(),
            to_accept: BTreeSet::new(),
            in_step: None,
            wakes_at_ms: 0,
            buffer: Vec::new(),
            held: HeldQueue::default(),
            pending: VecDeque::new(),
            inbound_count: 0,
            unparsed_bytes: 0,
            crowd_told_at_ms: None,
            encoded: None,
        }
    }

    /// A connection that this node opens.
    pub(crate) fn open(&mut self, link: LinkId, peer: PeerId, now: Now) {
        let connection = BusConnection {
            peer,
            node: None,
            opened_at_ms: now.unix_ms,
            heard_at_ms: now.monotonic_ms,
            hosts: (String::new(), String::new()),
            unparsed: Vec::new(),
        };
        self.links.insert(link, connection);
        self.of_peers.insert(peer, link);
    }

    /// A connection that another node opened.
    pub(crate) fn accept(&mut self, peer: PeerId, now: Now) -> LinkId {
        let link = LinkId::Inbound(self.inbound_count);
        self.inbound_count += 1;
        self.open(link, peer, now);
        self.ready.insert(peer);
        link
    }

    /// Whoever connected and did not name itself as a node that is known.
    fn strangers(&self) -> impl Iterator<Item = (LinkId, &BusConnection)> {
        let is_stranger = |(link, it): &(&LinkId, &BusConnection)| {
            matches!(link, LinkId::Inbound(_)) && it.node.is_none()
        };
        self.links.iter().filter(is_stranger).map(|(link, connection)| (*link, connection))
    }

    /// The stranger that makes room for another one, if there is none left: who was silent for
    /// longest, and rather one that is not where some node is.
    pub(crate) fn in_the_way(&self, machine: &Cluster) -> Option<LinkId> {
        if self.strangers().count() < STRANGERS_MAX {
            return None;
        }
        let of_nodes: BTreeSet<&str> =
            machine.nodes().iter().map(|(_, node)| &*node.address.ip).collect();
        let rank = |(_, it): &(LinkId, &BusConnection)| {
            (of_nodes.contains(it.hosts.1.as_str()), it.heard_at_ms)
        };
        self.strangers().min_by_key(rank).map(|(link, _)| link)
    }

    /// Strangers that say nothing: they take the place of others.
    pub(crate) fn silent_strangers(&self, now_ms: u64, node_timeout_ms: u64) -> Vec<LinkId> {
        let silence_max = node_timeout_ms.max(SILENCE_MIN_MS);
        let is_silent = |it: &BusConnection| now_ms.saturating_sub(it.heard_at_ms) > silence_max;
        self.strangers().filter(|(_, it)| is_silent(it)).map(|(link, _)| link).collect()
    }

    /// What may wait for a connection whose limit for nodes is this.
    pub(crate) fn buffer_max(&self, link: LinkId, of_nodes: usize) -> usize {
        let is_node = |it: &BusConnection| it.node.is_some();
        match link {
            LinkId::Inbound(_) if !self.links.get(&link).is_some_and(is_node) => {
                of_nodes.min(STRANGER_BUFFER_MAX)
            }
            _ => of_nodes,
        }
    }

    /// Whether it is time to tell again that there are many strangers.
    pub(crate) fn may_tell_of_crowd(&mut self, now_ms: u64) -> bool {
        let may = self.crowd_told_at_ms.is_none_or(|at| now_ms.saturating_sub(at) >= TELL_MS);
        if may {
            self.crowd_told_at_ms = Some(now_ms);
        }
        may
    }

    /// The connection is gone. Which it was.
    pub(crate) fn forget(&mut self, link: LinkId) -> Option<PeerId> {
        let connection = self.links.remove(&link)?;
        self.unparsed_bytes -= connection.unparsed.len();
        self.of_peers.remove(&connection.peer);
        self.ready.remove(&connection.peer);
        Some(connection.peer)
    }

    /// Bytes that came over a connection: the packets that are whole. Fails when they are not the
    /// bus, or too many.
    pub(crate) fn take_bytes(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        packet_max: u32,
    ) -> Result<Vec<Vec<u8>>, LinkError> {
        let Some(connection) = self.links.get_mut(&link) else { return Ok(Vec::new()) };
        let packet_max = match connection.node {
            Some(_) => packet_max.max(STRANGER_PACKET_MAX),
            None => STRANGER_PACKET_MAX,
        };
        let before = connection.unparsed.len();
        connection.unparsed.extend_from_slice(bytes);
        let packets = connection.take_packets(packet_max);
        let left = connection.unparsed.len();
        self.unparsed_bytes = self.unparsed_bytes - before + left;
        match self.unparsed_bytes > UNPARSED_MAX {
            true => Err(LinkError::Length(left as u32)),
            false => packets,
        }
    }

    /// The text of nodes.conf is this now.
    pub(crate) fn persist(
        &mut self,
        now_ms: u64,
        (text, claim): (String, SavedClaim),
        is_synced: bool,
    ) {
        let number = self.file.write(now_ms, text, claim, is_synced);
        if is_synced {
            self.held.push(Held::Write(number));
        }
    }

    /// A packet leaves when what stands before it is on disk.
    pub(crate) fn hold(&mut self, link: LinkId, message: Arc<Message>) {
        self.held.push_packet(link, message);
    }

    /// A session is answered when what it changed is on disk.
    pub(crate) fn hold_reply(&mut self, id: SessionId) {
        self.held.push(Held::Reply(id));
    }

    /// The next thing that need not wait any longer.
    pub(crate) fn next_released(&mut self, machine: &Cluster) -> Option<Released> {
        loop {
            if let Held::Write(number) = self.held.front()?
                && !self.file.lets_pass(*number)
            {
                return None;
            }
            match self.held.pop()? {
                Held::Write(_) => {}
                // It waited for the file in vain.
                Held::Send(_, message) if !machine.may_say(&message) => {}
                Held::Send(link, message) => return Some(Released::Packet(link, message)),
                Held::Reply(id) => {
                    let saved = if self.file.has_failed() { Err(()) } else { Ok(()) };
                    return Some(Released::Reply(id, saved));
                }
            }
        }
    }

    /// The next packet that may leave while nobody can be answered.
    pub(crate) fn next_packet(&mut self, machine: &Cluster) -> Option<(LinkId, Arc<Message>)> {
        while !matches!(self.held.front()?, Held::Reply(_)) {
            match self.next_released(machine)? {
                Released::Packet(link, message) => return Some((link, message)),
                Released::Reply(..) => {}
            }
        }
        None
    }

    /// A packet that came: the machine hears it.
    pub(crate) fn hear(
        &mut self,
        state: &mut ClusterState,
        now: Now,
        link: LinkId,
        packet: &[u8],
    ) -> Result<(), DecodeError> {
        let message = decode(packet)?;
        let kind = kind_of(&message.body);
        let Some(connection) = self.links.get_mut(&link) else { return Ok(()) };
        state.received.add(kind);
        connection.heard_at_ms = now.monotonic_ms;
        if state.dropped_kind == Some(kind) {
            return Ok(());
        }
        let (local, peer) = &connection.hosts;
        state.machine.handle_message(now, link, Ends { peer, local }, &message);
        let sender = message.header.sender;
        connection.node = state.machine.nodes().find(sender).map(|_| sender);
        Ok(())
    }

    /// What the machine asks for next: what a script kept from being done comes first.
    pub(crate) fn next_output(&mut self, state: &mut ClusterState) -> Output {
        self.pending.pop_front().unwrap_or_else(|| state.machine.poll_output())
    }

    /// A script runs: packets are sent as far as nothing before them changes data or roles. The
    /// loop does the rest.
    pub(crate) fn sort_outputs(&mut self, state: &mut ClusterState, now_ms: u64) {
        loop {
            match state.machine.poll_output() {
                Output::WaitUntil(at_ms) => {
                    self.wakes_at_ms = at_ms;
                    return;
                }
                // It says how far the data was when the script began. The next one knows better.
                Output::Send { message, .. } if message.header.is_paused => {}
                output if self.is_data_kept_back() => self.pending.push_back(output),
                Output::Send { link, message } => self.hold(link, message),
                Output::Persist { text, is_synced, claim } => {
                    self.persist(now_ms, (text, claim), is_synced);
                }
                output => self.pending.push_back(output),
            }
        }
    }

    fn is_data_kept_back(&self) -> bool {
        self.pending.iter().any(|output| {
            matches!(
                output,
                Output::Become(_)
                    | Output::PauseWrites
                    | Output::Unpause
                    | Output::DropSlots(_)
                    | Output::FindKeys { .. }
            )
        })
    }

    /// Whether so much waits for the end of a script that nothing more is read.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() > PENDING_MAX
    }

    /// The bytes of a packet.
    pub(crate) fn encode(&mut self, message: &Arc<Message>) -> &[u8] {
        let is_same = self.encoded.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, message));
        if !is_same {
            let bytes = store_cluster::wire::encode(message);
            self.encoded = Some((Arc::clone(message), bytes));
        }
        &self.encoded.as_ref().expect("it was just put there").1
    }

    /// Nothing more is sent in this turn: what is not sent again need not be kept.
    pub(crate) fn forget_encoded(&mut self) {
        self.encoded = None;
    }
}
