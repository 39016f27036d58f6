//! What can go wrong for a caller of this library, and what to do then.

use std::time::Duration;

use tenure_core::timing::whole_millis;
use tenure_core::{NameError, Reason, StoreError, TimingError};

use crate::backend::ConnectError;
use crate::config::ConfigError;

fn because(reason: &Option<Reason>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Why a call did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Times that do not fit together.
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
    /// The store did not answer as hoped. Leadership is not affected by this alone.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// This client already takes part in that election.
    #[error("this client already takes part in {name:?}: use that handle, or stop it first")]
    AlreadyTakingPart {
        /// The resource.
        name: String,
    },
    /// The election was stopped, so it will not lead any more.
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
    #[error("{what} did not happen within {:?}{}", whole_millis(*waited), because(reason))]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        waited: Duration,
        /// Why not, as far as known.
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
        /// The words of the one who refused.
        why: String,
    },
    /// The store says something that must not be overridden without force.
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
    /// Something foreign stands at a key of the resource. Nothing was touched.
    #[error("foreign data in the way: {what}; choose another key, or remove it yourself")]
    Conflict {
        /// What stands where.
        what: String,
    },
    /// More requests are waiting than the client takes.
    #[error("more than {limit} requests are waiting in this client: slow down and try again")]
    Overloaded {
        /// The limit.
        limit: usize,
    },
}

#[cfg(feature = "redis")]
impl From<crate::backend::redis::SurveyError> for Error {
    fn from(error: crate::backend::redis::SurveyError) -> Self {
        use crate::backend::redis::SurveyError;
        match error {
            SurveyError::Connect(error) => error.into(),
            SurveyError::Store(error) => error.into(),
        }
    }
}
