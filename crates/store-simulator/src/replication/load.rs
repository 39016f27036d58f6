//! A primary's payload at a replica: when the old data goes for it, and how it may fail.

use store_replica::REFUSED_LOADS_MAX;

use super::data::Data;
use super::flaw::Flaw;
use super::judge::Rule;
use super::server::{Incoming, LoadMode};
use super::world::{Event, World};
use crate::network::Host;

/// The server that takes no payload, where one does not.
const REFUSER: Host = 1;

impl World {
    /// How a payload is loaded is settled by its first bytes. Whoever reads it may find early that
    /// it is of no use.
    pub(crate) fn take_payload(&mut self, host: Host, bytes: &[u8]) {
        let is_bad = !self.is_healed() && self.random.percent(1);
        let is_refused = self.refuses(host) && self.random.percent(20);
        let real = self.queue.now();
        let server = &mut self.servers[host];
        if server.incoming.is_none() {
            let was_described = server.replication.facts().is_some();
            let (mode, bytes) = (server.load, Vec::new());
            server.incoming = Some(Incoming { mode, bytes, was_described, is_flushed: false });
            if mode == LoadMode::Direct {
                server.drop_data(real);
            }
        }
        if let Some(incoming) = &mut server.incoming {
            incoming.bytes.extend(bytes);
        }
        if is_bad || is_refused {
            self.fail_load(host);
        }
    }

    /// Whether it takes no payload for now, whatever is in it.
    fn refuses(&self, host: Host) -> bool {
        self.climate.has_refuser && host == REFUSER && !self.is_healed()
    }

    /// The payload is whole. One that was kept aside is looked at before the old data goes.
    pub(crate) fn start_load(&mut self, host: Host) {
        self.tickets_made += 1;
        let ticket = self.tickets_made;
        let delay = self.random.between(0, self.climate.load_max);
        let server = &mut self.servers[host];
        let Some(incoming) = &server.incoming else { return };
        let event = match incoming.mode {
            LoadMode::Spool => Event::Checked { host, ticket },
            LoadMode::Direct | LoadMode::Swap => Event::Loaded { host, ticket },
        };
        server.loading = Some(ticket);
        if server.has(Flaw::ForgottenEarly) {
            let now = server.now(self.queue.now());
            server.replication.handle_data_forgotten(now);
        }
        self.queue.after(delay, event);
    }

    /// The payload that is kept aside is good, or is not: only now the old data goes.
    pub(crate) fn finish_check(&mut self, host: Host, ticket: u64) {
        let fails = !self.is_healed() && self.random.percent(10) || self.refuses(host);
        let delay = self.random.between(0, self.climate.load_max);
        let real = self.queue.now();
        let server = &mut self.servers[host];
        if server.loading != Some(ticket) {
            return;
        }
        if fails {
            self.fail_load(host);
        } else {
            server.drop_data(real);
            self.queue.after(delay, Event::Loaded { host, ticket });
        }
        self.turn(host);
    }

    pub(crate) fn finish_load(&mut self, host: Host, ticket: u64) {
        let fails = !self.is_healed() && self.random.percent(10) || self.refuses(host);
        let real = self.queue.now();
        let server = &mut self.servers[host];
        let Some(incoming) = server.incoming.as_ref().filter(|_| server.loading == Some(ticket))
        else {
            return;
        };
        let loaded = Data::decode(&incoming.bytes);
        if loaded.is_none() {
            let len = incoming.bytes.len();
            self.judge.broken(Rule::R1, real, || format!("a bad payload of {len} bytes"));
        }
        let server = &mut self.servers[host];
        match loaded.filter(|_| !fails) {
            Some((data, db)) => {
                if !server.is_flushed() {
                    server.drop_data(real);
                }
                (server.incoming, server.loading) = (None, None);
                server.data = data;
                let now = server.now(real);
                server.replication.handle_loaded(now, Some(db));
            }
            None => self.fail_load(host),
        }
        self.note(|| format!("server {host}: loaded, {}", if fails { "failed" } else { "well" }));
        self.turn(host);
    }

    /// The payload is of no use. As long as the old data is there, it can be continued.
    fn fail_load(&mut self, host: Host) {
        let (real, is_refused) = (self.queue.now(), self.refuses(host));
        let server = &mut self.servers[host];
        let Some(incoming) = server.incoming.take() else { return };
        server.loading = None;
        let now = server.now(real);
        match is_refused && !server.has(Flaw::AsksForEver) {
            true => server.replication.handle_refused(now),
            false => server.replication.handle_loaded(now, None),
        }
        server.refused += u32::from(is_refused);
        let refused = server.refused;
        let is_described = server.replication.facts().is_some();
        if incoming.was_described && !incoming.is_flushed && !is_described {
            let what = || format!("server {host} has its data, and has to get all of it anew");
            self.judge.broken(Rule::R5, real, what);
        }
        if refused > REFUSED_LOADS_MAX {
            let what = || format!("server {host} asks for what it refused {refused} times");
            self.judge.broken(Rule::R5, real, what);
        }
    }
}
