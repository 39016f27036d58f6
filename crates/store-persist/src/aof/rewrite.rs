//! Writing the file anew: a base of all keys as they are, and an increment for what comes.
//!
//! ```text
//! begin_switch: the old increment durable ► a new one, listed ► units go there
//!               (meanwhile the snapshot writes Layout::new_base)
//! finish_switch: base named and listed, all before it history ► removed on another thread
//! abort_switch: nothing is lost; the files are one more
//! ```
//! A file that is turned on while the server runs has no base yet, and one whose last bytes may be
//! missing must not be continued: their increment stays unlisted until the base is there, so that
//! an older set of files counts until then.
//!
//! A number is used once. When the manifest could not be written nobody knows which one a crash
//! leaves, so neither may ever list a file that has another content by then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::encode::Increment;
use super::layout::Layout;
use super::log::{AppendLog, Job, OpenFile};
use super::manifest::{FileKind, ListedFile, Manifest, Numbers};
use super::plan::{commit_manifest, prepare_manifest, read_manifest, write_manifest};
use crate::disk::{self, Disk, DiskFile};

/// A rewrite under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// When it began.
    pub started_at_ms: u64,
}

impl AppendLog {
    /// Begins a file while the server runs: units are taken from now on, and count once
    /// [`finish_switch`](Self::finish_switch) has given them a base. `manifest` lists what
    /// counts until then.
    pub fn begin_unlisted(
        disk: Arc<dyn Disk>,
        layout: Layout,
        mut manifest: Manifest,
        now_ms: u64,
        generation: u64,
    ) -> io::Result<Self> {
        make_durable_folder(&*disk, &layout)?;
        manifest.pass_over(&layout, &disk.list(&layout.folder())?);
        let path = layout.new_increment(generation);
        let file = OpenFile::open(path.clone(), create_fresh(&*disk, &path)?, 0)?;
        let mut log = Self::with_file(disk, layout, manifest, file, generation);
        log.switch = Some(Switch { started_at_ms: now_ms });
        Ok(log)
    }

    /// The rewrite under way, if any.
    pub fn switch(&self) -> Option<Switch> {
        self.switch
    }

    /// Sends units to a new increment from now on. The snapshot for the base must be begun
    /// before the next unit. `generation` tells this rewrite from others.
    ///
    /// Fails, and changes nothing, when the disk does.
    pub fn begin_switch(&mut self, now_ms: u64, generation: u64) -> io::Result<()> {
        assert!(self.switch.is_none(), "one rewrite at a time");
        if let Some(path) = self.find_missing() {
            self.note_missing(now_ms, &path);
        }
        if !self.needs_rewrite() {
            // What follows in another file is of no use behind a torn one, so this one is made
            // durable first. At most a second's writes are waited for.
            self.write_durably(now_ms)?;
        }
        self.switch = Some(Switch { started_at_ms: now_ms });
        if self.file.len == 0 && !self.needs_rewrite() {
            // It has nothing of before, and another one behind it would say no more.
            return Ok(());
        }
        self.begin_increment(generation).inspect_err(|_| self.switch = None)
    }

    fn begin_increment(&mut self, generation: u64) -> io::Result<()> {
        let (file, before) = match self.needs_rewrite() {
            true => {
                // Nothing that may be torn is followed by another file. The folder may be gone.
                make_durable_folder(&*self.disk, &self.layout)?;
                let path = self.layout.new_increment(generation);
                let file = OpenFile::open(path.clone(), create_fresh(&*self.disk, &path)?, 0)?;
                self.discard_unlisted();
                self.is_listed = false;
                (file, None)
            }
            false => {
                let sequence = self.manifest.increments.last().map(|file| file.sequence);
                let len = self.file.len;
                (self.list_increment()?, sequence.map(|sequence| Increment { sequence, len }))
            }
        };
        self.earlier_len += self.file.len;
        self.begin_file(file);
        self.before = before;
        Ok(())
    }

    fn list_increment(&mut self) -> io::Result<OpenFile> {
        let mut manifest = self.next_manifest()?;
        let path = self.layout.path_of(&manifest.add_increment(&self.layout));
        self.use_up_numbers(&manifest);
        let listed = || -> io::Result<OpenFile> {
            let file = OpenFile::open(path.clone(), self.disk.create(&path)?, 0)?;
            self.disk.sync_folder(&self.layout.folder())?;
            write_manifest(&*self.disk, &self.layout, &manifest)?;
            Ok(file)
        };
        match listed() {
            Ok(file) => {
                self.manifest = manifest;
                Ok(file)
            }
            Err(error) => {
                self.leave(&[manifest.increments.last().expect("it was added above")]);
                Err(error)
            }
        }
    }

    /// The base is whole and durable at `new_base`: it counts from now on.
    ///
    /// Fails, and leaves what counted before, when the disk does.
    pub fn finish_switch(&mut self, now_ms: u64, is_rdb: bool, new_base: &Path) -> io::Result<Job> {
        self.switch.take().expect("a rewrite is under way");
        if self.has_gap {
            return Err(io::Error::other("changes during the rewrite could not be kept"));
        }
        if !self.has_its_name() {
            let path = self.file.path.display();
            return Err(io::Error::other(format!("{path} was removed or replaced")));
        }
        let mut manifest = self.next_manifest()?;
        manifest.replace_base(&self.layout, is_rdb);
        manifest.retire_increments(usize::from(self.is_listed));
        if !self.is_listed {
            manifest.add_increment(&self.layout);
        }
        self.use_up_numbers(&manifest);
        match self.list_base(now_ms, new_base, &manifest) {
            Ok(base_len) => {
                self.manifest = manifest;
                self.trouble = None;
                (self.is_listed, self.is_missing) = (true, false);
                (self.base_len, self.earlier_len) = (base_len, base_len);
                self.rewritten_len = self.len();
                Ok(Job::Remove { generation: self.generation, paths: self.superseded() })
            }
            Err(error) => {
                let increment = manifest.increments.last().filter(|_| !self.is_listed);
                let files: Vec<&ListedFile> = manifest.base.iter().chain(increment).collect();
                self.leave(&files);
                Err(error)
            }
        }
    }

    /// Gives base and increment the names that `manifest` has for them, and writes it.
    fn list_base(&mut self, now_ms: u64, new_base: &Path, manifest: &Manifest) -> io::Result<u64> {
        let path_of = |file: Option<&ListedFile>| {
            self.layout.path_of(&file.expect("a rewritten file has both").name)
        };
        let base = path_of(manifest.base.as_ref());
        let increment = path_of(manifest.increments.last());
        let base_len = self.disk.size(new_base)?;
        prepare_manifest(&*self.disk, &self.layout, manifest)?;
        if !self.is_listed {
            self.write_durably(now_ms)?;
            // Before the file has its number: a start without any manifest knows it by this one.
            self.disk.sync_folder(&self.layout.folder())?;
            self.disk.rename_growing(&self.file.path, &increment)?;
            self.file.path = increment;
        }
        self.disk.rename(new_base, &base)?;
        self.disk.sync_folder(&self.layout.folder())?;
        commit_manifest(&*self.disk, &self.layout)?;
        Ok(base_len)
    }

    /// The manifest to change, whose next numbers no file has.
    fn next_manifest(&self) -> io::Result<Manifest> {
        let mut manifest = self.manifest.clone();
        manifest.pass_over(&self.layout, &self.disk.list(&self.layout.folder())?);
        Ok(manifest)
    }

    /// Whatever becomes of the files of `manifest`, their numbers are not given to others.
    fn use_up_numbers(&mut self, manifest: &Manifest) {
        self.manifest.base_sequence = manifest.base_sequence;
        self.manifest.increment_sequence = manifest.increment_sequence;
    }

    /// Files were to be listed, and the disk failed: those that no manifest lists are removed.
    /// Where that is not known they are history, and go with the next rewrite.
    fn leave(&mut self, files: &[&ListedFile]) {
        let seen = read_manifest(&*self.disk, &self.layout);
        for file in files {
            if seen.as_ref().is_ok_and(|seen| !seen.lists(&file.name)) {
                // One that stays only takes up room, and its number.
                let _ = self.disk.remove(&self.layout.path_of(&file.name));
            } else {
                let history = ListedFile { kind: FileKind::History, ..(*file).clone() };
                self.manifest.history.push(history);
            }
        }
    }

    /// The base came to nothing: everything counts that counted before.
    pub fn abort_switch(&mut self) {
        self.switch = None;
    }

    /// Removes the open file unless it counts, or may: once it has its number, a manifest that
    /// could not be made durable may list it.
    pub(super) fn discard_unlisted(&self) {
        let name = self.file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !self.is_listed && self.layout.is_leftover(name) {
            // One that stays is removed at the next start.
            let _ = self.disk.remove(&self.file.path);
        }
    }

    /// Bytes of the base.
    pub fn base_len(&self) -> u64 {
        self.base_len
    }

    /// Whether all that was taken counts: false until a file that was turned on while the server
    /// runs has its base.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Files of earlier rewrites.
    pub fn superseded(&self) -> Vec<PathBuf> {
        self.manifest.history.iter().map(|file| self.layout.path_of(&file.name)).collect()
    }
}

/// Makes the first base of a store: `write_base` writes all keys to the path it is given, and
/// makes them durable. `manifest` lists nothing, but for history. Returns the one that lists it.
pub fn create_base(
    disk: &dyn Disk,
    layout: &Layout,
    mut manifest: Manifest,
    is_rdb: bool,
    generation: u64,
    write_base: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<Manifest> {
    make_durable_folder(disk, layout)?;
    manifest.pass_over(layout, &disk.list(&layout.folder())?);
    let path = layout.path_of(&manifest.replace_base(layout, is_rdb));
    let new_base = layout.new_base(generation);
    let name = manifest.add_increment(layout);
    let written = write_base(&new_base)
        .and_then(|()| prepare_manifest(disk, layout, &manifest))
        .and_then(|()| disk.rename(&new_base, &path));
    // A disk that is full must not stay so because of what nobody will use.
    written.inspect_err(|_| _ = disk.remove(&new_base))?;
    disk.create(&layout.path_of(&name))?;
    disk.sync_folder(&layout.folder())?;
    commit_manifest(disk, layout)?;
    Ok(manifest)
}

/// Creates a file that has nothing of an earlier one of its name. A process that was killed may
/// have left one, and what is cut off comes back with a loss of power while nothing was written
/// since.
fn create_fresh(disk: &dyn Disk, path: &Path) -> io::Result<Box<dyn DiskFile>> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => disk.create(path),
    }
}

/// Makes the folder of the files, unless it is there.
pub(super) fn make_durable_folder(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    disk.make_folder(&layout.folder())?;
    disk.sync_folder(disk::folder_of(&layout.folder()))
}

/// Puts a base in place of all files while nothing is appended. It is whole and durable at
/// `new_base`, and gets a number above `used`. Returns the manifest, whose history is to be
/// removed.
pub(super) fn replace_all(
    disk: &dyn Disk,
    layout: &Layout,
    is_rdb: bool,
    new_base: &Path,
    used: Numbers,
) -> io::Result<Manifest> {
    let mut manifest = read_manifest(disk, layout).map_err(io::Error::other)?;
    manifest.continue_numbers(used);
    manifest.pass_over(layout, &disk.list(&layout.folder())?);
    let path = layout.path_of(&manifest.replace_base(layout, is_rdb));
    manifest.retire_increments(0);
    prepare_manifest(disk, layout, &manifest)?;
    disk.rename(new_base, &path)?;
    disk.sync_folder(&layout.folder())?;
    commit_manifest(disk, layout)?;
    Ok(manifest)
}
