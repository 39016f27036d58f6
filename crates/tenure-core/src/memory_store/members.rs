//! Who takes part, and what they wish from the one who leads.

use std::time::Duration;

use crate::ServerTime;
use crate::protocol::{
    Hint, MEMBERS_LISTED_MAX, Member, MemberRecord, Outcome, Token, Wish, WishKind,
};

use super::shelf::Seat;
use super::{Step, later};

/// After this many leases of silence a member's readiness counts anew.
const SILENT_LEASES_MAX: u32 = 3;
/// After this many leases of silence a member is forgotten.
const FORGOTTEN_LEASES: u32 = 10;

impl Step<'_> {
    pub(super) fn beat(&mut self, record: &MemberRecord) -> Outcome {
        self.sit_down(record);
        Outcome::Done
    }

    /// Records the caller as alive now, with what it says about itself.
    pub(super) fn sit_down(&mut self, record: &MemberRecord) {
        let holds = self.holder() == Some(&self.call.id);
        let now = self.now;
        let silent_max = record.ttl * SILENT_LEASES_MAX;
        match self.shelf.members.get_mut(&self.call.id) {
            Some(seat) => {
                let was_silent = now.since(seat.beat_at) > silent_max && !holds;
                let since = seat.ready_since.filter(|_| !was_silent).unwrap_or(now);
                let ready_since = record.ready.then_some(since);
                seat.beat_at = now;
                if seat.ready_since == ready_since && seat.record == *record {
                    return;
                }
                seat.ready_since = ready_since;
                seat.record = record.clone();
            }
            None => {
                let ready_since = record.ready.then_some(now);
                let seat = Seat { record: record.clone(), ready_since, beat_at: now };
                self.shelf.members.insert(self.call.id.clone(), seat);
                self.forget_the_silent(record.ttl);
            }
        }
        self.hints.push(Hint::Members);
    }

    fn forget_the_silent(&mut self, ttl: Duration) {
        let longest = self.shelf.meta.as_ref().map_or(ttl, |meta| meta.max_ttl.max(ttl));
        let (now, holder) = (self.now, self.holder().cloned());
        self.shelf.members.retain(|id, seat| {
            now.since(seat.beat_at) < longest * FORGOTTEN_LEASES || holder.as_ref() == Some(id)
        });
    }

    pub(super) fn leave(&mut self) -> Outcome {
        self.shelf.members.remove(&self.call.id);
        self.hints.push(Hint::Members);
        Outcome::Done
    }

    /// The members, last heard first. Who holds the resource is heard by renewing.
    pub(super) fn members(&self) -> Vec<Member> {
        let holder = self.holder();
        let renewed_at = match &self.shelf.meta {
            Some(meta) if meta.holder.as_ref() == holder => meta.renewed_at,
            _ => ServerTime::default(),
        };
        let mut members: Vec<Member> = self
            .shelf
            .members
            .iter()
            .map(|(id, seat)| Member {
                id: id.clone(),
                record: seat.record.clone(),
                ready_since: seat.ready_since,
                beat_at: match Some(id) == holder {
                    true => seat.beat_at.max(renewed_at),
                    false => seat.beat_at,
                },
            })
            .collect();
        members.sort_by(|a, b| b.beat_at.cmp(&a.beat_at).then_with(|| b.id.cmp(&a.id)));
        members.truncate(MEMBERS_LISTED_MAX);
        members
    }

    pub(super) fn wish(&mut self, token: Token, kind: &WishKind, stands_for: Duration) -> Outcome {
        let holder = self.holder().cloned();
        let by = self.call.id.clone();
        let until = later(self.now, stands_for);
        match &mut self.shelf.meta {
            Some(meta) if holder.is_some() && meta.token == token && meta.holder == holder => {
                meta.wish = Some(Wish { kind: kind.clone(), by, token, until, refused: None });
                self.hints.push(Hint::Wished { token });
                Outcome::Done
            }
            _ => Outcome::NoSuchTerm,
        }
    }

    pub(super) fn refuse_wish(&mut self, token: Token, reason: &str) -> Outcome {
        if let Some(why) = self.not_mine(token) {
            return Outcome::Lost(why);
        }
        let wish = self.shelf.meta.as_mut().and_then(|meta| meta.wish.as_mut());
        if let Some(wish) = wish.filter(|wish| wish.token == token && wish.until > self.now) {
            wish.refused = Some(reason.to_owned());
            self.hints.push(Hint::Wished { token });
        }
        Outcome::Done
    }
}
