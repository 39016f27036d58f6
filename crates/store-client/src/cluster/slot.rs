//! Which of a cluster's slots a key lies in.

use std::fmt;

use store_resp::slot::{SLOT_COUNT, slot_of};

/// One slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot of a key: of the text in its first `{…}`, if there is any.
    pub fn of(key: impl AsRef<[u8]>) -> Self {
        Slot(slot_of(key.as_ref()))
    }

    /// The slot of this number, if there is one.
    pub fn numbered(number: u64) -> Option<Self> {
        u16::try_from(number).ok().filter(|number| *number < SLOT_COUNT).map(Slot)
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Its place in a list of all slots.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // As CLUSTER KEYSLOT of a server says.
        assert_eq!(Slot::of("somekey"), Slot(11058));
        assert_eq!(Slot::of("foo{hash_tag}"), Slot(2515));
        assert_eq!(Slot::of("bar{hash_tag}"), Slot(2515));
        assert_eq!(Slot::of("tenure:job"), Slot::of("{tenure:job}:meta"));
        assert_eq!(Slot::numbered(16_384), None);
    }
}
