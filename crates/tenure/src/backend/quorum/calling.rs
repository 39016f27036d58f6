//! One call on its way through the nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure_core::StoreError;
use tenure_core::protocol::{Answer, Call};
use tenure_core::quorum::{Quorum, Round, RoundOutput};

use crate::backend::{Backend, Calling};
use crate::clock::{Clock, timer_now};

/// How much earlier than its caller a round gives up, at the most: so that it can still undo what
/// it began, and say what went wrong.
const GIVES_UP_EARLIER_MAX: Duration = Duration::from_millis(20);

type Reply = Result<Answer, StoreError>;
type Asking = Pin<Box<dyn Future<Output = (usize, u32, Reply)> + Send>>;

/// Begins a call: the first requests are queued before this returns.
pub(super) fn begin(quorum: Quorum, nodes: &Arc<[Arc<dyn Backend>]>, call: Call) -> Calling {
    let timeout = call.timeout - GIVES_UP_EARLIER_MAX.min(call.timeout / 10);
    let gives_up_at = timer_now() + timeout;
    let round = Round::new(quorum, call.request.clone(), Clock::System.now(), timeout);
    let asking = FuturesUnordered::new();
    let mut flight = Flight { round, nodes: Arc::clone(nodes), call, gives_up_at, asking };
    match flight.carry_out() {
        Some(verdict) => Box::pin(std::future::ready(verdict)),
        None => Box::pin(flight.land()),
    }
}

struct Flight {
    round: Round,
    nodes: Arc<[Arc<dyn Backend>]>,
    call: Call,
    gives_up_at: tokio::time::Instant,
    asking: FuturesUnordered<Asking>,
}

impl Flight {
    async fn land(mut self) -> Reply {
        loop {
            tokio::select! {
                biased;
                Some((node, step, reply)) = self.asking.next() => {
                    self.round.handle_reply(Clock::System.now(), node, step, reply);
                }
                () = tokio::time::sleep_until(self.gives_up_at) => self.round.handle_timeout(),
            }
            if let Some(verdict) = self.carry_out() {
                return verdict;
            }
        }
    }

    /// Does what the round wants; answers what came of it once it is over.
    fn carry_out(&mut self) -> Option<Reply> {
        while let Some(output) = self.round.poll_output() {
            match output {
                RoundOutput::Ask { node, step, request } => {
                    let left = self.gives_up_at.saturating_duration_since(timer_now());
                    let calling =
                        self.nodes[node].call(Call { request, timeout: left, ..self.call.clone() });
                    let place = self.nodes[node].describe();
                    self.asking
                        .push(Box::pin(async move { (node, step, named(&place, calling.await)) }));
                }
                // Queued by the call itself; nobody waits for what comes of it.
                RoundOutput::Tell { node, request } => {
                    drop(self.nodes[node].call(Call { request, ..self.call.clone() }));
                }
                RoundOutput::Done(verdict) => return Some(verdict),
            }
        }
        None
    }
}

/// The reply with the name of its node wherever it speaks to people.
fn named(place: &str, reply: Reply) -> Reply {
    let name = |text: String| match text.contains(place) {
        true => text,
        false => format!("{place}: {text}"),
    };
    match reply {
        Ok(mut answer) => {
            answer.warnings = answer.warnings.into_iter().map(name).collect();
            Ok(answer)
        }
        Err(StoreError::Unreachable(text)) => Err(StoreError::Unreachable(name(text))),
        Err(StoreError::NotNow(text)) => Err(StoreError::NotNow(name(text))),
        Err(StoreError::WrongNode(text)) => Err(StoreError::WrongNode(name(text))),
        Err(StoreError::Denied(text)) => Err(StoreError::Denied(name(text))),
        Err(StoreError::Unexpected(text)) => Err(StoreError::Unexpected(name(text))),
        Err(error) => Err(StoreError::NotNow(name(error.to_string()))),
    }
}
