//! The state of an election as this instance knows it.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Connection;
use crate::clock::Clock;
use crate::fork::Generation;
use crate::latest::Latest;
use tenure_core::protocol::Member;
use tenure_core::{InstanceId, Moment, Reason, Resource, Role, SeenLeader, Timing, Token};

/// The state of an election, as seen by this instance at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The resource of the election.
    pub resource: Resource,
    /// The id of this instance.
    pub id: InstanceId,
    /// The role of this instance. It is never a leading one after the term's time has passed.
    pub role: Role,
    /// Why this instance has this role.
    pub reason: Reason,
    /// The token of the term that it holds.
    pub token: Option<Token>,
    /// How long that term may still be acted on unless renewed.
    pub remaining: Option<Duration>,
    /// When the term was last granted or renewed, on the local clock.
    pub renewed_at: Option<Moment>,
    /// The leader as last seen; this may be this instance.
    pub seen_leader: Option<SeenLeader>,
    /// The members as last seen.
    pub seen_members: Arc<[Member]>,
    /// The state of the connection to the store.
    pub connection: Connection,
    /// Whether elections are switched on. If `false`, this instance leads alone and without a
    /// store.
    pub enabled: bool,
    /// The time settings: lease, renewal, grace.
    pub timing: Timing,
    /// The latest warning that still applies.
    pub warning: Option<Arc<str>>,
    /// Whether the latest request of this election was abandoned without an answer. A refusal is an
    /// answer.
    pub unanswered: bool,
    /// How often things have happened so far.
    pub counts: Counts,
    /// A term was released and the store has not confirmed it yet.
    pub(crate) parting: bool,
    pub(crate) ends_at: Option<Moment>,
}

/// Counts since this election started in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Terms begun.
    pub terms: u64,
    /// Terms ended, for whatever reason.
    pub ends: u64,
    /// Terms that this instance lost.
    pub losses: u64,
    /// Renewals that succeeded.
    pub renewals: u64,
    /// Renewals that failed.
    pub renewals_failed: u64,
    /// Attempts to lead that failed.
    pub attempts_failed: u64,
    /// Requests of any kind that were abandoned without an answer.
    pub unanswered: u64,
    /// Events so far; also the number of the latest event.
    pub events: u64,
}

impl Status {
    /// That of a forked child: it takes part in nothing, whatever its parent does.
    pub(crate) fn in_forked_child(resource: Resource, id: InstanceId, timing: Timing) -> Self {
        let status = Status::starting(resource, id, timing, true);
        Status { role: Role::Stopped, reason: Reason::Stopped, ..status }
    }

    pub(crate) fn starting(
        resource: Resource,
        id: InstanceId,
        timing: Timing,
        enabled: bool,
    ) -> Self {
        Status {
            resource,
            id,
            role: Role::Unknown,
            reason: Reason::Started,
            token: None,
            remaining: None,
            renewed_at: None,
            seen_leader: None,
            seen_members: Arc::new([]),
            connection: Connection::Connecting,
            enabled,
            timing,
            warning: None,
            unanswered: false,
            counts: Counts::default(),
            parting: false,
            ends_at: None,
        }
    }

    /// Whether somebody who follows the election would call the way from `before` to this a
    /// change. Clocks, counts, heartbeats and the words of one outage are none.
    fn differs(&self, before: &Status) -> bool {
        self.role != before.role
            || !self.reason.is_same_cause(&before.reason)
            || self.token != before.token
            || self.seen_leader != before.seen_leader
            || self.warning != before.warning
            || !is_same_state(&self.connection, &before.connection)
            || !is_same_company(&self.seen_members, &before.seen_members)
    }

    /// The status as it is now: what has run out is not reported as held, even if the thread that
    /// should have noticed was not given a chance to.
    pub(crate) fn at(mut self, now: Moment) -> Self {
        match self.ends_at {
            Some(ends_at) if now < ends_at => self.remaining = Some(now.until(ends_at)),
            Some(_) => {
                (self.role, self.reason) = (Role::Unknown, Reason::LeaseEnded);
                (self.token, self.remaining) = (None, None);
            }
            None => {}
        }
        self
    }
}

fn is_same_state(one: &Connection, other: &Connection) -> bool {
    match (one, other) {
        (Connection::Down(one), Connection::Down(other)) => one.kind() == other.kind(),
        _ => one == other,
    }
}

fn is_same_company(one: &[Member], other: &[Member]) -> bool {
    let facts = |member: &Member| (member.id.clone(), member.record.clone());
    one.len() == other.len() && one.iter().map(facts).eq(other.iter().map(facts))
}

/// Follows the status of an election. It has the latest state only and keeps no queue.
#[derive(Clone, Debug)]
pub struct Watch {
    latest: Arc<Latest<Status>>,
    clock: Clock,
    born_in: Generation,
    /// As last seen by whoever watches, and its version.
    seen: Status,
    seen_version: u64,
}

impl Watch {
    /// Follows `latest`, of which the caller has read the version first and then `seen`.
    pub(crate) fn new(
        latest: Arc<Latest<Status>>,
        clock: Clock,
        born_in: Generation,
        seen_version: u64,
        seen: Status,
    ) -> Self {
        Watch { latest, clock, born_in, seen, seen_version }
    }

    /// The current status.
    pub fn status(&self) -> Status {
        if !self.born_in.is_current() {
            // The lock may have been held when the process was forked.
            let Status { resource, id, timing, .. } = &self.seen;
            return Status::in_forked_child(resource.clone(), id.clone(), *timing);
        }
        self.latest.read().clone().at(self.clock.now())
    }

    /// Waits for a change since the last call and returns the status after it, or `None` once the
    /// election has stopped and its last status was returned. Renewals, heartbeats, counts and an
    /// outage that goes on are not changes.
    pub async fn wait_for_change(&mut self) -> Option<Status> {
        loop {
            if !self.born_in.is_current() {
                return None;
            }
            let seen_last = self.latest.version() == self.seen_version;
            if seen_last && self.latest.read().role == Role::Stopped {
                return None;
            }
            self.seen_version = self.latest.changed_since(self.seen_version).await;
            let status = self.latest.read().clone();
            if status.differs(&self.seen) {
                self.seen.clone_from(&status);
                return Some(status.at(self.clock.now()));
            }
        }
    }
}
