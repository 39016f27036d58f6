//! The bus between both nodes: connections that the cores ask for, late, lossy and cut at times.

use std::sync::Arc;

use store_cluster::{Ends, LinkId, Message, Output};

use super::world::{Event, World};
use crate::cluster::links::{Delivery, End};

impl World {
    /// Does what a core wants of the bus.
    pub(super) fn pass_on(&mut self, node: usize) {
        let dropped = std::mem::take(&mut self.nodes[node].dropped);
        if !dropped.is_empty() {
            self.note(|| format!("node {node} drops the keys {dropped:?}"));
        }
        for output in std::mem::take(&mut self.nodes[node].packets) {
            match output {
                Output::Dial { link, .. } => self.dial(node, link),
                Output::Send { link, message } => self.send_packet(node, link, message),
                Output::Close(link) => self.close(node, link),
                _ => {}
            }
        }
    }

    fn dial(&mut self, node: usize, name: LinkId) {
        let link = self.links.dial([node, 1 - node], self.nodes[node].life, name);
        self.post(link, End::Listener, Delivery::Knock);
    }

    fn post(&mut self, link: usize, to: End, delivery: Delivery) {
        let at = self.links.arrival(link, to, self.queue.now(), &mut self.random);
        self.queue.at(at, Event::Network { link, delivery });
    }

    /// A link by a core's name for it, and which end of it is there.
    fn find_link(&self, node: usize, name: LinkId) -> Option<(usize, End)> {
        let life = self.nodes[node].life;
        match name {
            LinkId::Inbound(number) => Some((number as usize, End::Listener)),
            LinkId::Dialled { .. } => {
                let is_it = |link: &crate::cluster::links::Link| {
                    link.hosts[0] == node && link.lives[0] == life && link.name == name
                };
                self.links.all.iter().rposition(is_it).map(|link| (link, End::Dialer))
            }
        }
    }

    fn is_alive(&self, link: usize, end: End) -> bool {
        let this = &self.links.all[link];
        let node = &self.nodes[this.hosts[end as usize]];
        this.is_open[end as usize] && node.is_up && node.life == this.lives[end as usize]
    }

    fn send_packet(&mut self, node: usize, name: LinkId, message: Arc<Message>) {
        let Some((link, end)) = self.find_link(node, name) else { return };
        if self.is_alive(link, end) {
            self.post(link, end.other(), Delivery::Message(end.other(), message));
        }
    }

    fn close(&mut self, node: usize, name: LinkId) {
        let Some((link, end)) = self.find_link(node, name) else { return };
        if std::mem::replace(&mut self.links.all[link].is_open[end as usize], false) {
            self.post(link, end.other(), Delivery::Closed(end.other()));
        }
    }

    pub(super) fn deliver(&mut self, link: usize, delivery: Delivery) {
        let (now, hosts) = (self.queue.now(), self.links.all[link].hosts);
        match delivery {
            Delivery::Knock => {
                let node = hosts[1];
                if !self.nodes[node].is_up {
                    return self.post(link, End::Dialer, Delivery::Closed(End::Dialer));
                }
                self.links.all[link].is_open[1] = true;
                self.links.all[link].lives[1] = self.nodes[node].life;
                self.post(link, End::Dialer, Delivery::Opened);
            }
            Delivery::Opened if self.is_alive(link, End::Dialer) => {
                let name = self.links.all[link].name;
                self.nodes[hosts[0]].drive(now, |core, now| core.handle_link_up(now, name));
                self.pass_on(hosts[0]);
            }
            Delivery::Message(end, message) if self.is_alive(link, end) => {
                let (node, name) = (hosts[end as usize], self.name_of(link, end));
                self.nodes[node].drive(now, |core, now| {
                    core.handle_message(now, name, Ends::default(), &message);
                });
                self.pass_on(node);
                self.judge_outdated(1 - node, &message);
            }
            Delivery::Closed(end) if self.is_alive(link, end) => {
                self.links.all[link].is_open[end as usize] = false;
                let (node, name) = (hosts[end as usize], self.name_of(link, end));
                self.nodes[node].drive(now, |core, now| core.handle_link_down(now, name));
                self.pass_on(node);
            }
            _ => {}
        }
    }

    fn name_of(&self, link: usize, end: End) -> LinkId {
        match end {
            End::Dialer => self.links.all[link].name,
            End::Listener => LinkId::Inbound(link as u64),
        }
    }

    /// A node is gone: the other one hears of it.
    pub(super) fn drop_links(&mut self, node: usize) {
        for link in 0..self.links.all.len() {
            for end in [End::Dialer, End::Listener] {
                let this = &mut self.links.all[link];
                if this.hosts[end as usize] == node && this.is_open[end as usize] {
                    this.is_open[end as usize] = false;
                    let delay = self.random.between(1, self.delay_max);
                    let delivery = Delivery::Closed(end.other());
                    self.queue.after(delay, Event::Network { link, delivery });
                }
            }
        }
    }

    /// Nothing gets through on the bus for some time, in one direction or both.
    pub(super) fn cut_bus(&mut self) {
        let (now, from) = (self.queue.now(), self.random.below(2) as usize);
        let until = now + self.random.between(50, 1_500);
        self.note(|| format!("the bus is cut from node {from} until {until}"));
        self.links.cut(from, 1 - from, now, until);
        if self.random.percent(50) {
            self.links.cut(1 - from, from, now, until);
        }
    }
}
