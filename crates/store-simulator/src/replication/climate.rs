//! What kind of world a seed gives.

use std::time::Duration;

use store_replica::{BlockSize, OutputLimit, Settings};

use super::flaw::Flaw;
use crate::network::Weather;
use crate::queue::Real;
use crate::random::Random;

/// When faults end.
pub(crate) const HEALS_AT: Real = 24_000;
/// When the last write is made.
pub(crate) const QUIET_AT: Real = 33_000;
/// When everything must be well.
pub(crate) const ENDS_AT: Real = 48_000;

/// How long the stream may take more than it should: a second trims 64 blocks, and the longest that
/// a slow reader leaves has some 300.
pub(crate) const TRIMS_WITHIN: Real = 8_000;

/// Blocks are as much smaller than Redis's as these worlds' backlogs are.
const BLOCK: BlockSize = BlockSize { min: 32, max: 64 };

#[derive(Clone, Debug)]
pub(crate) struct Climate {
    pub(crate) servers: usize,
    pub(crate) weather: Weather,
    /// Between two faults, on the average.
    pub(crate) fault_every: Real,
    pub(crate) write_every: Real,
    /// Requests of the stream that a server applies at once, and how long it rests then.
    pub(crate) applies_max: usize,
    pub(crate) applies_every: Real,
    pub(crate) load_max: Real,
    /// Whether a snapshot for replicas may have to wait for another one.
    pub(crate) snapshots_wait: bool,
    /// Whether one server takes no payload until everything is healed, as it does not know a value.
    pub(crate) has_refuser: bool,
    /// The largest value, in bytes.
    pub(crate) value_max: u64,
    pub(crate) ttl_max: u64,
    pub(crate) skew_max: i64,
    backlog_size: usize,
    backlog_ttl: u64,
    timeout: u64,
    ping_every: u64,
    hard_max: u64,
    min_replicas: usize,
}

impl Climate {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let backlog_size = match random.percent(50) {
            true => random.between(120, 1_500) as usize,
            false => random.between(1_500, 8_000) as usize,
        };
        let hard_max = if random.percent(30) { 0 } else { random.between(2_500, 6_000) };
        Self {
            servers: random.between(2, 4) as usize,
            weather: Weather {
                delay_max: random.between(5, 400),
                pieces_percent: random.between(0, 60),
                window: random.between(200, 4_000) as usize,
            },
            fault_every: random.between(300, 3_000),
            write_every: random.between(30, 300),
            applies_max: random.between(1, 12) as usize,
            applies_every: random.between(0, 60),
            load_max: random.between(1, 800),
            snapshots_wait: true,
            // Now and then one that is over every limit.
            value_max: match random.percent(50) {
                true => 40,
                false => hard_max.max(backlog_size as u64) * 10 / 9 + 100,
            },
            ttl_max: random.between(200, 4_000),
            skew_max: random.between(0, 500) as i64,
            backlog_size,
            backlog_ttl: if random.percent(20) { 0 } else { random.between(1_000, 6_000) },
            // A stream is as quiet as two ticks and a PING at most.
            timeout: random.between(4_000, 7_000),
            ping_every: random.between(500, 1_500),
            hard_max,
            min_replicas: usize::from(random.percent(15)),
            // Not drawn: worlds that found something before stay what they were.
            has_refuser: backlog_size.is_multiple_of(5),
        }
    }

    /// Without faults, and quick.
    pub(crate) fn fair_weather(&self) -> Weather {
        Weather { delay_max: 10, ..self.weather }
    }

    pub(crate) fn settings(
        &self,
        host: usize,
        flaw: Option<Flaw>,
        random: &mut Random,
    ) -> Settings {
        let mut block_size = BLOCK;
        if flaw == Some(Flaw::BlockAsBigAsValue) {
            block_size.max = usize::MAX;
        }
        Settings {
            backlog_size: self.backlog_size,
            block_size,
            backlog_ttl: Duration::from_millis(self.backlog_ttl),
            timeout: Duration::from_millis(self.timeout),
            ping_every: Duration::from_millis(self.ping_every),
            diskless: random.percent(60),
            diskless_delay: Duration::from_millis(random.between(0, 900)),
            diskless_max_replicas: random.below(3) as usize,
            output_limit: OutputLimit {
                hard_max: self.hard_max,
                soft_max: self.hard_max / 2,
                soft_for: Duration::from_secs(3),
            },
            min_replicas: self.min_replicas,
            min_replicas_lag: Duration::from_secs(4),
            listening_port: host as u16,
            announce_ip: Some("host".to_owned()),
            ..Settings::default()
        }
    }

    /// What the stream may take on one server whose slowest reader lacks `unsent` bytes.
    pub(crate) fn memory_max(&self, unsent: u64) -> usize {
        self.backlog_size.max(unsent as usize) + 4 * BLOCK.max
    }

    /// How many bytes a replica may lack; `None` where nothing limits it.
    pub(crate) fn unsent_max(&self) -> Option<u64> {
        (self.hard_max > 0).then(|| self.hard_max.max(self.backlog_size as u64))
    }
}
