//! A primary's data takes the place of all data: what the files had is over, and stays until the
//! new data has files of its own.

use std::io::Read;
use std::path::{Path, PathBuf};

use store_persist::disk::{Disk, SimulatedDisk};

use super::data::{Change, Data, NUMBER};
use super::world::{Flaw, World};

/// How a full sync stands, and what it leaves behind.
#[derive(Default)]
pub(super) struct FullSync {
    /// Whether there are any in this world.
    pub(super) is_replica: bool,
    /// While data is loaded: until when.
    pub(super) ends_ms: Option<u64>,
    /// Whether the file is begun anew in this life, with that data.
    pub(super) is_begun_anew: bool,
    /// The first unit of the history that is not over.
    pub(super) first: u64,
    /// Whether the log said that a start may bring the old data back.
    pub(super) may_come_back: bool,
    /// Whether the log said that files are set aside.
    pub(super) is_set_aside: bool,
    /// Files that were set aside for data that did not come: they may be the only copy.
    kept: Vec<(PathBuf, Vec<u8>)>,
    /// What was set aside, until it is known whether the data comes.
    aside: Vec<(PathBuf, Vec<u8>)>,
}

impl FullSync {
    pub(super) fn may_begin(&self) -> bool {
        self.is_replica && self.ends_ms.is_none()
    }

    /// Whether the data of a full sync has come in this life.
    pub(super) fn is_replacing(&self) -> bool {
        self.first > 0
    }

    /// What may be the only copy is there.
    pub(super) fn check_kept(&self, disk: &SimulatedDisk) -> Result<(), String> {
        for (path, bytes) in &self.kept {
            // Power that was lost may have taken what was not synced, and put zeros there.
            let found = read(disk, path).map(|mut found| {
                found.truncate(found.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1));
                found
            });
            if !found.is_some_and(|found| bytes.starts_with(&found)) {
                return Err(format!("{} was set aside, and is not there any more", path.display()));
            }
        }
        Ok(())
    }
}

fn read(disk: &SimulatedDisk, path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    disk.read(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

impl World {
    /// The old data goes. Whatever was promised of it is over.
    pub(super) fn begin_sync(&mut self) {
        self.note_files();
        let mut files = self.file.files().unwrap_or_default();
        // The manifest goes by another name.
        files.pop();
        // Files of before it was turned off count until it is on again, as ever; they may be in
        // another folder than those that are begun.
        let is_elsewhere = self.home != self.settings.layout && !self.keeps();
        self.sync.may_come_back = !self.settings.is_wanted || is_elsewhere;
        match self.flaw {
            Some(Flaw::ReplacedFilesCount) => {
                let mut settings = self.settings.clone();
                settings.is_wanted = false;
                self.file.apply(self.now_ms, settings);
            }
            _ => self.file.handle_data_leaving(self.now_ms),
        }
        self.sync.is_set_aside = false;
        self.drive();
        self.sync.ends_ms = Some(self.now_ms + self.random.in_range(0..3000));
        self.sync.first = self.states.len() as u64;
        self.sync.is_begun_anew |= self.settings.is_wanted;
        let contents = files.into_iter().filter_map(|path| {
            let bytes = read(&self.disk, &path)?;
            Some((path, bytes))
        });
        // Where somebody removed the manifest, there is nothing to set aside.
        self.sync.aside = contents.filter(|_| self.sync.is_set_aside).collect();
        self.memory = Data::default();
        self.acknowledged.clear();
        self.said_to_be_written = 0;
        self.apply();
    }

    /// Removes what has no byte, whoever lists it.
    pub(super) fn tidy_aside(&mut self) {
        for name in self.disk.list(&self.home.folder()).unwrap_or_default() {
            let path = self.home.path_of(&name);
            let is_listed = self.file.files().is_some_and(|files| files.contains(&path));
            let is_empty = self.disk.size(&path).is_ok_and(|len| len == 0);
            if is_empty && !is_listed && name.ends_with("incr.aof") {
                let _ = self.disk.remove(&path);
            }
        }
    }

    /// The data is there, or did not come, and the file begins anew with what there is.
    pub(super) fn end_due_sync(&mut self) {
        if self.sync.ends_ms.is_none_or(|ends_ms| ends_ms > self.now_ms) {
            return;
        }
        self.sync.ends_ms = None;
        let aside = std::mem::take(&mut self.sync.aside);
        let is_whole = !self.chance(3);
        // A server whose data did not come has none; here it has the number of that.
        let number = self.states.len() as u64;
        self.memory.apply(&Change::Set(0, NUMBER.to_owned(), number));
        self.states.push(self.memory.clone());
        if is_whole {
            // Nobody needs what was kept before either.
            self.sync.kept.clear();
        } else if !self.sync.may_come_back {
            self.sync.kept.extend(aside);
        }
        if is_whole || self.flaw == Some(Flaw::LostCountsAsReplaced) {
            self.file.handle_data_replaced();
        }
        self.apply();
    }
}
