//! The client of a cluster.
//!
//! ```text
//! command ─► first key ─► slot ─► map: owner ─► connection of that node ─► reply
//!    ▲  ▲                                                                    │
//!    │  └── TRYAGAIN, CLUSTERDOWN, LOADING, no connection: after a rest ◄────┤
//!    └───── MOVED (learnt; a new map is fetched), ASK: there, at once ◄──────┘
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Pipeline, RedisFuture, RedisResult, ServerError, Value};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::attempts::Attempts;
use super::commands::KeyPlace;
use super::connection::{Connections, Failure, Role};
use super::error::ClusterError;
use super::node::Node;
use super::redirect::Redirect;
use super::request::ClusterRequest;
use super::seeds::ClusterSeeds;
use super::slot::Slot;
use super::state::ClusterState;
use crate::clock::now;

/// How many requests of one client are under way at once. More wait in their callers.
const IN_FLIGHT_MAX: usize = 16_384;
/// How long a request waits for a cluster that cannot take it: longer than a failover with the
/// usual time-outs, in which a replica takes over.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of a cluster, ours or one of Redis or Valkey. It sends each command to the node that
/// has its keys, and follows when slots move or a replica takes over. Cloning is cheap, and all
/// clones share the connections: one to each node, on which requests that wait at the same time go
/// out together.
///
/// What can be known about a request is told: every command is carried out once or its error says
/// that nothing was done, with one exception, [`ClusterError::OutcomeUnknown`]. Such a request was
/// sent and the connection broke before its answer came. It is never repeated.
///
/// All commands of the `redis` crate are there, through its `AsyncCommands`. Several keys of one
/// command, or of one transaction, must be in one slot: enclose what they share in `{…}`.
///
/// ```no_run
/// use store_client::ClusterClient;
/// use store_client::redis::{self, AsyncCommands};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut cluster = ClusterClient::connect("redis+cluster://node-1:6379,node-2:6379").await?;
/// let _: () = cluster.set("greeting", "hello").await?;
///
/// // A thousand commands at once, in few round trips to each node, each with its own outcome.
/// let visits = (0..1000).map(|user| redis::Cmd::incr(format!("visits:{user}"), 1));
/// for outcome in cluster.query_all(visits).await {
///     match outcome {
///         Ok(_) => {}
///         Err(error) if error.is_outcome_unknown() => eprintln!("perhaps counted: {error}"),
///         Err(error) => eprintln!("not counted: {error}"),
///     }
/// }
///
/// // Both or none: the keys share a slot.
/// let (left, right): (i64, i64) = redis::pipe()
///     .atomic()
///     .decr("{account}:left", 5)
///     .incr("{account}:right", 5)
///     .query_async(&mut cluster)
///     .await?;
///
/// // Reads that may be a little old, from the replicas.
/// let mut replicas = cluster.reading_from_replicas();
/// let greeting: Option<String> = replicas.get("greeting").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ClusterClient {
    shared: Arc<Shared>,
    patience: Duration,
    reads_from_replicas: bool,
}

struct Shared {
    state: ClusterState,
    in_flight: Semaphore,
}

/// Where a request is to go next.
struct Destination {
    node: Node,
    role: Role,
    is_asking: bool,
}

impl Destination {
    fn primary(node: Node) -> Self {
        Destination { node, role: Role::Primary, is_asking: false }
    }
}

/// What decides where a request goes.
#[derive(Clone, Copy)]
struct Routing {
    /// `None` if any node will do.
    slot: Option<Slot>,
    /// A replica can answer it.
    is_read: bool,
    /// The node may hold it.
    is_blocking: bool,
}

impl ClusterClient {
    /// Connects to a cluster, `redis+cluster://[user:password@]host[:port],host[:port],…`, or to
    /// that of the one node at `redis://…`. One of the nodes must answer; the others are found by
    /// asking it. Must be called inside a runtime.
    ///
    /// Fails if the address cannot be parsed, if no node answers, or if the server is no node of a
    /// cluster.
    pub async fn connect(address: &str) -> Result<Self, ClusterError> {
        Self::of_address(ClusterSeeds::parse(address)?).await
    }

    /// Connects to the cluster of these clients' servers, for example with TLS. The settings of the
    /// first client count for all nodes.
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub async fn of_clients(
        clients: impl IntoIterator<Item = redis::Client>,
    ) -> Result<Self, ClusterError> {
        Self::of_address(ClusterSeeds::of_clients(clients.into_iter().collect())?).await
    }

    async fn of_address(address: ClusterSeeds) -> Result<Self, ClusterError> {
        let state = ClusterState::connect(Connections::new(address)).await?;
        let shared = Shared { state, in_flight: Semaphore::new(IN_FLIGHT_MAX) };
        Ok(Self { shared: Arc::new(shared), patience: PATIENCE, reads_from_replicas: false })
    }

    /// The same client, but commands that only read go to a replica of the slot's owner, if there
    /// is one that can be reached. What it answers may be a little old.
    #[must_use]
    pub fn reading_from_replicas(&self) -> Self {
        Self { reads_from_replicas: true, ..self.clone() }
    }

    /// The same client, but a request that the cluster cannot take now (no node serves the slot,
    /// keys are on their way, no connection) fails after this time instead of 30 seconds.
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> Self {
        Self { patience, ..self.clone() }
    }

    /// Runs a command on the node that has its keys.
    ///
    /// Fails as [`ClusterError`] says.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, ClusterError> {
        let value = self.carry_out(ClusterRequest::Command(command)).await?;
        T::from_redis_value(value).map_err(|error| ClusterError::Type(error.into()))
    }

    /// Runs commands side by side, each on the node that has its keys, and returns their outcomes
    /// in order. None waits for another, so no order among them is promised.
    pub async fn query_all(
        &self,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Vec<Result<Value, ClusterError>> {
        let commands: Vec<Cmd> = commands.into_iter().collect();
        join_all(commands.iter().map(|command| self.carry_out(ClusterRequest::Command(command))))
            .await
    }

    /// Runs a command that has no keys, such as DBSIZE or SCRIPT LOAD, on every primary. Each is
    /// asked once: nothing is followed or repeated.
    pub async fn query_primaries(&self, command: &Cmd) -> Vec<(Node, Result<Value, ClusterError>)> {
        let primaries = self.shared.state.primaries();
        let asked = primaries.into_iter().map(|node| async {
            let target = Destination::primary(node);
            let outcome = self.exchange(&target, &ClusterRequest::Command(command), false).await;
            let outcome = match outcome {
                Ok(answer) => answer.map_err(ClusterError::Reply),
                Err(failure) => Err(failed(&target.node, failure)),
            };
            (target.node, outcome)
        });
        join_all(asked).await
    }

    /// The primary that has a key, as far as is known.
    pub fn owner_of(&self, key: impl AsRef<[u8]>) -> Option<Node> {
        self.shared.state.owner(Slot::of(key))
    }

    async fn carry_out(&self, request: ClusterRequest<'_>) -> Result<Value, ClusterError> {
        // The semaphore is never closed.
        let _permit = self.shared.in_flight.acquire().await;
        let routing = self.routing(&request).await?;
        let deadline = now() + self.patience;
        let mut attempts = Attempts::default();
        let mut target = self.target(&routing, &attempts);
        loop {
            let put_off = match target {
                None => self.no_owner(&routing),
                Some(to) => match self.attempt(&request, &routing, to, &mut attempts).await? {
                    Next::Done(value) => return Ok(value),
                    Next::SendOn(to) => {
                        target = Some(to);
                        continue;
                    }
                    Next::PutOff(why) => why,
                },
            };
            rest(&mut attempts, deadline, put_off).await?;
            target = self.target(&routing, &attempts);
        }
    }

    /// Sends a request to one node and decides what follows from its answer.
    async fn attempt(
        &self,
        request: &ClusterRequest<'_>,
        routing: &Routing,
        to: Destination,
        attempts: &mut Attempts,
    ) -> Result<Next, ClusterError> {
        let state = &self.shared.state;
        let error = match self.exchange(&to, request, routing.is_blocking).await {
            Ok(Ok(value)) => return Ok(Next::Done(value)),
            Ok(Err(error)) => error,
            Err(failure) => {
                state.want_map(None);
                return match failure {
                    Failure::NotSent(why) => {
                        Ok(Next::PutOff(format!("{} cannot be reached: {why}", to.node)))
                    }
                    failure => Err(failed(&to.node, failure)),
                };
            }
        };
        let said = || format!("{} says: {}", to.node, words(&error));
        let (slot, next) = match Redirect::parse(&error, &to.node) {
            Some(Redirect::Moved { slot, to }) => {
                state.learn(slot, &to);
                (slot, Destination::primary(to))
            }
            Some(Redirect::Ask { slot, to }) => {
                (slot, Destination { is_asking: true, ..Destination::primary(to) })
            }
            Some(Redirect::TryAgain) => return Ok(Next::PutOff(said())),
            Some(Redirect::Down) => {
                state.want_map(None);
                return Ok(Next::PutOff(said()));
            }
            // Nothing was done, and another node or a moment will do.
            None if PASSING.contains(&error.code()) => return Ok(Next::PutOff(said())),
            None => return Err(ClusterError::Reply(error)),
        };
        match attempts.may_hop() {
            true => Ok(Next::SendOn(next)),
            false => Err(ClusterError::TooManyHops { slot, last: next.node }),
        }
    }

    async fn exchange(
        &self,
        to: &Destination,
        request: &ClusterRequest<'_>,
        is_blocking: bool,
    ) -> Result<Result<Value, ServerError>, Failure> {
        let connections = &self.shared.state.connections;
        match is_blocking {
            false => connections.exchange(&to.node, to.role, request, to.is_asking).await,
            true => connections.exchange_blocking(&to.node, to.role, request, to.is_asking).await,
        }
    }

    async fn routing(&self, request: &ClusterRequest<'_>) -> Result<Routing, ClusterError> {
        let state = &self.shared.state;
        let commands = request.looked_up(&state.commands);
        let mut routing = Routing { slot: None, is_read: true, is_blocking: false };
        for (words, known) in &commands {
            refuse_unshared(words)?;
            let slot = match known.key {
                KeyPlace::None => None,
                KeyPlace::At(at) => Some(Slot::of(words[at])),
                KeyPlace::AskServer => state.ask_for_key(words).await?.map(Slot::of),
            };
            // One command's own keys are the server's to compare.
            if let (Some(first), Some(other)) = (routing.slot, slot)
                && first != other
            {
                return Err(ClusterError::CrossSlot { first, other });
            }
            routing.slot = routing.slot.or(slot);
            routing.is_read &= known.is_read;
            routing.is_blocking |= known.is_blocking;
        }
        // Inside of a transaction nothing blocks.
        routing.is_blocking &= !request.is_transaction();
        Ok(routing)
    }

    /// The node for a request as far as is known. One that was put off goes to the primary.
    fn target(&self, routing: &Routing, attempts: &Attempts) -> Option<Destination> {
        let state = &self.shared.state;
        let Some(slot) = routing.slot else { return state.any_primary().map(Destination::primary) };
        let wants_replica = self.reads_from_replicas && routing.is_read && attempts.is_first();
        if wants_replica && let Some(node) = state.any_replica(slot) {
            return Some(Destination { node, role: Role::Replica, is_asking: false });
        }
        state.owner(slot).map(Destination::primary)
    }

    fn no_owner(&self, routing: &Routing) -> String {
        self.shared.state.want_map(None);
        match routing.slot {
            Some(slot) => format!("no node serves slot {slot}"),
            None => "no node serves any slot".into(),
        }
    }
}

/// What follows from an answer.
enum Next {
    Done(Value),
    SendOn(Destination),
    /// Nothing was done; this is why.
    PutOff(String),
}

/// Refusals that pass by themselves: the server reads its data, or has lost its primary.
const PASSING: [&str; 2] = ["LOADING", "MASTERDOWN"];

async fn rest(
    attempts: &mut Attempts,
    deadline: Instant,
    put_off: String,
) -> Result<(), ClusterError> {
    let until = now() + attempts.rest();
    if until >= deadline {
        return Err(ClusterError::Unavailable(put_off));
    }
    tokio::time::sleep_until(until).await;
    Ok(())
}

fn failed(node: &Node, failure: Failure) -> ClusterError {
    match failure {
        Failure::NotSent(why) => {
            ClusterError::Unavailable(format!("{node} cannot be reached: {why}"))
        }
        Failure::Unknown(why) => ClusterError::OutcomeUnknown { node: node.clone(), why },
    }
}

fn words(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

const TRANSACTIONS: &str = "use redis::pipe().atomic()";
const MESSAGES: &str = "use Channel with the address of a node";
const BY_ITSELF: &str = "the client does this by itself";
const OWN: &str = "use a connection of your own to the node";

/// Commands that are about the connection on which they are sent.
const UNSHARED: [(&str, &str); 21] = [
    ("MULTI", TRANSACTIONS),
    ("EXEC", TRANSACTIONS),
    ("DISCARD", TRANSACTIONS),
    ("WATCH", OWN),
    ("UNWATCH", OWN),
    ("SUBSCRIBE", MESSAGES),
    ("PSUBSCRIBE", MESSAGES),
    ("SSUBSCRIBE", MESSAGES),
    ("UNSUBSCRIBE", MESSAGES),
    ("PUNSUBSCRIBE", MESSAGES),
    ("SUNSUBSCRIBE", MESSAGES),
    ("MONITOR", OWN),
    ("ASKING", BY_ITSELF),
    ("READONLY", "use reading_from_replicas()"),
    ("READWRITE", "use reading_from_replicas()"),
    ("AUTH", "write the login in the address"),
    ("HELLO", "write the login in the address"),
    ("SELECT", "a cluster has database 0 only"),
    ("RESET", OWN),
    ("QUIT", "drop the client"),
    ("SYNC", OWN),
];

fn refuse_unshared(words: &[&[u8]]) -> Result<(), ClusterError> {
    let name = words.first().copied().unwrap_or_default();
    let is_it = |(unshared, _): &&(&str, _)| name.eq_ignore_ascii_case(unshared.as_bytes());
    match UNSHARED.iter().find(is_it) {
        None => Ok(()),
        Some((name, instead)) => Err(ClusterError::NotShared((*name).into(), instead)),
    }
}

/// So that `AsyncCommands` and pipelines of the `redis` crate work. An error of this client is
/// inside theirs: see [`ClusterError::of`]. A pipeline fails as a whole if one of its commands got
/// no answer; [`ClusterClient::query_all`] tells the outcome of each.
impl ConnectionLike for ClusterClient {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async { Ok(self.carry_out(ClusterRequest::Command(cmd)).await?) })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            if pipeline.is_transaction() {
                return Ok(vec![self.carry_out(ClusterRequest::Transaction(pipeline)).await?]);
            }
            let commands = pipeline.cmd_iter().skip(offset).take(count);
            let outcomes = commands.map(|command| self.carry_out(ClusterRequest::Command(command)));
            join_all(outcomes).await.into_iter().map(as_value).collect()
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// A server's error is one of a pipeline's values.
fn as_value(outcome: Result<Value, ClusterError>) -> RedisResult<Value> {
    match outcome {
        Ok(value) => Ok(value),
        Err(ClusterError::Reply(error)) => Ok(Value::ServerError(error)),
        Err(error) => Err(error.into()),
    }
}

/// Without the address, in which a password may be.
impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient")
            .field("patience", &self.patience)
            .field("reads_from_replicas", &self.reads_from_replicas)
            .finish_non_exhaustive()
    }
}
