//! MurmurHash64A with the seed that Redis uses: registers of both must agree.

const SEED: u64 = 0xadc8_3b19;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

pub(super) fn murmur64(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (blocks, rest) = bytes.as_chunks::<8>();
    for block in blocks {
        let mut word = u64::from_le_bytes(*block).wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
