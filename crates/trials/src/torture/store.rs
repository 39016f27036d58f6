//! The stores that are tormented, behind one trait: a new topology is one more of them.

use std::time::Duration;

use testkit::{RedisServer, RedisServerBuilder, SentinelGroup, WallClock, wait_until};

use super::net::Net;
use super::row::{Mode, Topology};

/// A store may need a while to be whole again: sentinels wait before they demote an old master.
pub(super) const WHOLE_AGAIN_MAX: Duration = Duration::from_secs(60);

/// What faults need to know of a store and do to it.
pub(super) trait Store {
    /// As clients take it, seen from a place of the network.
    fn address(&self, net: &mut Net, place: usize) -> String;
    /// All servers.
    fn nodes(&mut self) -> &mut [RedisServer];
    /// The server that matters most just now.
    fn main_node(&self) -> usize;
    /// Starts a server that has ended as a deployment would: empty, and knowing its place.
    fn rejoin(&mut self, node: usize);
    /// Whether everything is in its place and in step.
    fn is_whole(&mut self) -> bool;
    /// Waits until another than `old` has taken over.
    fn wait_for_promotion(&self, old: usize);
    /// Asks for a fail-over.
    fn fail_over(&mut self) {}
    /// Stops one of those who watch over the servers, or lets it run on.
    fn set_watcher_paused(&mut self, _paused: bool) {}
}

pub(super) fn start(
    topology: Topology,
    mode: Mode,
    net: &Net,
    clock: Option<&WallClock>,
) -> Box<dyn Store> {
    let under = |builder: RedisServerBuilder| match clock {
        Some(clock) => builder.under(clock),
        None => builder,
    };
    match topology {
        Topology::Single => {
            let server = under(RedisServer::builder()).on(&net.node(0)).start();
            Box::new(Single { server: [server] })
        }
        Topology::Sentinel => {
            let hosts: Vec<_> = (0..topology.nodes()).map(|node| net.node(node)).collect();
            let group = SentinelGroup::start_on(&hosts, under);
            Box::new(Watched { group, mode })
        }
    }
}

struct Single {
    server: [RedisServer; 1],
}

impl Store for Single {
    fn address(&self, net: &mut Net, place: usize) -> String {
        net.address_of(&self.server[0], place)
    }

    fn nodes(&mut self) -> &mut [RedisServer] {
        &mut self.server
    }

    fn main_node(&self) -> usize {
        0
    }

    fn rejoin(&mut self, _node: usize) {
        self.server[0].restart();
    }

    fn is_whole(&mut self) -> bool {
        self.server[0].cli(&["PING"]) == "PONG"
    }

    fn wait_for_promotion(&self, _old: usize) {}
}

struct Watched {
    group: SentinelGroup,
    mode: Mode,
}

impl Watched {
    /// Where replicas find a server.
    fn place_of(&self, node: usize) -> [String; 2] {
        let url = self.group.servers[node].url();
        let place = url.trim_start_matches("redis://");
        let (host, port) = place.split_once(':').expect("an address has a port");
        [host.to_owned(), port.to_owned()]
    }
}

impl Store for Watched {
    fn address(&self, _net: &mut Net, _place: usize) -> String {
        let mode = match self.mode {
            Mode::Available => String::new(),
            Mode::Strict => format!("?mode=strict&replicas={}", self.group.servers.len() - 1),
        };
        format!("{}{mode}", self.group.url())
    }

    fn nodes(&mut self) -> &mut [RedisServer] {
        &mut self.group.servers
    }

    fn main_node(&self) -> usize {
        self.group.master().expect("the sentinels name one of our servers")
    }

    fn rejoin(&mut self, node: usize) {
        let master = self.main_node();
        // Nobody took over: it is the master, and the others will follow it into oblivion.
        let [host, port] =
            if master == node { ["no".into(), "one".into()] } else { self.place_of(master) };
        self.group.servers[node].restart_with(["--replicaof", &host, &port]);
    }

    fn is_whole(&mut self) -> bool {
        let servers = &self.group.servers;
        let Some(master) = self.group.master() else { return false };
        let facts = |node: usize| servers[node].cli(&["INFO", "replication"]);
        let count = format!("connected_slaves:{}", servers.len() - 1);
        let of_master = facts(master);
        let port = format!("master_port:{}", servers[master].port());
        let is_in_step = |node: usize| {
            let facts = facts(node);
            facts.contains("master_link_status:up") && facts.contains(&port)
        };
        of_master.contains("role:master")
            && of_master.contains(&count)
            && (0..servers.len()).filter(|node| *node != master).all(is_in_step)
            && self.group.sentinels_agree()
    }

    fn wait_for_promotion(&self, old: usize) {
        self.group.wait_for_another_master(old);
    }

    fn fail_over(&mut self) {
        let words = ["SENTINEL", "FAILOVER", SentinelGroup::MASTER];
        // Refused while the sentinels still finish the last one.
        wait_until("the sentinels to begin a fail-over", WHOLE_AGAIN_MAX, || {
            self.group.sentinels[0].cli(&words) == "OK"
        });
    }

    fn set_watcher_paused(&mut self, paused: bool) {
        let last = self.group.sentinels.last_mut().expect("three sentinels");
        match paused {
            true => last.pause(),
            false => last.resume(),
        }
    }
}
