//! One table: what is put in is found, and room follows what is there.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::entry::NewValue;
use super::*;

fn hash_of(key: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::quality::FixedState::with_seed(7).build_hasher();
    hasher.write(key);
    hasher.finish()
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn insert(table: &mut Table, number: u32, expires_at: Option<u64>) {
    let key = key(number);
    let entry = Entry::new(&key, NewValue::Integer(i64::from(number)), expires_at);
    table.insert(hash_of(&key), entry, &hash_of);
}

fn remove(table: &mut Table, number: u32) -> bool {
    let key = key(number);
    let Some(place) = table.find(hash_of(&key), &key) else { return false };
    table.remove(place, hash_of(&key), &hash_of);
    true
}

fn contains(table: &Table, number: u32) -> bool {
    table.find(hash_of(&key(number)), &key(number)).is_some()
}

#[test]
fn memory_per_key_stays_within_the_target_at_every_size() {
    let mut table = Table::new();
    for number in 0..200_000 {
        insert(&mut table, number, None);
        if number > 50_000 && number % 1000 == 0 {
            let per_key = table.memory() as f64 / table.len() as f64;
            assert!((12.0..18.5).contains(&per_key), "{per_key:.1} bytes at {number}");
        }
    }
}

/// A cache at its limit: for every key that comes another one goes.
#[test]
fn memory_per_key_stays_within_the_target_while_keys_come_and_go() {
    const KEYS: u32 = 60_000;
    let mut table = Table::new();
    let mut random = store_types::Rng::seeded(5);
    let mut there: Vec<u32> = (0..KEYS).collect();
    there.iter().for_each(|number| insert(&mut table, *number, None));
    for number in KEYS..20 * KEYS {
        let chosen = random.below(there.len());
        assert!(remove(&mut table, there[chosen]));
        there[chosen] = number;
        insert(&mut table, number, None);
        if number % KEYS == 0 {
            let per_key = table.memory() as f64 / table.len() as f64;
            assert!((12.0..18.5).contains(&per_key), "{per_key:.1} bytes at {number}");
        }
    }
}

#[test]
fn removing_everything_gives_the_memory_back() {
    let mut table = Table::new();
    (0..50_000).for_each(|number| insert(&mut table, number, Some(5)));
    assert_eq!(table.volatile_len(), 50_000);
    (0..50_000).for_each(|number| assert!(remove(&mut table, number)));
    assert_eq!((table.len(), table.volatile_len()), (0, 0));
    assert!(table.memory() < 20_000, "{} bytes left", table.memory());
}

#[test]
fn colliding_hashes_cost_time_but_not_memory_without_bound() {
    let mut table = Table::new();
    let same = |_: &[u8]| 42;
    for number in 0..6_000u32 {
        let entry = Entry::new(&key(number), NewValue::Integer(0), None);
        table.insert(42, entry, &same);
    }
    assert!((0..6_000).all(|number| table.find(42, &key(number)).is_some()));
    assert!(table.memory() < 2_000_000 && table.directory.len() < 100_000);
    let mut seen = BTreeSet::new();
    table.for_each(&mut |entry| _ = seen.insert(entry.key().to_vec()));
    assert_eq!(seen.len(), 6_000);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, Option<u64>),
    Remove(u32),
    ExpireUntil(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3000u32, proptest::option::of(0..100u64)).prop_map(|(n, at)| Step::Insert(n, at)),
        (0..3000u32).prop_map(Step::Remove),
        (0..100u64).prop_map(Step::ExpireUntil),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_table_agrees_with_a_plain_map(steps in proptest::collection::vec(step(), 1..2000)) {
        let mut table = Table::new();
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(number, at) if !model.contains_key(&number) => {
                    model.insert(number, at);
                    insert(&mut table, number, at);
                }
                Step::Insert(..) => {}
                Step::Remove(number) => {
                    let there = model.remove(&number).is_some();
                    prop_assert_eq!(remove(&mut table, number), there);
                }
                Step::ExpireUntil(now) => {
                    for segment in 0..table.segment_count() {
                        let due = table.segment_due(segment, now);
                        let keys = table.expired_keys(segment, now, usize::MAX);
                        prop_assert!(due || keys.is_empty());
                        for key in keys {
                            let number = std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
                            prop_assert!(model.remove(&number).unwrap().unwrap() <= now);
                            prop_assert!(remove(&mut table, number));
                        }
                    }
                }
            }
            prop_assert_eq!(table.len(), model.len());
        }
        prop_assert_eq!(table.volatile_len(), model.values().flatten().count());
        for number in 0..3000 {
            prop_assert_eq!(contains(&table, number), model.contains_key(&number));
        }
    }

    /// SCAN's promise: what is there from beginning to end is seen, through growth, splits,
    /// removals and merges.
    #[test]
    fn a_scan_sees_every_key_that_stays(
        stays in 1..300u32, grows in 0..8_000u32, first in any::<bool>(),
    ) {
        let mut table = Table::new();
        (0..stays).for_each(|number| insert(&mut table, number, None));
        let others = 1_000_000..1_000_000 + grows;
        if first {
            others.clone().for_each(|number| insert(&mut table, number, None));
        }
        let mut seen = BTreeSet::new();
        let (mut cursor, mut calls) = (0, 0);
        loop {
            cursor = table.scan(cursor, &mut |entry| _ = seen.insert(entry.key().to_vec()));
            if cursor == 0 {
                break;
            }
            calls += 1;
            if calls == 20 {
                for number in others.clone() {
                    match first {
                        true => _ = remove(&mut table, number),
                        false => insert(&mut table, number, None),
                    }
                }
            }
        }
        for number in 0..stays {
            prop_assert!(seen.contains(&key(number)), "{} was missed", number);
        }
    }
}
