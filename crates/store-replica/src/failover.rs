//! FAILOVER: the primary hands its role to a replica that has everything.
//!
//! ```text
//! None ─► WaitSync: writes are paused ─ a replica has all ─► InProgress: it is asked ─► None
//!            └── time-out, abort, target gone ─► None           └── refused, abort, or not reached
//!                                                                   in time: primary again ─► None
//! ```

use std::fmt;
use std::time::Duration;

use crate::history::ReplicationId;
use crate::moment::Moment;
use crate::output::{Event, FailoverEvent, Output, SessionId};
use crate::replication::Replication;
use crate::settings::Address;

/// What an operator asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailoverRequest {
    /// Which replica; any that is ready, unless told.
    pub to: Option<Address>,
    /// Whether it takes over when the time is up, whatever it lacks.
    pub is_forced: bool,
    /// How long a replica may take to have everything.
    pub timeout: Option<Duration>,
}

/// Why a FAILOVER did not begin. The text is Redis's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverError {
    /// One runs.
    Running,
    /// None runs that could be aborted.
    NotRunning,
    /// This server is no primary.
    NotPrimary,
    /// Nobody follows.
    NoReplicas,
    /// Nobody with this address follows.
    UnknownTarget,
    /// It follows, but not the stream yet.
    TargetNotOnline,
    /// FORCE without TO or without TIMEOUT.
    ForceNeedsBoth,
}

impl fmt::Display for FailoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "FAILOVER already in progress.",
            Self::NotRunning => "No failover in progress.",
            Self::NotPrimary => "FAILOVER is not valid when server is a replica.",
            Self::NoReplicas => "FAILOVER requires connected replicas.",
            Self::UnknownTarget => "FAILOVER target HOST and PORT is not a replica.",
            Self::TargetNotOnline => "FAILOVER target replica is not online.",
            Self::ForceNeedsBoth => {
                "FAILOVER with force option requires both a timeout and target HOST and IP."
            }
        })
    }
}

impl std::error::Error for FailoverError {}

/// What INFO calls `master_failover_state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailoverState {
    None,
    WaitSync { to: Option<Address>, is_forced: bool, until: Option<Moment> },
    InProgress(HandOver),
}

/// What is known about the target that was asked to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandOver {
    /// It may lack writes.
    is_forced: bool,
    /// How long it may take until it is asked. When FORCE was given that time is up already.
    until: Option<Moment>,
    /// It was asked and the answer was lost: it may have taken over.
    was_asked: bool,
    /// It is a primary. Whether it is our successor shows when it continues our history.
    is_primary: bool,
}

/// As [`Replication::failover_phase`] tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailoverPhase {
    /// `no-failover`
    #[default]
    None,
    /// `waiting-for-sync`
    WaitSync,
    /// `failover-in-progress`
    InProgress,
}

impl Replication {
    /// How far a FAILOVER is.
    pub fn failover_phase(&self) -> FailoverPhase {
        match self.failover {
            FailoverState::None => FailoverPhase::None,
            FailoverState::WaitSync { .. } => FailoverPhase::WaitSync,
            FailoverState::InProgress(_) => FailoverPhase::InProgress,
        }
    }

    pub(crate) fn is_failing_over(&self) -> bool {
        self.failover != FailoverState::None
    }

    /// `FAILOVER [TO host port [FORCE]] [TIMEOUT ms]`.
    pub fn start_failover(
        &mut self,
        now: Moment,
        request: FailoverRequest,
    ) -> Result<(), FailoverError> {
        self.check_failover(&request)?;
        let until = request.timeout.map(|timeout| now + timeout);
        self.log_failover(request.to.clone(), FailoverEvent::Requested);
        self.failover =
            FailoverState::WaitSync { to: request.to, is_forced: request.is_forced, until };
        self.outputs.push_back(Output::PauseWrites);
        self.continue_failover(now);
        Ok(())
    }

    fn check_failover(&self, request: &FailoverRequest) -> Result<(), FailoverError> {
        if self.is_failing_over() {
            return Err(FailoverError::Running);
        }
        if !self.is_primary() {
            return Err(FailoverError::NotPrimary);
        }
        if !self.has_replicas() {
            return Err(FailoverError::NoReplicas);
        }
        if request.is_forced && (request.to.is_none() || request.timeout.is_none()) {
            return Err(FailoverError::ForceNeedsBoth);
        }
        let Some(to) = &request.to else { return Ok(()) };
        let target = self.replicas.iter().find(|replica| replica.address() == *to);
        match target.ok_or(FailoverError::UnknownTarget)?.has_payload() {
            true => Ok(()),
            false => Err(FailoverError::TargetNotOnline),
        }
    }

    /// FAILOVER ABORT.
    pub fn abort_failover(&mut self, now: Moment) -> Result<(), FailoverError> {
        if !self.is_failing_over() {
            return Err(FailoverError::NotRunning);
        }
        self.give_up_failover(now, FailoverEvent::Aborted);
        Ok(())
    }

    /// Primary again, and clients may write.
    fn give_up_failover(&mut self, now: Moment, why: FailoverEvent) {
        let was_asked = matches!(self.failover, FailoverState::InProgress(_));
        let target = self.failover_target();
        self.failover = FailoverState::None;
        self.log_failover(target, why);
        if was_asked {
            self.promote(now);
        }
        self.outputs.push_back(Output::Unpause);
    }

    fn log_failover(&mut self, to: Option<Address>, event: FailoverEvent) {
        self.log(Event::Failover { to, event });
    }

    fn failover_target(&self) -> Option<Address> {
        match &self.failover {
            FailoverState::None => None,
            FailoverState::WaitSync { to, .. } => to.clone(),
            FailoverState::InProgress(_) => self.link.as_ref().map(|link| link.primary().clone()),
        }
    }

    /// An operator decides otherwise meanwhile: clients may write again wherever they may at all.
    pub(crate) fn end_failover_unfinished(&mut self) {
        if self.is_failing_over() {
            let target = self.failover_target();
            self.failover = FailoverState::None;
            self.outputs.push_back(Output::Unpause);
            self.log_failover(target, FailoverEvent::Aborted);
        }
    }

    pub(crate) fn failover_ends_at(&self) -> Option<Moment> {
        match self.failover {
            FailoverState::WaitSync { until, .. } => until,
            // Whoever was asked may have taken over: only its answer tells.
            FailoverState::InProgress(it) if !it.was_asked && !self.awaits_psync_answer() => {
                it.until
            }
            _ => None,
        }
    }

    /// The target cannot be reached, or says nothing: before it is asked that changes nothing.
    fn check_hand_over(&mut self, now: Moment) {
        if self.failover_ends_at().is_some_and(|until| until <= now) {
            self.give_up_failover(now, FailoverEvent::Unreached);
        }
    }

    /// Looks whether a replica has everything, or the time is up.
    pub(crate) fn continue_failover(&mut self, now: Moment) {
        let FailoverState::WaitSync { to, is_forced, until } = self.failover.clone() else {
            return self.check_hand_over(now);
        };
        let end = self.history.offset();
        let is_chosen = |address: &Address| to.as_ref().is_none_or(|to| to == address);
        let mut chosen =
            self.replicas.iter().filter(|r| r.has_payload() && is_chosen(&r.address()));
        if let Some(ready) = chosen.clone().find(|replica| replica.acked == Some(end)) {
            let target = ready.address();
            return self.hand_over(now, target, until, FailoverEvent::Started);
        }
        let is_gone = chosen.next().is_none() && (to.is_some() || !self.has_replicas());
        let is_late = until.is_some_and(|until| until <= now);
        match to {
            _ if is_gone => self.give_up_failover(now, FailoverEvent::TargetLost),
            Some(target) if is_late && is_forced => {
                self.hand_over(now, target, None, FailoverEvent::Forced);
            }
            _ if is_late => self.give_up_failover(now, FailoverEvent::TimedOut),
            _ => {}
        }
    }

    fn hand_over(
        &mut self,
        now: Moment,
        target: Address,
        until: Option<Moment>,
        how: FailoverEvent,
    ) {
        self.log_failover(Some(target.clone()), how);
        let is_forced = how == FailoverEvent::Forced;
        let hand_over = HandOver { is_forced, until, was_asked: false, is_primary: false };
        self.failover = FailoverState::InProgress(hand_over);
        self.begin_following(now, target);
    }

    /// Whether PSYNC asks its target to take over.
    pub(crate) fn asks_to_take_over(&self) -> bool {
        matches!(self.failover, FailoverState::InProgress(hand_over) if !hand_over.is_primary)
    }

    /// The target was asked to take over, and the answer is lost.
    pub(crate) fn remember_unanswered_failover(&mut self) {
        if let FailoverState::InProgress(hand_over) = &mut self.failover {
            hand_over.was_asked = true;
        }
    }

    /// The target answered as a primary does.
    pub(crate) fn finish_failover(&mut self) {
        if self.is_failing_over() {
            let target = self.failover_target();
            self.failover = FailoverState::None;
            self.outputs.push_back(Output::Unpause);
            self.log_failover(target, FailoverEvent::Done);
        }
    }

    /// The target refuses. If it may have taken over when it was asked before and the answer was
    /// lost, then "I am a primary" may mean that it did, and taking the role back would make two.
    /// So it is asked to continue our history, which a successor can and a stranger cannot.
    pub(crate) fn handle_failover_refusal(&mut self, now: Moment, line: &[u8]) -> bool {
        let FailoverState::InProgress(hand_over) = &mut self.failover else { return false };
        let is_primary = line.starts_with(IS_PRIMARY.trim_end().as_bytes());
        match hand_over.was_asked && is_primary && !hand_over.is_primary {
            true => {
                hand_over.is_primary = true;
                self.ask_again();
            }
            false => self.give_up_failover(now, FailoverEvent::Rejected),
        }
        true
    }

    /// The target offers all of its data. Whether that is refused: it is a primary that has not
    /// taken over from us, and following it would lose what we have.
    pub(crate) fn refuses_payload(&mut self, now: Moment) -> bool {
        let FailoverState::InProgress(hand_over) = self.failover else { return false };
        let is_stranger = hand_over.is_primary && !hand_over.is_forced;
        if is_stranger {
            self.give_up_failover(now, FailoverEvent::Rejected);
        }
        is_stranger
    }

    /// A primary asks this replica to take over. Whether it did; if not, it was told why.
    pub(crate) fn take_over(
        &mut self,
        now: Moment,
        session: SessionId,
        id: Option<ReplicationId>,
    ) -> bool {
        if self.is_primary() {
            self.reply(session, IS_PRIMARY);
            return false;
        }
        if id != Some(self.history.id()) || self.backlog.is_none() {
            self.reply(session, "-ERR PSYNC FAILOVER replid must match my replid.\r\n");
            return false;
        }
        self.log(Event::TakesOver { session, id: self.history.id() });
        self.promote(now);
        true
    }
}

/// How a primary refuses to take over.
const IS_PRIMARY: &str = "-ERR PSYNC FAILOVER can't be sent to a master.\r\n";
