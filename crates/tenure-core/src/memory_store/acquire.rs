//! Taking the resource: see `acquire.lua` of the Redis backend, which this repeats.

use crate::protocol::{Acquire, Ballot, Hint, LostWhy, Outcome};

use super::Step;
use super::record::Field;
use super::step::{
    SHOWN_MAX, TTL_MAX, YEAR, as_duration, as_number, granted_token, quarantine_mark, token,
    whole_millis,
};

/// How far the clock of expiries may be from the store's clock within a script, in milliseconds.
const EXPIRY_GRAIN: i64 = 1000;

/// What the attempt asks for, in the numbers of the record.
struct Ask<'a> {
    acquire: &'a Acquire,
    attempt: i64,
    ttl: i64,
    fleet_ttl: i64,
    floor: i64,
    settled: Option<i64>,
    proposes: bool,
}

/// The term that the record tells of.
struct LastTerm {
    is_open: bool,
    expires_at: i64,
}

impl Step<'_> {
    pub(super) fn acquire(&mut self, acquire: &Acquire) -> Outcome {
        let ttl = whole_millis(acquire.ttl);
        let ask = Ask {
            acquire,
            attempt: i64::try_from(acquire.attempt).unwrap_or(i64::MAX),
            ttl,
            fleet_ttl: ttl.max(whole_millis(acquire.fleet_max_ttl)).max(self.longest),
            floor: acquire.floor.map_or(0, as_number),
            settled: match acquire.ballot {
                Ballot::Settle(token) => Some(as_number(token)),
                _ => None,
            },
            proposes: acquire.ballot == Ballot::Propose,
        };
        if ask.floor.max(ask.settled.unwrap_or(0)) > self.now + YEAR {
            let what = "the token that this instance saw is over a year ahead of the store clock";
            self.conflict.get_or_insert(what.to_owned());
        } else if self.token.unwrap_or(0) > self.now + YEAR {
            let meta = &self.names.meta;
            let what = format!("token in {meta} is more than a year ahead of the store clock");
            self.conflict.get_or_insert(what);
        }
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        self.judge_life(ask.fleet_ttl);
        let outcome = self.decide(&ask);
        self.save_life();
        // Who settles has proposed, and said so then.
        if ask.settled.is_none() {
            self.beat(&acquire.record, ttl);
        }
        outcome
    }

    fn decide(&mut self, ask: &Ask<'_>) -> Outcome {
        let is_repeated = self.names_me(self.token)
            && self.meta.is(Field::Attempt, &ask.attempt.to_string())
            && self.token.is_some_and(|token| token >= ask.floor);
        if is_repeated {
            return self.grant_again(ask);
        }
        let is_late = self.meta.is(Field::Holder, self.call.id.as_str())
            && ask.attempt <= self.meta.number(Field::Attempt).unwrap_or(-1)
            && !self.holds_key();
        if self.is_refused(ask.attempt) || is_late {
            return Outcome::AttemptRefused;
        }
        if self.key_exists() && !self.is_quarantined() {
            return self.acquire_occupied(ask);
        }
        self.acquire_vacant(ask)
    }

    /// The caller missed the answer to its attempt. Unlike a renewal that is not believed in yet,
    /// so it waits when the store may have forgotten a later term.
    fn grant_again(&mut self, ask: &Ask<'_>) -> Outcome {
        if self.quarantine.until > self.now {
            return self.quarantined(self.remaining(self.quarantine.until));
        }
        if ask.proposes {
            return self.proposal();
        }
        if ask.settled.is_some() && ask.settled < self.token {
            return Outcome::Lost(LostWhy::OtherTerm(token(self.token)));
        }
        self.pexpire(ask.ttl);
        if let Some(settled) = ask.settled.filter(|settled| Some(*settled) > self.token) {
            // Nobody believes in the earlier number: the attempt was not granted by a majority.
            let note = self.grant_note(settled);
            self.hset(Field::Token, settled);
            self.hset(Field::Grant, note);
            self.token = Some(settled);
            self.meta.set(Field::Token, settled);
        }
        self.write_lease(ask.ttl);
        Outcome::Granted { token: granted_token(self.token.unwrap_or(0)) }
    }

    /// The lowest number under which this node would grant the resource: what its clock shows is
    /// in the answer as well, and whoever asks several nodes sees which clock to follow.
    fn proposal(&self) -> Outcome {
        let known = self.token.unwrap_or(0).max(self.quarantine_covers);
        Outcome::Granted { token: granted_token(known + 1) }
    }

    /// Something stands at the key: a reservation for the caller, or a reason to wait.
    fn acquire_occupied(&mut self, ask: &Ask<'_>) -> Outcome {
        let is_reserved = self.is_reserved();
        let is_claim = is_reserved
            && ask.acquire.ballot == Ballot::Alone
            && self.holds_key()
            && self.token.is_some_and(|token| token >= ask.floor);
        if is_claim {
            return self.claim(ask);
        }
        self.shorten_stale_lease(ask.fleet_ttl);
        self.wait_for_forgotten(ask);
        if is_reserved {
            return self.keep_reservation(self.believed_for(ask.fleet_ttl));
        }
        let healed = ask.acquire.heal.as_ref();
        let is_healed = healed.is_some_and(|healed| {
            super::record::shortened(&self.holder(), SHOWN_MAX) == healed.as_str()
        });
        if is_healed && self.pttl == -1 {
            let longest = self.believed_for(ask.fleet_ttl);
            self.pexpire(longest);
            let key = self.call.resource.key();
            self.warn(format!(
                "{key} had no expiry: it ends in {longest} ms unless its holder renews"
            ));
        }
        Outcome::Held
    }

    fn keep_reservation(&mut self, longest: i64) -> Outcome {
        if self.pttl < 0 || self.pttl > TTL_MAX {
            let key = self.call.resource.key();
            self.warn(format!("{key} was reserved without a bound: cut short"));
            self.pexpire(longest);
        }
        Outcome::Reserved { left: as_duration(self.pttl) }
    }

    /// A claim is a new term: what keeps terms from beginning keeps it back too.
    fn claim(&mut self, ask: &Ask<'_>) -> Outcome {
        if self.quarantine.until > self.now {
            return self.quarantined(self.remaining(self.quarantine.until));
        }
        let paused = self.remaining(self.pause.until);
        if paused > 0 {
            return Outcome::Paused { left: as_duration(paused) };
        }
        self.pexpire(ask.ttl);
        let term = self.token.unwrap_or(0);
        let (max_ttl, note) = (self.max_ttl.max(ask.fleet_ttl), self.grant_note(term));
        self.hset(Field::Attempt, ask.attempt);
        self.hset(Field::GrantedAt, self.now);
        self.write_lease(ask.ttl);
        self.hset(Field::MaxTtl, max_ttl);
        self.hset(Field::Open, "1");
        self.hset(Field::Claim, "");
        self.hset(Field::Grant, note);
        self.hset(Field::Unconfirmed, "");
        self.meta.set(Field::Claim, "");
        self.meta.set(Field::Unconfirmed, "");
        self.announce(ask, term)
    }

    /// Nobody holds the key, or a quarantine does.
    fn acquire_vacant(&mut self, ask: &Ask<'_>) -> Outcome {
        let longest = self.believed_for(ask.fleet_ttl);
        let last = self.last_term(ask);
        let why = self.lost_history(ask, longest);
        let is_unknown = why.is_some() || self.life_is_new;
        if let Some(why) = why.filter(|_| self.quarantine.until <= self.now) {
            self.begin_quarantine(longest, &why);
        }
        let is_unnoted = self.quarantine.until > self.now && !self.quarantine_is_noted;
        if self.is_quarantined() {
            if is_unknown || is_unnoted {
                self.note_history_loss(ask, is_unnoted);
            }
            return self.keep_quarantine(longest);
        }
        if self.quarantine.until > self.now {
            self.note_history_loss(ask, is_unnoted);
            let left = self.remaining(self.quarantine.until);
            self.set_key(&quarantine_mark(), left);
            return self.quarantined(left);
        }
        let paused = self.remaining(self.pause.until);
        if paused > 0 {
            return Outcome::Paused { left: as_duration(paused) };
        }
        self.acquire_free(ask, last)
    }

    fn lost_history(&self, ask: &Ask<'_>, longest: i64) -> Option<String> {
        let uptime = i64::try_from(self.life.uptime_seconds(self.time)).unwrap_or(i64::MAX / 1000);
        let never_failed =
            ask.acquire.age_counts && !self.life.failed_over && uptime * 1000 > longest + 1000;
        let nobody_led =
            ask.floor == 0 && (self.is_complete || never_failed || ask.acquire.fresh_store);
        if self.token.is_none() && !nobody_led {
            return Some("the store has no record of earlier terms".to_owned());
        }
        self.forgotten(ask)
    }

    /// Why this store must have forgotten a term that the caller has seen, unless it was waited
    /// for.
    fn forgotten(&self, ask: &Ask<'_>) -> Option<String> {
        let known = self.token.unwrap_or(0);
        let is_forgotten = known < ask.floor && self.quarantine_covers < ask.floor;
        is_forgotten
            .then(|| format!("the store knows token {known}, this instance saw {}", ask.floor))
    }

    /// Both are waited for at once: the lease that came back, and what was lost behind it.
    fn wait_for_forgotten(&mut self, ask: &Ask<'_>) {
        let Some(why) = self.token.and_then(|_| self.forgotten(ask)) else { return };
        if self.quarantine.until <= self.now {
            self.begin_quarantine(self.believed_for(ask.fleet_ttl), &why);
        }
        self.quarantine_covers = ask.floor;
        self.quarantine.is_new = true;
    }

    fn note_history_loss(&mut self, ask: &Ask<'_>, is_unnoted: bool) {
        let known = self.token.unwrap_or(0).max(ask.floor);
        self.quarantine_is_noted |= is_unnoted;
        let (max_ttl, incarnation) = (self.max_ttl.max(ask.fleet_ttl), self.life.incarnation());
        self.hset(Field::V, "1");
        self.hset(Field::Token, known);
        self.hset(Field::MaxTtl, max_ttl);
        self.hset(Field::Incarnation, incarnation);
        self.write_quarantine();
        self.life_is_new = false;
        self.quarantine.is_new = false;
        self.token = Some(known);
        self.meta.set(Field::Token, known);
        if is_unnoted {
            let (id, why) = (self.call.id.clone(), self.quarantine_why());
            self.journal(self.now, "quarantined", id.as_str(), known, "", &why);
        }
    }

    /// Keeps everyone out, programs that only know `SET NX` included, until the quarantine ends.
    fn keep_quarantine(&mut self, longest: i64) -> Outcome {
        let left = self.remaining(self.quarantine.until);
        let bound = left.max(longest);
        if self.pttl < 0 || self.pttl > bound + EXPIRY_GRAIN {
            let key = self.call.resource.key();
            self.warn(format!("{key} was put into quarantine without a bound: cut short"));
            self.pexpire(bound);
        } else if self.pttl < left {
            self.pexpire(left);
        }
        self.quarantined(self.pttl)
    }

    fn quarantined(&self, left: i64) -> Outcome {
        Outcome::Quarantine { left: as_duration(left), reason: self.quarantine_why() }
    }

    /// Whether the term on record has no end there, and when its lease was over. Where the clock
    /// stepped back since it was renewed, or somebody else wrote this, the lease, and the delay
    /// behind it, count from now on.
    fn last_term(&mut self, ask: &Ask<'_>) -> LastTerm {
        let is_open = self.meta.is(Field::Open, "1")
            && self.token.is_some()
            && self.meta.get(Field::Holder).is_some();
        let expires_at = self.meta.number(Field::ExpiresAt).unwrap_or(self.now);
        let mut expires_at = expires_at.min(self.now + TTL_MAX * 1000);
        let renewed_at = self.meta.number(Field::RenewedAt);
        let longest = self.believed_for(ask.fleet_ttl) * 1000;
        let is_odd =
            renewed_at.is_none_or(|at| at > self.now || expires_at > at.saturating_add(longest));
        if is_open && whole_millis(ask.acquire.lock_delay) > 0 && is_odd {
            let lease = self.meta.number(Field::ExpiresAt).unwrap_or(0);
            let lease = lease - renewed_at.unwrap_or(self.now);
            expires_at = self.now + lease.clamp(0, longest);
            self.hset(Field::RenewedAt, self.now);
            self.hset(Field::ExpiresAt, expires_at);
        }
        LastTerm { is_open, expires_at }
    }

    fn acquire_free(&mut self, ask: &Ask<'_>, last: LastTerm) -> Outcome {
        let LastTerm { is_open, expires_at } = last;
        let lock_delay = whole_millis(ask.acquire.lock_delay);
        let ends = expires_at + lock_delay * 1000;
        if is_open && lock_delay > 0 && ends > self.now {
            return Outcome::Delayed { left: as_duration(self.remaining(ends)) };
        }
        if ask.proposes {
            return self.proposal();
        }
        let known = self.token.unwrap_or(0);
        if ask.settled.is_some_and(|settled| known >= settled) {
            return Outcome::Lost(LostWhy::OtherTerm(token(self.token)));
        }
        let highest = known.max(ask.floor).max(self.quarantine_covers);
        let term = ask.settled.unwrap_or_else(|| (highest + 1).max(self.now));
        let ended = (is_open && !self.is_unconfirmed())
            .then(|| (self.meta.text(Field::Holder).into_owned(), known));
        self.begin_term(ask, term);
        if !self.journal_unrecorded()
            && let Some((holder, token)) = ended
        {
            match expires_at <= self.now {
                true => self.journal(expires_at, "closed", &holder, token, "expired", ""),
                false => self.journal(self.now, "closed", &holder, token, "vanished", ""),
            }
        }
        self.announce(ask, term)
    }

    fn begin_term(&mut self, ask: &Ask<'_>, term: i64) {
        let id = self.call.id.clone();
        // A settled number that no majority comes to is put back by an abandon.
        let before = ask.settled.map(|_| {
            let is_open = u8::from(self.meta.is(Field::Open, "1"));
            let (known, attempt) = (self.token.unwrap_or(0), self.meta.text(Field::Attempt));
            format!("{known} {attempt} {is_open} {}", self.meta.text(Field::Holder))
        });
        let before_lease = ask.settled.map(|_| {
            let known = |field| self.meta.number(field).unwrap_or(0);
            format!("{} {} {}", self.now, known(Field::RenewedAt), known(Field::ExpiresAt))
        });
        // The successor itself took over: whoever passed it on may ask again how that went.
        let was_passed_on = self.meta.is(Field::ClaimTo, id.as_str())
            && self.meta.same(Field::ClaimFromToken, Field::Token);
        let kept = |field| match was_passed_on {
            true => self.meta.text(field).into_owned(),
            false => String::new(),
        };
        let (claim_from, claim_from_token) = (kept(Field::ClaimFrom), kept(Field::ClaimFromToken));
        let (incarnation, note) = (self.life.incarnation(), self.grant_note(term));
        let max_ttl = self.max_ttl.max(ask.fleet_ttl);
        self.hset(Field::V, "1");
        self.hset(Field::Before, before.unwrap_or_default());
        self.hset(Field::Holder, &id);
        self.hset(Field::Token, term);
        self.hset(Field::Attempt, ask.attempt);
        self.hset(Field::GrantedAt, self.now);
        self.write_lease(ask.ttl);
        self.hset(Field::MaxTtl, max_ttl);
        self.hset(Field::Incarnation, incarnation);
        self.hset(Field::Open, "1");
        self.hset(Field::Grant, note);
        self.hset(Field::QuarantineUntil, 0);
        self.hset(Field::ClaimFrom, claim_from);
        self.hset(Field::ClaimFromToken, claim_from_token);
        let emptied = [Field::QuarantineWhy, Field::Claim, Field::Wish, Field::Unrecorded];
        emptied.into_iter().for_each(|field| self.hset(field, ""));
        self.hset(Field::Unconfirmed, "");
        self.set_key(&id, ask.ttl);
        if let Some(lease) = before_lease {
            self.hset(Field::BeforeLease, lease);
        }
        self.life_is_new = false;
        self.quarantine.is_new = false;
        self.token = Some(term);
        self.meta.set(Field::Holder, &id);
        self.meta.set(Field::Token, term);
        self.meta.set(Field::Wish, "");
        self.meta.set(Field::Claim, "");
        self.meta.set(Field::Unconfirmed, "");
    }

    fn announce(&mut self, ask: &Ask<'_>, term: i64) -> Outcome {
        let id = self.call.id.clone();
        self.journal(self.now, "granted", id.as_str(), term, "", "");
        let token = granted_token(term);
        self.hints.push(Hint::Granted { id, token, ttl: as_duration(ask.ttl) });
        Outcome::Granted { token }
    }
}
