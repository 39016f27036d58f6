//! Who comes next: wishes of others, hand-overs, and giving way to a higher priority.

use std::time::Duration;

use crate::protocol::{Answer, Member, Request, Wish, WishKind};
use crate::{EventKind, Failback, InstanceId, Moment, Reason, ServerTime, StoreError, Token};

use super::{Election, HandOver, SideAsk, Stage, rank};

/// Why the members are being looked at before a hand-over.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// The application wants it; `None` is the best there is.
    Own { request: HandOver, to: Option<String> },
    /// Somebody else asked for it.
    Wish { to: String },
}

/// Why nobody can be handed the leadership while an operator has paused the election: the term
/// would end, and no other could begin.
const PAUSED: &str = "the election is paused, so nobody could take over: resume it first";

/// How many hand-overs of the application are checked at once.
const CHECKS_MAX: usize = 64;

impl Election {
    /// A message says that a wish waits: the next renewal brings it, so renew now.
    pub(super) fn look_for_wish(&mut self, now: Moment, token: Token) {
        let step = self.seen.step();
        let renew_every = self.settings.timing.renew_every();
        let Stage::Leading(term) = &mut self.stage else { return };
        if term.token == token {
            // A flood of hints costs at most one renewal per step.
            let renewed_at = term.renews_at - renew_every;
            term.renews_at = term.renews_at.min(now.max(renewed_at + step));
        }
    }

    pub(super) fn consider_wish(
        &mut self,
        now: Moment,
        token: Token,
        wish: Wish,
        server_time: ServerTime,
    ) {
        let stands =
            wish.token == Some(token) && wish.refused.is_none() && wish.until > server_time;
        if !stands {
            return;
        }
        match wish.kind {
            WishKind::Resign => self.yield_term(now, Reason::AskedToResign(wish.by), None),
            WishKind::HandOver { to } => self.check_hand_over(now, Check::Wish { to }),
        }
    }

    pub(super) fn check_hand_over(&mut self, now: Moment, check: Check) {
        match self.term() {
            Some(term) if term.is_yielding() => self.refuse(now, check, "already stepping down"),
            None => self.refuse(now, check, "not leading"),
            Some(_) => self.ask_for_members(now, check),
        }
    }

    /// A check under way serves all who come meanwhile, and a wish comes back with the next renewal
    /// anyway. A heartbeat under way is not worth waiting for.
    fn ask_for_members(&mut self, now: Moment, check: Check) {
        if let Some(pending) = &mut self.side_ask
            && let SideAsk::Check(checks) = &mut pending.kind
        {
            match &check {
                Check::Wish { .. } => {}
                Check::Own { .. } if checks.len() < CHECKS_MAX => checks.push(check),
                Check::Own { .. } => self.refuse(now, check, "too many hand-overs at once"),
            }
            return;
        }
        self.side_ask = None;
        self.ask_beside(now, SideAsk::Check(vec![check]), Request::Observe { members: true });
    }

    /// Each check has an outcome of its own. The application's come before a wish of others.
    pub(super) fn settle_checks(
        &mut self,
        now: Moment,
        mut checks: Vec<Check>,
        reply: Result<Answer, StoreError>,
    ) {
        checks.sort_by_key(|check| matches!(check, Check::Wish { .. }));
        let members = match reply.map(|answer| answer.view) {
            Ok(view) if view.paused_for.is_none() => view.members.unwrap_or_default(),
            Ok(_) => return self.refuse_all(now, checks, PAUSED),
            Err(error) => return self.refuse_all(now, checks, &error.to_string()),
        };
        for check in checks {
            match self.successor(&check, &members) {
                Ok(successor) => self.yield_to(now, check, successor),
                Err(why) => self.refuse(now, check, &why),
            }
        }
    }

    fn successor(&self, check: &Check, members: &[Member]) -> Result<InstanceId, String> {
        let (me, version) = (&self.settings.id, &self.settings.version);
        let server_time = self.seen.members_listed_at;
        match check {
            Check::Own { to: Some(to), .. } | Check::Wish { to } => {
                rank::named_successor(members, server_time, me, version, to)
            }
            Check::Own { to: None, .. } => rank::best_successor(members, server_time, me, version)
                .ok_or_else(|| "no other member is ready to take over".to_owned()),
        }
    }

    fn yield_to(&mut self, now: Moment, check: Check, successor: InstanceId) {
        match (self.term(), &check) {
            // Whoever wished for it sees who leads next; it may even be the same.
            (Some(term), Check::Wish { .. }) if term.is_yielding() => {}
            (Some(term), Check::Own { .. }) if term.is_yielding() => {
                self.refuse(now, check, "already stepping down");
            }
            (Some(_), Check::Own { request, .. }) => {
                let request = *request;
                self.yield_term(now, Reason::HandOver(successor.clone()), Some(successor));
                self.answer_on_transfer(request);
            }
            (Some(_), Check::Wish { .. }) => {
                self.yield_term(now, Reason::HandOver(successor.clone()), Some(successor));
            }
            (None, _) => self.refuse(now, check, "not leading any more"),
        }
    }

    fn refuse_all(&mut self, now: Moment, checks: Vec<Check>, why: &str) {
        checks.into_iter().for_each(|check| self.refuse(now, check, why));
    }

    fn refuse(&mut self, now: Moment, check: Check, why: &str) {
        match (check, self.term().map(|term| term.token)) {
            (Check::Own { request, .. }, _) => self.refuse_hand_over(now, request, why.to_owned()),
            (Check::Wish { .. }, Some(token)) if self.side_ask.is_none() => {
                let request = Request::Refuse { token, reason: why.to_owned() };
                self.ask_beside(now, SideAsk::Refuse, request);
            }
            // Without a term there is nobody to refuse; with a request under way the wish comes
            // back with the next renewal.
            (Check::Wish { .. }, _) => {}
        }
    }

    pub(super) fn refuse_hand_over(&mut self, now: Moment, request: HandOver, why: String) {
        self.tell(now, EventKind::HandOverRefused { why: why.clone() });
        self.settle_hand_over(request, Err(why));
    }

    /// A leader's heartbeat brought the members: perhaps one of them should lead instead.
    pub(super) fn consider_failback(&mut self, now: Moment, reply: Result<Answer, StoreError>) {
        let (Some(failback), Ok(answer)) = (self.settings.failback, reply) else { return };
        let Some(members) = answer.view.members else { return };
        if answer.view.paused_for.is_some()
            || self.term().is_none_or(|term| term.is_yielding())
            || self.tenure(now) < failback.min_tenure
        {
            return;
        }
        let target = rank::failback_target(
            &members,
            answer.view.server_time,
            self.settings.priority,
            &self.settings.version,
            self.failback_delay(failback),
        );
        if let Some(successor) = target {
            self.failbacks = self.failbacks.saturating_add(1);
            self.failed_back_at = now;
            self.yield_term(now, Reason::Failback(successor.clone()), Some(successor));
        }
    }

    /// Doubles each time the other did not last, so that a flapping node is tried less and less.
    fn failback_delay(&self, failback: Failback) -> Duration {
        let factor = 1u32 << self.failbacks.min(16);
        failback.delay.saturating_mul(factor).min(Failback::DELAY_MAX.max(failback.delay))
    }
}
