//! The handle of an election: its state, and what the application wants of it.

mod builder;
mod hand_over;
mod run;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Event, InstanceId, Resource};

use crate::client::Client;
use crate::events::Events;
use crate::listener::{Callback, Listener, ListenerHandle, blocking_on};
use crate::state::{ElectionState, Successor};
use crate::status::{Status, Watch};
use crate::term::wait_until_given_up;
use crate::{Error, Term};

pub(crate) use builder::Attempt;
pub use builder::{ElectionBuilder, OnLoss};
pub(crate) use hand_over::hand_over;
pub(crate) use run::{Ended, run_term, words_of};

/// A running election. Cheap to clone; it is stopped when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Election {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    state: Arc<ElectionState>,
    /// Keeps the driver alive.
    client: Arc<Client>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.state.born_in.is_current() {
            self.state.stop();
        }
    }
}

impl Election {
    pub(crate) fn new(state: Arc<ElectionState>, client: Arc<Client>) -> Self {
        Election { handle: Arc::new(Handle { state, client }) }
    }

    pub(crate) fn state(&self) -> &Arc<ElectionState> {
        &self.handle.state
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.handle.client
    }

    // ------------------------------------------------------------------ its state

    /// The resource of this election.
    pub fn resource(&self) -> &Resource {
        &self.state().resource
    }

    /// The id of this instance.
    pub fn id(&self) -> &InstanceId {
        &self.state().id
    }

    /// Whether this instance leads now and may begin work. No I/O and no lock: an atomic load and a
    /// reading of the clock. `false` as soon as work has to stop, and at the end of the lease even
    /// if no other thread of this process has run for a while.
    #[inline]
    pub fn is_leader(&self) -> bool {
        self.handle.state.is_leader()
    }

    /// The current state of this instance: its role, the reason, the term, and the leader and the
    /// members as last seen.
    #[must_use]
    pub fn status(&self) -> Status {
        self.state().status_now()
    }

    /// Follows the status. It has the latest state only and keeps no queue.
    pub fn watch(&self) -> Watch {
        self.state().follow()
    }

    /// The stream of events from now on; [`ElectionBuilder::events`] has them from the first.
    pub fn events(&self) -> Events {
        let events = Events::new();
        self.state().subscribe(Arc::clone(events.queue()));
        events
    }

    /// Calls `listener` for each event from now on, in order, on a thread for listeners. A listener
    /// that blocks or panics does not delay the others.
    pub fn on_event<F>(&self, mut listener: F) -> Result<ListenerHandle, Error>
    where
        F: FnMut(&Event) + Send + 'static,
    {
        self.add_listener(Box::new(move |event| listener(&event)))
    }

    /// Like [`on_event`](Self::on_event), for async functions: each call runs to its end before
    /// the next begins.
    pub fn on_event_async<F, Fut>(&self, listener: F) -> Result<ListenerHandle, Error>
    where
        F: FnMut(Arc<Event>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        self.add_listener(blocking_on(listener))
    }

    fn add_listener(&self, callback: Callback) -> Result<ListenerHandle, Error> {
        let (listener, handle) = Listener::new(callback, self.client().listeners()?);
        self.state().add_listener(listener);
        Ok(handle)
    }

    // ------------------------------------------------------------------ leading

    /// A guard on the current term, if this instance leads and work may begin.
    pub fn term(&self) -> Option<Term> {
        Term::enter(self.state())
    }

    /// Waits until this instance leads. Fails if the election has been stopped.
    pub async fn wait_for_leadership(&self) -> Result<Term, Error> {
        self.state().check_process()?;
        let status = &self.state().status;
        loop {
            let seen = status.version();
            if let Some(term) = self.term() {
                return Ok(term);
            }
            if self.state().has_stopped() {
                return Err(self.stopped_error());
            }
            status.changed_since(seen).await;
        }
    }

    /// Like [`wait_for_leadership`](Self::wait_for_leadership), but fails after `limit`, with the
    /// reason why this instance does not lead.
    pub async fn wait_for_leadership_within(&self, limit: Duration) -> Result<Term, Error> {
        let waited = self.client().within(limit, "leadership", self.wait_for_leadership()).await;
        waited.map_err(|error| match error {
            Error::TimedOut { what, waited, .. } => {
                Error::TimedOut { what, waited, reason: Some(self.status().reason) }
            }
            other => other,
        })
    }

    // ------------------------------------------------------------------ what the application wants

    /// Sets whether this instance may lead. A leader that is no longer ready resigns.
    pub fn set_ready(&self, ready: bool) {
        self.state().wish(|wishes| wishes.ready = Some(ready));
    }

    /// Reports that the work made progress; see [`ElectionBuilder::require_beat`].
    pub fn beat(&self) {
        self.state().wish(|wishes| wishes.beats = true);
    }

    /// Lets others lead: this instance takes no new term until [`contend_again`]. A running term
    /// goes on. To pause all instances, see [`Observer::pause`](crate::Observer::pause).
    ///
    /// [`contend_again`]: Self::contend_again
    pub fn stand_back(&self) {
        self.state().wish(|wishes| wishes.stands_back = true);
    }

    /// Ends [`stand_back`](Self::stand_back).
    pub fn contend_again(&self) {
        self.state().wish(|wishes| wishes.stands_back = false);
    }

    /// Stops the work, releases the term, then returns. This instance stays a candidate, but lets
    /// other ready members go first. Does nothing without a term.
    pub async fn resign(&self) {
        if self.state().check_process().is_err() {
            return; // It leads nothing, and nobody would answer.
        }
        let Some(token) = self.state().status.read().token else { return };
        self.state().wish(|wishes| wishes.resigns = true);
        wait_until_given_up(self.state(), token).await;
    }

    /// Hands over to the member called `to`, by name or whole id, and returns its id once it leads.
    ///
    /// Fails with [`Error::Refused`] and the reason: either `to` cannot take over, and this
    /// instance goes on leading; or the term ended and `to` did not take over in time.
    /// [`is_leader`](Self::is_leader) tells which.
    pub async fn hand_over(&self, to: &str) -> Result<InstanceId, Error> {
        hand_over(self.state(), Successor::Named(to.to_owned())).await
    }

    /// Hands over to the best member that is ready; see [`hand_over`](Self::hand_over).
    pub async fn hand_over_to_best(&self) -> Result<InstanceId, Error> {
        hand_over(self.state(), Successor::Best).await
    }

    /// Leaves the election for good: stops the work, releases the term if the store answers,
    /// then returns.
    pub async fn stop(&self) {
        if self.state().check_process().is_err() {
            return;
        }
        self.state().stop();
        self.state().stopped().await;
    }

    fn stopped_error(&self) -> Error {
        Error::Stopped { name: self.resource().name().to_owned() }
    }
}
