//! Elections on a store that can only compare and swap.
//!
//! Such a store keeps texts, each with a version, and writes one only if its version is still the
//! one that was read. In: a [`Call`] and what was [`Found`]. Out: what to [`Write`], if anything,
//! and the answer that holds once it is written. The rules are those of
//! [`MemoryStore`]: it is filled with what was found, carries out the call, and is written down.
//!
//! Where the store has a clock, `Found::clock` has its reading. Where it has none, expiry is
//! *observed* ([`Observed`]): time goes on only as far as this process saw a version stay.
//!
//! Not covered yet: on a store without a clock, a restored backup takes its time back and with it
//! tokens that were granted since. With a clock, the same needs older data and a clock that was set
//! back. The simulator's rows leave both out, so an adapter must not promise growing tokens there.
//!
//! ```
//! # use std::time::Duration;
//! # use tenure_core::protocol::{Call, Outcome, Request};
//! # use tenure_core::swap::{Found, decide};
//! # use tenure_core::{InstanceId, Resource, ServerTime};
//! let call = Call {
//!     resource: Resource::named("nightly-report").unwrap(),
//!     id: InstanceId::new("web-1", 7).unwrap(),
//!     request: Request::Observe { members: false },
//!     timeout: Duration::from_secs(1),
//!     fleet_max_ttl: Duration::from_secs(10),
//! };
//! let found = Found { clock: ServerTime(1_700_000_000_000_000), ..Found::default() };
//! let decision = decide(&call, &found).unwrap();
//! assert_eq!(decision.answer.outcome, Outcome::Done);
//! assert_eq!(decision.write, None, "who only looks writes nothing");
//! ```

use crate::memory_store::{Life, MemoryStore, Part};
use crate::protocol::{Answer, Call, Hint, Outcome, Request};
use crate::{Moment, ServerTime, StoreError};

/// A text and its version. What is absent is empty and has version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// Grows with every write, and is never used again.
    pub version: u64,
    /// What was written.
    pub text: String,
}

/// What a store has about one resource, read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The lease and all that is decided with it.
    pub lease: Versioned,
    /// Who takes part; need not be read unless [`needs_members`] says so.
    pub members: Versioned,
    /// The latest lines of history, oldest first; only read for [`Request::History`].
    pub history: Vec<String>,
    /// The store's clock, or what [`Observed::now`] says.
    pub clock: ServerTime,
    /// Which life of the store this is: another text after a failover or a restored backup. Has
    /// letters, digits, dashes and dots.
    pub incarnation: String,
    /// When this life began, by the same clock.
    pub started_at: ServerTime,
}

/// What is to be written, whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The lease, if it changes. Only if its version is unchanged may anything be written.
    pub lease: Option<Versioned>,
    /// The members, if they change; the version is the one to compare with. Beside a lease they
    /// are left out if their version has changed: the next heartbeat brings them.
    pub members: Option<Versioned>,
    /// Lines to append to the history.
    pub history: Vec<String>,
}

/// The result of a call, which holds once `write` is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to write first, if anything. If a version has changed meanwhile, read again and decide
    /// again.
    pub write: Option<Write>,
    /// The answer.
    pub answer: Answer,
    /// What subscribers are to hear.
    pub hints: Vec<Hint>,
}

/// Whether the members must be read to decide a request.
pub fn needs_members(request: &Request) -> bool {
    match request {
        Request::Observe { members } => *members,
        Request::Acquire(_)
        | Request::Beat { .. }
        | Request::Leave
        | Request::Release { .. }
        | Request::Transfer { .. }
        | Request::PassOn { .. } => true,
        _ => false,
    }
}

/// Whether a request changes nothing, whatever is found.
pub fn only_reads(request: &Request) -> bool {
    matches!(request, Request::Observe { .. } | Request::History { .. } | Request::TickLook { .. })
}

/// The time at which the text of a lease was written, by the clock that its writer was told.
pub fn written_at(lease: &str) -> Option<ServerTime> {
    let (_, at) = lease.trim_end().rsplit_once('\n')?;
    at.strip_prefix("at\t")?.parse().ok().map(ServerTime)
}

/// Decides a call by what was found. Fails when something there is not ours: nothing may be
/// written over it.
pub fn decide(call: &Call, found: &Found) -> Result<Decision, StoreError> {
    let resource = &call.resource;
    let life = Life {
        run: found.incarnation.clone(),
        replication: String::new(),
        failed_over: false,
        started_at: found.started_at,
        history_is_complete: false,
    };
    let mut store = MemoryStore::of_life(life);
    let foreign = |what: &str| {
        let what = what.to_owned();
        move |why: String| {
            StoreError::unexpected(format!("the {what} of {} is not ours: {why}", resource.key()))
                .with_next_step("remove it, or give elections a store or schema of their own")
        }
    };
    store.put_part(resource, &found.lease.text).map_err(foreign("lease"))?;
    store.put_part(resource, &found.members.text).map_err(foreign("list of members"))?;
    if matches!(call.request, Request::History { .. }) {
        store.put_history(resource, &found.history);
    }
    // Outcomes of ticks end, and nobody but the next writer takes them out of the text.
    store.remove_expired(found.clock);
    let before = [store.part(resource, Part::Lease), store.part(resource, Part::Members)];
    let (answer, hints) = store.execute(found.clock, call);
    if only_reads(&call.request) {
        return Ok(Decision { write: None, answer, hints });
    }
    // A lease that begins or goes on has a new version even where its text is the same: whoever
    // observes it counts anew.
    let goes_on = matches!(
        answer.outcome,
        Outcome::Granted { .. } | Outcome::Renewed | Outcome::Transferred { .. }
    );
    let changed = |before: &str, part, version| {
        let text = store.part(resource, part);
        let is_due = part == Part::Lease && goes_on;
        (is_due || text != before).then_some(Versioned { version, text })
    };
    let mut lease = changed(&before[0], Part::Lease, found.lease.version);
    if let Some(lease) = &mut lease {
        lease.text += &format!("at\t{}\n", found.clock.0);
    }
    let members = match needs_members(&call.request) {
        true => changed(&before[1], Part::Members, found.members.version),
        false => None,
    };
    let history = store.history_lines(resource);
    let is_changed = lease.is_some() || members.is_some() || !history.is_empty();
    let write = is_changed.then_some(Write { lease, members, history });
    Ok(Decision { write, answer, hints })
}

/// The time of a resource on a store without a clock.
///
/// A lease is written with the time that its writer knew. Whoever finds that version counts from
/// the moment at which it saw it first, on its own clock that goes on through suspend: never
/// earlier than it was written, so nobody's lease ends before its holder stops. No two clocks are
/// ever compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    seen: Option<Seen>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    incarnation: String,
    version: u64,
    /// What was written beside that version.
    written: ServerTime,
    first_at: Moment,
}

impl Observed {
    /// The time of the resource, when the lease is found with `version`, written at `written` of
    /// its own time; `heard_at` is its own clock when the answer came. A resource without a
    /// lease begins with any time that grows, such as a wall clock's.
    pub fn now(
        &mut self,
        incarnation: &str,
        version: u64,
        written: ServerTime,
        heard_at: Moment,
    ) -> ServerTime {
        let is_known = self.seen.as_ref().is_some_and(|seen| {
            seen.version == version && seen.incarnation == incarnation && seen.written == written
        });
        if !is_known {
            let incarnation = incarnation.to_owned();
            self.seen = Some(Seen { incarnation, version, written, first_at: heard_at });
        }
        let first_at = self.seen.as_ref().map_or(heard_at, |seen| seen.first_at);
        let stayed = u64::try_from(heard_at.since(first_at).as_micros()).unwrap_or(u64::MAX);
        ServerTime(written.0.saturating_add(stayed))
    }

    /// This process wrote `version` itself, at the time `written` that it knew at `read_at`: its
    /// time goes on from there. Otherwise time would stand still while one process alone writes.
    pub fn wrote(&mut self, incarnation: &str, version: u64, written: ServerTime, read_at: Moment) {
        let incarnation = incarnation.to_owned();
        self.seen = Some(Seen { incarnation, version, written, first_at: read_at });
    }
}

#[cfg(test)]
mod tests;
