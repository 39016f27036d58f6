//! A lock with a lease: an election in which whoever leads does one thing, and leaves.
//!
//! Nothing here decides who holds it: a lock asks for a term as everybody does, so that it works on
//! every store and in every mode of an election.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Reason, Resource, Timing, Token};

use crate::client::Client;
use crate::config::ElectionConfig;
use crate::election::Attempt;
use crate::{Election, ElectionBuilder, Error, OnLoss, Tenure, Term};

impl Tenure {
    /// The lock called `name`. Nothing is asked of the store before it is tried or waited for.
    ///
    /// It is the election of the same name: a lock and an instance that leads exclude each other,
    /// and `tenure who`, `status` and `clear` work on it.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use tenure::{MemoryBackend, Tenure};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let tenure = Tenure::builder().backend(Arc::new(MemoryBackend::new())).connect().await?;
    /// let mut held = tenure.lock("invoices").acquire_within(Duration::from_secs(5)).await?;
    /// println!("writing under token {}", held.token());
    /// held.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(Arc::clone(self.client()), name)
    }
}

/// A lock by name, and its settings. It can be tried and waited for any number of times.
///
/// Its holder is the client, not a task or thread: who holds it already is refused with
/// [`Error::AlreadyHeld`] instead of waiting for itself. Who waits longest is not served first.
#[derive(Clone, Debug)]
#[must_use = "nothing is held before `try_acquire` or `acquire`"]
pub struct Lock {
    client: Arc<Client>,
    name: String,
    config: ElectionConfig,
}

impl Lock {
    fn new(client: Arc<Client>, name: &str) -> Self {
        let config = ElectionConfig {
            // Nobody beats, hands over by itself or wants the process ended for a lock: its holder
            // is told.
            require_beat: None,
            failback: None,
            on_loss: OnLoss::Recontend,
            ..client.election_config(name)
        };
        Lock { client, name: name.to_owned(), config }
    }

    /// How long the lease lasts without renewal; at least 300 ms.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl;
        self
    }

    /// How long nobody gets the lock after its holder crashed, for resources that cannot check
    /// tokens.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.config.lock_delay = delay;
        self
    }

    /// The whole key in the store, instead of prefix and name.
    pub fn key(mut self, key: &str) -> Self {
        self.config.key = Some(key.to_owned());
        self
    }

    /// Tries once. `None` if another instance holds it, or if nobody may have it at the moment.
    ///
    /// Fails with [`Error::AlreadyHeld`] if this client holds it or waits for it, and if the store
    /// does not answer.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, Error> {
        match self.election().attempt().await? {
            Attempt::Granted(term) => Ok(Some(LockGuard::new(term))),
            Attempt::TakesPart => Err(self.already_held()),
            // Also where the store names this client: then an earlier release did not reach it.
            Attempt::Denied(_) => Ok(None),
        }
    }

    /// Waits for as long as it takes, also for a store that does not answer. Dropping the future
    /// ends the wait.
    ///
    /// Fails with [`Error::AlreadyHeld`] if this client holds it or waits for it.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        let election = self.take_part().await?;
        let term = election.wait_for_leadership().await?;
        Ok(LockGuard::new(term.owning(election)))
    }

    /// Like [`acquire`](Self::acquire), but fails after `limit` with [`Error::TimedOut`], which has
    /// the reason why the lock was not granted.
    pub async fn acquire_within(&self, limit: Duration) -> Result<LockGuard, Error> {
        let clock = &self.client.clock;
        let given_up_at = clock.now() + limit;
        let granted = async {
            // An earlier hold of this client may have to be released first.
            let election = self.client.within(limit, "release", self.take_part()).await?;
            let left = clock.now().until(given_up_at);
            let term = election.wait_for_leadership_within(left).await?;
            Ok(LockGuard::new(term.owning(election)))
        };
        granted.await.map_err(|error| match error {
            Error::TimedOut { reason, .. } => {
                Error::TimedOut { what: "the grant of the lock", waited: limit, reason }
            }
            other => other,
        })
    }

    async fn take_part(&self) -> Result<Election, Error> {
        self.election().start().await.map_err(|error| match error {
            Error::AlreadyTakingPart { .. } => self.already_held(),
            other => other,
        })
    }

    fn election(&self) -> ElectionBuilder {
        ElectionBuilder::with_config(Arc::clone(&self.client), &self.name, self.config.clone())
    }

    fn already_held(&self) -> Error {
        Error::AlreadyHeld { name: self.name.clone() }
    }
}

/// A lock that is held. Its lease is renewed for as long as this exists.
///
/// It is released by [`release`](Self::release), or in the background when this is dropped. A
/// lease that cannot be renewed is lost: [`wait_until_lost`](Self::wait_until_lost) returns before
/// anybody else can get it. **Only a [`token`](Self::token) that the resource itself checks keeps a
/// late write out.**
#[derive(Debug)]
pub struct LockGuard {
    resource: Resource,
    token: Token,
    timing: Timing,
    /// None once it was released.
    term: Option<Term>,
}

impl LockGuard {
    fn new(term: Term) -> Self {
        let (resource, timing) = (term.resource().clone(), term.timing());
        LockGuard { resource, token: term.token(), timing, term: Some(term) }
    }

    /// The number of this hold: a later one has a higher number, whoever holds. Send it with every
    /// write.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether it is held now and may be acted on. No I/O.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.term.as_ref().is_some_and(|term| !term.is_stopping())
    }

    /// How long it may still be acted on unless it is renewed; zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.term.as_ref().map_or(Duration::ZERO, Term::remaining)
    }

    /// The time settings of its lease: ttl, renewal, grace.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Waits until the lock is not to be acted on any more: its lease runs out, or an operator
    /// ended it. Returns at once if it was released.
    pub async fn wait_until_lost(&self) {
        if let Some(term) = &self.term {
            term.wait_until_stopping().await;
        }
    }

    /// Why it was lost, once it was.
    pub fn lost_because(&self) -> Option<Reason> {
        self.term.as_ref().and_then(Term::stop_reason)
    }

    /// Returns whether at least `least` is left of the lease. Renews it once if it is not. If
    /// `false`, do not begin anything that takes this long.
    #[must_use]
    pub async fn ensure(&self, least: Duration) -> bool {
        match &self.term {
            Some(term) => term.ensure(least).await,
            None => false,
        }
    }

    /// Releases the lock, and waits until the store has confirmed it, if it answers.
    ///
    /// Fails with [`Error::NotHeld`] if it was released before, or lost: then somebody else may
    /// have worked on the resource since.
    pub async fn release(&mut self) -> Result<(), Error> {
        let not_held = || Error::NotHeld { name: self.resource.name().to_owned() };
        let term = self.term.take().ok_or_else(not_held)?;
        if !term.is_of_this_process() {
            return Err(Error::Forked);
        }
        let was_held = !term.is_stopping();
        term.resign().await;
        if was_held { Ok(()) } else { Err(not_held()) }
    }
}
