//! What kind of world a seed gives.

use std::fmt::Write as _;

use store_cluster::{Address, NodeId, Settings};

use super::links::Weather;
use crate::queue::Real;
use crate::random::Random;

/// When faults end.
pub(crate) const HEALS_AT: Real = 25_000;

/// Slots of a master that can be emptied by a move.
pub(crate) const SLOTS_OF_SMALL: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct Climate {
    pub(crate) masters: usize,
    pub(crate) replicas: usize,
    /// Nodes of another cluster.
    pub(crate) strangers: usize,
    pub(crate) node_timeout: u64,
    pub(crate) weather: Weather,
    /// Between two faults, on the average.
    pub(crate) fault_every: Real,
    pub(crate) skew_max: i64,
    /// The slowest write to a disk.
    pub(crate) disk_max: Real,
    /// Whether messages go through the codec.
    pub(crate) through_bytes: bool,
    /// Whether a master dies for good in the end.
    pub(crate) has_last_death: bool,
    /// Whether rules are watched; a large world is only measured.
    pub(crate) is_judged: bool,
    validity_factor: u64,
    requires_full_coverage: bool,
}

impl Climate {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let masters = random.between(3, 5) as usize;
        let has_last_death = random.percent(40);
        Self {
            masters,
            replicas: masters + random.below(4) as usize,
            strangers: if random.percent(30) { 1 } else { 0 },
            node_timeout: random.between(500, 1_500),
            weather: Weather {
                delay_max: random.between(5, 200),
                loss_percent: if random.percent(50) { 0 } else { random.between(1, 3) },
                repeat_percent: if random.percent(50) { 0 } else { 10 },
            },
            fault_every: random.between(400, 2_500),
            skew_max: random.between(0, 900) as i64,
            disk_max: if random.percent(70) { 20 } else { random.between(20, 600) },
            through_bytes: random.percent(6),
            has_last_death,
            is_judged: true,
            // Who must win in the end may need a second election.
            validity_factor: match has_last_death {
                true => *random.pick(&[0, 20]),
                false => random.between(2, 5),
            },
            requires_full_coverage: random.percent(70),
        }
    }

    /// A large cluster in which nothing happens by itself.
    pub(crate) fn large(nodes: usize) -> Self {
        let masters = nodes / 2;
        Self {
            masters,
            replicas: nodes - masters,
            strangers: 0,
            node_timeout: 15_000,
            weather: Weather { delay_max: 50, loss_percent: 1, repeat_percent: 0 },
            fault_every: 0,
            skew_max: 50,
            disk_max: 5,
            through_bytes: false,
            has_last_death: false,
            validity_factor: 10,
            requires_full_coverage: true,
            is_judged: false,
        }
    }

    pub(crate) fn hosts(&self) -> usize {
        self.masters + self.replicas + self.strangers
    }

    /// Nodes of this cluster come first.
    pub(crate) fn is_stranger(&self, host: usize) -> bool {
        host >= self.masters + self.replicas
    }

    pub(crate) fn settings(&self, ip: u32) -> Settings {
        Settings {
            node_timeout: self.node_timeout,
            validity_factor: self.validity_factor,
            ping_period: 1_000,
            requires_full_coverage: self.requires_full_coverage,
            address: address_of(ip),
            ..Settings::default()
        }
    }

    /// Once healed, everybody agrees after this time: four time-outs, what an election and its
    /// repetition may take besides, and a move of a replica.
    pub(crate) fn settle_ms(&self) -> Real {
        4 * self.node_timeout + 20_000
    }

    /// How long a failover may take, with one election that is lost.
    pub(crate) fn failover_ms(&self) -> Real {
        let votes = (2 * self.node_timeout).max(2_000);
        3 * self.node_timeout + 4_500 + 2 * (2 * votes + 4_500)
    }

    /// nodes.conf of a cluster that was made some time ago.
    pub(crate) fn first_config(&self, host: usize, ids: &[NodeId]) -> String {
        let members: Vec<usize> = (0..ids.len())
            .filter(|other| self.is_stranger(*other) == self.is_stranger(host))
            .collect();
        let mut text = String::new();
        for other in &members {
            let address = address_of(*other as u32);
            _ = write!(
                text,
                "{} {}:{}@{} ",
                ids[*other], address.ip, address.port, address.bus_port
            );
            text.push_str(if *other == host { "myself," } else { "" });
            self.write_role(&mut text, *other, ids);
        }
        _ = writeln!(text, "vars currentEpoch {} lastVoteEpoch 0", self.masters);
        text
    }

    fn write_role(&self, text: &mut String, host: usize, ids: &[NodeId]) {
        if self.is_stranger(host) {
            _ = writeln!(text, "master - 0 0 {} connected 0-16383", self.masters);
        } else if host < self.masters {
            let (first, last) = (self.first_slot(host), self.first_slot(host + 1) - 1);
            _ = writeln!(text, "master - 0 0 {} connected {first}-{last}", host + 1);
        } else {
            let master = (host - self.masters) % self.masters;
            _ = writeln!(text, "slave {} 0 0 {} connected", ids[master], master + 1);
        }
    }

    /// All but the last have few slots: a move is a request per slot.
    fn first_slot(&self, master: usize) -> usize {
        if master == self.masters { 16_384 } else { SLOTS_OF_SMALL * master }
    }
}

/// Where the machine with this number is reached.
pub(crate) fn address_of(ip: u32) -> Address {
    let text = format!("10.0.{}.{}", ip / 250, ip % 250 + 1);
    Address { ip: text.into(), port: 7000, plain_port: 0, bus_port: 17_000 }
}

/// The number of the machine at an address.
pub(crate) fn ip_of(address: &Address) -> Option<u32> {
    let mut parts = address.ip.split('.').skip(2);
    let (high, low) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?);
    Some(high * 250 + low - 1)
}
