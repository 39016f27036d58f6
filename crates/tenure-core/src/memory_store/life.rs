//! Which life of the store this is, and what that says about leases granted before.

use crate::ServerTime;

use super::Step;
use super::record::Field;

/// One life of a store, from start to end, as it tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The run id of a server, or the incarnation of our own store.
    pub run: String,
    /// The replication id; empty for our own store.
    pub replication: String,
    /// Whether there was another replication id before: a replica was promoted.
    pub failed_over: bool,
    /// When the process started, by its own clock.
    pub started_at: ServerTime,
    /// Whether the store vouches that nothing it was ever told is missing.
    pub history_is_complete: bool,
}

impl Life {
    /// A life of our own store, which vouches for its history.
    pub(super) fn own(now: ServerTime, run: u64) -> Self {
        Life { replication: String::new(), history_is_complete: true, ..Life::redis_like(now, run) }
    }

    pub(super) fn redis_like(now: ServerTime, run: u64) -> Self {
        Life {
            run: format!("{run:016x}"),
            replication: format!("{:016x}", scatter(run)),
            failed_over: false,
            started_at: now,
            history_is_complete: false,
        }
    }

    /// The next life after a restart that kept nothing.
    pub(super) fn after_restart(&self, now: ServerTime) -> Self {
        let run = scatter(self.number() ^ now.0);
        match self.replication.is_empty() {
            true => Life { history_is_complete: false, ..Life::own(now, run) },
            false => Life::redis_like(now, run),
        }
    }

    /// The life of a replica, started at `started_at`, that takes over from this primary.
    pub(super) fn of_promoted(&self, run: u64, started_at: ServerTime) -> Self {
        let replication = format!("{:016x}", scatter(run ^ self.number()));
        Life { failed_over: true, replication, ..Life::redis_like(started_at, run) }
    }

    /// The same process after a replica was attached for the first time: only the id is new.
    pub(super) fn with_first_replica(&self) -> Self {
        let replication = format!("{:016x}", scatter(scatter(self.number())));
        Life { replication, ..self.clone() }
    }

    /// As records and answers name it.
    pub fn incarnation(&self) -> String {
        format!("{}:{}", self.run, self.replication)
    }

    /// Whole seconds since the start.
    pub fn uptime_seconds(&self, now: ServerTime) -> u64 {
        now.since(self.started_at).as_secs()
    }

    fn number(&self) -> u64 {
        self.run.bytes().fold(0, |number, byte| scatter(number ^ u64::from(byte)))
    }
}

/// Spreads a number over all bits, so that derived ids do not look alike.
fn scatter(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// What the recorded life says beside the one that is.
enum Change {
    /// Another name for the same life.
    Harmless,
    /// Leases may be missing.
    Quarantine(&'static str),
}

impl Step<'_> {
    /// Longer than any lease that may still be believed in, in milliseconds.
    pub(super) fn believed_for(&self, ttl: i64) -> i64 {
        let longest = ttl.max(self.max_ttl).max(self.longest);
        (longest * 101 + 99) / 100 + 2
    }

    fn life_changed(&self) -> Option<Change> {
        let recorded = self.meta.text(Field::Incarnation);
        let known = recorded.rsplit_once(':');
        let known = known.filter(|(_, id)| id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let Some((run, replication)) = known else {
            let why = "the life of the store in which the last term was granted is not recorded";
            return Some(Change::Quarantine(why));
        };
        if run != self.life.run {
            Some(Change::Quarantine("the store restarted or failed over"))
        } else if replication == self.life.replication {
            None
        } else if !replication.is_empty() && self.life.failed_over {
            Some(Change::Quarantine("the store failed over to a replica"))
        } else {
            Some(Change::Harmless)
        }
    }

    /// Nobody is granted a term for `lasts` milliseconds from now on. Never shortens what runs.
    pub(super) fn begin_quarantine(&mut self, lasts: i64, why: &str) {
        self.quarantine.until = self.quarantine.until.max(self.now + lasts * 1000);
        self.quarantine.from = Some(self.now);
        self.quarantine.is_new = true;
        self.quarantine_is_noted = false;
        self.quarantine_covers = 0;
        self.meta.set(Field::QuarantineWhy, why);
    }

    /// Compares the recorded life with this one, for a caller that knows of leases of `ttl`. A
    /// quarantine that runs is lengthened to what it would have been had this caller begun it.
    pub(super) fn judge_life(&mut self, ttl: i64) {
        if self.conflict.is_some() {
            return;
        }
        let change = self.token.and_then(|_| self.life_changed());
        self.life_is_new = change.is_some();
        if let Some(Change::Quarantine(why)) = change {
            return self.begin_quarantine(self.believed_for(ttl), why);
        }
        if self.quarantine.until <= self.now {
            return;
        }
        if self.quarantine.from.is_none() && ttl.max(self.longest) > self.max_ttl {
            self.quarantine.from = Some(self.now);
        }
        let ends = self.quarantine.from.unwrap_or(0) + self.believed_for(ttl) * 1000;
        if ends > self.quarantine.until {
            self.quarantine.until = ends;
            self.quarantine.is_new = true;
        }
    }

    /// Writes down what `judge_life` found.
    pub(super) fn save_life(&mut self) {
        if self.conflict.is_some() {
            return;
        }
        if self.life_is_new {
            let incarnation = self.life.incarnation();
            self.hset(Field::Incarnation, incarnation);
        }
        if self.life_is_new || self.quarantine.is_new {
            self.write_quarantine();
        }
        if self.quarantine.is_new && self.is_quarantined() {
            let left = self.remaining(self.quarantine.until);
            if self.pttl >= 0 && self.pttl < left {
                self.pexpire(left);
            }
        }
        if self.pause.is_new {
            let (until, from) = (self.pause.until, self.pause.from.unwrap_or(self.now));
            self.hset(Field::PausedUntil, until);
            self.hset(Field::PausedFrom, format!("{from} {until}"));
        }
        self.life_is_new = false;
        self.quarantine.is_new = false;
        self.pause.is_new = false;
    }

    /// What every request that writes does, with the longest lease that it asks for.
    pub(super) fn settle_life(&mut self, ttl: i64) {
        self.judge_life(ttl);
        self.save_life();
    }

    pub(super) fn write_quarantine(&mut self) {
        let until = self.quarantine.until;
        let from = self.quarantine.from.unwrap_or(self.now);
        let why = self.meta.text(Field::QuarantineWhy).into_owned();
        self.hset(Field::QuarantineUntil, until);
        self.hset(Field::QuarantineFrom, format!("{from} {until}"));
        match self.quarantine_is_noted {
            true => self.hset(Field::QuarantineNoted, until),
            false => self.hset(Field::QuarantineNoted, ""),
        }
        self.hset(Field::QuarantineWhy, why);
        match self.quarantine_covers {
            0 => self.hset(Field::QuarantineCovers, ""),
            covered => self.hset(Field::QuarantineCovers, format!("{covered} {until}")),
        }
    }

    /// A lease renewed in the future: the clock stepped back since then. For those that wait:
    /// renewing and releasing never touch the term of another.
    pub(super) fn shorten_stale_lease(&mut self, ttl: i64) {
        let longest = self.believed_for(ttl);
        let is_named = self.token.is_some() && self.meta.is(Field::Holder, &self.holder());
        let is_stale = is_named && self.meta.number(Field::RenewedAt).unwrap_or(0) > self.now;
        if self.pttl <= longest || self.holder() == self.call.id.as_str() || !is_stale {
            return;
        }
        let key = self.call.resource.key();
        self.warn(format!(
            "the clock of the store stepped back: {key} ends in {longest} ms unless its holder \
             renews"
        ));
        self.pexpire(longest);
        let (now, ends) = (self.now, self.now + longest * 1000);
        self.meta.set(Field::RenewedAt, now);
        self.meta.set(Field::ExpiresAt, ends);
        self.hset(Field::RenewedAt, now);
        self.hset(Field::ExpiresAt, ends);
    }
}
