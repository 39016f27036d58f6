use proptest::prelude::*;

use super::*;

fn limits(fill: i32) -> Limits {
    Limits { list_node_size: fill, ..Limits::default() }
}

fn contents(list: &List) -> Vec<Vec<u8>> {
    list.iter().map(Element::to_vec).collect()
}

#[test]
fn it_becomes_a_row_and_one_node_again() {
    let mut list = List::new();
    for number in 0..10 {
        list.push(End::Back, number.to_string().as_bytes(), &limits(4));
    }
    assert_eq!(list.node_count(), 3);
    while list.len() > 2 {
        list.pop_with(End::Front, |_| ());
    }
    assert_eq!(list.node_count(), 1);
    assert!(matches!(list.form, Form::Single(_)));
    assert_eq!(contents(&list), [b"8", b"9"]);
}

#[test]
fn a_large_element_is_shared_by_copies() {
    let mut list = List::new();
    list.push(End::Back, &vec![b'x'; 100_000], &limits(-2));
    assert!(matches!(list.form, Form::Row(_)));
    list.push(End::Back, b"y", &limits(-2));
    assert_eq!(list.node_count(), 2);
    let pinned = list.clone();
    list.pop_with(End::Back, |_| ());
    assert_eq!((pinned.len(), list.len()), (2, 1));
}

#[test]
fn removing_counts_from_the_named_end() {
    let mut list = List::new();
    for element in [b"a", b"b", b"a", b"c", b"a"] {
        list.push(End::Back, element, &limits(2));
    }
    let mut other = list.clone();
    assert_eq!(list.remove(b"a", 2, End::Front), 2);
    assert_eq!(contents(&list), [b"b", b"c", b"a"]);
    assert_eq!(other.remove(b"a", 2, End::Back), 2);
    assert_eq!(contents(&other), [b"a", b"b", b"c"]);
}

#[derive(Clone, Debug)]
enum Step {
    Push(bool, Vec<u8>),
    Pop(bool),
    Set(usize, Vec<u8>),
    Insert(usize, bool, Vec<u8>),
    Remove(u8, usize, bool),
    RemoveRange(usize, usize),
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0_u8..5).prop_map(|number| number.to_string().into_bytes()),
        1 => (1_000_usize..3_000).prop_map(|length| vec![b'x'; length]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), element()).prop_map(|(front, bytes)| Step::Push(front, bytes)),
        1 => any::<bool>().prop_map(Step::Pop),
        1 => (0_usize..60, element()).prop_map(|(at, bytes)| Step::Set(at, bytes)),
        4 => (0_usize..60, any::<bool>(), element())
            .prop_map(|(at, before, bytes)| Step::Insert(at, before, bytes)),
        1 => (0_u8..5, 0_usize..4, any::<bool>())
            .prop_map(|(number, count, front)| Step::Remove(number, count, front)),
        1 => (0_usize..60, 0_usize..12).prop_map(|(at, count)| Step::RemoveRange(at, count)),
    ]
}

fn end(front: bool) -> End {
    if front { End::Front } else { End::Back }
}

fn apply(step: Step, list: &mut List, model: &mut Vec<Vec<u8>>, limits: &Limits) {
    match step {
        Step::Push(front, bytes) => {
            list.push(end(front), &bytes, limits);
            model.insert(if front { 0 } else { model.len() }, bytes);
        }
        Step::Pop(front) => {
            let popped = list.pop_with(end(front), |element| element.to_vec());
            let at = if front { 0 } else { model.len().saturating_sub(1) };
            assert_eq!(popped, (at < model.len()).then(|| model.remove(at)));
        }
        Step::Set(at, bytes) => {
            assert_eq!(list.set(at, &bytes), at < model.len());
            if at < model.len() {
                model[at] = bytes;
            }
        }
        Step::Insert(at, before, bytes) => {
            let inserted = if before {
                list.insert_before(at, &bytes, limits)
            } else {
                list.insert_after(at, &bytes, limits)
            };
            assert_eq!(inserted, at < model.len());
            if inserted {
                model.insert(at + usize::from(!before), bytes);
            }
        }
        Step::Remove(number, count, front) => {
            let wanted = number.to_string().into_bytes();
            let mut indexes: Vec<usize> =
                (0..model.len()).filter(|&at| model[at] == wanted).collect();
            if front {
                indexes.truncate(count);
            } else {
                indexes.drain(..indexes.len().saturating_sub(count));
            }
            assert_eq!(list.remove(&wanted, count, end(front)), indexes.len());
            indexes.iter().rev().for_each(|&at| drop(model.remove(at)));
        }
        Step::RemoveRange(at, count) => {
            let to = (at + count).min(model.len());
            assert_eq!(list.remove_range(at..at + count), to.saturating_sub(at));
            if at < to {
                model.drain(at..to);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_list_behaves_as_a_vector(
        fill in prop_oneof![Just(0), Just(1), Just(3), Just(-1), Just(-2), Just(-9)],
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let limits = limits(fill);
        let mut list = List::new();
        let mut model = Vec::new();
        for step in steps {
            apply(step, &mut list, &mut model, &limits);
            prop_assert_eq!(list.len(), model.len());
            prop_assert!(list.is_empty() || list.nodes().all(|pack| !pack.is_empty()));
            if let Form::Row(nodes) = &list.form {
                prop_assert_eq!(nodes.counted(), (nodes.len(), nodes.heap_bytes()));
            }
        }
        prop_assert_eq!(&contents(&list), &model);
        let mut back: Vec<_> = list.iter().rev().map(Element::to_vec).collect();
        back.reverse();
        prop_assert_eq!(&back, &model);
        for (index, bytes) in model.iter().enumerate() {
            prop_assert!(list.get(index).unwrap() == **bytes);
            prop_assert!(list.range(index..model.len()).next().unwrap() == **bytes);
            prop_assert!(list.range(0..index + 1).next_back().unwrap() == **bytes);
        }
    }
}
