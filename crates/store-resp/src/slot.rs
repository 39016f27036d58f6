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
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
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
}
