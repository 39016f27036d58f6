//! The eight values of `maxmemory-policy`.

use crate::keyspace::{AccessPolicy, Entry, Scope};

/// Which keys go when memory is short, and in what order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// None: writes are refused.
    Keep,
    /// These, in this order.
    Evict(Scope, Order),
}

/// Which of the keys in question goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    LeastRecent,
    LeastFrequent,
    SoonestEnd,
    Random,
}

impl Policy {
    const NAMES: [(&str, Policy); 8] = [
        ("allkeys-lru", Policy::Evict(Scope::All, Order::LeastRecent)),
        ("allkeys-lfu", Policy::Evict(Scope::All, Order::LeastFrequent)),
        ("allkeys-random", Policy::Evict(Scope::All, Order::Random)),
        ("volatile-lru", Policy::Evict(Scope::Volatile, Order::LeastRecent)),
        ("volatile-lfu", Policy::Evict(Scope::Volatile, Order::LeastFrequent)),
        ("volatile-random", Policy::Evict(Scope::Volatile, Order::Random)),
        ("volatile-ttl", Policy::Evict(Scope::Volatile, Order::SoonestEnd)),
        ("noeviction", Policy::Keep),
    ];

    /// The policy of a name in the table of settings.
    pub(crate) fn named(name: &str) -> Self {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map_or(Policy::Keep, |(_, policy)| *policy)
    }

    /// Its name in the table of settings.
    pub(crate) fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, policy)| *policy == self);
        found.map_or("noeviction", |(name, _)| name)
    }

    /// Whether the access bits of entries count accesses.
    pub(crate) fn counts_accesses(self) -> bool {
        matches!(self, Policy::Evict(_, Order::LeastFrequent))
    }

    /// Whether keys go by when or how often they were accessed.
    pub(crate) fn orders_by_access(self) -> bool {
        matches!(self, Policy::Evict(_, Order::LeastRecent | Order::LeastFrequent))
    }
}

impl Order {
    /// The higher, the sooner it goes. As long as nobody uses the entry its score stays, or
    /// grows with that of all others, so that scores of different moments can be compared.
    pub(super) fn score(self, entry: &Entry, access: AccessPolicy, now_ms: u64) -> i64 {
        match self {
            Order::LeastRecent => {
                let idle_seconds = access.idle_seconds(entry.access(), now_ms);
                idle_seconds as i64 - (now_ms / 1000) as i64
            }
            Order::LeastFrequent => -i64::from(access.counter(entry.access(), now_ms)),
            Order::SoonestEnd => entry.expires_at().map_or(i64::MIN, |at| -(at as i64)),
            Order::Random => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Kind};

    #[test]
    fn every_value_of_the_setting_is_a_policy_of_its_own() {
        let setting = Config::find("maxmemory-policy").unwrap();
        let Kind::Choice(names) = setting.kind else { panic!("not a choice") };
        let policies: Vec<Policy> = names.iter().map(|name| Policy::named(name)).collect();
        assert_eq!(policies.len(), 8);
        for (at, policy) in policies.iter().enumerate() {
            assert!(!policies[..at].contains(policy), "{}", names[at]);
        }
    }
}
