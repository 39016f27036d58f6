//! Holding a term: renewing it, stopping work in time, and closing it.

use std::time::Duration;

use crate::protocol::{Answer, Outcome, Request};
use crate::{
    EventKind, Failback, InstanceId, Moment, Reason, Role, StoreError, StoreErrorKind, Token,
};

use super::farewell::Farewell;
use super::{Election, HandOver, LeaseAsk, Source, Stage};

/// How many steps after a grant that some nodes do not hold it is renewed: a rival has released
/// by then what it got.
const EARLY_STEPS: u32 = 4;

/// An open term.
#[derive(Debug)]
pub(super) struct Term {
    pub(super) token: Token,
    /// May be acted on until then.
    pub(super) ends_at: Moment,
    /// When the next renewal goes out.
    pub(super) renews_at: Moment,
    pub(super) began_at: Moment,
    /// Set once work was told to stop: the term will not be renewed any more.
    yielding: Option<Box<Yielding>>,
    overrun_told: bool,
    /// How many answers in a row told of nodes that do not hold it.
    partial: u32,
}

#[derive(Debug)]
struct Yielding {
    /// When work is cut off.
    by: Moment,
    reason: Reason,
    successor: Option<InstanceId>,
    /// Which request of the application this answers, if any.
    request: HandOver,
}

impl Term {
    pub(super) fn is_yielding(&self) -> bool {
        self.yielding.is_some()
    }
}

impl Election {
    /// Begins the granted term, unless so little of it is left that work could not even stop.
    pub(super) fn take_office(
        &mut self,
        now: Moment,
        token: Token,
        ends_at: Moment,
        is_partial: bool,
    ) {
        if let Some(reason) = self.declines(now, ends_at) {
            self.tell(now, EventKind::ElectionFailed { reason: reason.clone() });
            return self.part_with(now, Farewell::release(token, reason.close_reason()));
        }
        if now.since(self.failed_back_at) >= Failback::DELAY_MAX {
            self.failbacks = 0;
        }
        self.wishes.work_runs = false;
        self.wishes.beaten_at = now;
        let renews_at = now + self.settings.timing.renew_every();
        self.stage = Stage::Leading(Term {
            token,
            ends_at,
            renews_at,
            began_at: now,
            yielding: None,
            overrun_told: false,
            partial: 0,
        });
        self.renew_early(now, is_partial);
        self.beats_at = now + self.beat_every();
        self.become_role(now, Role::Leader, Reason::Granted);
        self.tell(now, EventKind::Acquired { token, ends_at });
    }

    /// Why a grant is released unused.
    fn declines(&self, now: Moment, ends_at: Moment) -> Option<Reason> {
        if self.wishes.stops {
            Some(Reason::Stopped)
        } else if now >= self.settings.timing.stop_at(ends_at) {
            Some(Reason::GrantTooLate)
        } else {
            self.stands_back()
        }
    }

    pub(super) fn lead(&mut self, now: Moment) {
        self.check_work_beat(now);
        let Stage::Leading(term) = &self.stage else { return };
        if let Some(yielding) = &term.yielding {
            if !self.wishes.work_runs {
                let (reason, to) = (yielding.reason.clone(), yielding.successor.clone());
                return self.close_term(now, reason, to);
            }
            return;
        }
        if term.renews_at <= now && self.lease_ask.is_none() {
            self.renew(now);
        }
    }

    pub(super) fn lead_wakes_at(&self, term: &Term) -> Moment {
        let timing = &self.settings.timing;
        let mut wakes_at = term.ends_at;
        match &term.yielding {
            Some(yielding) if !term.overrun_told => wakes_at = wakes_at.min(yielding.by),
            Some(_) => {}
            None => {
                if self.lease_ask.is_none() {
                    wakes_at = wakes_at.min(term.renews_at);
                }
                if self.wishes.work_runs {
                    wakes_at = wakes_at.min(timing.stop_at(term.ends_at));
                }
                if let Some(limit) = self.settings.require_beat {
                    wakes_at = wakes_at.min(self.wishes.beaten_at + limit);
                }
            }
        }
        wakes_at
    }

    fn renew(&mut self, now: Moment) {
        let Stage::Leading(term) = &mut self.stage else { return };
        let timing = &self.settings.timing;
        let timeout = timing.try_timeout().min(now.until(term.ends_at));
        let request = Request::Renew {
            token: term.token,
            ttl: timing.ttl(),
            fleet_max_ttl: timing.fleet_max_ttl(),
        };
        term.renews_at = now + timing.renew_every();
        self.ask_about_lease(now, LeaseAsk::Renew, request, timeout);
    }

    pub(super) fn settle_renewal(
        &mut self,
        now: Moment,
        sent_at: Moment,
        reply: Result<Answer, StoreError>,
    ) {
        let Stage::Leading(term) = &self.stage else { return };
        let token = term.token;
        match reply {
            Ok(Answer { outcome: Outcome::Renewed, view, .. }) => {
                let pttl = view.pttl.unwrap_or(self.settings.timing.ttl());
                self.extend(now, self.settings.timing.ends_at(sent_at, pttl));
                self.renew_early(now, view.partial);
                if let Some(wish) = view.wish {
                    self.consider_wish(now, token, wish, view.server_time);
                }
            }
            Ok(Answer { outcome: Outcome::Lost(why), .. }) => {
                self.close_lost_term(now, Reason::Lost(why));
            }
            Ok(Answer { outcome, .. }) => {
                let error = StoreError::unexpected(format!("{outcome:?} to a renewal"));
                self.delay_renewal(now, error);
            }
            Err(error) => self.delay_renewal(now, error),
        }
    }

    fn extend(&mut self, now: Moment, ends_at: Moment) {
        let Stage::Leading(term) = &mut self.stage else { return };
        term.ends_at = ends_at;
        let token = term.token;
        self.failures = 0;
        self.tell(now, EventKind::Renewed { token, ends_at });
        if self.role == Role::Suspect {
            self.become_role(now, Role::Leader, Reason::RenewalBack);
        }
        // The answer may itself have come so late that the new deadline has passed.
        self.enforce_deadlines(now, Duration::ZERO);
    }

    /// Until all nodes hold the term, a fault on one that does may let a rival have the others.
    fn renew_early(&mut self, now: Moment, is_partial: bool) {
        let step = self.seen.step();
        let Stage::Leading(term) = &mut self.stage else { return };
        if !is_partial {
            term.partial = 0;
            return;
        }
        // A node may be unable to for long, so that the waits grow up to that of any renewal.
        let wait = (step * EARLY_STEPS).saturating_mul(1 << term.partial.min(16));
        term.partial = term.partial.saturating_add(1);
        term.renews_at = term.renews_at.min(now + wait);
    }

    /// "Not renewed" is not "lost": try again while the lease lasts.
    fn delay_renewal(&mut self, now: Moment, error: StoreError) {
        let wait = self.back_off().min(self.settings.timing.try_timeout() / 2);
        let Stage::Leading(term) = &mut self.stage else { return };
        term.renews_at = now + wait;
        if !term.is_yielding() {
            self.become_role(now, Role::Suspect, Reason::RenewalLate);
        }
        // That a last try was cut short by the end of the lease hides what went wrong before.
        let says_nothing_new = error.kind() == StoreErrorKind::TimedOut;
        if !(says_nothing_new && self.is_warned_of(Source::Renewal)) {
            self.warn(now, Source::Renewal, &[error.to_string()]);
        }
    }

    /// Work that stopped beating must not be kept in office by a healthy renewal loop.
    fn check_work_beat(&mut self, now: Moment) {
        let Some(limit) = self.settings.require_beat else { return };
        if self.term().is_some_and(|term| !term.is_yielding())
            && now.since(self.wishes.beaten_at) >= limit
        {
            self.wishes.stalled = true;
            self.beats_at = now;
            self.yield_term(now, Reason::WorkStalled, None);
        }
    }

    /// Tells work to stop. The term closes when it has, or when its time is up.
    pub(super) fn yield_term(
        &mut self,
        now: Moment,
        reason: Reason,
        successor: Option<InstanceId>,
    ) {
        let timing = self.settings.timing;
        let Stage::Leading(term) = &mut self.stage else { return };
        if term.is_yielding() {
            return;
        }
        let by = (now + timing.stop_grace()).min(timing.kill_at(term.ends_at));
        let token = term.token;
        let request = HandOver::default();
        let yielding = Yielding { by, reason: reason.clone(), successor, request };
        term.yielding = Some(Box::new(yielding));
        self.become_role(now, Role::Yielding, reason.clone());
        self.tell(now, EventKind::StopWork { token, by, reason });
    }

    /// The running term ends because of this request.
    pub(super) fn answer_on_transfer(&mut self, request: HandOver) {
        if let Stage::Leading(term) = &mut self.stage
            && let Some(yielding) = &mut term.yielding
        {
            yielding.request = request;
        }
    }

    /// The request that waits for the end of the term.
    fn hand_over_awaited(&self) -> HandOver {
        let yielding = self.term().and_then(|term| term.yielding.as_ref());
        yielding.map_or(HandOver::default(), |yielding| yielding.request)
    }

    /// The deadlines of the term. What passed while nobody looked, which was for as long as `late`,
    /// happens now: a lease that is over ends, without a call to stop that nobody could follow.
    pub(super) fn enforce_deadlines(&mut self, now: Moment, late: Duration) {
        let timing = self.settings.timing;
        let Some(term) = self.term() else { return };
        let ends_at = term.ends_at;
        if now >= ends_at {
            let (reason, successor) = self.end_of_lease(late);
            return self.close_term(now, reason, successor);
        }
        if !term.is_yielding() && self.wishes.work_runs && now >= timing.stop_at(ends_at) {
            self.yield_term(now, Reason::LeaseEnded, None);
        }
        if let Stage::Leading(term) = &mut self.stage
            && let Some(yielding) = &term.yielding
            && self.wishes.work_runs
            && now >= yielding.by
            && !term.overrun_told
        {
            term.overrun_told = true;
            let token = term.token;
            self.tell(now, EventKind::Overrun { token });
        }
    }

    /// A term that was about to end when its lease ended still ends for that reason.
    fn end_of_lease(&self, late: Duration) -> (Reason, Option<InstanceId>) {
        match self.term().and_then(|term| term.yielding.as_ref()) {
            Some(yielding) => (yielding.reason.clone(), yielding.successor.clone()),
            None if late > self.settings.timing.kill_margin() => (Reason::NotRunning(late), None),
            None => (Reason::LeaseEnded, None),
        }
    }

    fn close_term(&mut self, now: Moment, reason: Reason, successor: Option<InstanceId>) {
        let Some(term) = self.term() else { return };
        let (token, request) = (term.token, self.hand_over_awaited());
        let left_behind = self.work_left_behind(now);
        let farewell = match successor {
            // By the time that its work ends, the lease is over for everybody.
            Some(_) if self.wishes.work_runs => {
                Farewell::release(token, Reason::LeaseEnded.close_reason())
            }
            Some(to) => {
                let transfers_until = now + self.settings.timing.ttl();
                Farewell::transfer(token, to, request, transfers_until)
            }
            None => Farewell::release(token, reason.close_reason()),
        };
        let is_given_up = request != HandOver::default() && self.wishes.work_runs;
        self.end_term(now, token, reason);
        if is_given_up {
            let why = "its work did not end before the lease did: shorten what it does at the end";
            self.refuse_hand_over(now, request, why.to_owned());
        }
        self.part_with(now, farewell.watching(left_behind));
    }

    /// Work that is still there when its term closes, and when that is too long.
    fn work_left_behind(&self, now: Moment) -> Option<(Token, Moment)> {
        let term = self.term().filter(|term| self.wishes.work_runs && !term.overrun_told)?;
        Some((term.token, now + self.settings.timing.kill_margin()))
    }

    /// The store itself said that the term is over: there is nothing left to release.
    fn close_lost_term(&mut self, now: Moment, reason: Reason) {
        let Some(term) = self.term() else { return };
        let (token, request) = (term.token, self.hand_over_awaited());
        let left_behind = self.work_left_behind(now);
        let why = format!("the term was lost meanwhile: {reason}");
        self.end_term(now, token, reason);
        if request != HandOver::default() {
            self.refuse_hand_over(now, request, why);
        }
        self.part_with(now, Farewell::nothing().watching(left_behind));
    }

    /// Closed is closed: from this line on nothing happens in the term's name.
    fn end_term(&mut self, now: Moment, token: Token, reason: Reason) {
        // A renewal under way belongs to a term that is no more; its answer is dropped.
        self.lease_ask = None;
        self.become_role(now, Role::Standby, reason.clone());
        self.tell(now, EventKind::Lost { token, reason });
    }

    pub(super) fn tenure(&self, now: Moment) -> Duration {
        self.term().map_or(Duration::ZERO, |term| now.since(term.began_at))
    }
}
