//! What a driver does for one process: carries its outputs out, brings its inputs in, lets its
//! work begin and end.

use tenure_core::protocol::{Hint, Outcome, Request};
use tenure_core::{EventKind, Moment, Reason, StoreError, StoreErrorKind};

use crate::algorithm::{Belief, Op, Output, Reply, Want};
use crate::case::Replicas;
use crate::clock::MILLISECOND;
use crate::flaw::{Flaw, LATE_LEASES};
use crate::network::RECONNECTS_WITHIN;
use crate::party::PendingAsk;
use crate::promise::Promise;
use crate::world::{Event, World, span};

/// The epoch of replies that need no connection: errors made up on the spot.
pub(crate) const ANY_EPOCH: u32 = u32::MAX;
/// The line of replies that come from no node: the end of waiting.
pub(crate) const NO_LINE: usize = usize::MAX;
/// How many terms' permitted ends are remembered per process.
const PERMITS_KEPT: usize = 4;

impl World<'_> {
    /// Carries out what a process wants and judges what it believes.
    pub(crate) fn settle(&mut self, party: usize) {
        loop {
            match self.parties[party].algorithm.poll_output() {
                Output::Ask { ask, op, timeout } => {
                    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
                    self.ask(party, ask, op, nanos);
                }
                Output::Tell(event) => self.told(party, event.kind),
                Output::Run { tick, reruns_crashed } => {
                    self.judge_belief(party);
                    self.run_job(party, tick, reruns_crashed);
                }
                Output::Report { tick, how, reruns_crashed } => {
                    self.reported(party, &tick, how, reruns_crashed);
                }
                Output::WaitUntil(moment) => {
                    self.set_timer(party, moment);
                    break;
                }
            }
        }
        self.judge_belief(party);
        if self.parties[party].algorithm.is_over() {
            let life = self.parties[party].life;
            self.after(0, Event::Exits { party, life });
        }
    }

    fn set_timer(&mut self, party: usize, moment: Moment) {
        // Timers of real drivers are late, now and then by much.
        let late = match self.random.below(20) {
            0 => self.random.below(20 * MILLISECOND),
            _ => self.random.below(MILLISECOND),
        };
        let place = &mut self.parties[party];
        place.wake += 1;
        let (life, wake) = (place.life, place.wake);
        if moment == Moment::NEVER {
            return;
        }
        if let Some(real) = place.clock.real_at(moment.as_nanos()) {
            self.at(real.max(self.now + 1).saturating_add(late), Event::Wake { party, life, wake });
        }
    }

    pub(crate) fn wake(&mut self, party: usize, wake: u32) {
        if self.parties[party].wake == wake {
            let local = self.parties[party].local(self.now);
            self.parties[party].algorithm.wake(local);
            self.settle(party);
        }
    }

    fn ask(&mut self, party: usize, ask: u64, op: Op, timeout: u64) {
        let (now, place) = (self.now, &mut self.parties[party]);
        let sent_at = place.local(now);
        let lease = match &op {
            Op::Call(Request::Acquire(acquire)) => acquire.ttl,
            Op::Call(Request::Renew { ttl, .. }) => *ttl,
            _ => std::time::Duration::ZERO,
        };
        let lease = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        let token = match &op {
            Op::Call(Request::Renew { token, .. }) => Some(*token),
            _ => None,
        };
        place.asks.push(PendingAsk { ask, sent_at, sent: now, lease, token });
        let life = place.life;
        let timeout = match self.subject.flaw() {
            Some(Flaw::CountedLate) => self.climate.lease * LATE_LEASES,
            _ => timeout,
        };
        let gives_up_at = (sent_at + span(timeout)).as_nanos();
        if let Some(real) = place.clock.real_at(gives_up_at) {
            let reply = Box::new(Err(StoreError::timed_out(span(timeout))));
            let (line, epoch, step) = (NO_LINE, ANY_EPOCH, 0);
            self.at(real, Event::Reply { party, life, line, epoch, ask, step, reply });
        }
        self.note_party(party, || format!("asks {ask}: {op:?}"));
        match (self.quorum, self.in_mode(op)) {
            (Some(quorum), Op::Call(request)) => {
                self.begin_round(party, ask, (quorum, request, span(timeout)));
            }
            (None, Op::Call(request)) if self.case.replicas.is_swapped() => {
                self.begin_swap(party, ask, request);
            }
            (_, op) => self.send(party, 0, (ask, 0), op),
        }
    }

    /// A request as a connection in the mode of this world sends it.
    fn in_mode(&self, mut op: Op) -> Op {
        let age_lies = matches!(self.case.replicas, Replicas::Confirming | Replicas::Slots);
        if let (true, Op::Call(Request::Acquire(acquire))) = (age_lies, &mut op) {
            acquire.age_counts = self.subject.flaw() == Some(Flaw::TrustsAge);
        }
        op
    }

    pub(crate) fn deliver_reply(
        &mut self,
        party: usize,
        (line, epoch): (usize, u32),
        (ask, step): (u64, u32),
        reply: Result<Reply, StoreError>,
    ) {
        let place = &self.parties[party];
        if epoch != ANY_EPOCH && epoch != place.links[line].epoch {
            return;
        }
        let is_astray =
            reply.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::WrongNode);
        match self.quorum {
            Some(_) => self.advance_round(party, line, (ask, step), reply),
            None if self.case.replicas.is_swapped() && line != NO_LINE => {
                self.advance_swap(party, (ask, step), reply);
            }
            None => self.finish_ask(party, ask, reply),
        }
        // A connection to a server that is not the primary is given up.
        if is_astray && epoch == self.parties[party].links[line].epoch {
            let down_for = self.random.below(RECONNECTS_WITHIN);
            self.break_link(party, line, down_for);
        }
    }

    /// The one reply to a request of the algorithm is there.
    pub(crate) fn finish_ask(&mut self, party: usize, ask: u64, reply: Result<Reply, StoreError>) {
        let place = &mut self.parties[party];
        let Some(at) = place.asks.iter().position(|pending| pending.ask == ask) else { return };
        let pending = place.asks.swap_remove(at);
        place.swaps.retain(|open| open.ask != ask);
        place.heard_of = pending.sent;
        self.permit(party, pending, &reply);
        self.note_party(party, || match &reply {
            Ok(reply) => format!("hears {ask}: {reply:?}"),
            Err(error) => format!("hears {ask}: {error}"),
        });
        let local = self.parties[party].local(self.now);
        self.parties[party].algorithm.reply(local, ask, reply);
        self.settle(party);
    }

    /// Works out, apart from the core, until when an answer lets its term be believed in.
    fn permit(&mut self, party: usize, pending: PendingAsk, reply: &Result<Reply, StoreError>) {
        let Ok(Reply::Answer(answer)) = reply else { return };
        let place = &mut self.parties[party];
        let token = match answer.outcome {
            Outcome::Granted { token } => Some(token),
            Outcome::Renewed => pending.token,
            _ => None,
        };
        place.has_seen_token |= token.is_some() || answer.view.token.is_some();
        if token.is_none() {
            return;
        }
        let pttl = answer.view.pttl.map_or(pending.lease, |pttl| pttl.as_nanos() as u64);
        let usable = (pending.lease.min(pttl) / 100 * 99).saturating_sub(2 * MILLISECOND);
        let until = pending.sent_at + span(usable);
        match place.permits.iter_mut().find(|permit| permit.token == token) {
            Some(permit) => permit.until = permit.until.max(until),
            None => {
                if place.permits.len() == PERMITS_KEPT {
                    place.permits.remove(0);
                }
                place.permits.push(Belief { token, until });
            }
        }
    }

    fn judge_belief(&mut self, party: usize) {
        let now = self.now;
        let place = &mut self.parties[party];
        let local = place.local(now);
        let (before, after) = (place.belief, place.algorithm.belief());
        place.belief = after;
        if let Some(belief) = after
            && place.work.runs_under == Some(belief.token)
        {
            place.work.believed_until = belief.until;
        }
        if before != after {
            self.judge.belief(now, local, before, after);
            self.judge_deadline(party);
        }
        if self.parties[party].is_valid(now) {
            self.led_since_heal |= self.is_healed();
            self.judge_rivals(party);
        }
    }

    /// P4: no belief may outlast what the answers permit, whoever looks and whenever.
    fn judge_deadline(&mut self, party: usize) {
        let place = &self.parties[party];
        let Some(belief) = place.belief.filter(|belief| belief.token.is_some()) else { return };
        let permit = place.permits.iter().find(|permit| permit.token == belief.token);
        let permitted_until = permit.map_or(Moment::ORIGIN, |permit| permit.until);
        if belief.until > permitted_until + span(1_000) {
            let what = format!(
                "{} believes in {:?} until {:?}, its answers permit {permitted_until:?}",
                place.name, belief.token, belief.until
            );
            self.judge.broken(Promise::P4, self.now, what);
        }
    }

    fn judge_rivals(&mut self, party: usize) {
        let now = self.now;
        let unchecked = self.subject.flaw() == Some(Flaw::WorkOutlivesLease);
        let rival = (0..self.parties.len()).filter(|other| *other != party).find(|&other| {
            let other = &self.parties[other];
            other.may_act(now) || unchecked && other.works_unchecked(now)
        });
        if let Some(rival) = rival {
            let tell = |party: usize| {
                let place = &self.parties[party];
                format!("{}{} ({:?})", place.name, place.life, place.belief.map(|b| b.token))
            };
            let what = format!("{} and {} lead at once", tell(party), tell(rival));
            self.judge.broken(Promise::P1, now, what);
        }
    }

    // ------------------------------------------------------------------ work under a term

    fn told(&mut self, party: usize, kind: EventKind) {
        self.note_party(party, || format!("tells {kind:?}"));
        match kind {
            EventKind::Acquired { .. } if self.case.runs_jobs() => {}
            EventKind::Acquired { .. } => {
                let delay = self.random.below(10 * MILLISECOND);
                if self.random.percent(90) {
                    self.plan_work(party, delay, true);
                }
            }
            EventKind::StopWork { token, reason, .. } => {
                self.judge_stepping_down(party, token, &reason);
                self.stop_work(party);
            }
            EventKind::Overrun { .. } if self.random.percent(60) => {
                self.plan_work(party, 0, false);
            }
            EventKind::Lost { reason, .. } => self.work_lost(party, &reason),
            _ => {}
        }
    }

    fn work_lost(&mut self, party: usize, reason: &Reason) {
        self.judge_deposed(party, reason);
        self.parties[party].work.was_lost |= matches!(reason, Reason::Lost(_));
        match self.parties[party].work.runs_under {
            Some(_) => self.stop_work(party),
            None => self.parties[party].work.plan += 1,
        }
        let is_given_up = matches!(reason, Reason::Resigned | Reason::AskedToResign(_));
        if is_given_up && self.now >= self.settled_at {
            // The term counts as begun already; its successor is the next one.
            let terms = self.judge.terms();
            let within = match self.pause_left() {
                0 => self.successor_due_within(),
                left => left + self.leader_due_within(),
            };
            self.after(within, Event::SuccessorDue { terms, within });
        }
    }

    pub(crate) fn stop_work(&mut self, party: usize) {
        self.parties[party].work.is_told_to_stop = true;
        let delay = self.time_to_stop(party);
        self.plan_work(party, delay, false);
    }

    /// Work stops quickly, or late, or not before it is cut off.
    fn time_to_stop(&mut self, party: usize) -> u64 {
        let grace = self.parties[party].timing.stop_grace().as_nanos() as u64;
        if self.is_healed() {
            self.random.below(20 * MILLISECOND)
        } else if self.random.percent(self.climate.stubborn_percent) {
            self.random.share(grace, 500, 8_000)
        } else {
            self.random.share(grace, 0, 600)
        }
    }

    pub(crate) fn plan_work(&mut self, party: usize, delay: u64, running: bool) {
        let place = &mut self.parties[party];
        place.work.plan += 1;
        let (life, plan) = (place.life, place.work.plan);
        self.after(delay, Event::Work { party, life, plan, running });
    }

    pub(crate) fn work(&mut self, party: usize, plan: u32, running: bool) {
        let (now, place) = (self.now, &mut self.parties[party]);
        if place.work.plan != plan {
            return;
        }
        match (running, place.belief) {
            (true, Some(belief)) => {
                place.work.runs_under = Some(belief.token);
                place.work.believed_until = belief.until;
                place.work.was_lost = false;
                place.work.is_told_to_stop = false;
            }
            (true, None) => return,
            (false, _) => place.work.runs_under = None,
        }
        let life = place.life;
        if self.case.runs_jobs() && !running {
            self.work_of_job_ended(party);
        }
        self.note_party(party, || if running { "work begins" } else { "work has ended" });
        match self.parties[party].is_held(now) {
            true => self.parties[party].held.push(Event::WorkHeard { party, life }),
            false => self.work_heard(party),
        }
    }

    pub(crate) fn work_heard(&mut self, party: usize) {
        let local = self.parties[party].local(self.now);
        let running = self.parties[party].work.runs_under.is_some();
        self.parties[party].algorithm.work(local, running);
        self.settle(party);
    }

    // ------------------------------------------------------------------ other inputs

    pub(crate) fn deliver_hint(&mut self, party: usize, line: usize, hint: Hint) {
        let counted = match &mut self.parties[party].hints {
            Some(count) => count.hear(line, hint),
            None => Some(hint),
        };
        let Some(hint) = counted else { return };
        let local = self.parties[party].local(self.now);
        self.note_party(party, || format!("hint {hint:?}"));
        self.parties[party].algorithm.hint(local, hint);
        self.settle(party);
    }

    pub(crate) fn want(&mut self, party: usize, want: Want) {
        let (now, place) = (self.now, &mut self.parties[party]);
        if want == Want::Beat {
            let (life, every) = (place.life, self.climate.lease / 4);
            self.after(every, Event::Want { party, life, want });
            if now < self.parties[party].beats_fail_until {
                return;
            }
        } else {
            self.note_party(party, || format!("wants {want:?}"));
        }
        let local = self.parties[party].local(now);
        self.parties[party].algorithm.want(local, want);
        self.settle(party);
    }

    /// A stopped process goes on: its first check comes before anything else it hears.
    pub(crate) fn resumed(&mut self, party: usize) {
        if self.parties[party].is_held(self.now) {
            return;
        }
        self.note_party(party, || "goes on");
        self.judge_deadline(party);
        self.look_at_work(party);
        // Everything that waited is there at once, in no particular order.
        for event in std::mem::take(&mut self.parties[party].held) {
            let delay = self.random.below(2 * MILLISECOND);
            self.after(delay, event);
        }
    }

    /// A driver looks whether work runs before it looks at anything else: see `Entry::advance`.
    fn look_at_work(&mut self, party: usize) {
        let held = &mut self.parties[party].held;
        let before = held.len();
        held.retain(|event| !matches!(event, Event::WorkHeard { .. }));
        if held.len() < before {
            self.work_heard(party);
        }
    }

    pub(crate) fn thawed(&mut self, party: usize, off_ppm: i64) {
        self.parties[party].clock.set_rate(self.now, off_ppm);
        self.after(0, Event::Resumed { party });
        // Timers could not be set on a clock that stood still.
        let local = self.parties[party].local(self.now);
        if self.parties[party].is_alive {
            self.look_at_work(party);
            self.parties[party].algorithm.wake(local);
            self.settle(party);
        }
    }
}
