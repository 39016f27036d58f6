//! A cluster of real servers, and what operators do to one.

mod node;
mod slots;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use self::node::{Node, Seen};
use crate::{GENEROUS, Host, RedisServer, RedisServerBuilder, ServerProgram, wait_for};

/// How long a node may be silent while they get to know each other: a handshake that takes longer
/// is forgotten.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);
/// The same where nobody is to be given up.
const STEADY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often nodes that do not know each other yet are introduced.
const INTRODUCE_EVERY: Duration = Duration::from_secs(10);
/// How many slots a cluster has.
const SLOT_COUNT: usize = 16_384;
/// How long to wait between two looks at all nodes.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(30);
/// Three masters with a replica each, on loopback. Everything ends when the value is dropped.
///
/// Nodes are known by their place: the first three began as masters, each of the others as the
/// replica of the one three places before it.
#[derive(Debug)]
pub struct ClusterGroup {
    nodes: Vec<Node>,
    /// How long a node is silent before the others give it up.
    timeout: Duration,
}

/// Each node with its master and its slots.
type View = Vec<(String, String, Vec<(usize, usize)>)>;

impl ClusterGroup {
    /// How many nodes begin as masters, and how many as replicas.
    pub const MASTERS: usize = 3;
    /// How long a node is silent before the others give it up.
    pub const NODE_TIMEOUT: Duration = Duration::from_secs(2);

    /// Starts six nodes and returns once all of them say that the cluster is whole and every
    /// replica is in step.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(|builder| builder)
    }

    /// The same with servers to the test's liking, for example with
    /// `--cluster-require-full-coverage no`.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start_with(wish: impl Fn(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        Self::start_on(&vec![Host::loopback(); 2 * Self::MASTERS], wish)
    }

    /// The same with a node on each of six hosts.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start_on(
        hosts: &[Host],
        wish: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        assert_eq!(hosts.len(), 2 * Self::MASTERS, "a host for each node");
        Self::start_nodes(hosts.iter().map(|host| wish(builder().on(host))))
    }

    /// The same with a program for each of six nodes, so that groups mix.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start_mixed(programs: &[ServerProgram]) -> Self {
        let hosts = vec![Host::loopback(); programs.len()];
        Self::start_mixed_on(&hosts, programs, |builder| builder)
    }

    /// The same with a node on each of six hosts.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start_mixed_on(
        hosts: &[Host],
        programs: &[ServerProgram],
        wish: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        assert_eq!(programs.len(), 2 * Self::MASTERS, "a program for each node");
        assert_eq!(hosts.len(), programs.len(), "a host for each node");
        let nodes = hosts.iter().zip(programs);
        Self::start_nodes(
            nodes.map(|(host, program)| wish(builder().program(program.clone()).on(host))),
        )
    }

    fn start_nodes(builders: impl Iterator<Item = RedisServerBuilder>) -> Self {
        let nodes = builders.map(Node::start).collect();
        let mut group = ClusterGroup { nodes, timeout: FIRST_TIMEOUT };
        // In this order the first words of the nodes to each other tell of all slots.
        group.share_slots();
        group.introduce();
        group.bear_silence_for(Self::NODE_TIMEOUT);
        group.attach_replicas();
        group.wait_until_whole();
        group
    }

    /// Makes the nodes bear with a silent one for long: for tests in which nobody is to be
    /// replaced, however busy the machine.
    #[must_use]
    pub fn steady(mut self) -> Self {
        self.set_patient(true);
        self
    }

    /// Whether the nodes bear with a silent one for long from now on.
    pub fn set_patient(&mut self, is_patient: bool) {
        self.bear_silence_for(if is_patient { STEADY_TIMEOUT } else { Self::NODE_TIMEOUT });
    }

    /// Waits until no node has a question to another under way: whoever was not heard for a while
    /// has been.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn wait_until_heard(&self) {
        settle("the nodes to hear each other", || {
            self.answering().all(|node| node.sees().iter().all(|seen| !seen.owes_answer))
        });
    }

    /// How long the nodes bear with a silent one from now on.
    pub fn bear_silence_for(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.answering().for_each(|node| node.bear_silence_for(timeout));
    }

    /// The address as clients take it: one master and one replica, which is enough to find all.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(&[0, Self::MASTERS + 1])
    }

    /// The address that names these nodes.
    #[must_use]
    pub fn url_of(&self, places: &[usize]) -> String {
        let host = |place: &usize| self.server(*place).authority();
        format!("redis+cluster://{}", places.iter().map(host).collect::<Vec<_>>().join(","))
    }

    /// How many nodes there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a cluster is never empty")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The server of a node.
    #[must_use]
    pub fn server(&self, place: usize) -> &RedisServer {
        &self.nodes[place].server
    }

    /// Ends a node as SIGKILL does.
    pub fn kill(&mut self, place: usize) {
        self.nodes[place].answers = false;
        self.nodes[place].server.kill();
    }

    /// Ends a node as SIGTERM does, and waits for its end.
    ///
    /// # Panics
    /// When it has ended before, or takes far too long.
    pub fn terminate(&mut self, place: usize) {
        self.nodes[place].answers = false;
        self.nodes[place].server.terminate();
    }

    /// Stops a node as SIGSTOP does.
    ///
    /// # Panics
    /// When it has ended.
    pub fn pause(&mut self, place: usize) {
        self.nodes[place].answers = false;
        self.nodes[place].server.pause();
    }

    /// Lets a stopped node run on.
    ///
    /// # Panics
    /// When it has ended.
    pub fn resume(&mut self, place: usize) {
        self.nodes[place].server.resume();
        self.nodes[place].answers = true;
    }

    /// Ends a node, if it runs, and starts it again: empty, but it remembers the cluster.
    ///
    /// # Panics
    /// When it does not start again.
    pub fn restart(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        node.server.restart();
        node.answers = true;
        node.bear_silence_for(self.timeout);
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.witness().server.cli(&["CLUSTER", "KEYSLOT", key]);
        slot.parse().expect("a slot is a number")
    }

    /// The master that most nodes believe to serve a slot; `None` when they know none.
    #[must_use]
    pub fn owner_of(&self, slot: u16) -> Option<usize> {
        let mut votes: BTreeMap<Option<usize>, usize> = BTreeMap::new();
        for node in self.answering() {
            *votes.entry(self.owner_seen_by(node, slot)).or_default() += 1;
        }
        votes.into_iter().max_by_key(|(_, count)| *count)?.0
    }

    /// The masters that serve slots and can be reached.
    #[must_use]
    pub fn masters(&self) -> Vec<usize> {
        let seen = self.witness().sees();
        let masters = seen.iter().filter(|one| one.has("master") && !one.slots.is_empty());
        let masters = masters.filter_map(|one| self.place_of(&one.id));
        masters.filter(|place| self.nodes[*place].answers).collect()
    }

    /// The replicas of a master that can be reached.
    #[must_use]
    pub fn replicas_of(&self, master: usize) -> Vec<usize> {
        let id = &self.nodes[master].id;
        let seen = self.witness().sees();
        let replicas = seen.iter().filter(|one| one.master == *id);
        let replicas = replicas.filter_map(|one| self.place_of(&one.id));
        replicas.filter(|place| self.nodes[*place].answers).collect()
    }

    /// Makes a replica of `master` take its place, both agreeing: nothing is lost. Returns the new
    /// master's place once every node knows it.
    ///
    /// # Panics
    /// When the master has no replica, or that takes far too long.
    pub fn fail_over(&self, master: usize) -> usize {
        self.promote(master, &["CLUSTER", "FAILOVER"])
    }

    /// Makes a replica take its master's place without asking anybody, as operators do when most
    /// masters are gone. Returns the new master's place once every node knows it.
    ///
    /// # Panics
    /// When the master has no replica, or that takes far too long.
    pub fn take_over(&self, master: usize) -> usize {
        self.promote(master, &["CLUSTER", "FAILOVER", "TAKEOVER"])
    }

    /// Makes a replica follow another master, and returns once every node knows it.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn follow(&self, replica: usize, master: usize) {
        let id = &self.nodes[master].id;
        self.tell(replica, &["CLUSTER", "REPLICATE", id]);
        let is_known = |node: &Node| {
            let seen = node.sees();
            seen.iter().any(|one| one.id == self.nodes[replica].id && one.master == *id)
        };
        settle("every node to know whom the replica follows", || self.answering().all(is_known));
    }

    /// Gives all slots whose masters are gone for good to those that are left, as an operator does
    /// with `redis-cli --cluster fix`.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn fix(&self) {
        let node = self.witness();
        let address = format!("{}:{}", node.server.host(), node.port);
        let words = ["--cluster", "fix", &address, "--cluster-fix-with-unreachable-masters"];
        let covers_all = |node: &Node| node.server.cli(&["CLUSTER", "INFO"]).contains("state:ok");
        settle("the nodes that are left to serve all slots", || {
            // It wants every answer from a person, whatever --cluster-yes says.
            node.server.cli_agreeing(&words);
            self.answering().all(covers_all)
        });
    }

    /// Waits until every node that answers believes in another owner of the slot than `old`.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn wait_for_another_owner(&self, slot: u16, old: usize) -> usize {
        settle_for("another owner of the slot", || {
            let mut owners = self.answering().map(|node| self.owner_seen_by(node, slot));
            let new = owners.next()?.filter(|new| *new != old)?;
            owners.all(|owner| owner == Some(new)).then_some(new)
        })
    }

    /// Waits until all nodes that answer agree on who serves which of all slots and who follows
    /// whom, every one of them is either a master with slots or a replica in step, and each says
    /// that the cluster is up.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn wait_until_whole(&self) {
        settle("the cluster to be whole", || {
            let views: Vec<_> = self.answering().map(|node| self.settled_view(node)).collect();
            let agree = views.iter().all(|view| view.is_some() && *view == views[0]);
            agree && self.answering().all(Node::is_content)
        });
    }

    /// What keeps the cluster from being whole: a node that does not answer, is not in step, or
    /// sees trouble. `None` when nothing does.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        (0..self.len()).find_map(|place| {
            let node = &self.nodes[place];
            if !node.answers {
                return Some(format!("node {place} has ended or is stopped"));
            }
            if let Some(why) = node.out_of_step() {
                return Some(format!("node {place}: {why}"));
            }
            let seen = node.sees();
            let is_ill = |one: &&Seen| {
                !one.is_linked || ["fail", "fail?", "handshake"].iter().any(|flag| one.has(flag))
            };
            let ill = seen.iter().find(is_ill)?;
            Some(format!("node {place} sees {} as {}", ill.id, ill.flags.join(",")))
        })
    }

    /// Who serves what and who follows whom among the nodes that answer, as one of them sees it;
    /// `None` while it sees something that will change.
    fn settled_view(&self, node: &Node) -> Option<View> {
        let mut view = Vec::new();
        for seen in node.sees() {
            let place = self.place_of(&seen.id)?;
            if !self.nodes[place].answers {
                continue;
            }
            let is_bare = seen.has("master") && seen.slots.is_empty();
            if is_bare || seen.has("fail") || seen.has("fail?") || seen.has("handshake") {
                return None;
            }
            view.push((seen.id, seen.master, seen.slots));
        }
        view.sort();
        Some(view)
    }

    fn introduce(&self) {
        for (epoch, node) in (1..).zip(&self.nodes) {
            // Equal epochs would be sorted out by the nodes, one exchange after the other.
            node.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &format!("{epoch}")]);
        }
        // A handshake that takes longer than a node's silence may is forgotten: on a busy machine
        // the nodes have to be introduced again.
        let know_each_other = || {
            self.nodes.iter().all(|node| {
                let seen = node.sees();
                let is_settled = |one: &Seen| one.is_linked && !one.has("handshake");
                seen.len() == self.nodes.len() && seen.iter().all(is_settled)
            })
        };
        let mut introduced_at = None::<Instant>;
        settle("the nodes to know each other", || {
            if introduced_at.is_none_or(|at| at.elapsed() > INTRODUCE_EVERY) {
                introduced_at = Some(Instant::now());
                for node in &self.nodes[1..] {
                    self.nodes[0].tell(&["CLUSTER", "MEET", &node.server.host(), &node.port]);
                }
            }
            know_each_other()
        });
    }

    fn share_slots(&self) {
        for (index, node) in self.nodes[..Self::MASTERS].iter().enumerate() {
            let first = index * SLOT_COUNT / Self::MASTERS;
            let last = (index + 1) * SLOT_COUNT / Self::MASTERS - 1;
            node.tell(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
    }

    fn attach_replicas(&self) {
        for (master, replica) in self.nodes.iter().zip(&self.nodes[Self::MASTERS..]) {
            replica.tell(&["CLUSTER", "REPLICATE", &master.id]);
        }
        settle("every master to have its replica", || {
            let masters = &self.nodes[..Self::MASTERS];
            masters
                .iter()
                .all(|master| master.server.cli(&["INFO", "replication"]).contains("state=online"))
        });
    }

    fn promote(&self, master: usize, words: &[&str]) -> usize {
        // One that came back only just now is not a replica in everybody's eyes yet.
        let replica = settle_for("a replica of the master that answers", || {
            self.replicas_of(master).first().copied()
        });
        let id = &self.nodes[replica].id;
        self.tell(replica, words);
        settle("every node to know the new master", || {
            self.answering().all(|node| {
                let seen = node.sees();
                let seen = seen.iter().find(|one| one.id == *id);
                seen.is_some_and(|one| one.has("master") && !one.slots.is_empty())
            })
        });
        replica
    }

    fn owner(&self, slot: u16) -> usize {
        self.owner_of(slot).unwrap_or_else(|| panic!("nobody owns slot {slot}"))
    }

    fn owner_seen_by(&self, node: &Node, slot: u16) -> Option<usize> {
        let seen = node.sees();
        let owner = seen.iter().find(|one| {
            one.slots.iter().any(|(first, last)| (*first..=*last).contains(&usize::from(slot)))
        });
        self.place_of(&owner?.id)
    }

    fn place_of(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    fn answering(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.answers)
    }

    fn witness(&self) -> &Node {
        self.answering().next().expect("a node answers")
    }

    #[track_caller]
    fn tell(&self, place: usize, words: &[&str]) {
        self.nodes[place].tell(words);
    }
}

/// Waits until `condition` holds. A look starts a program for each node, so looks are far between.
#[track_caller]
fn settle(what: &str, mut condition: impl FnMut() -> bool) {
    settle_for(what, || condition().then_some(()));
}

#[track_caller]
fn settle_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    wait_for(what, GENEROUS, || {
        let found = attempt();
        if found.is_none() {
            thread::sleep(LOOK_AGAIN_AFTER);
        }
        found
    })
}

fn builder() -> RedisServerBuilder {
    let timeout_ms = FIRST_TIMEOUT.as_millis().to_string();
    RedisServer::builder().replicated().args([
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        &timeout_ms,
        // A replica that lost its master a while ago may take over all the same: tests pause.
        "--cluster-replica-validity-factor",
        "0",
    ])
}
