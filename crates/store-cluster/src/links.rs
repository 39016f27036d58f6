//! Connections, pings, and what a tick looks after.

use std::sync::Arc;

use crate::cluster::{Cluster, Save};
use crate::election::Manual;
use crate::flaw::Flaw;
use crate::id::NodeId;
use crate::message::{Address, Body, Flags, Message};
use crate::node::{Dialled, LinkId, Node, NodeIndex, Talk};
use crate::output::{Event, Output};

/// Once a second, of so many nodes the one that was silent longest is pinged.
const RANDOM_PINGS_OF: usize = 5;
/// A handshake lives as long as the node time-out, but not shorter than this.
const HANDSHAKE_MIN_MS: u64 = 1_000;

impl Cluster {
    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        self.check_manual();
        self.forgotten.retain(|_, until| *until > self.now.monotonic_ms);
        self.drop_old_handshakes();
        self.dial_all();
        if self.ticks.is_multiple_of(10) {
            self.ping_one_at_random();
        }
        for index in 0..self.nodes.places() {
            if index != self.me && self.nodes.get(index).is_some() {
                self.look_after(index);
            }
        }
        self.follow_no_replica();
        if self.me().is_replica() {
            self.handle_manual_offset();
            self.handle_election();
            self.handle_migration();
        }
        self.update_state();
    }

    fn drop_old_handshakes(&mut self) {
        let limit = self.settings.node_timeout.max(HANDSHAKE_MIN_MS);
        let now = self.ms();
        let is_old = |node: &Node| node.is_in_handshake() && now - node.added_at > limit;
        let old: Vec<_> =
            self.nodes.iter().filter(|(_, node)| is_old(node)).map(|(index, _)| index).collect();
        old.into_iter().for_each(|index| self.remove_node(index));
    }

    /// Opens what is not open.
    fn dial_all(&mut self) {
        for index in 0..self.nodes.places() {
            let needs_link = |node: &Node| {
                node.link.is_none()
                    && !node.flags.has(Flags::MYSELF.with(Flags::NO_ADDRESS))
                    && !node.address.ip.is_empty()
            };
            if !self.nodes.get(index).is_some_and(needs_link) {
                continue;
            }
            self.links_made += 1;
            let (now, number) = (self.ms(), self.links_made);
            let node = &mut self.nodes[index];
            node.link = Some(Dialled { number, dialled_at: now, is_up: false });
            let known_epoch = node.talk.known_epoch;
            node.talk = Talk { number, known_epoch, ..Talk::default() };
            // A node that never takes the connection must become suspected, too.
            node.ping_sent_at.get_or_insert(now);
            let address = node.address.clone();
            self.output(Output::Dial { link: LinkId::Dialled { node: index, number }, address });
        }
    }

    fn ping_one_at_random(&mut self) {
        let mut oldest: Option<NodeIndex> = None;
        for _ in 0..RANDOM_PINGS_OF {
            let index = self.rng.below(usize::from(self.nodes.places())) as NodeIndex;
            let Some(node) = self.nodes.get(index) else { continue };
            let is_reachable = node.link.is_some_and(|link| link.is_up);
            let is_free = node.ping_sent_at.is_none() && is_reachable;
            if node.flags.has(Flags::MYSELF.with(Flags::HANDSHAKE)) || !is_free {
                continue;
            }
            if oldest.is_none_or(|other| node.pong_at < self.nodes[other].pong_at) {
                oldest = Some(index);
            }
        }
        if let Some(index) = oldest {
            self.ping(index);
        }
    }

    /// Pings a node that was silent, connects anew, and suspects who does not answer.
    fn look_after(&mut self, index: NodeIndex) {
        let (now, timeout) = (self.ms(), self.settings.node_timeout);
        let node = &self.nodes[index];
        if node.flags.has(Flags::MYSELF.with(Flags::HANDSHAKE)) {
            return;
        }
        if node.flags.has(Flags::NO_ADDRESS) {
            // It cannot be pinged, but it must be missed.
            self.nodes[index].ping_sent_at.get_or_insert(now);
        }
        let node = &self.nodes[index];
        let heard_ago = now - node.heard_at.min(now);
        let waited = node.ping_sent_at.map(|sent_at| now - sent_at.min(now));
        if let (Some(link), Some(waited)) = (node.link, waited) {
            // One that does not open, or over which no answer comes, is stuck whatever comes over
            // the other node's own one: the system knocks again ever more rarely, and may not hear
            // that the other end forgot a connection when it started again.
            let is_silent = waited > timeout / 2 && heard_ago > timeout / 2;
            let is_stuck = !link.is_up || is_silent || waited > timeout;
            if now - link.dialled_at > timeout && is_stuck {
                self.close_link(index);
            }
        }
        let node = &self.nodes[index];
        let is_silent = node.pong_at.is_none_or(|at| now - at.min(now) > timeout / 2);
        let is_given_to = matches!(self.manual, Some(Manual::Giving { to, .. }) if to == index);
        if node.link.is_some() && ((node.ping_sent_at.is_none() && is_silent) || is_given_to) {
            return self.ping(index);
        }
        if waited.is_some_and(|waited| waited.min(heard_ago) > timeout) {
            self.suspect(index);
        }
    }

    /// A ping to a node; one that is not connected yet gets it when it is.
    pub(crate) fn ping(&mut self, index: NodeIndex) {
        let now = self.ms();
        self.nodes[index].ping_sent_at.get_or_insert(now);
        if self.nodes[index].link.is_some_and(|link| link.is_up) {
            let gossip = self.choose_gossip();
            self.nodes[index].talk.pings += 1;
            self.send(index, Body::Ping(gossip));
        }
    }

    pub(crate) fn link_up(&mut self, link: LinkId) {
        let Some(index) = self.dialled_node(link) else { return self.output(Output::Close(link)) };
        let node = &mut self.nodes[index];
        if let Some(link) = &mut node.link {
            link.is_up = true;
        }
        // An old ping stays unanswered for as long as it is: only a pong ends it.
        let was_sent = node.ping_sent_at;
        let is_meet = node.flags.has(Flags::MEET);
        node.clear(Flags::MEET);
        let now = self.ms();
        self.nodes[index].ping_sent_at = was_sent.or(Some(now));
        let gossip = self.choose_gossip();
        self.nodes[index].talk.pings += 1;
        if self.breaks(Flaw::VotesUnseen) {
            self.say_again(index);
        }
        self.send(index, if is_meet { Body::Meet(gossip) } else { Body::Ping(gossip) });
    }

    pub(crate) fn link_down(&mut self, link: LinkId) {
        if let Some(index) = self.dialled_node(link) {
            self.nodes[index].link = None;
        }
        if let LinkId::Inbound(number) = link {
            let from = self.nodes.iter_mut().find(|(_, node)| node.inbound == Some(number));
            if let Some((_, node)) = from {
                node.inbound = None;
            }
        }
    }

    /// The node that a connection from here leads to, unless it is one of old.
    pub(crate) fn dialled_node(&self, link: LinkId) -> Option<NodeIndex> {
        let LinkId::Dialled { node, number } = link else { return None };
        let current = self.nodes.get(node)?.link?;
        (current.number == number).then_some(node)
    }

    pub(crate) fn close_link(&mut self, index: NodeIndex) {
        if let Some(link) = self.nodes[index].link.take() {
            let link = LinkId::Dialled { node: index, number: link.number };
            self.output(Output::Close(link));
        }
    }

    /// A node under a made-up name until it tells its own.
    pub(crate) fn start_handshake(&mut self, address: Address, flags: Flags) -> bool {
        let is_same = |node: &Node| {
            node.is_in_handshake()
                && node.address.ip == address.ip
                && node.address.bus_port == address.bus_port
        };
        if self.nodes.iter().any(|(_, node)| is_same(node)) {
            return false;
        }
        let mut bytes = [0; 20];
        bytes.iter_mut().for_each(|byte| *byte = self.rng.next_u64() as u8);
        let flags = flags.with(Flags::HANDSHAKE);
        let node = Node::new(NodeId::from_bytes(bytes), flags, address, self.ms());
        self.nodes.add(node).is_some()
    }

    /// A node goes, with everything that points to it.
    pub(crate) fn remove_node(&mut self, index: NodeIndex) {
        assert!(index != self.me, "a node never removes itself");
        self.close_link(index);
        if let Some(number) = self.nodes[index].inbound {
            self.output(Output::Close(LinkId::Inbound(number)));
        }
        self.drop_slots_of(index);
        self.importing.retain(|_, from| *from != index);
        self.migrating.retain(|_, to| *to != index);
        self.forget_giver(index);
        for (_, node) in self.nodes.iter_mut() {
            node.reports.retain(|report| report.from != index);
            if node.master == Some(index) {
                node.master = None;
            }
        }
        if matches!(self.manual, Some(Manual::Giving { to, .. }) if to == index) {
            self.end_manual();
        }
        self.election.voters.retain(|voter| *voter != index);
        self.nodes.remove(index);
        self.save(Save::Later);
    }

    /// Who answered under a node's address is somebody else.
    pub(crate) fn lose_address(&mut self, index: NodeIndex) {
        self.log(Event::AddressReused(self.nodes[index].id));
        self.close_link(index);
        let node = &mut self.nodes[index];
        node.set(Flags::NO_ADDRESS);
        node.address = Address::default();
        self.save(Save::Later);
    }

    /// Answers on the connection that a packet came over.
    pub(crate) fn answer(&mut self, link: LinkId, body: Body) {
        let mut message = Arc::new(Message { header: self.header(), body });
        if let LinkId::Inbound(number) = link
            && !self.withheld.is_empty()
        {
            let is_it = |(_, node): &(NodeIndex, &Node)| node.inbound == Some(number);
            if let Some((to, _)) = self.nodes.iter().find(is_it) {
                message = self.without_withheld(to, message);
            }
        }
        self.output(Output::Send { link, message });
    }
}
