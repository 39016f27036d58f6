//! What somebody who does not lead may do to an election: ask, pause, clear.

use std::time::Duration;

use crate::protocol::{Hint, Outcome, Token, WishKind};

use super::Step;
use super::record::{Field, FieldValue, shortened};
use super::step::{SHOWN_MAX, TTL_MAX, as_number, quarantine_mark, token, whole_millis};

impl Step<'_> {
    pub(super) fn ask(&mut self, term: Token, kind: &WishKind, stands_for: Duration) -> Outcome {
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        self.settle_life(0);
        let number = as_number(term);
        let is_that_term = self.key_exists() && self.holder_is_recorded();
        if !is_that_term || self.token != Some(number) {
            return Outcome::NoSuchTerm;
        }
        let (word, to) = match kind {
            WishKind::Resign => ("resign", ""),
            WishKind::HandOver { to } => ("hand-over", to.as_str()),
        };
        let (id, until) = (self.call.id.clone(), self.now + whole_millis(stands_for) * 1000);
        let wish: [(Field, FieldValue); 6] = [
            (Field::Wish, word.into()),
            (Field::WishTo, to.into()),
            (Field::WishBy, (&id).into()),
            (Field::WishToken, number.into()),
            (Field::WishUntil, until.into()),
            (Field::WishRefused, "".into()),
        ];
        for (field, value) in wish {
            self.meta.set(field, value.clone());
            self.hset(field, value);
        }
        self.hints.push(Hint::Wished { token: term });
        Outcome::Done
    }

    pub(super) fn refuse(&mut self, term: Token, reason: &str) -> Outcome {
        self.settle_life(0);
        if !self.is_mine(as_number(term)) {
            return self.lost();
        }
        if self.has_wish() {
            let reason = shortened(reason, SHOWN_MAX).to_owned();
            self.hset(Field::WishRefused, reason.as_str());
            self.meta.set(Field::WishRefused, reason);
            self.hints.push(Hint::Wished { token: term });
        }
        Outcome::Done
    }

    pub(super) fn pause(&mut self, lasts: i64) -> Outcome {
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        self.settle_life(0);
        self.pause.until = if lasts > 0 { self.now + lasts * 1000 } else { 0 };
        let (now, until) = (self.now, self.pause.until);
        self.hset(Field::V, "1");
        self.hset(Field::PausedUntil, until);
        self.hset(Field::PausedFrom, format!("{now} {until}"));
        self.hints.push(Hint::PauseChanged);
        Outcome::Done
    }

    /// For emergencies. Whoever led may believe in its lease for a while: nobody follows before
    /// that.
    pub(super) fn clear(&mut self, reason: &str, quarantine: Duration) -> Outcome {
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        self.settle_life(0);
        let reason = shortened(reason, SHOWN_MAX);
        let lasts = whole_millis(quarantine).min((TTL_MAX * 101 + 99) / 100);
        let is_recorded = self.holder_is_recorded();
        let is_term =
            self.key_exists() && self.token.is_some() && is_recorded && !self.is_unconfirmed();
        let is_foreign = self.key_exists() && !is_recorded && !self.is_quarantined();
        let holder = self.meta.text(Field::Holder).into_owned();
        let lasts = lasts.max(self.believed_for(0));
        self.begin_quarantine(lasts, &format!("cleared by {}: {reason}", self.call.id));
        self.quarantine_is_noted = true;
        self.hset(Field::V, "1");
        self.hset(Field::Open, "0");
        let emptied = [Field::Claim, Field::ClaimFrom, Field::Wish, Field::Grant];
        emptied.into_iter().for_each(|field| self.hset(field, ""));
        self.write_quarantine();
        let left = self.remaining(self.quarantine.until);
        self.set_key(&quarantine_mark(), left);
        let known = self.token.unwrap_or(0);
        if is_term {
            self.journal(self.now, "closed", &holder, known, "cleared", reason);
        } else if is_foreign {
            let (id, why) = (self.call.id.clone(), self.meta.text(Field::QuarantineWhy));
            let why = why.into_owned();
            self.journal(self.now, "quarantined", id.as_str(), known, "", &why);
        }
        self.hints.push(Hint::Released { token: token(Some(known)) });
        Outcome::Done
    }

    pub(super) fn observe(&mut self) -> Outcome {
        match self.conflict.clone() {
            Some(what) if self.key_is_foreign => Outcome::Conflict { what },
            Some(what) => {
                // Who holds the key is seen all the same.
                self.warn(what);
                Outcome::Done
            }
            None => Outcome::Done,
        }
    }
}
