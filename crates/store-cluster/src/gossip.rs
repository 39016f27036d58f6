//! What is told about others, and what is believed of it.

use crate::cluster::{Cluster, Save};
use crate::flaw::Flaw;
use crate::message::{Flags, Gossip};
use crate::node::{Node, NodeIndex};

/// Entries of a packet, if there are as many nodes: at least so many, and a tenth of all.
const ENTRIES_MIN: usize = 3;
/// How far ahead another wall clock may be and still be believed.
const CLOCK_AHEAD_MAX_MS: u64 = 500;

impl Cluster {
    /// A tenth of the nodes by chance, and everybody who is suspected.
    pub(crate) fn choose_gossip(&mut self) -> Vec<Gossip> {
        let (count, places) = (self.nodes.len(), usize::from(self.nodes.places()));
        let wanted = (count / 10).max(ENTRIES_MIN).min(count.saturating_sub(2));
        let mut entries = Vec::with_capacity(wanted + 2);
        self.start_marking(places);
        for _ in 0..wanted * 3 {
            if entries.len() == wanted {
                break;
            }
            let index = self.rng.below(places) as NodeIndex;
            let Some(node) = self.nodes.get(index) else { continue };
            let is_told = self.marks[usize::from(index)] == self.mark;
            if is_told || node.is_suspected() || !is_worth_telling(node) {
                continue;
            }
            entries.push(self.gossip_of(node));
            self.marks[usize::from(index)] = self.mark;
        }
        if self.has_suspects {
            // Those without an address, too: else nobody would ever give them up.
            let suspects = self.nodes.iter().filter(|(_, node)| node.is_suspected());
            entries.extend(suspects.map(|(_, node)| self.gossip_of(node)));
        }
        entries
    }

    fn start_marking(&mut self, places: usize) {
        self.marks.resize(places, 0);
        self.mark = self.mark.wrapping_add(1);
        if self.mark == 0 {
            self.marks.fill(0);
            self.mark = 1;
        }
    }

    fn gossip_of(&self, node: &Node) -> Gossip {
        let unix_seconds = |at: Option<u64>| -> u32 {
            let Some(at) = at else { return 0 };
            let ago = self.ms().saturating_sub(at);
            (self.now.unix_ms.saturating_sub(ago) / 1000) as u32
        };
        Gossip {
            id: node.id,
            ping_sent: unix_seconds(node.ping_sent_at),
            pong_received: unix_seconds(node.pong_at),
            address: node.address.clone(),
            flags: node.flags,
        }
    }

    /// What `sender` told about others.
    pub(crate) fn read_gossip(&mut self, sender: NodeIndex, entries: &[Gossip]) {
        for entry in entries {
            match self.nodes.find(entry.id) {
                Some(index) if index == self.me => {}
                Some(index) => self.read_entry(sender, index, entry),
                None => self.learn(entry),
            }
        }
    }

    fn read_entry(&mut self, sender: NodeIndex, index: NodeIndex, entry: &Gossip) {
        let wrong = Flags::FAILED.with(Flags::SUSPECTED);
        let is_wrong_there = entry.flags.has(wrong);
        if self.nodes[sender].is_master() && sender != index {
            match is_wrong_there {
                true => self.add_report(index, sender),
                false => self.withdraw_report(index, sender),
            }
        }
        let unix_ms = u64::from(entry.pong_received) * 1000;
        let is_believable = unix_ms <= self.now.unix_ms + CLOCK_AHEAD_MAX_MS;
        let ago = self.now.unix_ms.saturating_sub(unix_ms);
        let pong_at = self.ms().saturating_sub(ago);
        let node = &mut self.nodes[index];
        let is_well = !is_wrong_there && node.is_fine() && node.reports.is_empty();
        if is_well && is_believable && node.ping_sent_at.is_none() && node.pong_at < Some(pong_at) {
            node.pong_at = Some(pong_at);
        }
        let is_unusable = entry.flags.has(wrong.with(Flags::NO_ADDRESS));
        let is_moved = node.address != entry.address && !entry.address.ip.is_empty();
        if node.flags.has(wrong) && !is_unusable && is_moved {
            node.address = entry.address.clone();
            node.clear(Flags::NO_ADDRESS);
            self.close_link(index);
            self.save(Save::Later);
        }
    }

    /// A node of this cluster that was not known here, under its own name: whoever else answers at
    /// its address stays a stranger.
    fn learn(&mut self, entry: &Gossip) {
        let is_usable = !entry.flags.has(Flags::NO_ADDRESS.with(Flags::HANDSHAKE))
            && !entry.address.ip.is_empty();
        if !is_usable || self.forgotten.contains_key(&entry.id) {
            return;
        }
        if self.breaks(Flaw::HandshakeFromGossip) {
            self.start_handshake(entry.address.clone(), Flags::MASTER);
            return;
        }
        let role = match entry.flags.has(Flags::REPLICA) {
            true => Flags::REPLICA,
            false => Flags::MASTER,
        };
        let node = Node::new(entry.id, role, entry.address.clone(), self.ms());
        if self.nodes.add(node).is_some() {
            self.save(Save::Later);
        }
    }
}

fn is_worth_telling(node: &Node) -> bool {
    let hidden = Flags::MYSELF.with(Flags::HANDSHAKE).with(Flags::NO_ADDRESS);
    !node.flags.has(hidden) && (node.link.is_some() || node.slot_count > 0)
}
