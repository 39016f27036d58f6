//! Cluster slots: CRC-16 of a key, or of its hash tag.

/// How many slots a cluster has.
pub const SLOT_COUNT: u16 = 16_384;

/// The cluster slot of `key`. Only text inside the first `{…}` counts, unless it is empty: related
/// keys stay together.
///
/// ```
/// # use store_resp::slot::slot_of;
/// assert_eq!(slot_of(b"{user:7}:name"), slot_of(b"{user:7}:age"));
/// assert_eq!(slot_of(b"foo"), 12_182);
/// ```
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOT_COUNT
}

/// The part of `key` that decides on its slot.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let inner = &key[open + 1..];
    match inner.iter().position(|&byte| byte == b'}') {
        Some(length @ 1..) => &inner[..length],
        _ => key,
    }
}

/// CRC-16/XMODEM: polynomial 0x1021, nothing inverted.
///
/// Eight bytes at a time: in cluster mode each lookup of a key needs it, and one byte after the
/// other would wait for a load each.
pub fn crc16(bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<8>();
    let crc = blocks.iter().fold(0, |crc: u16, block| {
        let [first, second] = crc.to_be_bytes();
        let front = behind(7, block[0] ^ first) ^ behind(6, block[1] ^ second);
        let middle = behind(5, block[2]) ^ behind(4, block[3]) ^ behind(3, block[4]);
        front ^ middle ^ behind(2, block[5]) ^ behind(1, block[6]) ^ behind(0, block[7])
    });
    rest.iter().fold(crc, |crc, &byte| crc << 8 ^ behind(0, (crc >> 8) as u8 ^ byte))
}

/// The sum of a byte with so many zeros behind it.
#[inline]
fn behind(zeros: usize, byte: u8) -> u16 {
    TABLES[zeros][usize::from(byte)]
}

static TABLES: [[u16; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut zeros = 0;
        while zeros < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
                bit += 1;
            }
            tables[zeros][index] = crc;
            zeros += 1;
        }
        index += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar"), b"foo{bar");
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn eight_bytes_at_once_sum_up_like_one_by_one() {
        let bytes: Vec<u8> = (0..100u32).map(|at| (at * 167 + 13) as u8).collect();
        for end in 0..bytes.len() {
            let mut crc: u16 = 0;
            for byte in &bytes[..end] {
                crc ^= u16::from(*byte) << 8;
                for _ in 0..8 {
                    crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
                }
            }
            assert_eq!(crc16(&bytes[..end]), crc, "{end} bytes");
        }
    }
}
