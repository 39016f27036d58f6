//! Packets that come in.

use std::sync::Arc;

use crate::cluster::{Cluster, Ends, Save};
use crate::flaw::Flaw;
use crate::message::{Address, Body, Flags, Gossip, Header, Message, Update};
use crate::node::{LinkId, NodeIndex};
use crate::output::Output;

impl Cluster {
    pub(crate) fn receive(&mut self, link: LinkId, ends: Ends<'_>, message: &Message) {
        let dialled = self.dialled_node(link);
        if matches!(link, LinkId::Dialled { .. }) && dialled.is_none() {
            return;
        }
        let header = &message.header;
        if !self.believes(message, ends.peer) {
            return;
        }
        if let Some(index) = dialled
            && !self.check_name(index, header)
        {
            return;
        }
        let sender = self.nodes.find(header.sender).filter(|sender| *sender != self.me);
        if header.sender == self.me().id {
            return;
        }
        if let Some(sender) = sender {
            self.note_sender(sender, link, header);
        }
        match &message.body {
            Body::Ping(gossip) | Body::Pong(gossip) | Body::Meet(gossip) => {
                self.receive_heartbeat(link, ends, message, sender, gossip);
            }
            body => {
                if let Some(sender) = sender {
                    self.receive_news(sender, header, body);
                }
            }
        }
    }

    /// Whether a packet on a connection from here comes from whom it was opened to. A node in
    /// handshake gets its name by the first.
    fn check_name(&mut self, index: NodeIndex, header: &Header) -> bool {
        if !self.nodes[index].is_in_handshake() {
            let is_same = self.nodes[index].id == header.sender;
            if !is_same {
                self.lose_address(index);
            }
            return is_same;
        }
        if let Some(known) = self.nodes.find(header.sender) {
            // It is known already: what the operator gave is its newest address.
            let address = self.nodes[index].address.clone();
            self.remove_node(index);
            if known != self.me {
                self.move_node(known, address);
            }
            return false;
        }
        self.nodes.rename(index, header.sender);
        let role = match header.flags.has(Flags::REPLICA) {
            true => Flags::REPLICA,
            false => Flags::MASTER,
        };
        self.nodes[index].flags = role;
        self.save(Save::Later);
        true
    }

    /// What every packet of a known node tells.
    fn note_sender(&mut self, sender: NodeIndex, link: LinkId, header: &Header) {
        let now = self.ms();
        let node = &mut self.nodes[sender];
        node.heard_at = now;
        node.offset = header.offset;
        let mut old_link = None;
        if let LinkId::Inbound(number) = link {
            old_link = node.inbound.replace(number).filter(|old| *old != number);
        }
        if header.config_epoch > node.config_epoch && header.master.is_none() {
            node.config_epoch = header.config_epoch;
            self.save(Save::Later);
        }
        if let Some(old) = old_link {
            self.output(Output::Close(LinkId::Inbound(old)));
        }
        self.raise_epoch(header.current_epoch.max(header.config_epoch));
        self.note_lost_epoch(sender, header);
        if header.is_paused && self.me().master == Some(sender) {
            self.note_paused_offset(header.offset);
        }
    }

    /// Somebody knows a greater epoch. Those of configurations count as well: the next election
    /// must be beyond them, or nobody takes the winner for the owner of its slots.
    fn raise_epoch(&mut self, epoch: u64) {
        if epoch > self.current_epoch {
            self.current_epoch = epoch;
            self.save(Save::Later);
        }
    }

    fn receive_heartbeat(
        &mut self,
        link: LinkId,
        ends: Ends<'_>,
        message: &Message,
        sender: Option<NodeIndex>,
        gossip: &[Gossip],
    ) {
        let header = &message.header;
        let is_meet = matches!(message.body, Body::Meet(_));
        let is_pong = matches!(message.body, Body::Pong(_));
        if !is_pong {
            self.learn_own_address(is_meet, ends.local);
            if sender.is_none() && is_meet {
                self.start_handshake(address_of(header, ends.peer), Flags::MASTER);
            }
            let answer = self.choose_gossip();
            self.answer(link, Body::Pong(answer));
        }
        let Some(sender) = sender else { return };
        let is_inbound = matches!(link, LinkId::Inbound(_));
        if is_inbound && matches!(message.body, Body::Ping(_)) {
            self.move_node(sender, address_of(header, ends.peer));
        }
        if self.nodes[sender].hostname != header.hostname {
            self.nodes[sender].hostname.clone_from(&header.hostname);
            self.save(Save::Later);
        }
        match header.flags.has(Flags::NO_FAILOVER) {
            true => self.nodes[sender].set(Flags::NO_FAILOVER),
            false => self.nodes[sender].clear(Flags::NO_FAILOVER),
        }
        if !is_inbound && is_pong {
            self.nodes[sender].talk.pongs += 1;
            self.note_answer(sender);
            if self.nodes[sender].talk.pongs == 1 {
                self.say_again(sender);
            }
        }
        // A replica that did not know an epoch of its own has become a master since: this is late.
        let is_late = header.current_epoch < self.nodes[sender].config_epoch;
        if header.master.is_none() || !is_late {
            self.note_role(sender, header);
            self.note_claims(sender, header, is_pong && !is_inbound);
            self.settle_collision(sender, header);
        }
        self.read_gossip(sender, gossip);
    }

    fn learn_own_address(&mut self, is_meet: bool, local: &str) {
        let is_announced = !self.settings.address.ip.is_empty();
        let ip = &self.me().address.ip;
        if !is_announced && !local.is_empty() && **ip != *local && (is_meet || ip.is_empty()) {
            self.me_mut().address.ip = Arc::from(local);
            self.save(Save::Later);
        }
    }

    /// A node is somewhere else now.
    fn move_node(&mut self, index: NodeIndex, address: Address) {
        if address.ip.is_empty() || self.nodes[index].address == address {
            return;
        }
        self.close_link(index);
        let node = &mut self.nodes[index];
        node.address = address;
        node.clear(Flags::NO_ADDRESS);
        self.save(Save::Later);
    }

    /// The role of a node is what its master's name says.
    fn note_role(&mut self, sender: NodeIndex, header: &Header) {
        let Some(id) = header.master else { return self.make_master(sender) };
        let master = self.nodes.find(id).filter(|master| *master != sender);
        self.make_replica(sender, master);
        let Some(master) = master else { return };
        // Who is followed has taken over, and may have died before it was heard here: whoever knew
        // it as a replica would follow one dead node for another.
        let node = &self.nodes[master];
        if node.is_replica() && master != self.me && header.config_epoch > node.config_epoch {
            let (id, slots) = (node.id, Arc::clone(&header.slots));
            self.receive_update(&Update { id, config_epoch: header.config_epoch, slots });
        }
    }

    /// Claims of a master are weighed. Whoever claims what has a newer owner is told so.
    /// `is_answer`: it comes over the connection from here.
    fn note_claims(&mut self, sender: NodeIndex, header: &Header, is_answer: bool) {
        match is_answer {
            true => self.note_given_up(sender, header),
            false => self.ask_if_taken(sender, header),
        }
        self.note_slots(sender, header, is_answer);
        if is_answer {
            let talk = &mut self.nodes[sender].talk;
            talk.known_epoch = header.current_epoch.max(talk.known_epoch);
        }
    }

    fn note_slots(&mut self, sender: NodeIndex, header: &Header, is_answer: bool) {
        let claimant = self.nodes[sender].master.unwrap_or(sender);
        if self.nodes[claimant].slots == header.slots {
            if claimant != self.me {
                // Both have the same bits: one copy is enough, and is compared at once.
                self.nodes[claimant].slots = Arc::clone(&header.slots);
            }
            if self.nodes[sender].is_master() {
                self.note_all_claimed(sender);
                self.drop_outdated(sender, &header.slots);
            }
            return;
        }
        if self.nodes[sender].is_master() {
            self.weigh_claims(sender, header.config_epoch, &header.slots, is_answer);
            self.mark_unclaimed(sender, &header.slots);
            self.drop_outdated(sender, &header.slots);
        }
        self.tell_if_behind(sender, header);
    }

    pub(crate) fn tell_if_behind(&mut self, sender: NodeIndex, header: &Header) {
        if self.breaks(Flaw::NoUpdateMessages) {
            return;
        }
        let claimant = self.nodes[sender].master.unwrap_or(sender);
        let mut others = header.slots.without(&self.nodes[claimant].slots);
        others.remove_all(&self.nodes[sender].slots);
        let is_stale = |slot: &u16| {
            let owner = self.owner(*slot);
            owner.is_some_and(|owner| self.nodes[owner].config_epoch > header.config_epoch)
        };
        let stale = others.iter().find(is_stale);
        if let Some(owner) = stale.and_then(|slot| self.owner(slot)) {
            self.send_either_way(sender, Body::Update(self.update_about(owner)));
        }
    }

    pub(crate) fn update_about(&self, owner: NodeIndex) -> Update {
        let node = &self.nodes[owner];
        let mut slots = match owner == self.me {
            true => self.claimed_slots(),
            false => Arc::clone(&node.slots),
        };
        if slots.intersects(&self.unclaimed) {
            Arc::make_mut(&mut slots).remove_all(&self.unclaimed);
        }
        let config_epoch = match owner == self.me {
            true => self.told_epoch(node.config_epoch),
            false => node.config_epoch,
        };
        Update { id: node.id, config_epoch, slots }
    }

    /// Everything but heartbeats, from a node that is known.
    fn receive_news(&mut self, sender: NodeIndex, header: &Header, body: &Body) {
        match body {
            Body::Fail(id) => {
                let failed = self.nodes.find(*id).filter(|index| *index != self.me);
                if let Some(index) = failed
                    && !self.nodes[index].is_failed()
                {
                    self.set_failed(index, false);
                }
            }
            Body::Publish(publication) => self.output(Output::Publish(publication.clone())),
            Body::AuthRequest => self.consider_vote(sender, header),
            Body::AuthAck => self.count_vote(sender, header),
            Body::Update(update) => self.receive_update(update),
            Body::ManualStart => self.start_giving(sender),
            Body::Ping(_) | Body::Pong(_) | Body::Meet(_) | Body::Other(_) => {}
        }
    }

    fn receive_update(&mut self, update: &Update) {
        let Some(index) = self.nodes.find(update.id).filter(|index| *index != self.me) else {
            return;
        };
        let known = self.nodes[index].config_epoch;
        // Of one epoch there may be more to hear: whoever told of it first may not have known all
        // of its slots, as it imports one of them itself.
        let is_more = known == update.config_epoch && self.nodes[index].is_master();
        if known >= update.config_epoch && !is_more {
            return;
        }
        if !is_more {
            self.make_master(index);
            self.nodes[index].config_epoch = update.config_epoch;
            self.save(Save::Later);
            self.raise_epoch(update.config_epoch);
        }
        self.weigh_claims(index, update.config_epoch, &update.slots, false);
    }
}

/// Where a sender is: as it announces, else where its connection comes from.
fn address_of(header: &Header, peer: &str) -> Address {
    let mut address = header.address.clone();
    if address.ip.is_empty() {
        address.ip = Arc::from(peer);
    }
    address
}
