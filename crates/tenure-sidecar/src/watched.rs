//! One resource as the sidecar knows it: what the store showed last, and, where this instance
//! takes part, its election and the promises made in its name.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tenure::backend::Connection;
use tenure::{Election, Leadership, Moment, Observation, Observer, Status, Term, Timing, Token};
use tokio::sync::{Notify, watch};

use crate::clock;
use crate::terms::{TermRecord, terms};

/// How many entries of the history are read: about a hundred terms.
pub(crate) const HISTORY_READ_MAX: usize = 200;
/// How long a look is believed that showed no lease: much longer than the pause between two looks,
/// so only a store that does not answer gets there.
const BELIEVED_MAX: Duration = Duration::from_secs(10);
/// Why the store is called down while nothing but this instance's election has asked it.
const OWN_UNANSWERED: &str = "the store did not answer the last request of this instance's \
                              election: it is busy, stopped or cut off";
/// Why it is called down while a look is under way and nothing is known any more.
const LOOK_UNANSWERED: &str = "the store has not answered for as long as what it last said counts: \
                               it is busy, stopped or cut off";
/// How many renewals the page draws.
const RENEWALS_KEPT_MAX: usize = 120;

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) observer: Observer,
    pub(crate) election: Option<Election>,
    seen: watch::Sender<Seen>,
    notes: Mutex<Notes>,
    promise: Mutex<Promise>,
    /// A look is under way.
    is_looking: AtomicBool,
    /// Somebody wants to know more than the last look showed.
    pub(crate) look_soon: Notify,
    pub(crate) renewal_seconds: Histogram,
    pub(crate) term_seconds: Histogram,
}

/// What the store showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) observation: Option<Arc<Observation>>,
    /// When the look began that showed it, on the clock that counts through suspend.
    pub(crate) looked_at: Option<Moment>,
    pub(crate) looked_at_ms: Option<u64>,
    pub(crate) round_trip: Option<Duration>,
    /// Why the last look showed nothing.
    pub(crate) error: Option<String>,
    /// Whether that was because the store did not answer it.
    pub(crate) is_unanswered: bool,
    /// How many requests of this instance's election had no answer by the last one that a look had.
    own_unanswered: u64,
    pub(crate) terms: Arc<[TermRecord]>,
    /// How often somebody else, or the same one again, was found to lead.
    pub(crate) leader_changes: u64,
}

impl Seen {
    pub(crate) fn leader(&self) -> Option<&tenure::SeenLeader> {
        self.observation.as_ref()?.leadership.leader()
    }

    /// Whether the store answered the last look, with an error.
    fn was_refused(&self) -> bool {
        self.error.is_some() && !self.is_unanswered
    }

    /// How long ago it was seen.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.looked_at.map(|looked_at| clock::awake_or_asleep().since(looked_at))
    }

    /// What was seen, while it can be taken for true.
    pub(crate) fn current(&self) -> Option<&Observation> {
        self.observation.as_deref().filter(|_| self.unknown_for().is_none())
    }

    /// Since when nobody can tell who leads: the lease that was seen is over, and nothing was seen
    /// since. `None` while it is known, and before anything was.
    pub(crate) fn unknown_for(&self) -> Option<Duration> {
        self.age()?.checked_sub(self.believed_for()?).filter(|over| !over.is_zero())
    }

    /// How long what was seen counts, from the moment of the look.
    pub(crate) fn believed_for(&self) -> Option<Duration> {
        match self.observation.as_ref()?.leadership {
            Leadership::Led { remaining: Some(left), .. } => Some(left),
            _ => Some(BELIEVED_MAX),
        }
    }

    /// Since when it is unknown who leads, by the clock on the wall.
    pub(crate) fn unknown_since_ms(&self) -> Option<u64> {
        self.unknown_for()?;
        let believed = u64::try_from(self.believed_for()?.as_millis()).unwrap_or(u64::MAX);
        Some(self.looked_at_ms?.saturating_add(believed))
    }

    /// The lease that the leader asks for, as it told the others.
    pub(crate) fn leader_ttl(&self) -> Option<Duration> {
        let leader = self.leader()?;
        let members = &self.observation.as_ref()?.members;
        members.iter().find(|member| member.id == leader.id).map(|member| member.record.ttl)
    }

    /// How long the lease lasts that was seen, counted on from then.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        match self.observation.as_ref()?.leadership {
            Leadership::Led { remaining: Some(left), .. } => {
                Some(left.saturating_sub(self.age().unwrap_or_default()))
            }
            _ => None,
        }
    }
}

/// Whether requests reach the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// They do.
    Up,
    /// Nothing was heard from it yet.
    Connecting,
    /// They do not, for this reason.
    Down(String),
}

/// This instance's state, read once so that one answer does not contradict itself.
#[derive(Debug)]
pub(crate) struct OwnState {
    /// `None` where it only observes.
    pub(crate) status: Option<Status>,
    /// Whether it leads and work may begin. The one judgement that all answers and metrics share:
    /// a term that ends, or can no longer be renewed in time, is held but not led.
    pub(crate) leads: bool,
}

impl OwnState {
    /// The term that it holds without leading, until it is released or runs out.
    pub(crate) fn ending(&self) -> Option<&Status> {
        self.status.as_ref().filter(|status| status.token.is_some() && !self.leads)
    }

    pub(crate) fn is(&self, id: &tenure::InstanceId) -> bool {
        self.status.as_ref().is_some_and(|status| status.id == *id)
    }
}

/// What this instance's own events told.
#[derive(Debug, Default)]
struct Notes {
    renewed_at: Option<Instant>,
    renewed_at_ms: Option<u64>,
    term_began_at: Option<Instant>,
    renewals: VecDeque<Duration>,
    /// Whether the store ever answered this election.
    answered: bool,
}

/// What callers were told they may rely on.
#[derive(Debug, Default)]
struct Promise {
    /// Keeps the term from being given to others while somebody relies on it.
    guard: Option<Term>,
    until: Option<Instant>,
    /// When the last one ends that was ever made.
    last_until: Option<Instant>,
}

/// A leadership that somebody may act on for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promised {
    pub(crate) token: Token,
    /// How long the caller may act on it, counted from when it asked.
    pub(crate) valid_for: Duration,
    /// How long the lease lasts unless renewed.
    pub(crate) remaining: Duration,
}

impl Watched {
    pub(crate) fn new(observer: Observer, election: Option<Election>) -> Self {
        Watched {
            observer,
            election,
            seen: watch::Sender::new(Seen::default()),
            notes: Mutex::default(),
            promise: Mutex::default(),
            is_looking: AtomicBool::new(false),
            look_soon: Notify::new(),
            renewal_seconds: Histogram::new(exponential_buckets(0.000_25, 2.0, 14)),
            term_seconds: Histogram::new(exponential_buckets(1.0, 4.0, 10)),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.observer.resource().name()
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    pub(crate) fn follow(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Whether nobody can tell who leads any more. An instance that leads knows.
    pub(crate) fn is_unknown(&self, seen: &Seen) -> bool {
        let leads = self.status().is_some_and(|status| status.token.is_some());
        self.is_held() && !leads && seen.unknown_for().is_some()
    }

    /// This instance's state now.
    pub(crate) fn own(&self) -> OwnState {
        let is_leader = self.election.as_ref().is_some_and(Election::is_leader);
        let status = self.status();
        let leads = is_leader && status.as_ref().is_some_and(|status| status.token.is_some());
        OwnState { status, leads }
    }

    /// Who leads as far as is known: this instance knows of itself without asking, so that no look
    /// can name it while it does not lead.
    pub(crate) fn known_leader(&self, seen: &Seen, own: &OwnState) -> Option<tenure::SeenLeader> {
        if let Some(status) = own.status.as_ref().filter(|_| own.leads) {
            let (id, token) = (status.id.clone(), status.token?);
            return Some(tenure::SeenLeader { id, token: Some(token), foreign: false });
        }
        if own.ending().is_some() {
            return None;
        }
        let leader = seen.current()?.leadership.leader()?;
        (self.is_held() && !own.is(&leader.id)).then(|| leader.clone())
    }

    /// Whether what was seen is a term of this instance that it holds and does not lead by.
    pub(crate) fn has_left(&self, leader: &tenure::SeenLeader) -> bool {
        self.own().ending().is_some_and(|status| status.token == leader.token)
    }

    /// Whether requests about this resource reach the store. The one judgement that all answers
    /// and metrics share.
    pub(crate) fn reach(&self, connection: &Connection) -> Reach {
        let seen = self.seen.borrow();
        match connection {
            _ if !self.is_held() => Reach::Up,
            Connection::Down(error) => Reach::Down(error.to_string()),
            _ if seen.is_unanswered => Reach::Down(seen.error.clone().unwrap_or_default()),
            _ if self.is_own_unanswered(&seen) => Reach::Down(OWN_UNANSWERED.to_owned()),
            _ if self.is_look_unanswered(&seen) => Reach::Down(LOOK_UNANSWERED.to_owned()),
            // A connection alone is no answer: what listens there may be silent.
            Connection::Up if self.has_heard(&seen) => Reach::Up,
            Connection::Up | Connection::Connecting => Reach::Connecting,
        }
    }

    pub(crate) fn status(&self) -> Option<Status> {
        self.election.as_ref().map(Election::status)
    }

    /// Lets everyone who follows look again, though the store showed nothing new.
    pub(crate) fn nudge(&self) {
        self.seen.send_modify(|_| {});
    }

    /// Whether the store holds this election. Switched off, nobody else knows of it.
    pub(crate) fn is_held(&self) -> bool {
        self.status().is_none_or(|status| status.enabled)
    }

    /// Whether anything was ever heard from the store.
    pub(crate) fn is_acquainted(&self) -> bool {
        !self.is_held() || self.has_heard(&self.seen.borrow())
    }

    /// Whether the latest request of this instance's election had no answer, and no look had one
    /// since.
    fn is_own_unanswered(&self, seen: &Seen) -> bool {
        self.status().is_some_and(|status| {
            status.unanswered && status.counts.unanswered > seen.own_unanswered
        })
    }

    /// Whether it is unknown who leads because the store has yet to answer the look under way. One
    /// that answered the last one with an error is there.
    fn is_look_unanswered(&self, seen: &Seen) -> bool {
        let is_looking = self.is_looking.load(Ordering::Relaxed);
        is_looking && !seen.was_refused() && self.is_unknown(seen)
    }

    fn has_heard(&self, seen: &Seen) -> bool {
        self.lock_notes().answered || seen.observation.is_some() || seen.was_refused()
    }

    // ------------------------------------------------------------------ looking

    /// Looks once and remembers what it saw. Never longer than the library's own time-out.
    pub(crate) async fn look(&self) {
        let (began_at, began_at_ms) = (clock::awake_or_asleep(), clock::unix_ms());
        self.is_looking.store(true, Ordering::Relaxed);
        let looked = self.observer.look().await;
        self.is_looking.store(false, Ordering::Relaxed);
        let round_trip = clock::awake_or_asleep().since(began_at);
        let history = match &looked {
            Ok(observation) if self.needs_history(observation) => {
                self.observer.history(HISTORY_READ_MAX).await.ok()
            }
            _ => None,
        };
        let own_unanswered = self.status().map_or(0, |status| status.counts.unanswered);
        self.seen.send_modify(|seen| match looked {
            // Whoever asks for the status looks as well: a look that began later was answered.
            _ if seen.looked_at > Some(began_at) => {}
            Ok(observation) => {
                seen.own_unanswered = own_unanswered;
                let token = observation.leadership.leader().map(|leader| leader.token);
                let before = seen.leader().map(|leader| leader.token);
                seen.leader_changes += u64::from(token.is_some() && token != before);
                seen.observation = Some(Arc::new(observation));
                seen.looked_at = Some(began_at);
                seen.looked_at_ms = Some(began_at_ms);
                seen.round_trip = Some(round_trip);
                (seen.error, seen.is_unanswered) = (None, false);
                if let Some(entries) = history {
                    seen.terms = terms(&entries).into();
                }
            }
            Err(error) => {
                seen.is_unanswered = matches!(error, tenure::Error::Store(_));
                if !seen.is_unanswered {
                    seen.own_unanswered = own_unanswered;
                }
                seen.error = Some(error.to_string());
            }
        });
    }

    /// History changes with the leader only; an ended term is told when the next begins, or by its
    /// own leader.
    fn needs_history(&self, observation: &Observation) -> bool {
        let seen = self.seen.borrow();
        let last = seen.terms.last();
        match observation.leadership.leader() {
            Some(leader) => {
                last.is_none_or(|term| Some(term.token) != leader.token.map(Token::get))
            }
            None => last.is_none_or(|term| term.ended_at.is_none()),
        }
    }

    // ------------------------------------------------------------------ what events tell

    pub(crate) fn note_grant(&self) {
        let mut notes = self.lock_notes();
        let now = clock::now();
        (notes.renewed_at, notes.renewed_at_ms) = (Some(now), Some(clock::unix_ms()));
        notes.term_began_at = Some(now);
        notes.answered = true;
    }

    pub(crate) fn note_renewal(&self, took: Duration) {
        self.renewal_seconds.observe(took.as_secs_f64());
        let mut notes = self.lock_notes();
        (notes.renewed_at, notes.renewed_at_ms) = (Some(clock::now()), Some(clock::unix_ms()));
        if notes.renewals.len() == RENEWALS_KEPT_MAX {
            notes.renewals.pop_front();
        }
        notes.renewals.push_back(took);
    }

    pub(crate) fn note_loss(&self) {
        let mut notes = self.lock_notes();
        (notes.renewed_at, notes.renewed_at_ms) = (None, None);
        if let Some(began_at) = notes.term_began_at.take() {
            let lasted = clock::now().saturating_duration_since(began_at);
            self.term_seconds.observe(lasted.as_secs_f64());
        }
    }

    pub(crate) fn note_answer(&self) {
        self.lock_notes().answered = true;
    }

    /// How long ago the term was granted or renewed.
    pub(crate) fn renewal_age(&self) -> Option<Duration> {
        let renewed_at = self.lock_notes().renewed_at?;
        Some(clock::now().saturating_duration_since(renewed_at))
    }

    /// When the store last did what it was asked: a renewal, or, without a term, a look.
    pub(crate) fn refreshed_at_ms(&self) -> Option<u64> {
        self.lock_notes().renewed_at_ms.or(self.seen.borrow().looked_at_ms)
    }

    pub(crate) fn renewals(&self) -> Vec<Duration> {
        self.lock_notes().renewals.iter().copied().collect()
    }

    // ------------------------------------------------------------------ promises

    /// A leadership to act on, if this instance leads now. Decided at this very moment by the
    /// election's own clock. No other instance can become leader until every promise is over.
    pub(crate) fn promise(&self) -> Option<Promised> {
        let election = self.election.as_ref()?;
        let mut promise = self.lock_promise();
        if !election.is_leader() {
            return None;
        }
        let status = election.status();
        let token = status.token?;
        if promise.guard.as_ref().is_none_or(|guard| guard.token() != token) {
            promise.guard = Some(election.term()?);
        }
        let term = promise.guard.as_ref().filter(|term| term.token() == token)?;
        let remaining = term.remaining();
        let valid_for = remaining.min(promise_max(&status.timing));
        if remaining.is_zero() || term.is_stopping() {
            return None;
        }
        let until = clock::now() + valid_for;
        promise.until = Some(promise.until.map_or(until, |known| known.max(until)));
        promise.last_until = promise.last_until.max(Some(until));
        Some(Promised { token, valid_for, remaining })
    }

    /// How long callers may still rely on what they were told.
    pub(crate) fn promised_for(&self) -> Duration {
        let until = self.lock_promise().last_until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(clock::now()))
    }

    /// Takes a guard on each term and drops it when work has to stop and every promise is
    /// over. Ends with the election.
    pub(crate) async fn keep_promises(&self) {
        let Some(election) = &self.election else { return };
        while let Ok(term) = election.wait_for_leadership().await {
            // Held to the end of this turn, beside the guard of a promise made before it was here.
            term.wait_until_stopping().await;
            let until = self.lock_promise().until.take();
            if let Some(until) = until {
                tokio::select! {
                    () = tokio::time::sleep_until(until.into()) => {}
                    () = term.wait_until_over() => {}
                }
            }
            self.lock_promise().guard = None;
        }
    }

    fn lock_promise(&self) -> MutexGuard<'_, Promise> {
        self.promise.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody waits longer than this for whoever was told something a moment ago: a lease of an hour
/// does not make a hand-over take minutes. Callers ask much more often.
const PROMISE_MAX: Duration = Duration::from_secs(15);

/// The longest promise: work that is told to stop must be gone when it would be cut off, so whoever
/// trusts an answer gets four fifths of that time and the guard the rest.
pub(crate) fn promise_max(timing: &Timing) -> Duration {
    let ends_at = Moment::NEVER;
    let cut_off_before_end = timing.kill_at(ends_at).until(ends_at);
    (timing.stop_grace().saturating_sub(cut_off_before_end) * 4 / 5).min(PROMISE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::backend::{Backend, Calling, Subscription};
    use tenure::{MemoryBackend, Tenure};
    use tenure_core::protocol::{Call, Request};
    use tenure_core::{Resource, StoreError, TimingSettings};
    use tokio::sync::oneshot;

    /// A store whose answer to one look is on its way for long.
    #[derive(Debug)]
    struct Late {
        store: MemoryBackend,
        /// What the next look waits for: its answer comes then, or never.
        held: Mutex<Option<oneshot::Receiver<Result<(), StoreError>>>>,
    }

    impl Late {
        fn hold(&self) -> oneshot::Sender<Result<(), StoreError>> {
            let (release, held) = oneshot::channel();
            *self.held.lock().unwrap() = Some(held);
            release
        }
    }

    impl Backend for Late {
        fn call(&self, call: Call) -> Calling {
            let is_look = matches!(call.request, Request::Observe { .. });
            let held = self.held.lock().unwrap().take_if(|_| is_look);
            let calling = self.store.call(call);
            Box::pin(async move {
                let answer = calling.await;
                match held {
                    Some(held) => held.await.unwrap().and(answer),
                    None => answer,
                }
            })
        }

        fn subscribe(&self, resource: &Resource) -> Subscription {
            self.store.subscribe(resource)
        }

        fn connection(&self) -> watch::Receiver<Connection> {
            self.store.connection()
        }

        fn describe(&self) -> String {
            "a store that is late".to_owned()
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_look_that_is_answered_late_does_not_take_the_place_of_a_later_one() {
        const NAME: &str = "job";
        for came_late in [Ok(()), Err(StoreError::timed_out(Duration::from_secs(5)))] {
            let store = MemoryBackend::new();
            let late = Arc::new(Late { store: store.clone(), held: Mutex::default() });
            let client = |name: &str, backend| {
                Tenure::builder().instance(name).backend(backend).fresh_store(true).connect()
            };
            let ada = client("ada", Arc::new(store.clone()) as Arc<dyn Backend>).await.unwrap();
            let bob = client("bob", Arc::new(store) as Arc<dyn Backend>).await.unwrap();
            let eve = client("eve", Arc::clone(&late) as Arc<dyn Backend>).await.unwrap();
            let on_ada = ada.election(NAME).start().await.unwrap();
            let term = on_ada.wait_for_leadership().await.unwrap();
            let watched = Arc::new(Watched::new(eve.observe(NAME).unwrap(), None));
            watched.look().await;
            let leader = || watched.seen().leader().unwrap().id.name().to_owned();
            assert_eq!(leader(), "ada");

            let release = late.hold();
            let first = tokio::spawn({
                let watched = Arc::clone(&watched);
                async move { watched.look().await }
            });
            testkit::wait_until("the look is under way", testkit::GENEROUS, || {
                late.held.lock().unwrap().is_none()
            });
            drop(term);
            ada.shutdown().await;
            let standby = bob.election(NAME).start().await.unwrap();
            let _next = standby.wait_for_leadership().await.unwrap();
            watched.look().await;
            assert_eq!(leader(), "bob");
            release.send(came_late).unwrap();
            first.await.unwrap();
            assert_eq!(leader(), "bob", "as the later look showed");
            assert_eq!(watched.seen().error, None, "the store answered since");
        }
    }

    #[test]
    fn a_promise_ends_before_work_is_cut_off() {
        for (ttl, expected) in [(10_000, 2_240), (2_000, 400)] {
            let ttl = Duration::from_millis(ttl);
            let timing = Timing::new(&TimingSettings { ttl, ..TimingSettings::default() }).unwrap();
            assert_eq!(promise_max(&timing), Duration::from_millis(expected));
        }
    }

    #[test]
    fn nobody_is_promised_more_than_a_hand_over_can_wait_for() {
        let of = |ttl: u64| {
            let ttl = Duration::from_secs(ttl);
            promise_max(&Timing::new(&TimingSettings { ttl, ..TimingSettings::default() }).unwrap())
        };
        assert_eq!(of(10), Duration::from_millis(2240));
        assert_eq!([of(3600), of(86_400)], [Duration::from_secs(15); 2]);
    }
}
