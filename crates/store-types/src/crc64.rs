//! The checksum of RDB files and DUMP payloads: CRC-64 with the polynomial of Jones.
//!
//! Own code, since the common crates carry other variants by default and this is thirty lines:
//! eight tables take eight bytes per step, about 2 GB/s, so that saving is not bound by it.

/// Continues a checksum over `bytes`; the first call starts from zero.
///
/// ```
/// assert_eq!(store_types::crc64::crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
/// ```
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    let mut crc = crc;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        crc ^= u64::from_le_bytes(*chunk);
        let mut next = 0;
        for (place, byte) in crc.to_le_bytes().into_iter().enumerate() {
            next ^= TABLES[7 - place][usize::from(byte)];
        }
        crc = next;
    }
    rest.iter().fold(crc, |crc, &byte| crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)])
}

/// 0xad93d23594c935a9 with its bits in reverse.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// `TABLES[k][b]` is the checksum of byte `b` followed by `k` zero bytes.
static TABLES: [[u64; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][index] = crc;
        index += 1;
    }
    let mut place = 1;
    while place < 8 {
        let mut index = 0;
        while index < 256 {
            let shorter: u64 = tables[place - 1][index];
            tables[place][index] = shorter >> 8 ^ tables[0][(shorter & 0xff) as usize];
            index += 1;
        }
        place += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_checksum_can_be_taken_in_pieces(bytes: Vec<u8>, cut: prop::sample::Index) {
            let cut = cut.index(bytes.len() + 1);
            let pieces = crc64(crc64(0, &bytes[..cut]), &bytes[cut..]);
            prop_assert_eq!(pieces, crc64(0, &bytes));
            let single = bytes.iter().fold(0, |crc, byte| crc64(crc, &[*byte]));
            prop_assert_eq!(single, pieces);
        }
    }
}
