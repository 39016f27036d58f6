//! How requests and hints travel: to one server, or to the nodes of a cluster.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::Either;
use tenure_core::StoreError;
use tokio::sync::watch;

use super::cluster::Cluster;
use super::connection::{Company, Manner, Replies, Terms};
use super::dial::Route;
use super::lines::Lines;
use super::listener::Listener;
use super::mode::Mode;
use super::request::Step;
use super::warnings::Warnings;
use tenure_backend::clock::timer_now;
use tenure_backend::{Connection, Listening, SignalSink, Subscription};

/// The connections of a backend.
#[derive(Debug)]
pub(super) enum Ways {
    /// One server at a time.
    One { lines: Lines, listener: Listener, batches_sent: Arc<AtomicU64> },
    /// Many nodes.
    Cluster(Cluster),
}

impl Ways {
    /// The ways to whatever is at the end of a route. Must be called inside a runtime.
    pub(super) fn to_one(route: Route, mode: Mode, warnings: &Arc<Warnings>) -> Self {
        let batches_sent = Arc::new(AtomicU64::new(0));
        let terms = Terms {
            mode,
            company: Company::Alone,
            warnings: Arc::clone(warnings),
            batches_sent: Arc::clone(&batches_sent),
        };
        let lines = Lines::start(route.clone(), terms);
        let listener = Listener::start(route, &lines, Arc::clone(warnings));
        Ways::One { lines, listener, batches_sent }
    }

    /// Queues steps now; the future only waits.
    pub(super) fn carry_out(
        &self,
        steps: Vec<Step>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Replies, StoreError>> + Send + use<> {
        match self {
            Ways::One { lines, .. } => {
                let deadline = timer_now() + timeout;
                Either::Left(lines.carry_out(steps, deadline, timeout, Manner::Plain))
            }
            Ways::Cluster(cluster) => Either::Right(cluster.carry_out(steps, timeout)),
        }
    }

    /// Adds a listener with a queue of its own.
    pub(super) fn subscribe(&self, channel: &str) -> Subscription {
        match self {
            Ways::One { listener, .. } => listener.subscribe(channel),
            Ways::Cluster(cluster) => cluster.subscribe(channel),
        }
    }

    /// Adds a listener that takes signals at once.
    pub(super) fn listen(&self, channel: &str, sink: SignalSink) -> Listening {
        match self {
            Ways::One { listener, .. } => listener.listen(channel, sink),
            Ways::Cluster(cluster) => cluster.listen(channel, sink),
        }
    }

    /// How the connections stand.
    pub(super) fn state(&self) -> &watch::Receiver<Connection> {
        match self {
            Ways::One { lines, .. } => lines.state(),
            Ways::Cluster(cluster) => cluster.state(),
        }
    }

    /// How many pipelines were sent so far.
    pub(super) fn batches_sent(&self) -> u64 {
        match self {
            Ways::One { batches_sent, .. } => batches_sent.load(Ordering::Relaxed),
            Ways::Cluster(cluster) => cluster.batches_sent(),
        }
    }
}
