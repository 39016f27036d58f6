//! The store: whether it can keep what elections put into it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use store_resp::Reply;
use tenure::Resource;
use tenure::backend::redis::{Endpoint, Mode, RedisUrl};

use super::finding::{Code, Finding};
use super::replicas;
use super::rights::{Extras, Rights};
use crate::cli::LoggedInConnection;
use crate::clock;
use crate::output::plain;
use tenure_redis::refusal_step;

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
    pub(super) rights: Rights,
    /// What the server says to a write, if it refuses any.
    pub(super) write_refusal: Option<String>,
    pub(super) user: String,
    /// As the address names it; nothing for a unix socket.
    pub(super) host: String,
    pub(super) is_loopback: bool,
    pub(super) is_encrypted: bool,
    pub(super) has_password: bool,
    pub(super) mode: Mode,
    pub(super) part: Part,
}

/// What a server is to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// All there is.
    #[default]
    Alone,
    /// Whom sentinels name.
    Master,
    /// One of several nodes that decide together.
    Node,
    /// The owner of some slots of a cluster.
    Owner,
}

impl Part {
    pub(super) fn word(self) -> &'static str {
        match self {
            Part::Alone => "store",
            Part::Master => "master",
            Part::Node => "node",
            Part::Owner => "owner",
        }
    }
}

impl StoreFacts {
    /// Looks at a server on which these elections are.
    pub(super) fn gather(url: RedisUrl, part: Part, on_it: &[Resource]) -> Result<Self, String> {
        let mut facts = StoreFacts {
            host: host(&url.place).to_owned(),
            is_loopback: is_loopback(&url.place),
            is_encrypted: matches!(url.place, Endpoint::Tcp { tls: Some(_), .. }),
            has_password: url.login.password.is_some(),
            user: url.login.user.clone().unwrap_or_else(|| "default".to_owned()),
            mode: url.mode,
            part,
            ..StoreFacts::default()
        };
        let extras = Extras {
            in_a_cluster: part == Part::Owner,
            is_strict: !matches!(url.mode, Mode::Available),
        };
        let mut store = LoggedInConnection::open(url, ANSWER_TIMEOUT)?;
        facts.info = info(&mut store)?;
        for name in ["maxmemory", "maxmemory-policy", "save", "appendonly"] {
            if let Some(value) = setting(&mut store, name) {
                facts.settings.insert(name.to_owned(), value);
            }
        }
        facts.round_trip = round_trip(&mut store)?;
        facts.compare_clocks(&mut store)?;
        for election in on_it {
            let rights = Rights::ask(&mut store, election, extras);
            if facts.rights.denied.is_empty() {
                facts.rights = rights;
            }
        }
        facts.write_refusal = on_it.first().and_then(|one| write_refusal(&mut store, one));
        Ok(facts)
    }

    fn compare_clocks(&mut self, store: &mut LoggedInConnection) -> Result<(), String> {
        let readings = |store: &mut LoggedInConnection| -> Vec<Reading> {
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

    /// What the server is and which version, for people.
    pub(super) fn version(&self) -> String {
        let kinds = ["tenure", "valkey", "redis"];
        let known = kinds.iter().find_map(|kind| {
            let version = self.info.get(&format!("{kind}_version"))?;
            Some(format!("{kind} {version}"))
        });
        known.unwrap_or_else(|| "unknown version".to_owned())
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
        found.extend(self.replicas());
        found.extend(self.access());
        found.extend(self.rights());
        found.extend(self.writes());
        found.extend(self.shards());
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
        // Redis cannot show that it has lost nothing.
        let next = match self.info("tenure_incarnation") {
            "" => "CONFIG SET appendonly yes, to keep them; the wait after a restart stays",
            _ => {
                "CONFIG SET appendonly yes: after a clean restart nothing is lost, and nobody waits"
            }
        };
        Some(Finding::new(Code::NoPersistence, what.to_owned(), next))
    }

    fn replication(&self) -> Option<Finding> {
        if self.info("role") == "slave" {
            let what = "this is a replica: it takes no writes".to_owned();
            return Some(Finding::new(Code::Replica, what, "name the primary in the address"));
        }
        if self.part != Part::Owner && self.info("cluster_enabled") == "1" {
            let what = "this is one node of a cluster, which sends most requests elsewhere";
            let next = "write redis+cluster:// in the address (rediss+cluster:// for TLS)";
            return Some(Finding::new(Code::ClusterNode, what, next));
        }
        match (self.mode, self.info("connected_slaves")) {
            (Mode::Strict { replicas }, _) => self.too_few(replicas),
            // A majority of such nodes is what bears the loss of one.
            (_, "0") if self.part == Part::Node => None,
            (_, "0") => Some(self.without_replicas()),
            (_, "") => None,
            (_, count) => {
                let what = format!(
                    "mode available, and replicas ({count}): after a failover, clients that still \
                     reach the old primary may lead beside the new leader (split brain)"
                );
                let next = "add ?mode=strict&replicas=N to the address, and check tokens at the \
                            resource";
                Some(Finding::new(Code::SplitBrainRisk, what, next))
            }
        }
    }

    fn without_replicas(&self) -> Finding {
        let (what, next) = match self.part {
            Part::Owner => (
                "this owner has no replica: while it is down, nobody leads there",
                "redis-cli --cluster add-node NEW HOST:PORT --cluster-slave, if an outage matters",
            ),
            _ => (
                "one node without replicas: while it is down, nobody leads",
                "add a replica with Sentinel, if an outage of the store matters",
            ),
        };
        Finding::new(Code::SingleNode, what, next)
    }

    /// The link of a replica, or each replica of a primary, and where they are.
    fn replicas(&self) -> Vec<Finding> {
        if self.info("role") == "slave" {
            return self.link().into_iter().collect();
        }
        let replicas = replicas::of(&self.info);
        // Where the mode waits for them, those that lag are told as too few.
        let is_told = matches!(self.mode, Mode::Strict { .. });
        let lagging = replicas.iter().filter(|replica| !is_told && !replica.is_in_step());
        let mut found: Vec<_> = lagging.map(|replica| {
            let what = format!("the replica at {}", replica.lag());
            let next = "see its log and INFO replication there: until it is in step, a failover to \
                        it loses what it has not got";
            Finding::new(Code::ReplicaLagging, what, next)
        }).collect();
        found.extend(replicas::on_one_host(&replicas, &self.host).map(|what| {
            let next = "put each on a machine of its own: the loss of that one takes all copies";
            Finding::new(Code::OneHost, what, next)
        }));
        found
    }

    fn link(&self) -> Option<Finding> {
        if self.info("master_link_status") != "down" {
            return None;
        }
        let primary = format!("{}:{}", self.info("master_host"), self.info("master_port"));
        let since = match self.info("master_link_down_since_seconds") {
            "" | "-1" => "has never followed it".to_owned(),
            seconds => format!("has not followed it for {seconds} s"),
        };
        let what = format!("its link to the primary at {} is down: it {since}", plain(&primary));
        if self.info("tenure_master_link_stopped") == "1" {
            let next = "see its log: it has refused data of the primary several times and asks for \
                        no more. Do there what the log says, then run REPLICAOF with the same \
                        address here";
            return Some(Finding::new(Code::LinkDown, what, next));
        }
        let next = "start the primary, check masterauth and the network between them, or promote \
                    this one with REPLICAOF NO ONE if the primary is gone for good";
        Some(Finding::new(Code::LinkDown, what, next))
    }

    /// Whether WAIT can get what the mode asks for.
    fn too_few(&self, wanted: u32) -> Option<Finding> {
        let replicas = replicas::of(&self.info);
        let in_step = replicas.iter().filter(|replica| replica.is_in_step()).count();
        if in_step as u64 >= u64::from(wanted) {
            return None;
        }
        let what = format!(
            "{in_step} of {wanted} replicas that mode=strict waits for are attached and in step: \
             nobody can lead"
        );
        let next = "look at INFO replication there and attach replicas, or lower replicas= in the \
                    address";
        Some(Finding::new(Code::FewReplicas, what, next))
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
        if self.rights.denied.is_empty() {
            return None;
        }
        let (user, denied) = (&self.user, self.rights.denied.join(", "));
        let what = format!("the login ({user}) may not use {denied}");
        Some(Finding::new(Code::Acl, what, &self.rights.remedy(user)))
    }

    fn writes(&self) -> Option<Finding> {
        let said = self.write_refusal.as_ref()?;
        let next = refusal_step(said).unwrap_or("look at the server's log");
        let what =
            format!("the store refuses writes, so nobody can begin to lead: {}", plain(said));
        Some(Finding::new(Code::WritesRefused, what, next))
    }

    fn shards(&self) -> Option<Finding> {
        if !self.rights.unknown.iter().any(|word| word == "spublish") {
            return None;
        }
        let what = format!(
            "{} has no sharded channels, so every message goes to every node",
            self.version()
        );
        Some(Finding::new(Code::NoShards, what, "upgrade the cluster to Redis 7.0 or newer"))
    }

    fn clocks(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        if self.pace_error > PACE_ERROR_MAX {
            let percent = self.pace_error * 100.0;
            let what = format!(
                "its clock runs {percent:.1} % faster or slower than ours; leases allow for 1 %"
            );
            let next = "check the time service of both hosts; mutual exclusion is not guaranteed";
            found.push(Finding::new(Code::ClockDrift, what, next));
        }
        if self.clock_offset > CLOCK_OFFSET_MAX {
            let what = format!(
                "its wall clock differs from ours by {:.1?}: elections are not affected, but the \
                 history is hard to read",
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
    fn take(store: &mut LoggedInConnection) -> Option<Self> {
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
fn is_loopback(place: &Endpoint) -> bool {
    matches!(place, Endpoint::Unix { .. }) || is_this_host(host(place))
}

/// Whether a name or address is one that only this host has.
pub(super) fn is_this_host(host: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn host(place: &Endpoint) -> &str {
    match place {
        Endpoint::Unix { .. } => "",
        Endpoint::Tcp { host, .. } => host,
    }
}

/// What it tells about itself; nothing where the login may not ask.
fn info(store: &mut LoggedInConnection) -> Result<BTreeMap<String, String>, String> {
    let Reply::Bulk(text) = store.ask(&["INFO"])? else { return Ok(BTreeMap::new()) };
    let text = String::from_utf8_lossy(&text);
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

fn setting(store: &mut LoggedInConnection, name: &str) -> Option<String> {
    match store.ask(&["CONFIG", "GET", name]).ok()? {
        Reply::Array(pair) => match pair.as_slice() {
            [_, Reply::Bulk(value)] => Some(String::from_utf8_lossy(value).into_owned()),
            _ => None,
        },
        _ => None,
    }
}

/// The middle one of several: one slow answer is no slow store.
fn round_trip(store: &mut LoggedInConnection) -> Result<Duration, String> {
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
fn time(store: &mut LoggedInConnection) -> Option<u64> {
    let Ok(Reply::Array(parts)) = store.ask(&["TIME"]) else { return None };
    let number = |part: &Reply| match part {
        Reply::Bulk(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    Some(number(parts.first()?)? * 1_000_000 + number(parts.get(1)?)?)
}

/// Refusals that other findings tell, or that are about the question and not about writing.
const TOLD_ELSEWHERE: [&str; 8] =
    ["NOPERM", "NOAUTH", "READONLY", "MOVED", "ASK", "CLUSTERDOWN", "LOADING", "WRONGTYPE"];

/// What the server says to a write that changes nothing: an update of a member that is not there.
fn write_refusal(store: &mut LoggedInConnection, election: &Resource) -> Option<String> {
    let key = election.side_key("doctor");
    match store.ask(&["ZADD", &key, "XX", "1", "doctor"]) {
        Ok(Reply::Error(text)) => {
            let kind = text.split_whitespace().next().unwrap_or_default();
            (!TOLD_ELSEWHERE.contains(&kind)).then(|| text.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> StoreFacts {
        let info = [
            ("role", "master"),
            ("connected_slaves", "1"),
            ("slave0", "ip=10.0.0.2,port=6379,state=online,offset=1,lag=1"),
            ("aof_enabled", "1"),
        ];
        StoreFacts {
            info: info.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            is_loopback: true,
            mode: Mode::Strict { replicas: 1 },
            ..StoreFacts::default()
        }
    }

    fn set(facts: &mut StoreFacts, name: &str, value: &str) {
        facts.info.insert(name.to_owned(), value.to_owned());
    }

    #[test]
    fn a_log_that_cannot_be_written_needs_no_snapshot() {
        let next = |said: &str| {
            let facts = StoreFacts { write_refusal: Some(said.to_owned()), ..healthy() };
            facts.writes().unwrap().next.clone()
        };
        assert!(!next("MISCONF Errors writing to the AOF file: No space left").contains("BGSAVE"));
        assert!(next("MISCONF Redis is configured to save RDB snapshots").contains("BGSAVE"));
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
        assert_eq!(codes(|facts| facts.mode = Mode::Available), ["split-brain-risk"]);
        assert_eq!(codes(|facts| facts.rights.denied = vec!["set".into()]), ["acl"]);
        assert_eq!(codes(|facts| facts.rights.unknown = vec!["spublish".into()]), ["no-shards"]);
        assert_eq!(codes(|facts| set(facts, "cluster_enabled", "1")), ["cluster-node"]);
        let late = "ip=10.0.0.2,port=6379,state=online,offset=1,lag=60";
        assert_eq!(codes(|facts| set(facts, "slave0", late)), ["few-replicas"]);
        let lagging = codes(|facts| {
            set(facts, "slave0", late);
            facts.mode = Mode::Available;
        });
        assert_eq!(lagging, ["split-brain-risk", "replica-lagging"]);
        let beside = codes(|facts| {
            facts.host = "10.0.0.2".to_owned();
        });
        assert_eq!(beside, ["one-host"]);
    }
}
