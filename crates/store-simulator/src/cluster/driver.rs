//! What surrounds the core on a host: connections, the disk, the data.

use std::sync::Arc;

use store_cluster::{Body, Ends, Event as Note, LinkId, Message, Output, Role, SavedClaim, wire};

use super::climate::ip_of;
use super::flaw::Planted;
use super::host::{Held, Host};
use super::links::{Delivery, End};
use super::world::{Event, World};
use crate::network::Host as HostIndex;
use crate::queue::Real;

/// How long a change that nothing relies on may wait before it is written.
const LAZY_WRITE_MAX: Real = 800;
/// Between attempts to write to a full disk.
const WRITE_AGAIN: Real = 200;

impl World {
    pub(crate) fn tick(&mut self, host: HostIndex, life: u32) {
        if !self.hosts[host].is_up || self.hosts[host].life != life {
            return;
        }
        let real = self.queue.now();
        self.copy_data(host);
        let this = &mut self.hosts[host];
        let now = this.now(real);
        this.core.handle_data(this.data_state());
        this.core.handle_tick(now);
        self.carry_out(host);
        if self.climate.is_judged {
            self.judge_tick(host);
        }
    }

    /// A master gets writes; a replica gets what its master has, if it reaches it.
    fn copy_data(&mut self, host: HostIndex) {
        let real = self.queue.now();
        let this = &self.hosts[host];
        let Role::ReplicaOf { id, .. } = &this.role else {
            let takes = this.core.is_ok() && this.core.me().is_voter();
            if takes && !this.is_paused_for_failover && self.random.percent(60) {
                let bytes = self.random.between(1, 50);
                self.hosts[host].data.offset += bytes;
            }
            return;
        };
        let Some(master) = self.by_id.get(id).copied() else { return };
        let is_cut = self.links.is_cut(host, master, real) || self.links.is_cut(master, host, real);
        let is_reached = self.hosts[master].is_working(real)
            && matches!(self.hosts[master].role, Role::Master)
            && !is_cut;
        if !is_reached {
            return;
        }
        let source = self.hosts[master].data.offset;
        let monotonic = self.hosts[host].now(real).monotonic_ms;
        let (is_busy, copy_ms) = (self.random.percent(25), self.random.between(50, 900));
        let data = &mut self.hosts[host].data;
        match data.copies {
            Some((from, done_at)) if from == master && done_at <= real => {
                data.in_step_at = Some(monotonic);
                if !is_busy {
                    data.offset = source;
                }
            }
            Some((from, _)) if from == master => {}
            _ => data.copies = Some((master, real + copy_ms)),
        }
    }

    pub(crate) fn deliver(&mut self, link: usize, delivery: Delivery) {
        match delivery {
            Delivery::Knock => self.accept(link),
            Delivery::Opened => {
                let (host, name) = (self.links.all[link].hosts[0], self.links.all[link].name);
                if self.is_alive(link, End::Dialer) {
                    let now = self.hosts[host].now(self.queue.now());
                    self.hosts[host].core.handle_link_up(now, name);
                    self.carry_out(host);
                    self.go_on_with_duel(link);
                }
            }
            Delivery::Message(end, message) => self.hand_over(link, end, &message),
            Delivery::Closed(end) => {
                if self.is_alive(link, end) {
                    self.links.all[link].is_open[end as usize] = false;
                    let host = self.links.all[link].hosts[end as usize];
                    let now = self.hosts[host].now(self.queue.now());
                    let name = self.name_of(link, end);
                    self.hosts[host].core.handle_link_down(now, name);
                    self.carry_out(host);
                }
            }
        }
    }

    fn name_of(&self, link: usize, end: End) -> LinkId {
        match end {
            End::Dialer => self.links.all[link].name,
            End::Listener => LinkId::Inbound(link as u64),
        }
    }

    fn is_alive(&self, link: usize, end: End) -> bool {
        let this = &self.links.all[link];
        let host = &self.hosts[this.hosts[end as usize]];
        this.is_open[end as usize] && host.is_up && host.life == this.lives[end as usize]
    }

    fn accept(&mut self, link: usize) {
        let host = self.links.all[link].hosts[1];
        if !self.hosts[host].is_up {
            return self.post(link, End::Dialer, Delivery::Closed(End::Dialer));
        }
        self.links.all[link].is_open[1] = true;
        self.links.all[link].lives[1] = self.hosts[host].life;
        self.post(link, End::Dialer, Delivery::Opened);
    }

    fn post(&mut self, link: usize, to: End, delivery: Delivery) {
        let at = self.links.arrival(link, to, self.queue.now(), &mut self.random);
        self.queue.at(at, Event::Network { link, delivery });
    }

    fn hand_over(&mut self, link: usize, end: End, message: &Arc<Message>) {
        if !self.is_alive(link, end) {
            return;
        }
        let host = self.links.all[link].hosts[end as usize];
        let from = self.links.all[link].hosts[end.other() as usize];
        let name = self.name_of(link, end);
        self.outcome.messages += 1;
        let now = self.hosts[host].now(self.queue.now());
        let peer = Arc::clone(&self.hosts[from].ip_text);
        let local = Arc::clone(&self.hosts[host].ip_text);
        let ends = Ends { peer: &peer, local: &local };
        self.judge.see_delivery(self.queue.now(), host, message);
        let me = self.hosts[host].core.me();
        let (was_voter, epoch, slots) = (me.is_voter(), me.config_epoch, Arc::clone(&me.slots));
        let ordered = self.ordered_away(host, from, epoch, message);
        let this = &mut self.hosts[host];
        this.core.handle_data(this.data_state());
        if self.climate.through_bytes {
            let bytes = wire::encode(message);
            let read = wire::decode(&bytes).expect("what was written can be read");
            assert_eq!(read, **message, "a message is the same behind the codec");
            this.core.handle_message(now, name, ends, &read);
        } else {
            this.core.handle_message(now, name, ends, message);
        }
        self.carry_out(host);
        self.judge_last_slot(host, was_voter);
        self.judge_loss(host, epoch, &slots, &ordered, message);
    }

    /// Does what the core wants, in order.
    pub(crate) fn carry_out(&mut self, host: HostIndex) {
        let (mut failed, mut told) = (None, false);
        loop {
            match self.hosts[host].core.poll_output() {
                Output::Persist { text, is_synced, claim } => {
                    self.write(host, (text, claim), is_synced);
                }
                Output::Dial { link, address } => self.dial(host, link, ip_of(&address)),
                Output::Send { link, message } => {
                    told |= matches!(message.body, Body::Fail(_));
                    self.hold_or_send(host, link, message);
                }
                Output::Close(link) => self.close(host, link),
                Output::Become(role) => self.become_role(host, role),
                Output::PauseWrites => self.hosts[host].is_paused_for_failover = true,
                Output::Unpause => self.hosts[host].is_paused_for_failover = false,
                Output::DropSlots(_) | Output::FindKeys { .. } | Output::Publish(_) => {}
                Output::Log(note) => {
                    self.note(|| format!("{host} {note:?}"));
                    if let Note::Failed { id, is_own_finding: true } = note {
                        failed = Some(id);
                    }
                    self.counts.see_note(self.queue.now(), &note);
                    if self.climate.is_judged {
                        self.judge_note(host, &note);
                        self.strike(host, &note);
                    }
                }
                Output::WaitUntil(reading) => {
                    self.wake(host, reading);
                    break;
                }
            }
        }
        if let Some(id) = failed {
            self.judge_failed(host, id, told);
        }
        if self.climate.is_judged {
            self.judge_claim(host);
        }
    }

    /// The next tick, once.
    fn wake(&mut self, host: HostIndex, reading: u64) {
        let this = &mut self.hosts[host];
        let at = this.clock.real_at(reading);
        if at > this.wakes_at {
            this.wakes_at = at;
            let life = this.life;
            self.queue.at(at, Event::Tick { host, life });
        }
    }

    fn become_role(&mut self, host: HostIndex, role: Role) {
        self.note(|| format!("{host} becomes {role:?}"));
        let this = &mut self.hosts[host];
        let is_other = match (&this.role, &role) {
            (Role::ReplicaOf { id: old, .. }, Role::ReplicaOf { id: new, .. }) => old != new,
            _ => true,
        };
        if is_other {
            this.data.copies = None;
            if matches!(role, Role::ReplicaOf { .. }) {
                this.data.in_step_at = None;
            }
        }
        this.role = role;
    }

    fn dial(&mut self, host: HostIndex, name: LinkId, ip: Option<u32>) {
        let life = self.hosts[host].life;
        let is_there = |host: &Host| Some(host.ip) == ip && !host.is_gone;
        let usual = ip.map(|ip| ip as usize).filter(|to| self.hosts.get(*to).is_some_and(is_there));
        let to = usual.or_else(|| self.hosts.iter().position(is_there));
        // Nobody is there: the attempt ends by itself.
        let link = self.links.dial([host, to.unwrap_or(host)], life, name);
        let LinkId::Dialled { number, .. } = name else { return };
        self.hosts[host].dialled.resize(number as usize + 1, usize::MAX);
        self.hosts[host].dialled[number as usize] = link;
        match to {
            Some(_) => self.post(link, End::Listener, Delivery::Knock),
            None => self.post(link, End::Dialer, Delivery::Closed(End::Dialer)),
        }
    }

    /// A link by the core's name for it, and which end of it is here.
    fn find_link(&self, host: HostIndex, name: LinkId) -> Option<(usize, End)> {
        match name {
            LinkId::Inbound(number) => Some((number as usize, End::Listener)),
            LinkId::Dialled { number, .. } => {
                let link = *self.hosts[host].dialled.get(number as usize)?;
                (link != usize::MAX).then_some((link, End::Dialer))
            }
        }
    }

    fn close(&mut self, host: HostIndex, name: LinkId) {
        let Some((link, end)) = self.find_link(host, name) else { return };
        if std::mem::replace(&mut self.links.all[link].is_open[end as usize], false) {
            self.post(link, end.other(), Delivery::Closed(end.other()));
        }
    }

    fn hold_or_send(&mut self, host: HostIndex, name: LinkId, message: Arc<Message>) {
        match self.hosts[host].held.is_empty() {
            true if !self.hosts[host].core.may_say(&message) => {}
            true => self.send(host, name, message),
            false => self.hosts[host].held.push_back(Held::Send(name, message)),
        }
    }

    fn send(&mut self, host: HostIndex, name: LinkId, message: Arc<Message>) {
        let Some((link, end)) = self.find_link(host, name) else { return };
        if !self.is_alive(link, end) {
            return;
        }
        let to = self.links.all[link].hosts[end.other() as usize];
        self.judge.see_send(self.queue.now(), host, to, &message);
        self.counts.see_send(self.queue.now(), &message);
        let is_vote = matches!(message.body, Body::AuthAck);
        let repeat = is_vote && self.random.percent(self.links.weather.repeat_percent);
        if repeat {
            let again = Delivery::Message(end.other(), Arc::clone(&message));
            self.post(link, end.other(), again);
        }
        self.post(link, end.other(), Delivery::Message(end.other(), message));
    }

    /// nodes.conf is written: at once where packets wait for it, else some time.
    fn write(&mut self, host: HostIndex, content: (String, SavedClaim), is_synced: bool) {
        let breaks_order = self.flaw == Some(Planted::SendBeforePersist);
        let delay = match is_synced && !breaks_order {
            true => self.random.between(0, self.climate.disk_max),
            false => self.random.between(1, LAZY_WRITE_MAX),
        };
        let this = &mut self.hosts[host];
        this.writes_made += 1;
        let (write, life) = (this.writes_made, this.life);
        this.writes.push_back((write, content));
        if is_synced && !breaks_order {
            this.held.push_back(Held::Write(write));
        }
        self.queue.after(delay, Event::OnDisk { host, life, write });
    }

    pub(crate) fn finish_write(&mut self, host: HostIndex, life: u32, write: u64) {
        let this = &mut self.hosts[host];
        if !this.is_up || this.life != life {
            return;
        }
        if this.full_until > self.queue.now() {
            self.queue.after(WRITE_AGAIN, Event::OnDisk { host, life, write });
            return self.fail_write(host);
        }
        if let Some(place) = this.writes.iter().position(|(number, _)| *number == write) {
            let done = this.writes.remove(place).expect("it was found");
            if done.0 > this.disk.0 {
                this.disk = done;
            }
        }
        if std::mem::replace(&mut this.has_failed, false) {
            let now = this.now(self.queue.now());
            this.core.handle_file_written(now);
            self.release(host);
            return self.carry_out(host);
        }
        self.release(host);
    }

    /// The disk is full: nothing waits for it any longer, and the core knows.
    fn fail_write(&mut self, host: HostIndex) {
        let now = self.hosts[host].now(self.queue.now());
        let this = &mut self.hosts[host];
        if !std::mem::replace(&mut this.has_failed, true) {
            self.note(|| format!("{host} cannot write its file"));
        }
        if self.flaw != Some(Planted::SaysUnsaved) {
            let this = &mut self.hosts[host];
            this.core.handle_file_lost(now, this.disk.1.1);
        }
        self.release(host);
        self.carry_out(host);
    }

    /// What need not wait for the disk any longer leaves.
    fn release(&mut self, host: HostIndex) {
        let (on_disk, has_failed) = (self.hosts[host].disk.0, self.hosts[host].has_failed);
        while let Some(first) = self.hosts[host].held.front() {
            if matches!(first, Held::Write(number) if *number > on_disk && !has_failed) {
                return;
            }
            if let Some(Held::Send(name, message)) = self.hosts[host].held.pop_front()
                && self.hosts[host].core.may_say(&message)
            {
                self.send(host, name, message);
            }
        }
    }
}
