//! Our own rules broken one at a time, by adaptors around an unchanged core and store.

use std::time::Duration;

use tenure_core::memory_store::MemoryStore;
use tenure_core::protocol::{Acquire, Answer, Ballot, Call, Outcome, Request, Token};
use tenure_core::{ServerTime, TimingSettings};

/// For how many leases answers count where they count late.
pub(crate) const LATE_LEASES: u64 = 3;

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A lease is counted from when its answer came, not from when it was asked for.
    DeadlineFromAnswer,
    /// Renew and release compare the id and not the token.
    IdWithoutToken,
    /// Every acquire of a process carries the same attempt number.
    AttemptPerProcess,
    /// A store that lost data grants at once.
    NoQuarantine,
    /// A closed term is not given back.
    CloseWithoutRelease,
    /// An operator's wish to resign is carried out by releasing the leader's key.
    ThirdPartyRelease,
    /// Strict: the replicas are waited for on a connection that wrote nothing.
    WaitElsewhere,
    /// Strict: one replica fewer than there are is enough.
    FewerReplicas,
    /// Strict, quorum: a store without a record that has run for long is taken for new.
    TrustsAge,
    /// Quorum: half of the nodes are enough.
    HalfQuorum,
    /// Quorum: answers count whenever they come, and the lease from the last one.
    CountedLate,
    /// Quorum: nodes that granted under numbers of their own count.
    NoSettling,
    /// Quorum: a term is numbered by the fastest clock.
    FastestClock,
    /// Quorum: a node adopts whatever term it is told of.
    AdoptUnchecked,
    /// Quorum: a vacant node adopts a term although it knows a later one, or that it was closed.
    AdoptBackwards,
}

impl Flaw {
    /// The budget that the core is told. For a deadline from the answer it believes in leases of
    /// twice the length, and [`lengthened`] gives it exactly the wrong part of that.
    pub(crate) fn timing(self, mut settings: TimingSettings) -> TimingSettings {
        if self.counts_from_answer() {
            let ttl = settings.ttl;
            settings.renew_every = Some(ttl / 3);
            settings.stop_grace = Some(ttl * 3 / 10);
            settings.ttl = ttl * 2;
            settings.fleet_max_ttl = Some(settings.fleet_max_ttl.unwrap_or(ttl) * 2);
        }
        settings
    }

    /// Whether leases are counted from an answer.
    pub(crate) fn counts_from_answer(self) -> bool {
        matches!(self, Flaw::DeadlineFromAnswer | Flaw::CountedLate)
    }

    /// The request as a process with this flaw sends it.
    pub(crate) fn request(self, mut request: Request, ttl: Duration) -> Request {
        match (self, &mut request) {
            (flaw, Request::Acquire(ask)) if flaw.counts_from_answer() => {
                ask.fleet_max_ttl /= 2;
                ask.ttl = ttl;
                ask.record.ttl = ttl;
            }
            (flaw, Request::Renew { ttl: asked, fleet_max_ttl, .. })
                if flaw.counts_from_answer() =>
            {
                *fleet_max_ttl /= 2;
                *asked = ttl;
            }
            (Flaw::AttemptPerProcess, Request::Acquire(ask)) => ask.attempt = 1,
            (Flaw::AttemptPerProcess, Request::Abandon { attempt }) => *attempt = 1,
            _ => {}
        }
        request
    }

    /// The call as a store with this flaw understands it.
    pub(crate) fn at_store(self, store: &mut MemoryStore, now: ServerTime, call: &mut Call) {
        if self == Flaw::AdoptUnchecked {
            return adopt_unchecked(store, now, call);
        }
        if let (Flaw::AdoptBackwards, Request::Adopt { token, .. }) = (self, &call.request) {
            return store.forget_terms_from(now, &call.resource, *token);
        }
        let current = store.token_of(now, &call.resource);
        let is_holder = store.get(now, call.resource.key()) == Some(call.id.as_str());
        if self != Flaw::IdWithoutToken || !is_holder {
            return;
        }
        if let Request::Renew { token, .. } | Request::Release { token, .. } = &mut call.request {
            *token = current;
        }
    }

    /// The node of `nodes` whose answers count twice for a party, and the one that is never asked.
    pub(crate) fn twins(self, party: usize, nodes: usize) -> Option<(usize, usize)> {
        let first = party % nodes;
        (self == Flaw::HalfQuorum).then_some((first, (first + 1) % nodes))
    }

    /// The answer as a store with this flaw gives it.
    pub(crate) fn answer(self, request: &Request, mut answer: Answer) -> Answer {
        let is_proposal = matches!(
            request,
            Request::Acquire(Acquire { ballot: Ballot::Propose, .. }) if self == Flaw::FastestClock
        );
        if let (true, Outcome::Granted { token }) = (is_proposal, &mut answer.outcome) {
            let clock = Token::new(answer.view.server_time.0).unwrap_or(Token::MAX);
            *token = clock.max(*token);
        }
        answer
    }

    /// Whether the store with this flaw lets the caller in although leases may be believed in.
    pub(crate) fn skips_quarantine(self, outcome: &Outcome) -> bool {
        self == Flaw::NoQuarantine && matches!(outcome, Outcome::Quarantine { .. })
    }
}

/// Lets a node forget what it knows, the quarantine too, when it is told of another term.
fn adopt_unchecked(store: &mut MemoryStore, now: ServerTime, call: &Call) {
    let Request::Adopt { token, .. } = call.request else { return };
    if store.token_of(now, &call.resource) != token {
        store.forget(now, &call.resource);
        store.execute(now, call);
        store.end_quarantine(now, &call.resource);
    }
}

/// A lease of `pttl` counted from an answer that took `late`, as if counted from the request.
pub(crate) fn lengthened(pttl: Duration, late: Duration) -> Duration {
    pttl + late * 100 / 99
}
