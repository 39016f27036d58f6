//! Which of a cluster's slots a key lies in.

use std::fmt;

/// How many slots a cluster has.
pub(super) const SLOT_COUNT: u16 = 16_384;

/// One slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u16);

impl Slot {
    /// The slot of a key: of the text in its first `{…}`, if there is any.
    pub(super) fn of(key: &str) -> Self {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        let tag = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty());
        Slot(crc16(tag.unwrap_or(key).as_bytes()) % SLOT_COUNT)
    }

    /// The slot of this number, if there is one.
    pub(super) fn numbered(number: u64) -> Option<Self> {
        u16::try_from(number).ok().filter(|number| *number < SLOT_COUNT).map(Slot)
    }

    /// Its number.
    pub(super) fn number(self) -> u16 {
        self.0
    }

    /// Its place in a list of all slots.
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// CRC-16/XMODEM, as the cluster specification wants it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As CLUSTER KEYSLOT of a server says.
        assert_eq!(Slot::of("somekey"), Slot(11058));
        assert_eq!(Slot::of("foo{hash_tag}"), Slot(2515));
        assert_eq!(Slot::of("bar{hash_tag}"), Slot(2515));
        assert_eq!(Slot::of("{}x"), Slot(crc16(b"{}x") % SLOT_COUNT));
        assert_eq!(Slot::of("tenure:job"), Slot::of("{tenure:job}:meta"));
        assert_eq!(Slot::numbered(16_384), None);
    }
}
