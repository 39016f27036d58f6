//! SHA-1, by which scripts are named. Not for secrets.
//!
//! Own code: sixty lines against one more dependency, and no speed is asked of it.

/// The digest of `bytes`.
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        absorb(&mut state, block);
    }
    let mut tail = [0; 128];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let length = if rest.len() < 56 { 64 } else { 128 };
    tail[length - 8..length].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    for block in tail[..length].as_chunks::<64>().0 {
        absorb(&mut state, block);
    }
    let mut digest = [0; 20];
    for (word, out) in state.iter().zip(digest.as_chunks_mut::<4>().0) {
        *out = word.to_be_bytes();
    }
    digest
}

/// The digest as forty lower-case hexadecimal digits: what EVALSHA takes.
///
/// ```
/// let name = store_types::sha1::sha1_hex(b"return 1");
/// assert_eq!(&name, b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
/// ```
pub fn sha1_hex(bytes: &[u8]) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 40];
    for (byte, out) in sha1(bytes).into_iter().zip(text.as_chunks_mut::<2>().0) {
        *out = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    text
}

fn absorb(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for at in 16..80 {
        let mixed = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
        words[at] = mixed.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.into_iter().enumerate() {
        let (mixed, constant) = match round {
            0..20 => (b & c | !b & d, 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc_u32),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a
            .rotate_left(5)
            .wrapping_add(mixed)
            .wrapping_add(e)
            .wrapping_add(constant)
            .wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (word, added) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let cases: [(&[u8], &[u8; 40]); 3] = [
            (b"", b"da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (b"abc", b"a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                b"84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ];
        for (text, digest) in cases {
            assert_eq!(&sha1_hex(text), digest);
        }
        assert_eq!(&sha1_hex(&[b'a'; 1_000_000]), b"34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
