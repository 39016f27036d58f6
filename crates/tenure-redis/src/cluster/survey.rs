//! Asks nodes which of them has which slot.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::Value;
use store_client::cluster::{ASK_TIMEOUT, Slot, SlotMap, first_answer};
use tenure_core::{StoreError, StoreErrorKind};

use super::address::ClusterAddress;
use crate::SurveyError;
use crate::dial::Route;
use crate::error;
use crate::node::Node;
use crate::text::cleaned;
use crate::url::RedisUrl;

/// The first answer of `nodes`. The error is the one that a person can do most about. One that
/// names no owner of any slot is of a node that was removed from the cluster if `known` has some.
pub(super) async fn survey(
    address: Arc<ClusterAddress>,
    nodes: Vec<Node>,
    known: Known,
) -> Result<SlotMap, StoreError> {
    let address = &address;
    let ask = |node| async move {
        let map = ask(address, node).await?;
        match map.has_owners() || known == Known::Nothing {
            true => Ok(map),
            false => Err(StoreError::unreachable(format!("{node} knows no owner of any slot"))),
        }
    };
    let answer = first_answer(&nodes, ask).await;
    answer.map_err(|failures| verdict(&failures))
}

/// What is known about the owners of slots before nodes are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Nothing,
    Owners,
}

impl Known {
    pub(super) fn from(map: Option<&SlotMap>) -> Self {
        match map.is_some_and(SlotMap::has_owners) {
            true => Known::Owners,
            false => Known::Nothing,
        }
    }
}

async fn ask(address: &ClusterAddress, node: &Node) -> Result<SlotMap, StoreError> {
    let route = Route::to(&address.node_at(node))
        .map_err(|error| StoreError::unreachable(error.to_string()))?;
    let asking = async {
        let mut line = route.open_unchecked().await?;
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        // Some servers' errors come as values, some as errors.
        match line.connection.send_packed_command(&question).await {
            Ok(Value::ServerError(error)) => Err(refusal(address, node, error::from_reply(&error))),
            Ok(reply) => SlotMap::parse(&reply, node).map_err(|fault| {
                StoreError::unexpected(format!("{node} answered {fault} to CLUSTER SLOTS"))
            }),
            Err(error) => Err(refusal(address, node, error::from_connection(&error))),
        }
    };
    route.within(ASK_TIMEOUT, asking).await
}

/// A server that knows no clusters says so in words of its own.
fn refusal(address: &ClusterAddress, node: &Node, error: StoreError) -> StoreError {
    let said = error.message();
    let is_alone = said.contains("cluster support disabled") || said.contains("unknown command");
    if error.kind() != StoreErrorKind::Unexpected || !is_alone {
        return error;
    }
    StoreError::wrong_address(format!("{node} is not a node of a cluster ({})", cleaned(said)))
        .with_next_step(format!("write {} in the store's address", address.node_at(node)))
}

fn verdict(failures: &[(&Node, StoreError)]) -> StoreError {
    let lasting = failures.iter().find(|(_, error)| !error.is_temporary());
    let Some((node, error)) = lasting.or(failures.first()) else {
        return StoreError::unreachable("no node was asked");
    };
    match error.kind() {
        StoreErrorKind::Denied => error.clone().at(&format!("the node at {node}")),
        // One that is silent now may be of a cluster.
        StoreErrorKind::WrongAddress if failures.iter().any(|(_, error)| error.is_temporary()) => {
            error.clone().with_kind(StoreErrorKind::Unreachable)
        }
        _ if !error.is_temporary() => error.clone(),
        _ => error::of_silent(("node", failures.len()), &node.to_string(), error),
    }
}

/// How many nodes are asked beside those that the address names.
const OTHERS_ASKED_MAX: usize = 256;

/// The state of a cluster as its nodes describe it.
#[derive(Debug)]
pub struct ClusterSurvey {
    /// The nodes that did not answer, with the reason.
    pub silent: Vec<(String, StoreError)>,
    dissenting: Vec<(String, String)>,
    address: ClusterAddress,
    map: SlotMap,
}

/// The nodes that serve a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The primary.
    pub owner: RedisUrl,
    /// The replicas.
    pub replicas: Vec<RedisUrl>,
}

/// The nodes whose map differs from what the owners of slots say of themselves, with how.
pub fn dissenting_nodes(survey: &ClusterSurvey) -> &[(String, String)] {
    &survey.dissenting
}

impl ClusterSurvey {
    /// Asks all of them, and all that they know of. Fails when none of them answers.
    pub(crate) async fn take(address: ClusterAddress) -> Result<Self, SurveyError> {
        if let Some(seed) = address.seeds().first() {
            Route::to(&address.node_at(seed))?;
        }
        let (mut told, mut failures) = ask_each(&address, address.seeds().to_vec()).await;
        if told.is_empty() {
            let failures: Vec<_> =
                failures.iter().map(|(node, error)| (node, error.clone())).collect();
            return Err(verdict(&failures).into());
        }
        let asked = |node: &&Node| address.seeds().contains(node);
        let known: BTreeSet<Node> = told.iter().flat_map(|(_, map)| map.nodes().to_vec()).collect();
        let others = known.iter().filter(|node| !asked(node)).take(OTHERS_ASKED_MAX).cloned();
        let (more, silent) = ask_each(&address, others.collect()).await;
        told.extend(more);
        failures.extend(silent);
        let silent = failures.into_iter().map(|(node, error)| (node.to_string(), error)).collect();
        let map = put_together(&told);
        let dissent = |(node, of_node): &(Node, SlotMap)| {
            let what = contradiction(&map, of_node)?;
            Some((node.to_string(), what))
        };
        let dissenting = told.iter().filter_map(dissent).collect();
        Ok(ClusterSurvey { silent, dissenting, address, map })
    }

    /// The slots that no node serves: `0-99, 5460`. `None` if there are none.
    pub fn missing_slots(&self) -> Option<String> {
        self.map.gaps()
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        Slot::of(key).number()
    }

    /// The nodes that serve the slot of a key. `None` if there are none.
    pub fn shard_of(&self, key: &str) -> Option<Shard> {
        self.map.owner(Slot::of(key)).map(|owner| self.shard(owner))
    }

    /// All nodes that serve slots.
    pub fn shards(&self) -> Vec<Shard> {
        let owners = self.map.nodes().iter().filter(|node| self.map.is_owner(node));
        owners.map(|owner| self.shard(owner)).collect()
    }

    fn shard(&self, owner: &Node) -> Shard {
        let replicas = self.map.replicas_of(owner).map(|node| self.address.node_at(node));
        Shard { owner: self.address.node_at(owner), replicas: replicas.collect() }
    }
}

/// How a node's map differs, for people. `None` if it does not.
fn contradiction(map: &SlotMap, of_node: &SlotMap) -> Option<String> {
    let mut slots = map.contradictions(of_node);
    let first = slots.next()?;
    let (named, owner) = (of_node.owner(first)?, map.owner(first)?);
    let more = match slots.count() {
        0 => String::new(),
        count => format!(", and so on for {count} more"),
    };
    Some(format!("it names {named} for slot {first}, which {owner} serves{more}"))
}

type Told = Vec<(Node, SlotMap)>;
type Failures = Vec<(Node, StoreError)>;

async fn ask_each(address: &ClusterAddress, nodes: Vec<Node>) -> (Told, Failures) {
    let answers = join_all(nodes.iter().map(|node| ask(address, node))).await;
    let (mut told, mut failures) = (Vec::new(), Vec::new());
    for (node, answer) in nodes.into_iter().zip(answers) {
        match answer {
            Ok(map) => told.push((node, map)),
            Err(error) => failures.push((node, error)),
        }
    }
    (told, failures)
}

/// One map of what many tell. A slot is served by whoever says so of itself; what others say counts
/// only for those who do not answer, because a node may not know of a change yet.
fn put_together(told: &[(Node, SlotMap)]) -> SlotMap {
    let votes = |(_, map): &&(Node, SlotMap)| told.iter().filter(|(_, other)| other == map).count();
    let most = told.iter().max_by_key(votes).map(|(_, map)| map);
    let mut map = most.expect("somebody told something").clone();
    for (node, _) in told {
        map.forget(node);
    }
    for (node, of_node) in told {
        for slot in of_node.owned_by(node) {
            map.learn(slot, node);
        }
        // An owner knows its replicas best.
        for replica in of_node.replicas_of(node) {
            map.learn_replica(node, replica);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn what_a_person_can_mend_is_told_before_silence() {
        let node = Node { host: "a".into(), port: 1 };
        let silent = || (&node, StoreError::unreachable("refused"));
        let denied = || (&node, StoreError::denied("NOAUTH").with_next_step("do this"));
        let text = verdict(&[silent(), denied()]).to_string();
        assert!(text.contains("the node at a:1: NOAUTH; do this"), "{text}");
        let text = verdict(&[silent(), silent()]).to_string();
        assert!(text.contains("none of 2 nodes answers (the one at a:1: refused)"), "{text}");
        let text = verdict(&[silent()]).to_string();
        assert!(text.contains("the node at a:1 does not answer: refused"), "{text}");
        let alone = || (&node, StoreError::wrong_address("not a node of a cluster"));
        assert_eq!(verdict(&[alone(), alone()]).kind(), StoreErrorKind::WrongAddress);
        assert_eq!(verdict(&[alone(), silent()]).kind(), StoreErrorKind::Unreachable);
    }

    #[test]
    fn a_slot_is_served_by_whoever_says_so_of_itself() {
        let node = |port| Node { host: "h".into(), port };
        let slot = |number| Slot::numbered(number).unwrap();
        let told = |owned: [u16; 3]| {
            let mut map = SlotMap::parse(&Value::Array(vec![]), &node(1)).unwrap();
            for (number, port) in (0..).zip(owned) {
                map.learn(slot(number), &node(port));
            }
            map
        };
        // One has given slot 0 away and another has taken slot 1; the third has heard of neither,
        // and neither has the fourth, which is down, whose slot is its own as far as anybody knows.
        let mut first = told([1, 1, 4]);
        first.forget(&node(1));
        let map = put_together(&[
            (node(1), first),
            (node(2), told([1, 2, 4])),
            (node(3), told([1, 1, 4])),
            (node(5), told([1, 1, 4])),
        ]);
        let owners = [0, 1, 2].map(|number| map.owner(slot(number)).map(|node| node.port));
        assert_eq!(owners, [None, Some(2), Some(4)]);

        let dissent = contradiction(&map, &told([1, 1, 4])).unwrap();
        assert_eq!(dissent, "it names h:1 for slot 1, which h:2 serves");
        assert_eq!(contradiction(&map, &told([1, 2, 4])), None);

        let mut knowing = told([1, 2, 4]);
        knowing.learn_replica(&node(2), &node(9));
        let map = put_together(&[(node(2), knowing), (node(3), told([1, 2, 4]))]);
        assert_eq!(map.replicas_of(&node(2)).collect::<Vec<_>>(), [&node(9)]);
    }

    /// Answers CLUSTER SLOTS with this, and all else with OK.
    fn serve(slots: String) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut bytes, slots) = ([0; 4096], slots.clone());
                thread::spawn(move || {
                    while let Ok(len @ 1..) = stream.read(&mut bytes) {
                        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
                        for request in text.split('*').filter(|request| !request.is_empty()) {
                            let is_asked = request.contains("SLOTS");
                            let answer = if is_asked { &slots[..] } else { "+OK\r\n" };
                            let _ = stream.write_all(answer.as_bytes());
                        }
                    }
                });
            }
        });
        Node { host: "127.0.0.1".into(), port }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_node_that_was_removed_from_the_cluster_is_not_believed() {
        let owner = "*3\r\n$9\r\n127.0.0.1\r\n:7\r\n$2\r\nid\r\n";
        let removed = serve("*0\r\n".into());
        let member = serve(format!("*1\r\n*3\r\n:0\r\n:16383\r\n{owner}"));
        let url = format!("redis+cluster://{removed},{member}");
        let address = Arc::new(ClusterAddress::parse(&url).unwrap());
        let nodes = vec![removed, member];
        let told = async |known| survey(Arc::clone(&address), nodes.clone(), known).await.unwrap();
        assert!(told(Known::Owners).await.has_owners());
        // A cluster may have no owners yet.
        assert!(!told(Known::Nothing).await.has_owners());
    }
}
