use proptest::prelude::*;

use super::*;
use crate::{Element, End, Group, StreamId};

fn list_of(elements: &[Vec<u8>], limits: &Limits) -> Value {
    let mut list = List::new();
    elements.iter().for_each(|element| list.push(End::Back, element, limits));
    Value::List(list)
}

fn values(elements: &[Vec<u8>], limits: &Limits) -> Vec<Value> {
    let mut set = Set::new();
    let mut integers = Set::new();
    let mut hash = Hash::new();
    let mut sorted = SortedSet::new();
    let mut stream = Stream::new();
    for (index, element) in elements.iter().enumerate() {
        set.insert(element, limits);
        integers.insert((index * 1_000).to_string().as_bytes(), limits);
        hash.insert(element, index.to_string().as_bytes(), limits);
        sorted.insert(element, index as f64 / 3.0, limits);
        let id = StreamId::new(index as u64 + 1, 0);
        stream.add(id, &[b"field".as_slice(), element], limits);
    }
    let mut group = Group::new(StreamId::new(1, 0), Some(1));
    group.touch_consumer(b"ada", 17);
    group.assign(StreamId::new(1, 0), b"ada", 18, 2);
    stream.create_group(b"readers", group);
    vec![
        Value::String(elements.concat()),
        list_of(elements, limits),
        Value::Set(set),
        Value::Set(integers),
        Value::Hash(hash),
        Value::SortedSet(sorted),
        Value::Stream(stream),
    ]
}

/// A text that says all there is to a value, whatever order a table has.
fn describe(value: &Value) -> String {
    let text = |element: Element<'_>| element.to_vec().escape_ascii().to_string();
    let mut parts: Vec<String> = match value {
        Value::String(bytes) => vec![bytes.escape_ascii().to_string()],
        Value::List(list) => return list.iter().map(text).collect::<Vec<_>>().join(" "),
        Value::Set(set) => set.iter().map(text).collect(),
        Value::Hash(hash) => {
            hash.iter().map(|(field, value)| text(field) + "=" + &text(value)).collect()
        }
        Value::SortedSet(set) => {
            set.iter().map(|(member, score)| format!("{score}:{}", text(member))).collect()
        }
        Value::Stream(_) => return dump(value.as_ref(), None).escape_ascii().to_string(),
    };
    parts.sort();
    parts.join(" ")
}

#[test]
fn the_smallest_payload_is_the_one_redis_makes() {
    let payload = dump(ValueRef::String(b"hello"), None);
    assert_eq!(payload[..8], *b"\x00\x05hello\x0a");
    assert_eq!(dump(ValueRef::String(b"-7"), None)[..4], [0, 0xc0, 0xf9, 10]);
}

#[test]
fn false_counts_take_no_memory() {
    for code in [1, 2, 3, 4, 5, 14, 15, 18, 19] {
        let mut body = vec![0x81];
        body.extend_from_slice(&u64::MAX.to_be_bytes());
        let loaded = load_value(code, &mut Reader::new(&body), &Limits::default());
        assert_eq!(loaded.err(), Some(LoadError::Truncated), "type {code}");
    }
}

#[test]
fn unknown_types_and_empty_collections_are_told_apart() {
    let load = |code, bytes: &[u8]| {
        load_value(code, &mut Reader::new(bytes), &Limits::default()).err().unwrap()
    };
    for code in [6, 7, 8, 20, 21, 200] {
        assert_eq!(load(code, b""), LoadError::UnknownType(code));
    }
    for code in [1, 2, 3, 4, 5, 14, 18] {
        assert_eq!(load(code, &[0]), LoadError::Empty);
    }
    assert!(matches!(load(18, &[1, 3, 0]), LoadError::Damaged(_)));
    assert!(matches!(load(18, &[1, 1, 0]), LoadError::Damaged(_)), "a plain node without bytes");
    assert!(matches!(load(2, &[2, 1, b'a', 1, b'a']), LoadError::Damaged(_)));
}

#[test]
fn a_payload_changed_on_the_way_is_refused() {
    let payload = dump(ValueRef::String(b"hello"), None);
    for at in 0..payload.len() {
        let mut changed = payload.clone();
        changed[at] ^= 1;
        let refused = restore(&changed, &Limits::default()).unwrap_err();
        assert_eq!(refused, RestoreError::Footer);
    }
    assert_eq!(restore(b"", &Limits::default()).unwrap_err(), RestoreError::Footer);
}

#[test]
fn scores_of_old_versions_are_text() {
    let body = b"\x02\x01a\x031.5\x01b\xfe";
    let Ok(Value::SortedSet(set)) = load_value(3, &mut Reader::new(body), &Limits::default())
    else {
        panic!("an old sorted set");
    };
    assert_eq!((set.score(b"a"), set.score(b"b")), (Some(1.5), Some(f64::INFINITY)));
    assert!(load_value(3, &mut Reader::new(b"\x01\x01a\xfd"), &Limits::default()).is_err());
}

fn elements() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let element = prop_oneof![
        (any::<i64>(), 0_u32..64).prop_map(|(v, shift)| (v >> shift).to_string().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..30),
        (10_usize..200).prop_map(|length| vec![b'r'; length]),
    ];
    proptest::collection::vec(element, 1..60)
}

fn small_limits() -> Limits {
    Limits {
        hash_listpack_entries_max: 16,
        set_intset_entries_max: 16,
        zset_listpack_entries_max: 16,
        list_node_size: 8,
        stream_node_entries_max: 10,
        ..Limits::default()
    }
}

proptest! {
    #[test]
    fn every_value_survives_its_payload(elements in elements(), compress: bool) {
        let limits = small_limits();
        for value in values(&elements, &limits) {
            let mut compressor = Compressor::new();
            let payload = dump(value.as_ref(), compress.then_some(&mut compressor));
            let back = restore(&payload, &limits).unwrap();
            prop_assert_eq!(describe(&back), describe(&value));
            prop_assert_eq!(type_code(back.as_ref()), type_code(value.as_ref()));
            let mut body = Reader::new(&payload[1..payload.len() - FOOTER]);
            load_value(payload[0], &mut body, &limits).unwrap();
            prop_assert!(body.rest().is_empty());
        }
    }

    #[test]
    fn damaged_values_are_refused_or_usable(
        elements in elements(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let limits = small_limits();
        for value in values(&elements, &limits) {
            let mut payload = dump(value.as_ref(), None);
            payload.truncate(payload.len() - FOOTER);
            let cut_at = cut.index(payload.len());
            let mut short = Reader::new(&payload[1..cut_at.max(1)]);
            prop_assert!(load_value(payload[0], &mut short, &limits).is_err());
            for (index, byte) in &changes {
                let at = index.index(payload.len());
                payload[at] = *byte;
            }
            if let Ok(loaded) = load_value(payload[0], &mut Reader::new(&payload[1..]), &limits) {
                let again = dump(loaded.as_ref(), None);
                prop_assert!(restore(&again, &limits).is_ok());
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(code in 0_u8..22, bytes: Vec<u8>) {
        let _ = load_value(code, &mut Reader::new(&bytes), &Limits::default());
    }
}
