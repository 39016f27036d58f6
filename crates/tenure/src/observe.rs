//! Observing: who leads, who takes part and what happened, without taking part.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::protocol::{
    Answer, HistoryEntry, Member, Outcome, Request, ServerTime, View, Wish,
};
use tenure_core::{InstanceId, Resource, SeenLeader, StoreError};

use crate::backend::Subscription;
use crate::client::Client;
use crate::{Error, Tenure};

/// The longest time between two looks of somebody who waits for a change.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How soon to look again after a look that failed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The store ends a lease on a whole millisecond: looking at the very one finds it still there.
const EXPIRY_GRAIN: Duration = Duration::from_millis(2);

impl Tenure {
    /// An observer of the election `name`, which does not take part in it; see [`Observer`].
    pub fn observe(&self, name: &str) -> Result<Observer, Error> {
        let resource = self.client().resource(name)?;
        Ok(Observer { client: Arc::clone(self.client()), resource })
    }

    /// An observer of the election at `key`, as set by [`ElectionBuilder::key`].
    ///
    /// [`ElectionBuilder::key`]: crate::ElectionBuilder::key
    pub fn observe_key(&self, name: &str, key: &str) -> Result<Observer, Error> {
        let resource = Resource::with_key(name, key)?;
        Ok(Observer { client: Arc::clone(self.client()), resource })
    }
}

/// An observer of an election: it reads who leads and who takes part, and does what an operator may
/// do.
#[derive(Clone, Debug)]
pub struct Observer {
    client: Arc<Client>,
    resource: Resource,
}

/// Whether a resource is led, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// An instance leads.
    Led {
        /// The leader.
        leader: SeenLeader,
        /// How long the lease still lasts in the store unless it is renewed; `None` for a key
        /// without expiry.
        remaining: Option<Duration>,
    },
    /// Nobody leads.
    Vacant(Vacancy),
}

impl Leadership {
    /// The leader, if there is one.
    pub fn leader(&self) -> Option<&SeenLeader> {
        match self {
            Leadership::Led { leader, .. } => Some(leader),
            Leadership::Vacant(_) => None,
        }
    }

    pub(crate) fn of(view: &View) -> Self {
        match (&view.holder, view.paused_for) {
            (Some(id), _) if view.reserved => {
                let left = view.pttl.unwrap_or_default();
                Leadership::Vacant(Vacancy::Reserved { to: id.clone(), left })
            }
            (Some(id), _) if view.unconfirmed => {
                let left = view.pttl.unwrap_or_default();
                Leadership::Vacant(Vacancy::Unconfirmed { by: id.clone(), left })
            }
            (Some(id), _) if !id.is_mark() => Leadership::Led {
                leader: SeenLeader { id: id.clone(), token: view.token, foreign: view.foreign },
                remaining: view.pttl,
            },
            (Some(_), _) => Leadership::Vacant(Vacancy::Quarantine {
                left: view.pttl.unwrap_or_default(),
                why: view.quarantine_why.clone().unwrap_or_default(),
            }),
            (None, Some(left)) => Leadership::Vacant(Vacancy::Paused { left }),
            (None, None) => Leadership::Vacant(Vacancy::Free),
        }
    }
}

/// Why nobody leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vacancy {
    /// The next candidate may lead.
    Free,
    /// The last leader handed over, and its successor has not claimed the term yet.
    Reserved {
        /// The successor.
        to: InstanceId,
        /// How long only the successor may claim the term.
        left: Duration,
    },
    /// In mode `strict`: an instance was granted the term, but too few replicas have confirmed it.
    /// The instance keeps trying until they do.
    Unconfirmed {
        /// The instance that was granted the term.
        by: InstanceId,
        /// How long the store keeps the term for it unless it tries again.
        left: Duration,
    },
    /// After a loss of data, or after an operator's [`clear`](Observer::clear): an earlier leader
    /// may still rely on its lease.
    Quarantine {
        /// How long the quarantine still lasts.
        left: Duration,
        /// What was lost, or who cleared the term, as text.
        why: String,
    },
    /// An operator paused the election.
    Paused {
        /// How long the pause still lasts, unless it is ended earlier.
        left: Duration,
    },
}

/// The state of an election, read from the store at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Observation {
    /// Who leads.
    pub leadership: Leadership,
    /// Who takes part.
    pub members: Vec<Member>,
    /// What an operator asked the leader for.
    pub wish: Option<Wish>,
    /// How long the operator's pause still lasts, if there is one.
    pub paused_for: Option<Duration>,
    /// The store's clock. Compare the members' times with it.
    pub server_time: ServerTime,
    /// The store's incarnation: when it changes, the store may have forgotten leases.
    pub incarnation: String,
    /// What the store could not write, one line each. The lease is not affected.
    pub warnings: Vec<String>,
}

impl Observer {
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The observed resource.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Reads the current state from the store.
    pub async fn look(&self) -> Result<Observation, Error> {
        let answer = self.ask(Request::Observe { members: true }).await?;
        Ok(Observation {
            leadership: Leadership::of(&answer.view),
            members: answer.view.members.unwrap_or_default(),
            wish: answer.view.wish,
            paused_for: answer.view.paused_for,
            server_time: answer.view.server_time,
            incarnation: answer.view.incarnation,
            warnings: answer.warnings,
        })
    }

    /// Asks the store who leads now. That nobody leads is an answer, not an error.
    pub async fn leader(&self) -> Result<Leadership, Error> {
        let answer = self.ask(Request::Observe { members: false }).await?;
        Ok(Leadership::of(&answer.view))
    }

    /// Asks the store who takes part.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        Ok(self.look().await?.members)
    }

    /// The latest `count` entries of the history, newest first.
    pub async fn history(&self, count: usize) -> Result<Vec<HistoryEntry>, Error> {
        match self.ask(Request::History { count }).await?.outcome {
            Outcome::History(entries) => Ok(entries),
            other => Err(unexpected(&other, "history")),
        }
    }

    /// Follows changes of the leader, the members and pauses.
    pub async fn changes(&self) -> Result<Changes, Error> {
        let backend = Arc::clone(&self.client.backend);
        let subscription = self.client.subscribe(backend, &self.resource).await?;
        Ok(Changes { observer: self.clone(), subscription, last: None, failed: false })
    }

    /// Asks the store; what stands in the way is an error.
    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, Error> {
        let answer = self.client.call(&self.resource, request).await?;
        match answer.outcome {
            Outcome::Conflict { what } => Err(Error::Conflict { what }),
            _ => Ok(answer),
        }
    }
}

pub(crate) fn unexpected(outcome: &Outcome, asked: &str) -> Error {
    Error::Store(StoreError::unexpected(format!("{outcome:?} to a {asked}")))
}

/// The changes of an election, one observation per change.
#[derive(Debug)]
pub struct Changes {
    observer: Observer,
    subscription: Subscription,
    last: Option<Observation>,
    failed: bool,
}

impl Changes {
    /// First the current state, then the state after each change. A store that does not answer is
    /// reported as an error once; the next call waits until it answers again.
    pub async fn next(&mut self) -> Result<Observation, Error> {
        loop {
            if let Some(pause) = self.pause() {
                self.wait(pause).await?;
            }
            match self.observer.look().await {
                Ok(observation) => {
                    let changed = self.last.as_ref().is_none_or(|last| differs(last, &observation));
                    let back = std::mem::take(&mut self.failed);
                    self.last = Some(observation.clone());
                    if changed || back {
                        return Ok(observation);
                    }
                }
                Err(Error::Store(_)) if self.failed => {}
                Err(error) => {
                    self.failed = true;
                    return Err(error);
                }
            }
        }
    }

    fn pause(&self) -> Option<Duration> {
        match (&self.last, self.failed) {
            (_, true) => Some(LOOK_AGAIN),
            (None, false) => None,
            (Some(last), false) => Some(match last.leadership {
                Leadership::Led { remaining: Some(left), .. }
                | Leadership::Vacant(
                    Vacancy::Reserved { left, .. } | Vacancy::Unconfirmed { left, .. },
                ) => (left + EXPIRY_GRAIN).min(LOOK_EVERY),
                _ => LOOK_EVERY,
            }),
        }
    }

    async fn wait(&mut self, pause: Duration) -> Result<(), Error> {
        tokio::select! {
            Some(_) = self.subscription.next() => Ok(()),
            slept = self.observer.client.sleep(pause) => slept,
        }
    }
}

/// Whether somebody who observes would call it a change. Heartbeats and clocks are none.
fn differs(before: &Observation, after: &Observation) -> bool {
    let members = |observation: &Observation| {
        let records = observation.members.iter().map(|m| (m.id.clone(), m.record.clone()));
        records.collect::<Vec<_>>()
    };
    let vacancy = |observation: &Observation| match &observation.leadership {
        Leadership::Led { .. } => None,
        Leadership::Vacant(why) => Some(std::mem::discriminant(why)),
    };
    before.leadership.leader() != after.leadership.leader()
        || vacancy(before) != vacancy(after)
        || before.paused_for.is_some() != after.paused_for.is_some()
        || before.wish != after.wish
        || members(before) != members(after)
}
