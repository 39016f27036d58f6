//! Hints in a cluster: each channel is heard at the node that has its slot.
//!
//! A message published in a shard reaches the nodes of that shard only. So there is one connection
//! for each node at which somebody listens, and a listener moves when its slot does. Servers before
//! 7.0 know no shards; there, every message reaches every node, and the same arrangement works with
//! ordinary channels.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};
use store_client::cluster::{Slot, SlotMap};
use tenure_core::{StoreError, StoreErrorKind};
use tokio::sync::{Notify, mpsc, watch};

use crate::audience::{Audience, Subscriber};
use crate::backoff::Backoff;
use crate::dial::{DIAL_TIMEOUT, Line, Route};
use crate::error;
use crate::guard::Backlog;
use crate::listener::{DENIED_WAIT, SWEEP_EVERY, replaced};
use crate::node::Node;
use crate::warnings::Warnings;

/// What a connection for hints needs: the way, the count of the other connection's renewals, and
/// where to complain.
pub(super) type HintConnection = (Route, watch::Receiver<u64>, Arc<Warnings>);

/// All listeners of a cluster.
#[derive(Debug, Default)]
pub(super) struct ShardListeners {
    inner: Mutex<Inner>,
    changed: Notify,
    /// Whether a node turned a channel away, so that the map is out of date.
    is_doubtful: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    audiences: HashMap<Node, Arc<Audience>>,
    /// Listeners to be placed.
    unplaced: Vec<(Arc<str>, Subscriber)>,
    /// Listeners that were turned away: the next map says where they belong.
    turned_away: Vec<(Arc<str>, Subscriber)>,
    is_closed: bool,
}

impl ShardListeners {
    /// Adds a listener. The router places it.
    pub(super) fn add(&self, channel: &str, subscriber: Subscriber) {
        self.inner().unplaced.push((channel.into(), subscriber));
        self.changed.notify_one();
    }

    /// Waits until somebody is to be placed, or the map is in doubt.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether the map was in doubt since this was last asked.
    pub(super) fn take_doubt(&self) -> bool {
        self.is_doubtful.swap(false, Ordering::AcqRel)
    }

    /// A new map is there: whoever was turned away may try again.
    pub(super) fn readmit(&self) {
        let mut inner = self.inner();
        let Inner { unplaced, turned_away, .. } = &mut *inner;
        unplaced.append(turned_away);
    }

    /// Moves every listener to the owner of its slot. Must be called inside a runtime.
    pub(super) fn place(
        self: &Arc<Self>,
        map: &SlotMap,
        mut connection_to: impl FnMut(&Node) -> Option<HintConnection>,
    ) {
        let mut inner = self.inner();
        let Inner { audiences, unplaced, is_closed, .. } = &mut *inner;
        if *is_closed {
            return;
        }
        for (node, audience) in &*audiences {
            unplaced.extend(audience.take(|name| map.owner(Slot::of(name)) != Some(node)));
        }
        unplaced.retain(|(_, subscriber)| !subscriber.is_closed());
        for (name, subscriber) in std::mem::take(unplaced) {
            let Some(owner) = map.owner(Slot::of(name.as_bytes())) else {
                unplaced.push((name, subscriber));
                continue;
            };
            if !audiences.contains_key(owner) {
                let Some(connection) = connection_to(owner) else {
                    unplaced.push((name, subscriber));
                    continue;
                };
                audiences.insert(owner.clone(), self.open(connection));
            }
            audiences[owner].add(&name, subscriber);
        }
        audiences.retain(|node, audience| {
            let is_used = map.is_owner(node) || !audience.is_idle();
            if !is_used {
                audience.close();
            }
            is_used
        });
    }

    fn open(self: &Arc<Self>, (route, lines_opened, warnings): HintConnection) -> Arc<Audience> {
        let audience = Arc::new(Audience::default());
        let node_listener = NodeListener {
            route,
            audience: Arc::clone(&audience),
            listener: Arc::clone(self),
            lines_opened,
            warnings,
            kind: SubscribeKind::Sharded,
        };
        tokio::spawn(node_listener.run());
        audience
    }

    /// Takes back listeners whose channel a node does not serve.
    fn turn_away(&self, listeners: Vec<(Arc<str>, Subscriber)>) {
        self.inner().turned_away.extend(listeners);
        self.is_doubtful.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Nobody will listen any more.
    pub(super) fn close(&self) {
        let mut inner = self.inner();
        inner.is_closed = true;
        inner.audiences.drain().for_each(|(_, audience)| audience.close());
        inner.unplaced.clear();
        inner.turned_away.clear();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing that runs under this lock leaves it half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which commands subscribe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SubscribeKind {
    Sharded,
    /// For servers that know no shards.
    Plain,
}

impl SubscribeKind {
    fn subscribe(self) -> &'static str {
        match self {
            SubscribeKind::Sharded => "SSUBSCRIBE",
            SubscribeKind::Plain => "SUBSCRIBE",
        }
    }

    fn unsubscribe(self) -> &'static str {
        match self {
            SubscribeKind::Sharded => "SUNSUBSCRIBE",
            SubscribeKind::Plain => "UNSUBSCRIBE",
        }
    }
}

/// The connection for hints of one node, made again when it breaks.
struct NodeListener {
    route: Route,
    audience: Arc<Audience>,
    listener: Arc<ShardListeners>,
    lines_opened: watch::Receiver<u64>,
    warnings: Arc<Warnings>,
    kind: SubscribeKind,
}

/// An open connection and what comes in on it.
struct Open {
    line: Line,
    /// Bounded by the backlog, which stops reading.
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    backlog: Arc<Backlog>,
}

impl NodeListener {
    async fn run(mut self) {
        let audience = Arc::clone(&self.audience);
        let mut backoff = Backoff::default();
        while !audience.is_closed() {
            if audience.is_idle() {
                audience.changed.notified().await;
                continue;
            }
            self.lines_opened.mark_unchanged();
            let wait = match self.listen(&mut backoff).await {
                Err(error) if error.kind() == StoreErrorKind::Denied => {
                    let why = error.detail();
                    self.warnings.tell(format!("hints: not allowed to subscribe: {why}"));
                    DENIED_WAIT
                }
                _ => backoff.next(),
            };
            audience.deafen();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = audience.closing() => {}
            }
        }
    }

    /// Opens a connection and listens on it until it breaks, should be replaced, or nobody is left.
    async fn listen(&mut self, backoff: &mut Backoff) -> Result<(), StoreError> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let backlog = Arc::new(Backlog::default());
        let line = self.route.open_for_pushes(Arc::clone(&backlog), sender).await?;
        let mut open = Open { line, pushes, backlog };
        let audience = Arc::clone(&self.audience);
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        while !audience.is_closed() && !audience.is_idle() {
            if self.subscribe_open(&mut open).await? {
                backoff.reset();
            }
            open.backlog.caught_up();
            tokio::select! {
                push = open.pushes.recv() => match push {
                    Some(push) => self.hear(push)?,
                    None => return Ok(()),
                },
                () = audience.changed.notified() => {}
                () = replaced(&mut self.lines_opened) => return Ok(()),
                _ = sweep.tick() => {
                    self.exchange(&mut open, self.kind.unsubscribe(), &audience.sweep()).await?;
                }
            }
            self.drain(&mut open)?;
        }
        Ok(())
    }

    /// Subscribes whatever is not yet confirmed.
    async fn subscribe_open(&mut self, open: &mut Open) -> Result<bool, StoreError> {
        let mut has_subscribed = false;
        loop {
            let names = self.audience.unconfirmed();
            if names.is_empty() {
                return Ok(has_subscribed);
            }
            let replies = self.exchange(open, self.kind.subscribe(), &names).await?;
            let has_learnt = self.judge(&names, &replies)?;
            let left = self.audience.unconfirmed();
            if !has_learnt && left.iter().any(|name| names.contains(name)) {
                return Err(StoreError::unexpected("no word on a subscription"));
            }
            has_subscribed = true;
        }
    }

    /// Returns what the node does not serve. `true` when another command is to be tried.
    fn judge(&mut self, names: &[Arc<str>], replies: &[Value]) -> Result<bool, StoreError> {
        let mut turned_away = Vec::new();
        for (name, reply) in names.iter().zip(replies) {
            let Value::ServerError(said) = reply else { continue };
            match said.code() {
                "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" => turned_away.push(name),
                _ if self.kind == SubscribeKind::Sharded && is_unknown(said) => {
                    self.kind = SubscribeKind::Plain;
                    return Ok(true);
                }
                _ => return Err(error::from_reply(said)),
            }
        }
        if !turned_away.is_empty() {
            let is_leaving = |name: &str| turned_away.iter().any(|gone| &***gone == name);
            self.listener.turn_away(self.audience.take(is_leaving));
        }
        Ok(false)
    }

    /// Sends one command per channel, so that each has an answer of its own. What comes in
    /// meanwhile is heard: the confirmations themselves come that way.
    async fn exchange(
        &self,
        open: &mut Open,
        command: &str,
        names: &[Arc<str>],
    ) -> Result<Vec<Value>, StoreError> {
        let mut pipeline = redis::Pipeline::with_capacity(names.len());
        if names.is_empty() {
            return Ok(Vec::new());
        }
        for name in names {
            pipeline.cmd(command).arg(&**name);
        }
        let mut connection = open.line.connection.clone();
        let sending = connection.send_packed_commands(&pipeline, 0, names.len());
        let sending = tokio::time::timeout(DIAL_TIMEOUT, sending);
        tokio::pin!(sending);
        let replies = loop {
            tokio::select! {
                biased;
                push = open.pushes.recv() => match push {
                    Some(push) => self.hear(push)?,
                    None => return Err(StoreError::unreachable("the connection has ended")),
                },
                replies = &mut sending => break replies,
            }
            open.backlog.caught_up();
        };
        let replies = replies.map_err(|_| StoreError::timed_out(DIAL_TIMEOUT))?;
        let replies = replies.map_err(|error| error::from_connection(&error))?;
        self.drain(open)?;
        Ok(replies)
    }

    fn drain(&self, open: &mut Open) -> Result<(), StoreError> {
        while let Ok(push) = open.pushes.try_recv() {
            self.hear(push)?;
        }
        Ok(())
    }

    fn hear(&self, push: PushInfo) -> Result<(), StoreError> {
        let mut words = push.data.iter().map(|word| match word {
            Value::BulkString(bytes) => bytes.as_slice(),
            _ => &[],
        });
        let name = std::str::from_utf8(words.next().unwrap_or_default()).unwrap_or_default();
        match push.kind {
            PushKind::SMessage | PushKind::Message => {
                self.audience.hear(name, words.next().unwrap_or_default());
            }
            PushKind::SSubscribe | PushKind::Subscribe => self.audience.confirm(&[name.into()]),
            // Ours are no longer in the audience; any other means that the slot has left the node.
            PushKind::SUnsubscribe => {
                let gone = self.audience.take(|known| known == name);
                if !gone.is_empty() {
                    self.listener.turn_away(gone);
                }
            }
            PushKind::Disconnection => {
                return Err(StoreError::unreachable("the connection has ended"));
            }
            _ => {}
        }
        Ok(())
    }
}

fn is_unknown(said: &redis::ServerError) -> bool {
    said.details().is_some_and(|words| words.contains("unknown command"))
}
