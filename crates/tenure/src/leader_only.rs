//! Functions that run only on the leader.
//!
//! `#[leader_only("name")]` on an `async fn` makes it check first whether this instance leads. It
//! asks the first argument, or the one marked `#[leader]`, which must be a `Tenure` or an
//! `Election` (or a reference to one). An argument marked `#[term]` receives the guard of the term;
//! the caller does not pass it. The function then returns `Result<Option<T>, tenure::Error>`:
//!
//! - `Ok(Some(value))`: it ran to its end on this instance;
//! - `Ok(None)`: this instance does not lead, so it did not run;
//! - `Err(NotLeading)`: the term ended while it ran; it was dropped half-way, or ended too late;
//! - any other `Err`: it is not known who leads, so it did not run.
//!
//! ```
//! use tenure::{Tenure, Term, leader_only};
//!
//! #[leader_only("nightly-report")]
//! async fn report(tenure: &Tenure, day: u32, #[term] term: Term) -> std::io::Result<String> {
//!     Ok(format!("day {day} under token {}", term.token()))
//! }
//! # use std::sync::Arc;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! # let store = Arc::new(tenure::MemoryBackend::new());
//! # let tenure = Tenure::builder().backend(store).connect().await?;
//! match report(&tenure, 7).await? {
//!     Some(outcome) => println!("{}", outcome?),
//!     None => println!("another instance does it"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! If you call the function often, start the election once, so that one instance keeps leading.
//! Without that, each call tries to lead for as long as the function runs, which suits rare jobs.
//!
//! Mistakes do not compile. No argument to ask:
//! ```compile_fail
//! #[tenure::leader_only("nightly-report")]
//! async fn report() {}
//! ```
//! An argument that is neither a `Tenure` nor an `Election`:
//! ```compile_fail
//! #[tenure::leader_only("nightly-report")]
//! async fn report(day: &str) {}
//! ```
//! A function that nothing could stop when the term ends:
//! ```compile_fail
//! #[tenure::leader_only("nightly-report")]
//! fn report(tenure: &tenure::Tenure) {}
//! ```
//! No election name:
//! ```compile_fail
//! #[tenure::leader_only]
//! async fn report(tenure: &tenure::Tenure) {}
//! ```
//! A guard that is only borrowed:
//! ```compile_fail
//! #[tenure::leader_only("nightly-report")]
//! async fn report(tenure: &tenure::Tenure, #[term] term: &tenure::Term) {}
//! ```

use std::future::Future;

use crate::term::Phase;
use crate::{Election, Error, Tenure, Term};

impl Tenure {
    /// Runs `work` if this instance leads `name`, and returns `None` without running it if not.
    ///
    /// If this client takes part in the election `name`, that election decides. If not, it tries
    /// once and leads for as long as `work` runs. Work that is still running at the end of its
    /// grace is dropped, as in [`Election::run_if_leader`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{MemoryBackend, Tenure};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let tenure = Tenure::builder().backend(Arc::new(MemoryBackend::new())).connect().await?;
    /// let rows = tenure.run_if_leader("nightly-report", |_term| async { 42 }).await?;
    /// assert_eq!(rows, Some(42));
    /// # Ok::<(), tenure::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run_if_leader<F, Fut, T>(&self, name: &str, work: F) -> Result<Option<T>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = T>,
    {
        if let Some(state) = self.client().election_of(name).filter(|state| !state.has_stopped()) {
            return match Term::enter(&state) {
                Some(term) => run_under(&term, work).await,
                None => Ok(None),
            };
        }
        let Some(term) = self.try_acquire(name).await? else { return Ok(None) };
        let outcome = run_under(&term, work).await;
        term.resign().await;
        outcome
    }
}

impl Election {
    /// Runs `work` if this instance leads now, and returns `None` without running it if not.
    ///
    /// [`Term::wait_until_stopping`] and [`Term::cancellation`] tell the work when the term ends.
    /// If it is still running at the end of its grace, its future is dropped and this fails with
    /// [`Error::NotLeading`]: part of the work may have been done. The same error is returned for
    /// work that blocks its thread and ends after the lease.
    pub async fn run_if_leader<F, Fut, T>(&self, work: F) -> Result<Option<T>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = T>,
    {
        match self.term() {
            Some(term) => run_under(&term, work).await,
            None => Ok(None),
        }
    }
}

async fn run_under<F, Fut, T>(held: &Term, work: F) -> Result<Option<T>, Error>
where
    F: FnOnce(Term) -> Fut,
    Fut: Future<Output = T>,
{
    if held.is_stopping() {
        return Ok(None);
    }
    let returned = tokio::select! {
        biased;
        returned = work(held.double()) => Some(returned),
        () = held.state().reaches(Phase::CutOff) => None,
    };
    // What ended after the lease may have been done by two.
    match returned.filter(|_| held.is_valid()) {
        Some(returned) => Ok(Some(returned)),
        None => Err(Error::NotLeading { name: held.resource().name().to_owned() }),
    }
}

/// What `#[leader_only]` asks: a client or an election.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Source(Asked);

#[derive(Clone, Debug)]
enum Asked {
    Client(Tenure),
    Election(Election),
}

/// Something that knows whether this instance leads: a [`Tenure`] or an [`Election`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not know who leads",
    label = "expected `&Tenure` or `&Election`",
    note = "let the argument that knows come first, or mark it with `#[leader]`"
)]
pub trait KnowsLeader {
    #[doc(hidden)]
    fn source(&self) -> Source;
}

impl KnowsLeader for Tenure {
    fn source(&self) -> Source {
        Source(Asked::Client(self.clone()))
    }
}

impl KnowsLeader for Election {
    fn source(&self) -> Source {
        Source(Asked::Election(self.clone()))
    }
}

impl<T: KnowsLeader + ?Sized> KnowsLeader for &T {
    fn source(&self) -> Source {
        (**self).source()
    }
}

#[doc(hidden)]
pub fn source(argument: &impl KnowsLeader) -> Source {
    argument.source()
}

#[doc(hidden)]
pub async fn run<F, Fut, T>(source: Source, name: &str, work: F) -> Result<Option<T>, Error>
where
    F: FnOnce(Term) -> Fut,
    Fut: Future<Output = T>,
{
    match source.0 {
        Asked::Client(tenure) => tenure.run_if_leader(name, work).await,
        Asked::Election(election) if election.resource().name() == name => {
            election.run_if_leader(work).await
        }
        Asked::Election(election) => {
            let given = election.resource().name();
            let why = format!("the function is for {name:?}, the election about {given:?}");
            Err(Error::Setting { setting: "leader_only", why })
        }
    }
}
