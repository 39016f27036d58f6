//! Our own rules broken one at a time, by adaptors around an unchanged core and store.

use std::time::Duration;

use tenure_core::memory_store::MemoryStore;
use tenure_core::protocol::{Call, Outcome, Request};
use tenure_core::{ServerTime, TimingSettings};

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
}

impl Flaw {
    /// The budget that the core is told. For a deadline from the answer it believes in leases of
    /// twice the length, and [`lengthened`] gives it exactly the wrong part of that.
    pub(crate) fn timing(self, mut settings: TimingSettings) -> TimingSettings {
        if self == Flaw::DeadlineFromAnswer {
            let ttl = settings.ttl;
            settings.renew_every = Some(ttl / 3);
            settings.stop_grace = Some(ttl * 3 / 10);
            settings.ttl = ttl * 2;
            settings.fleet_max_ttl = Some(settings.fleet_max_ttl.unwrap_or(ttl) * 2);
        }
        settings
    }

    /// The request as a process with this flaw sends it.
    pub(crate) fn request(self, mut request: Request, ttl: Duration) -> Request {
        match (self, &mut request) {
            (Flaw::DeadlineFromAnswer, Request::Acquire(ask)) => {
                ask.fleet_max_ttl /= 2;
                ask.ttl = ttl;
                ask.record.ttl = ttl;
            }
            (Flaw::DeadlineFromAnswer, Request::Renew { ttl: asked, .. }) => *asked = ttl,
            (Flaw::AttemptPerProcess, Request::Acquire(ask)) => ask.attempt = 1,
            (Flaw::AttemptPerProcess, Request::Abandon { attempt }) => *attempt = 1,
            _ => {}
        }
        request
    }

    /// The call as a store with this flaw understands it.
    pub(crate) fn at_store(self, store: &MemoryStore, now: ServerTime, call: &mut Call) {
        let current = store.token_of(now, &call.resource);
        let is_holder = store.get(now, call.resource.key()) == Some(call.id.as_str());
        if self != Flaw::IdWithoutToken || !is_holder {
            return;
        }
        if let Request::Renew { token, .. } | Request::Release { token, .. } = &mut call.request {
            *token = current;
        }
    }

    /// Whether the store with this flaw lets the caller in although leases may be believed in.
    pub(crate) fn skips_quarantine(self, outcome: &Outcome) -> bool {
        self == Flaw::NoQuarantine && matches!(outcome, Outcome::Quarantine { .. })
    }
}

/// A lease of `pttl` counted from an answer that took `late`, as if counted from the request.
pub(crate) fn lengthened(pttl: Duration, late: Duration) -> Duration {
    pttl + late * 100 / 99
}
