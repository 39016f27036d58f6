//! Hand-overs on a quorum, where nothing is reserved: the successor is let go first.

use std::time::Duration;

use tenure::Tenure;
use testkit::{GENEROUS, RedisServer, wait_until};
use trials::clock;
use trials::record::Record;

use crate::instance::{Instance, token_in};
use crate::player::{Player, join};

/// So long that whoever waited for a lease to run out would be found out.
const LONG: Duration = Duration::from_secs(60);
/// For how long a successor is let go first, at the most.
const HEAD_START: Duration = Duration::from_secs(1);
/// What a shared machine may add to anything.
const SLACK: Duration = Duration::from_secs(4);

struct Nodes(Vec<RedisServer>);

impl Nodes {
    fn start() -> Self {
        Nodes((0..3).map(|_| RedisServer::start()).collect())
    }

    fn url(&self) -> String {
        let hosts: Vec<_> =
            self.0.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+quorum://{}", hosts.join(","))
    }

    /// Waits until `count` members are on the first node.
    fn wait_for_members(&self, count: usize) {
        wait_until("all members to be there", GENEROUS, || {
            self.0[0].cli(&["HLEN", "{tenure:job}:members"]) == count.to_string()
        });
    }
}

/// Somebody who leads, and heard of `members` who wait.
async fn leader(nodes: &Nodes) -> (Player, u64) {
    let mut leader = join(&nodes.url(), "leader", LONG).await;
    let token = leader.leads().await;
    (leader, token)
}

#[tokio::test]
async fn a_named_successor_takes_over_while_a_node_is_down() {
    let mut nodes = Nodes::start();
    let (leader, first) = leader(&nodes).await;
    // The names would decide otherwise.
    let mut bystander = join(&nodes.url(), "a-bystander", LONG).await;
    let mut successor = join(&nodes.url(), "z-successor", LONG).await;
    bystander.fails("held").await;
    successor.fails("held").await;
    nodes.wait_for_members(3);
    nodes.0[2].kill();

    let asked_at = clock::now();
    let to = leader.election.hand_over("z-successor").await.unwrap();
    assert_eq!(to, *successor.election.id());
    assert!(successor.leads().await > first);
    let took = clock::now().since(asked_at);
    println!("handed over in {took:?} with one of three nodes down");
    assert!(took < HEAD_START + SLACK, "{took:?}");
    assert!(!leader.election.is_leader() && !bystander.election.is_leader());

    // The same again, asked for by somebody else.
    let operator = Tenure::connect(&nodes.url()).await.unwrap();
    let asked = operator.observe("job").unwrap().ask_to_hand_over("a-bystander").await.unwrap();
    assert!(bystander.leads().await > first, "{asked:?}");
}

/// Hands over to a process that is killed first, and tells who leads instead.
async fn hand_over_to_the_dead(nodes: &Nodes, leader: &mut Player, first: u64) {
    let mut doomed = Instance::start(&nodes.url(), "doomed", LONG);
    let mut third = join(&nodes.url(), "third", LONG).await;
    third.fails("held").await;
    nodes.wait_for_members(3);

    // It counts as alive: nobody waits three leases before a hand-over.
    doomed.process.kill();
    let handed_at = clock::now();
    let refused = leader.election.hand_over("doomed").await.unwrap_err();
    assert!(matches!(refused, tenure::Error::Refused { .. }), "{refused:?}");
    let (token, winner) = tokio::select! {
        token = third.leads() => (token, "third"),
        token = leader.leads() => (token, "leader"),
    };
    let waited = clock::now().since(handed_at);
    println!("{winner} took over {waited:?} after a hand-over to a dead successor");
    assert!(waited < HEAD_START + SLACK, "waited {waited:?}");
    assert!(token > first, "{first}, then {token}");
    assert!(third.election.is_leader() ^ leader.election.is_leader());
}

#[tokio::test]
async fn a_successor_that_dies_on_the_way_leaves_the_leadership_to_others() {
    let nodes = Nodes::start();
    let (mut leader, first) = leader(&nodes).await;
    hand_over_to_the_dead(&nodes, &mut leader, first).await;
}

#[tokio::test]
async fn it_does_so_with_a_node_down_as_well() {
    let mut nodes = Nodes::start();
    let (mut leader, first) = leader(&nodes).await;
    nodes.0[1].kill();
    hand_over_to_the_dead(&nodes, &mut leader, first).await;
}

#[test]
fn a_node_that_dies_in_the_middle_of_a_hand_over_changes_nothing() {
    let ttl = Duration::from_secs(10);
    let mut nodes = Nodes::start();
    let mut instances = vec![Instance::start(&nodes.url(), "from", ttl)];
    let first = token_in(&instances[0].wait_for_work());
    instances.push(Instance::start(&nodes.url(), "to", ttl));
    nodes.wait_for_members(2);

    // The successor does not hear of it before the node is gone.
    instances[1].process.pause();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let operator = runtime.block_on(Tenure::connect(&nodes.url())).unwrap();
    let asking =
        runtime.spawn(async move { operator.observe("job").unwrap().ask_to_hand_over("to").await });
    wait_until("the lease to be given up", GENEROUS, || {
        nodes.0[1].cli(&["EXISTS", "tenure:job"]) == "0"
    });
    nodes.0[0].kill();
    instances[1].process.resume();
    wait_until("one of them to lead again", GENEROUS, || {
        let terms = instances.iter_mut().flat_map(|one| one.all_lines().to_vec());
        let begun = terms.filter(|line| line.text.starts_with("work-begin"));
        begun.map(|line| token_in(&line)).any(|token| token > first)
    });
    println!("whoever asked was told {:?}", runtime.block_on(asking).unwrap());

    let mut record = Record::default();
    instances.iter_mut().for_each(|one| one.record_work(&mut record, clock::now()));
    assert!(record.len() >= 2, "{record:?}");
    assert_eq!(record.overlaps(), []);
    assert_eq!(record.token_disorder(), []);
}
