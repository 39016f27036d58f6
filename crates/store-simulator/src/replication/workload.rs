//! Clients: they write, read, block and wait.

use store_replica::Access;

use super::data::{Change, ChangeKind, DATABASES};
use super::flaw::Flaw;
use super::judge::Rule;
use super::server::BlockedClient;
use super::world::{Event, Wait, World};
use crate::network::{Host, Side};

impl World {
    pub(crate) fn client_writes(&mut self) {
        if self.is_quiet() {
            return;
        }
        let delay = self.random.between(1, 2 * self.climate.write_every);
        self.queue.after(delay, Event::Write);
        let host = self.any_host();
        let real = self.queue.now();
        if !self.servers[host].takes_writes(real) {
            return;
        }
        if self.random.percent(10) {
            return self.client_blocks(host);
        }
        let changes = self.draw_unit(host);
        for (db, change) in &changes {
            self.servers[host].find(real, *db, change.key, Access::Write);
            self.carry_out(host);
            self.judge_host(host);
        }
        let offset = self.servers[host].write(real, &changes);
        self.writes_taken += 1;
        let write = changes[0].1.write;
        self.note(|| format!("server {host}: write {write} up to {offset}"));
        self.judge_host(host);
        self.then_wait(host, write, offset);
        for (db, change) in changes {
            self.wake_blocked(host, db, change);
        }
        self.turn(host);
    }

    fn draw_unit(&mut self, host: Host) -> Vec<(usize, Change)> {
        self.writes_made += 1;
        let write = self.writes_made;
        let count = if self.random.percent(25) { self.random.between(2, 3) } else { 1 };
        let mut unit = Vec::new();
        for _ in 0..count {
            let (mut db, key) = self.any_key();
            // Most clients stay in a database: a stream without SELECT is the common one.
            if self.random.percent(60) {
                db = host % DATABASES;
            }
            let kind = match self.random.below(10) {
                0..5 => self.draw_set(host),
                5..8 => ChangeKind::Increment,
                _ => ChangeKind::Delete,
            };
            unit.push((db, Change { write, key, kind }));
        }
        unit
    }

    fn draw_set(&mut self, host: Host) -> ChangeKind {
        let real = self.queue.now();
        let is_large = self.random.percent(4) && self.large_values_left > 0;
        self.large_values_left -= u32::from(is_large);
        let max = if is_large { self.climate.value_max } else { 40 };
        let padding = self.random.between(max * 9 / 10, max) as usize;
        let ttl = self.random.between(50, self.climate.ttl_max);
        let expires_at = self.servers[host].clock.wall(real) + ttl;
        let expires_at = self.random.percent(30).then_some(expires_at);
        ChangeKind::Set { padding, expires_at }
    }

    /// A client waits for a key that others set.
    fn client_blocks(&mut self, host: Host) {
        let (db, key) = self.any_key();
        let session = self.new_session();
        self.servers[host].blocked.push(BlockedClient { session, db, key });
    }

    /// Who waited for a key that was set takes it: a write of its own, in its own session.
    fn wake_blocked(&mut self, host: Host, db: usize, change: Change) {
        let real = self.queue.now();
        let server = &mut self.servers[host];
        let is_set = matches!(change.kind, ChangeKind::Set { expires_at: None, .. });
        let place = server.blocked.iter().position(|b| b.db == db && b.key == change.key);
        let Some(place) = place.filter(|_| is_set) else { return };
        let blocked = server.blocked.remove(place);
        self.writes_made += 1;
        let write = self.writes_made;
        let taken = Change { write, key: blocked.key, kind: ChangeKind::Delete };
        let mut offset = server.write(real, &[(db, taken)]);
        if server.has(Flaw::OffsetNotSetOnWake) {
            offset = 0;
        }
        self.judge_host(host);
        let server = &self.servers[host];
        let (life, reign, session) = (server.life, server.reign, blocked.session);
        let wait = Wait { host, life, reign, session, write, offset };
        self.queue.after(0, Event::Wait(wait));
    }

    fn then_wait(&mut self, host: Host, write: u32, offset: u64) {
        if !self.random.percent(40) {
            return;
        }
        let session = self.new_session();
        let server = &self.servers[host];
        let (life, reign) = (server.life, server.reign);
        let wait = Wait { host, life, reign, session, write, offset };
        let delay = if self.random.percent(60) { 0 } else { self.random.between(0, 3_000) };
        self.queue.after(delay, Event::Wait(wait));
    }

    pub(crate) fn client_waits(&mut self, wait: Wait) {
        let count = self.random.between(1, self.servers.len() as u64 - 1) as usize;
        let timeout = std::time::Duration::from_millis(self.random.between(50, 3_000));
        let real = self.queue.now();
        let server = &mut self.servers[wait.host];
        if !server.is_up || (server.life, server.reign) != (wait.life, wait.reign) {
            return;
        }
        let now = server.now(real);
        let until = Some(now + timeout);
        match server.replication.wait(now, wait.session, wait.offset, count, until) {
            Some(count) => self.judge_wait(wait.host, wait.write, count),
            None => _ = server.waiting.insert(wait.session, wait.write),
        }
        self.turn(wait.host);
    }

    /// As many replicas as were counted have it, or had it when they said so and lost it since,
    /// which nobody can know yet.
    pub(crate) fn judge_wait(&mut self, host: Host, write: u32, count: usize) {
        self.waits_done += u64::from(count > 0);
        let server = &self.servers[host];
        let connections = server.peers.values().map(|peer| peer.connection);
        let have = connections.filter(|id| {
            let replica = &self.servers[self.network.host(*id, Side::Dialer)];
            replica.data.has_write(write) || replica.lost_at >= self.network.opened_at(*id)
        });
        let have = have.count();
        let real = self.queue.now();
        self.note(|| format!("server {host}: {count} replicas have write {write}"));
        if count > have {
            self.judge.broken(Rule::R3, real, || {
                format!("server {host} counted {count} for write {write}, {have} have it")
            });
        }
    }

    pub(crate) fn client_reads(&mut self) {
        let delay = self.random.between(1, 2 * self.climate.write_every);
        self.queue.after(delay, Event::Read);
        let host = self.any_host();
        let real = self.queue.now();
        let server = &mut self.servers[host];
        if !server.is_up || server.loading.is_some() {
            return;
        }
        // A primary also looks for what has expired by itself.
        let is_active = server.replication.is_primary() && !server.is_paused(real);
        let expired = server.data.expired(server.clock.wall(real));
        let places = match expired.first() {
            Some(place) if is_active || self.random.percent(50) => vec![*place],
            _ => vec![self.any_key()],
        };
        for (db, key) in places {
            let server = &mut self.servers[host];
            let found = server.find(real, db, key, Access::Read);
            let wall = server.clock.wall(real);
            if found.is_some_and(|expires_at| expires_at <= wall) {
                self.judge.broken(Rule::R4, real, || format!("server {host} shows an ended key"));
            }
            self.judge_host(host);
        }
        self.turn(host);
    }
}
