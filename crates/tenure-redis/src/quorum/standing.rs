//! How the connections to the nodes stand: each, and all as one.

use std::sync::Arc;

use futures_util::future::select_all;
use tenure_core::protocol::Call;
use tenure_core::quorum::{Quorum, of_nodes};
use tenure_core::{StoreError, StoreErrorKind};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use tenure_backend::{Backend, Calling, Connection};

/// The nodes, and what is known of each.
pub(super) struct Nodes {
    pub(super) quorum: Quorum,
    backends: Vec<Arc<dyn Backend>>,
    /// What kept each from answering at the start. It counts until its connection tells more.
    absent_at_start: Vec<Option<StoreError>>,
}

impl Nodes {
    pub(super) fn new(
        quorum: Quorum,
        backends: Vec<Arc<dyn Backend>>,
        absent_at_start: Vec<Option<StoreError>>,
    ) -> Self {
        Nodes { quorum, backends, absent_at_start }
    }

    pub(super) fn backends(&self) -> &[Arc<dyn Backend>] {
        &self.backends
    }

    /// Where a node is, for people.
    pub(super) fn place(&self, node: usize) -> String {
        self.backends[node].describe()
    }

    pub(super) fn call(&self, node: usize, call: Call) -> Calling {
        self.backends[node].call(call)
    }

    /// Why nothing comes from a node; `None` while it is connected, or nothing is known yet.
    pub(super) fn absence(&self, node: usize) -> Option<StoreError> {
        match &*self.backends[node].connection().borrow() {
            Connection::Up => None,
            Connection::Down(error) => Some(error.clone()),
            _ => self.absent_at_start.get(node).cloned().flatten(),
        }
    }

    /// One warning per node that is missing: which, why, and how many more may go.
    pub(super) fn warnings(&self) -> Vec<String> {
        let missing: Vec<(usize, StoreError)> =
            (0..self.backends.len()).filter_map(|node| Some((node, self.absence(node)?))).collect();
        let spare = (self.quorum.nodes() - missing.len()).checked_sub(self.quorum.majority());
        let then = match spare {
            None | Some(0) => "one more would leave no leader".to_owned(),
            Some(spare) => format!("{spare} more may go down"),
        };
        let tell = |(node, error): &(usize, StoreError)| {
            let place = self.place(*node);
            let words = error.detail();
            let words = words.strip_prefix(&format!("{place}: ")).unwrap_or(&words);
            format!("node {place} {}, {then}: {words}", how(error))
        };
        missing.iter().map(tell).collect()
    }
}

/// What a node does that does not take part.
fn how(error: &StoreError) -> &'static str {
    match error.kind() {
        StoreErrorKind::Denied => "cannot be used",
        StoreErrorKind::TimedOut => "does not answer",
        StoreErrorKind::NotNow => "cannot serve now",
        StoreErrorKind::WrongNode | StoreErrorKind::Unexpected => "cannot count",
        _ => "is down",
    }
}

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
    let what = format!("{up} of {nodes} nodes are there, {majority} must be");
    let denied = down.iter().filter(|error| error.kind() == StoreErrorKind::Denied).count();
    let kind = match denied > nodes - majority {
        true => StoreErrorKind::Denied,
        false => StoreErrorKind::Unreachable,
    };
    Connection::Down(of_nodes(kind, &what, &down))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_makes_the_state() {
        let quorum = Quorum::of(3).unwrap();
        let down = || Connection::Down(StoreError::unreachable("b: refused"));
        let (up, new) = (Connection::Up, Connection::Connecting);
        assert_eq!(summary(quorum, &[up.clone(), down(), up.clone()]), Connection::Up);
        assert_eq!(summary(quorum, &[up.clone(), new.clone(), down()]), Connection::Connecting);
        let Connection::Down(error) = summary(quorum, &[up, down(), down()]) else {
            panic!("one node of three is no majority");
        };
        assert!(error.to_string().contains("1 of 3 nodes are there, 2 must be: "), "{error}");
        let told = "2 must be: b: refused and b: refused; start what is down";
        assert!(error.to_string().contains(told), "{error}");
    }
}
