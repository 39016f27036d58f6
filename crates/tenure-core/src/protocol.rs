//! The words between an instance and the store: requests, answers, errors and hints.
//!
//! Every backend answers these requests with the same meaning; `docs/protocol.md` is the
//! specification. Nothing here knows how a store carries them out.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::{InstanceId, Resource};

/// The fencing number of a term: a later term of the same resource always has a greater one. Never
/// zero. Where there may be no term it is an `Option`, in which none is below every token.
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

    /// The number to send along with every write to the protected resource.
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
    /// Which resource.
    pub resource: Resource,
    /// Who asks.
    pub id: InstanceId,
    /// What is asked.
    pub request: Request,
    /// How long the answer may take before the caller counts it as lost.
    pub timeout: Duration,
    /// The longest lease that anybody may believe in, as far as the caller knows: zero where it
    /// knows of none. Whatever is asked, a quarantine that begins or runs covers it.
    pub fleet_max_ttl: Duration,
}

/// What may be asked of a store.
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
        /// The lease to set.
        ttl: Duration,
        /// The longest lease any peer may believe in.
        fleet_max_ttl: Duration,
    },
    /// To one of several nodes: extend the lease of exactly this term, or take it over where the
    /// key is gone, no later term is known and nothing was lost.
    Adopt {
        /// The term.
        token: Token,
        /// The lease to set.
        ttl: Duration,
        /// The longest lease any peer may believe in.
        fleet_max_ttl: Duration,
    },
    /// End exactly this term and wake the others.
    Release {
        /// The term.
        token: Token,
        /// What history shall say.
        reason: CloseReason,
    },
    /// Undo an acquire whose answer never came, and refuse it should it still be on its way.
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
        /// How long it has to claim the resource before everyone may try.
        claim_ttl: Duration,
    },
    /// To one of several nodes: end exactly this term and let `to` go first. Unlike a transfer it
    /// reserves nothing.
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
        /// Whether to list the members too.
        members: bool,
    },
    /// Record the caller as a member that is alive now.
    Beat {
        /// Its record.
        record: MemberRecord,
        /// Whether to list the members too.
        members: bool,
    },
    /// Remove the caller from the members.
    Leave,
    /// Ask the holder of exactly this term for something. Anyone may.
    Ask {
        /// The term whose holder is asked.
        token: Token,
        /// For what.
        wish: WishKind,
        /// How long the wish stands.
        stands_for: Duration,
    },
    /// Answer a wish with no. Only the holder may.
    Refuse {
        /// This instance's term.
        token: Token,
        /// Why not, for the one who asked.
        reason: String,
    },
    /// Grant no new term until resumed, for maintenance. The running term goes on.
    Pause {
        /// For how long at the most.
        lasts: Duration,
    },
    /// End a pause.
    Resume,
    /// For emergencies: end whatever term there is. Keeps the token floor and quarantines.
    Clear {
        /// What history shall say.
        reason: String,
        /// For how long nobody is let in at the least: as long as the longest lease that the store
        /// knows of, however short this is.
        quarantine: Duration,
    },
    /// The latest entries of the history, newest first.
    History {
        /// At most this many.
        count: usize,
    },
    /// Start a tick inside this instance's term, unless it has run before.
    TickBegin {
        /// This instance's term.
        token: Token,
        /// Which tick.
        tick: TickId,
        /// Whether a tick that somebody began and never finished runs again.
        rerun_crashed: bool,
    },
    /// Record how a tick ended, inside this instance's term.
    TickFinish {
        /// This instance's term.
        token: Token,
        /// Which tick.
        tick: TickId,
        /// How it ended.
        outcome: TickOutcome,
        /// How long the outcome of a named tick is kept.
        keep: Duration,
    },
    /// Take back the begin of a tick whose work could not be started, inside this instance's term:
    /// as if nobody had begun it.
    TickReopen {
        /// This instance's term.
        token: Token,
        /// Which tick.
        tick: TickId,
    },
    /// How a tick stands, without taking part.
    TickLook {
        /// Which tick.
        tick: TickId,
    },
}

/// An attempt to take a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Acquire {
    /// The attempt's number: reused only while it has no definite answer.
    pub attempt: u64,
    /// The lease to set.
    pub ttl: Duration,
    /// The longest lease any peer may believe in.
    pub fleet_max_ttl: Duration,
    /// The highest token this process has seen for the resource.
    pub floor: Option<Token>,
    /// Whether the user vouches that nobody led this resource before.
    pub fresh_store: bool,
    /// Whether a store without a record may be taken for new because it has run for longer than
    /// any lease. It may have been flushed: not where a mode promises to bear that.
    pub age_counts: bool,
    /// How long after a crash (not after a release) the resource stays free.
    pub lock_delay: Duration,
    /// A holder seen without expiry for longer than any lease: give it one.
    pub heal: Option<InstanceId>,
    /// The caller's member record, recorded along the way.
    pub record: MemberRecord,
    /// Whether to list the members in the answer.
    pub members: bool,
    /// Which part this is of a decision of several nodes.
    pub ballot: Ballot,
}

/// Which part an attempt plays where several nodes decide together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ballot {
    /// The store decides alone, and numbers the term itself.
    #[default]
    Alone,
    /// Only say whether the resource could be had, and the lowest number that it could be had
    /// under, whatever the clock shows. No lease is written.
    Propose,
    /// Take it under this number, unless a term with this number or a later one is known.
    Settle(Token),
}

/// How a term ended, as history tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// The holder gave it back: shutdown, resignation, work done.
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
    /// The word in the store's history.
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

    /// The reason a word in the store's history stands for.
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

/// What somebody who does not lead wants the leader to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WishKind {
    /// Step down; whoever is next may lead.
    Resign,
    /// Step down in favour of this instance, by name or whole id.
    HandOver {
        /// The successor.
        to: String,
    },
}

/// A wish as the leader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What is wanted.
    pub kind: WishKind,
    /// Who wants it.
    pub by: InstanceId,
    /// The term it was addressed to; `None` where the record names none.
    pub token: Option<Token>,
    /// Until when it stands.
    pub until: ServerTime,
    /// The leader's no, once given.
    pub refused: Option<String>,
}

/// What an instance tells about itself. Bounded by [`MemberRecord::METADATA_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemberRecord {
    /// The higher is preferred as leader.
    pub priority: i32,
    /// Whether it may lead now.
    pub ready: bool,
    /// Whether it is leaving.
    pub departing: bool,
    /// Whether its work has stalled.
    pub stalled: bool,
    /// The version of the application, compared number by number.
    pub version: String,
    /// The lease it asks for.
    pub ttl: Duration,
    /// Free text for people, such as an address.
    pub metadata: BTreeMap<String, String>,
}

impl MemberRecord {
    /// The most bytes of metadata, names and values together.
    pub const METADATA_MAX: usize = 4096;
}

/// A member as the store lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub id: InstanceId,
    /// What it told about itself.
    pub record: MemberRecord,
    /// Since when it has been ready without a break, by the store's clock.
    pub ready_since: Option<ServerTime>,
    /// When it was last heard, by the store's clock.
    pub beat_at: ServerTime,
}

/// The most members a store lists: ranks beyond it gain nothing.
pub const MEMBERS_LISTED_MAX: usize = 1024;

/// What a store answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What came of the request.
    pub outcome: Outcome,
    /// How the resource stood right after it.
    pub view: View,
    /// Side writes that failed, one line each. The lease itself is not affected.
    pub warnings: Vec<String>,
}

/// How a resource stands, as one answer saw it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct View {
    /// The value at the key: the holder's id. `None` when the key is absent.
    pub holder: Option<InstanceId>,
    /// How long the key still lives. `None` when it is absent or has no expiry.
    pub pttl: Option<Duration>,
    /// The holder's token; `None` when absent or foreign.
    pub token: Option<Token>,
    /// Whether the holder is a program that does not speak this protocol.
    pub foreign: bool,
    /// Whether the holder was named as a successor and has not claimed the resource yet: it does
    /// not lead, and may never.
    pub reserved: bool,
    /// Whether the holder's grant waits for replicas, as its mode asks, and is not known to have
    /// reached them: it does not lead, and may never.
    pub unconfirmed: bool,
    /// Why nobody is let in, while a quarantine keeps the key.
    pub quarantine_why: Option<String>,
    /// Whether, of several nodes that decide together, some were not seen to hold this term: an
    /// early renewal lets them take it over.
    pub partial: bool,
    /// The store's clock.
    pub server_time: ServerTime,
    /// Which life of the store this is.
    pub incarnation: String,
    /// What the holder is asked for.
    pub wish: Option<Wish>,
    /// For how long no new term is granted on an operator's word.
    pub paused_for: Option<Duration>,
    /// The members, when asked for.
    pub members: Option<Vec<Member>>,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Acquire: the caller leads under this token.
    Granted {
        /// The term.
        token: Token,
    },
    /// Acquire: somebody else holds it.
    Held,
    /// Acquire: this attempt was abandoned before.
    AttemptRefused,
    /// Acquire: leases granted before a loss of data might still be believed in.
    Quarantine {
        /// How long to wait.
        left: Duration,
        /// Why, for people.
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
        /// How long at the most.
        left: Duration,
    },
    /// Acquire: several nodes decide, and no majority of them came together. The attempt is over.
    Contested {
        /// Why, for people.
        why: String,
    },
    /// Something that is not ours stands at a key. Nothing was touched.
    Conflict {
        /// What stands where, for people.
        what: String,
    },
    /// Renew, adopt: extended.
    Renewed,
    /// Renew, adopt, release, transfer, pass on, refuse, tick: the caller does not hold this term.
    Lost(LostWhy),
    /// Release, pass on: done.
    Released,
    /// Abandon: done; `true` when the attempt had got the resource.
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
    /// Tick begin or look: it has ended before, like this.
    TickDone(TickOutcome),
    /// Tick begin or look: somebody began it and has not finished.
    TickUnfinished {
        /// Who.
        by: InstanceId,
        /// Under which token; `None` where the record names none.
        token: Option<Token>,
    },
    /// Tick look: nobody began it.
    TickUnknown,
}

/// Why a term is not the caller's any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostWhy {
    /// The key is gone: expired, deleted, flushed or evicted.
    KeyVanished,
    /// Somebody else holds the key.
    HeldBy(InstanceId),
    /// The same id under another token; `None` where the record names none.
    OtherTerm(Option<Token>),
    /// The key is not a plain string any more, or the side record is unreadable.
    Overwritten(String),
}

/// One line of a resource's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When, by the store's clock.
    pub at: ServerTime,
    /// Whose term.
    pub id: InstanceId,
    /// Which term; `None` for a quarantine before the first one.
    pub token: Option<Token>,
    /// What happened to it.
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
        /// How.
        reason: CloseReason,
        /// The successor, or an operator's words.
        detail: String,
    },
    /// The store lost its past, or an operator cleared another program's key; no term began until
    /// the quarantine was over.
    Quarantined {
        /// Why.
        detail: String,
    },
}

/// Which run of a recurring or named job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TickId {
    /// The tick with this number: everything up to the highest finished number counts as done, for
    /// ever.
    Number(u64),
    /// The n-th period of this length since 1970 by the store's clock. Each length has a record of
    /// its own. A period is done once it was finished, or once a later one was that has begun by
    /// the store's clock: what was finished while that clock was ahead says nothing about those
    /// before it.
    Period {
        /// Which one.
        number: u64,
        /// How long each is, in whole microseconds; not zero.
        period: Duration,
    },
    /// A name; its outcome is kept for a while.
    Named(String),
}

/// How a tick ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TickOutcome {
    /// It did its work.
    Succeeded,
    /// It failed, with these words. Counts as run.
    Failed(String),
}

/// A message to everyone interested in a resource. A hint, never a proof: it may be forged, late,
/// doubled or lost, so it only ever moves the moment of the next request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// A term began.
    Granted {
        /// Whose.
        id: InstanceId,
        /// Which.
        token: Token,
        /// Its lease.
        ttl: Duration,
    },
    /// A term ended.
    Released {
        /// Which; `None` when an operator cleared what was no term.
        token: Option<Token>,
    },
    /// A term ended, and the resource waits for this successor.
    Transferred {
        /// Which term. Without it two hand-overs to the same successor would look alike, and a late
        /// word of the first would count as one of the second where several nodes give hints.
        token: Token,
        /// Who may claim it.
        to: InstanceId,
        /// For how long.
        claim_ttl: Duration,
    },
    /// The holder of this term has a wish waiting.
    Wished {
        /// Which term.
        token: Token,
    },
    /// Members came, left or changed.
    Members,
    /// A pause began or ended.
    PauseChanged,
    /// A tick ended.
    TickFinished,
}
