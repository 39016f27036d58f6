//! Whether the nodes that answer at the start can count at all.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure_core::StoreError;

use super::address::QuorumAddress;
use crate::{NodeFacts, look_at};
use tenure_backend::ConnectError;

/// How long the rest is waited for once a majority has answered: the start must not hang on a node
/// that is down.
const REST_WAITED_FOR: Duration = Duration::from_millis(300);

/// Looks at all nodes at once, and tells what keeps those from answering that do not. Fails with
/// what is wrong with one that answers.
pub(super) async fn check(
    address: &QuorumAddress,
) -> Result<Vec<Option<StoreError>>, ConnectError> {
    let nodes = address.nodes();
    let look = |(index, url)| async move { (index, look_at(url).await) };
    let mut looking: FuturesUnordered<_> = nodes.iter().enumerate().map(look).collect();
    let mut known: Vec<Option<NodeFacts>> = nodes.iter().map(|_| None).collect();
    let silent = StoreError::timed_out(REST_WAITED_FOR);
    let mut absent: Vec<Option<StoreError>> = vec![Some(silent); nodes.len()];
    let mut answered = 0;
    loop {
        let next = looking.next();
        let looked = match answered > nodes.len() / 2 {
            true => tokio::time::timeout(REST_WAITED_FOR, next).await.unwrap_or(None),
            false => next.await,
        };
        // Whoever does not answer now is asked again with every call.
        match looked {
            Some((index, Ok(facts))) => {
                known[index] = Some(facts);
                absent[index] = None;
                answered += 1;
            }
            Some((index, Err(error))) => absent[index] = Some(error),
            None => break,
        }
    }
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    verdict(&names, &known).map_err(ConnectError::Address)?;
    Ok(absent)
}

fn verdict(names: &[String], known: &[Option<NodeFacts>]) -> Result<(), String> {
    for (index, facts) in known.iter().enumerate() {
        let Some(facts) = facts else { continue };
        let name = &names[index];
        if facts.is_replica {
            return Err(format!(
                "{name} is a replica, but a quorum counts independent nodes: name its primary, or \
                 detach it by REPLICAOF NO ONE"
            ));
        }
        match facts.kind.as_str() {
            "" | "standalone" => {}
            "sentinel" => {
                return Err(format!(
                    "{name} is a sentinel, which holds no data: name the port of a server, or \
                     write redis+sentinel://"
                ));
            }
            kind => {
                return Err(format!(
                    "{name} is part of a {kind}, but a quorum counts independent nodes: name \
                     servers that stand alone"
                ));
            }
        }
        let twin = known[..index].iter().position(|other| {
            other.as_ref().is_some_and(|other| !facts.run.is_empty() && other.run == facts.run)
        });
        if let Some(twin) = twin {
            return Err(format!(
                "{} and {name} are the same server under two names: name each node once",
                names[twin]
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(run: &str, kind: &str, is_replica: bool) -> Option<NodeFacts> {
        Some(NodeFacts { run: run.into(), kind: kind.into(), is_replica })
    }

    #[test]
    fn what_cannot_count_is_named() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let alone = |run| facts(run, "standalone", false);
        assert_eq!(verdict(&names, &[alone("1"), None, alone("2")]), Ok(()));
        assert_eq!(verdict(&names, &[alone(""), alone(""), None]), Ok(()), "may not be asked");
        let cases = [
            ([alone("1"), None, alone("1")], "a and c are the same server"),
            ([facts("1", "standalone", true), None, None], "a is a replica"),
            ([None, facts("1", "cluster", false), None], "b is part of a cluster"),
            ([None, None, facts("1", "sentinel", false)], "c is a sentinel"),
        ];
        for (known, expected) in cases {
            let error = verdict(&names, &known).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
