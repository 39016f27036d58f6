use proptest::prelude::*;

use super::*;

fn pack(elements: &[&[u8]]) -> Listpack {
    elements.iter().map(|&bytes| Element::Bytes(bytes)).collect()
}

fn contents(pack: &Listpack) -> Vec<Vec<u8>> {
    pack.iter().map(Element::to_vec).collect()
}

#[test]
fn every_encoding_is_the_one_redis_writes() {
    let cases: [(&[u8], &[u8]); 12] = [
        (b"0", &[0x00, 1]),
        (b"127", &[0x7f, 1]),
        (b"128", &[0xc0, 0x80, 2]),
        (b"-1", &[0xdf, 0xff, 2]),
        (b"-4096", &[0xd0, 0x00, 2]),
        (b"4096", &[0xf1, 0x00, 0x10, 3]),
        (b"-32769", &[0xf2, 0xff, 0x7f, 0xff, 4]),
        (b"8388608", &[0xf3, 0x00, 0x00, 0x80, 0x00, 5]),
        (b"4294967296", &[0xf4, 0, 0, 0, 0, 1, 0, 0, 0, 9]),
        (b"a", &[0x81, b'a', 2]),
        (b"", &[0x80, 1]),
        (b"01", &[0x82, b'0', b'1', 3]),
    ];
    for (element, expected) in cases {
        let pack = pack(&[element]);
        assert_eq!(&pack.as_bytes()[HEADER..pack.end()], expected, "{element:?}");
    }
}

#[test]
fn long_text_has_longer_heads_and_back_lengths() {
    for (length, head, tail) in [
        (63, 1, 1),
        (64, 2, 1),
        (125, 2, 1),
        (126, 2, 2),
        (4095, 2, 2),
        (4096, 5, 2),
        (16_377, 5, 2),
        (16_378, 5, 3),
        (2_097_146, 5, 4),
    ] {
        let text = vec![b'x'; length];
        let pack = pack(&[&text, b"end"]);
        assert_eq!(pack.as_bytes().len(), HEADER + head + length + tail + 5 + 1, "{length}");
        assert_eq!(pack.iter().next(), Some(Element::Bytes(&text)));
        assert_eq!(Listpack::from_bytes(pack.as_bytes().to_vec()).as_ref(), Ok(&pack));
    }
}

#[test]
fn find_skips_the_values_of_pairs() {
    let pack = pack(&[b"a", b"b", b"b", b"7", b"7", b"c"]);
    let first = pack.first().unwrap();
    assert_eq!(pack.find(first, b"b", 1), pack.seek(2));
    assert_eq!(pack.find(first, b"7", 1), pack.seek(4));
    assert_eq!(pack.find(first, b"c", 1), None);
    assert_eq!(pack.find(first, b"c", 0), pack.seek(5));
}

#[test]
fn a_count_past_sixteen_bits_is_still_right() {
    let mut pack = Listpack::new();
    for _ in 0..70_000 {
        pack.push_back(b"1");
    }
    assert_eq!(pack.len(), 70_000);
    assert_eq!(pack.seek(69_999), pack.last());
    pack.remove_range(0, 69_000);
    assert_eq!(pack.len(), 1_000);
    assert!(Listpack::from_bytes(pack.as_bytes().to_vec()).is_ok());
}

#[derive(Clone, Debug)]
enum Step {
    PushBack(Vec<u8>),
    PushFront(Vec<u8>),
    InsertBefore(usize, Vec<u8>),
    InsertAfter(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    Remove(usize, usize),
    SplitAndJoin(usize),
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        (any::<i64>(), 0_u32..64)
            .prop_map(|(value, shift)| (value >> shift).to_string().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..10),
        proptest::collection::vec(any::<u8>(), 50..140),
        (4_000_usize..4_200).prop_map(|length| vec![b'z'; length]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        element().prop_map(Step::PushBack),
        element().prop_map(Step::PushFront),
        (0_usize..40, element()).prop_map(|(at, bytes)| Step::InsertBefore(at, bytes)),
        (0_usize..40, element()).prop_map(|(at, bytes)| Step::InsertAfter(at, bytes)),
        (0_usize..40, element()).prop_map(|(at, bytes)| Step::Replace(at, bytes)),
        (0_usize..40, 0_usize..5).prop_map(|(at, count)| Step::Remove(at, count)),
        (0_usize..40).prop_map(Step::SplitAndJoin),
    ]
}

fn apply(step: Step, pack: &mut Listpack, model: &mut Vec<Vec<u8>>) {
    match step {
        Step::PushBack(bytes) => {
            pack.push_back(&bytes);
            model.push(bytes);
        }
        Step::PushFront(bytes) => {
            pack.push_front(&bytes);
            model.insert(0, bytes);
        }
        Step::InsertBefore(at, bytes) if at < model.len() => {
            pack.insert_before(pack.seek(at).unwrap(), Element::Bytes(&bytes));
            model.insert(at, bytes);
        }
        Step::InsertAfter(at, bytes) if at < model.len() => {
            pack.insert_after(pack.seek(at).unwrap(), Element::Bytes(&bytes));
            model.insert(at + 1, bytes);
        }
        Step::Replace(at, bytes) if at < model.len() => {
            pack.replace(pack.seek(at).unwrap(), Element::Bytes(&bytes));
            model[at] = bytes;
        }
        Step::Remove(at, count) => {
            pack.remove_range(at, count);
            if at < model.len() {
                model.drain(at..(at + count).min(model.len()));
            }
        }
        Step::SplitAndJoin(at) => {
            let tail = pack.split_off(at);
            assert_eq!(tail.len(), model.len().saturating_sub(at));
            pack.append(&tail);
        }
        _ => assert!(pack.seek(model.len()).is_none()),
    }
}

proptest! {
    #[test]
    fn a_listpack_behaves_as_a_vector(steps in proptest::collection::vec(step(), 0..40)) {
        let mut pack = Listpack::new();
        let mut model = Vec::new();
        for step in steps {
            apply(step, &mut pack, &mut model);
            prop_assert_eq!(&contents(&pack), &model);
            prop_assert_eq!(pack.len(), model.len());
            let mut backwards: Vec<_> = pack.iter().rev().map(Element::to_vec).collect();
            backwards.reverse();
            prop_assert_eq!(&backwards, &model);
            prop_assert_eq!(Listpack::from_bytes(pack.as_bytes().to_vec()), Ok(pack.clone()));
            for (index, bytes) in model.iter().enumerate() {
                let found = pack.find(pack.first().unwrap(), bytes, 0).unwrap();
                prop_assert!(found <= pack.seek(index).unwrap());
                prop_assert!(pack.get(found) == **bytes);
            }
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_harmless(
        elements in proptest::collection::vec(element(), 0..8),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in 0_usize..4,
    ) {
        let pack: Listpack = elements.iter().map(|bytes| Element::Bytes(bytes)).collect();
        let mut bytes = pack.as_bytes().to_vec();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut);
        if let Ok(mut pack) = Listpack::from_bytes(bytes) {
            let forwards = contents(&pack);
            let mut backwards: Vec<_> = pack.iter().rev().map(Element::to_vec).collect();
            backwards.reverse();
            prop_assert_eq!(forwards, backwards);
            pack.push_back(b"more");
            pack.remove_range(0, 2);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let _ = Listpack::from_bytes(bytes);
    }
}

#[test]
fn entries_that_become_shorter_give_their_room_back() {
    let mut pack = pack(&[&[b'x'; 1000][..]; 8]);
    for index in 0..8 {
        pack.replace(pack.seek(index).unwrap(), Element::Bytes(b"y"));
    }
    assert_eq!(contents(&pack), [b"y"; 8]);
    assert!(pack.heap_bytes() < 200, "{} bytes for eight letters", pack.heap_bytes());
}
