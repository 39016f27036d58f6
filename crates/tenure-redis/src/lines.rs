//! The connections for requests to one server: one, or two where some wait for replicas.
//!
//! A server that waits for replicas leaves everything behind on that connection lying. So in mode
//! `strict` what promises something (grants, renewals, ticks, fences, pauses) has a connection to
//! itself, and whoever looks, beats or releases is not held up by a replica that is not there.
//! Nothing rests on the order between the two:
//! each request names its term or attempt, and one that comes too late is refused.

use std::future::Future;
use std::time::Duration;

use tenure_core::StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::{Manner, Replies, Supervisor, Terms};
use super::dial::Route;
use super::mode::Mode;
use super::request::Step;
use tenure_backend::Connection;

/// The connections for requests to one server, kept alive.
#[derive(Debug)]
pub(super) struct Lines {
    plain: Supervisor,
    /// For what replicas must confirm, where they must.
    confirmed: Option<Supervisor>,
    state: watch::Receiver<Connection>,
}

impl Lines {
    /// Opens them in the current runtime. They end after this value and all its requests.
    pub(super) fn start(route: Route, terms: Terms) -> Self {
        if !terms.mode.awaits_replicas() {
            let plain = Supervisor::start(route, terms);
            let state = plain.state().clone();
            return Lines { plain, confirmed: None, state };
        }
        let unhurried = Terms { mode: Mode::Available, ..terms.clone() };
        let plain = Supervisor::start(route.clone(), unhurried);
        let confirmed = Supervisor::start(route, terms);
        let state = both(plain.state().clone(), confirmed.state().clone());
        Lines { plain, confirmed: Some(confirmed), state }
    }

    /// Queues steps now; the future only waits.
    pub(super) fn carry_out(
        &self,
        steps: Vec<Step>,
        deadline: Instant,
        timeout: Duration,
        manner: Manner,
    ) -> impl Future<Output = Result<Replies, StoreError>> + Send + use<> {
        let is_for_replicas = steps.first().is_some_and(Step::is_for_replicas);
        let line = self.confirmed.as_ref().filter(|_| is_for_replicas).unwrap_or(&self.plain);
        line.carry_out(steps, deadline, timeout, manner)
    }

    /// How the connections stand: as the worse of them does.
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
