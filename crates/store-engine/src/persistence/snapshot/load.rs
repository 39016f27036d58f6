//! A snapshot file into the engine.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;

use store_persist::rdb::{
    Fault, FileReader, Item, LoadedEntry, Mended, RdbError, Record, TextEntry,
};
use store_script::{AclAnswer, Existing, Host, LogLevel, Protocol, Replication, Tick};

use super::fact;
use crate::config::Config;
use crate::engine::Engine;
use crate::keyspace::{FileEntry, FileValue, Keyspace, Unplaced};
use crate::platform::NoPlatform;
use crate::state::{Identity, ServerState};

/// What becomes of keys in a file that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedKeys {
    /// They are left out.
    #[default]
    LeftOut,
    /// They are loaded: what follows may count on them, and says when they went.
    Loaded,
    /// They are loaded from a file that says of which history it is: replicas have them, and are
    /// told when this server removes them.
    LoadedIfFollowed,
}

/// How a file is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// What becomes of keys that are over.
    pub ended: EndedKeys,
    /// Whether an entry replaces one of the same key, and a library one of the same name;
    /// otherwise that is damage.
    pub merges: bool,
}

/// How far loading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of the file that are done with.
    pub bytes: u64,
    /// Keys loaded.
    pub keys: u64,
}

/// What was found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Version of the format.
    pub version: u16,
    /// Facts about the file, by name.
    pub facts: BTreeMap<String, Vec<u8>>,
    /// Keys loaded.
    pub keys: u64,
    /// Keys that were over, where such keys count on nobody.
    pub ended: u64,
    /// Keys left out because they held an empty collection.
    pub empty: u64,
    /// Function libraries loaded.
    pub functions: u64,
    /// Modules whose data beside the keys was left out.
    pub modules: Vec<String>,
    /// Values that were made whole.
    pub mended: Mended,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Engine {
    /// Loads a snapshot into an engine without keys. `progress` is told now and then. What
    /// follows the file in the same input is to be had from the reader.
    ///
    /// # Errors
    /// [`RdbError`] with the place and what to do; the engine then holds part of the data and
    /// must not serve it.
    pub fn load_snapshot<R: Read>(
        &mut self,
        now_us: u64,
        input: R,
        options: LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<(LoadReport, FileReader<R>), RdbError> {
        self.keyspace.begin(now_us, 0);
        load(&mut self.keyspace, &mut self.state, input, options, progress)
    }

    /// Takes up to `records_max` records of a file, for who loads in slices. True behind the last.
    ///
    /// # Errors
    /// As [`load_snapshot`](Self::load_snapshot).
    pub fn load_records<R: Read>(
        &mut self,
        now_us: u64,
        file: &mut FileReader<R>,
        records_max: usize,
        options: LoadOptions,
        report: &mut LoadReport,
    ) -> Result<bool, RdbError> {
        self.keyspace.begin(now_us, 0);
        let mut inserter = RecordInserter {
            db: &mut self.keyspace,
            server: &mut self.state,
            options,
            ahead: VecDeque::new(),
        };
        let is_over = inserter.take_some(file, records_max, report)?;
        self.state.saving.loaded_keys = report.keys;
        self.state.saving.loaded_ended = report.ended;
        Ok(is_over)
    }
}

/// Whether a server with so many databases would start with this snapshot: it is loaded as that
/// server does. That a key is there twice, that a library does not load or that a database is
/// missing is not to be seen in any single record.
///
/// Answers what it loaded, and the reader, for what follows in the same file.
///
/// # Errors
/// As [`Engine::load_snapshot`].
pub fn check_snapshot<R: Read>(
    input: R,
    databases: usize,
    now_us: u64,
    options: LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<(LoadReport, FileReader<R>), RdbError> {
    let mut config = Config::default();
    let setting = Config::find("databases").expect("it is in the table");
    config.set(setting, &[&databases.max(1).to_string()]).expect("any number but zero is one");
    // Which seed does not matter: nobody sees an order.
    let mut engine = Engine::new(config, Identity::default(), 1, Box::new(NoPlatform));
    engine.load_snapshot(now_us, input, options, progress)
}

/// Loads a snapshot into an engine that nobody sees, to know whether it can be.
///
/// # Errors
/// As [`Engine::load_snapshot`].
pub(crate) fn load_aside(
    server: &ServerState,
    input: impl Read,
    now_us: u64,
) -> Result<(), RdbError> {
    let mut aside = Config::default();
    for name in ["databases", "rdbchecksum"] {
        let setting = Config::find(name).expect("it is in the table");
        aside.copy(&server.config, setting);
    }
    // Which seed does not matter: nobody sees an order.
    let mut engine = Engine::new(aside, Identity::default(), 1, Box::new(NoPlatform));
    engine.state.debug.skips_checksums = server.debug.skips_checksums;
    engine.load_snapshot(now_us, input, LoadOptions::default(), &mut |_| {}).map(drop)
}

/// See [`Engine::load_snapshot`].
pub(crate) fn load<R: Read>(
    db: &mut Keyspace,
    server: &mut ServerState,
    input: R,
    options: LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<(LoadReport, FileReader<R>), RdbError> {
    /// Between two reports of progress.
    const REPORT_RECORDS: usize = 50_000;
    let mut file = FileReader::begin(input, server.limits)?;
    file.verify_checksum(
        server.config.settings().snapshot.checksums && !server.debug.skips_checksums,
    );
    let mut report = LoadReport { version: file.version(), ..LoadReport::default() };
    let mut inserter = RecordInserter { db, server, options, ahead: VecDeque::new() };
    while !inserter.take_some(&mut file, REPORT_RECORDS, &mut report)? {
        progress(LoadProgress { bytes: file.offset(), keys: report.keys });
    }
    report.bytes = file.offset();
    server.eviction.look_again();
    server.saving.loaded_keys = report.keys;
    server.saving.loaded_ended = report.ended;
    Ok((report, file))
}

/// Entries that are read ahead while the place of the first is fetched.
const AHEAD_MAX: usize = 16;

/// Puts the records of a file into the engine.
struct RecordInserter<'a> {
    db: &'a mut Keyspace,
    server: &'a mut ServerState,
    options: LoadOptions,
    /// With where in the file they end. Empty between slices.
    ahead: VecDeque<(u64, Unplaced)>,
}

impl RecordInserter<'_> {
    fn take_some<R: Read>(
        &mut self,
        file: &mut FileReader<R>,
        records_max: usize,
        report: &mut LoadReport,
    ) -> Result<bool, RdbError> {
        let mut is_over = false;
        for _ in 0..records_max {
            let Some(record) = file.next_record()? else {
                is_over = true;
                break;
            };
            let taken = self.take(record, report);
            let offset = file.offset();
            let damaged = |fault| RdbError::Damaged { offset, fault };
            if let Some(unplaced) = taken.map_err(damaged)? {
                self.ahead.push_back((offset, unplaced));
            }
            if self.ahead.len() > AHEAD_MAX {
                self.place_first(report)?;
            }
        }
        while !self.ahead.is_empty() {
            self.place_first(report)?;
        }
        if report.mended.values != file.mended().values {
            report.mended = file.mended().clone();
        }
        Ok(is_over)
    }

    fn place_first(&mut self, report: &mut LoadReport) -> Result<(), RdbError> {
        let Some((offset, unplaced)) = self.ahead.pop_front() else { return Ok(()) };
        report.keys += 1;
        let Err(twice) = self.db.place(unplaced) else { return Ok(()) };
        if !self.options.merges {
            let fault = Fault::DuplicateKey(twice.key().to_vec());
            return Err(RdbError::Damaged { offset, fault });
        }
        self.db.make_place(&twice);
        let placed = self.db.place(twice);
        assert!(placed.is_ok(), "its place was just made");
        Ok(())
    }

    /// Takes a record; an entry has yet to be placed.
    fn take(
        &mut self,
        record: Record<'_>,
        report: &mut LoadReport,
    ) -> Result<Option<Unplaced>, Fault> {
        match record {
            Record::Text(TextEntry { db, key, expires_at, access, value }) => {
                let value = FileValue::Text(value);
                self.prepare(db, FileEntry { key: &key, expires_at, access, value }, report)
            }
            Record::Item(item) => self.take_item(item, report),
        }
    }

    fn take_item(
        &mut self,
        item: Item,
        report: &mut LoadReport,
    ) -> Result<Option<Unplaced>, Fault> {
        match item {
            Item::Entry(LoadedEntry { db, key, expires_at, access, value }) => {
                let value = FileValue::Value(value);
                self.prepare(db, FileEntry { key: &key, expires_at, access, value }, report)
            }
            Item::Sizes { db, keys, .. } => {
                if let Ok(number) = self.number(db) {
                    self.db.expect_keys(number, keys);
                }
                Ok(None)
            }
            Item::Function(code) => {
                let existing = match self.options.merges {
                    true => Existing::Replace,
                    false => Existing::Refuse,
                };
                load_library(self.server, &code, existing)?;
                report.functions += 1;
                Ok(None)
            }
            other => {
                note_item(other, report);
                Ok(None)
            }
        }
    }

    fn prepare(
        &mut self,
        db: u64,
        entry: FileEntry<'_>,
        report: &mut LoadReport,
    ) -> Result<Option<Unplaced>, Fault> {
        let number = self.number(db)?;
        let is_over = entry.expires_at.is_some_and(|at| at < self.db.now_ms());
        if is_over && self.options.ended != EndedKeys::Loaded {
            report.ended += 1;
            let is_followed = report.facts.contains_key(fact::REPLICATION_ID);
            if self.options.ended == EndedKeys::LeftOut || !is_followed {
                return Ok(None);
            }
        }
        Ok(Some(self.db.prepare(number, entry)))
    }

    fn number(&self, db: u64) -> Result<usize, Fault> {
        number_of(self.db, db)
    }
}

fn number_of(keyspace: &Keyspace, db: u64) -> Result<usize, Fault> {
    let databases = keyspace.database_count();
    let number = usize::try_from(db).ok().filter(|number| *number < databases);
    number.ok_or(Fault::Database { db, databases })
}

/// Looks at all records of a file as loading it would, and keeps none of the keys. That a key
/// comes twice is not noticed.
pub(crate) fn check_records<R: Read>(
    keyspace: &Keyspace,
    server: &mut ServerState,
    file: &mut FileReader<R>,
) -> Result<LoadReport, RdbError> {
    let mut report = LoadReport { version: file.version(), ..LoadReport::default() };
    while let Some(record) = file.next_record()? {
        let checked = match record {
            Record::Text(TextEntry { db, .. })
            | Record::Item(Item::Entry(LoadedEntry { db, .. })) => {
                report.keys += 1;
                number_of(keyspace, db).map(drop)
            }
            Record::Item(Item::Function(code)) => load_library(server, &code, Existing::Replace),
            Record::Item(other) => {
                note_item(other, &mut report);
                Ok(())
            }
        };
        if let Err(fault) = checked {
            return Err(RdbError::Damaged { offset: file.offset(), fault });
        }
    }
    report.mended = file.mended().clone();
    Ok(report)
}

fn note_item(item: Item, report: &mut LoadReport) {
    match item {
        Item::Fact { name, value } => {
            report.facts.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
        Item::EmptyKey(_) => report.empty += 1,
        Item::ModuleFact(module) => report.modules.push(module),
        Item::Sizes { .. } | Item::Entry(_) | Item::Function(_) => {}
    }
}

/// Loads a library that loaded elsewhere.
pub(crate) fn load_library_again(server: &mut ServerState, code: &[u8]) -> Result<(), Fault> {
    load_library(server, code, Existing::Replace)
}

fn load_library(server: &mut ServerState, code: &[u8], existing: Existing) -> Result<(), Fault> {
    let interpreter = server.scripting.interpreter.as_mut();
    let interpreter = interpreter.expect("no script runs while a file is loaded");
    interpreter
        .load_library(code, existing, &mut LoadingHost { ticks_left: TICKS_MAX })
        .map(drop)
        .map_err(|error| Fault::Function(error.to_string()))
}

/// How long a library may take to load: a few seconds at most.
const TICKS_MAX: usize = 10_000;

/// What a library sees that is loaded from a file: nothing.
struct LoadingHost {
    ticks_left: usize,
}

impl Host for LoadingHost {
    fn call(&mut self, _: &[&[u8]], _: Protocol, reply: &mut Vec<u8>) {
        reply.extend_from_slice(b"-ERR redis.call can only be called inside a script\r\n");
    }

    fn acl_check(&mut self, _: &[&[u8]]) -> AclAnswer {
        AclAnswer::Denied
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&mut self, _: Replication) {}

    fn tick(&mut self) -> Tick {
        match self.ticks_left.checked_sub(1) {
            Some(left) => {
                self.ticks_left = left;
                Tick::Continue
            }
            None => Tick::Kill,
        }
    }
}
