//! Slots that move in clusters of our nodes and real ones, by the real `redis-cli --cluster`.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use store_resp::Reply;
use store_resp::slot::slot_of;
use store_server::Server;
use testkit::{GENEROUS, RedisServer, ServerProgram, TempFolder, wait_for, wait_until};

use crate::connection::Connection;
use crate::replication::support::text;

/// A node, and the folder of its nodes.conf.
enum Node {
    Ours(Server, TempFolder),
    Theirs(RedisServer),
}

impl Node {
    fn ours() -> Self {
        let folder = TempFolder::create();
        let server = Self::start(&folder);
        Self::Ours(server, folder)
    }

    fn start(folder: &TempFolder) -> Server {
        Server::builder()
            .any_port()
            .setting("save", "3600 1000000")
            .setting("cluster-enabled", "yes")
            .setting("cluster-node-timeout", "60000")
            .setting("enable-debug-command", "yes")
            .setting("repl-diskless-sync-delay", "0")
            .setting("dir", folder.path().to_str().unwrap())
            .start()
            .unwrap()
    }

    /// Its data as it is now.
    fn snapshot(&self) -> Vec<u8> {
        assert_eq!(text(&self.connect().words("SAVE")), "OK");
        let Node::Ours(_, folder) = self else { unreachable!("only our own are asked") };
        std::fs::read(folder.path().join("dump.rdb")).unwrap()
    }

    fn theirs() -> Self {
        let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "60000"];
        let builder = RedisServer::builder().program(ServerProgram::redis());
        Self::Theirs(builder.args(settings).args(["--enable-debug-command", "yes"]).start())
    }

    /// Starts again, on another port, with data of an earlier time.
    fn restart_with(self, snapshot: &[u8]) -> Self {
        let Node::Ours(server, folder) = self else { unreachable!("only our own are restarted") };
        drop(server);
        std::fs::write(folder.path().join("dump.rdb"), snapshot).unwrap();
        let server = Self::start(&folder);
        Self::Ours(server, folder)
    }

    fn port(&self) -> u16 {
        match self {
            Node::Ours(server, _) => server.port().unwrap(),
            Node::Theirs(server) => server.port(),
        }
    }

    fn connect(&self) -> Connection {
        Connection::tcp(self.port())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    fn id(&self) -> String {
        text(&self.connect().words("CLUSTER MYID"))
    }

    /// Whether it says that it serves a slot.
    fn owns(&self, slot: u16) -> bool {
        let nodes = text(&self.connect().words("CLUSTER NODES"));
        let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
        let is_in = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bound = |text: &str| text.parse::<u16>().ok();
            bound(first).is_some_and(|first| first <= slot) && bound(last) >= Some(slot)
        };
        own.split(' ').skip(8).any(is_in)
    }
}

/// Masters that share all slots.
struct Group(Vec<Node>);

impl Group {
    fn create(nodes: Vec<Node>) -> Self {
        Self::create_with(nodes, "0")
    }

    /// The same, with so many replicas for each of them.
    fn create_with(nodes: Vec<Node>, replicas: &str) -> Self {
        let group = Self(nodes);
        let addresses: Vec<String> = group.0.iter().map(Node::address).collect();
        let mut words = vec!["create"];
        words.extend(addresses.iter().map(String::as_str));
        words.extend(["--cluster-replicas", replicas, "--cluster-yes"]);
        group.cli(&words);
        group.wait_until_agreed();
        group
    }

    /// What `redis-cli --cluster` says. Fails when it does.
    fn cli(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli").arg("--cluster").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_done = output.status.success();
        assert!(
            is_done,
            "{words:?}: {said}{trouble}
{}",
            self.views()
        );
        said
    }

    /// What each node knows of the cluster.
    fn views(&self) -> String {
        let view = |node: &Node| text(&node.connect().words("CLUSTER NODES"));
        self.0.iter().map(view).collect::<Vec<_>>().join("\n")
    }

    /// All nodes tell the same, and nothing is open.
    #[track_caller]
    fn wait_until_agreed(&self) {
        let (mut attempts, entry) = (0, self.0[0].address());
        wait_until("all nodes to agree", GENEROUS, || {
            let words = ["--cluster", "check", &entry];
            let output = Command::new("redis-cli").args(words).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_agreed = said.contains("All nodes agree") && said.contains("slots covered");
            let serves =
                |node: &Node| text(&node.connect().words("CLUSTER INFO")).contains("state:ok");
            attempts += 1;
            if attempts == 400 {
                println!("they do not agree for long: {said}\n{}", self.views());
            }
            is_agreed && output.status.success() && self.0.iter().all(serves)
        });
    }

    fn reshard(&self, from: usize, to: usize, slots: usize) {
        let (from, to) = (self.0[from].id(), self.0[to].id());
        let (slots, entry) = (slots.to_string(), self.0[0].address());
        self.cli(&[
            "reshard",
            &entry,
            "--cluster-from",
            &from,
            "--cluster-to",
            &to,
            "--cluster-slots",
            &slots,
            "--cluster-yes",
        ]);
        self.wait_until_agreed();
    }

    fn client(&self) -> Client {
        Client { nodes: self.0.iter().map(|node| (node.port(), node.connect())).collect(), at: 0 }
    }

    fn keys(&self) -> usize {
        let sizes = self.0.iter().map(|node| text(&node.connect().words("DBSIZE")));
        sizes.map(|size| size.parse::<usize>().unwrap()).sum()
    }

    /// Which node has the keys of a slot, and how many.
    fn holders(&self, slot: u16) -> Vec<(usize, usize)> {
        let count = |node: &Node| {
            let count = text(&node.connect().words(&format!("CLUSTER COUNTKEYSINSLOT {slot}")));
            count.parse::<usize>().unwrap()
        };
        let counts = self.0.iter().map(count).enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// Goes where it is sent.
struct Client {
    nodes: Vec<(u16, Connection)>,
    at: usize,
}

impl Client {
    fn ask(&mut self, words: &[&str]) -> Reply {
        let mut is_asking = false;
        for _ in 0..100_000 {
            let connection = &mut self.nodes[self.at].1;
            if std::mem::take(&mut is_asking) {
                assert_eq!(text(&connection.words("ASKING")), "OK");
            }
            let reply = connection.ask(words).expect("the node stays open");
            let Reply::Error(error) = &reply else { return reply };
            let mut parts = error.split([' ', ':']);
            match parts.next() {
                // A machine that stands still for a while looks like a network that is cut.
                Some("TRYAGAIN" | "CLUSTERDOWN") => thread::sleep(Duration::from_millis(1)),
                Some(word @ ("MOVED" | "ASK")) => {
                    is_asking = word == "ASK";
                    let port: u16 = parts.next_back().unwrap().parse().unwrap();
                    self.at = self.nodes.iter().position(|(at, _)| *at == port).unwrap();
                }
                _ => return reply,
            }
        }
        panic!("{words:?} goes round in circles");
    }
}

/// Writers that count what was acknowledged, and compare in the end.
struct Load {
    is_over: Arc<AtomicBool>,
    writers: Vec<thread::JoinHandle<Vec<(String, u64)>>>,
}

impl Load {
    fn start(group: &Group, writers: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |writer: usize| {
            let (mut client, is_over) = (group.client(), Arc::clone(&is_over));
            thread::spawn(move || {
                let mut counts: Vec<(String, u64)> =
                    (0..20).map(|key| (format!("count:{writer}:{key}"), 0)).collect();
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (key, count) = &mut counts[round % 20];
                    let reply = client.ask(&["INCR", key]);
                    *count += 1;
                    assert_eq!(reply, Reply::Integer(*count as i64), "{key}");
                }
                counts
            })
        };
        let writers = (0..writers).map(start).collect();
        Self { is_over, writers }
    }

    /// Nothing that was acknowledged is lost, and nothing was done twice.
    fn finish(self, group: &Group) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut client = group.client();
        for writer in self.writers {
            for (key, count) in writer.join().unwrap() {
                if count > 0 {
                    assert_eq!(text(&client.ask(&["GET", &key])), count.to_string(), "{key}");
                }
            }
        }
    }
}

fn fill(group: &Group, count: usize) {
    let mut client = group.client();
    for number in 0..count {
        let key = format!("key:{number}");
        assert_eq!(text(&client.ask(&["SET", &key, &key, "EX", "1000"])), "OK");
    }
    for number in 0..50 {
        let key = format!("{{big}}:{number}");
        client.ask(&["RPUSH", &key, &key, "x", "y"]);
        client.ask(&["SETRANGE", &format!("{{big}}:long:{number}"), "20000", &key]);
    }
}

fn assert_filled(group: &Group, count: usize) {
    assert_eq!(group.keys(), count + 100);
    let mut client = group.client();
    for number in 0..count {
        let key = format!("key:{number}");
        assert_eq!(text(&client.ask(&["GET", &key])), key);
    }
    for number in 0..50 {
        let key = format!("{{big}}:{number}");
        assert_eq!(text(&client.ask(&["LINDEX", &key, "0"])), key);
    }
}

#[test]
fn slots_move_under_load_between_nodes_of_both_kinds() {
    let group = Group::create(vec![Node::ours(), Node::ours(), Node::theirs()]);
    fill(&group, 600);
    let load = Load::start(&group, 3);
    // Ours to ours, ours to theirs, theirs to ours. Each slot is some writes to disk.
    group.reshard(0, 1, 15);
    group.reshard(1, 2, 15);
    group.reshard(2, 0, 15);
    // One has too many; everybody gets the same.
    group.reshard(0, 2, 20);
    group.cli(&["rebalance", &group.0[1].address(), "--cluster-threshold", "0.1"]);
    group.wait_until_agreed();
    load.finish(&group);
    let counters = 60;
    assert_eq!(group.keys(), 600 + 100 + counters);
}

/// Opens a slot and moves thirty of its keys, no more.
fn begin_move(group: &Group, slot: u16, owner: usize, taker: usize) {
    move_keys(group, slot, (owner, taker), 30);
}

/// Opens a slot and moves so many of its keys.
fn move_keys(group: &Group, slot: u16, (owner, taker): (usize, usize), count: usize) {
    let (giver_id, taker_id) = (group.0[owner].id(), group.0[taker].id());
    let mut here = group.0[owner].connect();
    let mut there = group.0[taker].connect();
    there.words(&format!("CLUSTER SETSLOT {slot} IMPORTING {giver_id}"));
    here.words(&format!("CLUSTER SETSLOT {slot} MIGRATING {taker_id}"));
    let keys = text(&here.words(&format!("CLUSTER GETKEYSINSLOT {slot} {count}")));
    let keys = keys.trim_matches(['[', ']']).replace(['"', ','], "");
    let port = group.0[taker].port().to_string();
    let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    words.extend(keys.split_whitespace());
    assert_eq!(text(&here.ask(&words).unwrap()), "OK");
}

#[test]
fn a_slot_that_was_left_open_is_fixed() {
    let group = Group::create(vec![Node::ours(), Node::ours(), Node::theirs()]);
    fill(&group, 200);
    let slot = slot_of(b"big");
    let owner = group.holders(slot)[0].0;
    // To ours, and to theirs.
    for taker in (0..3).filter(|node| *node != owner) {
        begin_move(&group, slot, owner, taker);
        assert_eq!(group.holders(slot).len(), 2, "some keys are on either side");
        let mut client = group.client();
        for number in 0..50 {
            let key = format!("{{big}}:{number}");
            assert_eq!(text(&client.ask(&["LINDEX", &key, "0"])), key, "they are found");
        }
        group.cli(&["fix", &group.0[0].address()]);
        group.wait_until_agreed();
        assert_eq!(group.holders(slot).len(), 1);
    }
    assert_filled(&group, 200);
}

/// Its snapshot is from before the slot went to another node.
#[test]
fn keys_that_a_node_has_again_are_never_served_again() {
    let mut group = Group::create(vec![Node::ours(), Node::ours(), Node::ours()]);
    fill(&group, 100);
    let slot = slot_of(b"big");
    let owner = group.holders(slot)[0].0;
    let snapshot = group.0[owner].snapshot();
    move_whole(&group, slot, owner, (owner + 1) % 3);
    let mut client = group.client();
    client.ask(&["SET", "{big}:long:0", "new"]);
    client.ask(&["DEL", "{big}:1"]);

    let node = group.0.remove(owner).restart_with(&snapshot);
    group.0.insert(owner, node);
    let mut back = group.0[owner].connect();
    wait_until("the node removes them", GENEROUS, || {
        let is_loaded = text(&back.words("DBSIZE")) != "0";
        is_loaded && text(&back.words(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))) == "0"
    });
    group.wait_until_agreed();
    let nodes = text(&back.words("CLUSTER NODES"));
    assert!(!nodes.contains("-<-"), "nothing is importing: {nodes}");
    group.cli(&["fix", &group.0[owner].address()]);
    let mut client = group.client();
    assert_eq!(text(&client.ask(&["GET", "{big}:long:0"])), "new");
    assert_eq!(client.ask(&["EXISTS", "{big}:1"]), Reply::Integer(0));
    assert_eq!(group.holders(slot).len(), 1);
    assert_eq!(group.keys(), 100 + 99);
}

/// Moves a slot with all its keys.
fn move_whole(group: &Group, slot: u16, owner: usize, taker: usize) {
    move_keys(group, slot, (owner, taker), 1_000);
    let id = group.0[taker].id();
    for node in [taker, owner] {
        let order = format!("CLUSTER SETSLOT {slot} NODE {id}");
        assert_eq!(text(&group.0[node].connect().words(&order)), "OK");
    }
    group.wait_until_agreed();
}

/// Only the master knew that the slot was open. What it has moved is still at the other side.
#[test]
fn a_failover_in_the_middle_of_a_move_loses_no_key() {
    let group = Group::create_with((0..6).map(|_| Node::ours()).collect(), "1");
    fill(&group, 100);
    let slot = slot_of(b"big");
    let is_master = |node: &Node| text(&node.connect().words("ROLE")).contains("master");
    let mut holders = group.holders(slot).into_iter();
    let (owner, _) = holders.find(|(node, _)| is_master(&group.0[*node])).unwrap();
    let of_owner = format!("slave {}", group.0[owner].id());
    let mut entry = group.0[owner].connect();
    let replica = wait_for("a replica of the owner", GENEROUS, || {
        let nodes = text(&entry.words("CLUSTER NODES"));
        let replica = nodes.lines().find(|line| line.contains(&of_owner))?.to_owned();
        group.0.iter().position(|node| replica.starts_with(&node.id()))
    });
    let mut promoted = group.0[replica].connect();
    wait_until("the replica follows", GENEROUS, || {
        let info = text(&promoted.words("INFO replication"));
        info.contains("master_link_status:up")
    });
    let taker = (0..6).find(|node| *node != owner && is_master(&group.0[*node])).unwrap();
    begin_move(&group, slot, owner, taker);
    assert_eq!(text(&promoted.words("CLUSTER FAILOVER")), "OK");
    wait_until("the replica is the master", GENEROUS, || is_master(&group.0[replica]));
    let entry = group.0[replica].address();
    wait_until("the move is undone", GENEROUS, || {
        let fixed = Command::new("redis-cli").args(["--cluster", "fix", &entry]).output().unwrap();
        fixed.status.success() && text(&promoted.words("DBSIZE")) != "0"
    });
    group.wait_until_agreed();
    let mut client = group.client();
    for number in 0..50 {
        let key = format!("{{big}}:{number}");
        assert_eq!(text(&client.ask(&["LINDEX", &key, "0"])), key);
        let long = client.ask(&["STRLEN", &format!("{{big}}:long:{number}")]);
        assert_ne!(long, Reply::Integer(0));
    }
}

/// Who has which slots, and with which epoch, as a node tells it.
fn claims(node: &Node) -> Vec<String> {
    let nodes = text(&node.connect().words("CLUSTER NODES"));
    let claim = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let slots = words[8..].iter().filter(|word| !word.starts_with('['));
        format!("{} {} {:?}", words[0], words[6], slots.collect::<Vec<_>>())
    };
    let mut claims: Vec<String> = nodes.lines().map(claim).collect();
    claims.sort();
    claims
}

/// Moves a slot with its keys as `redis-cli` does, at the same moment as somebody else.
fn move_together(group: &Group, slot: u16, (owner, taker): (usize, usize), together: &Barrier) {
    let id = group.0[taker].id();
    together.wait();
    move_keys(group, slot, (owner, taker), 10);
    let others = (0..group.0.len()).filter(|node| *node != owner && *node != taker);
    let mut connections: Vec<Connection> =
        [taker, owner].into_iter().chain(others).map(|node| group.0[node].connect()).collect();
    together.wait();
    for connection in &mut connections {
        connection.words(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
    }
}

/// Two slots that move in opposite directions at the same moment, there and back, many times.
fn move_past_each_other(nodes: Vec<Node>) {
    let group = Group::create(nodes);
    let mut client = group.client();
    let key_of = |owner: usize| {
        let mut keys = (0..).map(|number| format!("key:{number}"));
        keys.find(|key| group.0[owner].owns(slot_of(key.as_bytes()))).unwrap()
    };
    let keys = [key_of(0), key_of(1)];
    for key in &keys {
        assert_eq!(text(&client.ask(&["SET", key, key])), "OK");
    }
    for round in 0..20 {
        let together = Barrier::new(2);
        thread::scope(|scope| {
            for (place, key) in keys.iter().enumerate() {
                let (group, together, slot) = (&group, &together, slot_of(key.as_bytes()));
                let ends = if round % 2 == 0 { (place, 1 - place) } else { (1 - place, place) };
                scope.spawn(move || move_together(group, slot, ends, together));
            }
        });
        let mut attempts = 0;
        wait_until("all nodes to agree on slots and epochs", GENEROUS, || {
            attempts += 1;
            if attempts == 400 {
                println!("they do not agree for long, round {round}: {}", group.views());
            }
            group.0.iter().all(|node| claims(node) == claims(&group.0[0]))
        });
        for (place, key) in keys.iter().enumerate() {
            let taker = if round % 2 == 0 { 1 - place } else { place };
            let slot = slot_of(key.as_bytes());
            assert_eq!(group.holders(slot), [(taker, 1)], "{key} in round {round}");
            assert_eq!(text(&client.ask(&["GET", key])), *key, "in round {round}");
        }
    }
    group.wait_until_agreed();
}

#[test]
fn slots_that_move_past_each_other_keep_their_keys() {
    move_past_each_other(vec![Node::ours(), Node::ours(), Node::ours()]);
}

#[test]
fn slots_that_move_past_each_other_keep_their_keys_where_one_node_is_a_real_one() {
    move_past_each_other(vec![Node::ours(), Node::theirs(), Node::ours()]);
}

#[test]
fn keys_of_a_server_without_a_cluster_are_imported() {
    let group = Group::create(vec![Node::ours(), Node::theirs(), Node::ours()]);
    let (ours, theirs) = (
        Server::builder().any_port().start().unwrap(),
        RedisServer::builder().program(ServerProgram::redis()).start(),
    );
    for (name, port) in [("ours", ours.port().unwrap()), ("theirs", theirs.port())] {
        let mut source = Connection::tcp(port);
        for number in 0..100 {
            source.words(&format!("SET {name}:{number} {number}"));
        }
        let from = format!("127.0.0.1:{port}");
        group.cli(&["import", &group.0[0].address(), "--cluster-from", &from]);
        assert_eq!(text(&source.words("DBSIZE")), "0");
        let mut client = group.client();
        for number in 0..100 {
            let key = format!("{name}:{number}");
            assert_eq!(text(&client.ask(&["GET", &key])), number.to_string());
        }
    }
}

#[test]
fn who_listens_to_a_channel_of_a_slot_that_leaves_is_told() {
    let group = Group::create(vec![Node::ours(), Node::ours(), Node::ours()]);
    let slot = slot_of(b"news");
    let mut everywhere: Vec<Connection> = group.0.iter().map(Node::connect).collect();
    let mut subscribed = everywhere.iter_mut().map(|it| it.ask(&["SSUBSCRIBE", "news"]).unwrap());
    let owner = subscribed.position(|reply| matches!(reply, Reply::Array(_))).unwrap();
    let listener = &mut everywhere[owner];
    listener.ask(&["SSUBSCRIBE", "{news}:more"]).unwrap();
    let taker = (owner + 1) % 3;
    let id = group.0[taker].id();
    let giver_id = group.0[owner].id();
    let to_taker = |words: &str| group.0[taker].connect().words(words);
    assert_eq!(text(&to_taker(&format!("CLUSTER SETSLOT {slot} IMPORTING {giver_id}"))), "OK");
    let mut giver = group.0[owner].connect();
    giver.words(&format!("CLUSTER SETSLOT {slot} MIGRATING {id}"));
    assert_eq!(text(&to_taker(&format!("CLUSTER SETSLOT {slot} NODE {id}"))), "OK");
    assert_eq!(text(&giver.words(&format!("CLUSTER SETSLOT {slot} NODE {id}"))), "OK");
    let mut told: Vec<String> = (0..2).map(|_| format!("{:?}", listener.receive())).collect();
    told.sort();
    assert!(told[0].contains("sunsubscribe") && told[0].contains("news"), "{told:?}");
    assert_eq!(text(&giver.words("PUBSUB SHARDCHANNELS")), "[]");
}
