//! One request to several nodes, from the first word to the answer.
//!
//! ```text
//!             a majority would grant            a majority has settled
//! Proposing ─────────────────────────► Settling ──────────────────────► Over: granted
//!     │ no majority can                    │ no majority can, or too late: abandon everywhere
//!     ▼                                    ▼
//! Over: wait, or no answer             Over: contested
//!
//! Counting (every other request) ─────► Over: what a majority says
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::{Acquire, Answer, Ballot, CloseReason, Outcome, Request, Token, View};
use crate::{Moment, ServerTime, StoreError};

use super::{Quorum, counting, merge};

/// What a node replied.
pub(super) type Reply = Result<Answer, StoreError>;

/// What a round wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum RoundOutput {
    /// Ask a node, and bring its reply back with the same numbers.
    Ask {
        /// Which node, counted from zero.
        node: usize,
        /// Which step of the round: a reply to an earlier one counts for nothing.
        step: u32,
        /// What to ask.
        request: Request,
    },
    /// Tell a node; nobody waits for its reply.
    Tell {
        /// Which node, counted from zero.
        node: usize,
        /// What to tell.
        request: Request,
    },
    /// What came of the round. The last output.
    Done(Result<Answer, StoreError>),
}

/// One request on its way through the nodes.
#[derive(Debug)]
pub struct Round {
    quorum: Quorum,
    request: Request,
    deadline: Moment,
    timeout: Duration,
    phase: Phase,
    step: u32,
    /// The replies to the current step, by node.
    replies: Vec<Slot>,
    /// Which life of which server each node has shown itself to be.
    lives: Vec<String>,
    /// What the proposals said of the members.
    members_seen: Option<View>,
    outputs: VecDeque<RoundOutput>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Proposing,
    Settling(Token),
    Counting,
    Over,
}

/// What is known of one node in one step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Slot {
    NotAsked,
    Pending,
    Replied(Reply),
}

impl Slot {
    pub(super) fn answer(&self) -> Option<&Answer> {
        match self {
            Slot::Replied(Ok(answer)) => Some(answer),
            _ => None,
        }
    }

    pub(super) fn error(&self) -> Option<&StoreError> {
        match self {
            Slot::Replied(Err(error)) => Some(error),
            _ => None,
        }
    }
}

impl Round {
    /// A round for `request` that must be over within `timeout`. What it grants or extends is
    /// counted by the caller from `now` or from before it.
    pub fn new(quorum: Quorum, request: Request, now: Moment, timeout: Duration) -> Self {
        let mut round = Round {
            quorum,
            deadline: now + timeout,
            timeout,
            phase: Phase::Counting,
            step: 0,
            replies: vec![Slot::NotAsked; quorum.nodes()],
            lives: vec![String::new(); quorum.nodes()],
            members_seen: None,
            outputs: VecDeque::new(),
            request,
        };
        match round.first_words() {
            Some(words) => round.ask_where(&words, |_| true),
            None => round.end(Err(refused_tick())),
        }
        round
    }

    /// What the nodes are asked first; `None` when nothing can be made of their answers.
    fn first_words(&mut self) -> Option<Request> {
        Some(match &self.request {
            Request::Acquire(ask) => {
                self.phase = Phase::Proposing;
                to_node(ask, Ballot::Propose)
            }
            &Request::Renew { token, ttl, fleet_max_ttl } => {
                Request::Adopt { token, ttl, fleet_max_ttl }
            }
            Request::Transfer { token, to, claim_ttl } => {
                Request::PassOn { token: *token, to: to.clone(), claim_ttl: *claim_ttl }
            }
            Request::TickBegin { .. }
            | Request::TickFinish { .. }
            | Request::TickReopen { .. }
            | Request::TickLook { .. } => return None,
            other => other.clone(),
        })
    }

    /// The reply of a node to one step, or why there is none.
    pub fn handle_reply(&mut self, now: Moment, node: usize, step: u32, reply: Reply) {
        if now >= self.deadline {
            return self.handle_timeout();
        }
        if step == self.step && self.replies.get(node) == Some(&Slot::Pending) {
            self.replies[node] = Slot::Replied(self.only_once(node, reply));
            self.consider();
        }
    }

    /// One server under two names must not count twice.
    fn only_once(&mut self, node: usize, reply: Reply) -> Reply {
        let answer = reply?;
        let life = &answer.view.incarnation;
        // Whoever may not tell its life tells an empty one.
        let is_known = !life.is_empty() && !life.starts_with(':');
        let twin = (0..node).chain(node + 1..self.lives.len()).find(|at| self.lives[*at] == *life);
        if let Some(twin) = twin.filter(|_| is_known) {
            return Err(StoreError::wrong_node(format!(
                "nodes {} and {} of the quorum are the same server: name each once",
                twin.min(node) + 1,
                twin.max(node) + 1
            )));
        }
        self.lives[node].clone_from(life);
        Ok(answer)
    }

    /// The time of this round is up: whoever has not answered does not count.
    pub fn handle_timeout(&mut self) {
        let timed_out = StoreError::timed_out(self.timeout);
        self.give_up(|_| timed_out.clone());
    }

    /// The same, where more is known of why a node did not answer.
    pub fn give_up(&mut self, why: impl Fn(usize) -> StoreError) {
        for (node, slot) in self.replies.iter_mut().enumerate() {
            if *slot == Slot::Pending {
                *slot = Slot::Replied(Err(why(node)));
            }
        }
        self.consider();
        // A majority of proposals that came in this very moment is too late to be settled.
        if let Phase::Settling(_) = self.phase {
            self.fail_to_settle();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// The next output, if there is one now.
    pub fn poll_output(&mut self) -> Option<RoundOutput> {
        self.outputs.pop_front()
    }

    fn consider(&mut self) {
        match self.phase {
            Phase::Proposing => self.consider_proposals(),
            Phase::Settling(token) => self.consider_settled(token),
            Phase::Counting => {
                if let Some(verdict) = counting::verdict(self.quorum, &self.request, &self.replies)
                {
                    self.end_counting(verdict);
                }
            }
            Phase::Over => {}
        }
    }

    fn consider_proposals(&mut self) {
        let proposals: Vec<&Answer> = self.replies.iter().filter_map(granting).collect();
        if proposals.len() >= self.quorum.majority() {
            let proposed = |answer: &Answer| match answer.outcome {
                Outcome::Granted { token } => Some((token, answer.view.server_time)),
                _ => None,
            };
            let proposed: Vec<_> = proposals.into_iter().filter_map(proposed).collect();
            match number_of(&proposed, self.floor()) {
                Some(token) => self.settle(token),
                None => self.end(Ok(conflict("the tokens of this resource are used up".into()))),
            }
            return;
        }
        let is_hopeless = proposals.len() + self.pending() < self.quorum.majority();
        // For how long to wait is known once a majority has said why not, and who holds it.
        let views = self.replies.iter().filter_map(Slot::answer).map(|answer| &answer.view);
        if is_hopeless && (merge::is_decided(views, self.quorum) || self.pending() == 0) {
            let verdict = counting::wait(self.quorum, &self.replies);
            self.end(verdict);
        }
    }

    fn settle(&mut self, token: Token) {
        let Request::Acquire(ask) = &self.request else { return };
        let settle = to_node(ask, Ballot::Settle(token));
        self.members_seen = Some(self.merged());
        self.phase = Phase::Settling(token);
        self.step += 1;
        // Whoever has not answered yet may still be in time; whoever said no has said why.
        let may_settle = |slot: &Slot| *slot == Slot::Pending || granting(slot).is_some();
        self.ask_where(&settle, may_settle);
    }

    fn consider_settled(&mut self, settled: Token) {
        let is_settled = |slot: &Slot| {
            let outcome = slot.answer().map(|answer| &answer.outcome);
            matches!(outcome, Some(Outcome::Granted { token }) if *token == settled)
        };
        let count = self.replies.iter().filter(|slot| is_settled(slot)).count();
        if count >= self.quorum.majority() {
            let counted = self.replies.iter().filter(|slot| is_settled(slot));
            let answers = counted.filter_map(Slot::answer);
            let mut answer =
                merge::answers(answers, self.quorum, Outcome::Granted { token: settled });
            answer.view.partial = count < self.quorum.nodes();
            if let Some(seen) = self.members_seen.take() {
                answer.view.members = merge::moved_members(&seen, &answer.view);
            }
            self.end(Ok(answer));
        } else if count + self.pending() < self.quorum.majority() {
            self.fail_to_settle();
        }
    }

    /// Nobody believes in this attempt from here on: it is undone wherever it got.
    fn fail_to_settle(&mut self) {
        let why = counting::division(self.quorum, &self.replies);
        if let Request::Acquire(ask) = &self.request {
            let attempt = ask.attempt;
            self.tell_all(&Request::Abandon { attempt });
        }
        let answers = self.replies.iter().filter_map(Slot::answer);
        let answer = merge::answers(answers, self.quorum, Outcome::Contested { why });
        self.end(Ok(answer));
    }

    fn end_counting(&mut self, verdict: Reply) {
        // The nodes that still hold a lost term need not keep it to its end.
        if let (Request::Renew { token, .. }, Ok(Answer { outcome: Outcome::Lost(_), .. })) =
            (&self.request, &verdict)
        {
            let (token, reason) = (*token, CloseReason::LeaseEnded);
            self.tell_all(&Request::Release { token, reason });
        }
        self.end(verdict);
    }

    fn end(&mut self, verdict: Reply) {
        self.phase = Phase::Over;
        self.outputs.push_back(RoundOutput::Done(verdict));
    }

    fn merged(&self) -> View {
        merge::views(self.replies.iter().filter_map(Slot::answer).map(|a| &a.view), self.quorum)
    }

    fn floor(&self) -> Option<Token> {
        match &self.request {
            Request::Acquire(ask) => ask.floor,
            _ => None,
        }
    }

    fn pending(&self) -> usize {
        self.replies.iter().filter(|slot| **slot == Slot::Pending).count()
    }

    fn ask_where(&mut self, request: &Request, is_asked: impl Fn(&Slot) -> bool) {
        for node in 0..self.replies.len() {
            if is_asked(&self.replies[node]) {
                self.replies[node] = Slot::Pending;
                let (step, request) = (self.step, request.clone());
                self.outputs.push_back(RoundOutput::Ask { node, step, request });
            } else if let Slot::Replied(_) = self.replies[node] {
                // A reply to an earlier step is kept for what it says about the node.
            } else {
                self.replies[node] = Slot::NotAsked;
            }
        }
    }

    fn tell_all(&mut self, request: &Request) {
        for node in 0..self.replies.len() {
            self.outputs.push_back(RoundOutput::Tell { node, request: request.clone() });
        }
    }
}

/// An attempt as one node hears it.
fn to_node(ask: &Acquire, ballot: Ballot) -> Request {
    Request::Acquire(Acquire {
        // A node that missed a term has lost nothing: the floor only moves the number.
        floor: None,
        // Whoever has seen a token knows that somebody led before.
        fresh_store: ask.fresh_store && ask.floor.is_none(),
        // None of the nodes may be the one that forgot.
        age_counts: false,
        members: ask.members && ballot == Ballot::Propose,
        ballot,
        ..ask.clone()
    })
}

fn granting(slot: &Slot) -> Option<&Answer> {
    slot.answer().filter(|answer| matches!(answer.outcome, Outcome::Granted { .. }))
}

/// The number of the new term: above every counter among the proposals and above the floor, and not
/// below the slowest of their clocks. A clock that is far ahead does not move it: all later terms
/// would depend on counters alone, and nodes refuse what lies over a year ahead of theirs.
fn number_of(proposals: &[(Token, ServerTime)], floor: Option<Token>) -> Option<Token> {
    let clock = proposals.iter().map(|(_, clock)| clock.0).min().unwrap_or_default();
    let counter = proposals.iter().map(|(token, _)| token.get()).max().unwrap_or_default();
    Token::new(clock.max(counter).max(floor.map_or(0, Token::get) + 1))
}

/// A majority remembers what ran only for as long as the same nodes keep it; ticks are for ever.
fn refused_tick() -> StoreError {
    StoreError::wrong_address(
        "ticks need one store, for a quorum forgets them as its nodes are replaced",
    )
    .with_next_step("name one of them, or another store, for this job")
}

fn conflict(what: String) -> Answer {
    Answer { outcome: Outcome::Conflict { what }, view: View::default(), warnings: Vec::new() }
}
