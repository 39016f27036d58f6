//! A world by seed: events in order until it ends or a rule is broken.

use store_replica::{LinkPhase, Replication, Role, Secrets, SessionId};

use super::climate::{Climate, ENDS_AT, HEALS_AT, QUIET_AT};
use super::data::Key;
use super::flaw::Flaw;
use super::judge::{Judge, Rule, Violation};
use super::server::{LoadMode, Saved, Server};
use crate::clock::Clock;
use crate::network::{Delivery, Host, Network};
use crate::queue::{Queue, Real};
use crate::random::Random;

/// Events of one world, at most: one that goes round in circles is found, too.
const EVENTS_MAX: u64 = 400_000;

/// A turn, a client, an operator or the network.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Network(Delivery),
    /// A server looks after everything.
    Turn(Host),
    /// It wakes by its own clock.
    Wake(Host, u32),
    /// A payload that was kept aside has been looked at.
    Checked {
        host: Host,
        ticket: u64,
    },
    Loaded {
        host: Host,
        ticket: u64,
    },
    Saved {
        host: Host,
        ticket: u64,
    },
    /// A snapshot that had to wait may begin.
    MayStartSnapshot {
        host: Host,
        life: u32,
    },
    /// A server's own save is done.
    OnDisk {
        host: Host,
        life: u32,
        saved: Saved,
    },
    Write,
    Read,
    Wait(Wait),
    Fault,
    Restart(Host),
    /// One that ended cleanly is started as it was.
    Back(Host, Role),
    Heal,
    End,
}

/// A client asks how many replicas have its write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) host: Host,
    pub(crate) life: u32,
    pub(crate) reign: u32,
    pub(crate) session: SessionId,
    pub(crate) write: u32,
    pub(crate) offset: u64,
}

impl From<Delivery> for Event {
    fn from(delivery: Delivery) -> Self {
        Event::Network(delivery)
    }
}

/// What a world came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationOutcome {
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// Writes that were taken.
    pub writes: u64,
    /// Full and partial syncs of all servers.
    pub full_syncs: u64,
    /// Partial ones.
    pub partial_syncs: u64,
    /// WAITs that some replica satisfied.
    pub waits: u64,
    /// Every event on a line, where that was asked for.
    pub trace: Vec<String>,
}

/// Servers, their network, and everybody who uses or breaks them.
#[derive(Debug)]
pub struct World {
    pub(crate) climate: Climate,
    /// When faults end, and when the last write is made.
    pub(crate) heals_at: Real,
    pub(crate) quiet_at: Real,
    pub(crate) random: Random,
    pub(crate) queue: Queue<Event>,
    pub(crate) network: Network,
    pub(crate) servers: Vec<Server>,
    pub(crate) judge: Judge,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) sessions_made: u64,
    pub(crate) tickets_made: u64,
    pub(crate) writes_made: u32,
    pub(crate) writes_taken: u64,
    pub(crate) waits_done: u64,
    pub(crate) large_values_left: u32,
    pub(crate) syncs_before: (u64, u64),
    pub(crate) counts_of_the_dead: (u64, u64),
}

impl World {
    /// The world of a seed, as it should be.
    pub fn new(seed: u64) -> Self {
        Self::build(seed, None)
    }

    /// The world of a seed with a rule broken, watched for `rule` alone.
    pub fn flawed(seed: u64, flaw: Flaw, rule: Rule) -> Self {
        let mut world = Self::build(seed, Some(flaw));
        world.judge.only = Some(rule);
        world
    }

    /// The same, with a line for every event.
    pub fn traced(mut self) -> Self {
        self.trace = Some(Vec::new());
        self
    }

    /// Servers in a world of somebody else, who takes the part of operator and faults, and runs
    /// it event by event.
    pub(crate) fn attended(mut random: Random, servers: usize, heals_at: Real) -> Self {
        let mut climate = Climate::draw(&mut random);
        climate.servers = servers;
        climate.write_every *= 4;
        (climate.snapshots_wait, climate.has_refuser) = (false, false);
        let mut world = Self::with(random, climate, None);
        (world.heals_at, world.quiet_at) = (heals_at, heals_at);
        world.judge.only = Some(Rule::R1);
        world.begin();
        world
    }

    /// The role of whoever follows `primary`.
    pub(crate) fn role_of_replica(&self, primary: Host) -> Role {
        Role::Replica(super::driver::address_of(primary))
    }

    /// The next event happens, at the time that its queue says.
    pub(crate) fn step(&mut self) {
        if let Some(event) = self.queue.take_next() {
            self.happen(event);
        }
    }

    fn build(seed: u64, flaw: Option<Flaw>) -> Self {
        let mut random = Random::seeded(seed);
        let climate = Climate::draw(&mut random);
        Self::with(random, climate, flaw)
    }

    fn with(random: Random, climate: Climate, flaw: Option<Flaw>) -> Self {
        let mut world = Self {
            network: Network::new(climate.weather),
            climate,
            heals_at: HEALS_AT,
            quiet_at: QUIET_AT,
            random,
            queue: Queue::default(),
            servers: Vec::new(),
            judge: Judge::default(),
            flaw,
            trace: None,
            sessions_made: 0,
            tickets_made: 0,
            writes_made: 0,
            writes_taken: 0,
            waits_done: 0,
            large_values_left: 6,
            syncs_before: (0, 0),
            counts_of_the_dead: (0, 0),
        };
        for host in 0..world.climate.servers {
            let server = world.new_server(host);
            world.servers.push(server);
        }
        world
    }

    fn new_server(&mut self, host: Host) -> Server {
        let skew = self.climate.skew_max;
        let off_ppm = self.random.below(2_000) as i64 - 1_000;
        let ahead = self.random.below(2 * skew as u64 + 1) as i64 - skew;
        let clock = Clock::new(off_ppm, ahead);
        let replication = self.new_replication(host, &clock);
        let mut server = Server::new(replication, clock, self.flaw);
        server.load = *self.random.pick(&LoadMode::ALL);
        server
    }

    pub(crate) fn new_replication(&mut self, host: Host, clock: &Clock) -> Replication {
        let settings = self.climate.settings(host, self.flaw, &mut self.random);
        let mut secret = Random::seeded(self.random.word());
        let secrets = Secrets::new(move |bytes| {
            for byte in bytes {
                *byte = secret.word() as u8;
            }
        });
        let now = store_replica::Moment::from_ms(clock.monotonic(self.queue.now()));
        Replication::new(now, settings, secrets)
    }

    /// Runs it to its end, or to the first broken rule.
    pub fn run(mut self) -> ReplicationOutcome {
        self.begin();
        self.queue.at(500, Event::Fault);
        self.queue.at(HEALS_AT, Event::Heal);
        self.queue.at(ENDS_AT, Event::End);
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.queue.take_next() else { return self.finish() };
            if matches!(event, Event::End) {
                self.judge_end();
                return self.finish();
            }
            self.happen(event);
            if self.judge.violation.is_some() {
                return self.finish();
            }
        }
        let now = self.queue.now();
        self.judge.broken(Rule::R5, now, || format!("{EVENTS_MAX} events and no end"));
        self.finish()
    }

    fn begin(&mut self) {
        for host in 1..self.servers.len() {
            self.follow(host, 0);
        }
        self.queue.at(5, Event::Write);
        self.queue.at(7, Event::Read);
    }

    fn finish(mut self) -> ReplicationOutcome {
        if let Some(violation) = self.judge.violation.clone() {
            self.note(|| format!("{} IS BROKEN: {}", violation.rule, violation.what));
        }
        let (full, partial) = self.sync_counts();
        ReplicationOutcome {
            violation: self.judge.violation,
            writes: self.writes_taken,
            full_syncs: full,
            partial_syncs: partial,
            waits: self.waits_done,
            trace: self.trace.unwrap_or_default(),
        }
    }

    pub(crate) fn sync_counts(&self) -> (u64, u64) {
        let (mut full, mut partial) = self.counts_of_the_dead;
        for server in &self.servers {
            let counts = server.replication.sync_counts();
            full += counts.full;
            partial += counts.partial_done;
        }
        (full, partial)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Network(delivery) => self.deliver(delivery),
            Event::Turn(host) => self.turn(host),
            Event::Wake(host, life) => {
                let server = &mut self.servers[host];
                if server.life == life && server.wakes_at == Some(self.queue.now()) {
                    server.wakes_at = None;
                    self.turn(host);
                }
            }
            Event::Checked { host, ticket } => self.finish_check(host, ticket),
            Event::Loaded { host, ticket } => self.finish_load(host, ticket),
            Event::Saved { host, ticket } => self.finish_save(host, ticket),
            Event::MayStartSnapshot { host, life } => self.start_wanted_snapshot(host, life),
            Event::OnDisk { host, life, saved } => self.finish_own_save(host, life, saved),
            Event::Write => self.client_writes(),
            Event::Read => self.client_reads(),
            Event::Wait(wait) => self.client_waits(wait),
            Event::Fault => self.fault(),
            Event::Back(host, role) => {
                if !self.servers[host].is_up {
                    self.restart_as(host, role);
                }
            }
            Event::Restart(host) => self.restart(host),
            Event::Heal => self.heal(),
            Event::End => {}
        }
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.queue.now() >= self.heals_at
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.now() >= self.quiet_at
    }

    pub(crate) fn any_host(&mut self) -> Host {
        self.random.below(self.servers.len() as u64) as Host
    }

    pub(crate) fn any_key(&mut self) -> (usize, Key) {
        let db = self.random.below(super::data::DATABASES as u64) as usize;
        (db, self.random.below(6) as Key)
    }

    pub(crate) fn new_session(&mut self) -> SessionId {
        self.sessions_made += 1;
        SessionId(self.sessions_made)
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let now: Real = self.queue.now();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>6} {}", now, what()));
        }
    }

    /// After heal and a while: one primary, everybody else has what it has.
    fn judge_end(&mut self) {
        let now = self.queue.now();
        let primaries: Vec<Host> =
            (0..self.servers.len()).filter(|h| self.servers[*h].replication.is_primary()).collect();
        let [primary] = primaries.as_slice() else {
            return self.judge.broken(Rule::R5, now, || format!("primaries: {primaries:?}"));
        };
        let leader = &self.servers[*primary];
        let (history, digest) = (*leader.replication.history(), leader.data.digest());
        for (host, server) in self.servers.iter().enumerate().filter(|(host, _)| host != primary) {
            let own = *server.replication.history();
            let phase = server.replication.link_phase();
            if phase != Some(LinkPhase::Connected) || own.id() != history.id() {
                self.judge.broken(Rule::R5, now, || format!("server {host} is {phase:?} at last"));
            } else if own.offset() + STREAM_TAIL_MAX < history.offset() {
                self.judge.broken(Rule::R5, now, || format!("server {host} is still behind"));
            } else if server.data.digest() != digest {
                self.judge.broken(Rule::R1, now, || format!("server {host} differs at last"));
            }
        }
        self.judge_syncs();
    }

    /// One for each to get into line, one for each large value that is over its limit, and one
    /// more: a chain hands the first on. Partial ones cost little, but must not go round in
    /// circles.
    fn judge_syncs(&mut self) {
        const LARGE_VALUES: u64 = 2;
        const PARTIAL_MAX: u64 = 10;
        let now = self.queue.now();
        let replicas = self.servers.len() as u64 - 1;
        let (full, partial) = self.sync_counts();
        let (full, partial) = (full - self.syncs_before.0, partial - self.syncs_before.1);
        if full > replicas * (2 + LARGE_VALUES) + replicas {
            self.judge.broken(Rule::R5, now, || format!("{full} full syncs after the heal"));
        }
        if partial > replicas * PARTIAL_MAX {
            self.judge.broken(Rule::R5, now, || format!("{partial} partial syncs after the heal"));
        }
    }
}

/// PINGs and questions for acks may be on their way when a world ends.
const STREAM_TAIL_MAX: u64 = 200;
