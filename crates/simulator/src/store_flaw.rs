//! The same rules broken at the store: adaptors around an unchanged one.

use std::time::Duration;

use tenure_core::ServerTime;
use tenure_core::memory_store::MemoryStore;
use tenure_core::protocol::{Acquire, Answer, Ballot, Call, Hint, Outcome, Request, TickId, Token};

use crate::flaw::Flaw;
use crate::people::LOWEST;

impl Flaw {
    /// Carries a call out as a store with this flaw does. The call is left as it was understood.
    pub(crate) fn execute(
        self,
        store: &mut MemoryStore,
        now: ServerTime,
        call: &mut Call,
    ) -> (Answer, Vec<Hint>) {
        let request = call.request.clone();
        let held_for = store.time_left(now, call.resource.key());
        let waited_until = store.quarantine_until(&call.resource);
        self.understand(store, now, call);
        let (mut answer, hints) = match self.passes_quarantine(store, now, call) {
            true => execute_past_quarantine(store, now, call),
            false => store.execute(now, call),
        };
        match self {
            Flaw::NoQuarantine if matches!(answer.outcome, Outcome::Quarantine { .. }) => {
                store.end_quarantine(now, &call.resource);
                return store.execute(now, call);
            }
            Flaw::QuarantineShortened => shorten_quarantine(store, now, call, &mut answer),
            Flaw::BeatNamesNoLease => {
                forget_longer_leases(store, now, call, (waited_until, &mut answer));
            }
            Flaw::ClockBackWaits => wait_for_the_clock(store, now, call, (held_for, &mut answer)),
            Flaw::FastestClock => number_by_clock(&request, &mut answer),
            _ => {}
        }
        (answer, hints)
    }

    /// Whether a server that takes no writes looks at its old data before it says so.
    pub(crate) fn judges_before_refusing(self, request: &Request) -> bool {
        match self {
            Flaw::StaleDeposes => matches!(request, Request::Renew { .. }),
            Flaw::StaleReleases => matches!(request, Request::Release { .. }),
            _ => false,
        }
    }

    /// Makes of a call what a store with this flaw understands.
    fn understand(self, store: &mut MemoryStore, now: ServerTime, call: &mut Call) {
        let held =
            store.fingerprint(now, call.resource.key()).filter(|held| held.holder == call.id);
        match (self, &mut call.request) {
            (Flaw::BeatNamesNoLease, Request::Acquire(_)) => {}
            (Flaw::BeatNamesNoLease, _) => call.fleet_max_ttl = Duration::ZERO,
            (Flaw::OwnLeaseOnly, Request::Acquire(ask)) => call.fleet_max_ttl = ask.ttl,
            (Flaw::OwnLeaseOnly, _) => call.fleet_max_ttl = Duration::ZERO,
            (Flaw::AdoptUnchecked, _) => adopt_unchecked(store, now, call),
            (Flaw::AdoptBackwards, Request::Adopt { token, .. }) => {
                store.forget_terms_from(now, &call.resource, *token);
            }
            (
                Flaw::IdWithoutToken,
                Request::Renew { token, .. } | Request::Release { token, .. },
            )
            | (Flaw::TransferWithoutToken, Request::Transfer { token, .. }) => {
                *token = held.and_then(|held| held.token).unwrap_or(*token);
            }
            (
                Flaw::PeriodsShareNumbers,
                Request::TickBegin { tick, .. }
                | Request::TickFinish { tick, .. }
                | Request::TickReopen { tick, .. }
                | Request::TickLook { tick },
            ) => {
                if let TickId::Period { number, .. } = tick {
                    *tick = TickId::Number(*number);
                }
            }
            (Flaw::AbandonWithoutAttempt, Request::Abandon { attempt }) => {
                *attempt = held.map_or(*attempt, |held| held.attempt);
            }
            _ => {}
        }
    }

    /// Whether the store with this flaw lets this call past a quarantine.
    fn passes_quarantine(self, store: &MemoryStore, now: ServerTime, call: &Call) -> bool {
        let Request::Acquire(ask) = &call.request else { return false };
        let Some(held) = store.fingerprint(now, call.resource.key()) else { return false };
        // What is reserved was granted to no attempt yet.
        let is_claim = held.holder == call.id && held.attempt != ask.attempt;
        self == Flaw::ClaimSkipsQuarantine && is_claim
    }
}

fn execute_past_quarantine(
    store: &mut MemoryStore,
    now: ServerTime,
    call: &Call,
) -> (Answer, Vec<Hint>) {
    let Request::Acquire(ask) = &call.request else { return store.execute(now, call) };
    // A renewal of no term only lets the store notice that it lives another life.
    let ttl = ask.ttl.max(ask.fleet_max_ttl);
    let looks = Request::Renew { token: LOWEST, ttl, fleet_max_ttl: ttl };
    store.execute(now, &Call { request: looks, ..call.clone() });
    let until = store.quarantine_until(&call.resource);
    store.move_quarantine(now, &call.resource, ServerTime::default());
    let done = store.execute(now, call);
    store.move_quarantine(now, &call.resource, until);
    done
}

fn shorten_quarantine(store: &mut MemoryStore, now: ServerTime, call: &Call, answer: &mut Answer) {
    let (Outcome::Quarantine { left, .. }, Request::Acquire(ask)) =
        (&mut answer.outcome, &call.request)
    else {
        return;
    };
    let own = ask.ttl * 101 / 100 + Duration::from_millis(2);
    if *left > own {
        *left = own;
        let micros = own.as_micros() as u64;
        store.move_quarantine(now, &call.resource, ServerTime(now.0 + micros));
    }
}

/// Undoes that a quarantine was lengthened for leases that whoever began it did not name.
fn forget_longer_leases(
    store: &mut MemoryStore,
    now: ServerTime,
    call: &Call,
    (before, answer): (ServerTime, &mut Answer),
) {
    if before <= now || store.quarantine_until(&call.resource) <= before {
        return;
    }
    store.move_quarantine(now, &call.resource, before);
    if let Outcome::Quarantine { left, .. } = &mut answer.outcome {
        *left = before.since(now);
    }
}

/// Undoes that a key which stays for longer than any lease was given an end.
fn wait_for_the_clock(
    store: &mut MemoryStore,
    now: ServerTime,
    call: &Call,
    (held_for, answer): (Option<Duration>, &mut Answer),
) {
    let key = call.resource.key();
    let is_held = matches!(answer.outcome, Outcome::Held | Outcome::Reserved { .. });
    let Some(before) = held_for.filter(|_| is_held) else { return };
    if store.time_left(now, key).is_some_and(|left| left < before) {
        store.expire(now, key, before);
        answer.view.pttl = Some(before);
        if let Outcome::Reserved { left } = &mut answer.outcome {
            *left = before;
        }
    }
}

fn number_by_clock(request: &Request, answer: &mut Answer) {
    let proposes = matches!(request, Request::Acquire(Acquire { ballot: Ballot::Propose, .. }));
    if let (true, Outcome::Granted { token }) = (proposes, &mut answer.outcome) {
        let clock = Token::new(answer.view.server_time.0).unwrap_or(Token::MAX);
        *token = clock.max(*token);
    }
}

/// Lets a node forget what it knows, the quarantine too, when it is told of another term.
fn adopt_unchecked(store: &mut MemoryStore, now: ServerTime, call: &Call) {
    let Request::Adopt { token, .. } = call.request else { return };
    if store.token_of(now, &call.resource) != Some(token) {
        store.forget(now, &call.resource);
        store.execute(now, call);
        store.end_quarantine(now, &call.resource);
    }
}
