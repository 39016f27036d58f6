//! The ziplist of old versions, read only.
//!
//! ```text
//! total bytes (u32) | offset of the last entry (u32) | entries (u16) | entry … | ff
//! entry: length of the one before (1 or 5 bytes) | encoding | data
//! ```

use crate::damage::Damaged;
use crate::listpack::Listpack;

const HEADER: usize = 10;
const END: u8 = 0xff;
/// The length of the entry before takes five bytes, of which this is the first.
const LONG_PREVIOUS: u8 = 0xfe;
const UNKNOWN_COUNT: u16 = u16::MAX;

/// Checks every byte of a ziplist and returns its elements as a listpack.
pub(super) fn to_listpack(bytes: &[u8]) -> Result<Listpack, Damaged> {
    let damaged = |reason| Damaged::new("ziplist", reason);
    let header = bytes.first_chunk::<HEADER>().ok_or(damaged("shorter than its header"))?;
    let total = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let tail = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    let count = u16::from_le_bytes([header[8], header[9]]);
    if total != bytes.len() {
        return Err(damaged("its length is not the one it names"));
    }
    let mut pack = Listpack::with_capacity(bytes.len().saturating_sub(HEADER));
    let (mut at, mut last, mut found) = (HEADER, HEADER, 0_usize);
    let mut previous_len = 0;
    loop {
        match bytes.get(at) {
            None => return Err(damaged("no end")),
            Some(&END) if at + 1 == bytes.len() => break,
            Some(&END) => return Err(damaged("bytes after the end")),
            Some(_) => {}
        }
        let length = push_entry(&bytes[at..], previous_len, &mut pack)
            .ok_or(damaged("an entry is not whole"))?;
        (last, previous_len) = (at, length);
        at += length;
        found += 1;
    }
    if tail != last || (count != UNKNOWN_COUNT && usize::from(count) != found) {
        return Err(damaged("its tail or count is not the one it names"));
    }
    Ok(pack)
}

/// Reads the entry at the start of `bytes` and returns its length.
fn push_entry(bytes: &[u8], previous_len: usize, pack: &mut Listpack) -> Option<usize> {
    let (named_len, head) = match *bytes.first()? {
        LONG_PREVIOUS => (u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?) as usize, 5),
        short => (usize::from(short), 1),
    };
    if named_len != previous_len {
        return None;
    }
    let bytes = &bytes[head..];
    let encoding = *bytes.first()?;
    let length = match encoding >> 6 {
        0 => push_text(bytes, 1, usize::from(encoding), pack)?,
        1 => {
            let length = usize::from(encoding & 0x3f) << 8 | usize::from(*bytes.get(1)?);
            push_text(bytes, 2, length, pack)?
        }
        2 => {
            let length = u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?) as usize;
            push_text(bytes, 5, length, pack)?
        }
        _ => push_integer(bytes, encoding, pack)?,
    };
    Some(head + length)
}

fn push_text(bytes: &[u8], head: usize, length: usize, pack: &mut Listpack) -> Option<usize> {
    pack.push_back(bytes.get(head..head.checked_add(length)?)?);
    Some(head + length)
}

fn push_integer(bytes: &[u8], encoding: u8, pack: &mut Listpack) -> Option<usize> {
    let width = match encoding {
        0xc0 => 2,
        0xd0 => 4,
        0xe0 => 8,
        0xf0 => 3,
        0xfe => 1,
        0xf1..=0xfd => 0,
        _ => return None,
    };
    if width == 0 {
        pack.push_back_int(i64::from(encoding & 0x0f) - 1);
        return Some(1);
    }
    let mut raw = [0; 8];
    raw[8 - width..].copy_from_slice(bytes.get(1..1 + width)?);
    pack.push_back_int(i64::from_le_bytes(raw) >> (8 * (8 - width)));
    Some(1 + width)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Element;

    /// A ziplist with one entry of each kind, made by hand from the format.
    fn sample() -> Vec<u8> {
        let entries: [&[u8]; 8] = [
            &[0x02, b'h', b'i'],
            &[0xf1],
            &[0xfd],
            &[0xfe, 0xff],
            &[0xc0, 0x00, 0x80],
            &[0xf0, 0xff, 0xff, 0x7f],
            &[0xd0, 0, 0, 0, 0x80],
            &[0xe0, 1, 0, 0, 0, 0, 0, 0, 0x80],
        ];
        let mut bytes = vec![0; HEADER];
        let mut previous = 0_usize;
        let mut tail = 0;
        for entry in entries {
            tail = bytes.len();
            bytes.push(previous as u8);
            bytes.extend_from_slice(entry);
            previous = entry.len() + 1;
        }
        bytes.push(END);
        let total = bytes.len() as u32;
        bytes[..4].copy_from_slice(&total.to_le_bytes());
        bytes[4..8].copy_from_slice(&(tail as u32).to_le_bytes());
        bytes[8..10].copy_from_slice(&8_u16.to_le_bytes());
        bytes
    }

    #[test]
    fn every_encoding_is_understood() {
        let pack = to_listpack(&sample()).unwrap();
        let expected = [
            Element::Bytes(b"hi"),
            Element::Int(0),
            Element::Int(12),
            Element::Int(-1),
            Element::Int(-32_768),
            Element::Int(8_388_607),
            Element::Int(-2_147_483_648),
            Element::Int(i64::MIN + 1),
        ];
        assert!(pack.iter().eq(expected));
    }

    proptest! {
        #[test]
        fn damaged_ziplists_never_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
        ) {
            let mut bytes = sample();
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = to_listpack(&bytes);
        }
    }
}
