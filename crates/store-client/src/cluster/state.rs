//! What a client knows about its cluster, and the task that keeps it up to date.
//!
//! The map is fetched at the start, when a node says that a slot is elsewhere than the map says,
//! when a node cannot be reached, and every half minute. However many requests find out at once,
//! there is one fetch: see [`ClusterState::want_map`].

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};
use store_resp::slot::SLOT_COUNT;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::commands::Commands;
use super::connection::Connections;
use super::error::ClusterError;
use super::map::SlotMap;
use super::node::Node;
use super::slot::Slot;
use super::survey::{ASK_TIMEOUT, first_answer, nodes_to_ask};

/// How often the map is fetched though nothing seems to have changed: replicas come and go.
const FETCH_EVERY: Duration = Duration::from_secs(30);
/// The least time between two fetches: while a replica takes over, requests ask for one at every
/// try.
const FETCH_GAP: Duration = Duration::from_millis(100);

pub(super) struct ClusterState {
    pub(super) connections: Arc<Connections>,
    pub(super) commands: Commands,
    known: Arc<SharedMap>,
    keeper: JoinHandle<()>,
}

impl Drop for ClusterState {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// What requests and the task share.
struct SharedMap {
    map: RwLock<SlotMap>,
    /// From the first wish for a new map until there is one.
    is_wanted: AtomicBool,
    wanted: Notify,
    /// A node that knows of a change.
    hint: Mutex<Option<Node>>,
}

impl ClusterState {
    /// Asks the nodes of the address for the map and the commands. Fails if none of them answers.
    pub(super) async fn connect(connections: Connections) -> Result<Self, ClusterError> {
        let seeds = nodes_to_ask(connections.address.seeds(), None);
        let asked = |node| ask_all(&connections, node);
        let (map, commands) =
            first_answer(&seeds, asked).await.map_err(|failures| none_answered(&failures))?;
        let connections = Arc::new(connections);
        let known = Arc::new(SharedMap {
            map: RwLock::new(map),
            is_wanted: AtomicBool::new(false),
            wanted: Notify::new(),
            hint: Mutex::new(None),
        });
        let keeper = tokio::spawn(keep_map(Arc::clone(&connections), Arc::clone(&known)));
        Ok(Self { connections, commands, known, keeper })
    }

    /// The primary that serves a slot.
    pub(super) fn owner(&self, slot: Slot) -> Option<Node> {
        self.known.map().owner(slot).cloned()
    }

    /// A replica of the slot's owner.
    pub(super) fn any_replica(&self, slot: Slot) -> Option<Node> {
        let map = self.known.map();
        let replicas: Vec<&Node> = map.replicas_of(map.owner(slot)?).collect();
        fastrand::choice(replicas).cloned()
    }

    /// All nodes that serve slots.
    pub(super) fn primaries(&self) -> Vec<Node> {
        let map = self.known.map();
        map.nodes().iter().filter(|node| map.is_owner(node)).cloned().collect()
    }

    /// One of them; those with more slots are more likely.
    pub(super) fn any_primary(&self) -> Option<Node> {
        let map = self.known.map();
        let first = fastrand::u16(..SLOT_COUNT);
        let slots =
            (first..SLOT_COUNT).chain(0..first).filter_map(|slot| Slot::numbered(slot.into()));
        slots.filter_map(|slot| map.owner(slot)).next().cloned()
    }

    /// A node said that another one has the slot. If that is news, there is probably more of it.
    pub(super) fn learn(&self, slot: Slot, owner: &Node) {
        if self.known.map().owner(slot) != Some(owner) {
            self.known.map_mut().learn(slot, owner);
            self.want_map(Some(owner));
        }
    }

    /// Asks for a new map, once: until it is there, further wishes are the same wish. `hint` is a
    /// node that knows of the change.
    pub(super) fn want_map(&self, hint: Option<&Node>) {
        if !self.known.is_wanted.swap(true, Ordering::AcqRel) {
            *self.known.hint.lock().unwrap_or_else(PoisonError::into_inner) = hint.cloned();
            self.known.wanted.notify_one();
        }
    }

    /// The first key of a command, as a server tells it: for those whose rules say too little.
    pub(super) async fn ask_for_key(
        &self,
        words: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, ClusterError> {
        let mut question = redis::cmd("COMMAND");
        question.arg("GETKEYS").arg(words);
        let unavailable = |why| ClusterError::Unavailable(format!("no node serves any slot{why}"));
        let node = self.any_primary().ok_or_else(|| unavailable(String::new()))?;
        match self.connections.ask(&node, &question).await {
            Ok(Value::Array(keys)) => Ok(keys.into_iter().find_map(|key| match key {
                Value::BulkString(key) => Some(key),
                _ => None,
            })),
            // It has no keys, or is not known: let the server answer it.
            Ok(_) => Ok(None),
            Err(error) if error.is_io_error() => {
                Err(ClusterError::Unavailable(format!("{node} cannot be reached: {error}")))
            }
            Err(_) => Ok(None),
        }
    }
}

impl SharedMap {
    fn map(&self) -> RwLockReadGuard<'_, SlotMap> {
        // A map is never left half changed.
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, SlotMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches the map when it is wanted, and now and then. Never ends by itself.
async fn keep_map(connections: Arc<Connections>, known: Arc<SharedMap>) {
    loop {
        // Not all clients at once.
        let idle = FETCH_EVERY.mul_f64(0.75 + fastrand::f64() / 2.0);
        tokio::select! {
            () = known.wanted.notified() => {}
            () = tokio::time::sleep(idle) => {}
        }
        if let Some(map) = fetch(&connections, &known).await {
            connections.retain(&map);
            *known.map_mut() = map;
        }
        known.is_wanted.store(false, Ordering::Release);
        tokio::time::sleep(FETCH_GAP).await;
    }
}

async fn fetch(connections: &Connections, known: &SharedMap) -> Option<SlotMap> {
    let hint = known.hint.lock().unwrap_or_else(PoisonError::into_inner).take();
    let others = nodes_to_ask(connections.address.seeds(), Some(&known.map()));
    let others = others.into_iter().filter(|node| Some(node) != hint.as_ref());
    let nodes: Vec<Node> = hint.iter().cloned().chain(others).collect();
    let has_owners = known.map().has_owners();
    let ask = |node| async move {
        let map = ask_for_map(connections, node).await?;
        // A node that was removed from the cluster still answers.
        match map.has_owners() || !has_owners {
            true => Ok(map),
            false => Err(nonsense("CLUSTER SLOTS", "no owner of any slot")),
        }
    };
    first_answer(&nodes, ask).await.ok()
}

async fn ask_all(connections: &Connections, node: &Node) -> RedisResult<(SlotMap, Commands)> {
    let map = ask_for_map(connections, node).await?;
    let told = in_time(connections.ask(node, &redis::cmd("COMMAND"))).await?;
    let commands = Commands::parse(&told).map_err(|fault| nonsense("COMMAND", &fault))?;
    Ok((map, commands))
}

async fn ask_for_map(connections: &Connections, node: &Node) -> RedisResult<SlotMap> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let told = in_time(connections.ask(node, &question)).await?;
    SlotMap::parse(&told, node).map_err(|fault| nonsense("CLUSTER SLOTS", &fault))
}

async fn in_time(asking: impl Future<Output = RedisResult<Value>>) -> RedisResult<Value> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into();
    tokio::time::timeout(ASK_TIMEOUT, asking).await.unwrap_or_else(|_| Err(late()))
}

fn nonsense(question: &str, fault: &str) -> RedisError {
    io::Error::other(format!("the answer to {question} has {fault}")).into()
}

/// What a person can do something about comes first: a refusal before silence.
fn none_answered(failures: &[(&Node, RedisError)]) -> ClusterError {
    let refused = failures.iter().find(|(_, error)| !error.is_io_error());
    match refused.or(failures.first()) {
        Some((node, error)) => ClusterError::Unavailable(format!("{node}: {error}")),
        None => ClusterError::Unavailable("no node was asked".into()),
    }
}
