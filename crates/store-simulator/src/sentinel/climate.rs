//! What kind of world a seed gives.

use std::fmt::Write;

use store_replica::Address;

use super::flaw::Flaw;
use crate::network::Weather;
use crate::queue::Real;
use crate::random::Random;

/// When faults begin: by then all have found each other.
pub(crate) const FAULTS_FROM: Real = 9_000;
/// When faults end.
pub(crate) const HEALS_AT: Real = 70_000;
/// How long it may take until all agree then: a tilt of 30 s, a role that is wrong for 20 s and
/// more, several elections that end in nothing and the rests between them.
pub(crate) const AGREES_WITHIN: Real = 300_000;
/// For how long they must agree.
pub(crate) const AGREES_FOR: Real = 6_000;

/// The group's name.
pub(crate) const GROUP: &str = "mymaster";

#[derive(Clone, Debug)]
pub(crate) struct Climate {
    pub(crate) servers: usize,
    pub(crate) sentinels: usize,
    pub(crate) quorum: usize,
    pub(crate) parallel_syncs: usize,
    pub(crate) down_after: u64,
    pub(crate) failover_timeout: u64,
    pub(crate) weather: Weather,
    /// Between two faults, on the average.
    pub(crate) fault_every: Real,
    /// The longest usual write of a file.
    pub(crate) disk_max: Real,
    /// Of each server.
    pub(crate) priorities: Vec<u32>,
}

impl Climate {
    pub(crate) fn draw(random: &mut Random, flaw: Option<Flaw>) -> Self {
        let servers = random.between(3, 5) as usize;
        let mut sentinels = *random.pick(&[3, 3, 3, 5]);
        let mut delay_max = match random.percent(80) {
            true => random.between(5, 300),
            false => random.between(300, 1_500),
        };
        if flaw == Some(Flaw::CountCurrentEpoch) {
            // It takes several who want to lead, which is rare where answers are quick.
            (sentinels, delay_max) = (5, delay_max + 1_500);
        }
        let majority = sentinels / 2 + 1;
        let mut priorities = vec![100; servers];
        if random.percent(60) {
            for priority in &mut priorities {
                *priority = *random.pick(&[10, 50, 100]);
            }
        }
        Self {
            quorum: random.between(2, majority as u64) as usize,
            parallel_syncs: random.between(1, 2) as usize,
            down_after: random.between(1_000, 3_000),
            failover_timeout: random.between(5_000, 15_000),
            weather: Weather { delay_max, pieces_percent: random.below(4), window: usize::MAX },
            fault_every: random.between(1_500, 8_000),
            disk_max: random.between(1, 300),
            servers,
            sentinels,
            priorities,
        }
    }

    /// Without faults, and quick.
    pub(crate) fn fair_weather(&self) -> Weather {
        Weather { delay_max: 10, ..self.weather }
    }

    /// The file that a sentinel begins with; a flawed one is told something else.
    pub(crate) fn file(&self, sentinel: usize, flaw: Option<Flaw>) -> String {
        let quorum = match flaw {
            Some(Flaw::DownBelowQuorum) => 1,
            Some(Flaw::ElectedWithoutMajority) => self.quorum.min(2),
            _ => self.quorum,
        };
        let parallel_syncs = match flaw {
            Some(Flaw::AllReplicasAtOnce) => 100,
            _ => self.parallel_syncs,
        };
        let Address { host, port } = server_address(0);
        let own = sentinel_address(sentinel);
        let (down_after, failover_timeout) = (self.down_after, self.failover_timeout);
        let mut text = format!("port {}\nsentinel myid {}\n", own.port, name_of(sentinel));
        let lines = [
            format!("announce-ip {}", own.host),
            format!("monitor {GROUP} {host} {port} {quorum}"),
            format!("down-after-milliseconds {GROUP} {down_after}"),
            format!("failover-timeout {GROUP} {failover_timeout}"),
            format!("parallel-syncs {GROUP} {parallel_syncs}"),
        ];
        for line in lines {
            writeln!(text, "sentinel {line}").expect("a string takes everything");
        }
        text
    }
}

/// Where a server is, as sentinels know it.
pub(crate) fn server_address(server: usize) -> Address {
    Address { host: "10.0.0.1".to_owned(), port: 7_000 + server as u16 }
}

pub(crate) fn sentinel_address(sentinel: usize) -> Address {
    Address { host: "10.0.0.2".to_owned(), port: 8_000 + sentinel as u16 }
}

/// Which server is there, if one is.
pub(crate) fn server_at(address: &Address) -> Option<usize> {
    address.port.checked_sub(7_000).map(usize::from).filter(|server| *server < 1_000)
}

pub(crate) fn name_of(sentinel: usize) -> String {
    format!("sentinel{sentinel:032}")
}

/// Which sentinel has this name.
pub(crate) fn sentinel_named(name: &str) -> Option<usize> {
    name.strip_prefix("sentinel")?.parse().ok()
}
