//! After a term or an open attempt: telling the store, as soon as it answers.
//!
//! A renewal or an acquire may still be on its way when its term is closed. The farewell names
//! exactly that term or attempt, so that a late one never leaves a key that nobody leads by.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::{Answer, CloseReason, Hint, Outcome, Request};
use crate::{
    Contest, EventKind, InstanceId, Moment, Reason, Role, StoreError, StoreErrorKind, Token,
};

use super::contend::Contending;
use super::rank::HEAD_START_MAX;
use super::{Election, HandOver, LeaseAsk, SideAsk, Source, Stage};

/// How long leaving may take beyond the lease, in tries: an unreachable store must not hold it up.
const LAST_TRIES: u32 = 2;

/// How long whoever holds nothing waits for its last words to be heard: nothing depends on them,
/// and what is on its way arrives without it.
const LAST_WORDS_MAX: Duration = Duration::from_millis(300);
/// How long whoever leaves waits for its first word to be answered. It may have gone out on a
/// connection that is dead: then it is said again on another, while somebody still waits for that.
const FIRST_WORD_MAX: Duration = Duration::from_millis(500);
/// The longest pause before whoever leaves says it again.
const AGAIN_MAX: Duration = Duration::from_millis(100);
/// How many hints are kept while the store is being told; the oldest is forgotten first.
const HINTS_KEPT_MAX: usize = 8;

/// What the store must still be told.
#[derive(Debug)]
pub(super) struct Farewell {
    word: FarewellRequest,
    sends_at: Moment,
    /// Whether it was said before, and not answered.
    was_said: bool,
    /// When a leaver gives up on a store that does not answer.
    gives_up_at: Option<Moment>,
    /// The term whose work outlived it, and when that has to be told.
    left_behind: Option<(Token, Moment)>,
    /// What was heard meanwhile: it counts once this instance contends again.
    hints: VecDeque<Hint>,
}

#[derive(Clone, Debug)]
enum FarewellRequest {
    Release {
        token: Token,
        reason: CloseReason,
    },
    Transfer {
        token: Token,
        to: InstanceId,
        /// Which request of the application this answers.
        request: HandOver,
        /// From then on the lease is over for everybody, and nothing is left to be transferred.
        until: Moment,
    },
    Abandon {
        attempt: u64,
    },
    /// Nothing; only the work of the lost term is waited for.
    Nothing,
}

impl Farewell {
    pub(super) fn release(token: Token, reason: CloseReason) -> Self {
        Self::of(FarewellRequest::Release { token, reason })
    }

    pub(super) fn transfer(token: Token, to: InstanceId, request: HandOver, until: Moment) -> Self {
        Self::of(FarewellRequest::Transfer { token, to, request, until })
    }

    pub(super) fn abandon(attempt: u64) -> Self {
        Self::of(FarewellRequest::Abandon { attempt })
    }

    pub(super) fn nothing() -> Self {
        Self::of(FarewellRequest::Nothing)
    }

    fn of(word: FarewellRequest) -> Self {
        Farewell {
            word,
            sends_at: Moment::ORIGIN,
            was_said: false,
            gives_up_at: None,
            left_behind: None,
            hints: VecDeque::new(),
        }
    }

    pub(super) fn watching(self, left_behind: Option<(Token, Moment)>) -> Self {
        Farewell { left_behind, ..self }
    }

    pub(super) fn keep_hint(&mut self, hint: Hint) {
        if self.hints.len() == HINTS_KEPT_MAX {
            self.hints.pop_front();
        }
        self.hints.push_back(hint);
    }
}

/// Taking leave of the members, the last thing an instance does.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) gives_up_at: Moment,
}

impl Election {
    pub(super) fn part_with(&mut self, now: Moment, farewell: Farewell) {
        self.stage = Stage::Parting(Box::new(farewell));
        self.part(now);
    }

    pub(super) fn part(&mut self, now: Moment) {
        self.tell_of_work_left_behind(now);
        let try_timeout = self.settings.timing.try_timeout();
        let last_words = self.last_words();
        let Stage::Parting(farewell) = &mut self.stage else { return };
        if self.wishes.stops {
            let patience = match (&farewell.word, self.settings.contest) {
                (FarewellRequest::Abandon { .. }, Contest::Lasting) => last_words,
                // Others give up when they see what a single try may have left behind.
                _ => try_timeout * LAST_TRIES,
            };
            let gives_up_at = *farewell.gives_up_at.get_or_insert(now + patience);
            if now >= gives_up_at {
                self.lease_ask = None;
                self.give_transfer_up(now, "the store did not answer before this instance stopped");
                // Whoever did not hear the one word will not hear the other.
                return self.take_leave(now, Duration::ZERO);
            }
        }
        if self.lease_ask.is_some() || now < farewell.sends_at {
            return;
        }
        // While work of the closed term is still there, nobody else is let in early. An abandoned
        // attempt never had work.
        let waits_for_work =
            self.wishes.work_runs && !matches!(farewell.word, FarewellRequest::Abandon { .. });
        if waits_for_work {
            return;
        }
        let request = match farewell.word.clone() {
            FarewellRequest::Release { token, reason } => Request::Release { token, reason },
            FarewellRequest::Abandon { attempt } => Request::Abandon { attempt },
            FarewellRequest::Transfer { token, to, .. } => {
                Request::Transfer { token, to, claim_ttl: self.settings.claim_ttl() }
            }
            FarewellRequest::Nothing => return self.contend_after(now, Duration::ZERO),
        };
        let is_first = !std::mem::replace(&mut farewell.was_said, true);
        let timeout = match self.wishes.stops && is_first {
            true => try_timeout.min(FIRST_WORD_MAX),
            false => try_timeout,
        };
        self.ask_about_lease(now, LeaseAsk::Farewell, request, timeout);
    }

    fn tell_of_work_left_behind(&mut self, now: Moment) {
        let Stage::Parting(farewell) = &mut self.stage else { return };
        let is_due = |(_, at): &mut (Token, Moment)| *at <= now;
        let due = farewell.left_behind.take_if(is_due).filter(|_| self.wishes.work_runs);
        if let Some((token, _)) = due {
            self.tell(now, EventKind::Overrun { token });
        }
    }

    pub(super) fn part_wakes_at(&self, farewell: &Farewell) -> Moment {
        let gives_up_at = farewell.gives_up_at.unwrap_or(Moment::NEVER);
        let tells_at = farewell.left_behind.map_or(Moment::NEVER, |(_, at)| at);
        match self.lease_ask.is_some() || self.wishes.work_runs {
            true if self.wishes.work_runs => gives_up_at.min(tells_at),
            true => gives_up_at,
            false => farewell.sends_at.min(gives_up_at),
        }
    }

    pub(super) fn settle_farewell(&mut self, now: Moment, reply: Result<Answer, StoreError>) {
        if !matches!(self.stage, Stage::Parting(_)) {
            return;
        }
        let answer = match reply {
            Ok(answer) => answer,
            Err(error) => return self.repeat_farewell(now, error),
        };
        self.failures = 0;
        let Stage::Parting(farewell) = &self.stage else { return };
        let wait = match (&farewell.word, answer.outcome) {
            (FarewellRequest::Transfer { token, to, request, .. }, Outcome::Transferred { .. }) => {
                let (token, to, request) = (*token, to.clone(), *request);
                self.tell(now, EventKind::HandedOver { token, to: to.clone() });
                self.settle_hand_over(request, Ok((token, to)));
                self.settings.claim_ttl()
            }
            (FarewellRequest::Transfer { request, .. }, outcome) => {
                let request = *request;
                self.refuse_hand_over(now, request, format!("the store answered {outcome:?}"));
                Duration::ZERO
            }
            // Whoever gave the resource back lets every rank go before it tries again.
            (FarewellRequest::Release { .. }, _) => HEAD_START_MAX + self.seen.step() * 2,
            _ => Duration::ZERO,
        };
        self.attempt_is_open = false;
        self.contend_after(now, wait);
    }

    fn repeat_farewell(&mut self, now: Moment, error: StoreError) {
        if !error.is_temporary() {
            self.give_transfer_up(now, &error.to_string());
            // Nobody can be told; the lease ends by itself, and every write names its term.
            self.warn(now, Source::Lease, &[error.to_string()]);
            return self.contend_after(now, self.settings.timing.ttl());
        }
        let wait = match self.wishes.stops {
            // Whoever leaves does not come again, so it need not spare the store for long.
            true => self.back_off().min(AGAIN_MAX),
            false => self.back_off(),
        };
        let last_words = self.last_words();
        if let Stage::Parting(farewell) = &mut self.stage {
            farewell.sends_at = now + wait;
            let is_abandoned = matches!(farewell.word, FarewellRequest::Abandon { .. });
            if is_abandoned && error.kind() != StoreErrorKind::TimedOut {
                // The store is gone, and with it what the attempt may have left, as far as known.
                farewell.gives_up_at = farewell.gives_up_at.map(|at| at.min(now + last_words));
            }
            if matches!(farewell.word, FarewellRequest::Transfer { until, .. } if until <= now) {
                self.give_transfer_up(now, &format!("the lease ended first: {error}"));
            }
        }
        if self.role != Role::Stopped {
            self.become_role(now, Role::Unknown, Reason::Store(error));
        }
    }

    /// Nothing is transferred any more; whoever asked for it is told, and the store as soon as it
    /// answers.
    fn give_transfer_up(&mut self, now: Moment, why: &str) {
        let Stage::Parting(farewell) = &mut self.stage else { return };
        let FarewellRequest::Transfer { token, request, .. } = farewell.word else { return };
        farewell.word = FarewellRequest::Release { token, reason: CloseReason::LeaseEnded };
        self.refuse_hand_over(now, request, why.to_owned());
    }

    fn contend_after(&mut self, now: Moment, wait: Duration) {
        self.attempt_is_open = false;
        let tries_at = now + wait + self.head_start();
        let contending = Stage::Contending(Contending::from(tries_at).holding_back(now + wait));
        if let Stage::Parting(farewell) = std::mem::replace(&mut self.stage, contending) {
            farewell.hints.into_iter().for_each(|hint| self.rearm_by_hint(now, hint));
        }
        if self.settings.contest == Contest::OneShot {
            self.wishes.stops = true;
        }
        self.contend(now);
    }

    /// How long to wait for words on which nothing depends.
    pub(super) fn last_words(&self) -> Duration {
        LAST_WORDS_MAX.min(self.settings.timing.try_timeout())
    }

    pub(super) fn take_leave(&mut self, now: Moment, patience: Duration) {
        self.stage = Stage::Leaving(Leaving { gives_up_at: now + patience });
        self.leave(now);
    }

    pub(super) fn leave(&mut self, now: Moment) {
        let Stage::Leaving(leaving) = &self.stage else { return };
        if now >= leaving.gives_up_at {
            return self.finish(now);
        }
        if self.side_ask.is_none() {
            self.ask_beside(now, SideAsk::Leave, Request::Leave);
        }
    }

    pub(super) fn finish(&mut self, now: Moment) {
        if matches!(self.stage, Stage::Leaving(_)) {
            self.stage = Stage::Over;
            let reason = match self.settings.contest {
                Contest::OneShot => Reason::OneShotOver,
                Contest::Lasting => Reason::Stopped,
            };
            self.become_role(now, Role::Stopped, reason);
        }
    }
}
