//! Walking a listpack from either end.

use super::codec::{back_length_size, decode, decode_back_length};
use crate::element::Element;

/// The elements between two places, from either end.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    front: usize,
    back: usize,
}

impl<'a> Iter<'a> {
    pub(super) fn new(bytes: &'a [u8], front: usize, back: usize) -> Self {
        Self { bytes, front, back }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.front >= self.back {
            return None;
        }
        let (element, length) = decode(self.bytes, self.front);
        self.front += length + back_length_size(length);
        Some(element)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        let length = decode_back_length(self.bytes, self.back).expect("validated on the way in");
        self.back -= length + back_length_size(length);
        Some(decode(self.bytes, self.back).0)
    }
}
