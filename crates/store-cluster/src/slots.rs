//! A set of the 16,384 slots: one bit each, as on the wire.

use std::fmt;

use store_resp::slot::SLOT_COUNT;

const WORDS: usize = SLOT_COUNT as usize / 64;

/// How many bytes a set takes on the wire.
pub const SLOT_BYTES: usize = SLOT_COUNT as usize / 8;

/// Some of the slots. Shared between nodes by `Arc`: a table of 1,000 nodes would be 2 MiB else.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet([u64; WORDS]);

impl Default for SlotSet {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl SlotSet {
    /// These slots. Numbers must be below 16,384.
    pub fn of(slots: impl IntoIterator<Item = u16>) -> Self {
        let mut set = Self::default();
        slots.into_iter().for_each(|slot| _ = set.insert(slot));
        set
    }

    /// Reads the wire's bits: slot n is bit n % 8 of byte n / 8, counted from the low end.
    pub fn from_wire(bytes: &[u8; SLOT_BYTES]) -> Self {
        let mut set = Self::default();
        for (word, chunk) in set.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
        }
        set
    }

    /// The wire's bits, appended.
    pub fn write_wire(&self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }

    /// Whether it is in.
    pub fn contains(&self, slot: u16) -> bool {
        self.0[usize::from(slot / 64)] >> (slot % 64) & 1 == 1
    }

    /// Puts it in. Whether that is news.
    pub fn insert(&mut self, slot: u16) -> bool {
        let is_new = !self.contains(slot);
        self.0[usize::from(slot / 64)] |= 1 << (slot % 64);
        is_new
    }

    /// Takes it out. Whether it was in.
    pub fn remove(&mut self, slot: u16) -> bool {
        let was_in = self.contains(slot);
        self.0[usize::from(slot / 64)] &= !(1 << (slot % 64));
        was_in
    }

    /// Puts all of `others` in.
    pub fn insert_all(&mut self, others: &SlotSet) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word |= other);
    }

    /// Takes all of `others` out.
    pub fn remove_all(&mut self, others: &SlotSet) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word &= !other);
    }

    /// Those that are not in `others`.
    pub fn without(&self, others: &SlotSet) -> SlotSet {
        let mut rest = self.clone();
        rest.remove_all(others);
        rest
    }

    /// Those that are in `others`, too.
    pub fn both(&self, others: &SlotSet) -> SlotSet {
        let mut both = self.clone();
        both.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word &= other);
        both
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether some slot is in both.
    pub fn intersects(&self, other: &SlotSet) -> bool {
        self.0.iter().zip(&other.0).any(|(left, right)| left & right != 0)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let (mut index, mut rest) = (0, self.0[0]);
        std::iter::from_fn(move || {
            while rest == 0 {
                index += 1;
                rest = *self.0.get(index)?;
            }
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            Some((index as u32 * 64 + bit) as u16)
        })
    }

    /// Stretches, first and last slot of each. Takes a step per stretch and word, not per slot.
    pub fn ranges(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for (index, word) in self.0.iter().enumerate() {
            let (mut rest, base) = (*word, index as u32 * 64);
            while rest != 0 {
                let first = rest.trailing_zeros();
                let len = (!(rest >> first)).trailing_zeros();
                let range = ((base + first) as u16, (base + first + len - 1) as u16);
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == range.0 => *last = range.1,
                    _ => ranges.push(range),
                }
                rest = rest.checked_shr(first + len).map_or(0, |high| high << (first + len));
            }
        }
        ranges
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.ranges())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_bits_of_the_wire() {
        let set = SlotSet::of([0, 9, 63, 64, 65, 16_383]);
        let mut bytes = Vec::new();
        set.write_wire(&mut bytes);
        assert_eq!((bytes[0], bytes[1], bytes[7], bytes[8], bytes[2047]), (1, 2, 0x80, 3, 0x80));
        assert_eq!(SlotSet::from_wire(&bytes.try_into().unwrap()), set);
        assert_eq!(set.ranges(), [(0, 0), (9, 9), (63, 65), (16_383, 16_383)]);
        assert_eq!(set.len(), 6);
    }

    #[test]
    fn sets_are_joined_and_taken_apart_word_by_word() {
        let (left, right) = (SlotSet::of([0, 63, 64, 9_000]), SlotSet::of([63, 64, 16_383]));
        assert_eq!(left.both(&right), SlotSet::of([63, 64]));
        assert_eq!(left.without(&right), SlotSet::of([0, 9_000]));
        let mut all = left.clone();
        all.insert_all(&right);
        assert!(all.iter().eq([0, 63, 64, 9_000, 16_383]));
        all.remove_all(&left);
        assert_eq!(all, SlotSet::of([16_383]));
    }

    #[test]
    fn stretches_are_those_of_the_slots_one_by_one() {
        let stretches = [(0, 0), (2, 63), (64, 64), (66, 191), (193, 16_382)];
        let set = SlotSet::of(stretches.iter().flat_map(|(first, last)| *first..=*last));
        assert_eq!(set.ranges(), [(0, 0), (2, 64), (66, 191), (193, 16_382)]);
        assert_eq!(SlotSet::of(0..SLOT_COUNT).ranges(), [(0, 16_383)]);
        assert_eq!(SlotSet::default().ranges(), []);
        for step in [2, 3, 31, 64, 65] {
            let set = SlotSet::of((0..SLOT_COUNT).step_by(step));
            assert!(set.ranges().iter().map(|(first, _)| *first).eq(set.iter()), "{step}");
        }
    }
}
