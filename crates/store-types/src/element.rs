//! One element of a value: bytes, or an integer that stands for its decimal text.

use std::cmp::Ordering;

use crate::number::{IntText, decimal_len, parse_i64, push_i64};

/// An element as it is stored. `Int(7)` and `Bytes(b"7")` are the same element.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// The decimal text of this integer.
    Int(i64),
    /// These bytes.
    Bytes(&'a [u8]),
}

impl<'a> Element<'a> {
    /// How many bytes the element has as text.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Int(value) => decimal_len(value),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether the element is the empty text.
    #[inline]
    pub fn is_empty(self) -> bool {
        matches!(self, Self::Bytes([]))
    }

    /// Appends the text to `out`.
    #[inline]
    pub fn write_to(self, out: &mut Vec<u8>) {
        match self {
            Self::Int(value) => push_i64(out, value),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// The text, owned.
    pub fn to_vec(self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }

    /// Calls `read` with the text, without allocating.
    #[inline]
    pub fn with_bytes<R>(self, read: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Int(value) => read(IntText::new(value).as_bytes()),
            Self::Bytes(bytes) => read(bytes),
        }
    }

    /// The integer that the text stands for, if it stands for one.
    #[inline]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Bytes(bytes) => parse_i64(bytes),
        }
    }

    /// Compares as bytes, shorter first on a common prefix.
    #[inline]
    pub fn compare(self, other: &[u8]) -> Ordering {
        self.with_bytes(|bytes| bytes.cmp(other))
    }
}

impl<'a> From<&'a [u8]> for Element<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl PartialEq<[u8]> for Element<'_> {
    #[inline]
    fn eq(&self, other: &[u8]) -> bool {
        match *self {
            Self::Int(value) => parse_i64(other) == Some(value),
            Self::Bytes(bytes) => bytes == other,
        }
    }
}

impl PartialEq for Element<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Int(left), Self::Int(right)) => left == right,
            (Self::Bytes(left), Self::Bytes(right)) => left == right,
            (Self::Int(int), Self::Bytes(bytes)) | (Self::Bytes(bytes), Self::Int(int)) => {
                parse_i64(bytes) == Some(int)
            }
        }
    }
}

impl Eq for Element<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_its_text() {
        assert_eq!(Element::Int(-12), Element::Bytes(b"-12"));
        assert_ne!(Element::Int(12), Element::Bytes(b"012"));
        assert_eq!(Element::Int(-12).len(), 3);
        assert_eq!(Element::Int(10).compare(b"9"), Ordering::Less);
        assert_eq!(Element::Bytes(b"77").as_i64(), Some(77));
        assert!(Element::Bytes(b"").is_empty());
        assert_eq!(Element::Int(5).to_vec(), b"5");
    }
}
