//! Our own core as a participant, unchanged, with a flaw around it where one is asked for.

use std::time::Duration;

use tenure_core::protocol::{Answer, Hint, Outcome, Request, View};
use tenure_core::{AskId, Election, HandOver, Moment, Role, Settings, StoreError};

use crate::algorithm::{Algorithm, Belief, Op, Output, Reply, Want};
use crate::flaw::Flaw;

/// One process with one election.
pub(crate) struct Ours {
    election: Election,
    flaw: Option<Flaw>,
    /// The lease that the store is asked for.
    ttl: Duration,
    /// The core's names for requests under way, by ours, and when they were sent.
    asks: Vec<(u64, AskId, Moment)>,
    asked: u64,
    now: Moment,
    /// Hand-overs that were asked for: the number, and whether this process led then.
    hand_overs: Vec<(u64, bool)>,
    hand_overs_asked: u64,
    /// Outcomes of hand-overs that nobody waited for any more.
    outcomes_doubled: usize,
    /// Nothing is tried before, where hints postpone.
    postponed_until: Moment,
    /// The attempt that waits for that.
    postponed: Option<(AskId, Request, Duration)>,
}

impl Ours {
    pub(crate) fn new(
        settings: Settings,
        ttl: Duration,
        flaw: Option<Flaw>,
        seed: u64,
        now: Moment,
    ) -> Self {
        let election = Election::new(settings, seed, now);
        Ours {
            election,
            flaw,
            ttl,
            asks: Vec::new(),
            asked: 0,
            now,
            hand_overs: Vec::new(),
            hand_overs_asked: 0,
            outcomes_doubled: 0,
            postponed_until: Moment::ORIGIN,
            postponed: None,
        }
    }

    pub(crate) fn number_attempts_after(&mut self, attempt: u64) {
        self.election.number_attempts_after(attempt);
    }

    /// The last reading of the local clock.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    fn hand_over(&mut self, now: Moment) {
        self.hand_overs_asked += 1;
        let leads = self.election.leads_until().is_some();
        self.hand_overs.push((self.hand_overs_asked, leads));
        self.election.hand_over_as(now, HandOver(self.hand_overs_asked), None);
    }

    /// Takes down which hand-overs have an outcome.
    fn settle_hand_overs(&mut self) {
        while let Some((HandOver(number), outcome)) = self.election.poll_hand_over() {
            let Some(at) = self.hand_overs.iter().position(|(asked, _)| *asked == number) else {
                self.outcomes_doubled += 1;
                continue;
            };
            let was_lost = self.hand_overs[at].1 && self.election.leads_until().is_none();
            let is_forgotten = self.flaw == Some(Flaw::HandOverForgotten) && was_lost;
            if !(is_forgotten && outcome.is_err()) {
                self.hand_overs.swap_remove(at);
            }
        }
    }

    /// Swallows a farewell that a process with this flaw does not send.
    fn is_swallowed(&self, request: &Request) -> bool {
        self.flaw == Some(Flaw::CloseWithoutRelease) && matches!(request, Request::Release { .. })
    }

    fn is_postponed(&self) -> bool {
        self.now < self.postponed_until && self.election.leads_until().is_none()
    }

    /// The next output of the core, or an attempt that was kept back and may go.
    fn next_output(&mut self) -> tenure_core::Output {
        match self.postponed.take_if(|_| self.now >= self.postponed_until) {
            Some((ask, request, timeout)) => tenure_core::Output::Ask { ask, request, timeout },
            None => self.election.poll_output(),
        }
    }
}

impl Algorithm for Ours {
    fn start(&mut self, now: Moment) {
        self.now = now;
    }

    fn reply(&mut self, now: Moment, ask: u64, reply: Result<Reply, StoreError>) {
        self.now = now;
        let Some(at) = self.asks.iter().position(|(number, ..)| *number == ask) else { return };
        let (_, ask, sent_at) = self.asks.swap_remove(at);
        let reply = match reply {
            Ok(Reply::Answer(answer)) => Ok(answer),
            Ok(_) => Err(StoreError::unexpected("a plain reply to a call")),
            Err(error) => Err(error),
        };
        let reply = reply.map(|mut answer| {
            if let Some(flaw) = self.flaw.filter(|flaw| flaw.overstates_leases()) {
                let late = now.since(sent_at);
                answer.view.pttl = answer.view.pttl.map(|pttl| flaw.believed(pttl, late));
            }
            if self.flaw == Some(Flaw::PauseOverlooked) {
                answer.view.paused_for = None;
            }
            answer
        });
        self.election.handle_reply(now, ask, reply);
    }

    fn wake(&mut self, now: Moment) {
        self.now = now;
        self.election.handle_timeout(now);
    }

    fn hint(&mut self, now: Moment, hint: Hint) {
        self.now = now;
        match (self.flaw, &hint) {
            (Some(Flaw::HintsPostpone), Hint::Granted { ttl, .. }) => {
                self.postponed_until = now + *ttl.min(&self.ttl);
            }
            (_, Hint::Released { .. }) => self.postponed_until = Moment::ORIGIN,
            _ => {}
        }
        self.election.handle_hint(now, hint);
    }

    fn listening(&mut self, now: Moment) {
        self.now = now;
        self.election.handle_listening(now);
    }

    fn unreachable(&mut self, now: Moment) {
        self.now = now;
        self.election.handle_unreachable(now, StoreError::unreachable("broken"));
    }

    fn work(&mut self, now: Moment, running: bool) {
        self.now = now;
        let is_seen = self.flaw != Some(Flaw::ReleaseBeforeWork);
        self.election.handle_work(now, running && is_seen);
    }

    fn want(&mut self, now: Moment, want: Want) {
        self.now = now;
        match want {
            Want::Resign => self.election.resign(now),
            Want::HandOver => self.hand_over(now),
            Want::Ready(ready) => self.election.set_ready(now, ready),
            Want::Paused(true) => self.election.stand_back(now),
            Want::Paused(false) => self.election.contend_again(now),
            Want::Beat => self.election.beat(now),
            Want::RenewNow => self.election.renew_now(now),
            Want::Stop => self.election.stop(now),
        }
    }

    fn poll_output(&mut self) -> Output {
        self.settle_hand_overs();
        loop {
            match self.next_output() {
                tenure_core::Output::Ask {
                    ask,
                    request: request @ Request::Acquire(_),
                    timeout,
                } if self.is_postponed() => {
                    self.postponed = Some((ask, request, timeout));
                }
                tenure_core::Output::Ask { ask, request, .. } if self.is_swallowed(&request) => {
                    let outcome = Outcome::Released;
                    let answer = Answer { outcome, view: View::default(), warnings: Vec::new() };
                    self.election.handle_reply(self.now, ask, Ok(answer));
                }
                tenure_core::Output::Ask { ask, request, timeout } => {
                    let request = match self.flaw {
                        Some(flaw) => flaw.request(request, self.ttl),
                        None => request,
                    };
                    self.asked += 1;
                    self.asks.push((self.asked, ask, self.now));
                    return Output::Ask { ask: self.asked, op: Op::Call(request), timeout };
                }
                tenure_core::Output::Tell(event) => return Output::Tell(event),
                tenure_core::Output::WaitUntil(moment) if self.postponed.is_some() => {
                    return Output::WaitUntil(moment.min(self.postponed_until));
                }
                tenure_core::Output::WaitUntil(moment) => return Output::WaitUntil(moment),
            }
        }
    }

    fn belief(&self) -> Option<Belief> {
        let until = self.election.leads_until()?;
        Some(Belief { token: Some(self.election.token()?), until })
    }

    fn unsettled_hand_overs(&mut self) -> usize {
        self.settle_hand_overs();
        self.hand_overs.len() + self.outcomes_doubled
    }

    fn is_over(&self) -> bool {
        self.election.role() == Role::Stopped
    }
}
