//! The store: whether it can keep what elections put into it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use store_resp::Reply;
use tenure::backend::redis::{Mode, Place, RedisUrl};

use super::finding::{Code, Finding};
use crate::cli::Conversation;
use crate::clock;

/// How long connecting and each answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the round trip is measured.
const PINGS: usize = 11;
/// A round trip from which leases of some seconds are renewed late now and then.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(50);
/// How far the store's wall clock may be off before history is hard to read.
const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(2);
/// For how long the pace of the two clocks is compared.
const PACE_MEASURED_FOR: Duration = Duration::from_secs(1);
/// How often the store's clock is read at either end of that: most readings are disturbed.
const READINGS: usize = 5;
/// Leases assume that clocks agree to this.
const PACE_ERROR_MAX: f64 = 0.01;

/// The commands that an instance needs, as docs/acl.md lists them, each with words that fit.
const NEEDED: [&[&str]; 12] = [
    &["set", "K", "x"],
    &["get", "K"],
    &["del", "K"],
    &["pexpire", "K", "1"],
    &["pttl", "K"],
    &["type", "K"],
    &["hset", "K", "f", "v"],
    &["hgetall", "K"],
    &["zadd", "K", "1", "m"],
    &["zrange", "K", "0", "-1"],
    &["xadd", "K", "*", "f", "v"],
    &["publish", "K", "x"],
];
const OPTIONAL: [&[&str]; 2] = [&["info"], &["time"]];

/// What was seen of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreFacts {
    pub(super) info: BTreeMap<String, String>,
    /// What CONFIG tells, if it may be asked.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) round_trip: Duration,
    /// How far its wall clock is from ours.
    pub(super) clock_offset: Duration,
    /// How much faster or slower it goes, as a share.
    pub(super) pace_error: f64,
    /// Commands that the login may not use, as far as a script could tell.
    pub(super) denied: Vec<String>,
    pub(super) is_loopback: bool,
    pub(super) is_encrypted: bool,
    pub(super) has_password: bool,
    pub(super) is_strict: bool,
    /// One of several nodes that decide together.
    pub(super) is_node: bool,
}

impl StoreFacts {
    /// Looks at the store. `key` is one that this login should be able to use.
    pub(super) fn gather(url: RedisUrl, key: &str) -> Result<Self, String> {
        let mut facts = StoreFacts {
            is_loopback: is_loopback(&url.place),
            is_encrypted: matches!(url.place, Place::Tls { .. }),
            has_password: url.login.password.is_some(),
            is_strict: !matches!(url.mode, Mode::Available),
            ..StoreFacts::default()
        };
        let mut store = Conversation::open(url, ANSWER_TIMEOUT)?;
        // What follows may be refused one by one. A store that is silent is so to everything.
        store.ask(&["PING"])?;
        facts.info = info(&mut store);
        for name in ["maxmemory", "maxmemory-policy", "save", "appendonly"] {
            if let Some(value) = setting(&mut store, name) {
                facts.settings.insert(name.to_owned(), value);
            }
        }
        facts.round_trip = round_trip(&mut store)?;
        facts.compare_clocks(&mut store)?;
        facts.denied = denied(&mut store, key);
        Ok(facts)
    }

    fn compare_clocks(&mut self, store: &mut Conversation) -> Result<(), String> {
        let readings = |store: &mut Conversation| -> Vec<Reading> {
            (0..READINGS).filter_map(|_| Reading::take(store)).collect()
        };
        let begin = readings(store);
        let ours = clock::unix_us();
        let Some(first) = begin.last() else { return Ok(()) };
        self.clock_offset = Duration::from_micros(first.there.abs_diff(ours));
        std::thread::sleep(PACE_MEASURED_FOR);
        self.pace_error = pace_error(&begin, &readings(store));
        Ok(())
    }

    fn info(&self, field: &str) -> &str {
        self.info.get(field).map_or("", String::as_str)
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        found.extend(self.eviction());
        found.extend(self.persistence());
        found.extend(self.replication());
        found.extend(self.access());
        found.extend(self.rights());
        found.extend(self.clocks());
        found.extend(self.slowness());
        found
    }

    fn eviction(&self) -> Option<Finding> {
        let policy = self.setting("maxmemory-policy").unwrap_or(self.info("maxmemory_policy"));
        let limit = self.setting("maxmemory").unwrap_or(self.info("maxmemory"));
        if policy.is_empty() || policy == "noeviction" {
            return None;
        }
        let what = format!(
            "maxmemory-policy is {policy} (maxmemory {limit}), so leases and records may be evicted"
        );
        let next = "CONFIG SET maxmemory-policy noeviction, or give elections a store of their own";
        Some(Finding::new(Code::Eviction, what, next))
    }

    fn persistence(&self) -> Option<Finding> {
        let appends = self.info("aof_enabled") == "1";
        let saves = self.setting("save").is_none_or(|points| !points.is_empty());
        if appends || saves {
            return None;
        }
        let what = "nothing is written to disk: a restart forgets history and tokens, and the next \
                    leader waits until old leases are over";
        let next = "CONFIG SET appendonly yes";
        Some(Finding::new(Code::NoPersistence, what.to_owned(), next))
    }

    fn replication(&self) -> Option<Finding> {
        if self.info("role") == "slave" {
            let what = "this is a replica: it takes no writes".to_owned();
            return Some(Finding::new(Code::Replica, what, "name the primary in the address"));
        }
        if self.info("cluster_enabled") == "1" {
            return None;
        }
        match self.info("connected_slaves") {
            // A majority of such nodes is what bears the loss of one.
            "0" if self.is_node => None,
            "0" => {
                let what = "one node without replicas: while it is down, nobody leads".to_owned();
                let next = "add a replica with Sentinel, if an outage of the store matters";
                Some(Finding::new(Code::SingleNode, what, next))
            }
            count if !self.is_strict && !count.is_empty() => {
                let what = format!(
                    "{count} replicas in mode available: after a failover, clients that still \
                     reach the old primary may lead beside the new leader (split brain)"
                );
                let next = "add ?mode=strict&replicas=N to the address, and check tokens at the \
                            resource";
                Some(Finding::new(Code::SplitBrainRisk, what, next))
            }
            _ => None,
        }
    }

    fn access(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        if self.is_loopback {
            return found;
        }
        if !self.has_password {
            let what = "no password is used and the store is not on this host".to_owned();
            let next = "set requirepass or an ACL user there, and TENURE_STORE or \
                        store.password_file here";
            found.push(Finding::new(Code::NoAuth, what, next));
        }
        if !self.is_encrypted {
            let what = "the connection leaves this host without TLS".to_owned();
            found.push(Finding::new(Code::NoTls, what, "use rediss:// and tls-port on the server"));
        }
        found
    }

    fn rights(&self) -> Option<Finding> {
        if self.denied.is_empty() {
            return None;
        }
        let what = format!("the login may not use {}", self.denied.join(", "));
        Some(Finding::new(Code::Acl, what, "grant what docs/acl.md lists"))
    }

    fn clocks(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        if self.pace_error > PACE_ERROR_MAX {
            let percent = self.pace_error * 100.0;
            let what = format!(
                "its clock goes {percent:.1} % faster or slower than ours; leases allow for 1 %"
            );
            let next = "look at the time service of both hosts; mutual exclusion is not given";
            found.push(Finding::new(Code::ClockDrift, what, next));
        }
        if self.clock_offset > CLOCK_OFFSET_MAX {
            let what = format!(
                "its wall clock is {:.1?} off ours: no harm to elections, but history is hard to \
                 read",
                self.clock_offset
            );
            found.push(Finding::new(Code::ClockOffset, what, "run a time service on both hosts"));
        }
        found
    }

    fn slowness(&self) -> Option<Finding> {
        if self.round_trip <= ROUND_TRIP_MAX {
            return None;
        }
        let what = format!("a round trip takes {:.1?}: renewals will be late", self.round_trip);
        let next = "move the store closer, look at SLOWLOG GET, or lengthen the ttl";
        Some(Finding::new(Code::SlowStore, what, next))
    }
}

/// One look at the store's clock: it read `there`, in microseconds, at some moment between two of
/// ours.
#[derive(Clone, Copy, Debug)]
struct Reading {
    asked_at: Instant,
    there: u64,
    answered_at: Instant,
}

impl Reading {
    fn take(store: &mut Conversation) -> Option<Self> {
        let asked_at = clock::steady();
        let there = time(store)?;
        Some(Reading { asked_at, there, answered_at: clock::steady() })
    }
}

/// By how much the store's clock certainly goes faster or slower than ours, as a share. However
/// busy either host is, what lies between two readings is known to be within bounds, and only what
/// is outside of the bounds of every pair is drift.
fn pace_error(begin: &[Reading], end: &[Reading]) -> f64 {
    let pairs = begin.iter().flat_map(|first| end.iter().map(move |last| (first, last)));
    let errors = pairs.map(|(first, last)| {
        let there = (last.there as f64 - first.there as f64) / 1e6;
        let least = (last.asked_at - first.answered_at).as_secs_f64();
        let most = (last.answered_at - first.asked_at).as_secs_f64();
        (least - there).max(there - most).max(0.0) / most
    });
    // Any pair that fits is proof enough: a step of a wall clock shows in all of them.
    errors.fold(f64::INFINITY, f64::min).min(f64::MAX)
}

/// Whether nobody else's network lies between.
fn is_loopback(place: &Place) -> bool {
    match place {
        Place::Unix { .. } => true,
        Place::Tcp { host, .. } | Place::Tls { host, .. } => {
            let address = host.parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
    }
}

fn info(store: &mut Conversation) -> BTreeMap<String, String> {
    let Ok(Reply::Bulk(text)) = store.ask(&["INFO"]) else { return BTreeMap::new() };
    let text = String::from_utf8_lossy(&text);
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn setting(store: &mut Conversation, name: &str) -> Option<String> {
    match store.ask(&["CONFIG", "GET", name]).ok()? {
        Reply::Array(pair) => match pair.as_slice() {
            [_, Reply::Bulk(value)] => Some(String::from_utf8_lossy(value).into_owned()),
            _ => None,
        },
        _ => None,
    }
}

/// The middle one of several: one slow answer is no slow store.
fn round_trip(store: &mut Conversation) -> Result<Duration, String> {
    let mut took = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let asked_at = clock::steady();
        store.ask(&["PING"])?;
        took.push(clock::steady() - asked_at);
    }
    took.sort_unstable();
    Ok(took[PINGS / 2])
}

/// Microseconds since 1970 by the store's clock.
fn time(store: &mut Conversation) -> Option<u64> {
    let Ok(Reply::Array(parts)) = store.ask(&["TIME"]) else { return None };
    let number = |part: &Reply| match part {
        Reply::Bulk(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    Some(number(parts.first()?)? * 1_000_000 + number(parts.get(1)?)?)
}

/// Which of the needed commands the login may not use, asked of the server itself: a script can
/// tell without doing anything.
fn denied(store: &mut Conversation, key: &str) -> Vec<String> {
    let mut denied = Vec::new();
    for words in NEEDED.iter().chain(&OPTIONAL) {
        let words = words.iter().map(|word| if *word == "K" { key } else { word });
        let quoted: Vec<String> = words.map(|word| format!("{word:?}")).collect();
        let script = format!("return redis.acl_check_cmd({}) and 1 or 0", quoted.join(","));
        match store.ask(&["EVAL", &script, "0"]) {
            Ok(Reply::Integer(0)) => denied.push(quoted[0].trim_matches('"').to_owned()),
            Ok(Reply::Error(text)) if text.starts_with("NOPERM") => {
                denied.push("eval".to_owned());
                return denied;
            }
            // An older server that cannot tell; the election itself will.
            Ok(_) => {}
            Err(_) => return denied,
        }
    }
    denied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> StoreFacts {
        let info = [("role", "master"), ("connected_slaves", "1"), ("aof_enabled", "1")];
        StoreFacts {
            info: info.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            is_loopback: true,
            is_strict: true,
            ..StoreFacts::default()
        }
    }

    fn codes(change: impl FnOnce(&mut StoreFacts)) -> Vec<&'static str> {
        let mut facts = healthy();
        change(&mut facts);
        facts.findings().iter().map(|finding| finding.code.word()).collect()
    }

    #[test]
    fn a_healthy_store_has_no_findings() {
        assert!(codes(|_| {}).is_empty());
    }

    /// Five readings, each under way for `took`, of a clock that began at `there` and goes `rate`
    /// times as fast as ours.
    fn readings(origin: Instant, after: Duration, took: Duration, rate: f64) -> Vec<Reading> {
        let one = |number: u32| {
            let asked_at = origin + after + took * number;
            let there = ((asked_at - origin).as_secs_f64() * rate * 1e6) as u64;
            Reading { asked_at, there, answered_at: asked_at + took }
        };
        (0..5).map(one).collect()
    }

    #[test]
    fn a_busy_host_is_no_drift_and_drift_is() {
        let origin = clock::steady();
        let measured = |took_ms: u64, rate: f64| {
            let took = Duration::from_millis(took_ms);
            let begin = readings(origin, Duration::ZERO, took, rate);
            let end = readings(origin, Duration::from_secs(1), took, rate);
            pace_error(&begin, &end)
        };
        assert!(measured(0, 1.0) < 1e-6);
        assert!(measured(80, 1.0) < 1e-6, "a slow answer says nothing about the pace");
        assert!(measured(1, 1.05) > PACE_ERROR_MAX);
        assert!(measured(1, 0.95) > PACE_ERROR_MAX);
    }

    #[test]
    fn each_fact_that_is_not_well_is_a_finding_of_its_own() {
        assert_eq!(codes(|facts| facts.pace_error = 0.02), ["clock-drift"]);
        assert_eq!(codes(|facts| facts.clock_offset = Duration::from_secs(3600)), ["clock-offset"]);
        assert_eq!(codes(|facts| facts.round_trip = Duration::from_millis(80)), ["slow-store"]);
        assert_eq!(codes(|facts| facts.is_loopback = false), ["no-auth", "no-tls"]);
        assert_eq!(codes(|facts| facts.is_strict = false), ["split-brain-risk"]);
        assert_eq!(codes(|facts| facts.denied = vec!["set".into()]), ["acl"]);
    }
}
