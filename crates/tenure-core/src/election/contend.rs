//! Standing by and trying: when to ask for the resource, and what to make of the answer.

use std::time::Duration;

use crate::protocol::{Acquire, Answer, Ballot, Hint, Outcome, Request, View};
use crate::{Contest, EventKind, InstanceId, Moment, Reason, Role, StoreError};

use super::farewell::Farewell;
use super::{Election, LeaseAsk, Stage, rank};

/// The longest time between two looks, in leases: the net under timers and hints.
const LOOK_LEASES_MAX: u32 = 2;
/// The store ends a lease on a whole millisecond: looking at the very one finds it still there.
const EXPIRY_GRAIN: Duration = Duration::from_millis(1);

/// An instance without a term.
#[derive(Debug)]
pub(super) struct Contending {
    /// When to ask next.
    pub(super) tries_at: Moment,
    /// When the last attempt went out.
    tried_at: Option<Moment>,
    /// When to ask at the latest, whatever hints say: anyone may publish them.
    tries_by: Moment,
    /// The resource was said to be free while an attempt was under way.
    freed_meanwhile: bool,
    /// Whoever gave the resource up lets the others go first, whatever it hears of its own release.
    holds_back_until: Moment,
    /// Until then nobody is granted a term, by the store's own word.
    quarantined_until: Moment,
}

impl Contending {
    pub(super) fn from(tries_at: Moment) -> Self {
        let holds_back_until = Moment::ORIGIN;
        Contending {
            tries_at,
            tried_at: None,
            tries_by: Moment::NEVER,
            freed_meanwhile: false,
            holds_back_until,
            quarantined_until: Moment::ORIGIN,
        }
    }

    pub(super) fn holding_back(self, until: Moment) -> Self {
        Contending { holds_back_until: until, ..self }
    }
}

impl Election {
    pub(super) fn contend(&mut self, now: Moment) {
        if self.wishes.stops {
            return self.stop_contending(now);
        }
        if let Some(reason) = self.stands_back() {
            return self.keep_out(now, reason);
        }
        let Stage::Contending(contending) = &self.stage else { return };
        if self.lease_ask.is_none() && contending.tries_at <= now {
            self.try_to_acquire(now);
        }
    }

    fn keep_out(&mut self, now: Moment, reason: Reason) {
        if self.lease_ask.is_some() {
            return;
        }
        if self.attempt_is_open {
            return self.part_with(now, Farewell::abandon(self.attempt));
        }
        if self.role != Role::Unknown {
            self.become_role(now, Role::Standby, reason);
        }
    }

    /// A heartbeat came through: the store is there, even for one that does not contend.
    pub(super) fn settle_beat(&mut self, now: Moment, reply: Result<Answer, StoreError>) {
        let reached = reply.is_ok() && matches!(self.stage, Stage::Contending(_));
        if let (true, Role::Unknown, Some(reason)) = (reached, self.role, self.stands_back()) {
            self.become_role(now, Role::Standby, reason);
        }
        self.consider_failback(now, reply);
    }

    pub(super) fn contend_wakes_at(&self, contending: &Contending) -> Moment {
        match self.lease_ask.is_some() || self.stands_back().is_some() {
            true => Moment::NEVER,
            false => contending.tries_at,
        }
    }

    /// Why this instance does not contend although it takes part.
    pub(super) fn stands_back(&self) -> Option<Reason> {
        if self.wishes.stalled {
            Some(Reason::WorkStalled)
        } else if !self.wishes.ready {
            Some(Reason::NotReady)
        } else if self.wishes.stands_back {
            Some(Reason::StandsBack)
        } else {
            None
        }
    }

    fn try_to_acquire(&mut self, now: Moment) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.tried_at = Some(now);
        contending.freed_meanwhile = false;
        if !std::mem::replace(&mut self.attempt_is_open, true) {
            self.attempt += 1;
        }
        if self.role == Role::Standby {
            self.become_role(now, Role::Candidate, Reason::LooksFree);
        }
        self.beats_at = now + self.beat_every();
        let request = Request::Acquire(Acquire {
            attempt: self.attempt,
            ttl: self.settings.timing.ttl(),
            fleet_max_ttl: self.settings.timing.fleet_max_ttl(),
            floor: self.floor,
            fresh_store: self.settings.fresh_store,
            // For one store by itself; a mode that promises more takes it back on the way.
            age_counts: true,
            lock_delay: self.settings.lock_delay,
            heal: self.endless_holder(now),
            record: self.record(),
            members: self.wants_members(now),
            ballot: Ballot::Alone,
        });
        let timeout = self.settings.timing.try_timeout();
        self.ask_about_lease(now, LeaseAsk::Acquire, request, timeout);
    }

    /// A holder that kept a key without expiry for longer than any lease is not there any more.
    fn endless_holder(&self, now: Moment) -> Option<InstanceId> {
        let (holder, since) = self.seen.endless.as_ref()?;
        let longest = self.settings.timing.fleet_max_ttl() * 101 / 100 + Duration::from_millis(2);
        (now.since(*since) > longest).then(|| holder.clone())
    }

    pub(super) fn settle_acquire(
        &mut self,
        now: Moment,
        sent_at: Moment,
        reply: Result<Answer, StoreError>,
    ) {
        if !matches!(self.stage, Stage::Contending(_)) {
            return; // An abandon has overtaken it; its own answer settles the attempt.
        }
        let answer = match reply {
            Ok(answer) => answer,
            Err(error) => return self.fail_attempt(now, error),
        };
        // Losing a contest again and again asks for more distance, as failing does.
        if !matches!(answer.outcome, Outcome::Contested { .. }) {
            self.failures = 0;
        }
        let wait = match answer.outcome {
            Outcome::Granted { token } => {
                self.attempt_is_open = false;
                let pttl = answer.view.pttl.unwrap_or(self.settings.timing.ttl());
                let ends_at = self.settings.timing.ends_at(sent_at, pttl);
                return self.take_office(now, token, ends_at, answer.view.partial);
            }
            outcome => self.wait_after(now, outcome, &answer.view),
        };
        self.attempt_is_open = false;
        let Wait { reason, tries_at } = wait;
        self.stand_by(now, Role::Standby, reason, tries_at);
    }

    /// How long a definite no keeps this instance waiting.
    fn wait_after(&mut self, now: Moment, outcome: Outcome, view: &View) -> Wait {
        let freed_meanwhile =
            matches!(&self.stage, Stage::Contending(contending) if contending.freed_meanwhile);
        let ttl = self.settings.timing.ttl();
        if let Stage::Contending(contending) = &mut self.stage {
            contending.quarantined_until = match &outcome {
                Outcome::Quarantine { left, .. } => now + *left,
                _ => Moment::ORIGIN,
            };
        }
        let (reason, left) = match outcome {
            Outcome::Held if freed_meanwhile => (self.held_by(view), self.seen.step()),
            Outcome::Held => {
                (self.held_by(view), view.pttl.map_or(ttl, |left| left + EXPIRY_GRAIN))
            }
            Outcome::Quarantine { left, reason } => {
                (Reason::Quarantine { left, why: reason }, left + EXPIRY_GRAIN)
            }
            Outcome::Reserved { left } => (Reason::Reserved(left), left + EXPIRY_GRAIN),
            Outcome::Delayed { left } => (Reason::LockDelay(left), left + EXPIRY_GRAIN),
            Outcome::Paused { left } => (Reason::Paused, left + EXPIRY_GRAIN),
            Outcome::Contested { why } => {
                (Reason::Store(StoreError::not_now(why)), self.back_off())
            }
            Outcome::AttemptRefused => (Reason::AttemptRefused, Duration::ZERO),
            Outcome::Conflict { what } => (Reason::Conflict(what), ttl),
            other => {
                (Reason::Store(StoreError::unexpected(format!("{other:?} to an acquire"))), ttl)
            }
        };
        Wait { reason, tries_at: now + left.min(ttl * LOOK_LEASES_MAX) + self.head_start() }
    }

    fn held_by(&self, view: &View) -> Reason {
        Reason::HeldBy(view.holder.clone().unwrap_or_else(|| InstanceId::seen("")))
    }

    /// The attempt may have been carried out: it stays open, and the next try repeats it.
    fn fail_attempt(&mut self, now: Moment, error: StoreError) {
        let wait = self.back_off();
        self.stand_by(now, Role::Unknown, Reason::Store(error), now + wait);
    }

    fn stand_by(&mut self, now: Moment, role: Role, reason: Reason, tries_at: Moment) {
        let look_max = self.settings.timing.ttl() * LOOK_LEASES_MAX;
        if let Stage::Contending(contending) = &mut self.stage {
            contending.tries_at = tries_at;
            contending.tries_by = tries_at.max(now + look_max);
        }
        self.become_role(now, role, reason.clone());
        self.tell(now, EventKind::ElectionFailed { reason });
        if self.settings.contest == Contest::OneShot {
            self.wishes.stops = true;
        }
    }

    /// Full jitter, doubling from one step to half a lease.
    pub(super) fn back_off(&mut self) -> Duration {
        let longest = self.settings.timing.ttl() / 2;
        let window = self.seen.step().saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        self.random.below(window)
    }

    /// How long this instance holds back once the resource is free, so that one tries, not all.
    pub(super) fn head_start(&mut self) -> Duration {
        let step = self.seen.step();
        let rank = self.rank();
        // Whoever knows that nobody goes before it has nobody to keep out of the way of. Without a
        // list all would take themselves for the first: then jitter has to tell them apart.
        let is_listed = self.seen.members.iter().any(|member| member.id == self.settings.id);
        match (rank, is_listed) {
            (0, true) => Duration::ZERO,
            _ => rank::head_start(rank, step) + self.random.below(step),
        }
    }

    /// How many go before this instance, as far as it knows.
    pub(super) fn rank(&self) -> u32 {
        rank::rank(
            &self.seen.members,
            self.seen.members_listed_at,
            &self.settings.id,
            self.settings.priority,
            self.seen.last_holder.as_ref(),
        )
    }

    pub(super) fn rearm_by_hint(&mut self, now: Moment, hint: Hint) {
        if let Stage::Parting(farewell) = &mut self.stage {
            // It may overtake the answer to the farewell: a successor may have given way by then.
            return farewell.keep_hint(hint);
        }
        let mut is_named = false;
        let wait = match hint {
            Hint::Released { .. } | Hint::PauseChanged => self.head_start(),
            Hint::Transferred { to, .. } if to == self.settings.id => {
                is_named = true;
                Duration::ZERO
            }
            Hint::Transferred { claim_ttl, .. } => return self.rearm_later(now, claim_ttl),
            Hint::Granted { ttl, id, .. } if id != self.settings.id => {
                self.stop_holding_back();
                return self.rearm_later(now, ttl);
            }
            _ => return,
        };
        let step = self.seen.step();
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.freed_meanwhile = true;
        // A flood of hints, forged or not, costs at most one request per step.
        let mut earliest = contending.tried_at.map_or(now, |tried_at| tried_at + step);
        if !is_named {
            earliest = earliest.max(contending.holds_back_until);
        }
        contending.tries_at = contending.tries_at.min((now + wait).max(earliest));
    }

    /// Somebody went first: the next time all are equal again.
    fn stop_holding_back(&mut self) {
        if let Stage::Contending(contending) = &mut self.stage {
            contending.holds_back_until = Moment::ORIGIN;
        }
    }

    /// Somebody was granted the resource: no use in trying before that lease ends. Whoever hears so
    /// again and again looks all the same, for anyone may say it; and whoever knows from the store
    /// that nobody can be granted it yet does not believe it.
    fn rearm_later(&mut self, now: Moment, lease: Duration) {
        let ttl = self.settings.timing.ttl();
        let tries_at = now + lease.min(ttl) + EXPIRY_GRAIN + self.head_start();
        let Stage::Contending(contending) = &mut self.stage else { return };
        if now < contending.quarantined_until {
            return;
        }
        if contending.tries_by == Moment::NEVER {
            contending.tries_by = now + ttl * LOOK_LEASES_MAX;
        }
        contending.freed_meanwhile = false;
        if self.role == Role::Standby {
            contending.tries_at = tries_at.min(contending.tries_by);
        }
    }

    fn stop_contending(&mut self, now: Moment) {
        if self.attempt_is_open {
            // Whatever is under way may still be granted: undo it and refuse it from now on.
            self.lease_ask = None;
            let attempt = self.attempt;
            return self.part_with(now, Farewell::abandon(attempt));
        }
        self.take_leave(now, self.last_words());
    }
}

struct Wait {
    reason: Reason,
    tries_at: Moment,
}
