use proptest::prelude::*;

use super::*;

fn value_of(elements: impl IntoIterator<Item = u32>, sparse_max: usize) -> Vec<u8> {
    let limits = Limits { hll_sparse_bytes_max: sparse_max, ..Limits::default() };
    let mut value = new();
    for element in elements {
        add(&mut value, element.to_string().as_bytes(), &limits).unwrap();
    }
    value
}

#[test]
fn counts_are_close_at_every_size() {
    assert_eq!(count(&new()), Ok(0));
    for size in [1_u32, 10, 100, 1_000, 10_000, 100_000] {
        let found = count(&value_of(0..size, 3_000)).unwrap() as f64;
        let error = (found - f64::from(size)).abs() / f64::from(size);
        assert!(error < 0.02, "{size} counted as {found}");
    }
}

#[test]
fn sparse_becomes_dense_past_its_limit() {
    assert_eq!(form(&value_of(0..100, 3_000)), Some(Form::Sparse));
    assert_eq!(form(&value_of(0..100, 50)), Some(Form::Dense));
    assert_eq!(form(&value_of(0..20_000, 3_000)), Some(Form::Dense));
    assert_eq!(value_of(0..20_000, 3_000).len(), DENSE_LEN);
}

#[test]
fn a_count_is_cached_until_a_register_changes() {
    let mut value = new();
    assert_eq!(cached_count(&value), Some(0));
    assert_eq!(add(&mut value, b"a", &Limits::default()), Ok(true));
    assert_eq!(cached_count(&value), None);
    cache_count(&mut value, 1);
    assert_eq!(add(&mut value, b"a", &Limits::default()), Ok(false));
    assert_eq!(cached_count(&value), Some(1));
}

#[test]
fn foreign_strings_are_told_apart() {
    assert_eq!(form(b"HYLL"), None);
    assert_eq!(form(b"not a HyperLogLog at all"), None);
    let mut dense = value_of(0..10, 0);
    assert_eq!(form(&dense), Some(Form::Dense));
    dense.pop();
    assert_eq!(form(&dense), None);
    let mut short = new();
    short.pop();
    assert!(count(&short).is_err());
    assert!(add(&mut short, b"x", &Limits::default()).is_err());
}

#[test]
fn runs_are_described() {
    assert_eq!(describe_runs(&new()).as_deref(), Some("Z:16384"));
    assert_eq!(describe_runs(&value_of(0..10, 0)), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_forms_hold_the_same_registers(
        elements in proptest::collection::vec(0_u32..5_000, 0..400)
    ) {
        let sparse = value_of(elements.iter().copied(), 12_000);
        let dense = value_of(elements.iter().copied(), 0);
        let registers = Registers::of(&sparse).unwrap();
        prop_assert!(registers == Registers::of(&dense).unwrap());
        let mut converted = sparse.clone();
        to_dense(&mut converted).unwrap();
        prop_assert_eq!(&converted[HEADER..], if elements.is_empty() {
            &converted[HEADER..]
        } else {
            &dense[HEADER..]
        });
        let mut merged = new();
        registers.write_to(&mut merged, Form::Sparse, &Limits::default()).unwrap();
        prop_assert!(Registers::of(&merged).unwrap() == registers);
    }

    #[test]
    fn damaged_values_never_panic(
        elements in proptest::collection::vec(0_u32..5_000, 0..50),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut value = value_of(elements, 3_000);
        for (index, byte) in changes {
            let at = HEADER + index.index(value.len() - HEADER);
            value[at] = byte;
        }
        let _ = count(&value);
        let _ = describe_runs(&value);
        for element in 0_u32..20 {
            let _ = add(&mut value, &element.to_le_bytes(), &Limits::default());
        }
        let _ = to_dense(&mut value);
    }
}
