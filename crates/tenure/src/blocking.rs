//! The same elections for programs without an async runtime: blocking calls on plain threads.
//!
//! ```
//! use tenure::blocking::Tenure;
//! # fn main() -> Result<(), tenure::Error> {
//! # let address = std::sync::Arc::new(tenure::MemoryBackend::new());
//! # let builder = tenure::Tenure::builder().backend(address);
//! let tenure = Tenure::new(builder)?;
//! let election = tenure.start(tenure.election("nightly-report"))?;
//! let rows = election.run_while_leader(|term| {
//!     let mut rows = 0;
//!     while rows < 3 && !term.is_stopping() {
//!         rows += 1; // Each write carries term.token().
//!     }
//!     rows
//! })?;
//! assert_eq!(rows, 3);
//! # Ok(()) }
//! ```

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tenure_core::protocol::{HistoryEntry, Member};
use tenure_core::{Event, InstanceId, Reason, Resource, Token};

use crate::election::words_of;
use crate::{
    AskOutcome, ElectionBuilder, Error, Leadership, ListenerHandle, Observation, OnceOutcome,
    Status, TenureBuilder, Tick,
};

/// Blocks the current thread until a future is done. Everything in this crate can be awaited like
/// this.
///
/// Do not call this in an async function, where it would block the whole thread: use `.await`
/// there.
pub fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A client whose calls block; see [`crate::Tenure`].
///
/// When the last handle is dropped, leaderships are released in the background. To be certain that
/// they are, call [`shutdown`](Self::shutdown) before the program ends.
#[derive(Clone, Debug)]
pub struct Tenure {
    inner: crate::Tenure,
}

impl Tenure {
    /// Connects to the store at `address`; see [`crate::Tenure::connect`].
    pub fn connect(address: &str) -> Result<Self, Error> {
        Self::new(crate::Tenure::builder().store(address))
    }

    /// Connects with the settings of `builder`.
    pub fn new(builder: TenureBuilder) -> Result<Self, Error> {
        wait(builder.connect()).map(Tenure::from)
    }

    /// The id of this instance.
    pub fn id(&self) -> &InstanceId {
        self.inner.id()
    }

    /// The async client, for everything that this one does not offer: `wait(tenure.client().…)`.
    pub fn client(&self) -> &crate::Tenure {
        &self.inner
    }

    /// The settings of an election; [`start`](Self::start) starts it.
    pub fn election(&self, name: &str) -> ElectionBuilder {
        self.inner.election(name)
    }

    /// Starts to take part in an election.
    pub fn start(&self, election: ElectionBuilder) -> Result<Election, Error> {
        wait(election.start()).map(|inner| Election { inner })
    }

    /// Tries once to lead `name`; see [`ElectionBuilder::try_acquire`].
    pub fn try_acquire(&self, name: &str) -> Result<Option<Term>, Error> {
        Ok(wait(self.inner.try_acquire(name))?.map(|inner| Term { inner }))
    }

    /// The lock called `name`; see [`crate::Tenure::lock`].
    pub fn lock(&self, name: &str) -> Lock {
        Lock { inner: self.inner.lock(name) }
    }

    /// Whether this instance leads `name` now. No I/O.
    pub fn is_leader(&self, name: &str) -> bool {
        self.inner.is_leader(name)
    }

    /// Runs `work` once per `tick` across all instances; see [`crate::Tenure::once`].
    pub fn once<F, T, E>(
        &self,
        name: &str,
        tick: Tick,
        work: F,
    ) -> Result<OnceOutcome<Result<T, E>>, Error>
    where
        F: FnOnce(&Term) -> Result<T, E>,
        E: Display,
    {
        self.run_job(self.job(name).tick(tick), work)
    }

    /// The settings of a job; [`run_job`](Self::run_job) runs it.
    pub fn job(&self, name: &str) -> crate::Job {
        self.inner.job(name)
    }

    /// Runs `work` on this thread if this instance is to run the job now; see [`crate::Job::run`].
    /// A thread cannot be interrupted: `work` must check [`Term::is_stopping`] often.
    pub fn run_job<F, T, E>(
        &self,
        job: crate::Job,
        work: F,
    ) -> Result<OnceOutcome<Result<T, E>>, Error>
    where
        F: FnOnce(&Term) -> Result<T, E>,
        E: Display,
    {
        wait(job.run(|inner| async { work(&Term { inner }) }))
    }

    /// An observer of the election `name`, which does not take part in it; see [`crate::Observer`].
    pub fn observe(&self, name: &str) -> Result<Observer, Error> {
        self.inner.observe(name).map(|inner| Observer { inner })
    }

    /// Stops all elections of this client and waits until the store has been told.
    pub fn shutdown(&self) {
        wait(self.inner.shutdown());
    }
}

impl From<crate::Tenure> for Tenure {
    fn from(inner: crate::Tenure) -> Self {
        Tenure { inner }
    }
}

/// A running election whose calls block; see [`crate::Election`].
#[derive(Clone, Debug)]
pub struct Election {
    inner: crate::Election,
}

impl Election {
    /// The resource of this election.
    pub fn resource(&self) -> &Resource {
        self.inner.resource()
    }

    /// Whether this instance leads now and may begin work. No I/O.
    pub fn is_leader(&self) -> bool {
        self.inner.is_leader()
    }

    /// The current state of this instance.
    #[must_use]
    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// Calls `listener` for each event from now on; see [`crate::Election::on_event`].
    pub fn on_event<F>(&self, listener: F) -> Result<ListenerHandle, Error>
    where
        F: FnMut(&Event) + Send + 'static,
    {
        self.inner.on_event(listener)
    }

    /// A guard on the current term, if this instance leads and work may begin.
    pub fn term(&self) -> Option<Term> {
        self.inner.term().map(|inner| Term { inner })
    }

    /// Waits until this instance leads. Fails if the election has been stopped.
    pub fn wait_for_leadership(&self) -> Result<Term, Error> {
        wait(self.inner.wait_for_leadership()).map(|inner| Term { inner })
    }

    /// Waits until this instance leads, for at most `limit`.
    pub fn wait_for_leadership_within(&self, limit: Duration) -> Result<Term, Error> {
        wait(self.inner.wait_for_leadership_within(limit)).map(|inner| Term { inner })
    }

    /// Runs `work` on this thread whenever this instance leads, once per term; see
    /// [`crate::Election::run_while_leader`]. A thread cannot be interrupted: `work` must check
    /// [`Term::is_stopping`] often, and work that goes on after its grace is reported as an
    /// overrun.
    pub fn run_while_leader<F, T>(&self, mut work: F) -> Result<T, Error>
    where
        F: FnMut(&Term) -> T,
    {
        let mut failures = 0;
        loop {
            let term = self.wait_for_leadership()?;
            let returned = catch_unwind(AssertUnwindSafe(|| work(&term)));
            let interrupted = term.is_stopping();
            drop(term);
            match returned {
                Ok(value) if !interrupted => {
                    self.stop();
                    return Ok(value);
                }
                Ok(_) => failures = 0,
                Err(panic) => {
                    let why = words_of(&*panic);
                    wait(self.inner.hold_back_after_panic(&why, failures));
                    failures += 1;
                }
            }
        }
    }

    /// Sets whether this instance may lead.
    pub fn set_ready(&self, ready: bool) {
        self.inner.set_ready(ready);
    }

    /// Reports that the work made progress; see [`ElectionBuilder::require_beat`].
    pub fn beat(&self) {
        self.inner.beat();
    }

    /// Takes no new term until [`contend_again`](Self::contend_again). A running term goes on.
    pub fn stand_back(&self) {
        self.inner.stand_back();
    }

    /// Ends [`stand_back`](Self::stand_back).
    pub fn contend_again(&self) {
        self.inner.contend_again();
    }

    /// Stops the work, releases the term and waits until the store has been told.
    pub fn resign(&self) {
        wait(self.inner.resign());
    }

    /// Hands over to the member called `to`, and waits until it leads.
    pub fn hand_over(&self, to: &str) -> Result<InstanceId, Error> {
        wait(self.inner.hand_over(to))
    }

    /// Hands over to the best member that is ready, and waits until it leads.
    pub fn hand_over_to_best(&self) -> Result<InstanceId, Error> {
        wait(self.inner.hand_over_to_best())
    }

    /// Leaves the election for good. Waits until the work has ended and the store has been told.
    pub fn stop(&self) {
        wait(self.inner.stop());
    }
}

/// An observer of one election; see [`crate::Observer`].
#[derive(Clone, Debug)]
pub struct Observer {
    inner: crate::Observer,
}

impl Observer {
    /// Reads the current state from the store.
    pub fn look(&self) -> Result<Observation, Error> {
        wait(self.inner.look())
    }

    /// Asks the store who leads now.
    pub fn leader(&self) -> Result<Leadership, Error> {
        wait(self.inner.leader())
    }

    /// Asks the store who takes part.
    pub fn members(&self) -> Result<Vec<Member>, Error> {
        wait(self.inner.members())
    }

    /// The latest `count` entries of the history, newest first.
    pub fn history(&self, count: usize) -> Result<Vec<HistoryEntry>, Error> {
        wait(self.inner.history(count))
    }

    /// An endless iterator over changes: first the current state, then the state after each change.
    pub fn changes(&self) -> Result<impl Iterator<Item = Result<Observation, Error>>, Error> {
        let mut changes = wait(self.inner.changes())?;
        Ok(std::iter::from_fn(move || Some(wait(changes.next()))))
    }

    /// Asks the leader to step down, and waits for the outcome.
    pub fn ask_to_resign(&self) -> Result<AskOutcome, Error> {
        wait(self.inner.ask_to_resign())
    }

    /// Asks the leader to hand over to `to`, and waits for the outcome.
    pub fn ask_to_hand_over(&self, to: &str) -> Result<AskOutcome, Error> {
        wait(self.inner.ask_to_hand_over(to))
    }

    /// Lets no instance begin a new term for as long as `lasts`. A running term goes on.
    pub fn pause(&self, lasts: Duration) -> Result<(), Error> {
        wait(self.inner.pause(lasts))
    }

    /// Ends a pause.
    pub fn resume(&self) -> Result<(), Error> {
        wait(self.inner.resume())
    }

    /// Ends the current term without its holder, for emergencies; see [`crate::Observer::clear`].
    pub fn clear(&self, reason: &str) -> Result<(), Error> {
        wait(self.inner.clear(reason))
    }

    /// Like [`clear`](Self::clear), even if the leader is alive.
    pub fn force_clear(&self, reason: &str) -> Result<(), Error> {
        wait(self.inner.force_clear(reason))
    }
}

/// The guard of a term; see [`crate::Term`].
#[derive(Debug)]
pub struct Term {
    inner: crate::Term,
}

impl Term {
    /// The number of the term. Send it with every write to the protected resource.
    pub fn token(&self) -> Token {
        self.inner.token()
    }

    /// How long the term may still be acted on unless it is renewed.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether the term may be acted on now. No I/O.
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// Whether work has to stop. Check this often.
    pub fn is_stopping(&self) -> bool {
        self.inner.is_stopping()
    }

    /// Why work has to stop, once it has to.
    pub fn stop_reason(&self) -> Option<Reason> {
        self.inner.stop_reason()
    }

    /// Waits until work has to stop.
    pub fn wait_until_stopping(&self) {
        wait(self.inner.wait_until_stopping());
    }

    /// Returns whether at least `least` is left of the term. Renews the lease once if it is not.
    #[must_use]
    pub fn ensure(&self, least: Duration) -> bool {
        wait(self.inner.ensure(least))
    }

    /// Renews the lease now. Returns whether that succeeded.
    #[must_use]
    pub fn renew(&self) -> bool {
        wait(self.inner.renew())
    }

    /// Releases the term and waits until the store has been told.
    pub fn resign(self) {
        wait(self.inner.resign());
    }

    /// Hands over to the member called `to`, and waits until it leads.
    pub fn hand_over(self, to: &str) -> Result<InstanceId, Error> {
        wait(self.inner.hand_over(to))
    }
}

/// A lock whose calls block; see [`crate::Lock`].
#[derive(Clone, Debug)]
#[must_use = "nothing is held before `try_acquire` or `acquire`"]
pub struct Lock {
    inner: crate::Lock,
}

impl Lock {
    /// Tries once; see [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<LockGuard>, Error> {
        Ok(wait(self.inner.try_acquire())?.map(|inner| LockGuard { inner }))
    }

    /// Waits for as long as it takes.
    pub fn acquire(&self) -> Result<LockGuard, Error> {
        wait(self.inner.acquire()).map(|inner| LockGuard { inner })
    }

    /// Waits for at most `limit`.
    pub fn acquire_within(&self, limit: Duration) -> Result<LockGuard, Error> {
        wait(self.inner.acquire_within(limit)).map(|inner| LockGuard { inner })
    }
}

impl From<crate::Lock> for Lock {
    fn from(inner: crate::Lock) -> Self {
        Lock { inner }
    }
}

/// A lock that is held; see [`crate::LockGuard`].
#[derive(Debug)]
pub struct LockGuard {
    inner: crate::LockGuard,
}

impl LockGuard {
    /// The number of this hold. Send it with every write.
    pub fn token(&self) -> Token {
        self.inner.token()
    }

    /// Whether it is held now and may be acted on. No I/O: check this often.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// How long it may still be acted on unless it is renewed.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Waits until the lock is not to be acted on any more; see
    /// [`crate::LockGuard::wait_until_lost`].
    pub fn wait_until_lost(&self) {
        wait(self.inner.wait_until_lost());
    }

    /// Why it was lost, once it was.
    pub fn lost_because(&self) -> Option<Reason> {
        self.inner.lost_because()
    }

    /// Returns whether at least `least` is left of the lease. Renews it once if it is not.
    #[must_use]
    pub fn ensure(&self, least: Duration) -> bool {
        wait(self.inner.ensure(least))
    }

    /// Releases the lock and waits until the store has been told; fails if it was released before,
    /// or lost.
    pub fn release(&mut self) -> Result<(), Error> {
        wait(self.inner.release())
    }
}
