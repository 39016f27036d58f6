use proptest::prelude::*;

use super::*;

fn limits(entries: usize) -> Limits {
    Limits { zset_listpack_entries_max: entries, ..Limits::default() }
}

fn contents(set: &SortedSet) -> Vec<(Vec<u8>, f64)> {
    set.iter().map(|(member, score)| (member.to_vec(), score)).collect()
}

#[test]
fn it_converts_past_its_limits() {
    let mut set = SortedSet::new();
    set.insert(b"a", 1.0, &limits(2));
    set.insert(&[b'x'; 64], 2.0, &limits(2));
    assert_eq!(set.encoding(), Encoding::Listpack);
    let mut long = set.clone();
    long.remove(b"a");
    long.insert(&[b'x'; 65], 2.0, &limits(2));
    assert_eq!(long.encoding(), Encoding::Skiplist);
    set.insert(b"c", 3.0, &limits(2));
    assert_eq!(set.encoding(), Encoding::Skiplist);
    set.remove(b"c");
    set.compact(&limits(2));
    assert_eq!(set.encoding(), Encoding::Listpack);
    assert_eq!(set.len(), 2);
}

#[test]
fn scores_keep_every_bit_in_the_small_form() {
    let mut set = SortedSet::new();
    let scores = [0.1, 1e300, -1.5, 5e-324, f64::INFINITY, f64::NEG_INFINITY, 1e17, 3.0, 2e18];
    for (index, score) in scores.into_iter().enumerate() {
        set.insert(format!("m{index}").as_bytes(), score, &limits(100));
    }
    for (index, score) in scores.into_iter().enumerate() {
        assert_eq!(set.score(format!("m{index}").as_bytes()), Some(score));
    }
    assert_eq!(set.encoding(), Encoding::Listpack);
}

#[test]
fn a_listpack_out_of_order_or_without_numbers_is_refused() {
    let build = |texts: &[&'static [u8]]| texts.iter().map(|&b| Element::Bytes(b)).collect();
    let good: Listpack = build(&[b"a", b"1", b"b", b"1", b"c", b"1.5"]);
    assert!(SortedSet::from_listpack(good, &limits(10)).is_ok());
    for bad in [
        &[b"a".as_slice(), b"2", b"b", b"1"][..],
        &[b"b", b"1", b"a", b"1"],
        &[b"a", b"nan"],
        &[b"a", b"x"],
        &[b"a", b"1", b"a", b"2"],
        &[b"a"],
        &[],
    ] {
        assert!(SortedSet::from_listpack(build(bad), &limits(10)).is_err(), "{bad:?}");
    }
}

fn check_ranges(set: &SortedSet, model: &[(i32, Vec<u8>)]) {
    for bound in [-1, 0, 3, 9, 10] {
        let score = f64::from(bound);
        let below = model.iter().filter(|(score, _)| *score < bound).count();
        let through = model.iter().filter(|(score, _)| *score <= bound).count();
        assert_eq!(set.count_below(ScoreBound::At(score)), below);
        assert_eq!(set.count_below(ScoreBound::After(score)), through);
        let range = set.range(below..through);
        assert_eq!(range.len(), through - below);
        let forwards: Vec<_> = range.clone().map(|(member, _)| member.to_vec()).collect();
        let mut backwards: Vec<_> = range.rev().map(|(member, _)| member.to_vec()).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards);
        let expected = model[below..through].iter().map(|(_, member)| member.clone());
        assert_eq!(forwards, expected.collect::<Vec<_>>());
        let skipped = set.range(below..through).nth(2).map(|(member, _)| member.to_vec());
        assert_eq!(skipped.as_ref(), forwards.get(2));
    }
}

proptest! {
    #[test]
    fn a_sorted_set_behaves_as_a_sorted_vector(
        entries in prop_oneof![Just(0_usize), Just(8), Just(1_000)],
        steps in proptest::collection::vec((0_u32..50, 0_i32..10, 0_u8..5), 0..300),
    ) {
        let limits = limits(entries);
        let mut set = SortedSet::new();
        let mut model: Vec<(i32, Vec<u8>)> = Vec::new();
        for (number, score, kind) in steps {
            let member = number.to_string().into_bytes();
            let known = model.iter().position(|(_, other)| *other == member);
            let old = known.map(|at| model[at].0);
            match kind {
                0 => {
                    prop_assert_eq!(set.remove(&member), old.map(f64::from));
                    known.map(|at| model.remove(at));
                }
                1 if number < 5 => {
                    let from = number as usize;
                    let to = (from + score as usize).min(model.len());
                    prop_assert_eq!(set.remove_range(from..to), to.saturating_sub(from));
                    if from < to {
                        model.drain(from..to);
                    }
                }
                _ => {
                    let expected = match old {
                        None => Inserted::Added,
                        Some(old) if old == score => Inserted::Unchanged,
                        Some(old) => Inserted::Moved { from: f64::from(old) },
                    };
                    prop_assert_eq!(set.insert(&member, f64::from(score), &limits), expected);
                    known.map(|at| model.remove(at));
                    let at = model.partition_point(|other| *other < (score, member.clone()));
                    model.insert(at, (score, member.clone()));
                }
            }
            let rank = model.iter().position(|(_, other)| *other == member);
            prop_assert_eq!(set.rank(&member), rank);
            prop_assert_eq!(set.score(&member), rank.map(|at| f64::from(model[at].0)));
            prop_assert_eq!(set.len(), model.len());
        }
        let expected: Vec<_> =
            model.iter().map(|(score, member)| (member.clone(), f64::from(*score))).collect();
        prop_assert_eq!(contents(&set), expected);
        check_ranges(&set, &model);
    }

    #[test]
    fn equal_scores_are_ranged_by_member(
        entries in prop_oneof![Just(0_usize), Just(1_000)],
        members in proptest::collection::btree_set("[a-d]{0,3}", 0..40),
        bound in "[a-d]{0,3}",
    ) {
        let mut set = SortedSet::new();
        for member in &members {
            set.insert(member.as_bytes(), 0.0, &limits(entries));
        }
        let below = members.iter().filter(|member| **member < bound).count();
        let through = members.iter().filter(|member| **member <= bound).count();
        prop_assert_eq!(set.count_before(MemberBound::At(bound.as_bytes())), below);
        prop_assert_eq!(set.count_before(MemberBound::After(bound.as_bytes())), through);
        prop_assert_eq!(set.count_before(MemberBound::First), 0);
        prop_assert_eq!(set.count_before(MemberBound::Last), members.len());
    }
}
