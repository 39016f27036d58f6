//! What a caller holds under a term of its own, a lock or a tick: what it may be told, and what it
//! says to the task that keeps it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure::{Timing, Token};
use tokio::sync::{mpsc, oneshot};

use super::Callers;
use super::owner::{Lifeline, Owner};
use crate::clock;
use crate::view::whole_ms;
use crate::watched::promise_max;

/// How many requests about one hold may wait for its task.
pub(super) const COMMANDS_QUEUED_MAX: usize = 16;

/// What an owner says to keep what it holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keep {
    pub(super) owner: String,
}

/// What a caller may act on.
#[derive(Debug, Serialize)]
pub(super) struct Held {
    name: String,
    owner: String,
    token: u64,
    valid_for_ms: u64,
    remaining_ms: u64,
    within_ms: u64,
}

/// The side of a hold that decides how long its caller may act.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) name: String,
    pub(super) owner: Owner,
    pub(super) lifeline: Lifeline,
    token: Token,
    timing: Timing,
    promised_until: Instant,
}

impl Holder {
    pub(super) fn new(
        name: String,
        owner: Owner,
        within: Duration,
        token: Token,
        timing: Timing,
    ) -> Self {
        let promised_until = clock::now();
        let lifeline = Lifeline::new(within);
        Holder { name, owner, lifeline, token, timing, promised_until }
    }

    /// The owner has just asked, and `remaining` is left of the lease: how long it may act. Not
    /// beyond its own silence: whoever is silent for so long has lost it.
    pub(super) fn promise(&mut self, remaining: Duration, callers: &Callers) -> Option<Held> {
        self.lifeline.extend();
        let within = self.lifeline.within();
        let valid_for = remaining.min(promise_max(&self.timing)).min(within);
        if valid_for.is_zero() {
            return None;
        }
        self.promised_until = self.promised_until.max(clock::now() + valid_for);
        callers.promised(self.promised_until);
        Some(Held {
            name: self.name.clone(),
            owner: self.owner.as_str().to_owned(),
            token: self.token.get(),
            valid_for_ms: whole_ms(valid_for),
            remaining_ms: whole_ms(remaining),
            within_ms: whole_ms(within),
        })
    }

    /// Waits until the last promise is over.
    pub(super) async fn promises_end(&self) {
        tokio::time::sleep_until(self.promised_until.into()).await;
    }
}

/// Asks the task of a hold; `None` when there is none any more.
pub(super) async fn ask<C, A>(
    commands: &mpsc::Sender<C>,
    command: impl FnOnce(oneshot::Sender<A>) -> C,
) -> Option<A> {
    let (reply, answer) = oneshot::channel();
    commands.send(command(reply)).await.ok()?;
    answer.await.ok()
}
