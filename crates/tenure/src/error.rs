//! What can go wrong for a caller of this library, and what to do then.

use std::time::Duration;

use tenure_core::timing::duration_text;
use tenure_core::{NameError, Reason, StoreError, TimingError};

use crate::backend::ConnectError;
use crate::config::ConfigError;

fn because(reason: &Option<Reason>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Time settings that contradict each other.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// A configuration that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A setting outside its limits.
    #[error("{setting}: {why}")]
    Setting {
        /// Which setting.
        setting: &'static str,
        /// What is wrong with it and what to do.
        why: String,
    },
    /// The store's address, files or credentials are unusable.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The store did not answer, or answered with an error. This alone does not end a leadership.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// This client already takes part in that election.
    #[error("this client already takes part in {name:?}: use that handle, or stop it first")]
    AlreadyTakingPart {
        /// The resource.
        name: String,
    },
    /// This client holds that lock already, waits for it, or leads the election of that name.
    #[error(
        "this client holds or waits for {name:?} already: a lock cannot be taken twice; share the \
         guard, or release it first"
    )]
    AlreadyHeld {
        /// The lock.
        name: String,
    },
    /// The lock was released or lost before.
    #[error(
        "the lock {name:?} is not held any more: it was released before, or lost, and another may \
         have worked since"
    )]
    NotHeld {
        /// The lock.
        name: String,
    },
    /// The election has been stopped, so this instance will not lead again.
    #[error("the election {name:?} was stopped: start it again to take part")]
    Stopped {
        /// The resource.
        name: String,
    },
    /// The client was shut down, or its thread is gone.
    #[error("this client was shut down: make a new one")]
    Closed,
    /// A forked child uses its parent's client.
    #[error("this client belongs to the parent process: make a new one after the fork")]
    Forked,
    /// Nothing happened within the time given.
    #[error("{what} did not happen within {}{}", duration_text(*waited), because(reason))]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        waited: Duration,
        /// Why nothing happened, as far as known.
        reason: Option<Reason>,
    },
    /// This instance does not lead.
    #[error("this instance does not lead {name:?}")]
    NotLeading {
        /// The resource.
        name: String,
    },
    /// A hand-over or another wish was refused.
    #[error("refused: {why}")]
    Refused {
        /// The reason that was given.
        why: String,
    },
    /// The leader is alive, so its term is not cleared without force.
    #[error(
        "{name:?} is led by {holder}, which has sent a heartbeat recently: ask it to resign, or \
         force it"
    )]
    HolderAlive {
        /// The resource.
        name: String,
        /// Who holds it.
        holder: String,
    },
    /// A key of the resource holds something that Tenure did not write. Nothing was changed.
    #[error("foreign data in the way: {what}; choose another key, or remove it yourself")]
    Conflict {
        /// Which key, and what it holds.
        what: String,
    },
    /// Too many requests are waiting in this client.
    #[error("more than {limit} requests are waiting in this client: slow down and try again")]
    Overloaded {
        /// The limit.
        limit: usize,
    },
}
