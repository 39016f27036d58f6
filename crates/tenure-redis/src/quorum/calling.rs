//! One call on its way through the nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure_core::protocol::{Answer, Call};
use tenure_core::quorum::{Round, RoundOutput};
use tenure_core::{StoreError, StoreErrorKind};

use super::standing::Nodes;
use tenure_backend::Calling;
use tenure_backend::clock::{system_now, timer_now};

/// How much earlier than its caller a round gives up, at the most: so that it can still undo what
/// it began, and say what went wrong.
const GIVES_UP_EARLIER_MAX: Duration = Duration::from_millis(20);

type Reply = Result<Answer, StoreError>;
type Asking = Pin<Box<dyn Future<Output = (usize, u32, Reply)> + Send>>;

/// Begins a call: the first requests are queued before this returns.
pub(super) fn begin(nodes: &Arc<Nodes>, call: Call) -> Calling {
    let timeout = call.timeout - GIVES_UP_EARLIER_MAX.min(call.timeout / 10);
    let gives_up_at = timer_now() + timeout;
    let round = Round::new(nodes.quorum, call.request.clone(), system_now(), timeout);
    let asking = FuturesUnordered::new();
    let mut flight = Flight { round, nodes: Arc::clone(nodes), call, gives_up_at, asking };
    match flight.carry_out() {
        Some(verdict) => Box::pin(std::future::ready(verdict)),
        None => Box::pin(flight.land()),
    }
}

struct Flight {
    round: Round,
    nodes: Arc<Nodes>,
    call: Call,
    gives_up_at: tokio::time::Instant,
    asking: FuturesUnordered<Asking>,
}

impl Flight {
    async fn land(mut self) -> Reply {
        loop {
            tokio::select! {
                biased;
                Some((node, step, reply)) = self.asking.next() => self.hear(node, step, reply),
                () = tokio::time::sleep_until(self.gives_up_at) => self.give_up(),
            }
            if let Some(verdict) = self.carry_out() {
                return verdict;
            }
        }
    }

    fn hear(&mut self, node: usize, step: u32, reply: Reply) {
        let now = system_now();
        match now >= self.round.deadline() {
            true => self.give_up(),
            false => self.round.handle_reply(now, node, step, reply),
        }
    }

    fn give_up(&mut self) {
        let timed_out = StoreError::timed_out(self.call.timeout);
        let why = |node| self.nodes.absence(node).unwrap_or_else(|| timed_out.clone());
        self.round.give_up(|node| named(&self.nodes.place(node), why(node)));
    }

    /// Does what the round wants; answers what came of it once it is over.
    fn carry_out(&mut self) -> Option<Reply> {
        while let Some(output) = self.round.poll_output() {
            match output {
                RoundOutput::Ask { node, step, request } => {
                    let left = self.gives_up_at.saturating_duration_since(timer_now());
                    let call = Call { request, timeout: left, ..self.call.clone() };
                    let (calling, place) = (self.nodes.call(node, call), self.nodes.place(node));
                    let asking = async move { (node, step, from(&place, calling.await)) };
                    self.asking.push(Box::pin(asking));
                }
                // Queued by the call itself; nobody waits for what comes of it.
                RoundOutput::Tell { node, request } => {
                    drop(self.nodes.call(node, Call { request, ..self.call.clone() }));
                }
                RoundOutput::Done(verdict) => return Some(self.with_warnings(verdict)),
            }
        }
        None
    }

    /// A majority has answered, but a person should know of those that cannot.
    fn with_warnings(&self, verdict: Reply) -> Reply {
        let mut answer = verdict?;
        answer.warnings.extend(self.nodes.warnings());
        Ok(answer)
    }
}

/// The reply with the name of its node in every text.
fn from(place: &str, reply: Reply) -> Reply {
    let mut answer = reply.map_err(|error| named(place, error))?;
    for warning in &mut answer.warnings {
        *warning = with_place(place, std::mem::take(warning));
    }
    Ok(answer)
}

fn with_place(place: &str, text: String) -> String {
    match text.contains(place) {
        true => text,
        false => format!("{place}: {text}"),
    }
}

fn named(place: &str, error: StoreError) -> StoreError {
    match error.kind() {
        StoreErrorKind::TimedOut => error.at(place).with_kind(StoreErrorKind::Unreachable),
        _ => error.at(place),
    }
}
