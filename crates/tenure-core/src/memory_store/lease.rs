//! Who holds the resource: taking, extending, giving back, handing on.

use std::time::Duration;

use crate::protocol::{Acquire, Ballot, CloseReason, Hint, HistoryKind, LostWhy, Outcome, Token};
use crate::{InstanceId, ServerTime};

use super::keys::Value;
use super::shelf::{Before, Claim, Meta};
use super::{Step, is_quarantine, later};

/// A floor further ahead of the store's clock than this is a mistake or a forgery: believing it
/// would spoil the numbers for ever.
const FLOOR_AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

impl Step<'_> {
    pub(super) fn acquire(&mut self, ask: &Acquire) -> Outcome {
        let floor = match ask.ballot {
            Ballot::Settle(token) => ask.floor.max(token),
            _ => ask.floor,
        };
        if self.floor_is_absurd(floor) {
            let what = format!("token floor {floor} lies over a year ahead");
            return Outcome::Conflict { what };
        }
        let longest = ask.ttl.max(ask.fleet_max_ttl);
        self.notice_other_life(longest);
        let outcome = self.acquire_checked(ask, longest);
        // Who settles has proposed, and said so then.
        if !matches!(ask.ballot, Ballot::Settle(_)) {
            self.sit_down(&ask.record);
        }
        outcome
    }

    fn acquire_checked(&mut self, ask: &Acquire, longest: Duration) -> Outcome {
        let granted = self.granted_to_attempt(ask.attempt);
        if let Some(token) = granted.filter(|token| *token >= ask.floor) {
            return self.grant_again(ask, longest, token);
        }
        if self.shelf.refuses(&self.call.id, ask.attempt) || self.is_late(ask.attempt) {
            return Outcome::AttemptRefused;
        }
        // A key that belongs to somebody is left to run out first: its record must stay as it is.
        if let Some(holder) = self.holder().filter(|holder| !is_quarantine(holder)).cloned() {
            return self.acquire_occupied(ask, longest, &holder);
        }
        self.notice_lost_history(ask, longest);
        // Whoever noticed first may have been unable to say so: only who is kept out does.
        if self.quarantine_left().is_some() && !self.shelf.quarantine_is_noted {
            self.note_quarantine(ask.floor);
        }
        if self.holder().is_some() {
            return self.quarantine(self.time_left().unwrap_or_default());
        }
        if let Some(left) = self.mark_quarantine() {
            return self.quarantine(left);
        }
        if let Some(left) = self.paused_for() {
            return Outcome::Paused { left };
        }
        if let Some(left) = self.lock_delay_left(ask.lock_delay) {
            return Outcome::Delayed { left };
        }
        self.grant(ask, longest)
    }

    /// The caller missed the answer to its attempt. Unlike a renewal that is not believed in yet,
    /// so it waits when the store may have forgotten a later term.
    fn grant_again(&mut self, ask: &Acquire, longest: Duration, token: Token) -> Outcome {
        if let Some(left) = self.quarantine_left() {
            return self.quarantine(left);
        }
        match ask.ballot {
            Ballot::Propose => return self.proposal(),
            Ballot::Settle(settled) if settled < token => {
                return Outcome::Lost(LostWhy::OtherTerm(token));
            }
            // Nobody believes in the earlier number: the attempt was not granted by a majority.
            Ballot::Settle(settled) => self.renumber(settled),
            Ballot::Alone => {}
        }
        let token = self.shelf.meta.as_ref().map_or(token, |meta| meta.token);
        self.extend(ask.ttl, longest);
        Outcome::Granted { token }
    }

    /// The lowest number under which this node would grant the resource: what its clock shows is
    /// in the answer as well, and whoever asks several nodes sees which clock to follow.
    fn proposal(&self) -> Outcome {
        numbered(Token::new(self.stored_token().get() + 1))
    }

    fn renumber(&mut self, token: Token) {
        if let Some(meta) = &mut self.shelf.meta {
            meta.token = token;
        }
    }

    /// Something stands at the key: a reservation for the caller, or a reason to wait.
    fn acquire_occupied(
        &mut self,
        ask: &Acquire,
        longest: Duration,
        holder: &InstanceId,
    ) -> Outcome {
        match self.pending_claim().filter(|claim| claim.to == *holder) {
            Some(claim)
                if claim.to == self.call.id
                    && claim.token >= ask.floor
                    && ask.ballot == Ballot::Alone =>
            {
                return self.claim(ask, longest);
            }
            Some(_) => return Outcome::Reserved { left: self.time_left().unwrap_or_default() },
            None => {}
        }
        if ask.heal.as_ref() == Some(holder) && self.time_left().is_none() {
            let lasts = self.believed_for(longest);
            self.keys.expire(self.now, self.call.resource.key(), lasts);
        }
        Outcome::Held
    }

    fn grant(&mut self, ask: &Acquire, longest: Duration) -> Outcome {
        let token = match ask.ballot {
            Ballot::Propose => return self.proposal(),
            Ballot::Settle(token) => match self.stored_token() {
                stored if stored >= token => return Outcome::Lost(LostWhy::OtherTerm(stored)),
                _ => token,
            },
            Ballot::Alone => match numbered(self.next_token(ask.floor)) {
                Outcome::Granted { token } => token,
                refusal => return refusal,
            },
        };
        let was_open = self.shelf.meta.as_ref().is_some_and(|meta| meta.is_open);
        self.close_forgotten_term();
        let meta = self.shelf.meta.get_or_insert_with(|| Meta::blank(self.life.mark));
        meta.before = matches!(ask.ballot, Ballot::Settle(_)).then(|| Before {
            holder: meta.holder.clone(),
            token: meta.token,
            attempt: meta.attempt,
            is_open: was_open,
        });
        // The successor itself took over: whoever passed it on may ask again how that went.
        let (successor, passed_on) = (&self.call.id, meta.token);
        meta.claim.take_if(|claim| claim.to != *successor || claim.from_token != passed_on);
        meta.token = token;
        meta.wish = None;
        self.shelf.quarantine_until = ServerTime::default();
        self.begin_term(ask, longest);
        Outcome::Granted { token }
    }

    /// A claim is a new term: what keeps terms from beginning keeps it back too.
    fn claim(&mut self, ask: &Acquire, longest: Duration) -> Outcome {
        if let Some(left) = self.quarantine_left() {
            return self.quarantine(left);
        }
        if let Some(left) = self.paused_for() {
            return Outcome::Paused { left };
        }
        let Some(meta) = &mut self.shelf.meta else { return Outcome::Held };
        let Some(claim) = &mut meta.claim else { return Outcome::Held };
        claim.is_pending = false;
        let token = claim.token;
        self.begin_term(ask, longest);
        Outcome::Granted { token }
    }

    /// The token is in the record already.
    fn begin_term(&mut self, ask: &Acquire, longest: Duration) {
        let id = self.call.id.clone();
        let Some(meta) = &mut self.shelf.meta else { return };
        meta.holder = Some(id.clone());
        meta.attempt = ask.attempt;
        meta.is_open = true;
        let token = meta.token;
        self.keys.set(self.now, self.call.resource.key(), Value::Text(id.clone()), Some(ask.ttl));
        self.extend(ask.ttl, longest);
        self.shelf.remember(self.now, id.clone(), token, HistoryKind::Granted);
        self.hints.push(Hint::Granted { id, token, ttl: ask.ttl });
    }

    pub(super) fn renew(&mut self, token: Token, ttl: Duration) -> Outcome {
        if let Some(why) = self.not_mine(token) {
            return Outcome::Lost(why);
        }
        self.extend(ttl, ttl);
        Outcome::Renewed
    }

    /// One of several nodes hears of a term that a majority holds.
    pub(super) fn adopt(&mut self, token: Token, ttl: Duration, longest: Duration) -> Outcome {
        let Some(why) = self.not_mine(token) else {
            self.extend(ttl, ttl);
            return Outcome::Renewed;
        };
        if self.holder().is_some() || self.quarantine_left().is_some() {
            return Outcome::Lost(why);
        }
        let id = &self.call.id;
        match &self.shelf.meta {
            None if !self.life.history_is_complete || self.shelf.was_emptied => {
                self.begin_quarantine(
                    self.believed_for(longest),
                    "this node has no record of earlier terms",
                );
                let meta = self.shelf.meta.get_or_insert_with(|| Meta::blank(self.life.mark));
                meta.max_ttl = longest;
                return Outcome::Lost(why);
            }
            Some(meta) if meta.undone.as_ref() == Some(&(id.clone(), token)) => {
                return Outcome::Lost(why);
            }
            Some(meta) if meta.token > token => {
                return Outcome::Lost(LostWhy::OtherTerm(meta.token));
            }
            Some(meta)
                if meta.token == token && !(meta.is_open && meta.holder.as_ref() == Some(id)) =>
            {
                return Outcome::Lost(why);
            }
            _ => {}
        }
        self.take_over(token, ttl);
        Outcome::Renewed
    }

    fn take_over(&mut self, token: Token, ttl: Duration) {
        let id = self.call.id.clone();
        let is_known = self.stored_token() == token;
        let meta = self.shelf.meta.get_or_insert_with(|| Meta::blank(self.life.mark));
        meta.holder = Some(id.clone());
        meta.token = token;
        if !is_known {
            meta.attempt = 0;
        }
        meta.is_open = true;
        meta.claim = None;
        meta.wish = None;
        meta.before = None;
        self.keys.set(self.now, self.call.resource.key(), Value::Text(id), Some(ttl));
        self.extend(ttl, ttl);
    }

    pub(super) fn release(&mut self, token: Token, reason: CloseReason) -> Outcome {
        if let Some(why) = self.not_mine(token) {
            return Outcome::Lost(why);
        }
        self.refuse_attempt_of_term();
        self.vacate(token, reason);
        Outcome::Released
    }

    pub(super) fn pass_on(&mut self, token: Token, to: &InstanceId, lasts: Duration) -> Outcome {
        if self.transferred_before(token, to).is_some() {
            return Outcome::Released;
        }
        if let Some(why) = self.not_mine(token) {
            return Outcome::Lost(why);
        }
        self.refuse_attempt_of_term();
        self.keys.delete(self.now, self.call.resource.key());
        self.shelf.close_term(self.now, CloseReason::HandedOver, to.as_str());
        if let Some(meta) = &mut self.shelf.meta {
            let (to, from) = (to.clone(), self.call.id.clone());
            meta.claim = Some(Claim { to, token, from, from_token: token, is_pending: false });
        }
        self.hints.push(Hint::Transferred { token, to: to.clone(), claim_ttl: lasts });
        Outcome::Released
    }

    pub(super) fn abandon(&mut self, attempt: u64) -> Outcome {
        let granted = self.granted_to_attempt(attempt);
        if let Some(token) = granted {
            self.vacate(token, CloseReason::TooLate);
            self.put_back();
        }
        self.shelf.refuse_from_now_on(&self.call.id, attempt);
        Outcome::Abandoned { was_granted: granted.is_some() }
    }

    /// A number that no majority settled must not keep this node from adopting an earlier one.
    fn put_back(&mut self) {
        let Some(meta) = &mut self.shelf.meta else { return };
        if let Some(before) = meta.before.take() {
            meta.undone = meta.holder.take().map(|holder| (holder, meta.token));
            meta.holder = before.holder;
            meta.token = before.token;
            meta.attempt = before.attempt;
            meta.is_open = before.is_open;
        }
    }

    pub(super) fn transfer(
        &mut self,
        token: Token,
        to: &InstanceId,
        claim_ttl: Duration,
    ) -> Outcome {
        if let Some(claimed) = self.transferred_before(token, to) {
            return Outcome::Transferred { token: claimed };
        }
        if let Some(why) = self.not_mine(token) {
            return Outcome::Lost(why);
        }
        let next = match numbered(self.next_token(token)) {
            Outcome::Granted { token } => token,
            refusal => return refusal,
        };
        self.refuse_attempt_of_term();
        self.shelf.close_term(self.now, CloseReason::HandedOver, to.as_str());
        let value = Value::Text(to.clone());
        self.keys.set(self.now, self.call.resource.key(), value, Some(claim_ttl));
        let Some(meta) = &mut self.shelf.meta else { return Outcome::Lost(LostWhy::KeyVanished) };
        meta.holder = Some(to.clone());
        meta.token = next;
        meta.attempt = 0;
        meta.expires_at = later(self.now, claim_ttl);
        let from = self.call.id.clone();
        let to = to.clone();
        meta.claim =
            Some(Claim { to: to.clone(), token: next, from, from_token: token, is_pending: true });
        self.hints.push(Hint::Transferred { token, to, claim_ttl });
        Outcome::Transferred { token: next }
    }

    /// Break glass. Whoever led may believe in its lease for a while: nobody follows before that.
    pub(super) fn clear(&mut self, reason: &str, quarantine: Duration) -> Outcome {
        let token = self.shelf.meta.as_ref().map_or(Token::NONE, |meta| meta.token);
        let is_foreign = self.view().foreign;
        if self.holder().is_some() {
            self.shelf.close_term(self.now, CloseReason::Cleared, reason);
        }
        if let Some(meta) = &mut self.shelf.meta {
            meta.is_open = false;
            meta.claim = None;
            meta.wish = None;
        }
        self.keys.delete(self.now, self.call.resource.key());
        self.begin_quarantine(quarantine, &format!("cleared by {}: {reason}", self.call.id));
        match is_foreign {
            true => self.note_quarantine(Token::NONE),
            // Nothing was lost: the end of the term tells of it.
            false => self.shelf.quarantine_is_noted = true,
        }
        self.mark_quarantine();
        self.hints.push(Hint::Released { token });
        Outcome::Done
    }

    pub(super) fn pause(&mut self, lasts: Duration) -> Outcome {
        self.shelf.paused_until = later(self.now, lasts);
        self.hints.push(Hint::PauseChanged);
        Outcome::Done
    }

    pub(super) fn paused_for(&self) -> Option<Duration> {
        self.left_until(self.shelf.paused_until)
    }

    /// Why the caller does not hold exactly this term; `None` when it does.
    pub(super) fn not_mine(&self, token: Token) -> Option<LostWhy> {
        let Some(holder) = self.holder() else { return Some(LostWhy::KeyVanished) };
        if *holder != self.call.id {
            return Some(LostWhy::HeldBy(holder.clone()));
        }
        match &self.shelf.meta {
            Some(meta) if meta.holder.as_ref() == Some(holder) => {
                (meta.token != token).then_some(LostWhy::OtherTerm(meta.token))
            }
            _ => Some(LostWhy::Overwritten("the side record does not name the holder".into())),
        }
    }

    fn granted_to_attempt(&self, attempt: u64) -> Option<Token> {
        let meta = self.shelf.meta.as_ref()?;
        let id = &self.call.id;
        let is_granted = self.holder() == Some(id)
            && meta.holder.as_ref() == Some(id)
            && meta.attempt == attempt;
        is_granted.then_some(meta.token)
    }

    /// A late copy of an attempt whose term is over.
    fn is_late(&self, attempt: u64) -> bool {
        let id = &self.call.id;
        let is_last = |meta: &Meta| meta.holder.as_ref() == Some(id) && attempt <= meta.attempt;
        self.holder() != Some(id) && self.shelf.meta.as_ref().is_some_and(is_last)
    }

    fn refuse_attempt_of_term(&mut self) {
        let attempt = self.shelf.meta.as_ref().map_or(0, |meta| meta.attempt);
        self.shelf.refuse_from_now_on(&self.call.id, attempt);
    }

    pub(super) fn pending_claim(&self) -> Option<&Claim> {
        let meta = self.shelf.meta.as_ref()?;
        meta.claim.as_ref().filter(|claim| claim.is_pending && claim.token == meta.token)
    }

    fn transferred_before(&self, token: Token, to: &InstanceId) -> Option<Token> {
        let claim = self.shelf.meta.as_ref()?.claim.as_ref()?;
        let is_repeated =
            claim.from == self.call.id && claim.from_token == token && claim.to == *to;
        is_repeated.then_some(claim.token)
    }

    fn extend(&mut self, ttl: Duration, longest: Duration) {
        self.keys.expire(self.now, self.call.resource.key(), ttl);
        if let Some(meta) = &mut self.shelf.meta {
            meta.renewed_at = self.now;
            meta.expires_at = later(self.now, ttl);
            meta.max_ttl = meta.max_ttl.max(longest);
        }
    }

    fn vacate(&mut self, token: Token, reason: CloseReason) {
        self.keys.delete(self.now, self.call.resource.key());
        self.shelf.close_term(self.now, reason, "");
        self.hints.push(Hint::Released { token });
    }

    /// History learns of a term that nobody closed when the next one begins.
    fn close_forgotten_term(&mut self) {
        let Some(meta) = &self.shelf.meta else { return };
        let (at, reason) = match meta.expires_at <= self.now {
            true => (meta.expires_at, CloseReason::Expired),
            false => (self.now, CloseReason::Vanished),
        };
        self.shelf.close_term(at, reason, "");
    }

    fn lock_delay_left(&self, lock_delay: Duration) -> Option<Duration> {
        let meta = self.shelf.meta.as_ref().filter(|meta| meta.is_open)?;
        self.left_until(later(meta.expires_at, lock_delay)).filter(|_| !lock_delay.is_zero())
    }

    fn quarantine(&self, left: Duration) -> Outcome {
        Outcome::Quarantine { left, reason: self.shelf.quarantine_reason.clone() }
    }

    /// Above every token that the store, its clock or the caller knows of.
    fn next_token(&self, floor: Token) -> Option<Token> {
        let stored = self.stored_token();
        Token::new(self.now.0.max(stored.get() + 1).max(floor.get() + 1))
    }

    fn stored_token(&self) -> Token {
        self.shelf.meta.as_ref().map_or(Token::NONE, |meta| meta.token)
    }

    fn floor_is_absurd(&self, floor: Token) -> bool {
        floor.get() > later(self.now, FLOOR_AHEAD_MAX).0
    }

    fn time_left(&self) -> Option<Duration> {
        self.keys.get(self.now, self.call.resource.key())?.time_left(self.now)
    }
}

/// A grant under this number, if there is one left.
fn numbered(token: Option<Token>) -> Outcome {
    match token {
        Some(token) => Outcome::Granted { token },
        None => Outcome::Conflict { what: "the tokens of this resource are used up".into() },
    }
}
