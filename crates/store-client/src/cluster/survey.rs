//! Asks several nodes the same, one beside the other, until one of them answers.

use std::future::Future;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::map::SlotMap;
use super::node::Node;

/// How long one node may take to answer.
pub const ASK_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long one is waited for before the next is asked beside it. All at once would be three times
/// the connections whenever a whole fleet looks for its store.
const NEXT_ASKED_AFTER: Duration = Duration::from_millis(150);
/// How many of the known nodes may be asked, beside one that the address names: a node that was cut
/// off tells an old story, so others are asked each time.
const KNOWN_ASKED: usize = 2;

/// Whom to ask for a map in turn: all `seeds`, which the address names, as long as nothing is
/// known, then a few.
pub fn nodes_to_ask(seeds: &[Node], map: Option<&SlotMap>) -> Vec<Node> {
    let mut nodes = map.map_or(seeds, SlotMap::nodes).to_vec();
    fastrand::shuffle(&mut nodes);
    if map.is_none() {
        return nodes;
    }
    nodes.truncate(KNOWN_ASKED);
    // Names may lead elsewhere by now, which nobody else would tell.
    let seed = fastrand::choice(seeds).filter(|seed| !nodes.contains(seed));
    nodes.extend(seed.cloned());
    nodes
}

/// The first answer of `nodes`, or why each of them gave none.
pub async fn first_answer<'a, T, E, F: Future<Output = Result<T, E>>>(
    nodes: &'a [Node],
    ask: impl Fn(&'a Node) -> F,
) -> Result<T, Vec<(&'a Node, E)>> {
    let asked = |node: &'a Node| {
        let answer = ask(node);
        async move { (node, answer.await) }
    };
    let mut asking = FuturesUnordered::new();
    let mut failures = Vec::new();
    let mut others = nodes.iter();
    asking.extend(others.next().map(asked));
    while !asking.is_empty() {
        tokio::select! {
            Some((node, answer)) = asking.next() => match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => failures.push((node, error)),
            },
            () = tokio::time::sleep(NEXT_ASKED_AFTER), if !others.as_slice().is_empty() => {}
        }
        asking.extend(others.next().map(asked));
    }
    Err(failures)
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::super::slot::Slot;
    use super::*;

    fn named(host: &str, port: u16) -> Node {
        Node { host: host.into(), port }
    }

    #[test]
    fn a_few_of_many_are_asked_and_one_that_the_address_names() {
        let seeds = [named("seed-1", 1), named("seed-2", 1)];
        assert_eq!(nodes_to_ask(&seeds, None).len(), 2);
        let mut map = SlotMap::parse(&Value::Array(vec![]), &named("a", 1)).unwrap();
        for port in 1..100 {
            map.learn(Slot::numbered(u64::from(port)).unwrap(), &named("known", port));
        }
        let asked = nodes_to_ask(&seeds, Some(&map));
        assert_eq!(asked.len(), 3);
        assert!(asked[2].host.starts_with("seed-"), "{asked:?}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_silent_node_is_passed_over_and_one_that_fails_is_told() {
        let nodes = [named("silent", 1), named("broken", 1), named("fine", 1)];
        let ask = |node: &Node| {
            let host = node.host.clone();
            async move {
                match host.as_str() {
                    "silent" => std::future::pending().await,
                    "fine" => Ok(host),
                    _ => Err(host),
                }
            }
        };
        assert_eq!(first_answer(&nodes, ask).await, Ok("fine".into()));
        let told = first_answer(&nodes[1..2], ask).await;
        assert_eq!(told, Err(vec![(&nodes[1], "broken".to_owned())]));
    }
}
