//! A primary's data that is loaded beside the data in use, on another thread, and takes its place
//! at once (`repl-diskless-load`).

use std::fmt;
use std::io::Read;

use store_persist::rdb::{Fault, FileReader, RdbError};

use crate::engine::Engine;
use crate::keyspace::Keyspace;
use crate::persistence::snapshot::{
    EndedKeys, LoadOptions, LoadReport, check_records, load_library_again,
};
use crate::platform::NoPlatform;
use crate::state::{Identity, server_gate};

/// An engine that nobody sees, to load data into.
pub struct Aside(Engine);

/// Data that was loaded aside.
pub struct AsideData {
    keyspace: Keyspace,
    libraries: Vec<Vec<u8>>,
    report: LoadReport,
}

impl AsideData {
    /// What was found in the payload.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }
}

impl fmt::Debug for AsideData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsideData").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Aside {
    /// Loads all of a payload; keys that are over, too. `records` tells how many to take next.
    ///
    /// # Errors
    /// [`RdbError`] with the place; nothing else is concerned.
    pub fn load(
        mut self,
        now_us: u64,
        input: impl Read,
        records: &mut dyn FnMut() -> usize,
    ) -> Result<AsideData, RdbError> {
        let engine = &mut self.0;
        let mut file = engine.open_payload(input)?;
        let options = LoadOptions { ended: EndedKeys::Loaded, merges: false };
        let mut report = LoadReport { version: file.version(), ..LoadReport::default() };
        while !engine.load_records(now_us, &mut file, records(), options, &mut report)? {}
        expect_end(file)?;
        let libraries = engine.state.scripting.interpreter().into_iter();
        let libraries = libraries.flat_map(|lua| lua.libraries());
        let libraries = libraries.map(|library| library.code().to_vec()).collect();
        Ok(AsideData { keyspace: self.0.keyspace, libraries, report })
    }

    /// Reads all of a payload and keeps none of its keys: whether it could be loaded.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn check(mut self, input: impl Read) -> Result<LoadReport, RdbError> {
        let mut file = self.0.open_payload(input)?;
        let report = check_records(&self.0.keyspace, &mut self.0.state, &mut file)?;
        expect_end(file)?;
        Ok(report)
    }
}

/// A payload that goes on behind its end would never be whole, and might never end.
fn expect_end(file: FileReader<impl Read>) -> Result<(), RdbError> {
    let offset = file.offset();
    let (mut input, rest) = file.into_rest();
    let read = |source| RdbError::Read { offset, source };
    match !rest.is_empty() || input.read(&mut [0]).map_err(read)? > 0 {
        true => Err(RdbError::Damaged { offset, fault: Fault::GoesOn }),
        false => Ok(()),
    }
}

impl Engine {
    /// An empty engine with the same settings and the same hashing.
    pub fn aside(&self) -> Aside {
        // Which seed does not matter: what hashes is copied.
        let config = self.state.config.clone();
        let mut engine = Engine::new(config, Identity::default(), 1, Box::new(NoPlatform));
        engine.state.limits = self.state.limits;
        engine.state.debug.skips_checksums = self.state.debug.skips_checksums;
        engine.keyspace.hash_as(&self.keyspace);
        Aside(engine)
    }

    fn open_payload<R: Read>(&self, input: R) -> Result<FileReader<R>, RdbError> {
        let mut file = FileReader::begin(input, self.state.limits)?;
        let skips = self.state.debug.skips_checksums;
        file.verify_checksum(self.state.config.settings().snapshot.checksums && !skips);
        Ok(file)
    }

    /// Whether data is loaded beside the data in use, which is served meanwhile.
    pub fn set_loading_aside(&mut self, is_loading: bool) {
        self.state.persistence.is_loading_aside = is_loading;
        match is_loading {
            true => self.state.gates |= server_gate::LOADING_ASIDE,
            false => self.state.gates &= !server_gate::LOADING_ASIDE,
        }
    }

    /// The data in use goes, and what was loaded aside takes its place.
    ///
    /// # Errors
    /// The reason when a library of functions that loaded aside does not load here.
    pub fn adopt(&mut self, now_us: u64, data: AsideData) -> Result<(), String> {
        let AsideData { mut keyspace, libraries, report } = data;
        self.forget_for_primary(now_us);
        self.keyspace.take_tables(&mut keyspace);
        self.state.saving.loaded_keys = report.keys;
        self.state.saving.loaded_ended = report.ended;
        self.state.eviction.look_again();
        self.keyspace.dirty = 0;
        for code in libraries {
            load_library_again(&mut self.state, &code).map_err(|fault| fault.to_string())?;
        }
        Ok(())
    }
}
