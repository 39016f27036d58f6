//! Holding the resource: extending, releasing, handing on. See the scripts of the same names.

use std::time::Duration;

use crate::InstanceId;
use crate::protocol::{CloseReason, Hint, LostWhy, Outcome, Token};

use super::Step;
use super::record::{Field, number};
use super::step::{as_number, granted_token, token, whole_millis};

impl Step<'_> {
    pub(super) fn renew(&mut self, term: Token, ttl: Duration, fleet: Duration) -> Outcome {
        let ttl = whole_millis(ttl);
        let fleet_ttl = ttl.max(whole_millis(fleet));
        if !self.is_mine(as_number(term)) {
            if self.record_is_foreign && self.holds_key() {
                // The key is the lease. What became of the side record is for a person to see.
                self.pexpire(ttl);
                self.warn_of_conflict();
                return Outcome::Renewed;
            }
            self.settle_life(fleet_ttl);
            return self.lost();
        }
        self.mend(as_number(term));
        self.extend(ttl);
        self.settle_life(fleet_ttl);
        Outcome::Renewed
    }

    fn warn_of_conflict(&mut self) {
        let conflict = self.conflict.clone().unwrap_or_default();
        self.warn(conflict);
    }

    fn extend(&mut self, ttl: i64) {
        // A longer lease than ever before must be known before it can be believed in.
        if ttl > self.max_ttl {
            self.hset(Field::MaxTtl, ttl);
            self.max_ttl = ttl;
        }
        self.pexpire(ttl);
        self.write_lease(ttl);
    }

    /// Since when and until when the record says that the lease lasts.
    pub(super) fn write_lease(&mut self, ttl: i64) {
        let (now, ends) = (self.now, self.now + ttl * 1000);
        self.hset(Field::RenewedAt, now);
        self.hset(Field::ExpiresAt, ends);
    }

    /// One of several nodes hears of a term that a majority holds.
    pub(super) fn adopt(&mut self, term: Token, ttl: Duration, fleet: Duration) -> Outcome {
        let (term, ttl) = (as_number(term), whole_millis(ttl));
        let fleet_ttl = ttl.max(whole_millis(fleet)).max(self.longest);
        if self.holds(term) {
            self.extend(ttl);
            self.settle_life(fleet_ttl);
            return Outcome::Renewed;
        }
        self.settle_life(fleet_ttl);
        if self.conflict.is_some() || self.key_exists() || self.quarantine.until > self.now {
            return self.lost();
        }
        if self.token.is_none() && !self.is_complete {
            self.doubt_node(fleet_ttl);
            return self.lost();
        }
        // Never back behind a term that this node knows, nor into one that was closed here.
        let known = self.token.unwrap_or(0);
        let id = self.call.id.clone();
        let is_open = known == term
            && self.meta.is(Field::Holder, id.as_str())
            && self.meta.is(Field::Open, "1");
        if known > term {
            return Outcome::Lost(LostWhy::OtherTerm(token(Some(known))));
        }
        let is_undone = self.meta.is(Field::Undone, &self.grant_note(term));
        if known == term && !is_open || is_undone {
            return self.lost();
        }
        self.take_over(term, ttl, is_open);
        Outcome::Renewed
    }

    /// What this node has forgotten may still be believed in.
    fn doubt_node(&mut self, fleet_ttl: i64) {
        let lasts = self.believed_for(fleet_ttl);
        self.begin_quarantine(lasts, "this node has no record of earlier terms");
        let (max_ttl, incarnation) = (self.max_ttl.max(fleet_ttl), self.life.incarnation());
        self.hset(Field::V, "1");
        self.hset(Field::Token, 0);
        self.hset(Field::MaxTtl, max_ttl);
        self.hset(Field::Incarnation, incarnation);
        self.write_quarantine();
    }

    fn take_over(&mut self, term: i64, ttl: i64, is_open: bool) {
        let id = self.call.id.clone();
        let (incarnation, note) = (self.life.incarnation(), self.grant_note(term));
        let (max_ttl, now) = (self.max_ttl.max(ttl), self.now);
        self.hset(Field::V, "1");
        self.hset(Field::Holder, &id);
        self.hset(Field::Token, term);
        match (is_open, self.meta.get(Field::Attempt).cloned()) {
            (true, Some(attempt)) => self.hset(Field::Attempt, attempt),
            _ => self.hset(Field::Attempt, 0),
        }
        self.hset(Field::GrantedAt, now);
        self.hset(Field::Incarnation, incarnation);
        self.hset(Field::Open, "1");
        self.hset(Field::MaxTtl, max_ttl);
        let emptied =
            [Field::Claim, Field::ClaimFrom, Field::ClaimFromToken, Field::Wish, Field::Before];
        emptied.into_iter().for_each(|field| self.hset(field, ""));
        self.hset(Field::Grant, note);
        self.set_key(&id, ttl);
        self.token = Some(term);
        self.meta.set(Field::Holder, &id);
        self.meta.set(Field::Token, term);
        self.meta.set(Field::Wish, "");
        self.meta.set(Field::Claim, "");
        self.max_ttl = max_ttl;
        self.extend(ttl);
    }

    /// Ends exactly this term and leaves the key free; `Err` is the answer where it did not.
    fn close(&mut self, term: i64, more: &[(Field, String)]) -> Result<(), Outcome> {
        if !self.holds(term) {
            if self.record_is_foreign && self.holds_key() {
                self.delete_key();
                self.warn_of_conflict();
                return Err(Outcome::Released);
            }
            self.settle_life(0);
            return Err(self.lost());
        }
        self.delete_key();
        let attempt = self.meta.number(Field::Attempt).unwrap_or(0);
        self.refuse_from_now_on(attempt);
        [Field::Wish, Field::Grant].into_iter().for_each(|field| self.hset(field, ""));
        self.hset(Field::Open, "0");
        for (field, value) in more {
            self.hset(*field, value.as_str());
        }
        self.settle_life(0);
        Ok(())
    }

    pub(super) fn release(&mut self, term: Token, reason: CloseReason) -> Outcome {
        let number = as_number(term);
        let told = format!("{} {number} {} {}", self.now, self.call.id, reason.as_str());
        if let Err(outcome) = self.close(number, &[(Field::Unrecorded, told)]) {
            return outcome;
        }
        self.hints.push(Hint::Released { token: Some(term) });
        Outcome::Released
    }

    /// Whether this hand-over was carried out before, and its answer was lost on the way.
    fn is_repeated(&self, term: i64, to: &InstanceId) -> bool {
        self.conflict.is_none()
            && self.meta.is(Field::ClaimFrom, self.call.id.as_str())
            && self.meta.number(Field::ClaimFromToken) == Some(term)
            && self.meta.is(Field::ClaimTo, to.as_str())
    }

    pub(super) fn pass_on(&mut self, term: Token, to: &InstanceId, lasts: Duration) -> Outcome {
        let number = as_number(term);
        if self.is_repeated(number, to) {
            return Outcome::Released;
        }
        let told = [
            (Field::Claim, String::new()),
            (Field::ClaimTo, to.to_string()),
            (Field::ClaimToken, String::new()),
            (Field::ClaimFrom, self.call.id.to_string()),
            (Field::ClaimFromToken, number.to_string()),
        ];
        if let Err(outcome) = self.close(number, &told) {
            return outcome;
        }
        self.hints.push(Hint::Transferred { token: term, to: to.clone(), claim_ttl: lasts });
        let id = self.call.id.clone();
        self.journal(self.now, "closed", id.as_str(), number, "handed-over", to.as_str());
        Outcome::Released
    }

    pub(super) fn abandon(&mut self, attempt: u64) -> Outcome {
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        let attempt = i64::try_from(attempt).unwrap_or(i64::MAX);
        let was_granted =
            self.names_me(self.token) && self.meta.is(Field::Attempt, &attempt.to_string());
        if was_granted {
            self.delete_key();
        }
        self.hset(Field::V, "1");
        self.refuse_from_now_on(attempt);
        self.settle_life(0);
        if was_granted {
            self.put_back();
            let (id, term) = (self.call.id.clone(), self.token.unwrap_or(0));
            if !self.is_unconfirmed() {
                self.journal(self.now, "closed", id.as_str(), term, "too-late", "");
            }
            self.hints.push(Hint::Released { token: token(Some(term)) });
        }
        Outcome::Abandoned { was_granted }
    }

    /// A number that no majority settled must not keep this node from adopting an earlier one.
    fn put_back(&mut self) {
        let before = self.meta.text(Field::Before).into_owned();
        let mut words = before.splitn(4, ' ');
        let parts = (words.next(), words.next(), words.next(), words.next());
        match parts {
            (Some(known), Some(attempt), Some(is_open @ ("0" | "1")), Some(holder))
                if number(known).is_some() && attempt.bytes().all(|b| b.is_ascii_digit()) =>
            {
                let undone = self.grant_note(self.token.unwrap_or(0));
                self.hset(Field::Token, known);
                self.hset(Field::Attempt, attempt);
                self.hset(Field::Open, is_open);
                self.hset(Field::Holder, holder);
                self.hset(Field::Before, "");
                self.hset(Field::Undone, undone);
                self.put_lease_back();
            }
            _ => self.hset(Field::Open, "0"),
        }
        self.hset(Field::Wish, "");
        self.hset(Field::Grant, "");
    }

    /// Nobody led by it: a lock delay goes by the lease before.
    fn put_lease_back(&mut self) {
        let before = self.meta.text(Field::BeforeLease).into_owned();
        let mut words = before.splitn(3, ' ');
        let parts = (words.next(), words.next().and_then(number), words.next().and_then(number));
        if let (Some(noted), Some(renewed_at), Some(expires_at)) = parts
            && self.meta.is(Field::GrantedAt, noted)
        {
            self.hset(Field::RenewedAt, renewed_at);
            self.hset(Field::ExpiresAt, expires_at);
        }
    }

    pub(super) fn transfer(&mut self, term: Token, to: &InstanceId, lasts: Duration) -> Outcome {
        let (number, claim_ttl) = (as_number(term), whole_millis(lasts));
        let drawn_before = self.meta.number(Field::ClaimToken);
        if let Some(drawn) = drawn_before.filter(|_| self.is_repeated(number, to)) {
            return Outcome::Transferred { token: granted_token(drawn) };
        }
        if !self.holds(number) {
            self.settle_life(claim_ttl);
            return self.lost();
        }
        let drawn = (number.max(self.quarantine_covers) + 1).max(self.now);
        let (id, ends) = (self.call.id.clone(), self.now + claim_ttl * 1000);
        let attempt = self.meta.number(Field::Attempt).unwrap_or(0);
        self.refuse_from_now_on(attempt);
        self.hset(Field::Holder, to);
        self.hset(Field::Token, drawn);
        self.hset(Field::ExpiresAt, ends);
        self.hset(Field::Open, "0");
        let emptied = [Field::Attempt, Field::Wish, Field::Grant];
        emptied.into_iter().for_each(|field| self.hset(field, ""));
        self.hset(Field::Claim, to);
        self.hset(Field::ClaimTo, to);
        self.hset(Field::ClaimToken, drawn);
        self.hset(Field::ClaimFrom, &id);
        self.hset(Field::ClaimFromToken, number);
        self.set_key(to, claim_ttl);
        self.token = Some(drawn);
        self.meta.set(Field::Holder, to);
        self.meta.set(Field::Token, drawn);
        self.meta.set(Field::Wish, "");
        self.meta.set(Field::Claim, to);
        self.meta.set(Field::ClaimToken, drawn);
        self.settle_life(claim_ttl);
        self.hints.push(Hint::Transferred { token: term, to: to.clone(), claim_ttl: lasts });
        self.journal(self.now, "closed", id.as_str(), number, "handed-over", to.as_str());
        Outcome::Transferred { token: granted_token(drawn) }
    }
}
