//! Snapshot files: whatever lies in the store's folder when it starts.

use std::io::Read;

use store_engine::{Config, EndedKeys, Engine, Identity, LoadOptions, NoPlatform, check_snapshot};
use store_persist::rdb::{FileReader, Item};
use store_types::Limits;
use store_types::dump::{dump, restore};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "snapshot",
    about: "RDB files, without their checksum",
    run,
    words: &[
        b"REDIS0010",
        b"REDIS0003",
        b"\xfa",
        b"\xfb\x01\x00",
        b"\xfc\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\xfd\x00\x00\x00\x00",
        b"\xfe\x00",
        b"\xff",
        b"\xf5",
        b"\xf7",
        b"\xf8\x05",
        b"\xf9\x05",
        b"\x80\xff\xff\xff\xff",
        b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xc3",
    ],
};

fn run(bytes: &[u8]) {
    // Zeros at the end mean that the file has no checksum, so that mutations come through.
    let input = bytes.chain(&[0_u8; 8][..]);
    let Ok(mut file) = FileReader::begin(input, Limits::default()) else { return };
    let mut offset = file.offset();
    let ended = loop {
        let item = match file.next_item() {
            Ok(Some(item)) => item,
            ended => break ended.map(drop),
        };
        assert!(file.offset() > offset, "a record without bytes");
        offset = file.offset();
        if let Item::Entry(entry) = item {
            let payload = dump(entry.value.as_ref(), None);
            let again = restore(&payload, &Limits::default());
            assert!(again.is_ok(), "a loaded value cannot be restored: {again:?}");
        }
    };
    if ended.is_ok() {
        load_what_was_checked(bytes);
    }
}

/// A replica gives its data up for a payload that it has only looked at.
fn load_what_was_checked(bytes: &[u8]) {
    const NOW_US: u64 = 1_700_000_000_000_000;
    let engine = Engine::new(Config::default(), Identity::default(), 7, Box::new(NoPlatform));
    let input = || bytes.chain(&[0_u8; 8][..]);
    if engine.aside().check(input()).is_ok() {
        let options = LoadOptions { ended: EndedKeys::Loaded, merges: true };
        let loaded = check_snapshot(input(), engine.database_count(), NOW_US, options, &mut |_| {});
        assert!(loaded.is_ok(), "it passed, and does not load: {:?}", loaded.err());
    }
}
