//! Several independent nodes that decide together, as one store.
//!
//! In: one [`Request`](crate::protocol::Request) and the answers of the nodes. Out: requests to the
//! nodes, and the one [`Answer`](crate::protocol::Answer) that a majority of them comes to. No
//! clock and no I/O: whoever drives a [`Round`] carries its outputs out and brings replies in, and
//! [`HintCount`] says which hints enough nodes have given.
//!
//! ```
//! # use std::time::Duration;
//! # use tenure_core::Moment;
//! # use tenure_core::protocol::{Outcome, Request};
//! # use tenure_core::quorum::{Quorum, Round, RoundOutput};
//! let quorum = Quorum::of(3).unwrap();
//! assert_eq!(quorum.majority(), 2);
//! let request = Request::Observe { members: false };
//! let mut round = Round::new(quorum, request, Moment::ORIGIN, Duration::from_secs(1));
//! let mut asked = 0;
//! while let Some(RoundOutput::Ask { .. }) = round.poll_output() {
//!     asked += 1;
//! }
//! assert_eq!(asked, 3);
//! ```

mod counting;
mod hints;
mod merge;
mod round;
#[cfg(test)]
mod tests;

pub use counting::of_nodes;
pub use hints::HintCount;
pub use round::{Round, RoundOutput};

/// More nodes than anybody runs: each request goes to all of them.
pub const NODES_MAX: usize = 15;

/// How many nodes there are. An odd number, so that one more never means one more that may fail
/// for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    nodes: usize,
}

/// Why that many nodes are no quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuorumError {
    /// Fewer than three.
    #[error(
        "{} too few for a quorum: name three or more, each on a machine of its own",
        if *.0 == 1 { "1 node is".into() } else { format!("{} nodes are", .0) }
    )]
    TooFew(usize),
    /// An even number.
    #[error(
        "{0} nodes are an even number, which tolerates no more failures than one node fewer: name one \
         more or one fewer"
    )]
    Even(usize),
    /// More than [`NODES_MAX`].
    #[error("{0} nodes are more than the {NODES_MAX} that a quorum may have")]
    TooMany(usize),
}

impl Quorum {
    /// A quorum of so many nodes.
    pub const fn of(nodes: usize) -> Result<Self, QuorumError> {
        match nodes {
            0..3 => Err(QuorumError::TooFew(nodes)),
            _ if nodes > NODES_MAX => Err(QuorumError::TooMany(nodes)),
            _ if nodes.is_multiple_of(2) => Err(QuorumError::Even(nodes)),
            _ => Ok(Quorum { nodes }),
        }
    }

    /// How many nodes there are.
    pub const fn nodes(self) -> usize {
        self.nodes
    }

    /// How many of them must agree: any two majorities share a node.
    pub const fn majority(self) -> usize {
        self.nodes / 2 + 1
    }
}
