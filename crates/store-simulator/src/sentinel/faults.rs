//! Everything that breaks: networks, machines, processes, clocks.

use store_replica::{Address, Role, SessionId};
use store_resp::{Protocol, Reply};
use store_sentinel::{AdminRequest, FailoverStep, Hello, RunId, Surroundings};

use super::climate::{GROUP, name_of, sentinel_address, server_address};
use super::flaw::Flaw;
use super::world::{Event, World};
use crate::network::{Delivery, Host, Side};
use crate::queue::Real;

/// A gap in time that every sentinel must notice.
const NOTICED: Real = 2_500;

/// What an operator means by `*`.
struct Everything;

impl Surroundings for Everything {
    fn is_executable(&self, _: &str) -> bool {
        false
    }

    fn matches(&self, _: &[u8], _: &str) -> bool {
        true
    }
}

fn is_promoted(step: &FailoverStep) -> bool {
    matches!(step, FailoverStep::Reconfigure { .. } | FailoverStep::UpdateConfig { .. })
}

impl World {
    pub(crate) fn fault(&mut self) {
        if self.is_healed() {
            return;
        }
        let delay = self.random.between(1, 2 * self.climate.fault_every);
        self.queue.after(delay, Event::Fault);
        // A majority of sentinels that have not met is no majority.
        if !self.have_met() {
            return;
        }
        let hosts = self.climate.servers + self.nodes.len();
        let (host, other) = (self.below(hosts), self.below(hosts));
        let (server, node) = (self.below(self.climate.servers), self.below(self.nodes.len()));
        // Only who crashes can have forgotten anything.
        if self.flaw == Some(Flaw::NoSaveBeforeVote) && self.random.percent(50) {
            return self.crash_node(node);
        }
        match self.random.below(26) {
            0..5 => self.crash_primary(),
            5 | 6 => self.crash_server(server),
            7 | 8 => self.crash_node(node),
            9..12 => self.pause(node),
            12 => self.jump(node),
            13..16 => self.cut(host, other),
            16 | 17 => self.isolate(host),
            18 | 19 => self.isolate_with_primary(node),
            20 | 21 => self.cut_replica_off(),
            22 | 23 => self.begin_history_without_a_replica(),
            _ => self.reset_connection(),
        }
    }

    /// A sentinel hears a hello of another one, in which something broke the epoch.
    pub(crate) fn break_epoch(&mut self) {
        const EVERY: Real = 7_000;
        /// The greatest that a sentinel believes; the flawed one takes all others for it.
        const BELIEVED_MAX: u64 = i64::MAX as u64 - (1 << 32);
        if self.is_healed() {
            return;
        }
        self.queue.after(EVERY, Event::BreakEpoch);
        let real = self.queue.now();
        let node = (real / EVERY) as usize % self.nodes.len();
        let other = (node + 1) % self.nodes.len();
        if !self.nodes[node].is_up || self.nodes[node].is_paused(real) {
            return;
        }
        let epoch = match self.flaw {
            Some(Flaw::BelieveEveryEpoch) => BELIEVED_MAX,
            _ => [BELIEVED_MAX + 1, i64::MAX as u64, u64::MAX][(real / EVERY) as usize % 3],
        };
        self.note(|| format!("sentinel {node} hears of epoch {epoch}"));
        let hello = Hello {
            address: sentinel_address(other),
            id: RunId::parse(name_of(other).as_bytes()).expect("a name"),
            current_epoch: epoch,
            group: GROUP.to_owned(),
            primary: self.nodes[node].group().address().clone(),
            config_epoch: 0,
        };
        let text = hello.to_text();
        self.input(node, |sentinel, now| sentinel.handle_hello(now, text.as_bytes()));
    }

    /// As behind a network that translates addresses, or in containers that all have the same one.
    pub(crate) fn misaddress(&mut self) {
        const EVERY: Real = 11_000;
        const LASTS: Real = 6_000;
        if self.is_healed() {
            return;
        }
        self.queue.after(EVERY, Event::Misaddress);
        if self.has_begun {
            let real = self.queue.now();
            let who = (real / EVERY) as usize % self.nodes.len();
            let whose = (who + 1) % self.nodes.len();
            self.note(|| format!("sentinel {who} says that it is where sentinel {whose} is"));
            self.misaddressed = Some((who, whose, real + LASTS));
        }
    }

    /// SENTINEL RESET, at any moment of a failover. It is always the same sentinel: the others
    /// remember replicas whose primary is gone.
    pub(crate) fn reset(&mut self) {
        const EVERY: Real = 1_700;
        const NODE: usize = 0;
        if self.is_healed() {
            return;
        }
        self.queue.after(EVERY, Event::Reset);
        let real = self.queue.now();
        let node = &self.nodes[NODE];
        let is_promoted = node.group().failover_step().is_some_and(is_promoted);
        // Mostly there is nothing to lose. And a sentinel that has forgotten the others would take
        // a lower quorum for a majority.
        let is_time = is_promoted || real % (8 * EVERY) < EVERY;
        let has_quorum = self.climate.quorum > self.nodes.len() / 2;
        if !self.has_begun || !is_time || !has_quorum || !node.is_up || node.is_paused(real) {
            return;
        }
        self.note(|| format!("sentinel {NODE} is reset"));
        if self.flaw == Some(Flaw::ResetForgetsPromotion) && is_promoted {
            return self.forget_promotion(NODE);
        }
        let (session, protocol) = (SessionId(0), Protocol::Resp2);
        let request = AdminRequest { session, protocol, words: &[b"reset", b"*"] };
        self.input(NODE, |sentinel, now| sentinel.handle_command(now, request, &Everything));
    }

    /// The flaw: as if nobody had been promoted, in the epoch in which somebody was.
    fn forget_promotion(&mut self, node: usize) {
        let group = self.nodes[node].group();
        let (epoch, new) = (group.config_epoch(), group.address().clone());
        let old = self.judge.address_before(epoch).unwrap_or(server_address(0));
        let line = |at: &Address| format!("monitor {GROUP} {} {} ", at.host, at.port);
        let disk = &mut self.nodes[node].disk;
        *disk = disk.replace(&line(&new), &line(&old));
        self.crash_node(node);
    }

    /// A hello as it is told where addresses are translated.
    pub(crate) fn as_it_is_told(&self, node: usize, text: &[u8]) -> Vec<u8> {
        let hello = Hello::parse(text).expect("sentinels say what they should");
        let now = self.queue.now();
        match self.misaddressed {
            // Whoever tells it knows its own words.
            Some((who, whose, until))
                if who != node && now < until && hello.id.as_str() == name_of(who) =>
            {
                let mut address = sentinel_address(whose);
                if self.flaw == Some(Flaw::VotesByName) {
                    // Another name for the same place.
                    address.host.push('0');
                }
                Hello { address, ..hello }.to_text().into_bytes()
            }
            _ => text.to_vec(),
        }
    }

    /// A message of a subscription, which may be a hello.
    pub(crate) fn message_as_it_is_told(&self, node: usize, reply: Reply) -> Reply {
        match reply {
            Reply::Array(mut items) => {
                if let [Reply::Bulk(kind), _, Reply::Bulk(text)] = &mut items[..]
                    && kind == b"message"
                {
                    *text = self.as_it_is_told(node, text);
                }
                Reply::Array(items)
            }
            reply => reply,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    /// Whether all sentinels have known all others and all servers, and would after a restart, too.
    /// A replica that nobody has heard of is nobody's to turn to a new primary.
    fn have_met(&mut self) -> bool {
        let others = match self.flaw {
            Some(Flaw::ElectedWithoutMajority) => 1,
            _ => self.nodes.len() - 1,
        };
        let replicas = self.climate.servers - 1;
        self.has_begun = self.has_begun
            || self.nodes.iter().all(|node| {
                let has = |setting: &str, count| node.disk.matches(setting).count() >= count;
                has("known-sentinel", others) && has("known-replica", replicas)
            });
        self.has_begun
    }

    /// The server that is a primary and has replicas, or else any.
    fn primary(&mut self) -> usize {
        let servers = &self.stores.servers;
        let leads = |server: &usize| {
            let replication = &servers[*server].replication;
            replication.is_primary() && replication.replicas().iter().any(|r| r.is_online())
        };
        match (0..servers.len()).find(leads) {
            Some(server) => server,
            None => self.below(self.climate.servers),
        }
    }

    fn crash_primary(&mut self) {
        let primary = self.primary();
        self.crash_server(primary);
    }

    /// The primary is back before anybody misses it, with a new history, and gone again a while
    /// later. A replica that does not reach it meanwhile is left with the old history.
    fn begin_history_without_a_replica(&mut self) {
        let (primary, replica) = (self.primary(), self.below(self.climate.servers));
        if primary == replica || !self.stores.servers[primary].is_up {
            return;
        }
        let (back_at, lives_for) =
            (self.random.between(50, 900), self.random.between(2_000, 8_000));
        let until = self.queue.now() + lives_for + 12_000;
        self.note(|| format!("server {replica} does not reach server {primary} until {until}"));
        self.stores.network.cut(primary, replica, until);
        self.stores.network.cut(replica, primary, until);
        self.crash_server_for(primary, back_at);
        self.queue.after(back_at + lives_for, Event::Crash(primary));
    }

    pub(crate) fn crash_again(&mut self, server: usize) {
        if !self.is_healed() {
            self.crash_server(server);
        }
    }

    fn crash_server(&mut self, server: usize) {
        let delay = self.random.between(100, 40_000);
        self.crash_server_for(server, delay);
    }

    fn crash_server_for(&mut self, server: usize, delay: Real) {
        if !self.stores.servers[server].is_up {
            return;
        }
        self.note(|| format!("server {server} crashes"));
        self.stores.stop(server);
        let is_silent = self.random.percent(40);
        self.network.stop_host(server, is_silent, &mut self.queue, &mut self.random);
        self.forget_accepted(server);
        self.queue.after(delay, Event::RestartServer(server));
    }

    /// With the role of its file, which whoever changed it has written.
    pub(crate) fn restart_server(&mut self, server: usize) {
        if self.stores.servers[server].is_up {
            return;
        }
        let role: Role = self.stores.servers[server].replication.role();
        self.note(|| format!("server {server} starts as {role:?}"));
        self.stores.restart_as(server, role);
    }

    /// Servers save now and then, or every restart would lose everything.
    pub(crate) fn save(&mut self) {
        for server in 0..self.climate.servers {
            if self.random.percent(40) {
                self.stores.save(server);
            }
        }
        self.queue.after(2_000, Event::Save);
    }

    fn crash_node(&mut self, node: usize) {
        if !self.nodes[node].is_up {
            return;
        }
        self.note(|| format!("sentinel {node} crashes"));
        let host = self.host_of(node);
        let is_silent = self.random.percent(40);
        self.network.stop_host(host, is_silent, &mut self.queue, &mut self.random);
        self.forget_accepted(host);
        self.nodes[node].is_up = false;
        let is_quick = self.flaw == Some(Flaw::NoSaveBeforeVote);
        let delay = self.random.between(50, if is_quick { 2_000 } else { 15_000 });
        self.queue.after(delay, Event::RestartNode(node));
    }

    pub(crate) fn restart_node(&mut self, node: usize) {
        if self.nodes[node].is_up {
            return;
        }
        self.note(|| format!("sentinel {node} starts with its file"));
        let real = self.queue.now();
        self.nodes[node].restart(node, real, &mut self.random);
        self.judge.forget_heard(node);
        self.queue.after(0, Event::Wake(node, self.nodes[node].life));
    }

    /// A process stands still; the kernel takes what comes for it.
    fn pause(&mut self, node: usize) {
        let real = self.queue.now();
        if !self.nodes[node].is_up || self.nodes[node].is_paused(real) {
            return;
        }
        let until = real + self.random.between(100, 9_000);
        self.note(|| format!("sentinel {node} stands still until {until}"));
        self.nodes[node].paused_until = until;
        if until - real > NOTICED {
            self.nodes[node].stood_still_at = Some(until);
        }
        self.queue.at(until, Event::Resume(node, self.nodes[node].life));
    }

    pub(crate) fn resume(&mut self, node: usize, life: u32) {
        if !self.nodes[node].is_up || self.nodes[node].life != life {
            return;
        }
        self.nodes[node].paused_until = 0;
        self.wake(node, life);
        let missed = std::mem::take(&mut self.nodes[node].missed);
        for delivery in &missed {
            if let Delivery::Opened(id) = delivery {
                self.opened(node, *id);
            }
        }
        let host = self.host_of(node);
        let dialed: Vec<_> = self.nodes[node].dialed.keys().copied().collect();
        for id in dialed {
            self.read(id, Side::Dialer);
        }
        let accepted: Vec<_> = self.accepted.keys().copied().collect();
        for id in accepted {
            if self.network.host(id, Side::Listener) == host {
                self.read(id, Side::Listener);
            }
        }
        for delivery in missed {
            if let Delivery::Closed(id, at) = delivery {
                self.closed(id, at);
            }
        }
    }

    /// A clock goes on as after a suspend: by more than any process sleeps.
    fn jump(&mut self, node: usize) {
        let real = self.queue.now();
        let by = self.random.between(NOTICED, 60_000);
        if !self.nodes[node].is_up || self.nodes[node].is_paused(real) {
            return;
        }
        self.note(|| format!("the clock of sentinel {node} jumps by {by}"));
        self.nodes[node].jumped += by;
        self.nodes[node].stood_still_at = Some(real);
    }

    fn cut(&mut self, from: Host, to: Host) {
        let until = self.queue.now() + self.random.between(300, 15_000);
        let is_both_ways = self.random.percent(60);
        self.note(|| {
            let arrow = if is_both_ways { "between" } else { "from" };
            format!("nothing gets {arrow} host {from} and {to} until {until}")
        });
        self.cut_path(from, to, until);
        if is_both_ways {
            self.cut_path(to, from, until);
        }
    }

    fn cut_path(&mut self, from: Host, to: Host, until: Real) {
        self.network.cut(from, to, until);
        let servers = self.climate.servers;
        if from < servers && to < servers {
            self.stores.network.cut(from, to, until);
        }
    }

    fn isolate(&mut self, host: Host) {
        let until = self.queue.now() + self.random.between(300, 20_000);
        self.note(|| format!("host {host} is cut off until {until}"));
        for other in 0..self.climate.servers + self.nodes.len() {
            self.cut_path(host, other, until);
            self.cut_path(other, host, until);
        }
    }

    /// A primary that one sentinel still reaches, and nobody else.
    fn isolate_with_primary(&mut self, node: usize) {
        let until = self.queue.now() + self.random.between(3_000, 25_000);
        let primary = self.primary();
        self.note(|| format!("server {primary} and sentinel {node} are cut off until {until}"));
        let host = self.host_of(node);
        for other in 0..self.climate.servers + self.nodes.len() {
            if other != primary && other != host {
                for inside in [primary, host] {
                    self.cut_path(inside, other, until);
                    self.cut_path(other, inside, until);
                }
            }
        }
    }

    /// A replica that everybody reaches but its primary: its data grows old.
    fn cut_replica_off(&mut self) {
        let (primary, replica) = (self.primary(), self.below(self.climate.servers));
        if primary == replica {
            return;
        }
        let until = self.queue.now() + self.random.between(10_000, 50_000);
        self.note(|| format!("server {replica} does not reach server {primary} until {until}"));
        self.stores.network.cut(primary, replica, until);
        self.stores.network.cut(replica, primary, until);
    }

    fn reset_connection(&mut self) {
        let open = self.network.open();
        if !open.is_empty() {
            let id = *self.random.pick(&open);
            self.network.reset(id, &mut self.queue, &mut self.random);
        }
    }

    /// Everything works from here on; nobody is told what to do.
    pub(crate) fn heal(&mut self) {
        self.note(|| "everything is healed".to_owned());
        let weather = self.climate.fair_weather();
        self.network.set_weather(weather);
        let weather = self.stores.climate.fair_weather();
        self.stores.network.set_weather(weather);
        for server in 0..self.climate.servers {
            self.restart_server(server);
        }
        for node in 0..self.nodes.len() {
            self.restart_node(node);
        }
    }
}
