//! The messages between an instance and the store: requests, answers, errors and hints.
//!
//! Every backend answers these requests with the same meaning; `docs/protocol.md` is the
//! specification. Nothing here knows how a store carries them out.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::{InstanceId, Resource};

/// The fencing token of a term: a later term of the same resource always has a higher one. Never
/// zero. "No token" is `Option::None`, which is lower than every token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The largest token: beyond it, numbers lose their last digits inside store scripts.
    pub const MAX: Token = Token(NonZeroU64::new((1 << 53) - 1).expect("not zero"));

    /// The token with this number; `None` for zero and beyond [`Token::MAX`].
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= Token::MAX.0.get() => Some(Token(number)),
            _ => None,
        }
    }

    /// The number. Send it with every write to the protected resource.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A reading of the store's own clock, in microseconds since 1970. Comparable only with others
/// from the same store, never with a local clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServerTime(pub u64);

impl ServerTime {
    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: ServerTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Whole milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }
}

/// One request about one resource by one instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The resource.
    pub resource: Resource,
    /// The instance that asks.
    pub id: InstanceId,
    /// The request.
    pub request: Request,
    /// How long to wait for the answer before it counts as lost.
    pub timeout: Duration,
    /// The longest lease that any instance may rely on, as far as the caller knows; zero if it
    /// knows of none. Every quarantine that begins or runs covers it.
    pub fleet_max_ttl: Duration,
}

/// A request to a store.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// Take the resource if it is free, reserved for the caller, or was granted to this attempt.
    /// Records the caller's heartbeat as a side effect.
    Acquire(Acquire),
    /// Extend the lease of exactly this term. Always writes.
    Renew {
        /// The term.
        token: Token,
        /// The ttl to set.
        ttl: Duration,
        /// The longest lease that any other instance may rely on.
        fleet_max_ttl: Duration,
    },
    /// For one node of a quorum: extend the lease of exactly this term, or take it over if the key
    /// is gone, no later term is known and nothing was lost.
    Adopt {
        /// The term.
        token: Token,
        /// The ttl to set.
        ttl: Duration,
        /// The longest lease that any other instance may rely on.
        fleet_max_ttl: Duration,
    },
    /// End exactly this term and notify the others.
    Release {
        /// The term.
        token: Token,
        /// The reason for the history.
        reason: CloseReason,
    },
    /// Undo an acquire that was never answered, and refuse it should it still arrive.
    Abandon {
        /// The attempt.
        attempt: u64,
    },
    /// End exactly this term and reserve the resource for `to`.
    Transfer {
        /// The term that ends.
        token: Token,
        /// The successor.
        to: InstanceId,
        /// How long only the successor may claim the resource.
        claim_ttl: Duration,
    },
    /// For one node of a quorum: end exactly this term and let `to` go first. Unlike a transfer,
    /// this reserves nothing.
    PassOn {
        /// The term that ends.
        token: Token,
        /// The successor.
        to: InstanceId,
        /// How long the others let it go first.
        claim_ttl: Duration,
    },
    /// Read without taking part.
    Observe {
        /// Whether the answer lists the members, too.
        members: bool,
    },
    /// Record the caller as a member that is alive now.
    Beat {
        /// Its record.
        record: MemberRecord,
        /// Whether the answer lists the members, too.
        members: bool,
    },
    /// Remove the caller from the members.
    Leave,
    /// Ask the holder of exactly this term for something. Any client may.
    Ask {
        /// The term whose holder is asked.
        token: Token,
        /// The wish.
        wish: WishKind,
        /// How long the wish remains.
        stands_for: Duration,
    },
    /// Refuse a wish. Only the holder may.
    Refuse {
        /// This instance's term.
        token: Token,
        /// The reason, for the client that asked.
        reason: String,
    },
    /// Grant no new term until resumed, for maintenance. The running term goes on.
    Pause {
        /// How long the pause lasts, unless it is ended earlier.
        lasts: Duration,
    },
    /// End a pause.
    Resume,
    /// For emergencies: end the current term without its holder. Later tokens are still higher, and
    /// a quarantine begins.
    Clear {
        /// The reason for the history.
        reason: String,
        /// The shortest quarantine. It always lasts for as long as the longest lease that the store
        /// knows of.
        quarantine: Duration,
    },
    /// The latest entries of the history, newest first.
    History {
        /// At most this many.
        count: usize,
    },
    /// Begin a tick during this instance's term, unless it has run before.
    TickBegin {
        /// This instance's term.
        token: Token,
        /// The tick.
        tick: TickId,
        /// Whether a tick that was begun and has no outcome runs again.
        rerun_crashed: bool,
    },
    /// Record the outcome of a tick, during this instance's term.
    TickFinish {
        /// This instance's term.
        token: Token,
        /// The tick.
        tick: TickId,
        /// The outcome.
        outcome: TickOutcome,
        /// How long the outcome of a named tick is kept.
        keep: Duration,
    },
    /// Take back the begin of a tick whose work could not be started, during this instance's term,
    /// as if nobody had begun it.
    TickReopen {
        /// This instance's term.
        token: Token,
        /// The tick.
        tick: TickId,
    },
    /// Ask for the state of a tick, without taking part.
    TickLook {
        /// The tick.
        tick: TickId,
    },
}

/// An attempt to take a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Acquire {
    /// The attempt's number. It is used again only while the attempt has no definite answer.
    pub attempt: u64,
    /// The ttl to set.
    pub ttl: Duration,
    /// The longest lease that any other instance may rely on.
    pub fleet_max_ttl: Duration,
    /// The highest token this process has seen for the resource.
    pub floor: Option<Token>,
    /// Whether the user declares that nobody has led this resource before.
    pub fresh_store: bool,
    /// Whether a store without a record counts as new because it has run for longer than any lease.
    /// It may have been flushed, so this is `false` in modes that must survive that.
    pub age_counts: bool,
    /// How long after a crash (not after a release) nobody is granted the resource.
    pub lock_delay: Duration,
    /// A holder that was seen without expiry for longer than any lease: give it one.
    pub heal: Option<InstanceId>,
    /// The caller's member record, to be stored, too.
    pub record: MemberRecord,
    /// Whether to list the members in the answer.
    pub members: bool,
    /// Which step of a quorum's decision this is.
    pub ballot: Ballot,
}

/// Which step of a quorum's decision an attempt is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ballot {
    /// The store decides alone and chooses the token itself.
    #[default]
    Alone,
    /// Only answer whether the resource could be granted, and the lowest token for it. No lease is
    /// written.
    Propose,
    /// Take the resource under this token, unless a term with this token or a higher one is known.
    Settle(Token),
}

/// How a term ended, as the history shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// The holder released it: shutdown, resignation, work done.
    Released,
    /// The holder handed it to a successor.
    HandedOver,
    /// The holder's work stopped beating.
    WorkStalled,
    /// The holder's work failed or panicked.
    WorkFailed,
    /// The holder's local deadline passed.
    LeaseEnded,
    /// The grant came too late to be used.
    TooLate,
    /// The lease ran out in the store.
    Expired,
    /// The key was deleted by somebody else.
    Vanished,
    /// An operator ended it.
    Cleared,
}

impl CloseReason {
    /// The word in the history.
    pub const fn as_str(self) -> &'static str {
        match self {
            CloseReason::Released => "released",
            CloseReason::HandedOver => "handed-over",
            CloseReason::WorkStalled => "work-stalled",
            CloseReason::WorkFailed => "work-failed",
            CloseReason::LeaseEnded => "lease-ended",
            CloseReason::TooLate => "too-late",
            CloseReason::Expired => "expired",
            CloseReason::Vanished => "vanished",
            CloseReason::Cleared => "cleared",
        }
    }

    /// The reason for a word in the history.
    pub fn parse(word: &str) -> Option<Self> {
        use CloseReason::*;
        let all = [
            Released,
            HandedOver,
            WorkStalled,
            WorkFailed,
            LeaseEnded,
            TooLate,
            Expired,
            Vanished,
            Cleared,
        ];
        all.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// What somebody asks the leader for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WishKind {
    /// Step down; any other instance may lead next.
    Resign,
    /// Step down in favour of this instance, by name or whole id.
    HandOver {
        /// The successor.
        to: String,
    },
}

/// A wish as the leader finds it in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What is asked for.
    pub kind: WishKind,
    /// Who asked for it.
    pub by: InstanceId,
    /// The term that it is for; `None` if the record has none.
    pub token: Option<Token>,
    /// Until when it remains.
    pub until: ServerTime,
    /// The leader's reason for refusing, once it has refused.
    pub refused: Option<String>,
}

/// What an instance says about itself. Bounded by [`MemberRecord::METADATA_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemberRecord {
    /// Members with a higher priority are preferred as leader.
    pub priority: i32,
    /// Whether it may lead now.
    pub ready: bool,
    /// Whether it is leaving.
    pub departing: bool,
    /// Whether its work has stalled.
    pub stalled: bool,
    /// The version of the application, compared number by number.
    pub version: String,
    /// The ttl that it asks for.
    pub ttl: Duration,
    /// Free text for display, such as an address.
    pub metadata: BTreeMap<String, String>,
}

impl MemberRecord {
    /// The most bytes of metadata, names and values together.
    pub const METADATA_MAX: usize = 4096;
}

/// A member as the store lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The id of the member.
    pub id: InstanceId,
    /// What it says about itself.
    pub record: MemberRecord,
    /// Since when it has been ready without a break, by the store's clock.
    pub ready_since: Option<ServerTime>,
    /// The time of its last heartbeat, by the store's clock.
    pub beat_at: ServerTime,
}

/// The most members that a store lists. Ranks beyond it would gain nothing.
pub const MEMBERS_LISTED_MAX: usize = 1024;

/// The answer of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The result of the request.
    pub outcome: Outcome,
    /// The state of the resource right after it.
    pub view: View,
    /// Writes beside the lease that failed, one line each. The lease itself is not affected.
    pub warnings: Vec<String>,
}

/// The state of a resource at the time of one answer.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct View {
    /// The value at the key: the holder's id. `None` if the key is absent.
    pub holder: Option<InstanceId>,
    /// How long until the key expires. `None` if it is absent or has no expiry.
    pub pttl: Option<Duration>,
    /// The holder's token; `None` if the key is absent or the holder is foreign.
    pub token: Option<Token>,
    /// Whether the holder is a program that does not speak Tenure's protocol.
    pub foreign: bool,
    /// Whether the holder is a successor that has not claimed the resource yet: it does not lead,
    /// and may never.
    pub reserved: bool,
    /// Whether the holder's grant waits for replicas to confirm it: the holder does not lead, and
    /// may never.
    pub unconfirmed: bool,
    /// The reason for a quarantine, while one keeps the key.
    pub quarantine_why: Option<String>,
    /// In a quorum: whether some nodes were not seen to hold this term. An early renewal lets them
    /// take it over.
    pub partial: bool,
    /// The store's clock.
    pub server_time: ServerTime,
    /// The store's incarnation.
    pub incarnation: String,
    /// What an operator asked the holder for.
    pub wish: Option<Wish>,
    /// How long the operator's pause still lasts, if there is one.
    pub paused_for: Option<Duration>,
    /// The members, if the request asked for them.
    pub members: Option<Vec<Member>>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Acquire: the caller leads under this token.
    Granted {
        /// The term.
        token: Token,
    },
    /// Acquire: another instance holds the resource.
    Held,
    /// Acquire: this attempt was abandoned earlier.
    AttemptRefused,
    /// Acquire: leases from before a loss of data may still be relied on.
    Quarantine {
        /// How long to wait.
        left: Duration,
        /// The reason, as text.
        reason: String,
    },
    /// Acquire: reserved for a named successor.
    Reserved {
        /// How long to wait.
        left: Duration,
    },
    /// Acquire: the lock delay after a crash is running.
    Delayed {
        /// How long to wait.
        left: Duration,
    },
    /// Acquire: an operator paused the election.
    Paused {
        /// How long to wait, unless the pause is ended earlier.
        left: Duration,
    },
    /// Acquire: no majority of a quorum's nodes agreed. The attempt is over.
    Contested {
        /// The reason, as text.
        why: String,
    },
    /// A key holds something that Tenure did not write. Nothing was changed.
    Conflict {
        /// Which key, and what it holds.
        what: String,
    },
    /// Renew, adopt: extended.
    Renewed,
    /// Renew, adopt, release, transfer, pass on, refuse, tick: the caller does not hold this term.
    Lost(LostWhy),
    /// Release, pass on: done.
    Released,
    /// Abandon: done.
    Abandoned {
        /// Whether it had been granted.
        was_granted: bool,
    },
    /// Transfer: reserved for the successor under this token.
    Transferred {
        /// The successor's term.
        token: Token,
    },
    /// Observe, beat, leave, ask, refuse, pause, resume, clear, tick finish or reopen: done.
    Done,
    /// Ask: nobody leads under that token any more.
    NoSuchTerm,
    /// History: the entries, newest first.
    History(Vec<HistoryEntry>),
    /// Tick begin: run it.
    TickRuns,
    /// Tick begin or look: it has already run, with this outcome.
    TickDone(TickOutcome),
    /// Tick begin or look: an instance began it and has not recorded an outcome.
    TickUnfinished {
        /// The instance that began it.
        by: InstanceId,
        /// The token of its term; `None` if the record has none.
        token: Option<Token>,
    },
    /// Tick look: nobody has begun it.
    TickUnknown,
}

/// Why a term is not the caller's any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostWhy {
    /// The key is gone: expired, deleted, flushed or evicted.
    KeyVanished,
    /// Another instance holds the key.
    HeldBy(InstanceId),
    /// The same id holds the key under another token; `None` if the record has none.
    OtherTerm(Option<Token>),
    /// The key is no longer a string, or the side record is unreadable.
    Overwritten(String),
}

/// One entry of a resource's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When it happened, by the store's clock.
    pub at: ServerTime,
    /// The holder of the term.
    pub id: InstanceId,
    /// The token of the term; `None` for a quarantine before the first term.
    pub token: Option<Token>,
    /// What happened to the term.
    pub what: HistoryKind,
}

/// What happened to a term.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryKind {
    /// It began.
    Granted,
    /// It ended.
    Closed {
        /// How it ended.
        reason: CloseReason,
        /// The successor, or the reason that an operator gave.
        detail: String,
    },
    /// The store lost data, or an operator cleared another program's key; no term began until the
    /// quarantine was over.
    Quarantined {
        /// The reason.
        detail: String,
    },
}

/// Which tick of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TickId {
    /// The tick with this number. All ticks up to the highest finished number count as done.
    Number(u64),
    /// The n-th period of this length since 1970 by the store's clock. Each length is recorded
    /// separately. A period is done once it was finished, or once a later period was finished that
    /// has begun by the store's clock. (A period finished while that clock was ahead says nothing
    /// about those before it.)
    Period {
        /// The number of the period.
        number: u64,
        /// How long each is, in whole microseconds; not zero.
        period: Duration,
    },
    /// A name; its outcome is kept for a while.
    Named(String),
}

/// The outcome of a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TickOutcome {
    /// The work succeeded.
    Succeeded,
    /// The work failed with this message. The tick counts as run.
    Failed(String),
}

/// A message to everyone interested in a resource. A hint is never a proof: it may be forged, late,
/// doubled or lost. So it only changes when the next request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// A term began.
    Granted {
        /// The holder.
        id: InstanceId,
        /// The token.
        token: Token,
        /// The ttl.
        ttl: Duration,
    },
    /// A term ended.
    Released {
        /// The token; `None` if an operator cleared something that was no term.
        token: Option<Token>,
    },
    /// A term ended, and the resource is reserved for this successor.
    Transferred {
        /// The token of the term that ended. It tells two hand-overs to the same successor apart:
        /// otherwise, in a quorum, a late message about the first would count as one about the
        /// second.
        token: Token,
        /// The instance that may claim the resource.
        to: InstanceId,
        /// How long only it may.
        claim_ttl: Duration,
    },
    /// The holder of this term has a wish waiting.
    Wished {
        /// The token of the term.
        token: Token,
    },
    /// Members joined, left or changed.
    Members,
    /// A pause began or ended.
    PauseChanged,
    /// A tick ended.
    TickFinished,
}
