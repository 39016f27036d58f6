//! How the connections to the nodes stand, as one.

use std::sync::Arc;

use futures_util::future::select_all;
use tenure_core::StoreError;
use tenure_core::quorum::Quorum;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::backend::{Backend, Connection};

/// Keeps a summary of all nodes' connections up to date, by a task on the current runtime.
pub(super) fn watch(
    quorum: Quorum,
    nodes: &[Arc<dyn Backend>],
) -> (watch::Receiver<Connection>, AbortHandle) {
    let mut states: Vec<_> = nodes.iter().map(|node| node.connection()).collect();
    let (tell, state) = watch::channel(Connection::Connecting);
    let task = tokio::spawn(async move {
        loop {
            let seen: Vec<Connection> =
                states.iter_mut().map(|state| state.borrow_and_update().clone()).collect();
            tell.send_if_modified(|before| {
                let after = summary(quorum, &seen);
                let is_changed = *before != after;
                *before = after;
                is_changed
            });
            let changes = states.iter_mut().map(|state| Box::pin(state.changed()));
            if let (Err(_), ..) = select_all(changes).await {
                // A node's backend is gone, hence this one, too.
                return;
            }
        }
    });
    (state, task.abort_handle())
}

/// Up with a majority; down once too many nodes are for one.
fn summary(quorum: Quorum, seen: &[Connection]) -> Connection {
    let up = seen.iter().filter(|state| **state == Connection::Up).count();
    let down: Vec<&StoreError> = seen
        .iter()
        .filter_map(|state| match state {
            Connection::Down(error) => Some(error),
            _ => None,
        })
        .collect();
    let (nodes, majority) = (quorum.nodes(), quorum.majority());
    if up >= majority {
        return Connection::Up;
    }
    if nodes - down.len() >= majority {
        return Connection::Connecting;
    }
    let words = |error: &&StoreError| match error {
        StoreError::Unreachable(why) => why.clone(),
        other => other.to_string(),
    };
    let told: Vec<String> = down.iter().map(words).collect();
    let text = format!("{up} of {nodes} nodes are there, {majority} must be: {}", told.join("; "));
    let denied = down.iter().filter(|error| matches!(error, StoreError::Denied(_))).count();
    Connection::Down(match denied > nodes - majority {
        true => StoreError::Denied(text),
        false => StoreError::Unreachable(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_makes_the_state() {
        let quorum = Quorum::of(3).unwrap();
        let down = || Connection::Down(StoreError::Unreachable("b: refused".into()));
        let (up, new) = (Connection::Up, Connection::Connecting);
        assert_eq!(summary(quorum, &[up.clone(), down(), up.clone()]), Connection::Up);
        assert_eq!(summary(quorum, &[up.clone(), new.clone(), down()]), Connection::Connecting);
        let Connection::Down(error) = summary(quorum, &[up, down(), down()]) else {
            panic!("one node of three is no majority");
        };
        assert!(error.to_string().contains("1 of 3 nodes are there, 2 must be: "), "{error}");
        assert!(error.to_string().contains("b: refused"), "{error}");
    }
}
