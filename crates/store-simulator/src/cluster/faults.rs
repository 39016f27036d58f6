//! Everybody who breaks something: the network and machines.

use std::sync::Arc;

use store_cluster::Event as Note;

use super::host::Data;
use super::links::{Delivery, End};
use super::operator::Order;
use super::world::{Event, World};
use crate::network::Host as HostIndex;
use crate::queue::Real;

/// Two replicas that want one epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duel {
    voter: HostIndex,
    second: HostIndex,
    /// When the voter has forgotten what was not on its disk.
    from: Real,
}

impl World {
    pub(crate) fn fault(&mut self) {
        if self.is_healed() {
            return;
        }
        let delay = self.random.between(1, 2 * self.climate.fault_every);
        self.queue.after(delay, Event::Fault);
        let (host, other) = (self.any_host(), self.any_host());
        match self.random.below(33) {
            0..3 => self.cut(host, other),
            3..5 => self.isolate(host),
            5..7 => self.part(),
            7..12 => self.crash(host),
            12 => self.crash_shard(host),
            13..15 => self.pause(host),
            15 => self.step_clock(host),
            16 => self.reset_link(),
            17..19 => self.reuse_address(),
            19..22 => self.obey(Order::MoveSlots),
            22 => self.obey(Order::MoveAll),
            23..25 => self.obey(Order::Failover(host)),
            25 => self.obey(Order::Force(host)),
            26 => self.obey(Order::Takeover(host)),
            27 => self.obey(Order::Bump(host)),
            28 => self.obey(Order::Replicate(host, other)),
            29 | 30 => self.duel(),
            31 => self.fill_disk(host),
            _ => self.obey(Order::TakeoverTwice(host)),
        }
    }

    /// Faults that come when they hurt most: a voter or winner dies while it writes that down, and
    /// who asks for votes hears them late.
    pub(crate) fn strike(&mut self, host: HostIndex, note: &Note) {
        if self.is_healed() || self.climate.is_stranger(host) {
            return;
        }
        let now = self.queue.now();
        match note {
            Note::Voted { .. } | Note::ElectionWon { .. } | Note::EpochTaken(_)
                if self.random.percent(5) =>
            {
                let delay = self.random.between(0, 80);
                self.queue.after(delay, Event::Order(Order::Crash(host)));
                self.queue.after(delay + self.random.between(20, 300), Event::Restart(host));
            }
            Note::ElectionStarted { .. } if self.random.percent(12) => {
                let until = now + self.random.between(1_000, 8_000);
                self.note(|| format!("{host} hears nobody until {until}"));
                for other in (0..self.hosts.len()).filter(|other| *other != host) {
                    self.links.cut(other, host, now, until);
                }
            }
            _ => {}
        }
        if matches!(note, Note::ElectionWon { .. }) && self.random.percent(4) {
            self.lose_heir(host);
        }
    }

    /// Who took over dies for good, and whom it replaced comes back later and hears of it from
    /// others alone.
    fn lose_heir(&mut self, heir: HostIndex) {
        let slots = Arc::clone(&self.hosts[heir].core.me().slots);
        let is_old = |host: &HostIndex| {
            let me = self.hosts[*host].core.me();
            *host != heir && me.is_master() && me.slots.intersects(&slots)
        };
        let Some(old) = self.members().find(is_old).filter(|_| !self.has_lost_heir) else { return };
        self.has_lost_heir = true;
        let until = self.queue.now() + self.random.between(3_000, 9_000);
        self.note(|| format!("{old} is cut off until {until}, its heir {heir} dies for good"));
        self.separate(&[old], until);
        let delay = self.random.between(100, 1_500);
        self.queue.after(delay, Event::Order(Order::Bury(heir)));
    }

    /// Nothing can be written to a disk for some time.
    fn fill_disk(&mut self, host: HostIndex) {
        let until = self.queue.now() + self.random.between(300, 8_000);
        self.note(|| format!("the disk of {host} is full until {until}"));
        self.hosts[host].full_until = until;
    }

    /// Two replicas ask for one epoch, and a voter that dies in between is all that they share.
    /// The second one hears nothing of the first one's epoch before it has asked for the same.
    fn duel(&mut self) {
        let (mut voters, mut replicas) = (Vec::new(), Vec::new());
        for host in self.members().filter(|host| self.hosts[*host].is_up) {
            match self.hosts[host].core.me().is_voter() {
                true => voters.push(host),
                false if self.hosts[host].follows().is_some() => replicas.push(host),
                false => {}
            }
        }
        if voters.is_empty() || replicas.len() < 2 {
            return;
        }
        let voter = *self.random.pick(&voters);
        let first = replicas.swap_remove(self.random.below(replicas.len() as u64) as usize);
        let second = *self.random.pick(&replicas);
        let now = self.queue.now();
        self.note(|| format!("{first} and {second} want the vote of {voter}"));
        for other in (0..self.hosts.len()).filter(|other| *other != voter && *other != second) {
            self.links.cut(other, second, now, now + 2_000);
            self.links.cut(second, other, now, now + 2_000);
        }
        self.obey(Order::Force(first));
        let dies_at = now + self.random.between(150, 500);
        self.queue.at(dies_at, Event::Order(Order::Crash(voter)));
        let back_at = dies_at + self.random.between(20, 150);
        self.queue.at(back_at, Event::Restart(voter));
        self.links.cut(voter, second, now, back_at);
        self.duel = Some(Duel { voter, second, from: back_at });
    }

    /// The second one of a duel has connected to the voter, which is back: it asks before it hears
    /// anything.
    pub(crate) fn go_on_with_duel(&mut self, link: usize) {
        let (hosts, now) = (self.links.all[link].hosts, self.queue.now());
        let is_it = |duel: &Duel| hosts == [duel.second, duel.voter] && now >= duel.from;
        if let Some(duel) = self.duel.take_if(|duel| is_it(duel)) {
            self.links.cut(duel.voter, duel.second, now, now + 1_000);
            self.obey(Order::Force(duel.second));
        }
    }

    fn cut(&mut self, from: HostIndex, to: HostIndex) {
        let now = self.queue.now();
        let until = now + self.random.between(100, 6_000);
        self.note(|| format!("nothing gets from {from} to {to} until {until}"));
        self.links.cut(from, to, now, until);
        if self.random.percent(50) {
            self.links.cut(to, from, now, until);
        }
    }

    fn isolate(&mut self, host: HostIndex) {
        let until = self.queue.now() + self.random.between(500, 9_000);
        self.note(|| format!("{host} is cut off until {until}"));
        self.separate(&[host], until);
    }

    /// Two sides that do not reach each other.
    fn part(&mut self) {
        let until = self.queue.now() + self.random.between(500, 9_000);
        let side: Vec<HostIndex> = self.members().filter(|_| self.random.percent(35)).collect();
        self.note(|| format!("{side:?} are cut off until {until}"));
        self.separate(&side, until);
    }

    fn separate(&mut self, side: &[HostIndex], until: u64) {
        for host in side {
            for other in (0..self.hosts.len()).filter(|other| !side.contains(other)) {
                let now = self.queue.now();
                self.links.cut(*host, other, now, until);
                self.links.cut(other, *host, now, until);
            }
        }
    }

    /// The machine stops; what was not on disk may be or not.
    pub(crate) fn crash(&mut self, host: HostIndex) {
        if !self.hosts[host].is_up {
            return;
        }
        self.note(|| format!("{host} crashes"));
        let (has_tail, now) = (self.random.percent(30), self.queue.now());
        let this = &mut self.hosts[host];
        this.is_up = false;
        this.held.clear();
        let has_tail = has_tail && this.full_until <= now;
        if let Some(last) = this.writes.drain(..).next_back().filter(|_| has_tail)
            && last.0 > this.disk.0
        {
            this.disk = last;
        }
        let is_silent = self.random.percent(40);
        for link in 0..self.links.all.len() {
            for end in [End::Dialer, End::Listener] {
                let this = &mut self.links.all[link];
                let is_open = this.hosts[end as usize] == host && this.is_open[end as usize];
                if is_open {
                    this.is_open[end as usize] = false;
                    if !is_silent {
                        let delay = self.random.between(0, self.links.weather.delay_max);
                        let delivery = Delivery::Closed(end.other());
                        self.queue.after(delay, Event::Network { link, delivery });
                    }
                }
            }
        }
        self.judge.crashed(host);
        let delay = self.random.between(100, 8_000);
        self.queue.after(delay, Event::Restart(host));
    }

    /// A master and all that follow it.
    fn crash_shard(&mut self, host: HostIndex) {
        let id = self.hosts[host].id;
        let shard: Vec<HostIndex> =
            self.members().filter(|other| self.hosts[*other].follows() == Some(id)).collect();
        self.crash(host);
        shard.into_iter().for_each(|other| self.crash(other));
    }

    pub(crate) fn restart(&mut self, host: HostIndex) {
        if self.hosts[host].is_up || self.hosts[host].is_gone {
            return;
        }
        let real = self.queue.now();
        let mut text = self.hosts[host].disk.1.0.clone();
        if self.flaw == Some(super::flaw::Planted::VoteClearedOnRestart)
            && let Some(place) = text.find(" lastVoteEpoch ")
        {
            text.truncate(place);
            text.push_str(" lastVoteEpoch 0\n");
        }
        let (ip, now) = (self.hosts[host].ip, self.hosts[host].now(real));
        let core = self.new_core(ip, now, &text);
        self.judge.restarted(real, host, &core);
        let this = &mut self.hosts[host];
        this.core = core;
        this.life += 1;
        this.is_up = true;
        this.paused_until = 0;
        this.writes.clear();
        this.has_failed = false;
        this.dialled.clear();
        this.is_paused_for_failover = false;
        this.role = store_cluster::Role::Master;
        // What it had is on its disk, but it is in step with nobody.
        this.data = Data { offset: this.data.offset, ..Data::default() };
        this.wakes_at = real;
        let life = this.life;
        self.note(|| format!("{host} is back"));
        self.queue.at(real, Event::Tick { host, life });
    }

    fn pause(&mut self, host: HostIndex) {
        let until = self.queue.now() + self.random.between(100, 4 * self.climate.node_timeout);
        self.note(|| format!("{host} stands still until {until}"));
        self.hosts[host].paused_until = until;
    }

    fn step_clock(&mut self, host: HostIndex) {
        let by = self.random.below(20_001) as i64 - 10_000;
        self.note(|| format!("{host}: the wall clock steps by {by} ms"));
        self.hosts[host].clock.step_wall(by);
    }

    fn reset_link(&mut self) {
        if self.links.all.is_empty() {
            return;
        }
        let link = self.random.below(self.links.all.len() as u64) as usize;
        for end in [End::Dialer, End::Listener] {
            let delivery = Delivery::Closed(end);
            let delay = self.random.between(0, self.links.weather.delay_max);
            self.queue.after(delay, Event::Network { link, delivery });
        }
    }

    /// A replica goes for good, and a node of another cluster gets its address. Somebody forgets
    /// the
    /// replica and then forgets that it did.
    fn reuse_address(&mut self) {
        let strangers = self.members().end..self.hosts.len();
        let Some(stranger) =
            strangers.into_iter().find(|host| self.hosts[*host].ip == *host as u32)
        else {
            return;
        };
        let host = self.any_host();
        if !self.hosts[host].is_up || self.hosts[host].core.me().is_master() {
            return;
        }
        self.crash(host);
        self.hosts[host].is_gone = true;
        self.crash(stranger);
        self.hosts[stranger].ip = self.hosts[host].ip;
        self.hosts[stranger].ip_text = Arc::clone(&self.hosts[host].ip_text);
        self.note(|| format!("{host} is gone for ever, {stranger} has its address"));
        self.restart(stranger);
        let id = self.hosts[host].id;
        let forgetful = self.any_host();
        self.obey(Order::Forget(forgetful, id));
        self.queue.after(2_000, Event::Order(Order::Crash(forgetful)));
    }

    /// Faults are over: everybody who can be is up.
    pub(crate) fn heal(&mut self) {
        self.note(|| "healed".to_owned());
        self.links.end_cuts();
        let now = self.queue.now();
        self.links.weather.delay_max = self.links.weather.delay_max.min(50);
        for host in 0..self.hosts.len() {
            self.hosts[host].paused_until = self.hosts[host].paused_until.min(now + 500);
            self.hosts[host].full_until = self.hosts[host].full_until.min(now + 500);
            self.restart(host);
        }
    }
}
