//! A store that is small enough to be compared as a whole, and what files say of it.

use std::collections::BTreeMap;
use std::path::Path;

use store_persist::aof::{AofError, CommandReader, Encoder, Layout, Manifest, make_plan};
use store_persist::disk::{Disk, SimulatedDisk};
use store_resp::{OwnedRequest, Request};

use super::world::Flaw;

/// The key that every unit sets to its own number.
pub(super) const NUMBER: &str = "n";
/// A unit with more requests than this closes the session of a loader that has limits.
const QUEUED_MAX: usize = 4;

pub(super) fn layout() -> Layout {
    Layout { dir: "d".into(), folder_name: "a".into(), file_name: "f.aof".into() }
}

/// Values by database and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Data(BTreeMap<(usize, String), u64>);

/// One request.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Set(usize, String, u64),
    FlushAll,
}

impl Change {
    pub(super) fn request(&self) -> (usize, OwnedRequest) {
        match self {
            Self::Set(db, key, value) => {
                let value = value.to_string();
                (*db, OwnedRequest::from_args([b"SET", key.as_bytes(), value.as_bytes()]))
            }
            Self::FlushAll => (0, OwnedRequest::from_args([&b"FLUSHALL"[..]])),
        }
    }
}

impl Data {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Set(db, key, value) => _ = self.0.insert((*db, key.clone()), *value),
            Change::FlushAll => self.0.clear(),
        }
    }

    /// The number of the last unit.
    pub(super) fn number(&self) -> u64 {
        self.0.get(&(0, NUMBER.to_owned())).copied().unwrap_or(0)
    }

    /// As a base of requests.
    pub(super) fn to_base(&self) -> Vec<u8> {
        let (mut encoder, mut bytes) = (Encoder::new(), Vec::new());
        Encoder::begin(&mut bytes);
        let from = bytes.len();
        for ((db, key), value) in &self.0 {
            let (db, request) = Change::Set(*db, key.clone(), *value).request();
            encoder.add([(db, request.as_request())].into_iter(), &mut bytes);
        }
        Encoder::seal(&mut bytes, from);
        bytes
    }
}

/// Writes a base and makes it durable.
pub(super) fn write_base(disk: &dyn Disk, path: &Path, data: &Data) -> std::io::Result<()> {
    let mut file = disk.create(path)?;
    file.write_all(&data.to_base())?;
    file.sync()
}

/// What a start finds.
pub(super) struct Loaded {
    pub(super) manifest: Manifest,
    pub(super) data: Data,
}

/// Reads the files as a start does, and cuts what a crash left at their end.
pub(super) fn load(
    disk: &SimulatedDisk,
    layout: &Layout,
    flaw: Option<Flaw>,
) -> Result<Loaded, String> {
    let plan = make_plan(disk, layout).map_err(|error| error.to_string())?;
    let mut loader = Loader { flaw, ..Loader::default() };
    for part in &plan.parts {
        let input = disk.read(&part.path).map_err(|error| error.to_string())?;
        let mut reader = CommandReader::new(input, 0).behind(match flaw {
            Some(Flaw::CutsGoUnnoticed) => &[],
            _ => &part.before,
        });
        loop {
            match reader.advance() {
                Ok(true) => loader.take(reader.request())?,
                Ok(false) => break,
                Err(AofError::Truncated { valid_len, .. }) if part.is_last => {
                    loader.queued = None;
                    let cut = disk.truncate(&part.path, valid_len);
                    cut.map_err(|error| error.to_string())?;
                    break;
                }
                Err(error) => return Err(format!("{} {error}", part.name)),
            }
        }
        loader.db = 0;
    }
    Ok(Loaded { manifest: plan.manifest, data: loader.data })
}

#[derive(Default)]
struct Loader {
    data: Data,
    db: usize,
    queued: Option<Vec<Change>>,
    flaw: Option<Flaw>,
    /// Whether a flaw keeps it from taking anything more.
    is_closed: bool,
}

impl Loader {
    fn take(&mut self, request: Request<'_>) -> Result<(), String> {
        let text = |at: usize| String::from_utf8(request.arg(at).to_vec()).unwrap();
        match text(0).as_str() {
            _ if self.is_closed => {}
            "SELECT" if self.flaw == Some(Flaw::DatabasesMerge) => {}
            "SELECT" => self.db = text(1).parse().unwrap(),
            "MULTI" => self.queued = Some(Vec::new()),
            "EXEC" => {
                let queued = self.queued.take().ok_or("EXEC without MULTI")?;
                queued.iter().for_each(|change| self.data.apply(change));
            }
            "SET" => self.run(Change::Set(self.db, text(1), text(2).parse().unwrap())),
            "FLUSHALL" => self.run(Change::FlushAll),
            other => return Err(format!("a request that nobody wrote: {other}")),
        }
        Ok(())
    }

    fn run(&mut self, change: Change) {
        match &mut self.queued {
            Some(queued) => {
                queued.push(change);
                let is_limited = self.flaw == Some(Flaw::LoaderHasLimits);
                self.is_closed = is_limited && queued.len() > QUEUED_MAX;
            }
            None => self.data.apply(&change),
        }
    }
}
