//! What the routes answer, as types whose fields are the documented ones.

mod health;
mod resource;
mod standby;

pub(crate) use health::{HealthStatus, health};
pub(crate) use resource::{Resource, resource, unknown};
pub(crate) use standby::{Standby, standby};

use std::time::Duration;

use serde::Serialize;

/// `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    /// Who this instance is.
    pub(crate) instance: String,
    /// Where the store is; never with a secret.
    pub(crate) store: String,
    pub(crate) version: &'static str,
    pub(crate) started_at: crate::timestamp::Timestamp,
    pub(crate) now: crate::timestamp::Timestamp,
    pub(crate) resources: Vec<Resource>,
}

/// Whole milliseconds, rounded down: a promise must not grow by being written.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds with their fraction, for what is measured.
pub(crate) fn fine_ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
