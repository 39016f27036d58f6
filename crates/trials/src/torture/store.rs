//! The stores that are tormented, behind one trait: a new topology is one more of them.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::{
    ClusterGroup, Host, RedisServer, RedisServerBuilder, SentinelGroup, ServerProgram, TempFolder,
    wait_until,
};

use super::net::Net;
use super::row::{Mode, Topology};
use super::world::Clock;

/// A store may need a while to be whole again: sentinels wait before they demote an old master.
pub(super) const WHOLE_AGAIN_MAX: Duration = Duration::from_secs(60);

/// How much longer than a silence it takes until somebody is seen to act on it.
const NOTICED_WITHIN: Duration = Duration::from_millis(500);

/// Where the instances' resource is kept; its side keys are in the same slot.
const KEY: &str = "tenure:job";

/// What faults need to know of a store and do to it.
pub(super) trait Store {
    /// As clients take it, seen from a place of the network.
    fn address(&self, net: &mut Net, place: usize) -> String;
    /// Asks a server, past all partitions.
    fn cli(&self, node: usize, words: &[&str]) -> String;
    /// Stops a server as SIGSTOP does.
    fn pause(&mut self, node: usize);
    /// Lets it run on.
    fn resume(&mut self, node: usize);
    /// Ends a server as SIGKILL does.
    fn kill(&mut self, node: usize);
    /// The server that matters most just now.
    fn main_node(&self) -> usize;
    /// Who follows that one.
    fn replicas(&self) -> Vec<usize>;
    /// Starts a server that has ended as a deployment would: empty, and knowing its place.
    fn rejoin(&mut self, node: usize);
    /// What is not in its place and in step; `None` when all is.
    fn trouble(&mut self) -> Option<String>;
    /// For how long it must have been whole to stay so: after a fault, whoever watches may only
    /// just have begun to replace the master.
    fn settles_in(&self) -> Duration {
        Duration::ZERO
    }
    /// Whether whoever watches bears a long silence of the master before it is replaced.
    fn set_patient(&mut self, _is_patient: bool) {}
    /// Waits until whoever watches has heard all that live, and could lose its patience.
    fn await_heard(&self) {}
    /// Waits until another than `old` has taken over. False where nobody ever does.
    fn wait_for_promotion(&self, _old: usize) -> bool {
        false
    }
    /// Asks for a fail-over.
    fn fail_over(&mut self) {}
    /// Moves the keys of the resource to another server.
    fn migrate(&mut self) {}
    /// Ends a server as SIGTERM does, and waits for its end.
    fn end_cleanly(&mut self, _node: usize) {}
    /// Copies what a server that has ended has kept.
    fn copy_data(&mut self, _node: usize) {}
    /// Puts that copy in the place of what came after it.
    fn put_copy_back(&mut self, _node: usize) {}
    /// Gives the slots of masters that are lost to the others, as an operator does.
    fn fix(&mut self) {}
    /// Stops one of those who watch over the servers, or lets it run on.
    fn set_watcher_paused(&mut self, _paused: bool) {}
}

/// Starts a store whose servers are under these clocks: one for all, or one each.
pub(super) fn start(
    topology: Topology,
    mode: Mode,
    net: &Net,
    clocks: &[Clock],
    own_store: &Path,
) -> Box<dyn Store> {
    let under_clock = |builder: RedisServerBuilder, index: usize| match clocks.get(index) {
        Some(clock) => builder.under(&clock.wall),
        None => builder,
    };
    let under = |builder| under_clock(builder, 0);
    let program = match topology.is_own() {
        true => ServerProgram::new(own_store).arg("serve"),
        false => ServerProgram::redis(),
    };
    let hosts = || (0..topology.nodes()).map(|node| net.node(node)).collect::<Vec<_>>();
    match topology {
        Topology::Single => {
            let server = under(RedisServer::builder()).on(&net.node(0)).start();
            Box::new(Single { server })
        }
        Topology::Own => {
            let builder = under(RedisServer::builder()).program(program).on(&net.node(0));
            let server = builder.args(["--appendonly", "yes"]).start();
            Box::new(Kept { server, copy: None })
        }
        Topology::Sentinel | Topology::OwnSentinel | Topology::AllOwnSentinel => {
            let sentinel = match topology {
                Topology::AllOwnSentinel => program.clone(),
                _ => ServerProgram::redis(),
            };
            let server = |builder: RedisServerBuilder| under(builder).program(program);
            let group = SentinelGroup::start_mixed_on(&hosts(), &sentinel, server);
            Box::new(Watched { group, mode })
        }
        Topology::Quorum | Topology::OwnQuorum => {
            let start = |(index, host): (usize, Host)| {
                let builder = RedisServer::builder().program(program.clone()).on(&host);
                under_clock(builder, index).start()
            };
            let servers = hosts().into_iter().enumerate().map(start).collect();
            Box::new(Independent { servers, turn: Cell::new(0) })
        }
        Topology::Cluster | Topology::OwnCluster | Topology::MixedCluster => {
            // A replica follows three places behind its master: one of each kind in every shard.
            let is_real = |place: usize| match topology {
                Topology::MixedCluster => place.is_multiple_of(2),
                _ => !topology.is_own(),
            };
            let of_node = |place| match is_real(place) {
                true => ServerProgram::redis(),
                false => program.clone(),
            };
            let programs: Vec<_> = (0..topology.nodes()).map(of_node).collect();
            let group = ClusterGroup::start_mixed_on(&hosts(), &programs, under);
            let slot = group.slot_of(KEY);
            Box::new(Sharded { group, mode, slot })
        }
    }
}

struct Single {
    server: RedisServer,
}

impl Store for Single {
    fn address(&self, net: &mut Net, place: usize) -> String {
        net.address_of(&self.server, place)
    }

    fn cli(&self, _node: usize, words: &[&str]) -> String {
        self.server.cli(words)
    }

    fn pause(&mut self, _node: usize) {
        self.server.pause();
    }

    fn resume(&mut self, _node: usize) {
        self.server.resume();
    }

    fn kill(&mut self, _node: usize) {
        self.server.kill();
    }

    fn main_node(&self) -> usize {
        0
    }

    fn replicas(&self) -> Vec<usize> {
        Vec::new()
    }

    fn rejoin(&mut self, _node: usize) {
        self.server.restart();
    }

    fn trouble(&mut self) -> Option<String> {
        let answer = self.server.cli(&["PING"]);
        (answer != "PONG").then_some(answer)
    }
}

/// A server that keeps its data.
struct Kept {
    server: RedisServer,
    copy: Option<TempFolder>,
}

impl Store for Kept {
    fn address(&self, net: &mut Net, place: usize) -> String {
        net.address_of(&self.server, place)
    }

    fn cli(&self, _node: usize, words: &[&str]) -> String {
        self.server.cli(words)
    }

    fn pause(&mut self, _node: usize) {
        self.server.pause();
    }

    fn resume(&mut self, _node: usize) {
        self.server.resume();
    }

    fn kill(&mut self, _node: usize) {
        self.server.kill();
    }

    fn main_node(&self) -> usize {
        0
    }

    fn replicas(&self) -> Vec<usize> {
        Vec::new()
    }

    fn rejoin(&mut self, _node: usize) {
        self.server.restart();
    }

    fn trouble(&mut self) -> Option<String> {
        let answer = self.server.cli(&["PING"]);
        (answer != "PONG").then_some(answer)
    }

    fn end_cleanly(&mut self, _node: usize) {
        self.server.terminate();
    }

    fn copy_data(&mut self, _node: usize) {
        let copy = TempFolder::create();
        copy_folder(self.server.folder(), copy.path());
        self.copy = Some(copy);
    }

    fn put_copy_back(&mut self, _node: usize) {
        let copy = self.copy.take().expect("a copy was made");
        let folder = self.server.folder();
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("the folder can be read").path();
            match path.is_dir() {
                true => std::fs::remove_dir_all(path),
                false => std::fs::remove_file(path),
            }
            .expect("what is ours can be removed");
        }
        copy_folder(copy.path(), folder);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    // Sockets and pipes are no data.
    let words = ["-a", "--no-target-directory"];
    let status = Command::new("cp").args(words).arg(from).arg(to).status();
    assert!(status.is_ok_and(|status| status.success()), "cp {from:?} {to:?} failed");
}

struct Watched {
    group: SentinelGroup,
    mode: Mode,
}

impl Store for Watched {
    fn address(&self, _net: &mut Net, _place: usize) -> String {
        let mode = match self.mode {
            Mode::Available | Mode::Quorum => String::new(),
            Mode::Strict => format!("?mode=strict&replicas={}", self.group.servers.len() - 1),
        };
        self.group.url() + &mode
    }

    fn cli(&self, node: usize, words: &[&str]) -> String {
        self.group.servers[node].cli(words)
    }

    fn pause(&mut self, node: usize) {
        self.group.servers[node].pause();
    }

    fn resume(&mut self, node: usize) {
        self.group.servers[node].resume();
    }

    fn kill(&mut self, node: usize) {
        self.group.servers[node].kill();
    }

    fn main_node(&self) -> usize {
        self.group.master().expect("the sentinels name one of our servers")
    }

    fn replicas(&self) -> Vec<usize> {
        let main = self.main_node();
        (0..self.group.servers.len()).filter(|node| *node != main).collect()
    }

    fn rejoin(&mut self, node: usize) {
        let master = self.main_node();
        // Nobody took over: it is the master, and the others will follow it into oblivion.
        let (host, port) = match master == node {
            true => ("no".to_owned(), "one".to_owned()),
            false => {
                let master = &self.group.servers[master];
                (master.host(), master.port().to_string())
            }
        };
        self.group.servers[node].restart_with(["--replicaof", &host, &port]);
    }

    fn trouble(&mut self) -> Option<String> {
        let servers = &self.group.servers;
        let Some(master) = self.group.master() else { return Some("no master".to_owned()) };
        let count = format!("connected_slaves:{}", servers.len() - 1);
        let port = format!("master_port:{}", servers[master].port());
        for (node, server) in servers.iter().enumerate() {
            let Some(facts) = server.try_cli(&["INFO", "replication"]) else {
                return Some(format!("node {node} drops its clients: it gets another role"));
            };
            let is_in_step = match node == master {
                true => facts.contains("role:master") && facts.contains(&count),
                false => facts.contains("master_link_status:up") && facts.contains(&port),
            };
            if !is_in_step {
                return Some(format!("node {node} is not in step, {master} is master\n{facts}"));
            }
        }
        if !servers[master].has_replicas_in_step(servers.len() - 1) {
            return Some(format!("replicas of {master} lag"));
        }
        (!self.group.sentinels_agree()).then_some("the sentinels disagree".to_owned())
    }

    fn settles_in(&self) -> Duration {
        SentinelGroup::DOWN_AFTER + NOTICED_WITHIN
    }

    fn set_patient(&mut self, is_patient: bool) {
        self.group.set_patient(is_patient);
    }

    fn await_heard(&self) {
        self.group.wait_until_heard();
    }

    fn wait_for_promotion(&self, old: usize) -> bool {
        self.group.wait_for_another_master(old);
        true
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

struct Sharded {
    group: ClusterGroup,
    mode: Mode,
    /// Of the resource.
    slot: u16,
}

impl Store for Sharded {
    fn address(&self, _net: &mut Net, _place: usize) -> String {
        let mode = match self.mode {
            Mode::Available | Mode::Quorum => "",
            Mode::Strict => "?mode=strict&replicas=1",
        };
        let all: Vec<_> = (0..self.group.len()).collect();
        self.group.url_of(&all) + mode
    }

    fn cli(&self, node: usize, words: &[&str]) -> String {
        self.group.server(node).cli(words)
    }

    fn pause(&mut self, node: usize) {
        self.group.pause(node);
    }

    fn resume(&mut self, node: usize) {
        self.group.resume(node);
    }

    fn kill(&mut self, node: usize) {
        self.group.kill(node);
    }

    fn main_node(&self) -> usize {
        self.group.owner_of(self.slot).expect("no slot is without an owner")
    }

    fn replicas(&self) -> Vec<usize> {
        self.group.replicas_of(self.main_node())
    }

    fn rejoin(&mut self, node: usize) {
        self.group.restart(node);
    }

    fn trouble(&mut self) -> Option<String> {
        self.group.trouble()
    }

    fn settles_in(&self) -> Duration {
        ClusterGroup::NODE_TIMEOUT + NOTICED_WITHIN
    }

    fn set_patient(&mut self, is_patient: bool) {
        self.group.set_patient(is_patient);
    }

    fn await_heard(&self) {
        self.group.wait_until_heard();
    }

    fn wait_for_promotion(&self, old: usize) -> bool {
        // Most of them: whoever is cut off cannot know.
        wait_until("another owner of the slot", WHOLE_AGAIN_MAX, || {
            self.group.owner_of(self.slot).is_some_and(|owner| owner != old)
        });
        true
    }

    fn fail_over(&mut self) {
        self.group.fail_over(self.main_node());
    }

    fn fix(&mut self) {
        self.group.fix();
    }

    fn migrate(&mut self) {
        let from = self.main_node();
        let mut masters = (0..self.group.len())
            .filter(|node| *node != from && self.cli(*node, &["ROLE"]).starts_with("master"));
        let to = masters.next().expect("a cluster has several masters");
        self.group.migrate(self.slot, to);
    }
}

/// Nodes that know nothing of each other. Each is struck in its turn, and never two at a time.
struct Independent {
    servers: Vec<RedisServer>,
    turn: Cell<usize>,
}

impl Store for Independent {
    fn address(&self, _net: &mut Net, _place: usize) -> String {
        let nodes: Vec<_> = self.servers.iter().map(RedisServer::authority).collect();
        format!("redis+quorum://{}", nodes.join(","))
    }

    fn cli(&self, node: usize, words: &[&str]) -> String {
        self.servers[node].cli(words)
    }

    fn pause(&mut self, node: usize) {
        self.servers[node].pause();
    }

    fn resume(&mut self, node: usize) {
        self.servers[node].resume();
    }

    fn kill(&mut self, node: usize) {
        self.servers[node].kill();
    }

    fn main_node(&self) -> usize {
        self.turn.set(self.turn.get() + 1);
        self.turn.get() % self.servers.len()
    }

    fn replicas(&self) -> Vec<usize> {
        Vec::new()
    }

    fn rejoin(&mut self, node: usize) {
        self.servers[node].restart();
    }

    fn trouble(&mut self) -> Option<String> {
        let answers = self.servers.iter().map(|server| server.cli(&["PING"]));
        answers.into_iter().find(|answer| answer != "PONG")
    }
}
