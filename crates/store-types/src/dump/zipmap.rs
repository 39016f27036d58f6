//! The zipmap of very old versions, read only: a small hash.
//!
//! ```text
//! count (254: count them) | length field | length free value free-bytes | … | ff
//! ```

use crate::Hash;
use crate::damage::Damaged;
use crate::limits::Limits;

const END: u8 = 0xff;
/// The length takes the four bytes that follow; as a count it says nothing.
const LONG: u8 = 0xfe;

/// Checks every byte of a zipmap and returns its fields.
pub(super) fn to_hash(bytes: &[u8], limits: &Limits) -> Result<Hash, Damaged> {
    let damaged = |reason| Damaged::new("zipmap", reason);
    let (&count, mut rest) = bytes.split_first().ok_or(damaged("no bytes"))?;
    let mut hash = Hash::new();
    while rest.first() != Some(&END) {
        let (field, value) =
            take_pair(&mut rest).ok_or(damaged("a field or value is not whole"))?;
        if !hash.insert(field, value, limits) {
            return Err(damaged("a field comes twice"));
        }
    }
    if rest.len() != 1 || hash.is_empty() {
        return Err(damaged("empty, or bytes after the end"));
    }
    if count < LONG && usize::from(count) != hash.len() {
        return Err(damaged("its count is not the one it names"));
    }
    Ok(hash)
}

fn take_pair<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let field_len = take_length(rest)?;
    let field = take(rest, field_len)?;
    let value_len = take_length(rest)?;
    let free = usize::from(*take(rest, 1)?.first()?);
    let value = take(rest, value_len)?;
    take(rest, free)?;
    Some((field, value))
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    match *take(rest, 1)?.first()? {
        END => None,
        LONG => Some(u32::from_le_bytes(*take(rest, 4)?.first_chunk()?) as usize),
        length => Some(usize::from(length)),
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;

    #[test]
    fn fields_and_free_bytes_are_understood() {
        let bytes = b"\x02\x03foo\x03\x01bar?\x05hello\x05\x00world\xff";
        let hash = to_hash(bytes, &Limits::default()).unwrap();
        assert_eq!(hash.get(b"foo"), Some(Element::Bytes(b"bar")));
        assert_eq!(hash.get(b"hello"), Some(Element::Bytes(b"world")));
        for cut in 0..bytes.len() {
            assert!(to_hash(&bytes[..cut], &Limits::default()).is_err(), "{cut}");
        }
        assert!(to_hash(b"\x02\x01a\x01\x00b\x01a\x01\x00c\xff", &Limits::default()).is_err());
    }
}
