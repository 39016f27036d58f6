//! What an election tells its application.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{CloseReason, LostWhy, Member};
use crate::text::escaped;
use crate::{InstanceId, Moment, StoreError, Token};

/// The role of an instance in one election.
///
/// ```text
///            answer            free            granted
///  Unknown ─────────► Standby ─────► Candidate ───────► Leader ◄────► Suspect
///     ▲                 ▲ ▲              │                │   renewal    │
///     └── store silent ─┘ └── held ──────┘                ▼     late     │
///                         ▲                            Yielding ◄────────┘
///                         └───── term closed ─────────────┘
/// ```
/// `Stopped` can be reached from every role and never left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The store has not answered, so nobody here knows who leads.
    Unknown,
    /// Another instance leads, or nobody may lead at the moment.
    Standby,
    /// A request for a term is on its way.
    Candidate,
    /// Leading.
    Leader,
    /// Leading, but the last renewal failed; the lease still runs.
    Suspect,
    /// Leading for the last moments: work is stopping.
    Yielding,
    /// No longer taking part.
    Stopped,
}

impl Role {
    /// Whether the instance has a term in this role. The clock decides whether it may still be
    /// acted on.
    pub const fn holds_term(self) -> bool {
        matches!(self, Role::Leader | Role::Suspect | Role::Yielding)
    }

    /// A stable word for logs and status output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Unknown => "unknown",
            Role::Standby => "standby",
            Role::Candidate => "candidate",
            Role::Leader => "leader",
            Role::Suspect => "suspect",
            Role::Yielding => "yielding",
            Role::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The election began.
    Started,
    /// The resource seems to be free.
    LooksFree,
    /// The store granted a term.
    Granted,
    /// Elections are switched off: this instance acts alone.
    SwitchedOff,
    /// Another instance leads.
    HeldBy(InstanceId),
    /// Reserved for a successor, which has this long to claim it.
    Reserved(Duration),
    /// The store lost data, and leases from before may still be relied on.
    Quarantine {
        /// How long the quarantine still lasts.
        left: Duration,
        /// What was lost.
        why: String,
    },
    /// The lock delay after a crash is running.
    LockDelay(Duration),
    /// An operator paused the election.
    Paused,
    /// The application told this instance to stand back.
    StandsBack,
    /// The application is not ready to lead.
    NotReady,
    /// The work did not beat in time.
    WorkStalled,
    /// The work panicked with this message.
    WorkFailed(String),
    /// A key holds something that Tenure did not write.
    Conflict(String),
    /// The store refused an attempt that had been abandoned.
    AttemptRefused,
    /// The answer came too late to be used.
    GrantTooLate,
    /// The store did not answer, or answered with an error.
    Store(StoreError),
    /// A renewal failed; the lease still runs.
    RenewalLate,
    /// Renewals work again.
    RenewalBack,
    /// The lease ran out before a renewal came through.
    LeaseEnded,
    /// The lease ran out while this process did not run for this long: it was stopped, suspended or
    /// starved.
    NotRunning(Duration),
    /// The store says the term is over.
    Lost(LostWhy),
    /// The application resigned.
    Resigned,
    /// This instance asked for the resignation.
    AskedToResign(InstanceId),
    /// Handed over to this successor.
    HandOver(InstanceId),
    /// Handed over to this instance because of its higher priority.
    Failback(InstanceId),
    /// The application stopped the election.
    Stopped,
    /// The single attempt is over.
    OneShotOver,
}

impl Reason {
    /// A stable word for logs, metrics and status output.
    pub const fn code(&self) -> &'static str {
        match self {
            Reason::Started => "started",
            Reason::LooksFree => "looks-free",
            Reason::Granted => "granted",
            Reason::SwitchedOff => "disabled",
            Reason::HeldBy(_) => "held",
            Reason::Reserved(_) => "reserved",
            Reason::Quarantine { .. } => "quarantine",
            Reason::LockDelay(_) => "lock-delay",
            Reason::Paused => "paused",
            Reason::StandsBack => "stands-back",
            Reason::NotReady => "not-ready",
            Reason::WorkStalled => "work-stalled",
            Reason::WorkFailed(_) => "work-failed",
            Reason::Conflict(_) => "conflict",
            Reason::AttemptRefused => "attempt-refused",
            Reason::GrantTooLate => "grant-too-late",
            Reason::Store(_) => "store",
            Reason::RenewalLate => "renewal-late",
            Reason::RenewalBack => "renewal-back",
            Reason::LeaseEnded => "lease-ended",
            Reason::NotRunning(_) => "not-running",
            Reason::Lost(LostWhy::KeyVanished) => "key-vanished",
            Reason::Lost(LostWhy::HeldBy(_)) => "taken-by-other",
            Reason::Lost(LostWhy::OtherTerm(_)) => "other-term",
            Reason::Lost(LostWhy::Overwritten(_)) => "overwritten",
            Reason::Resigned => "resigned",
            Reason::AskedToResign(_) => "asked-to-resign",
            Reason::HandOver(_) => "hand-over",
            Reason::Failback(_) => "failback",
            Reason::Stopped => "stopped",
            Reason::OneShotOver => "one-shot-over",
        }
    }

    /// Whether a term that ends for this reason was lost, that is, ended against its holder's will.
    /// This is the only list of losses: whatever exits, logs or counts on a loss asks here.
    pub const fn is_involuntary(&self) -> bool {
        matches!(
            self,
            Reason::LeaseEnded
                | Reason::NotRunning(_)
                | Reason::RenewalLate
                | Reason::Lost(_)
                | Reason::WorkStalled
        )
    }

    /// Whether `other` is the same reason, perhaps at a later moment: times left are not compared.
    pub fn is_same_cause(&self, other: &Reason) -> bool {
        match (self, other) {
            (Reason::Reserved(_), Reason::Reserved(_))
            | (Reason::LockDelay(_), Reason::LockDelay(_))
            | (Reason::NotRunning(_), Reason::NotRunning(_)) => true,
            (Reason::Quarantine { why, .. }, Reason::Quarantine { why: other, .. }) => why == other,
            // One outage shows itself in many words.
            (Reason::Store(error), Reason::Store(other)) => error.kind() == other.kind(),
            _ => self == other,
        }
    }

    /// How history shall name a term that closes for this reason.
    pub(crate) fn close_reason(&self) -> CloseReason {
        match self {
            Reason::WorkStalled => CloseReason::WorkStalled,
            Reason::WorkFailed(_) => CloseReason::WorkFailed,
            Reason::GrantTooLate => CloseReason::TooLate,
            Reason::LeaseEnded | Reason::NotRunning(_) | Reason::RenewalLate => {
                CloseReason::LeaseEnded
            }
            Reason::HandOver(_) | Reason::Failback(_) => CloseReason::HandedOver,
            _ => CloseReason::Released,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::HeldBy(id) if id.is_mark() => f.write_str(
                "nobody may lead for now: an earlier leader may still believe in its lease",
            ),
            Reason::HeldBy(id) => write!(f, "held by {}", plain(id.as_str())),
            Reason::Reserved(left) => write!(f, "reserved for a successor, {left:?} left"),
            Reason::Quarantine { left, why } => write!(
                f,
                "waiting {left:?} because {}: an earlier leader may still believe in its lease{}",
                plain(why),
                // Where there is a record, somebody led before.
                match why.starts_with("the store has no record") {
                    true => " (`fresh_store` skips this on a store that never held an election)",
                    false => "",
                }
            ),
            Reason::SwitchedOff => f.write_str("elections are switched off"),
            Reason::LockDelay(left) => write!(f, "lock delay after a crash, {left:?} left"),
            Reason::WorkFailed(why) => write!(f, "work failed: {}", plain(why)),
            Reason::Conflict(what) => write!(f, "conflict: {}", plain(what)),
            Reason::Store(error) => write!(f, "{}", plain(&error.to_string())),
            Reason::LeaseEnded => f.write_str("the lease ran out before a renewal came through"),
            Reason::NotRunning(late) => write!(
                f,
                "this process did not run for {:.1} s while its lease ran out: it was stopped, \
                 suspended or starved",
                late.as_secs_f64()
            ),
            Reason::Lost(LostWhy::KeyVanished) => f.write_str(
                "the key is gone from the store: deleted, flushed, evicted, or expired early",
            ),
            Reason::Lost(LostWhy::HeldBy(id)) if id.is_mark() => {
                f.write_str("ended in the store: nobody may lead until earlier leases are over")
            }
            Reason::Lost(LostWhy::HeldBy(id)) => write!(f, "taken by {}", plain(id.as_str())),
            Reason::Lost(LostWhy::OtherTerm(Some(token))) => {
                write!(f, "superseded by term {token}")
            }
            Reason::Lost(LostWhy::OtherTerm(None)) => f.write_str("superseded by another term"),
            Reason::Lost(LostWhy::Overwritten(what)) => write!(f, "overwritten: {}", plain(what)),
            Reason::AskedToResign(by) => write!(f, "asked to resign by {}", plain(by.as_str())),
            Reason::HandOver(to) => write!(f, "hand-over to {}", plain(to.as_str())),
            Reason::Failback(to) => write!(f, "failback to {}", plain(to.as_str())),
            other => f.write_str(other.code()),
        }
    }
}

/// Text from outside, fit to be shown. The next step stands at the end of an error, after the
/// addresses of all servers.
fn plain(text: &str) -> impl fmt::Display + '_ {
    const SHOWN_MAX: usize = 400;
    escaped(text, SHOWN_MAX)
}

/// One event of an election. Events are numbered without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 1, 2, 3, … within one election of one process.
    pub number: u64,
    /// When it happened, on the local clock.
    pub at: Moment,
    /// What happened.
    pub kind: EventKind,
}

/// What happened. A change of role comes first, then its meaning.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// The role changed.
    StateChanged {
        /// The role before.
        from: Role,
        /// The role after.
        to: Role,
        /// The reason.
        reason: Reason,
    },
    /// A term began.
    Acquired {
        /// The token of the term.
        token: Token,
        /// Until when it may be acted on unless renewed.
        ends_at: Moment,
    },
    /// The term was extended.
    Renewed {
        /// The token of the term.
        token: Token,
        /// Until when it may be acted on unless renewed.
        ends_at: Moment,
    },
    /// Work must stop now and have ended by a certain moment.
    StopWork {
        /// The token of the term.
        token: Token,
        /// When the work is cut off.
        by: Moment,
        /// The reason.
        reason: Reason,
    },
    /// Work was still running when it had to be cut off, or too long after its term was lost.
    Overrun {
        /// The token of the term.
        token: Token,
    },
    /// The term is over. Nothing may be done in its name any more.
    Lost {
        /// The token of the term.
        token: Token,
        /// The reason.
        reason: Reason,
    },
    /// An attempt to lead failed.
    ElectionFailed {
        /// The reason.
        reason: Reason,
    },
    /// The term was handed to a successor.
    HandedOver {
        /// The token of the term that ended.
        token: Token,
        /// The instance that may claim the next term.
        to: InstanceId,
    },
    /// A hand-over was refused.
    HandOverRefused {
        /// The reason.
        why: String,
    },
    /// The leader as last seen; sent when it changes.
    LeaderSeen(Option<SeenLeader>),
    /// The members as last seen.
    MembersSeen(Arc<[Member]>),
    /// Something an operator should look at; the election goes on.
    Warning(String),
}

/// The leader as the last answer showed it. It may have changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLeader {
    /// The id of the leader.
    pub id: InstanceId,
    /// The token of its term; `None` for a foreign holder.
    pub token: Option<Token>,
    /// Whether the holder is a program that does not speak Tenure's protocol.
    pub foreign: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_can_only_be_skipped_where_nobody_led_before() {
        let text = |why: &str| {
            Reason::Quarantine { left: Duration::from_secs(2), why: why.to_owned() }.to_string()
        };
        assert!(text("the store has no record of earlier terms").contains("fresh_store"));
        for why in ["cleared by ops_1: test", "the store restarted or failed over"] {
            assert!(!text(why).contains("fresh_store"), "{}", text(why));
        }
    }
}
