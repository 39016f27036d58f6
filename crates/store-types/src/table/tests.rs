use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;

#[derive(Clone, Debug, PartialEq)]
struct Pair(Vec<u8>, u32);

impl Keyed for Pair {
    fn key(&self) -> &[u8] {
        &self.0
    }

    fn heap_bytes(&self) -> usize {
        self.0.len()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn filled(count: u32) -> Table<Pair> {
    let mut table = Table::with_capacity(1, 0);
    for number in 0..count {
        assert!(table.insert_with(&key(number), || Pair(key(number), number)));
    }
    table
}

fn check_shape(table: &Table<Pair>) {
    assert_eq!(table.len(), table.segments.iter().map(|s| s.entries.len()).sum::<usize>());
    for (index, segment) in table.segments.iter().enumerate() {
        for entry in &segment.entries {
            assert_eq!(table.segment_of(table.hash(&entry.0)), index);
        }
    }
    let bytes: usize = table.iter().map(Keyed::heap_bytes).sum();
    assert_eq!(table.entry_bytes, bytes);
    let bytes: usize = table.segments.iter().map(|segment| segment.own_bytes()).sum();
    assert_eq!(table.segment_bytes, bytes);
}

#[test]
fn it_grows_by_splitting_and_shrinks_by_merging() {
    let mut table = filled(20_000);
    check_shape(&table);
    assert!(table.segments.len() > 40);
    assert!(table.segments.iter().all(|segment| segment.entries.len() <= SPLIT_MAX));
    for number in 0..19_990 {
        assert_eq!(table.remove(&key(number)), Some(Pair(key(number), number)));
    }
    check_shape(&table);
    assert_eq!(table.segments.len(), 1);
    assert_eq!((table.depth, table.directory.len()), (0, 0));
    assert_eq!(table.len(), 10);
}

#[test]
fn a_copy_shares_segments_and_keeps_its_own_state() {
    let mut table = filled(5_000);
    let pinned = table.clone();
    table.update(&key(7), |pair| pair.1 = 1_000_000);
    table.remove(&key(8));
    assert_eq!(pinned.get(&key(7)).unwrap().1, 7);
    assert_eq!(pinned.get(&key(8)).unwrap().1, 8);
    let shared = pinned.segments.iter().filter(|segment| Arc::strong_count(segment) > 1).count();
    assert!(shared + 2 >= pinned.segments.len(), "only touched segments are copied");
}

#[test]
fn every_entry_is_picked_with_the_same_chance() {
    let table = filled(1_000);
    let mut rng = Rng::seeded(3);
    let mut picks = BTreeMap::new();
    for _ in 0..100_000 {
        *picks.entry(table.random(&mut rng).unwrap().1).or_insert(0) += 1;
    }
    assert_eq!(picks.len(), 1_000);
    assert!(picks.values().all(|&count| (50..170).contains(&count)));
}

#[test]
fn a_sample_has_distinct_entries() {
    let table = filled(1_000);
    let mut rng = Rng::seeded(4);
    for count in [0, 1, 10, 400, 999, 1_000, 5_000] {
        let sample = table.sample(&mut rng, count);
        let distinct: BTreeSet<u32> = sample.iter().map(|pair| pair.1).collect();
        assert_eq!(sample.len(), count.min(1_000));
        assert_eq!(distinct.len(), sample.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_behaves_as_a_map(steps in proptest::collection::vec((0_u32..600, 0_u8..4), 0..3_000)) {
        let mut table = Table::with_capacity(9, 0);
        let mut model = BTreeMap::new();
        for (number, kind) in steps {
            let key = key(number);
            match kind {
                0 | 1 => {
                    let added = table.insert_with(&key, || Pair(key.clone(), number));
                    prop_assert_eq!(added, !model.contains_key(&key));
                    model.entry(key).or_insert(number);
                }
                2 => prop_assert_eq!(table.remove(&key).map(|pair| pair.1), model.remove(&key)),
                _ => {
                    let seen = table.update(&key, |pair| { pair.1 += 1; pair.1 });
                    let expected = model.get_mut(&key).map(|value| { *value += 1; *value });
                    prop_assert_eq!(seen, expected);
                }
            }
        }
        check_shape(&table);
        let all: BTreeMap<_, _> = table.iter().map(|pair| (pair.0.clone(), pair.1)).collect();
        prop_assert_eq!(all, model);
    }

    #[test]
    fn a_scan_sees_all_that_stays_while_others_come_and_go(
        stays in 1_u32..2_000,
        count in 1_usize..200,
        churn in proptest::collection::vec((any::<bool>(), 0_u32..3_000), 0..200),
        burst in 0_u32..100,
    ) {
        let mut table = filled(stays);
        let mut seen = BTreeSet::new();
        let mut churn = churn.into_iter();
        let mut cursor = 0;
        loop {
            let mut step = Vec::new();
            cursor = table.scan(cursor, count, |pair| step.push(pair.1));
            for number in step {
                prop_assert!(seen.insert(number), "visited twice");
            }
            if cursor == 0 {
                break;
            }
            for (add, number) in churn.by_ref().take(20) {
                let number = 1_000_000 + number;
                for number in (0..burst).map(|offset| number + offset * 3_000) {
                    if add {
                        table.insert_with(&key(number), || Pair(key(number), 2_000_000 + number));
                    } else {
                        table.remove(&key(number));
                    }
                }
            }
            // Entries that came and went may come again and be seen again: forget them.
            seen.retain(|&number| number < 1_000_000);
        }
        prop_assert!((0..stays).all(|number| seen.contains(&number)));
    }
}
