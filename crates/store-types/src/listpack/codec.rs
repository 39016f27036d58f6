//! One entry: `encoding | data | length of the two before, readable from behind`.
//!
//! ```text
//! 0xxxxxxx                     integer 0..=127
//! 10xxxxxx data                text up to 63 bytes
//! 110xxxxx x                   integer of 13 bits
//! 1110xxxx x data              text up to 4,095 bytes
//! f1 .. f4                     integer of 16, 24, 32 or 64 bits, little endian
//! f0 llll data                 text up to 4 GiB
//! ff                           end of the listpack
//! ```

use crate::element::Element;
use crate::number::parse_i64;

/// The byte after the last entry.
pub(super) const END: u8 = 0xff;

/// An entry about to be written: `head`, then `data`, then `tail`.
pub(super) struct Encoded<'a> {
    head: [u8; 9],
    head_len: usize,
    data: &'a [u8],
    tail: [u8; 5],
    tail_len: usize,
}

impl<'a> Encoded<'a> {
    /// The smallest entry for `bytes`: an integer wherever the text is that of one.
    #[inline]
    pub(super) fn from_bytes(bytes: &'a [u8]) -> Self {
        match parse_i64(bytes) {
            Some(value) => Self::from_int(value),
            None => Self::from_text(bytes),
        }
    }

    #[inline]
    pub(super) fn from_element(element: Element<'a>) -> Self {
        match element {
            Element::Int(value) => Self::from_int(value),
            Element::Bytes(bytes) => Self::from_bytes(bytes),
        }
    }

    pub(super) fn from_int(value: i64) -> Self {
        let mut head = [0; 9];
        let bytes = value.to_le_bytes();
        let head_len = match value {
            0..=127 => {
                head[0] = value as u8;
                1
            }
            -4096..=4095 => {
                head[0] = 0xc0 | (value >> 8) as u8 & 0x1f;
                head[1] = value as u8;
                2
            }
            _ => {
                let (code, width) = match value {
                    -0x8000..=0x7fff => (0xf1, 2),
                    -0x80_0000..=0x7f_ffff => (0xf2, 3),
                    -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
                    _ => (0xf4, 8),
                };
                head[0] = code;
                head[1..=width].copy_from_slice(&bytes[..width]);
                width + 1
            }
        };
        Self::new(head, head_len, &[])
    }

    fn from_text(bytes: &'a [u8]) -> Self {
        let mut head = [0; 9];
        let head_len = match bytes.len() {
            length @ 0..64 => {
                head[0] = 0x80 | length as u8;
                1
            }
            length @ 64..4096 => {
                head[0] = 0xe0 | (length >> 8) as u8;
                head[1] = length as u8;
                2
            }
            length => {
                head[0] = 0xf0;
                head[1..5].copy_from_slice(&(length as u32).to_le_bytes());
                5
            }
        };
        Self::new(head, head_len, bytes)
    }

    #[inline]
    fn new(head: [u8; 9], head_len: usize, data: &'a [u8]) -> Self {
        let (tail, tail_len) = encode_back_length(head_len + data.len());
        Self { head, head_len, data, tail, tail_len }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head_len + self.data.len() + self.tail_len
    }

    /// Writes the entry into `room`, which is exactly [`Self::len`] bytes long.
    #[inline]
    pub(super) fn write(&self, room: &mut [u8]) {
        let (head, rest) = room.split_at_mut(self.head_len);
        let (data, tail) = rest.split_at_mut(self.data.len());
        head.copy_from_slice(&self.head[..self.head_len]);
        data.copy_from_slice(self.data);
        tail.copy_from_slice(&self.tail[..self.tail_len]);
    }
}

/// How many bytes the back length of an entry takes, given `length` of encoding and data.
///
/// The thresholds are one lower than seven bits per byte would allow: Redis writes them so.
#[inline]
pub(super) fn back_length_size(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

#[inline]
fn encode_back_length(length: usize) -> ([u8; 5], usize) {
    let size = back_length_size(length);
    let mut bytes = [0; 5];
    for (place, byte) in bytes[..size].iter_mut().enumerate() {
        let continues = if place == 0 { 0 } else { 0x80 };
        *byte = (length >> (7 * (size - 1 - place))) as u8 & 0x7f | continues;
    }
    (bytes, size)
}

/// Reads the back length whose last byte is `bytes[end - 1]`. `None` when it is not well formed.
#[inline]
pub(super) fn decode_back_length(bytes: &[u8], end: usize) -> Option<usize> {
    let mut length = 0;
    for place in 0..5 {
        let byte = *bytes.get(end.checked_sub(1 + place)?)?;
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(length);
        }
    }
    None
}

/// The length of encoding and data of the entry at `at`, in bytes already validated.
#[inline]
pub(super) fn entry_length(bytes: &[u8], at: usize) -> usize {
    let first = bytes[at];
    match first {
        0x00..=0x7f => 1,
        0x80..=0xbf => 1 + usize::from(first & 0x3f),
        0xc0..=0xdf => 2,
        0xe0..=0xef => 2 + (usize::from(first & 0x0f) << 8 | usize::from(bytes[at + 1])),
        0xf0 => 5 + read_u32(bytes, at + 1) as usize,
        0xf1 => 3,
        0xf2 => 4,
        0xf3 => 5,
        _ => 9,
    }
}

/// The same for foreign bytes: `None` when the entry is not whole or its encoding is unknown.
pub(super) fn checked_entry_length(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let length_bytes = match rest.first()? {
        0xe0..=0xef => 2,
        0xf0 => 5,
        0xf5.. => return None,
        _ => 1,
    };
    (rest.len() >= length_bytes && entry_length(bytes, at) <= rest.len())
        .then(|| entry_length(bytes, at))
}

/// The element at `at` and the length of its encoding and data, in bytes already validated.
#[inline]
pub(super) fn decode(bytes: &[u8], at: usize) -> (Element<'_>, usize) {
    let first = bytes[at];
    match first {
        0x00..=0x7f => (Element::Int(i64::from(first)), 1),
        0x80..=0xbf => text(bytes, at, 1, usize::from(first & 0x3f)),
        0xc0..=0xdf => {
            let raw = i64::from(first & 0x1f) << 8 | i64::from(bytes[at + 1]);
            (Element::Int(sign_extend(raw, 13)), 2)
        }
        0xe0..=0xef => {
            let length = usize::from(first & 0x0f) << 8 | usize::from(bytes[at + 1]);
            text(bytes, at, 2, length)
        }
        0xf0 => text(bytes, at, 5, read_u32(bytes, at + 1) as usize),
        0xf1 => integer(bytes, at, 2),
        0xf2 => integer(bytes, at, 3),
        0xf3 => integer(bytes, at, 4),
        _ => integer(bytes, at, 8),
    }
}

#[inline]
fn text(bytes: &[u8], at: usize, head: usize, length: usize) -> (Element<'_>, usize) {
    (Element::Bytes(&bytes[at + head..at + head + length]), head + length)
}

#[inline]
fn integer(bytes: &[u8], at: usize, width: usize) -> (Element<'_>, usize) {
    let mut raw = [0; 8];
    raw[..width].copy_from_slice(&bytes[at + 1..at + 1 + width]);
    (Element::Int(sign_extend(i64::from_le_bytes(raw), 8 * width as u32)), 1 + width)
}

#[inline]
fn sign_extend(raw: i64, bits: u32) -> i64 {
    raw << (64 - bits) >> (64 - bits)
}

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
