//! Seeded randomness: the same seed and requests give the same choices.

/// SplitMix64: small, fast and good enough to pick keys and members.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that will always give the same numbers for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (u128::from(self.next_u64()) * bound as u128 >> 64) as usize
    }

    /// Forty hexadecimal digits, the form of run ids.
    pub fn hex_id(&mut self) -> String {
        let wide = |random: &mut Self| format!("{:016x}", random.next_u64());
        let mut id = wide(self) + &wide(self) + &wide(self);
        id.truncate(40);
        id
    }
}
