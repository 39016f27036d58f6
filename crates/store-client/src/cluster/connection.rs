//! Connections to the nodes: one for each node that all requests share, and more where commands
//! block.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, RedisError, RedisResult,
    ServerError, Value,
};
use tokio::task::JoinHandle;

use super::map::{NODES_MAX, SlotMap};
use super::node::Node;
use super::request::ClusterRequest;
use super::seeds::ClusterSeeds;
use crate::connect::connect_tcp;
use crate::store::CONNECT_TIMEOUT;

/// How many requests wait for a connection's task. More wait in their callers.
const QUEUED_MAX: usize = 1024;
/// How many connections for commands that block are kept open for each node when nobody uses them.
const IDLE_MAX: usize = 8;
/// An answer that takes longer means a dead connection; commands that block may take as long as
/// they like.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Which connection of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// It answers for its own slots only.
    Primary,
    /// It has said READONLY, so a replica answers for the slots of its primary.
    Replica,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request did not leave.
    NotSent(RedisError),
    /// It may have been carried out.
    Unknown(RedisError),
}

/// All connections of a client.
pub(super) struct Connections {
    pub(super) address: ClusterSeeds,
    places: Mutex<HashMap<(Node, Role), Arc<NodeConnections>>>,
}

/// The connections to one node in one role.
#[derive(Default)]
struct NodeConnections {
    shared: Mutex<Option<NodeConnection>>,
    /// Held by the one that connects: the others wait for it and use what it made.
    dialing: tokio::sync::Mutex<()>,
    idle: Mutex<Vec<NodeConnection>>,
}

impl Connections {
    pub(super) fn new(address: ClusterSeeds) -> Self {
        Self { address, places: Mutex::default() }
    }

    /// Sends a request on the connection that all share.
    pub(super) async fn exchange(
        &self,
        node: &Node,
        role: Role,
        request: &ClusterRequest<'_>,
        is_asking: bool,
    ) -> Result<Result<Value, ServerError>, Failure> {
        let connection = self.shared(node, role).await.map_err(Failure::NotSent)?;
        connection.exchange(request, is_asking, Some(ANSWER_WITHIN)).await
    }

    /// Sends a request that the node may hold on a connection of its own. When the caller gives
    /// up, the connection ends, and the node forgets the request.
    pub(super) async fn exchange_blocking(
        &self,
        node: &Node,
        role: Role,
        request: &ClusterRequest<'_>,
        is_asking: bool,
    ) -> Result<Result<Value, ServerError>, Failure> {
        let place = self.place(node, role).map_err(Failure::NotSent)?;
        let idle = loop {
            match lock(&place.idle).pop() {
                Some(connection) if !connection.is_open() => {}
                other => break other,
            }
        };
        let connection = match idle {
            Some(connection) => connection,
            None => self.dial(node, role).await.map_err(Failure::NotSent)?,
        };
        let answer = connection.exchange(request, is_asking, None).await?;
        let mut idle = lock(&place.idle);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(answer)
    }

    /// Asks a node one thing about the cluster.
    pub(super) async fn ask(&self, node: &Node, command: &Cmd) -> RedisResult<Value> {
        let answer =
            self.exchange(node, Role::Primary, &ClusterRequest::Command(command), false).await;
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(error.into()),
            Err(Failure::NotSent(error) | Failure::Unknown(error)) => Err(error),
        }
    }

    /// Closes the connections to nodes that are no longer in the cluster.
    pub(super) fn retain(&self, map: &SlotMap) {
        lock(&self.places).retain(|(node, _), _| map.nodes().contains(node));
    }

    async fn shared(&self, node: &Node, role: Role) -> RedisResult<NodeConnection> {
        let place = self.place(node, role)?;
        if let Some(connection) = place.open() {
            return Ok(connection);
        }
        let _dialing = place.dialing.lock().await;
        if let Some(connection) = place.open() {
            return Ok(connection);
        }
        let connection = self.dial(node, role).await?;
        *lock(&place.shared) = Some(connection.clone());
        Ok(connection)
    }

    fn place(&self, node: &Node, role: Role) -> RedisResult<Arc<NodeConnections>> {
        let mut places = lock(&self.places);
        if let Some(place) = places.get(&(node.clone(), role)) {
            return Ok(Arc::clone(place));
        }
        if places.len() >= 2 * NODES_MAX {
            return Err(io::Error::other("the cluster names more nodes than there can be").into());
        }
        let place = Arc::new(NodeConnections::default());
        places.insert((node.clone(), role), Arc::clone(&place));
        Ok(place)
    }

    async fn dial(&self, node: &Node, role: Role) -> RedisResult<NodeConnection> {
        let info = self.address.of_node(node);
        let dialing = async {
            let connection = NodeConnection::dial(&info).await?;
            if role == Role::Replica {
                redis::cmd("READONLY").exec_async(&mut connection.line.clone()).await?;
            }
            Ok(connection)
        };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection in time").into();
        tokio::time::timeout(CONNECT_TIMEOUT, dialing).await.unwrap_or_else(|why| Err(late(why)))
    }
}

impl NodeConnections {
    fn open(&self) -> Option<NodeConnection> {
        lock(&self.shared).clone().filter(NodeConnection::is_open)
    }
}

/// A connection, which any number of requests may use at once.
#[derive(Clone)]
struct NodeConnection {
    line: MultiplexedConnection,
    /// A request failed on it.
    is_broken: Arc<AtomicBool>,
    driver: Option<Arc<Driver>>,
}

/// The task that moves a connection's bytes: it ends with the connection, and the other way round.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl NodeConnection {
    async fn dial(info: &ConnectionInfo) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_pipeline_buffer_size(QUEUED_MAX);
        let (line, driver) = match info.addr() {
            // Where the task is ours, its end tells that the connection has closed before anything
            // is sent on it.
            ConnectionAddr::Tcp(host, port) => {
                let stream = connect_tcp(host, *port).await?;
                stream.set_nodelay(true)?;
                let settings = info.redis_settings();
                let (line, driver) =
                    MultiplexedConnection::new_with_config(settings, stream, config).await?;
                (line, Some(Arc::new(Driver(tokio::spawn(driver)))))
            }
            _ => {
                let client = Client::open(info.clone())?;
                (client.get_multiplexed_async_connection_with_config(&config).await?, None)
            }
        };
        Ok(Self { line, is_broken: Arc::default(), driver })
    }

    fn is_open(&self) -> bool {
        let has_driver = self.driver.as_ref().is_none_or(|driver| !driver.0.is_finished());
        has_driver && !self.is_broken.load(Ordering::Acquire)
    }

    async fn exchange(
        &self,
        request: &ClusterRequest<'_>,
        is_asking: bool,
        within: Option<Duration>,
    ) -> Result<Result<Value, ServerError>, Failure> {
        let mut line = self.line.clone();
        let sending = request.send(&mut line, is_asking);
        let outcome = match within {
            None => sending.await,
            Some(within) => tokio::time::timeout(within, sending).await.unwrap_or_else(|_| {
                Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into())
            }),
        };
        outcome.map_err(|error| {
            self.is_broken.store(true, Ordering::Release);
            Failure::Unknown(error)
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves anything half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
