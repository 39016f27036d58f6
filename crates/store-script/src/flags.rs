//! What a script promises about itself.

/// The flags of a script or function, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// It runs read commands alone.
    pub const NO_WRITES: Flags = Flags(1);
    /// It may run while memory is over its limit.
    pub const ALLOW_OOM: Flags = Flags(2);
    /// It may run on a replica that lost its primary.
    pub const ALLOW_STALE: Flags = Flags(4);
    /// It refuses to run in a cluster.
    pub const NO_CLUSTER: Flags = Flags(8);
    /// It may touch keys of several slots.
    pub const ALLOW_CROSS_SLOT_KEYS: Flags = Flags(16);
    /// An EVAL script without a shebang: it promised nothing, and older rules hold for it.
    pub const COMPATIBILITY: Flags = Flags(32);

    const NAMES: [(&'static str, Flags); 5] = [
        ("no-writes", Flags::NO_WRITES),
        ("allow-oom", Flags::ALLOW_OOM),
        ("allow-stale", Flags::ALLOW_STALE),
        ("no-cluster", Flags::NO_CLUSTER),
        ("allow-cross-slot-keys", Flags::ALLOW_CROSS_SLOT_KEYS),
    ];

    /// Whether all of `other` is in here.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The names that FUNCTION LIST shows.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(_, flag)| self.contains(*flag)).map(|(name, _)| name)
    }

    pub(crate) fn from_name(name: &[u8]) -> Option<Flags> {
        Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, flag)| *flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_listed_by_the_names_they_were_given_by() {
        let flags = Flags::from_name(b"allow-stale").unwrap().with(Flags::NO_WRITES);
        assert_eq!(flags.names().collect::<Vec<_>>(), ["no-writes", "allow-stale"]);
        assert!(!flags.contains(Flags::ALLOW_OOM));
        assert_eq!(Flags::from_name(b"No-Writes"), None);
    }
}
