//! The intset of Redis 7.0, byte for byte: sorted integers of one width.
//!
//! ```text
//! width in bytes (u32: 2, 4, 8) | count (u32) | integers, ascending, little endian
//! ```

use crate::damage::Damaged;

/// Bytes before the first integer.
const HEADER: usize = 8;

/// A set of integers in one run of bytes. The width only ever grows.
///
/// ```
/// # use store_types::intset::Intset;
/// let mut set = Intset::new();
/// assert!(set.insert(7) && set.insert(70_000) && !set.insert(7));
/// assert_eq!(set.iter().collect::<Vec<_>>(), [7, 70_000]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intset {
    bytes: Vec<u8>,
}

impl Default for Intset {
    fn default() -> Self {
        Self::new()
    }
}

impl Intset {
    /// An empty set.
    pub fn new() -> Self {
        Self { bytes: vec![2, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// Takes foreign bytes after checking every one of them.
    ///
    /// # Errors
    /// [`Damaged`] unless they are one intset in strictly ascending order.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Damaged> {
        let set = Self::of_shape(bytes)?;
        if !set.is_ordered() {
            return Err(Damaged::new("intset", "not in order"));
        }
        Ok(set)
    }

    /// Takes foreign bytes and brings the integers into order; what comes twice is taken once.
    ///
    /// # Errors
    /// [`Damaged`] unless they are integers of one width.
    pub(crate) fn from_unordered(bytes: Vec<u8>) -> Result<Self, Damaged> {
        let mut set = Self::of_shape(bytes)?;
        let mut integers: Vec<i64> = set.iter().collect();
        integers.sort_unstable();
        integers.dedup();
        let width = set.width();
        set.bytes.truncate(HEADER);
        for integer in integers {
            set.bytes.extend_from_slice(&integer.to_le_bytes()[..width]);
        }
        set.write_count();
        Ok(set)
    }

    fn is_ordered(&self) -> bool {
        self.iter().is_sorted_by(|left, right| left < right)
    }

    fn of_shape(bytes: Vec<u8>) -> Result<Self, Damaged> {
        let damaged = |reason| Err(Damaged::new("intset", reason));
        let Some((header, integers)) = bytes.split_first_chunk::<HEADER>() else {
            return damaged("shorter than its header");
        };
        let width = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        if !matches!(width, 2 | 4 | 8) {
            return damaged("unknown width");
        }
        if integers.len() % width != 0 || integers.len() / width != count {
            return damaged("its length is not the one it names");
        }
        Ok(Self { bytes })
    }

    /// The bytes, as Redis keeps and saves them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many integers there are.
    #[inline]
    pub fn len(&self) -> usize {
        (self.bytes.len() - HEADER) / self.width()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER
    }

    /// Allocated bytes.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The integer with this index in ascending order.
    #[inline]
    pub fn get(&self, index: usize) -> Option<i64> {
        (index < self.len()).then(|| self.at(index))
    }

    /// Whether `value` is a member.
    #[inline]
    pub fn contains(&self, value: i64) -> bool {
        width_of(value) <= self.width() && self.search(value).is_ok()
    }

    /// Adds `value`; `false` when it was there.
    pub fn insert(&mut self, value: i64) -> bool {
        if width_of(value) > self.width() {
            self.widen_and_insert(value);
            return true;
        }
        let Err(index) = self.search(value) else { return false };
        let width = self.width();
        let at = HEADER + index * width;
        self.reserve(width);
        self.bytes.splice(at..at, value.to_le_bytes().into_iter().take(width));
        self.write_count();
        true
    }

    /// Removes `value`; `false` when it was not there.
    pub fn remove(&mut self, value: i64) -> bool {
        if width_of(value) > self.width() {
            return false;
        }
        let Ok(index) = self.search(value) else { return false };
        let at = HEADER + index * self.width();
        self.bytes.drain(at..at + self.width());
        self.write_count();
        if self.bytes.capacity() > 2 * self.bytes.len() + 64 {
            self.bytes.shrink_to(self.bytes.len());
        }
        true
    }

    /// All integers in ascending order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone + '_ {
        (0..self.len()).map(|index| self.at(index))
    }

    /// A value of a new width lies outside the range of all others: it goes to one end.
    fn widen_and_insert(&mut self, value: i64) {
        let width = width_of(value);
        let count = self.len() + 1;
        let mut bytes = Vec::with_capacity(HEADER + count * width);
        bytes.extend_from_slice(&(width as u32).to_le_bytes());
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
        let smallest = (value < 0).then_some(value);
        let largest = (value >= 0).then_some(value);
        for value in smallest.into_iter().chain(self.iter()).chain(largest) {
            bytes.extend_from_slice(&value.to_le_bytes()[..width]);
        }
        self.bytes = bytes;
    }

    fn search(&self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        // Ascending inserts are the common load; they need not search.
        if high > 0 && self.at(high - 1) < value {
            return Err(high);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.at(middle).cmp(&value) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    #[inline]
    fn at(&self, index: usize) -> i64 {
        let integers = &self.bytes[HEADER..];
        match self.width() {
            2 => i64::from(i16::from_le_bytes(chunk(integers, index))),
            4 => i64::from(i32::from_le_bytes(chunk(integers, index))),
            _ => i64::from_le_bytes(chunk(integers, index)),
        }
    }

    #[inline]
    fn width(&self) -> usize {
        usize::from(self.bytes[0])
    }

    fn write_count(&mut self) {
        let count = self.len() as u32;
        self.bytes[4..8].copy_from_slice(&count.to_le_bytes());
    }

    fn reserve(&mut self, added: usize) {
        let needed = self.bytes.len() + added;
        if needed > self.bytes.capacity() {
            let target = (needed + needed / 8).next_multiple_of(16);
            self.bytes.reserve_exact(target - self.bytes.len());
        }
    }
}

#[inline]
fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

#[inline]
fn chunk<const WIDTH: usize>(bytes: &[u8], index: usize) -> [u8; WIDTH] {
    let at = index * WIDTH;
    *bytes[at..].first_chunk().expect("the index is below the count")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_width_grows_and_never_shrinks() {
        let mut set = Intset::new();
        set.insert(1);
        assert_eq!(set.as_bytes(), [2, 0, 0, 0, 1, 0, 0, 0, 1, 0]);
        set.insert(-70_000);
        assert_eq!(set.as_bytes()[..8], [4, 0, 0, 0, 2, 0, 0, 0]);
        set.insert(1 << 40);
        set.remove(1 << 40);
        assert_eq!(set.as_bytes()[..8], [8, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [-70_000, 1]);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        for bytes in [
            &[][..],
            &[2, 0, 0, 0, 1, 0, 0, 0],
            &[3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0],
            &[2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 1, 0],
            &[2, 0, 0, 0, 1, 0, 0, 0, 1],
            &[0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(Intset::from_bytes(bytes.to_vec()).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn an_intset_behaves_as_an_ordered_set(
            steps in proptest::collection::vec((any::<i64>(), 0_u32..64, any::<bool>()), 0..200)
        ) {
            let mut set = Intset::new();
            let mut model = BTreeSet::new();
            for (value, shift, add) in steps {
                let value = value >> shift;
                if add {
                    prop_assert_eq!(set.insert(value), model.insert(value));
                } else {
                    prop_assert_eq!(set.remove(value), model.remove(&value));
                }
                prop_assert_eq!(set.contains(value), model.contains(&value));
                prop_assert_eq!(set.len(), model.len());
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert_eq!(Intset::from_bytes(set.as_bytes().to_vec()), Ok(set));
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Intset::from_bytes(bytes);
        }
    }
}
