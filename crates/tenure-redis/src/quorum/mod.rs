//! Elections on a majority of several independent nodes.
//!
//! In: [`Call`]s. Each becomes a round (`tenure_core::quorum`) over the nodes' own backends; what
//! the round decides is the answer. Nothing is decided here: requests and replies are carried, and
//! a node that does not answer in time does not count.

mod address;
mod calling;
mod listener;
mod standing;
mod survey;

use std::fmt;
use std::sync::Arc;

use tenure_core::protocol::Call;
use tenure_core::quorum::Quorum;
use tenure_core::{Resource, StoreError};
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub(crate) use self::address::QuorumAddress;
use self::listener::QuorumListener;
use self::standing::Nodes;
use crate::RedisBackend;
use tenure_backend::{
    Backend, Calling, ConnectError, Connection, Listening, SignalSink, Subscription,
};

/// Elections on a majority of several independent nodes, as one store.
///
/// ```no_run
/// # use tenure_redis::QuorumBackend;
/// # async fn example() -> Result<(), tenure_backend::ConnectError> {
/// let backend = QuorumBackend::open("redis+quorum://10.0.0.1,10.0.0.2,10.0.0.3").await?;
/// # Ok(()) }
/// ```
pub struct QuorumBackend {
    nodes: Arc<Nodes>,
    state: watch::Receiver<Connection>,
    watching: AbortHandle,
    place: String,
}

impl QuorumBackend {
    /// Opens the nodes at an address such as `redis+quorum://host1,host2,host3`. Fails if the
    /// address or a file that it names cannot be used, and if a node that answers cannot take part:
    /// a replica, a node of a cluster, a sentinel, or the same server as another one. A node that
    /// does not answer is no failure, because it may come back.
    ///
    /// # Panics
    /// Outside a tokio runtime, which its connections need.
    pub async fn open(address: &str) -> Result<Self, ConnectError> {
        let address = QuorumAddress::parse(address)?;
        let absent = survey::check(&address).await?;
        let open = |url| -> Result<Arc<dyn Backend>, ConnectError> {
            Ok(Arc::new(RedisBackend::open_url(url)?))
        };
        let nodes = address.nodes().iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Self::build(nodes, absent, address.to_string())
    }

    /// A quorum of these nodes, each a backend for one server. `place` is the address to show.
    /// Fails if there are fewer than three or an even number.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn over(nodes: Vec<Arc<dyn Backend>>, place: String) -> Result<Self, ConnectError> {
        Self::build(nodes, Vec::new(), place)
    }

    fn build(
        nodes: Vec<Arc<dyn Backend>>,
        absent: Vec<Option<StoreError>>,
        place: String,
    ) -> Result<Self, ConnectError> {
        let quorum = Quorum::of(nodes.len());
        let quorum = quorum.map_err(|error| ConnectError::Address(error.to_string()))?;
        let (state, watching) = standing::watch(quorum, &nodes);
        let nodes = Arc::new(Nodes::new(quorum, nodes, absent));
        Ok(QuorumBackend { nodes, state, watching, place })
    }
}

impl Drop for QuorumBackend {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Backend for QuorumBackend {
    fn call(&self, call: Call) -> Calling {
        calling::begin(&self.nodes, call)
    }

    fn subscribe(&self, resource: &Resource) -> Subscription {
        listener::subscribe(self.nodes.quorum, self.nodes.backends(), resource)
    }

    fn listen(&self, resource: &Resource, sink: SignalSink) -> Listening {
        QuorumListener::new(self.nodes.quorum, sink).listen(self.nodes.backends(), resource)
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        self.state.clone()
    }

    fn describe(&self) -> String {
        self.place.clone()
    }
}

impl fmt::Debug for QuorumBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuorumBackend").field(&self.place).finish()
    }
}
