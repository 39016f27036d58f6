//! The 24 access bits of an entry: seconds of last access, or under an LFU policy minutes of
//! the last decay (16 bits) and a logarithmic counter (8 bits).

/// Counter of a key that is new under LFU: high enough to survive its first minutes.
const LFU_INITIAL: u32 = 5;
const CLOCK_MASK: u64 = 0x00ff_ffff;

/// How accesses are remembered.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessPolicy {
    /// Whether `maxmemory-policy` is one of the LFU policies.
    pub is_lfu: bool,
    /// `lfu-log-factor`: how hard the counter is to raise.
    pub log_factor: u32,
    /// `lfu-decay-time`: minutes after which the counter falls by one.
    pub decay_minutes: u32,
}

impl AccessPolicy {
    /// The bits of a new key.
    #[inline]
    pub fn initial(&self, now_ms: u64) -> u32 {
        if self.is_lfu { minutes(now_ms) << 8 | LFU_INITIAL } else { clock(now_ms) }
    }

    /// The bits after an access; `random` decides whether the counter rises.
    #[inline]
    pub fn accessed(&self, bits: u32, now_ms: u64, random: impl FnOnce() -> u64) -> u32 {
        if !self.is_lfu {
            return clock(now_ms);
        }
        let counter = self.counter(bits, now_ms);
        minutes(now_ms) << 8 | self.raised(counter, random())
    }

    /// The bits of a key that was last accessed so many seconds ago, or that has this counter;
    /// `None` when the policy keeps account of the other.
    pub fn given(&self, idle: Option<u64>, frequency: Option<u8>, now_ms: u64) -> Option<u32> {
        match (self.is_lfu, idle, frequency) {
            (true, _, Some(counter)) => Some(minutes(now_ms) << 8 | u32::from(counter)),
            (false, Some(seconds), _) => {
                Some(clock(now_ms.saturating_sub(seconds.saturating_mul(1000))))
            }
            _ => None,
        }
    }

    /// Seconds since the last access, as OBJECT IDLETIME tells.
    pub fn idle_seconds(&self, bits: u32, now_ms: u64) -> u64 {
        u64::from(clock(now_ms).wrapping_sub(bits)) & CLOCK_MASK
    }

    /// The counter after decay, as OBJECT FREQ tells.
    pub fn counter(&self, bits: u32, now_ms: u64) -> u32 {
        let passed = minutes(now_ms).wrapping_sub(bits >> 8) & 0xffff;
        let periods = passed.checked_div(self.decay_minutes).unwrap_or(0);
        (bits & 0xff).saturating_sub(periods)
    }

    fn raised(&self, counter: u32, random: u64) -> u32 {
        if counter == 255 {
            return 255;
        }
        let above = f64::from(counter.saturating_sub(LFU_INITIAL));
        let chance = 1.0 / (above * f64::from(self.log_factor) + 1.0);
        // 53 random bits make a fraction without bias.
        let fraction = (random >> 11) as f64 / (1u64 << 53) as f64;
        counter + u32::from(fraction < chance)
    }
}

#[inline]
fn clock(now_ms: u64) -> u32 {
    ((now_ms / 1000) & CLOCK_MASK) as u32
}

#[inline]
fn minutes(now_ms: u64) -> u32 {
    ((now_ms / 60_000) & 0xffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    #[test]
    fn idle_time_counts_from_the_last_access() {
        let policy = AccessPolicy::default();
        let bits = policy.accessed(policy.initial(0), 50_000, || 0);
        assert_eq!(policy.idle_seconds(bits, 57_000), 7);
    }

    #[test]
    fn a_frequent_key_rises_and_then_decays() {
        let policy = AccessPolicy { is_lfu: true, log_factor: 10, decay_minutes: 1 };
        let mut bits = policy.initial(MINUTE);
        for _ in 0..10 {
            bits = policy.accessed(bits, MINUTE, || 0);
        }
        assert_eq!(policy.counter(bits, MINUTE), 15);
        assert_eq!(policy.counter(bits, 4 * MINUTE), 12);
        assert_eq!(policy.counter(bits, 400 * MINUTE), 0);
    }
}
