//! The name of a node: 40 hexadecimal digits on the wire and on disk, 20 bytes here.

use std::fmt;
use std::hash::{Hash, Hasher};

/// How many characters an id has on the wire.
pub(crate) const ID_TEXT_LEN: usize = 40;

/// A node's name for life, or until CLUSTER RESET HARD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId([u8; 20]);

impl NodeId {
    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// Reads 40 lower-case hexadecimal digits; `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != ID_TEXT_LEN {
            return None;
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// The 40 digits.
    pub fn text(&self) -> [u8; ID_TEXT_LEN] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; ID_TEXT_LEN];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        text
    }
}

/// In words, which hashers take at once: every packet looks several names up.
impl Hash for NodeId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (words, rest) = self.0.as_chunks::<8>();
        words.iter().for_each(|word| state.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| state.write_u8(*byte));
    }
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.text()).expect("digits are text"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_other_text_is_none() {
        let text = b"0123456789abcdef0123456789abcdef01234567";
        let id = NodeId::parse(text).unwrap();
        assert_eq!(&id.text(), text);
        assert!(NodeId::parse(&text[1..]).is_none(), "too short");
        assert!(NodeId::parse(&[b'G'; 40]).is_none(), "no digit");
        assert!(NodeId::parse(&[0; 40]).is_none(), "zeros name nobody");
    }
}
