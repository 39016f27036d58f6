//! Registers of six bits each, the lowest bits first.

/// The register with this index.
#[inline]
pub(super) fn dense_get(registers: &[u8], index: usize) -> u8 {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let low = u16::from(registers[byte]);
    let high = u16::from(registers.get(byte + 1).copied().unwrap_or(0));
    ((low | high << 8) >> shift) as u8 & 0x3f
}

/// Raises a register; `false` when it is as high already.
#[inline]
pub(super) fn dense_set(registers: &mut [u8], index: usize, count: u8) -> bool {
    if dense_get(registers, index) >= count {
        return false;
    }
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let mask = 0x3f_u16 << shift;
    let bits = u16::from(count) << shift;
    registers[byte] = registers[byte] & !(mask as u8) | bits as u8;
    if let Some(next) = registers.get_mut(byte + 1) {
        *next = *next & !((mask >> 8) as u8) | (bits >> 8) as u8;
    }
    true
}
