//! What this instance has seen of the resource: hearsay, good for timing and for people.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Answer, Member, Outcome, View};
use crate::{EventKind, InstanceId, Moment, SeenLeader, ServerTime, StoreError};

use super::{Election, rank};

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) leader: Option<SeenLeader>,
    /// Who led last, as far as known: it lets the others go first.
    pub(super) last_holder: Option<InstanceId>,
    pub(super) members: Arc<[Member]>,
    /// When they are to be listed next, and before when they must not be.
    members_due_at: Moment,
    members_rest_until: Moment,
    /// How long this instance lets others list them first.
    members_turn: Duration,
    /// When we last learned of a change of the members that no list can show yet.
    members_changed_at: Option<Moment>,
    /// The store's clock when it listed the members. Later readings would make all of them look
    /// silent: the list is kept for as long as a member may be silent.
    pub(super) members_listed_at: ServerTime,
    /// A smoothed round trip; zero until the first answer.
    round_trip: Duration,
    /// A holder whose key has no expiry, and since when it has been seen like that.
    pub(super) endless: Option<(InstanceId, Moment)>,
    /// What was warned of and still stands, the latest last. Empty most of the time.
    warned: Vec<(Source, String)>,
}

/// Where a warning comes from: it stands until there is nothing to warn of any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Side writes of requests about the lease.
    Lease,
    /// Side writes of requests beside it.
    Beside,
    /// Renewals that fail, until the store answers about the lease again.
    Renewal,
    /// A key without expiry.
    EndlessHolder,
}

/// The most warnings that stand at once.
const WARNINGS_STANDING_MAX: usize = 32;
/// Members are listed again after this many leases: they change slowly.
const LIST_LEASES: u32 = 3;
/// The distance between two lists in a fleet. Each member lists all others: left to themselves,
/// five hundred that learned of a change or found their store again would keep it busy for longer
/// than any of them waits, and all would have to ask again.
const LIST_DISTANCE: Duration = Duration::from_millis(20);

impl Seen {
    /// What an instance knows that found this holder without expiry before.
    pub(super) fn after(endless: Option<(InstanceId, Moment)>) -> Self {
        Seen { endless, ..Seen::default() }
    }

    pub(super) fn step(&self) -> Duration {
        rank::step(self.round_trip)
    }

    /// When it is this instance's turn to list the members, not before `earliest`: at most once in
    /// a round of the whole fleet, in the order of ranks.
    fn list_turn_at(&self, earliest: Moment) -> Moment {
        earliest.max(self.members_rest_until) + self.members_turn
    }

    /// How long a whole fleet takes to list its members one after the other.
    fn list_round(&self) -> Duration {
        LIST_DISTANCE.saturating_mul(u32::try_from(self.members.len()).unwrap_or(u32::MAX))
    }
}

impl Election {
    /// Takes from an answer what is worth knowing in every stage.
    pub(super) fn note_reply(
        &mut self,
        now: Moment,
        sent_at: Moment,
        source: Source,
        reply: &Result<Answer, StoreError>,
    ) {
        let Ok(answer) = reply else { return self.put_off_list(now) };
        let round_trip = now.since(sent_at);
        self.seen.round_trip = match self.seen.round_trip {
            Duration::ZERO => round_trip,
            before => (before * 7 + round_trip) / 8,
        };
        self.floor = self.floor.max(answer.view.token);
        if let Outcome::Granted { token } | Outcome::Transferred { token } = answer.outcome {
            self.floor = self.floor.max(Some(token));
        }
        // What stands at a key of another type is nobody's leadership.
        if !matches!(answer.outcome, Outcome::Conflict { .. }) {
            self.note_leader(now, &answer.view);
            self.note_endless_holder(now, &answer.view);
        }
        if let Some(members) = &answer.view.members {
            self.seen.members_listed_at = answer.view.server_time;
            // A change that was heard of after the request may have come after the list, too.
            self.seen.members_changed_at.take_if(|changed_at| *changed_at < sent_at);
            self.note_members(now, members);
        }
        self.warn(now, source, &answer.warnings);
        if source == Source::Lease {
            self.warn(now, Source::Renewal, &[]);
        }
    }

    fn note_leader(&mut self, now: Moment, view: &View) {
        let holder = view.holder.as_ref().filter(|id| !id.is_mark()).map(|id| self.shared(id));
        if holder.is_some() {
            self.seen.last_holder.clone_from(&holder);
        }
        // A successor that has not claimed the resource yet does not lead, nor does somebody whose
        // grant waits for replicas.
        let leads = !view.reserved && !view.unconfirmed;
        let leader = holder.filter(|_| leads).map(|id| SeenLeader {
            id,
            token: view.token,
            foreign: view.foreign,
        });
        if self.seen.leader != leader {
            self.seen.leader = leader.clone();
            self.tell(now, EventKind::LeaderSeen(leader));
        }
    }

    /// The same id, without a copy of its own where this instance has one already: thousands of
    /// elections of one process see the same leader for hours.
    fn shared(&self, id: &InstanceId) -> InstanceId {
        let known = [Some(&self.settings.id), self.seen.last_holder.as_ref()];
        known.into_iter().flatten().find(|known| *known == id).unwrap_or(id).clone()
    }

    fn note_members(&mut self, now: Moment, members: &[Member]) {
        if *self.seen.members != *members {
            let known = |member: &Member| Member { id: self.shared(&member.id), ..member.clone() };
            self.seen.members = members.iter().map(known).collect();
            self.tell(now, EventKind::MembersSeen(Arc::clone(&self.seen.members)));
        }
        self.seen.members_turn = LIST_DISTANCE.saturating_mul(self.rank());
        self.seen.members_rest_until = now + self.seen.list_round();
        let kept_for = match self.seen.members_changed_at {
            Some(_) => Duration::ZERO,
            None => self.settings.timing.ttl() * LIST_LEASES,
        };
        self.seen.members_due_at = self.seen.list_turn_at(now + kept_for);
    }

    /// The members are said to have changed.
    pub(super) fn note_members_changed(&mut self, now: Moment) {
        self.seen.members_changed_at = Some(now);
        let due_at = self.seen.list_turn_at(now);
        self.seen.members_due_at = self.seen.members_due_at.min(due_at);
    }

    /// A store that does not answer has enough to do: the next request costs it as little as
    /// possible. An instance that knows no members yet has no turn either; then chance tells them
    /// apart.
    fn put_off_list(&mut self, now: Moment) {
        let rest = match self.seen.members.is_empty() {
            true => self.random.below(self.settings.timing.ttl()),
            false => self.seen.list_round(),
        };
        self.seen.members_rest_until = self.seen.members_rest_until.max(now + rest);
        self.seen.members_due_at = self.seen.members_due_at.max(self.seen.list_turn_at(now));
    }

    fn note_endless_holder(&mut self, now: Moment, view: &View) {
        let endless = view.holder.clone().filter(|id| view.pttl.is_none() && !id.is_mark());
        match (&self.seen.endless, endless) {
            (Some((known, _)), Some(holder)) if *known == holder => {}
            (_, Some(holder)) => {
                let text = format!(
                    "key {:?} holds {:?} without an expiry; it gets one unless that changes",
                    self.settings.resource.key(),
                    holder.as_str()
                );
                self.seen.endless = Some((holder, now));
                self.warn(now, Source::EndlessHolder, &[text]);
            }
            (_, None) => {
                self.seen.endless = None;
                self.warn(now, Source::EndlessHolder, &[]);
            }
        }
    }

    /// Takes what there is to warn of from `source` now: what is new is told, what is not among it
    /// any more stands no longer.
    pub(super) fn warn(&mut self, now: Moment, source: Source, warnings: &[String]) {
        self.seen.warned.retain(|(from, text)| *from != source || warnings.contains(text));
        for warning in warnings.iter().take(WARNINGS_STANDING_MAX) {
            let stands = self.seen.warned.iter().any(|(_, text)| text == warning);
            if !stands && self.seen.warned.len() < WARNINGS_STANDING_MAX {
                self.seen.warned.push((source, warning.clone()));
                self.tell(now, EventKind::Warning(warning.clone()));
            }
        }
        if self.seen.warned.is_empty() {
            self.seen.warned = Vec::new();
        }
    }

    pub(super) fn is_warned_of(&self, source: Source) -> bool {
        self.seen.warned.iter().any(|(from, _)| *from == source)
    }

    /// The latest warning that still applies.
    pub fn warning(&self) -> Option<&str> {
        self.seen.warned.last().map(|(_, text)| text.as_str())
    }

    /// Whether a request that goes out now is to bring the members along.
    pub(super) fn wants_members(&self, now: Moment) -> bool {
        self.seen.members_due_at <= now
    }
}
