//! How requests and hints travel: to one server, or to the nodes of a cluster.
//!
//! To one server there is one connection for requests, or two where some wait for replicas. A
//! server that waits for replicas leaves everything behind on that connection lying. So in mode
//! `strict` what promises something (grants, renewals, ticks, fences, pauses) has a connection to
//! itself, and whoever looks, beats or releases is not held up by a replica that is not there.
//! Nothing rests on the order between the two: each request names its term or attempt, and one
//! that comes too late is refused.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::Either;
use tenure_backend::clock::timer_now;
use tenure_backend::{Connection, Listening, SignalSink, Subscription};
use tenure_core::StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::connection::{ConnectionOptions, Deployment, Replies, SendMode, Supervisor};
use super::dial::Route;
use super::listener::Listener;
use super::mode::Mode;
use super::request::Step;
use super::warnings::Warnings;

/// The connections of a backend.
#[derive(Debug)]
pub(super) enum Transport {
    /// One server at a time.
    One { lines: RequestConnections, listener: Listener, batches_sent: Arc<AtomicU64> },
    /// Many nodes.
    Cluster(Cluster),
}

impl Transport {
    /// The transport to whatever is at the end of a route. Must be called inside a runtime.
    pub(super) fn to_one(route: Route, mode: Mode, warnings: &Arc<Warnings>) -> Self {
        let batches_sent = Arc::new(AtomicU64::new(0));
        let options = ConnectionOptions {
            mode,
            deployment: Deployment::Single,
            warnings: Arc::clone(warnings),
            batches_sent: Arc::clone(&batches_sent),
        };
        let lines = RequestConnections::start(route.clone(), options);
        let listener = Listener::start(route, &lines, Arc::clone(warnings));
        Transport::One { lines, listener, batches_sent }
    }

    /// Queues steps now; the future only waits.
    pub(super) fn carry_out(
        &self,
        steps: Vec<Step>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Replies, StoreError>> + Send + use<> {
        match self {
            Transport::One { lines, .. } => {
                let deadline = timer_now() + timeout;
                Either::Left(lines.carry_out(steps, deadline, timeout, SendMode::Plain))
            }
            // Boxed: the future to one server is not to be as large.
            Transport::Cluster(cluster) => {
                Either::Right(Box::pin(cluster.carry_out(steps, timeout)))
            }
        }
    }

    /// Adds a listener with a queue of its own.
    pub(super) fn subscribe(&self, channel: &str) -> Subscription {
        match self {
            Transport::One { listener, .. } => listener.subscribe(channel),
            Transport::Cluster(cluster) => cluster.subscribe(channel),
        }
    }

    /// Adds a listener that takes signals at once.
    pub(super) fn listen(&self, channel: &str, sink: SignalSink) -> Listening {
        match self {
            Transport::One { listener, .. } => listener.listen(channel, sink),
            Transport::Cluster(cluster) => cluster.listen(channel, sink),
        }
    }

    /// The state of the connections.
    pub(super) fn state(&self) -> &watch::Receiver<Connection> {
        match self {
            Transport::One { lines, .. } => lines.state(),
            Transport::Cluster(cluster) => cluster.state(),
        }
    }

    /// How many pipelines were sent so far.
    pub(super) fn batches_sent(&self) -> u64 {
        match self {
            Transport::One { batches_sent, .. } => batches_sent.load(Ordering::Relaxed),
            Transport::Cluster(cluster) => cluster.batches_sent(),
        }
    }
}

/// The connections for requests to one server, kept alive.
#[derive(Debug)]
pub(super) struct RequestConnections {
    plain: Supervisor,
    /// For what replicas must confirm, where they must.
    confirmed: Option<Supervisor>,
    state: watch::Receiver<Connection>,
}

impl RequestConnections {
    /// Opens them in the current runtime. They end after this value and all its requests.
    pub(super) fn start(route: Route, options: ConnectionOptions) -> Self {
        if !options.mode.awaits_replicas() {
            let plain = Supervisor::start(route, options);
            let state = plain.state().clone();
            return RequestConnections { plain, confirmed: None, state };
        }
        let unhurried = ConnectionOptions { mode: Mode::Available, ..options.clone() };
        let plain = Supervisor::start(route.clone(), unhurried);
        let confirmed = Supervisor::start(route, options);
        let state = both(plain.state().clone(), confirmed.state().clone());
        RequestConnections { plain, confirmed: Some(confirmed), state }
    }

    /// Queues steps now; the future only waits.
    pub(super) fn carry_out(
        &self,
        steps: Vec<Step>,
        deadline: Instant,
        timeout: Duration,
        send_mode: SendMode,
    ) -> impl Future<Output = Result<Replies, StoreError>> + Send + use<> {
        let is_for_replicas = steps.first().is_some_and(Step::is_for_replicas);
        let line = self.confirmed.as_ref().filter(|_| is_for_replicas).unwrap_or(&self.plain);
        line.carry_out(steps, deadline, timeout, send_mode)
    }

    /// The state of the connections: the worse of the two.
    pub(super) fn state(&self) -> &watch::Receiver<Connection> {
        &self.state
    }

    /// Counts the connections opened so far: a change means that the store may be another one.
    pub(super) fn lines_opened(&self) -> watch::Receiver<u64> {
        self.plain.lines_opened()
    }
}

/// The worse of two states, kept up to date by a task that ends with either of them.
fn both(
    mut one: watch::Receiver<Connection>,
    mut other: watch::Receiver<Connection>,
) -> watch::Receiver<Connection> {
    let (tell, state) = watch::channel(Connection::Connecting);
    tokio::spawn(async move {
        loop {
            let seen = worse(one.borrow_and_update().clone(), other.borrow_and_update().clone());
            tell.send_if_modified(|known| {
                let has_changed = *known != seen;
                *known = seen;
                has_changed
            });
            let changed = tokio::select! {
                changed = one.changed() => changed,
                changed = other.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    });
    state
}

fn worse(one: Connection, other: Connection) -> Connection {
    match (one, other) {
        (down @ Connection::Down(_), _) | (_, down @ Connection::Down(_)) => down,
        (Connection::Connecting, _) | (_, Connection::Connecting) => Connection::Connecting,
        (Connection::Up, Connection::Up) => Connection::Up,
    }
}
