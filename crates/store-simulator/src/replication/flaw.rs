//! Rules of replication broken one at a time, by what surrounds the unchanged core.

use super::judge::Rule;

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A request counts as applied when it has been read.
    OffsetAtRead,
    /// The requests of a transaction count one by one.
    PsyncInsideMulti,
    /// A replica sends its own replicas what it would have written itself.
    FeedOwnEncoding,
    /// The first request behind a payload comes without its database.
    NoSelectAfterFullSync,
    /// The history before a promotion is continued at any offset.
    SecondIdUnbounded,
    /// A history keeps its name although writes were not counted.
    KeepIdWithoutBacklog,
    /// What the old data was is remembered after it was thrown away.
    CachedPrimaryAfterLoad,
    /// Whether the old data has gone is guessed from how payloads were loaded when the primary was
    /// dialled.
    LoadModeGuessed,
    /// What the old data was is forgotten when a payload is whole, although the data is there until
    /// the payload is known to be good.
    ForgottenEarly,
    /// A file says what its data was when it was written, not when the snapshot began.
    SaveDescribedLate,
    /// A snapshot that has to wait begins though nobody wants it any more.
    SnapshotNotCancelled,
    /// The write of a session that was blocked is not remembered for WAIT.
    OffsetNotSetOnWake,
    /// What a replica acknowledged on an earlier connection counts.
    CountStaleAcks,
    /// Acks name what was read.
    AckBeforeApply,
    /// A replica deletes keys that have expired.
    ReplicaExpires,
    /// Keys are deleted while clients are paused.
    ExpireInPause,
    /// A primary leaves keys out that ended before it started, and tells nobody.
    EndedKeysLeftOut,
    /// A payload that is never taken counts as one that came to nothing this time.
    AsksForEver,
    /// The stream is trimmed although somebody has still to read it.
    TrimUnderReader,
    /// A large value is kept in one block.
    BlockAsBigAsValue,
}

/// A flaw, and what must catch it.
#[derive(Debug)]
pub struct Control {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is broken.
    pub flaw: Flaw,
    /// The rule that must notice. Its worlds are watched for this one alone.
    pub breaks: Rule,
}

const fn control(name: &'static str, flaw: Flaw, breaks: Rule) -> Control {
    Control { name, flaw, breaks }
}

/// All flaws.
pub const CONTROLS: &[Control] = &[
    control("offset-at-read", Flaw::OffsetAtRead, Rule::R1),
    control("psync-inside-multi", Flaw::PsyncInsideMulti, Rule::R1),
    control("feed-own-encoding", Flaw::FeedOwnEncoding, Rule::R1),
    control("no-select-after-fullsync", Flaw::NoSelectAfterFullSync, Rule::R1),
    control("second-id-unbounded", Flaw::SecondIdUnbounded, Rule::R2),
    control("keep-replid-without-backlog", Flaw::KeepIdWithoutBacklog, Rule::R2),
    control("cached-master-after-load", Flaw::CachedPrimaryAfterLoad, Rule::R2),
    control("load-mode-guessed", Flaw::LoadModeGuessed, Rule::R1),
    control("forgotten-early", Flaw::ForgottenEarly, Rule::R5),
    control("save-described-late", Flaw::SaveDescribedLate, Rule::R2),
    control("snapshot-not-cancelled", Flaw::SnapshotNotCancelled, Rule::R2),
    control("woff-not-set-on-wake", Flaw::OffsetNotSetOnWake, Rule::R3),
    control("count-stale-acks", Flaw::CountStaleAcks, Rule::R3),
    control("ack-before-apply", Flaw::AckBeforeApply, Rule::R3),
    control("replica-expires", Flaw::ReplicaExpires, Rule::R4),
    control("expire-in-pause", Flaw::ExpireInPause, Rule::R4),
    control("ended-keys-left-out", Flaw::EndedKeysLeftOut, Rule::R4),
    control("asks-for-ever", Flaw::AsksForEver, Rule::R5),
    control("trim-under-reader", Flaw::TrimUnderReader, Rule::R5),
    control("block-as-big-as-value", Flaw::BlockAsBigAsValue, Rule::R5),
];
