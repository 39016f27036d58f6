//! What the driver and the handles of one election share.
//!
//! The driver writes, handles read: the deadline behind `is_leader()` is one atomic, the status is
//! a latest-wins watch, events go into queues. Handles write wishes, which the driver takes. The
//! term cell is the one place where both meet under a lock: a guard is given out and a term is
//! closed never at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::{
    Event, EventKind, HandOverOutcome, InstanceId, Moment, Reason, Resource, Role, Settings,
    Timing, Token,
};
use tokio::sync::oneshot;

use crate::Error;
use crate::backend::Backend;
use crate::client::Client;
use crate::clock::Clock;
use crate::deadlines::Deadlines;
use crate::driver::{Inbox, Message};
use crate::events::EventQueue;
use crate::fork::Generation;
use crate::latest::Latest;
use crate::listener::Listener;
use crate::status::{Status, Watch};
use crate::term::{Phase, TermState};

/// No deadline: the moment at which the clock had its origin lies before every reading.
const NOT_LEADING: u64 = 0;
/// An election that no driver has taken up yet.
const NO_KEY: u64 = u64::MAX;

pub(crate) struct ElectionState {
    pub(crate) resource: Resource,
    pub(crate) id: InstanceId,
    /// Kept beside the status, which a forked child must not touch.
    pub(crate) timing: Timing,
    pub(crate) clock: Clock,
    pub(crate) born_in: Generation,
    /// Until when new work may begin, in nanoseconds on the local clock.
    leads_until: AtomicU64,
    cell: Mutex<TermCell>,
    pub(crate) status: Arc<Latest<Status>>,
    subscribers: Mutex<Vec<Subscriber>>,
    wishes: Mutex<Wishes>,
    stops: AtomicBool,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) backend: Arc<dyn Backend>,
    key: AtomicU64,
    deadlines: Arc<Deadlines>,
    /// Itself, for whoever looks at the clock on its behalf.
    me: Weak<ElectionState>,
}

/// The open term and the guards on it.
#[derive(Default)]
pub(crate) struct TermCell {
    /// The latest term.
    term: Option<Arc<TermState>>,
    /// Whether guards are given out for it: only until work is told to stop.
    open: bool,
    /// Guards alive, of whichever term: each is work that may still be running.
    guards: usize,
    /// When the clock is looked at on behalf of these guards.
    watched_at: Option<Moment>,
}

impl TermCell {
    pub(crate) fn term(&self) -> Option<&Arc<TermState>> {
        self.term.as_ref()
    }

    pub(crate) fn work_runs(&self) -> bool {
        self.guards > 0
    }
}

/// What the handles want, each wish at most once: the latest word counts.
#[derive(Default)]
pub(crate) struct Wishes {
    queued: bool,
    pub(crate) ready: Option<bool>,
    /// The application has this instance stand back.
    pub(crate) stands_back: bool,
    /// It holds back after its work failed.
    pub(crate) backs_off: bool,
    pub(crate) beats: bool,
    pub(crate) renews: bool,
    pub(crate) resigns: bool,
    /// Work under this term was stopped by the clock: it cannot be renewed any more.
    pub(crate) ran_out: Option<Token>,
    pub(crate) work_failed: Option<String>,
    /// Each has an outcome of its own, so none replaces another.
    pub(crate) hand_overs: Vec<HandOverWish>,
    pub(crate) stops: bool,
}

/// A hand-over that somebody waits for.
pub(crate) struct HandOverWish {
    pub(crate) successor: Successor,
    pub(crate) reply: oneshot::Sender<HandOverOutcome>,
}

/// Whom a leader hands over to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Successor {
    Named(String),
    Best,
}

#[derive(Debug)]
enum Subscriber {
    Stream(Arc<EventQueue>),
    Listener(Arc<Listener>),
}

impl ElectionState {
    pub(crate) fn new(settings: &Settings, client: &Client, enabled: bool) -> Arc<Self> {
        let (resource, id) = (settings.resource.clone(), settings.id.clone());
        let status = Status::starting(resource.clone(), id.clone(), settings.timing, enabled);
        Arc::new_cyclic(|me| ElectionState {
            me: Weak::clone(me),
            deadlines: Arc::clone(&client.deadlines),
            backend: client.backend_when(enabled),
            resource,
            id,
            timing: settings.timing,
            clock: client.clock.clone(),
            born_in: Generation::current(),
            leads_until: AtomicU64::new(NOT_LEADING),
            cell: Mutex::default(),
            status: Arc::new(Latest::new(status)),
            subscribers: Mutex::default(),
            wishes: Mutex::default(),
            stops: AtomicBool::new(false),
            inbox: Arc::clone(&client.inbox),
            key: AtomicU64::new(NO_KEY),
        })
    }

    // ------------------------------------------------------------------ the handles' side

    /// One atomic load or two, and a clock read only where there is a deadline to compare with.
    #[inline]
    pub(crate) fn is_leader(&self) -> bool {
        let until = self.leads_until.load(Ordering::Acquire);
        until != NOT_LEADING
            && self.born_in.is_current()
            && self.clock.now() < Moment::from_nanos(until)
    }

    /// Fails in a forked child, which has no driver: whatever it waited for would never come.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.born_in.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    pub(crate) fn status_now(&self) -> Status {
        self.status_told().at(self.clock.now())
    }

    /// The status as the driver told it, whatever has run out since.
    fn status_told(&self) -> Status {
        if !self.born_in.is_current() {
            // The lock may have been held when the process was forked; nobody will let go of it.
            let (resource, id) = (self.resource.clone(), self.id.clone());
            return Status::in_forked_child(resource, id, self.timing);
        }
        self.status.read().clone()
    }

    /// Follows the status. It belongs to the process of the election, whichever asks for it: in a
    /// forked child nobody would tell it anything.
    pub(crate) fn follow(&self) -> Watch {
        let version = self.status.version();
        let (latest, clock) = (Arc::clone(&self.status), self.clock.clone());
        Watch::new(latest, clock, self.born_in, version, self.status_told())
    }

    /// The open term with one more guard on it, unless work under it has to stop.
    pub(crate) fn enter_term(&self) -> Option<Arc<TermState>> {
        if !self.is_leader() {
            return None;
        }
        let mut cell = self.lock_cell();
        if !cell.open || !self.is_leader() {
            return None;
        }
        let term = cell.term.clone()?;
        self.count_in(&mut cell);
        Some(term)
    }

    /// One more guard beside one that is alive.
    pub(crate) fn enter_beside(&self) {
        let mut cell = self.lock_cell();
        debug_assert!(cell.guards > 0, "only a guard may be doubled");
        self.count_in(&mut cell);
    }

    fn count_in(&self, cell: &mut TermCell) {
        cell.guards += 1;
        if cell.guards == 1 {
            self.wish(|_| {});
            self.watch(cell);
        }
    }

    pub(crate) fn leave_term(&self) {
        if !self.born_in.is_current() {
            return;
        }
        let mut cell = self.lock_cell();
        cell.guards -= 1;
        if cell.guards == 0 {
            self.wish(|_| {});
        }
    }

    // ------------------------------------------------------------------ the clock's side

    /// Whether work under `term` has to stop, by what was told or by the clock alone: a driver
    /// that is held up must not keep it going.
    pub(crate) fn must_stop(&self, term: &Arc<TermState>) -> bool {
        if term.phase() >= Phase::Stopping || !self.born_in.is_current() {
            return true;
        }
        if self.clock.now() < self.timing.stop_at(term.valid_until()) {
            return false;
        }
        self.enforce(|cell| cell.term.as_ref().is_some_and(|open| Arc::ptr_eq(open, term)));
        term.phase() >= Phase::Stopping || !self.is_open(term)
    }

    fn is_open(&self, term: &Arc<TermState>) -> bool {
        let cell = self.lock_cell();
        cell.open && cell.term.as_ref().is_some_and(|open| Arc::ptr_eq(open, term))
    }

    /// Does what is due by the clock, on behalf of guards for which that was queued.
    pub(crate) fn look_at_clock(&self, queued_at: Moment) {
        self.enforce(|cell| cell.watched_at == Some(queued_at));
        let mut cell = self.lock_cell();
        if cell.watched_at == Some(queued_at) {
            cell.watched_at = None;
            self.watch(&mut cell);
        }
    }

    /// Queues the next moment at which the clock alone decides something, if work runs.
    pub(crate) fn watch(&self, cell: &mut TermCell) {
        let Some(term) = cell.term.as_ref().filter(|_| cell.guards > 0) else { return };
        let next = match term.phase() {
            Phase::Open if cell.open => self.timing.stop_at(term.valid_until()),
            Phase::Open | Phase::Stopping => term.cuts_off_at(),
            Phase::CutOff => term.valid_until(),
            Phase::Over => return,
        };
        // A term that was closed is ended by whoever closed it.
        let next = next.min(term.valid_until());
        if next > Moment::ORIGIN && cell.watched_at.is_none_or(|queued_at| next < queued_at) {
            cell.watched_at = Some(next);
            self.deadlines.add(next, Weak::clone(&self.me));
        }
    }

    /// Takes the steps of the open term that are due by the clock. The machine would take the same
    /// ones: it does not renew a term once work under it had to stop.
    fn enforce(&self, is_meant: impl FnOnce(&TermCell) -> bool) {
        let mut cell = self.lock_cell();
        let Some(term) = cell.term.clone().filter(|_| is_meant(&cell)) else { return };
        let (now, ends_at) = (self.clock.now(), term.valid_until());
        if ends_at == Moment::ORIGIN || cell.guards == 0 {
            return;
        }
        let stops_at = self.timing.stop_at(ends_at);
        if cell.open && now >= stops_at {
            self.close_door(&mut cell);
            let by = (now + self.timing.stop_grace()).min(self.timing.kill_at(ends_at));
            term.cut_off_at(now, by);
            self.wish(|wishes| wishes.ran_out = Some(term.token));
        }
        let is_closed = !cell.open;
        if now >= ends_at {
            term.invalidate();
        }
        drop(cell);
        // Wakers are woken without the lock: they are the application's.
        if now >= ends_at {
            term.end(Reason::LeaseEnded);
        } else if is_closed && now >= term.cuts_off_at() {
            term.stop(Reason::LeaseEnded);
            term.cut_off();
        } else if is_closed {
            term.stop(Reason::LeaseEnded);
        }
    }

    /// Tells the driver what is wanted. Never waits.
    pub(crate) fn wish(&self, change: impl FnOnce(&mut Wishes)) {
        if !self.born_in.is_current() {
            return;
        }
        let mut wishes = self.lock_wishes();
        change(&mut wishes);
        let first = !std::mem::replace(&mut wishes.queued, true);
        drop(wishes);
        let key = self.key.load(Ordering::Acquire);
        // Before the driver knows the election it will look at the wishes by itself.
        if first && key != NO_KEY {
            self.inbox.post(Message::Woken(crate::driver::ElectionKey(key)));
        }
    }

    pub(crate) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.wish(|wishes| wishes.stops = true);
    }

    /// Whether it was told to stop; it may still be stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.status.read().role == Role::Stopped
    }

    /// Waits on the client's clock. Fails when the client's thread ends meanwhile.
    pub(crate) async fn sleep(&self, pause: Duration) -> Result<(), Error> {
        self.check_process()?;
        let (wake, woken) = oneshot::channel();
        let until = self.clock.now() + pause;
        self.inbox.request(Message::Sleep { until, wake })?;
        woken.await.map_err(|_| Error::Closed)
    }

    pub(crate) async fn stopped(&self) {
        self.status.wait_for(|status| status.role == Role::Stopped).await;
    }

    pub(crate) fn subscribe(&self, queue: Arc<EventQueue>) {
        self.add_subscriber(Subscriber::Stream(queue));
    }

    pub(crate) fn add_listener(&self, listener: Arc<Listener>) {
        self.add_subscriber(Subscriber::Listener(listener));
    }

    fn add_subscriber(&self, subscriber: Subscriber) {
        if !self.born_in.is_current() {
            return subscriber.end();
        }
        let mut subscribers = self.lock_subscribers();
        if self.has_stopped() {
            return subscriber.end();
        }
        // Readers come and go while nothing happens that would find out who is gone.
        subscribers.retain(|subscriber| !subscriber.is_gone());
        subscribers.push(subscriber);
    }

    // ------------------------------------------------------------------ the driver's side

    pub(crate) fn adopt(&self, key: crate::driver::ElectionKey) {
        self.key.store(key.0, Ordering::Release);
    }

    pub(crate) fn take_wishes(&self) -> Wishes {
        let mut wishes = self.lock_wishes();
        let lasting = Wishes {
            stands_back: wishes.stands_back,
            backs_off: wishes.backs_off,
            ..Wishes::default()
        };
        std::mem::replace(&mut *wishes, lasting)
    }

    pub(crate) fn lock_cell(&self) -> MutexGuard<'_, TermCell> {
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over from an event what checks and guards depend on. Called under the cell's lock,
    /// before anything is done or told that follows from the event.
    pub(crate) fn apply(&self, cell: &mut TermCell, event: &Event) {
        match &event.kind {
            EventKind::Acquired { token, ends_at } => {
                cell.term = Some(Arc::new(TermState::new(*token, *ends_at)));
                cell.open = true;
                self.leads_until.store(ends_at.as_nanos(), Ordering::Release);
                self.watch(cell);
            }
            EventKind::Renewed { ends_at, .. } => {
                if let (Some(term), true) = (&cell.term, cell.open) {
                    term.extend(*ends_at);
                    self.leads_until.store(ends_at.as_nanos(), Ordering::Release);
                }
            }
            EventKind::StopWork { .. } => self.close_door(cell),
            EventKind::Lost { .. } => {
                self.close_door(cell);
                if let Some(term) = &cell.term {
                    term.invalidate();
                }
            }
            _ => {}
        }
    }

    /// No work begins under the term any more.
    fn close_door(&self, cell: &mut TermCell) {
        cell.open = false;
        self.leads_until.store(NOT_LEADING, Ordering::Release);
    }

    pub(crate) fn publish(&self, event: Event) {
        let mut subscribers = self.lock_subscribers();
        if subscribers.is_empty() {
            return;
        }
        let event = Arc::new(event);
        subscribers.retain(|subscriber| subscriber.push(&event));
    }

    /// Nobody settles them any more; whoever waits is told by the drop.
    pub(crate) fn drop_hand_overs(&self) {
        let dropped = std::mem::take(&mut self.lock_wishes().hand_overs);
        drop(dropped);
    }

    /// The election is over: nothing more will be told.
    pub(crate) fn finish(&self) {
        self.drop_hand_overs();
        let subscribers = std::mem::take(&mut *self.lock_subscribers());
        subscribers.iter().for_each(Subscriber::end);
    }

    /// The driver is gone without having stopped this election properly.
    pub(crate) fn orphan(&self) {
        let term = {
            let mut cell = self.lock_cell();
            self.close_door(&mut cell);
            cell.term.clone()
        };
        if let Some(term) = term {
            term.end(Reason::Stopped);
        }
        self.status.update(|status| {
            (status.role, status.reason) = (Role::Stopped, Reason::Stopped);
            (status.token, status.ends_at) = (None, None);
            status.parting = false;
            true
        });
        self.finish();
    }

    fn lock_wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_subscribers(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber {
    /// Whether a stream was dropped. Listeners are few, and live as long as their election.
    fn is_gone(&self) -> bool {
        matches!(self, Subscriber::Stream(queue) if queue.has_ended())
    }

    fn push(&self, event: &Arc<Event>) -> bool {
        match self {
            Subscriber::Stream(queue) => queue.push(Arc::clone(event)),
            Subscriber::Listener(listener) => listener.push(Arc::clone(event)),
        }
    }

    fn end(&self) {
        match self {
            Subscriber::Stream(queue) => queue.end(),
            Subscriber::Listener(_) => {}
        }
    }
}

impl std::fmt::Debug for ElectionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElectionState")
            .field("resource", &self.resource.name())
            .field("id", &self.id.as_str())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{MemoryBackend, Tenure};

    #[test]
    fn readers_that_are_gone_are_forgotten_before_anything_happens() {
        crate::blocking::wait(async {
            let tenure = Tenure::builder().backend(Arc::new(MemoryBackend::new())).connect().await;
            let election = tenure.expect("a client").election("job").start().await;
            let election = election.expect("an election");
            let _kept = election.events();
            for _ in 0..1_000 {
                drop(election.events());
            }
            let count = election.state().lock_subscribers().len();
            assert!(count <= 2, "{count} are kept");
        });
    }
}
