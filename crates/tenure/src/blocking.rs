//! The same elections for programs without a runtime: calls that wait, on plain threads.
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

/// Waits for a future on the current thread. Everything in this crate can be awaited like this.
///
/// Inside an async function this would hold up its whole thread: use `.await` there.
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

/// A client whose calls wait; see [`crate::Tenure`].
///
/// Leaderships are released when the last handle is dropped, in the background; call
/// [`shutdown`](Self::shutdown) before the program ends, to be certain.
#[derive(Clone, Debug)]
pub struct Tenure {
    inner: crate::Tenure,
}

impl Tenure {
    /// Connects to the store at `address`; see [`crate::Tenure::connect`].
    pub fn connect(address: &str) -> Result<Self, Error> {
        Self::new(crate::Tenure::builder().store(address))
    }

    /// A client with settings.
    pub fn new(builder: TenureBuilder) -> Result<Self, Error> {
        wait(builder.connect()).map(Tenure::from)
    }

    /// Who this instance is.
    pub fn id(&self) -> &InstanceId {
        self.inner.id()
    }

    /// The client itself, for what is awaited: `wait(tenure.client().…)`.
    pub fn client(&self) -> &crate::Tenure {
        &self.inner
    }

    /// The settings of an election, to be [started](Self::start).
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

    /// The settings of a job, to be [run](Self::run_job).
    pub fn job(&self, name: &str) -> crate::Job {
        self.inner.job(name)
    }

    /// Runs `work` on this thread if it is its turn; see [`crate::Job::run`]. A thread cannot be
    /// cut off: `work` must look at [`Term::is_stopping`] often.
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

    /// Looks at the election about `name` without taking part in it; see [`crate::Observer`].
    pub fn observe(&self, name: &str) -> Result<Observer, Error> {
        self.inner.observe(name).map(|inner| Observer { inner })
    }

    /// Stops all elections of this client and waits until the store was told.
    pub fn shutdown(&self) {
        wait(self.inner.shutdown());
    }
}

impl From<crate::Tenure> for Tenure {
    fn from(inner: crate::Tenure) -> Self {
        Tenure { inner }
    }
}

/// A running election whose calls wait; see [`crate::Election`].
#[derive(Clone, Debug)]
pub struct Election {
    inner: crate::Election,
}

impl Election {
    /// What is led.
    pub fn resource(&self) -> &Resource {
        self.inner.resource()
    }

    /// Whether this instance leads now and may begin work. No I/O.
    pub fn is_leader(&self) -> bool {
        self.inner.is_leader()
    }

    /// This instance's state at this moment.
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

    /// A guard on the term this instance holds.
    pub fn term(&self) -> Option<Term> {
        self.inner.term().map(|inner| Term { inner })
    }

    /// Waits until this instance leads. Fails once the election was stopped.
    pub fn wait_for_leadership(&self) -> Result<Term, Error> {
        wait(self.inner.wait_for_leadership()).map(|inner| Term { inner })
    }

    /// Waits until this instance leads, for at most `limit`.
    pub fn wait_for_leadership_within(&self, limit: Duration) -> Result<Term, Error> {
        wait(self.inner.wait_for_leadership_within(limit)).map(|inner| Term { inner })
    }

    /// Runs `work` on this thread whenever this instance leads, once per term; see
    /// [`crate::Election::run_while_leader`]. A thread cannot be cut off: `work` must look at
    /// [`Term::is_stopping`] often, and what it does after its grace is told as an overrun.
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

    /// Whether this instance may lead.
    pub fn set_ready(&self, ready: bool) {
        self.inner.set_ready(ready);
    }

    /// The work made progress.
    pub fn beat(&self) {
        self.inner.beat();
    }

    /// Takes no new term until [`contend_again`](Self::contend_again). A running one goes on.
    pub fn stand_back(&self) {
        self.inner.stand_back();
    }

    /// Ends [`stand_back`](Self::stand_back).
    pub fn contend_again(&self) {
        self.inner.contend_again();
    }

    /// Gives the term up and waits until the store was told.
    pub fn resign(&self) {
        wait(self.inner.resign());
    }

    /// Gives the term to the member called `to`.
    pub fn hand_over(&self, to: &str) -> Result<InstanceId, Error> {
        wait(self.inner.hand_over(to))
    }

    /// Hands over to the best member that is ready.
    pub fn hand_over_to_best(&self) -> Result<InstanceId, Error> {
        wait(self.inner.hand_over_to_best())
    }

    /// Leaves for good, and waits until work has ended and the store was told.
    pub fn stop(&self) {
        wait(self.inner.stop());
    }
}

/// One election seen from outside; see [`crate::Observer`].
#[derive(Clone, Debug)]
pub struct Observer {
    inner: crate::Observer,
}

impl Observer {
    /// Looks once.
    pub fn look(&self) -> Result<Observation, Error> {
        wait(self.inner.look())
    }

    /// Who leads now, asked of the store.
    pub fn leader(&self) -> Result<Leadership, Error> {
        wait(self.inner.leader())
    }

    /// Who takes part, asked of the store.
    pub fn members(&self) -> Result<Vec<Member>, Error> {
        wait(self.inner.members())
    }

    /// The latest `count` entries of the history, newest first.
    pub fn history(&self, count: usize) -> Result<Vec<HistoryEntry>, Error> {
        wait(self.inner.history(count))
    }

    /// What changes, as an endless iterator: the state at first, then the state after each change.
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

    /// Grants no new term to anybody for as long as `lasts`. A running term goes on.
    pub fn pause(&self, lasts: Duration) -> Result<(), Error> {
        wait(self.inner.pause(lasts))
    }

    /// Ends a pause.
    pub fn resume(&self) -> Result<(), Error> {
        wait(self.inner.resume())
    }

    /// Ends whatever term there is without its holder; see [`crate::Observer::clear`].
    pub fn clear(&self, reason: &str) -> Result<(), Error> {
        wait(self.inner.clear(reason))
    }

    /// Like [`clear`](Self::clear), although the leader is alive.
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
    /// The number to send along with every write to the protected resource.
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

    /// Whether work has to stop. To be looked at often.
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

    /// Whether at least `least` is left of the term, after one renewal if need be.
    #[must_use]
    pub fn ensure(&self, least: Duration) -> bool {
        wait(self.inner.ensure(least))
    }

    /// Renews now; whether that came through.
    #[must_use]
    pub fn renew(&self) -> bool {
        wait(self.inner.renew())
    }

    /// Gives the term up and waits until the store was told.
    pub fn resign(self) {
        wait(self.inner.resign());
    }

    /// Gives the term to the member called `to`.
    pub fn hand_over(self, to: &str) -> Result<InstanceId, Error> {
        wait(self.inner.hand_over(to))
    }
}
