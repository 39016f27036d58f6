use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Element;

fn id(ms: u64) -> StreamId {
    StreamId::new(ms, 0)
}

fn filled(count: u64) -> Stream {
    let limits = Limits { stream_node_entries_max: 10, ..Limits::default() };
    let mut stream = Stream::new();
    for ms in 1..=count {
        assert!(stream.add(id(ms), &["n", &ms.to_string()], &limits));
    }
    stream
}

fn ids(stream: &Stream) -> Vec<u64> {
    stream.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id.ms).collect()
}

#[test]
fn names_only_grow() {
    let mut stream = filled(3);
    assert!(!stream.add(id(3), &["a", "b"], &Limits::default()));
    assert!(!Stream::new().add(StreamId::MIN, &["a", "b"], &Limits::default()));
    assert!(stream.add(StreamId::new(3, 1), &["a", "b"], &Limits::default()));
    assert_eq!((stream.len(), stream.last_id()), (4, StreamId::new(3, 1)));
}

#[test]
fn an_entry_with_other_fields_keeps_them() {
    let mut stream = filled(1);
    stream.add(id(2), &["x", "1", "y", "two"], &Limits::default());
    stream.add(id(3), &["n", "3"], &Limits::default());
    let fields = |ms| -> Vec<(Vec<u8>, Vec<u8>)> {
        let entry = stream.get(id(ms)).unwrap();
        entry.fields.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    };
    assert_eq!(fields(2), [(b"x".to_vec(), b"1".to_vec()), (b"y".to_vec(), b"two".to_vec())]);
    assert_eq!(fields(3), [(b"n".to_vec(), b"3".to_vec())]);
    assert_eq!(stream.node_count(), 1);
}

#[test]
fn rough_trimming_takes_whole_nodes_and_keeps_to_its_limit() {
    let mut stream = filled(100);
    assert_eq!(stream.trim(Trim::Roughly { to: TrimTo::MaxLen(45), removed_max: 0 }), 50);
    let to = TrimTo::MinId(id(85));
    assert_eq!(stream.trim(Trim::Roughly { to, removed_max: 25 }), 20);
    assert_eq!(stream.first_id(), id(71));
    assert_eq!(stream.trim(Trim::Exactly(to)), 14);
    assert_eq!((stream.first_id(), stream.len()), (id(85), 16));
    assert_eq!(stream.trim(Trim::Exactly(TrimTo::MaxLen(0))), 16);
    assert_eq!((stream.first_id(), stream.node_count()), (StreamId::MIN, 0));
    assert_eq!((stream.last_id(), stream.entries_added()), (id(100), 100));
}

#[test]
fn a_group_knows_its_lag_until_deletions_hide_it() {
    let mut stream = filled(10);
    stream.create_group(b"g", Group::new(StreamId::MIN, None));
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), Some(10));
    stream.advance_group(b"g", id(1));
    stream.advance_group(b"g", id(2));
    assert_eq!(stream.group(b"g").unwrap().entries_read(), Some(2));
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), Some(8));
    stream.remove(id(5));
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), None);
    (3..=10).filter(|ms| *ms != 5).for_each(|ms| stream.advance_group(b"g", id(ms)));
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), Some(0));
}

#[test]
fn a_claimed_entry_has_one_owner() {
    let mut group = Group::new(StreamId::MIN, None);
    assert!(group.touch_consumer(b"ada", 5) && group.touch_consumer(b"bob", 5));
    assert!(!group.create_consumer(b"bob", 9));
    assert!(group.assign(id(1), b"ada", 10, 1));
    assert!(group.assign(id(1), b"bob", 20, 2));
    assert!(!group.assign(id(1), b"eve", 20, 2));
    assert!(group.consumer(b"ada").unwrap().pending().is_empty());
    assert_eq!(group.pending()[&id(1)].deliveries, 2);
    assert!(group.assign(id(2), b"bob", 30, 1));
    assert!(group.acknowledge(id(1)) && !group.acknowledge(id(1)));
    assert_eq!(group.remove_consumer(b"bob"), Some(1));
    assert!(group.pending().is_empty());
}

#[test]
fn a_damaged_node_is_refused() {
    let stream = filled(3);
    let (first, pack) = stream.nodes().next().unwrap();
    assert!(Stream::new().push_node(first, pack.clone()).is_ok());
    assert!(Stream::new().push_node(first, Listpack::new()).is_err());
    let mut short = pack.clone();
    short.remove(short.last().unwrap());
    assert!(Stream::new().push_node(first, short).is_err());
    let mut miscounted = pack.clone();
    miscounted.replace(miscounted.first().unwrap(), Element::Int(7));
    assert!(Stream::new().push_node(first, miscounted).is_err());
    let mut twice = Stream::new();
    twice.push_node(first, pack.clone()).unwrap();
    assert!(twice.push_node(first, pack.clone()).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Add(u64, Vec<(u8, u8)>),
    Remove(prop::sample::Index),
    Trim(usize),
    TrimBelow(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u64..3, proptest::collection::vec((0_u8..3, any::<u8>()), 1..4))
            .prop_map(|(gap, fields)| Step::Add(gap, fields)),
        3 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (0_usize..60).prop_map(Step::Trim),
        1 => any::<prop::sample::Index>().prop_map(Step::TrimBelow),
    ]
}

type Model = BTreeMap<StreamId, Vec<(String, String)>>;

fn apply(step: Step, stream: &mut Stream, model: &mut Model, limits: &Limits) {
    let pick = |index: prop::sample::Index, model: &Model| {
        (!model.is_empty()).then(|| *model.keys().nth(index.index(model.len())).unwrap())
    };
    match step {
        Step::Add(gap, fields) => {
            let last = stream.last_id();
            let id = match gap {
                0 => last.next().unwrap(),
                gap => StreamId::new(last.ms + gap, gap % 2),
            };
            let pairs: Vec<(String, String)> =
                fields.iter().map(|(f, v)| (format!("f{f}"), v.to_string())).collect();
            let flat: Vec<&str> =
                pairs.iter().flat_map(|(f, v)| [f.as_str(), v.as_str()]).collect();
            assert!(stream.add(id, &flat, limits));
            model.insert(id, pairs);
        }
        Step::Remove(index) => match pick(index, model) {
            Some(id) => {
                assert!(stream.remove(id) && !stream.remove(id));
                model.remove(&id);
            }
            None => assert!(!stream.remove(StreamId::new(1, 1))),
        },
        Step::Trim(length) => {
            let removed = model.len().saturating_sub(length);
            assert_eq!(stream.trim(Trim::Exactly(TrimTo::MaxLen(length as u64))), removed as u64);
            for _ in 0..removed {
                model.pop_first();
            }
        }
        Step::TrimBelow(index) => {
            let Some(id) = pick(index, model) else { return };
            let kept = model.split_off(&id);
            let removed = std::mem::replace(model, kept).len();
            assert_eq!(stream.trim(Trim::Exactly(TrimTo::MinId(id))), removed as u64);
        }
    }
}

proptest! {
    #[test]
    fn a_stream_behaves_as_an_ordered_map(
        entries_max in 1_usize..12,
        steps in proptest::collection::vec(step(), 0..150),
        bounds in (0_u64..100, 0_u64..100),
    ) {
        let limits = Limits { stream_node_entries_max: entries_max, ..Limits::default() };
        let mut stream = Stream::new();
        let mut model = Model::new();
        for step in steps {
            apply(step, &mut stream, &mut model, &limits);
            prop_assert_eq!(stream.len(), model.len());
            let first = model.keys().next().copied().unwrap_or_default();
            prop_assert_eq!(stream.first_id(), first);
            let bytes: usize = stream.nodes.values().map(|pack| own_bytes(pack)).sum();
            prop_assert_eq!(stream.heap_bytes(), bytes);
        }
        let found: Model = stream
            .range(StreamId::MIN, StreamId::MAX)
            .map(|entry| (entry.id, entry.fields.map(|(f, v)| {
                let text = |element: Element<'_>| String::from_utf8(element.to_vec()).unwrap();
                (text(f), text(v))
            }).collect()))
            .collect();
        prop_assert_eq!(&found, &model);
        let (start, end) = (id(bounds.0), id(bounds.1));
        let expected: Vec<StreamId> =
            model.keys().copied().filter(|id| (start..=end).contains(id)).collect();
        let forwards: Vec<_> = stream.range(start, end).map(|entry| entry.id).collect();
        let mut backwards: Vec<_> = stream.range_back(start, end).map(|entry| entry.id).collect();
        backwards.reverse();
        prop_assert_eq!(&forwards, &expected);
        prop_assert_eq!(&backwards, &expected);
        let mut copy = Stream::new();
        for (first, pack) in stream.nodes() {
            prop_assert_eq!(copy.push_node(first, pack.clone()), Ok(()));
        }
        prop_assert_eq!(ids(&copy), ids(&stream));
    }
}
