//! What programs hold through the sidecar: elections that they joined, locks, and ticks of jobs.
//!
//! Each has an *owner*: a word that only its caller knows. Whoever holds something says again and
//! again that it is alive (`keep`); when it falls silent, what it held is released. An answer
//! that may be acted on has `valid_for_ms`, and nothing is given to anybody else before the last of
//! those that were promised is over.

#![expect(clippy::result_large_err, reason = "a refusal is an answer, and made once a request")]

mod asked;
mod elections;
mod hold;
mod locks;
mod owner;
mod ticks;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::asked::Asked;
use crate::clock;
use crate::routes::Routes;

/// How long a request may wait for something to come free or to begin.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .post("/elections/{name}", elections::join)
        .delete("/elections/{name}", elections::leave)
        .post("/elections/{name}/keep", elections::keep)
        .post("/beat/{name}", elections::beat)
        .post("/locks/{name}", locks::acquire)
        .delete("/locks/{name}", locks::release)
        .post("/locks/{name}/keep", locks::keep)
        .get("/ticks/{name}", ticks::look)
        .post("/ticks/{name}", ticks::begin)
        .post("/ticks/{name}/keep", ticks::keep)
        .post("/ticks/{name}/finish", ticks::finish)
}

/// What is held now.
#[derive(Debug)]
pub(crate) struct Callers {
    elections: elections::Elections,
    locks: locks::Locks,
    ticks: ticks::Ticks,
    /// When the last promise ends that was made about a lock or a tick.
    promised_until: Mutex<Option<Instant>>,
}

impl Callers {
    /// `configured` are the names that nobody can join or leave.
    pub(crate) fn new<'a>(configured: impl Iterator<Item = &'a str>) -> Self {
        Callers {
            elections: elections::Elections::new(configured),
            locks: locks::Locks::default(),
            ticks: ticks::Ticks::default(),
            promised_until: Mutex::default(),
        }
    }

    fn promised(&self, until: Instant) {
        let mut known = self.promised_until.lock().unwrap_or_else(PoisonError::into_inner);
        *known = (*known).max(Some(until));
    }

    /// How long callers may still rely on what they were told about locks and ticks.
    pub(crate) fn promised_for(&self) -> Duration {
        let until = *self.promised_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(clock::now()))
    }
}
