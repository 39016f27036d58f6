//! What a server says about itself in INFO, as far as a sentinel needs it.

use std::time::Duration;

use store_replica::Address;

use crate::hello::address;

/// Replicas that are read out of one INFO, at most.
const REPLICAS_MAX: usize = 1_000;

/// The role that a server says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedRole {
    /// `role:master`
    Primary,
    /// `role:slave`
    Replica,
}

/// One INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `run_id`: another one than before is another process.
    pub run_id: Option<String>,
    /// `role`
    pub role: Option<ReportedRole>,
    /// Who follows it.
    pub replicas: Vec<Address>,
    /// Whom it follows.
    pub primary: Option<Address>,
    /// `master_link_status:up`
    pub is_link_up: bool,
    /// `master_link_down_since_seconds`; zero when it does not say, or says that it never had one.
    pub link_down_for: Duration,
    /// `slave_priority`. Zero is never to be promoted.
    pub priority: u32,
    /// `slave_repl_offset`
    pub offset: u64,
    /// `replica_announced:0` hides a replica from clients.
    pub is_announced: bool,
    /// `master_replid`: the history that its data is a moment of.
    pub history: Option<String>,
    /// `master_replid2`: the one that this history goes on from.
    pub second_history: Option<String>,
    /// `second_repl_offset`: the first byte that the two do not have in common.
    pub second_offset: u64,
}

impl Report {
    /// The priority of a server that says nothing about it.
    const PRIORITY: u32 = 100;

    /// Reads INFO. Lines that it does not know, or that are malformed, are passed over.
    pub fn parse(text: &str) -> Self {
        let mut report = Self {
            run_id: None,
            role: None,
            replicas: Vec::new(),
            primary: None,
            is_link_up: false,
            link_down_for: Duration::ZERO,
            priority: Self::PRIORITY,
            offset: 0,
            is_announced: true,
            history: None,
            second_history: None,
            second_offset: 0,
        };
        let mut primary_host = "";
        let (mut taken, mut has_replicas) = (Vec::new(), false);
        for line in text.lines() {
            let Some((name, value)) = line.trim_end().split_once(':') else { continue };
            if is_replica_line(name) {
                has_replicas = true;
                if report.replicas.len() < REPLICAS_MAX {
                    report.replicas.extend(replica_address(value));
                }
                continue;
            }
            // Lines of replicas hold what replicas said, and a server may let line ends through.
            // What it says of itself comes before them, once; but its history behind them.
            let is_own = !has_replicas && !taken.contains(&name);
            if !report.take_history(name, value)
                && is_own
                && report.take(name, value, &mut primary_host)
            {
                taken.push(name);
            }
        }
        report
    }

    /// Takes a field. Whether it is one.
    fn take<'a>(&mut self, name: &str, value: &'a str, primary_host: &mut &'a str) -> bool {
        match name {
            "run_id" => self.run_id = Some(value.chars().take(64).collect()),
            "role" if value == "master" => self.role = Some(ReportedRole::Primary),
            "role" if value == "slave" => self.role = Some(ReportedRole::Replica),
            "master_host" => *primary_host = value,
            "master_port" => self.primary = address(primary_host, value),
            "master_link_status" => self.is_link_up = value == "up",
            "master_link_down_since_seconds" => {
                self.link_down_for = Duration::from_secs(value.parse().unwrap_or(0));
            }
            "slave_priority" => self.priority = value.parse().unwrap_or(Self::PRIORITY),
            "slave_repl_offset" => self.offset = value.parse().unwrap_or(0),
            "replica_announced" => self.is_announced = value != "0",
            _ => return false,
        }
        true
    }

    /// Takes a field of those behind the replicas, of which the last counts. Whether it is one.
    fn take_history(&mut self, name: &str, value: &str) -> bool {
        match name {
            "master_replid" => self.history = history_id(value),
            "master_replid2" => self.second_history = history_id(value),
            "second_repl_offset" => self.second_offset = value.parse().unwrap_or(0),
            _ => return false,
        }
        true
    }
}

/// The name of a history; `None` for zeros, which stand for none.
fn history_id(value: &str) -> Option<String> {
    const LEN_MAX: usize = 64;
    let is_some = value.len() <= LEN_MAX && value.bytes().any(|c| c != b'0');
    is_some.then(|| value.to_owned())
}

/// `slave0`, `slave1`, …
fn is_replica_line(name: &str) -> bool {
    let number = name.strip_prefix("slave").unwrap_or("");
    !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())
}

/// `ip=10.0.0.2,port=6379,state=online,…`
fn replica_address(value: &str) -> Option<Address> {
    let field =
        |name: &str| value.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    address(field("ip")?, field("port")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_names_its_replicas() {
        let text = "# Server\r\nrun_id:abc\r\n# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
            slave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=0\r\n\
            slave1:ip=10.0.0.3,port=0,state=online,offset=14,lag=0\r\n";
        let report = Report::parse(text);
        assert_eq!(report.role, Some(ReportedRole::Primary));
        assert_eq!(report.run_id.as_deref(), Some("abc"));
        assert_eq!(report.replicas, [Address { host: "10.0.0.2".to_owned(), port: 6379 }]);
    }

    #[test]
    fn a_replica_tells_how_it_stands_with_its_primary() {
        let text = "role:slave\nmaster_host:10.0.0.1\nmaster_port:6379\nmaster_link_status:down\n\
            slave_repl_offset:77\nmaster_link_down_since_seconds:12\nslave_priority:7\n\
            replica_announced:0\n";
        let report = Report::parse(text);
        assert_eq!(report.role, Some(ReportedRole::Replica));
        assert_eq!(report.primary.unwrap().port, 6379);
        assert!(!report.is_link_up && !report.is_announced);
        assert_eq!((report.priority, report.offset), (7, 77));
        assert_eq!(report.link_down_for, Duration::from_secs(12));
    }

    #[test]
    fn what_a_replica_says_does_not_speak_for_its_primary() {
        let text = "run_id:abc\r\nrole:master\r\nconnected_slaves:1\r\n\
            slave0:ip=9.9.9.9\r\nrole:slave\r\nrun_id:x\r\nmaster_host:10.0.0.6\r\n\
            master_port:6379\r\nslave_priority:0\r\nmaster_replid:lie\r\nx:,port=1,state=online\r\n\
            master_replid:truth\r\nmaster_replid2:0000\r\nsecond_repl_offset:-1\r\n";
        let report = Report::parse(text);
        assert_eq!(report.role, Some(ReportedRole::Primary));
        assert_eq!(report.run_id.as_deref(), Some("abc"));
        assert_eq!((report.primary, report.priority), (None, Report::PRIORITY));
        assert_eq!(report.history.as_deref(), Some("truth"));
        assert_eq!((report.second_history, report.second_offset), (None, 0));
    }

    #[test]
    fn a_field_that_comes_twice_counts_once() {
        let report = Report::parse("role:master\nrole:slave\nrun_id:a\nrun_id:b\n");
        assert_eq!(report.role, Some(ReportedRole::Primary));
        assert_eq!(report.run_id.as_deref(), Some("a"));
    }

    #[test]
    fn nonsense_is_passed_over() {
        let report = Report::parse("slave_priority:x\nslave:ip=1\nslavex:1\nrole:\n::\n\u{0}");
        assert_eq!((report.role, report.priority), (None, Report::PRIORITY));
        assert!(report.replicas.is_empty());
    }
}
