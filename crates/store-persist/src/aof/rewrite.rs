//! Writing the file anew: a base of all keys as they are, and an increment for what comes.
//!
//! ```text
//! begin_switch: the old increment durable ► a new one, listed ► units go there
//!               (meanwhile the snapshot writes Layout::new_base)
//! finish_switch: base named and listed, all before it history ► removed on another thread
//! abort_switch: nothing is lost; the files are one more
//! ```
//! A file that is turned on while the server runs has no base yet: its increment stays unlisted
//! until the base is there, so that an older set of files counts until then.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::Layout;
use super::log::{AppendLog, Job, OpenFile};
use super::manifest::Manifest;
use super::plan::write_manifest;
use crate::disk::{self, Disk};

/// A rewrite under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// When it began.
    pub started_at_ms: u64,
    /// Whether its increment is not listed yet.
    is_unlisted: bool,
}

impl AppendLog {
    /// Begins a file while the server runs: units are taken from now on, and count once
    /// [`finish_switch`](Self::finish_switch) has given them a base. `manifest` lists what
    /// counts until then.
    pub fn begin_unlisted(
        disk: Arc<dyn Disk>,
        layout: Layout,
        manifest: Manifest,
        now_ms: u64,
    ) -> io::Result<Self> {
        disk.make_folder(&layout.folder())?;
        let path = layout.new_increment();
        let file = OpenFile::open(path.clone(), disk.create(&path)?, 0)?;
        let mut log = Self::with_file(disk, layout, manifest, file);
        log.switch = Some(Switch { started_at_ms: now_ms, is_unlisted: true });
        Ok(log)
    }

    /// The rewrite under way, if any.
    pub fn switch(&self) -> Option<Switch> {
        self.switch
    }

    /// Sends units to a new increment from now on. The snapshot for the base must be begun
    /// before the next unit.
    ///
    /// Fails, and changes nothing, when the disk does.
    pub fn begin_switch(&mut self, now_ms: u64) -> io::Result<()> {
        assert!(self.switch.is_none(), "one rewrite at a time");
        if !self.needs_rewrite() {
            // What follows in another file is of no use behind a torn one, so this one is made
            // durable first. At most a second's writes are waited for.
            self.write()?;
            self.sync()?;
        }
        let mut manifest = self.manifest.clone();
        let path = self.layout.path_of(&manifest.add_increment(&self.layout));
        let file = OpenFile::open(path.clone(), self.disk.create(&path)?, 0)?;
        let listed = self
            .disk
            .sync_folder(&self.layout.folder())
            .and_then(|()| write_manifest(&*self.disk, &self.layout, &manifest));
        if let Err(error) = listed {
            let _ = self.disk.remove(&path);
            return Err(error);
        }
        self.earlier_len += self.file.len;
        self.file = file;
        self.manifest = manifest;
        self.buffer.clear();
        self.has_gap = false;
        self.begin_file();
        self.switch = Some(Switch { started_at_ms: now_ms, is_unlisted: false });
        Ok(())
    }

    /// The base is whole and durable at [`Layout::new_base`]: it counts from now on.
    ///
    /// Fails, and leaves what counted before, when the disk does.
    pub fn finish_switch(&mut self, is_rdb: bool) -> io::Result<Job> {
        let switch = self.switch.take().expect("a rewrite is under way");
        if self.has_gap {
            return Err(io::Error::other("changes during the rewrite could not be kept"));
        }
        let mut manifest = self.manifest.clone();
        let base = self.layout.path_of(&manifest.replace_base(&self.layout, is_rdb));
        manifest.retire_increments(usize::from(!switch.is_unlisted));
        let base_len = self.disk.size(&self.layout.new_base())?;
        if switch.is_unlisted {
            self.write()?;
            self.sync()?;
            let path = self.layout.path_of(&manifest.add_increment(&self.layout));
            self.disk.rename(&self.file.path, &path)?;
            self.file.path = path;
        }
        self.disk.rename(&self.layout.new_base(), &base)?;
        self.disk.sync_folder(&self.layout.folder())?;
        write_manifest(&*self.disk, &self.layout, &manifest)?;
        self.manifest = manifest;
        self.trouble = None;
        (self.base_len, self.earlier_len) = (base_len, base_len);
        self.rewritten_len = self.len();
        Ok(Job::Remove(self.superseded()))
    }

    /// The base came to nothing: everything counts that counted before.
    pub fn abort_switch(&mut self) {
        self.switch = None;
        // A leftover is overwritten by the next try.
        let _ = self.disk.remove(&self.layout.new_base());
    }

    /// Bytes of the base.
    pub fn base_len(&self) -> u64 {
        self.base_len
    }

    /// Whether all that was taken counts: false until a file that was turned on while the server
    /// runs has its base.
    pub fn is_listed(&self) -> bool {
        !self.switch.is_some_and(|switch| switch.is_unlisted)
            && self.file.path != self.layout.new_increment()
    }

    /// Files of earlier rewrites.
    pub fn superseded(&self) -> Vec<PathBuf> {
        self.manifest.history.iter().map(|file| self.layout.path_of(&file.name)).collect()
    }
}

/// Makes the first base of a store: `write_base` writes all keys to the path it is given, and
/// makes them durable. Returns the manifest that lists it.
pub fn create_base(
    disk: &dyn Disk,
    layout: &Layout,
    is_rdb: bool,
    write_base: impl FnOnce(&std::path::Path) -> io::Result<()>,
) -> io::Result<Manifest> {
    disk.make_folder(&layout.folder())?;
    disk.sync_folder(disk::folder_of(&layout.folder()))?;
    let mut manifest = Manifest::default();
    let path = layout.path_of(&manifest.replace_base(layout, is_rdb));
    write_base(&layout.new_base())?;
    disk.rename(&layout.new_base(), &path)?;
    manifest.add_increment(layout);
    let name = &manifest.increments[0].name;
    disk.create(&layout.path_of(name))?;
    disk.sync_folder(&layout.folder())?;
    write_manifest(disk, layout, &manifest)?;
    Ok(manifest)
}
