//! Everybody who breaks something: the network, machines, and operators in a hurry.

use std::time::Duration;

use store_replica::{FailoverRequest, Role};

use super::data::Data;
use super::driver::address_of;
use super::flaw::Flaw;
use super::server::{LoadMode, Saved, Server};
use super::world::{Event, World};
use crate::network::Host;

impl World {
    /// REPLICAOF.
    pub(crate) fn follow(&mut self, host: Host, primary: Host) {
        let real = self.queue.now();
        let server = &mut self.servers[host];
        if host == primary || !server.is_up {
            return;
        }
        let now = server.now(real);
        server.refused = 0;
        server.replication.follow(now, address_of(primary));
        self.note(|| format!("operator: {host} follows {primary}"));
        self.carry_out(host);
        self.turn(host);
    }

    /// REPLICAOF NO ONE.
    pub(crate) fn promote(&mut self, host: Host) {
        let real = self.queue.now();
        let server = &mut self.servers[host];
        if !server.is_up {
            return;
        }
        let now = server.now(real);
        server.replication.promote(now);
        self.note(|| format!("operator: {host} is a primary"));
        self.carry_out(host);
        self.turn(host);
    }

    pub(crate) fn fault(&mut self) {
        if self.is_healed() {
            return;
        }
        let delay = self.random.between(1, 2 * self.climate.fault_every);
        self.queue.after(delay, Event::Fault);
        let (host, other) = (self.any_host(), self.any_host());
        match self.random.below(19) {
            0..5 => self.reset_connection(),
            5 | 6 => self.cut(host, other),
            7 => self.isolate(host),
            8 if self.random.percent(50) => self.end_cleanly(host),
            8 => self.crash(host),
            9 | 10 => self.save(host),
            11 => self.follow(host, other),
            12 => self.change_primary(host),
            13 | 14 => self.start_failover(),
            15 => self.pause(host),
            16 | 17 => self.set_load_mode(host),
            _ => {
                let by = self.random.below(2_001) as i64 - 1_000;
                self.servers[host].clock.step_wall(by);
            }
        }
    }

    /// CONFIG SET repl-diskless-load, whatever arrives or is loaded meanwhile.
    fn set_load_mode(&mut self, host: Host) {
        let mode = *self.random.pick(&LoadMode::ALL);
        self.servers[host].load = mode;
        self.note(|| format!("operator: {host} loads as {mode:?} from now on"));
    }

    fn reset_connection(&mut self) {
        let open = self.network.open();
        if !open.is_empty() {
            let id = *self.random.pick(&open);
            self.note(|| format!("{id:?} is reset"));
            self.network.reset(id, &mut self.queue, &mut self.random);
        }
    }

    fn cut(&mut self, from: Host, to: Host) {
        let until = self.queue.now() + self.random.between(100, 8_000);
        self.note(|| format!("nothing gets from {from} to {to} until {until}"));
        self.network.cut(from, to, until);
        if self.random.percent(50) {
            self.network.cut(to, from, until);
        }
    }

    fn isolate(&mut self, host: Host) {
        let until = self.queue.now() + self.random.between(100, 9_000);
        self.note(|| format!("server {host} is cut off until {until}"));
        for other in 0..self.servers.len() {
            self.network.cut(host, other, until);
            self.network.cut(other, host, until);
        }
    }

    fn crash(&mut self, host: Host) {
        if !self.servers[host].is_up {
            return;
        }
        self.stop(host);
        let delay = self.random.between(10, 5_000);
        self.queue.after(delay, Event::Restart(host));
    }

    /// SHUTDOWN: what it has is on its disk when it goes, and it is back soon.
    fn end_cleanly(&mut self, host: Host) {
        let server = &mut self.servers[host];
        if !server.is_up || server.is_flushed() {
            return;
        }
        let facts = server.replication.facts();
        let bytes = server.data.encode(facts.map_or(0, |facts| facts.db));
        server.disk = Some(Saved { facts, bytes });
        self.note(|| format!("server {host} ends"));
        self.stop(host);
        let role = self.servers[host].replication.role();
        let delay = self.random.between(10, 2_000);
        self.queue.after(delay, Event::Back(host, role));
    }

    /// A server is gone, with or without a word.
    pub(crate) fn stop(&mut self, host: Host) {
        self.note(|| format!("server {host} crashes"));
        let is_silent = self.random.percent(40);
        self.network.stop_host(host, is_silent, &mut self.queue, &mut self.random);
        let real = self.queue.now();
        let server = &mut self.servers[host];
        server.is_up = false;
        server.lost_at = real;
    }

    /// The data of the last save, or none; the role of before, or a primary.
    pub(crate) fn restart(&mut self, host: Host) {
        if self.servers[host].is_up {
            return;
        }
        let role = match self.random.percent(50) {
            true => self.servers[host].replication.role(),
            false => Role::Primary,
        };
        self.restart_as(host, role);
    }

    pub(crate) fn restart_as(&mut self, host: Host, role: Role) {
        let real = self.queue.now();
        let clock = self.servers[host].clock.clone();
        let mut replication = self.new_replication(host, &clock);
        let old = &self.servers[host];
        let counts = old.replication.sync_counts();
        self.counts_of_the_dead.0 += counts.full;
        self.counts_of_the_dead.1 += counts.partial_done;
        let mut data = Data::default();
        if let Some(Saved { facts, bytes }) = &old.disk {
            data = Data::decode(bytes).expect("a disk keeps what was saved").0;
            if let Some(facts) = facts {
                replication.restore(old.now(real), *facts, &role);
            }
            if self.flaw == Some(Flaw::EndedKeysLeftOut) && role == Role::Primary {
                data.drop_ended(clock.wall(real));
            }
        }
        let mut server = Server::new(replication, clock, self.flaw);
        (server.data, server.disk, server.life) = (data, old.disk.clone(), old.life + 1);
        server.load = old.load;
        server.lost_at = real;
        self.servers[host] = server;
        self.note(|| format!("server {host} starts as {role:?}"));
        if let Role::Replica(primary) = role {
            self.follow(host, usize::from(primary.port));
        }
        self.judge_host(host);
        self.turn(host);
    }

    pub(crate) fn save(&mut self, host: Host) {
        let server = &mut self.servers[host];
        if server.is_up && !server.is_flushed() {
            let facts = server.replication.facts();
            let bytes = server.data.encode(facts.map_or(0, |facts| facts.db));
            let saved = Saved { facts, bytes };
            let delay = self.random.between(0, 1_000);
            let life = server.life;
            self.queue.after(delay, Event::OnDisk { host, life, saved });
        }
    }

    /// The disk has it, unless the server was gone before.
    pub(crate) fn finish_own_save(&mut self, host: Host, life: u32, saved: Saved) {
        let server = &mut self.servers[host];
        if server.is_up && server.life == life {
            let facts = match server.has(Flaw::SaveDescribedLate) {
                true => server.replication.facts(),
                false => saved.facts,
            };
            server.disk = Some(Saved { facts, ..saved });
        }
    }

    /// What a sentinel does, without its care: somebody is promoted, the others follow.
    fn change_primary(&mut self, host: Host) {
        self.promote(host);
        for other in 0..self.servers.len() {
            if self.random.percent(70) {
                self.follow(other, host);
            }
        }
    }

    /// On a primary, if the first guess or the second is one.
    fn start_failover(&mut self) {
        let real = self.queue.now();
        let (mut host, other) = (self.any_host(), self.any_host());
        if !self.servers[host].replication.is_primary() {
            host = self.any_host();
        }
        let has_target = self.random.percent(50);
        let timeout = self.random.percent(70).then(|| self.random.between(50, 4_000));
        let request = FailoverRequest {
            to: has_target.then(|| address_of(other)),
            is_forced: has_target && timeout.is_some() && self.random.percent(40),
            timeout: timeout.map(Duration::from_millis),
        };
        let server = &mut self.servers[host];
        if !server.is_up {
            return;
        }
        let now = server.now(real);
        let outcome = server.replication.start_failover(now, request.clone());
        self.note(|| format!("operator: FAILOVER on {host}, {request:?}: {outcome:?}"));
        if outcome.is_err() && self.random.percent(50) {
            _ = self.servers[host].replication.abort_failover(now);
        }
        self.carry_out(host);
        self.turn(host);
    }

    fn pause(&mut self, host: Host) {
        let until = self.queue.now() + self.random.between(100, 2_000);
        self.servers[host].paused_until = until;
        self.turn(host);
    }

    /// Everything works, and an operator puts the servers in order: a star, or a chain.
    pub(crate) fn heal(&mut self) {
        self.note(|| "everything is healed".to_owned());
        self.network.set_weather(self.climate.fair_weather());
        // What is still on its way would change roles behind the operator's back.
        for id in self.network.open() {
            self.network.reset(id, &mut self.queue, &mut self.random);
        }
        for host in 0..self.servers.len() {
            self.restart(host);
            self.servers[host].paused_until = 0;
        }
        let now = self.queue.now();
        let primary = self.any_host();
        for host in 0..self.servers.len() {
            let server = &mut self.servers[host];
            let now = server.now(now);
            _ = server.replication.abort_failover(now);
            self.carry_out(host);
        }
        self.promote(primary);
        let is_chain = self.random.percent(30);
        let mut last = primary;
        for host in (0..self.servers.len()).filter(|host| *host != primary) {
            self.follow(host, last);
            last = if is_chain { host } else { primary };
        }
        self.large_values_left = 2;
        self.syncs_before = self.sync_counts();
    }
}
