//! A snapshot file into the engine.

use std::collections::BTreeMap;
use std::io::Read;

use store_persist::rdb::{Fault, FileReader, Item, LoadedEntry, RdbError};
use store_script::{AclAnswer, Existing, Host, LogLevel, Protocol, Replication, Tick};

use crate::engine::Engine;
use crate::keyspace::{Keyspace, Loaded};
use crate::state::ServerState;

/// How a file is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Whether keys that are over are loaded, too: the rest of an append-only file may count on
    /// them, and says when they went.
    pub keeps_ended: bool,
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
    /// Keys left out because they were over.
    pub ended: u64,
    /// Keys left out because they held an empty collection.
    pub empty: u64,
    /// Function libraries loaded.
    pub functions: u64,
    /// Modules whose data beside the keys was left out.
    pub modules: Vec<String>,
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

    /// Takes one record of a file, for who loads in slices. Fails with what is wrong with it.
    pub fn load_item(
        &mut self,
        now_us: u64,
        item: Item,
        options: LoadOptions,
        report: &mut LoadReport,
    ) -> Result<(), Fault> {
        self.keyspace.begin(now_us, 0);
        take_item(&mut self.keyspace, &mut self.state, item, options, report)?;
        self.state.saving.loaded_keys = report.keys;
        self.state.saving.loaded_ended = report.ended;
        Ok(())
    }
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
    const REPORT_BYTES: u64 = 2 * 1024 * 1024;
    let mut file = FileReader::begin(input, server.limits)?;
    let mut report = LoadReport { version: file.version(), ..LoadReport::default() };
    let mut report_at = REPORT_BYTES;
    while let Some(item) = file.next_item()? {
        let taken = take_item(db, server, item, options, &mut report);
        taken.map_err(|fault| RdbError::Damaged { offset: file.offset(), fault })?;
        if file.offset() >= report_at {
            report_at = file.offset() + REPORT_BYTES;
            progress(LoadProgress { bytes: file.offset(), keys: report.keys });
        }
    }
    report.bytes = file.offset();
    server.eviction.look_again();
    server.saving.loaded_keys = report.keys;
    server.saving.loaded_ended = report.ended;
    Ok((report, file))
}

fn take_item(
    db: &mut Keyspace,
    server: &mut ServerState,
    item: Item,
    options: LoadOptions,
    report: &mut LoadReport,
) -> Result<(), Fault> {
    match item {
        Item::Entry(entry) => take_entry(db, entry, options, report),
        Item::Function(code) => load_library(server, &code).map(|()| report.functions += 1),
        other => {
            note_item(other, report);
            Ok(())
        }
    }
}

fn note_item(item: Item, report: &mut LoadReport) {
    match item {
        Item::Fact { name, value } => {
            report.facts.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
        Item::EmptyKey(_) => report.empty += 1,
        Item::ModuleFact(module) => report.modules.push(module),
        // A hint; segments grow one by one either way.
        Item::Sizes { .. } | Item::Entry(_) | Item::Function(_) => {}
    }
}

fn take_entry(
    db: &mut Keyspace,
    entry: LoadedEntry,
    options: LoadOptions,
    report: &mut LoadReport,
) -> Result<(), Fault> {
    let databases = db.database_count();
    let number = usize::try_from(entry.db).ok().filter(|number| *number < databases);
    let Some(number) = number else { return Err(Fault::Database { db: entry.db, databases }) };
    if db.contains_at(number, &entry.key) {
        return Err(Fault::DuplicateKey(entry.key));
    }
    match db.load(number, entry, options.keeps_ended) {
        Loaded::Added => report.keys += 1,
        Loaded::Ended => report.ended += 1,
    }
    Ok(())
}

fn load_library(server: &mut ServerState, code: &[u8]) -> Result<(), Fault> {
    let interpreter = server.scripting.interpreter.as_mut();
    let interpreter = interpreter.expect("no script runs while a file is loaded");
    interpreter
        .load_library(code, Existing::Refuse, &mut LoadingHost { ticks_left: TICKS_MAX })
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
