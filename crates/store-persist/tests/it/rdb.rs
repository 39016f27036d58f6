//! Snapshot files of every version, whole and damaged.

use std::io::Read;

use proptest::prelude::*;
use store_persist::rdb::{
    Access, Encoder, EntryHead, Fault, FileReader, FileWriter, Head, Item, LoadedEntry, Part,
    RdbError, SavedEntry, SavedValue, WriteOptions,
};
use store_types::Limits;
use store_types::crc64::crc64;
use store_types::dump::{Value, ValueRef, dump};

const OPTIONS: WriteOptions = WriteOptions { compresses: true, checksums: true };

fn head(options: WriteOptions) -> Head {
    Head {
        options,
        facts: vec![("redis-ver".to_owned(), b"7.0.15".to_vec())],
        functions: vec![b"#!lua name=lib\n".to_vec()],
    }
}

/// A file with one value of each kind, some shared.
fn sample(options: WriteOptions) -> Vec<u8> {
    let limits = Limits::default();
    let mut list = store_types::List::new();
    let mut set = store_types::Set::new();
    let mut hash = store_types::Hash::new();
    let mut zset = store_types::SortedSet::new();
    let mut stream = store_types::Stream::new();
    for n in 0..300_u64 {
        let text = format!("element {n} which is rather long, long enough to be compressed");
        list.push(store_types::End::Back, text.as_bytes(), &limits);
        set.insert(text.as_bytes(), &limits);
        hash.insert(text.as_bytes(), b"1", &limits);
        zset.insert(text.as_bytes(), n as f64, &limits);
        stream.add(store_types::StreamId::new(n + 1, 0), &["f", "v"], &limits);
    }
    let values = [
        Value::String(vec![b'r'; 5000]),
        Value::List(list),
        Value::Set(set),
        Value::Hash(hash),
        Value::SortedSet(zset),
        Value::Stream(stream),
    ];
    let mut encoder = Encoder::new(vec![(6, 1), (6, 1)], options.compresses);
    for (at, value) in values.into_iter().enumerate() {
        let key = format!("key{at}");
        let expires_at = (at == 1).then_some(32_503_680_000_000);
        let access = [Access::None, Access::Idle(70), Access::Frequency(9)][at % 3];
        let head = EntryHead { db: 0, key: key.as_bytes(), expires_at, access };
        encoder.copy(head, value.as_ref());
        let (key, value) = (key.into_bytes().into(), SavedValue::Value(value));
        encoder.share(SavedEntry { db: 1, key, expires_at, access, value });
    }
    let mut file = FileWriter::begin(Vec::new(), &head(options)).unwrap();
    encoder.take_parts().iter().for_each(|part| file.part(part).unwrap());
    file.finish().unwrap().0
}

fn read(bytes: &[u8]) -> Result<Vec<Item>, RdbError> {
    let mut file = FileReader::begin(bytes, Limits::default())?;
    let mut items = Vec::new();
    while let Some(item) = file.next_item()? {
        items.push(item);
    }
    Ok(items)
}

fn entries(bytes: &[u8]) -> Vec<LoadedEntry> {
    let entry = |item| if let Item::Entry(entry) = item { Some(entry) } else { None };
    let items = read(bytes).unwrap_or_else(|error| panic!("{error}"));
    items.into_iter().filter_map(entry).collect()
}

fn fault(bytes: &[u8]) -> (u64, Fault) {
    match read(bytes) {
        Err(RdbError::Damaged { offset, fault }) => (offset, fault),
        other => panic!("{other:?}"),
    }
}

/// A file of an old version around some records; those from 5 on end in a checksum.
fn old_file(version: u16, records: &[u8]) -> Vec<u8> {
    let mut bytes = format!("REDIS{version:04}").into_bytes();
    bytes.extend_from_slice(records);
    bytes.push(255);
    if version >= 5 {
        let checksum = crc64(0, &bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

fn text(value: &Value) -> String {
    match value {
        Value::String(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{:?}", dump(other.as_ref(), None)),
    }
}

#[test]
fn what_was_written_is_read_again() {
    for options in [OPTIONS, WriteOptions { compresses: false, checksums: false }] {
        let bytes = sample(options);
        let entries = entries(&bytes);
        assert_eq!(entries.len(), 12);
        for pair in entries.chunks(2) {
            assert_eq!((pair[0].db, pair[1].db), (0, 1));
            assert_eq!(pair[0].key, pair[1].key);
            assert_eq!((pair[0].expires_at, pair[0].access), (pair[1].expires_at, pair[1].access));
        }
        assert_eq!(entries[2].expires_at, Some(32_503_680_000_000));
        assert_eq!(
            (entries[2].access, entries[4].access),
            (Access::Idle(70), Access::Frequency(9))
        );
    }
}

#[test]
fn compression_makes_the_file_smaller_wherever_it_happens() {
    let plain = sample(WriteOptions { compresses: false, ..OPTIONS });
    let packed = sample(OPTIONS);
    assert!(packed.len() * 3 < plain.len() * 2, "{} and {}", packed.len(), plain.len());
}

#[test]
fn a_string_split_over_many_reads_is_put_together() {
    struct Drops<'a>(&'a [u8]);
    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(buffer.len()).min(3);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }
    let bytes = sample(OPTIONS);
    let mut with_more = bytes.clone();
    with_more.extend_from_slice(b"*1\r\n");
    let mut file = FileReader::begin(Drops(&with_more), Limits::default()).unwrap();
    while file.next_item().unwrap().is_some() {}
    assert_eq!(file.offset(), bytes.len() as u64);
    let (mut rest, mut read) = file.into_rest();
    rest.read_to_end(&mut read).unwrap();
    assert_eq!(read, b"*1\r\n", "what follows the file is not lost");
}

/// Such strings are taken out of the buffer as they are, with others before and behind them.
#[test]
fn large_strings_between_small_ones_are_read_whole() {
    let mut records = Vec::new();
    let lens = [10, 3_000_000, 5, 2 << 20, 9_000_000, 1 << 20, 7];
    for (number, len) in lens.into_iter().enumerate() {
        records.extend([0, 1, b'a' + number as u8, 0x80]);
        records.extend((len as u32).to_be_bytes());
        records.extend((0..len).map(|at| (at % 251) as u8 ^ number as u8));
    }
    let loaded = entries(&old_file(9, &records));
    assert_eq!(loaded.len(), lens.len());
    for ((number, len), entry) in lens.into_iter().enumerate().zip(loaded) {
        assert_eq!(entry.key, [b'a' + number as u8]);
        let Value::String(bytes) = entry.value else { panic!("{:?}", entry.key) };
        let wrong = (0..len).find(|&at| bytes.get(at) != Some(&((at % 251) as u8 ^ number as u8)));
        assert_eq!((bytes.len(), wrong), (len, None));
    }
}

#[test]
fn versions_one_to_nine_load_with_their_old_encodings() {
    let zipmap: &[u8] = b"\x02\x03foo\x03\x00bar\x05hello\x05\x00world\xff";
    // Total bytes, offset of the last entry, entries; then "a" and 7.
    let ziplist: &[u8] = b"\x10\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xf8\xff";
    let blob = |code: u8, key: &[u8], bytes: &[u8]| {
        let mut record = vec![code, key.len() as u8];
        record.extend_from_slice(key);
        record.push(bytes.len() as u8);
        record.extend_from_slice(bytes);
        record
    };
    let string = b"\xfe\x00\x00\x01s\x05hello".to_vec();
    let seconds = b"\xfd\x00\x00\x00\x7f\x00\x01e\xc0\x07".to_vec();
    let list = b"\x01\x01l\x02\x01a\x01b".to_vec();
    let set = b"\x02\x01t\x02\x01a\xc0\x05".to_vec();
    let zset = b"\x03\x01z\x02\x01a\x031.5\x01b\xfe".to_vec();
    let hash = b"\x04\x01h\x01\x01f\x01v".to_vec();
    let old: Vec<(u16, Vec<u8>)> = vec![
        (1, string),
        (1, seconds),
        (1, list),
        (1, set),
        (1, zset),
        (1, hash),
        (2, blob(9, b"m", zipmap)),
        (2, blob(10, b"zl", ziplist)),
        (2, blob(11, b"is", b"\x02\0\0\0\x02\0\0\0\x01\0\x02\0")),
        (4, blob(13, b"hz", ziplist)),
        (8, b"\x05\x01q\x01\x01a\x00\x00\x00\x00\x00\x00\xf8\x3f".to_vec()),
    ];
    for from in 1..=10 {
        let records: Vec<u8> = old
            .iter()
            .filter(|(since, _)| *since <= from)
            .flat_map(|(_, record)| record.clone())
            .collect();
        let loaded = entries(&old_file(from, &records));
        assert_eq!(text(&loaded[0].value), "hello");
        assert_eq!(loaded[1].expires_at, Some(0x7f00_0000 * 1000), "seconds there");
        assert_eq!(text(&loaded[1].value), "7");
        assert_eq!(loaded.len(), old.iter().filter(|(since, _)| *since <= from).count());
        if from >= 2 {
            let Value::Hash(hash) = &loaded[6].value else { panic!("the zipmap is no hash") };
            assert_eq!(hash.len(), 2);
            let Value::List(list) = &loaded[7].value else { panic!("the ziplist is no list") };
            assert_eq!(list.len(), 2);
        }
    }
}

#[test]
fn modules_are_skipped_beside_the_keys_and_refused_as_values() {
    // "when" 2, an unsigned 5, a double, a string, the end.
    let fact = b"\xf7\x81\x5b\xd3\x1e\x8d\x7b\x9d\x08\x00\x02\x02\x02\x05\x04\0\0\0\0\0\0\0\0\x05\x01x\x00";
    let mut records = fact.to_vec();
    records.extend_from_slice(b"\x00\x01k\x01v");
    let items = read(&old_file(9, &records)).unwrap();
    assert!(matches!(&items[..], [Item::ModuleFact(name), Item::Entry(_)] if name.len() == 9));

    let (_, fault) = fault(&old_file(9, b"\x07\x01k\x81\x5b\xd3\x1e\x8d\x7b\x9d\x08\x00\x00"));
    assert!(matches!(&fault, Fault::Module { key, .. } if key == b"k"), "{fault}");
    assert!(fault.next_step().contains("modules"));
}

#[test]
fn an_empty_collection_is_told_apart_and_left_out() {
    let items = read(&old_file(9, b"\x02\x01e\x00\x00\x01k\x01v")).unwrap();
    assert!(matches!(&items[..], [Item::EmptyKey(key), Item::Entry(_)] if key == b"e"));
}

#[test]
fn damage_is_told_with_its_place() {
    assert_eq!(fault(b""), (0, Fault::NoRdb));
    assert_eq!(fault(b"RED"), (0, Fault::NoRdb));
    assert_eq!(fault(b"*3\r\n$3\r\nSET\r\n"), (0, Fault::NoRdb));
    assert_eq!(fault(b"REDIS0011\xff"), (0, Fault::Version(11)));
    assert_eq!(fault(b"REDIS0000\xff"), (0, Fault::Version(0)));
    assert_eq!(fault(b"REDIS0009\x00\x05ke"), (13, Fault::Truncated));
    assert_eq!(fault(b"REDIS0009\xf6\x00").1, Fault::PreReleaseFunction);
    let mut bytes = sample(OPTIONS);
    let length = bytes.len();
    bytes[length - 3] ^= 0x10;
    assert!(matches!(fault(&bytes), (at, Fault::Checksum { .. }) if at == length as u64 - 8));
    let (at, damaged) = fault(&old_file(9, b"\x0a\x01k\x03abc"));
    assert!(matches!(&damaged, Fault::Value { key, .. } if key == b"k"), "{damaged}");
    assert_eq!(at, 9 + 3 + 4);
    assert!(damaged.to_string().contains("key \"k\""), "{damaged}");
}

#[test]
fn a_false_length_takes_no_memory() {
    for records in [
        &b"\x00\x01k\x81\x7f\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\x02\x01k\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x05\x01k\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x01k\xc3\x04\x81\x7f\xff\xff\xff\xff\xff\xff\xffabcd",
        b"\xfa\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
    ] {
        read(&old_file(9, records)).expect_err("so much is not there");
    }
}

/// What a part of a run looks like must not matter to the file.
#[test]
fn databases_may_alternate() {
    let mut encoder = Encoder::new(vec![(2, 0), (0, 0), (1, 0)], false);
    for (db, key) in [(0, "a"), (2, "b"), (0, "c")] {
        let key = key.as_bytes();
        let head = EntryHead { db, key, expires_at: None, access: Access::None };
        encoder.copy(head, ValueRef::String(key));
    }
    let parts = encoder.take_parts();
    assert!(matches!(&parts[..], [Part::Run(_)]));
    let mut file = FileWriter::begin(Vec::new(), &head(OPTIONS)).unwrap();
    parts.iter().for_each(|part| file.part(part).unwrap());
    let bytes = file.finish().unwrap().0;
    let found: Vec<(u64, String)> =
        entries(&bytes).iter().map(|entry| (entry.db, text(&entry.value))).collect();
    assert_eq!(found, [(0, "a".to_owned()), (2, "b".to_owned()), (0, "c".to_owned())]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_cut_file_is_never_taken_for_a_whole_one(cut in any::<prop::sample::Index>()) {
        let bytes = sample(OPTIONS);
        let cut = cut.index(bytes.len());
        prop_assert!(read(&bytes[..cut]).is_err());
    }

    #[test]
    fn a_flipped_bit_is_noticed(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut bytes = sample(OPTIONS);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn without_a_checksum_damage_is_refused_or_harmless(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = sample(WriteOptions { compresses: true, checksums: false });
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // Whatever comes of it: no panic, and values that can be saved again.
        if let Ok(items) = read(&bytes) {
            for item in items {
                if let Item::Entry(entry) = item {
                    dump(entry.value.as_ref(), None);
                }
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(version in 1_u16..11, bytes: Vec<u8>) {
        let _ = read(&old_file(version, &bytes));
        let _ = read(&bytes);
    }
}

/// A file of version 9 with this in front of one string, and a checksum.
fn with_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut bytes = [b"REDIS0009\xfe\x00", prefix, b"\x00\x01a\x01x\xff"].concat();
    let sum = crc64(0, &bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn first_entry(bytes: &[u8]) -> LoadedEntry {
    let mut file = FileReader::begin(bytes, Limits::default()).unwrap();
    match file.next_item().unwrap() {
        Some(Item::Entry(entry)) => entry,
        other => panic!("no entry: {other:?}"),
    }
}

#[test]
fn an_end_of_minus_one_is_none_and_an_idle_time_beyond_reason_says_nothing() {
    let millis = |unix_ms: i64| [&[0xfc][..], &unix_ms.to_le_bytes()].concat();
    assert_eq!(first_entry(&with_prefix(&millis(-1))).expires_at, None);
    assert_eq!(first_entry(&with_prefix(&millis(-2))).expires_at, Some(0));
    assert_eq!(first_entry(&with_prefix(&millis(7))).expires_at, Some(7));
    let idle = |seconds: u64| [&[0xf8, 0x81][..], &seconds.to_be_bytes()].concat();
    assert_eq!(first_entry(&with_prefix(&idle(u64::MAX))).access, Access::default());
    assert_eq!(first_entry(&with_prefix(&idle(1 << 62))).access, Access::Idle(1 << 62));
}

#[test]
fn a_wrong_checksum_counts_only_where_checksums_do() {
    let mut bytes = with_prefix(b"");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    for verifies in [true, false] {
        let mut file = FileReader::begin(&bytes[..], Limits::default()).unwrap();
        file.verify_checksum(verifies);
        file.next_item().unwrap();
        assert_eq!(file.next_item().is_err(), verifies);
    }
}
