//! The time settings of an election, checked before anything starts.
//!
//! ```text
//! sent_at                                                              ends_at        key expires
//!   ├── renew_every ──┼─ try ─┼─ retries … ─┤ stop_at ─ stop_grace ─ kill_at ┤ drift, 2 ms ┤
//! ```
//! Everything is counted from `sent_at`, read before the request is queued: the store starts its
//! own count later, so the local deadline always comes first (docs/protocol.md §9.5).

use std::time::Duration;

use crate::Moment;

/// The shortest ttl: with less, a hiccup of the scheduler costs the leadership.
pub const TTL_MIN: Duration = Duration::from_millis(300);
/// The longest ttl: a crashed leader blocks its resource for this long.
pub const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The default ttl.
pub const TTL_DEFAULT: Duration = Duration::from_secs(10);
/// Subtracted from every lease beside the drift: the granularity of the store's expiry.
const CLOCK_GRAIN: Duration = Duration::from_millis(2);

/// What a user may set about time. `None` means the default, which follows from the ttl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimingSettings {
    /// How long a lease lasts without renewal.
    pub ttl: Duration,
    /// The time between two renewals; a third of the ttl by default.
    pub renew_every: Option<Duration>,
    /// How long work gets to stop before the lease ends; 30 % of the ttl by default.
    pub stop_grace: Option<Duration>,
    /// The shortest ttl that any other instance uses at this key; this instance's own by default.
    pub fleet_min_ttl: Option<Duration>,
    /// The longest ttl that any other instance may still rely on; this instance's own by default.
    pub fleet_max_ttl: Option<Duration>,
}

impl Default for TimingSettings {
    fn default() -> Self {
        TimingSettings {
            ttl: TTL_DEFAULT,
            renew_every: None,
            stop_grace: None,
            fleet_min_ttl: None,
            fleet_max_ttl: None,
        }
    }
}

/// Which rule the time settings break. The message says which, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct TimingError(#[from] TimingFault);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum TimingFault {
    /// A lease outside what can be kept safely.
    #[error(
        "{what} is {}, but must lie between {} and {}",
        duration_text(*given), duration_text(TTL_MIN), duration_text(TTL_MAX)
    )]
    LeaseOutOfRange {
        /// Which setting it is.
        what: &'static str,
        /// What was given.
        given: Duration,
    },
    /// A lease with a fraction of a millisecond: the store would round it.
    #[error("{what} is {given:?}, but the store counts whole milliseconds: round it")]
    FractionOfMillisecond {
        /// Which setting it is.
        what: &'static str,
        /// What was given.
        given: Duration,
    },
    /// Renewing all the time.
    #[error("renew_every is zero: leave it out for a third of the ttl")]
    NoRenewInterval,
    /// Work would be told to stop when it must already be dead.
    #[error(
        "stop_grace {} is shorter than the {} in which work is cut off: lengthen it",
        duration_text(*given), duration_text(*least)
    )]
    GraceTooShort {
        /// What was given.
        given: Duration,
        /// The least that makes sense for this lease.
        least: Duration,
    },
    /// No renewal would fit before work has to stop.
    #[error(
        "renew_every {} + one try {} + stop_grace {} exceed the {} that a {} lease leaves: lengthen \
         ttl, or shorten renew_every or stop_grace",
        duration_text(*renew_every), duration_text(*try_timeout), duration_text(*stop_grace),
        duration_text(*usable), duration_text(*ttl)
    )]
    BudgetExceeded {
        /// How often the lease is renewed.
        renew_every: Duration,
        /// How long one try may take.
        try_timeout: Duration,
        /// How long work gets to stop.
        stop_grace: Duration,
        /// The lease less drift and grain.
        usable: Duration,
        /// The lease that counts: the shortest in the fleet.
        ttl: Duration,
    },
    /// The fleet's bounds exclude this instance's lease.
    #[error(
        "{what} {} contradicts this instance's ttl {}: {hint}",
        duration_text(*given), duration_text(*ttl)
    )]
    FleetContradiction {
        /// Which setting it is.
        what: &'static str,
        /// What was given.
        given: Duration,
        /// This instance's lease.
        ttl: Duration,
        /// What to do.
        hint: &'static str,
    },
}

/// A time rounded for display: a sixth of a ttl has more digits than anybody reads. A time below a
/// millisecond stays as it is.
pub fn whole_millis(time: Duration) -> Duration {
    match u64::try_from(time.as_millis()) {
        Ok(0) | Err(_) => time,
        Ok(millis) => Duration::from_millis(millis),
    }
}

/// Units from the largest to the smallest, in milliseconds.
pub const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A length of time as people write it: `1d`, `1h30m`, `250ms`. Fractions of a millisecond are
/// lost, unless there is nothing else.
pub fn duration_text(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left == 0 {
        return if duration.is_zero() { "0s".to_owned() } else { format!("{duration:?}") };
    }
    let mut text = String::new();
    for (unit, size) in TIME_UNITS {
        if left >= size {
            text += &format!("{}{unit}", left / size);
            left %= size;
        }
    }
    text
}

/// Checked time settings: a value of this type cannot break the rules.
// Small, and what follows from the rest is not kept: each election has three copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    ttl: Lease,
    fleet_min_ttl: Lease,
    fleet_max_ttl: Lease,
    renew_every: Duration,
    stop_grace: Duration,
}

/// A checked lease in milliseconds: the longest is a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lease(u32);

impl Lease {
    fn duration(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

impl Timing {
    /// Checks the settings and fills in the defaults.
    pub fn new(settings: &TimingSettings) -> Result<Self, TimingError> {
        let [fleet_min_ttl, fleet_max_ttl] = [settings.fleet_min_ttl, settings.fleet_max_ttl];
        let ttl = checked_lease("ttl", settings.ttl)?;
        let fleet_min_ttl = checked_lease("fleet_min_ttl", fleet_min_ttl.unwrap_or(settings.ttl))?;
        let fleet_max_ttl = checked_lease("fleet_max_ttl", fleet_max_ttl.unwrap_or(settings.ttl))?;
        if fleet_max_ttl < ttl {
            return Err(TimingFault::FleetContradiction {
                what: "fleet_max_ttl",
                given: fleet_max_ttl.duration(),
                ttl: ttl.duration(),
                hint: "it must be at least this instance's ttl",
            }
            .into());
        }
        let counted = ttl.min(fleet_min_ttl).duration();
        let stop_grace = (counted * 3 / 10).max(kill_margin(counted));
        let timing = Timing {
            ttl,
            fleet_min_ttl,
            fleet_max_ttl,
            renew_every: settings.renew_every.unwrap_or(counted / 3),
            stop_grace: settings.stop_grace.unwrap_or(stop_grace),
        };
        timing.checked()
    }

    fn checked(self) -> Result<Self, TimingError> {
        if self.renew_every.is_zero() {
            return Err(TimingFault::NoRenewInterval.into());
        }
        if self.stop_grace < self.kill_margin() {
            let (given, least) = (self.stop_grace, self.kill_margin());
            return Err(TimingFault::GraceTooShort { given, least }.into());
        }
        let usable = usable(self.counted_ttl());
        let needed =
            self.renew_every.saturating_add(self.try_timeout()).saturating_add(self.stop_grace);
        if needed > usable {
            return Err(TimingFault::BudgetExceeded {
                renew_every: self.renew_every,
                try_timeout: self.try_timeout(),
                stop_grace: self.stop_grace,
                usable,
                ttl: self.counted_ttl(),
            }
            .into());
        }
        Ok(self)
    }

    /// The ttl that the store is asked for.
    pub fn ttl(&self) -> Duration {
        self.ttl.duration()
    }

    /// How often the lease is renewed.
    pub fn renew_every(&self) -> Duration {
        self.renew_every
    }

    /// How long one request about the lease may take.
    pub fn try_timeout(&self) -> Duration {
        self.counted_ttl() / 6
    }

    /// How long work gets to stop.
    pub fn stop_grace(&self) -> Duration {
        self.stop_grace
    }

    /// The shortest ttl that any other instance uses at the key.
    pub fn fleet_min_ttl(&self) -> Duration {
        self.fleet_min_ttl.duration()
    }

    /// The longest lease that any other instance may rely on.
    pub fn fleet_max_ttl(&self) -> Duration {
        self.fleet_max_ttl.duration()
    }

    /// Until when a lease may be relied on that was asked for at `sent_at` and answered with
    /// `pttl`.
    pub fn ends_at(&self, sent_at: Moment, pttl: Duration) -> Moment {
        sent_at + usable(self.counted_ttl().min(pttl))
    }

    /// When work must be told to stop under a lease that ends at `ends_at`.
    pub fn stop_at(&self, ends_at: Moment) -> Moment {
        ends_at - self.stop_grace
    }

    /// When work that has not stopped must be cut off.
    pub fn kill_at(&self, ends_at: Moment) -> Moment {
        ends_at - self.kill_margin()
    }

    /// How long before the end of a lease work is cut off.
    pub(crate) fn kill_margin(&self) -> Duration {
        kill_margin(self.counted_ttl())
    }

    /// A note for the user about an unusual but permitted ttl.
    pub fn advice(&self) -> Option<&'static str> {
        match self.ttl() {
            ttl if ttl < Duration::from_secs(1) => {
                Some("a ttl under 1 s loses the leadership to short stalls of host or network")
            }
            ttl if ttl > Duration::from_secs(3600) => {
                Some("a ttl over 1 h leaves the resource leaderless that long after a crash")
            }
            _ => None,
        }
    }

    fn counted_ttl(&self) -> Duration {
        self.ttl.min(self.fleet_min_ttl).duration()
    }
}

/// How long before the end of a lease work is cut off.
fn kill_margin(lease: Duration) -> Duration {
    Duration::from_millis(100).max(lease / 50)
}

/// The part of a lease that holds on anyone's clock within the drift bound of 1 %.
fn usable(lease: Duration) -> Duration {
    (lease * 99 / 100).saturating_sub(CLOCK_GRAIN)
}

fn checked_lease(what: &'static str, given: Duration) -> Result<Lease, TimingError> {
    if !(TTL_MIN..=TTL_MAX).contains(&given) {
        return Err(TimingFault::LeaseOutOfRange { what, given }.into());
    }
    if !given.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(TimingFault::FractionOfMillisecond { what, given }.into());
    }
    Ok(Lease(u32::try_from(given.as_millis()).expect("a day has fewer milliseconds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn with(change: impl FnOnce(&mut TimingSettings)) -> Result<Timing, TimingError> {
        let mut settings = TimingSettings::default();
        change(&mut settings);
        Timing::new(&settings)
    }

    #[test]
    fn the_defaults_follow_from_the_lease() {
        let timing = with(|_| {}).unwrap();
        assert_eq!(timing.renew_every(), Duration::from_secs(10) / 3);
        assert_eq!(timing.stop_grace(), Duration::from_secs(3));
        let ends_at = timing.ends_at(Moment::ORIGIN, timing.ttl());
        assert_eq!(ends_at.since(Moment::ORIGIN), millis(9_898));
        assert_eq!(timing.kill_at(ends_at), ends_at - millis(200));
    }

    #[test]
    fn every_permitted_lease_has_a_default_budget() {
        for ttl in [300, 301, 500, 999, 1_000, 10_000, 30_000, 86_400_000] {
            with(|s| s.ttl = millis(ttl)).unwrap_or_else(|e| panic!("{ttl} ms: {e}"));
        }
    }

    #[test]
    fn the_shorter_of_lease_asked_answered_and_written_by_the_fleet_counts() {
        let timing = with(|s| s.fleet_min_ttl = Some(millis(5_000))).unwrap();
        assert_eq!(timing.ends_at(Moment::ORIGIN, millis(10_000)).as_nanos(), 4_948_000_000);
        assert_eq!(timing.ends_at(Moment::ORIGIN, millis(1_000)).as_nanos(), 988_000_000);
        assert_eq!(timing.renew_every(), millis(5_000) / 3);
    }

    #[test]
    fn impossible_settings_name_the_rule_they_broke() {
        type Case = (fn(&mut TimingSettings), &'static str);
        let cases: [Case; 8] = [
            (|s| s.ttl = millis(0), "ttl is 0s"),
            (|s| s.ttl = millis(299), "ttl is 299ms"),
            (|s| s.ttl = Duration::from_micros(500_500), "whole milliseconds"),
            (|s| s.renew_every = Some(Duration::ZERO), "renew_every is zero"),
            (|s| s.renew_every = Some(millis(10_000)), "renew_every 10s + one try"),
            (|s| s.stop_grace = Some(millis(8_000)), "stop_grace 8s exceed"),
            (|s| s.stop_grace = Some(millis(10)), "stop_grace 10ms is shorter"),
            (|s| s.fleet_max_ttl = Some(millis(1_000)), "fleet_max_ttl 1s contradicts"),
        ];
        for (change, part) in cases {
            let text = with(change).unwrap_err().to_string();
            assert!(text.contains(part), "{text:?} should contain {part:?}");
        }
    }
}
