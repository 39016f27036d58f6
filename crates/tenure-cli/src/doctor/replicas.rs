//! Replicas as their primary tells of them.

use std::collections::{BTreeMap, BTreeSet};

use super::store::is_this_host;
use crate::output::plain;

/// A replica reports every second; one that has not for longer is not in step.
const SILENT_SECONDS_MAX: u64 = 5;

/// One line of INFO: `slave0:ip=…,port=…,state=online,offset=…,lag=0`.
#[derive(Debug)]
pub(super) struct Replica {
    host: String,
    port: String,
    state: String,
    /// Seconds since it last confirmed anything, if that is told.
    silent_seconds: Option<u64>,
}

/// Those of a primary.
pub(super) fn of(info: &BTreeMap<String, String>) -> Vec<Replica> {
    let is_replica =
        |name: &str| name.strip_prefix("slave").is_some_and(|number| number.parse::<u32>().is_ok());
    let lines = info.iter().filter(|(name, _)| is_replica(name));
    lines.map(|(_, line)| Replica::parse(line)).collect()
}

impl Replica {
    fn parse(line: &str) -> Self {
        let field = |name: &str| {
            let mut parts = line.split(',');
            parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
        };
        Replica {
            host: plain(field("ip")),
            port: plain(field("port")),
            state: plain(field("state")),
            silent_seconds: field("lag").parse().ok(),
        }
    }

    pub(super) fn is_in_step(&self) -> bool {
        self.state == "online" && self.silent_seconds.is_none_or(|lag| lag <= SILENT_SECONDS_MAX)
    }

    /// Who it is and what keeps it from being in step.
    pub(super) fn lag(&self) -> String {
        let Replica { host, port, state, .. } = self;
        match (state.as_str(), self.silent_seconds) {
            ("online", Some(seconds)) => {
                format!("{host}:{port} has confirmed nothing for {seconds} s")
            }
            ("online", None) => format!("{host}:{port} does not say how far it is"),
            _ => format!("{host}:{port} has not got its data yet (state {state})"),
        }
    }
}

/// Whether the loss of one machine takes the primary at `primary` and all replicas, or all
/// replicas, as far as addresses tell.
pub(super) fn on_one_host(replicas: &[Replica], primary: &str) -> Option<String> {
    let hosts: BTreeSet<&str> = replicas.iter().map(|replica| replica.host.as_str()).collect();
    let mut hosts = hosts.into_iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return None };
    if host == primary || is_this_host(host) {
        return Some(format!("the primary and all its replicas are on one host ({host})"));
    }
    // A single replica is somewhere else than its primary, and that is all that one can ask for.
    (replicas.len() > 1)
        .then(|| format!("all {} replicas are on one host ({host})", replicas.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Vec<Replica> {
        let line = |(number, line): (usize, &&str)| (format!("slave{number}"), (*line).to_owned());
        of(&lines.iter().enumerate().map(line).collect())
    }

    #[test]
    fn hosts_are_told_apart_by_their_addresses() {
        let first = "ip=10.0.0.2,port=6379,state=online,offset=1,lag=0";
        let beside = "ip=10.0.0.2,port=6380,state=online,offset=1,lag=0";
        let elsewhere = "ip=10.0.0.3,port=6379,state=online,offset=1,lag=0";
        assert_eq!(on_one_host(&[], "10.0.0.1"), None);
        assert_eq!(on_one_host(&told(&[first]), "10.0.0.1"), None);
        assert_eq!(on_one_host(&told(&[first, elsewhere]), "10.0.0.2"), None);
        assert!(on_one_host(&told(&[first, beside]), "10.0.0.1").is_some());
        assert!(on_one_host(&told(&[first]), "10.0.0.2").is_some());
        let here = "ip=127.0.0.1,port=6380,state=online,offset=1,lag=0";
        assert!(on_one_host(&told(&[here]), "store.internal").is_some());
    }

    #[test]
    fn a_replica_without_data_or_without_a_word_is_not_in_step() {
        let replicas = told(&[
            "ip=10.0.0.2,port=6379,state=online,offset=1,lag=1",
            "ip=10.0.0.3,port=6379,state=online,offset=1,lag=60",
            "ip=10.0.0.4,port=6379,state=wait_bgsave,offset=0,lag=0",
        ]);
        let in_step: Vec<_> = replicas.iter().map(Replica::is_in_step).collect();
        assert_eq!(in_step, [true, false, false]);
        assert!(replicas[1].lag().contains("nothing for 60 s"), "{}", replicas[1].lag());
        assert!(replicas[2].lag().contains("wait_bgsave"), "{}", replicas[2].lag());
    }
}
