//! Why a request to a cluster failed, and whether it may have been carried out.

use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerError};

use super::attempts::HOPS_MAX;
use super::node::Node;
use super::slot::Slot;

/// Why a request failed. It may have been carried out all the same only after
/// [`OutcomeUnknown`](Self::OutcomeUnknown), and in part after [`Reply`](Self::Reply), as with any
/// server.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The server answered with an error.
    #[error("{0}")]
    Reply(ServerError),
    /// The command was sent and no answer came: it may or may not have been carried out. It is not
    /// repeated. Look at the data, or repeat it if twice is harmless.
    #[error("{node} did not answer ({why}): the command may or may not have been carried out")]
    OutcomeUnknown {
        /// The node that it was sent to.
        node: Node,
        /// What went wrong.
        why: RedisError,
    },
    /// No node would take it in time: nothing was done. A failover or a move of slots may take
    /// longer than this client waits, or slots have no owner.
    #[error("{0}; nothing was done")]
    Unavailable(String),
    /// It was sent from node to node: they disagree. Nothing was done.
    #[error(
        "sent from node to node {HOPS_MAX} times, last to {last} for slot {slot}; nothing was done: \
         the nodes disagree about the owner (redis-cli --cluster check {last})"
    )]
    TooManyHops {
        /// The slot.
        slot: Slot,
        /// The node that was named last.
        last: Node,
    },
    /// The commands of a transaction have keys in different slots, of which different nodes may be
    /// the owners. Nothing was done.
    #[error(
        "the keys of a transaction are in slots {first} and {other}: enclose the part that they \
         share in {{…}}, so that they are in one"
    )]
    CrossSlot {
        /// The slot of the first key.
        first: Slot,
        /// The slot of another one.
        other: Slot,
    },
    /// It is about one connection, and many share those of this client. Nothing was done.
    #[error("{0} is about one connection, and this client shares its connections: {1}")]
    NotShared(String, &'static str),
    /// The address makes no sense.
    #[error("{0}")]
    Address(String),
    /// The answer is not of the type that was asked for. The command was carried out.
    #[error("{0}")]
    Type(RedisError),
}

impl ClusterError {
    /// Whether the command may have been carried out though this client cannot say so.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// The error of this client inside one of the `redis` crate, which its traits return.
    ///
    /// ```
    /// # use store_client::{ClusterError, redis::RedisError};
    /// let told = RedisError::from(ClusterError::Unavailable("no node answers".into()));
    /// let found = ClusterError::of(&told).expect("it came from here");
    /// assert!(!found.is_outcome_unknown());
    /// ```
    pub fn of(error: &RedisError) -> Option<&Self> {
        let source = std::error::Error::source(error)?;
        // It is behind a pointer of the `redis` crate's own.
        let shared = source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
        shared.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
    }
}

impl From<ClusterError> for RedisError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Reply(error) => error.into(),
            ClusterError::Type(error) => error,
            ClusterError::Address(text) => {
                (ErrorKind::InvalidClientConfig, "the address makes no sense", text).into()
            }
            error => io::Error::other(error).into(),
        }
    }
}
