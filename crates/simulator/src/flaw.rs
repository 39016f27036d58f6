//! Our own rules broken one at a time, by adaptors around an unchanged core. What a store with a
//! flaw does differently is in `store_flaw`.

use std::time::Duration;

use tenure_core::TimingSettings;
use tenure_core::protocol::Request;

/// For how many leases answers count where they count late.
pub(crate) const LATE_LEASES: u64 = 3;
/// How long everybody waits after a `clear` that does not ask how long leases are.
pub(crate) const CLEAR_CONSTANT: Duration = Duration::from_millis(10_102);
/// The part of a lease that is never believed in, beside the drift.
const GRAIN: Duration = Duration::from_millis(2);

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A lease is counted from when its answer came, not from when it was asked for.
    DeadlineFromAnswer,
    /// A lease is believed in to its last moment, as if all clocks ran alike.
    NoDriftMargin,
    /// Renew and release compare the id and not the token.
    IdWithoutToken,
    /// Transfer compares the id and not the token.
    TransferWithoutToken,
    /// Abandon gives back whatever its caller holds.
    AbandonWithoutAttempt,
    /// Every acquire of a process carries the same attempt number.
    AttemptPerProcess,
    /// A store that lost data grants at once.
    NoQuarantine,
    /// Whoever waits in a quarantine cuts it to its own lease.
    QuarantineShortened,
    /// A successor takes what was reserved for it although a quarantine runs.
    ClaimSkipsQuarantine,
    /// Requests name the own lease as the longest in the fleet.
    OwnLeaseOnly,
    /// Requests other than an attempt name no longest lease.
    BeatNamesNoLease,
    /// A process does not tell which tokens it has seen.
    FloorForgotten,
    /// A closed term is not given back.
    CloseWithoutRelease,
    /// A term is given back while its work still runs.
    ReleaseBeforeWork,
    /// An operator's wish to resign is carried out by releasing the leader's key.
    ThirdPartyRelease,
    /// After a `clear` everybody waits for the same time, however short the leases are.
    ClearForConstant,
    /// A hand-over whose term is lost meanwhile has no outcome.
    HandOverForgotten,
    /// A leader hands over, and gives way to a higher priority, while the election is paused.
    PauseOverlooked,
    /// Work goes on until its driver says otherwise, whatever the clock says.
    WorkOutlivesLease,
    /// Every hint that a term began moves the next attempt to the end of that lease.
    HintsPostpone,
    /// A server that takes no writes says from its old data that a term is lost.
    StaleDeposes,
    /// A server that takes no writes says from its old data that there is nothing to release.
    StaleReleases,
    /// A store whose clock went back keeps a key for as long as the clock shows.
    ClockBackWaits,
    /// Our own store takes restored data for what it had when it ended.
    OldMarkVouches,
    /// Periods of all lengths share one count, and what was done in the future counts.
    PeriodsShareNumbers,
    /// A program that could not be started counts as run.
    NeverStartedCounts,
    /// Work that ended after its lease is reported as done.
    DoneAfterLease,
    /// What must not be run twice is run again after a crash.
    RerunsAnyway,
    /// Strict: what is said about ticks counts before the replicas have it.
    TickUnconfirmed,
    /// Strict: the replicas are waited for on a connection that wrote nothing.
    WaitElsewhere,
    /// Strict: one replica fewer than there are is enough.
    FewerReplicas,
    /// Strict, quorum, cluster: a store without a record that has run for long is taken for new.
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
    /// Compare and swap: what was decided is written whatever stands there by now.
    SwapUncompared,
    /// Compare and swap without a clock: each process goes by its own clock.
    SwapComparesClocks,
    /// The same: the time for which a version stayed is not counted anew when it changes.
    SwapCountsOn,
    /// Compare and swap: a term has the number of the term before.
    SwapKeepsToken,
    /// Compare and swap: another life of the store is taken for the same.
    SwapSameLife,
}

impl Flaw {
    /// The budget that the core is told. Where a lease is to be believed in for too long, it is
    /// told of leases of twice the length, and [`Flaw::believed`] gives it exactly the wrong part.
    pub(crate) fn timing(self, mut settings: TimingSettings) -> TimingSettings {
        if self.overstates_leases() {
            let ttl = settings.ttl;
            settings.renew_every = Some(ttl / 3);
            settings.stop_grace = Some(ttl * 3 / 10);
            settings.ttl = ttl * 2;
            settings.fleet_min_ttl = None;
            settings.fleet_max_ttl = Some(settings.fleet_max_ttl.unwrap_or(ttl) * 2);
        }
        settings
    }

    /// Whether the core is led to believe in leases for too long.
    pub(crate) fn overstates_leases(self) -> bool {
        let flaws = [Flaw::DeadlineFromAnswer, Flaw::CountedLate, Flaw::NoDriftMargin];
        flaws.contains(&self)
    }

    /// What the core is told of a lease of `pttl` whose answer took `late`.
    pub(crate) fn believed(self, pttl: Duration, late: Duration) -> Duration {
        match self {
            Flaw::NoDriftMargin => (pttl + GRAIN) * 100 / 99,
            _ => pttl + late * 100 / 99,
        }
    }

    /// The request as a process with this flaw sends it.
    pub(crate) fn request(self, mut request: Request, ttl: Duration) -> Request {
        match (self, &mut request) {
            (flaw, Request::Acquire(ask)) if flaw.overstates_leases() => {
                ask.fleet_max_ttl /= 2;
                ask.ttl = ttl;
                ask.record.ttl = ttl;
            }
            (flaw, Request::Renew { ttl: asked, fleet_max_ttl, .. })
                if flaw.overstates_leases() =>
            {
                *fleet_max_ttl /= 2;
                *asked = ttl;
            }
            (Flaw::OwnLeaseOnly, Request::Acquire(ask)) => ask.fleet_max_ttl = ttl,
            (Flaw::OwnLeaseOnly, Request::Renew { fleet_max_ttl, .. }) => *fleet_max_ttl = ttl,
            (Flaw::FloorForgotten, Request::Acquire(ask)) => ask.floor = None,
            (Flaw::AttemptPerProcess, Request::Acquire(ask)) => ask.attempt = 1,
            (Flaw::AttemptPerProcess, Request::Abandon { attempt }) => *attempt = 1,
            _ => {}
        }
        request
    }

    /// The node of `nodes` whose answers count twice for a party, and the one that is never asked.
    pub(crate) fn twins(self, party: usize, nodes: usize) -> Option<(usize, usize)> {
        let first = party % nodes;
        (self == Flaw::HalfQuorum).then_some((first, (first + 1) % nodes))
    }
}
