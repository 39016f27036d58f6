//! The file being appended to: what waits, what is written, what is durable.
//!
//! ```text
//! add ─► buffer ── flush ──► file ── sync ──► durable
//!                    │ error: cut back what was torn, keep the buffer, refuse writes, try again
//!                    └ with `always`: the process must end, since replies promise durability
//! ```
//! Owns no thread and no clock: moments come in, and what takes long goes out as a [`Job`].

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store_resp::Request;

use super::encode::{Encoder, Increment};
use super::layout::Layout;
use super::manifest::{FileKind, Manifest};
use super::plan::{begun_manifest, superseded_manifest, write_manifest};
pub use super::rewrite::Switch;
use crate::disk::{Disk, DiskFile, SyncFile, is_gone};

/// Between two syncs with `everysec`.
const SYNC_PERIOD_MS: u64 = 1000;
/// How long writes wait for a sync under way, since the system would make them wait: then they
/// go ahead, so that no more than two seconds can be lost.
const POSTPONED_MS_MAX: u64 = 2000;
/// Between tries to write after an error.
const RETRY_MS: u64 = 1000;
/// What waits to be written. Beyond it a sync under way is not waited for; beyond it with a disk
/// that fails, the buffer is given up and all is written anew once the disk works.
const BUFFER_MAX: usize = 64 * 1024 * 1024;
const NOT_DURABLE: &str = "earlier bytes could not be made durable";
/// A buffer that grew beyond this is given back.
const KEPT_CAPACITY_MAX: usize = 1024 * 1024;

/// When bytes are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// Before the replies to what they hold.
    Always,
    /// Once a second, on another thread.
    EverySecond,
    /// When the system likes.
    Never,
}

/// Settings in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendSettings {
    /// `appendfsync`.
    pub policy: FsyncPolicy,
    /// `aof-timestamp-enabled`.
    pub has_timestamps: bool,
    /// `no-appendfsync-on-rewrite`, while something is rewritten.
    pub rests_now: bool,
    /// `aof-checksum`.
    pub has_sums: bool,
}

/// The process cannot go on: what it has promised or would promise is not durable.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct AppendError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    #[source]
    pub error: io::Error,
}

/// Why writes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What the system says.
    pub reason: String,
    /// Whether only a rewrite helps: bytes are missing in the file that were acknowledged.
    pub needs_rewrite: bool,
}

/// What is to be done on another thread.
pub enum Job {
    /// Sync this, then tell [`Event::Synced`](super::Event::Synced).
    Sync {
        /// The log it belongs to.
        generation: u64,
        /// The file.
        file: Arc<dyn SyncFile>,
        /// Which sync of that log it is.
        number: u64,
    },
    /// Remove these files, then tell [`Event::Removed`](super::Event::Removed).
    Remove {
        /// The log they were listed by.
        generation: u64,
        /// The files.
        paths: Vec<PathBuf>,
    },
}

/// The append-only file while the server runs.
pub struct AppendLog {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) layout: Layout,
    pub(super) manifest: Manifest,
    pub(super) file: OpenFile,
    /// Which log it is: events of earlier ones say nothing about it.
    pub(super) generation: u64,
    pub(super) encoder: Encoder,
    /// Encoded and not written. All before `sealed` is covered by a checksum in it.
    pub(super) buffer: Vec<u8>,
    pub(super) sealed: usize,
    /// Whether a checksum covers what is added: since the last line that says so.
    sums: bool,
    /// The increment that the open one continues, until its first line says so.
    pub(super) before: Option<Increment>,
    /// Whether the manifest lists the open file.
    pub(super) is_listed: bool,
    /// Bytes of base and increments before the open one; all bytes after the last rewrite.
    pub(super) earlier_len: u64,
    pub(super) base_len: u64,
    pub(super) rewritten_len: u64,
    pub(super) switch: Option<Switch>,
    pub(super) trouble: Option<Trouble>,
    /// Whether somebody removed files that count.
    pub(super) is_missing: bool,
    /// Whether units were given up since the last rewrite began.
    pub(super) has_gap: bool,
    /// Whether bytes are to be made durable that another policy promised to.
    owes_sync: bool,
    retry_at_ms: u64,
    synced_at_ms: u64,
    /// The sync under way.
    syncing: Option<Syncing>,
    syncs: u64,
    postponed_since_ms: Option<u64>,
    delayed_syncs: u64,
    /// Whether the last flush left units in the buffer: their replies have left since.
    has_acknowledged_waiting: bool,
}

/// A sync on another thread.
#[derive(Clone, Copy, Debug)]
struct Syncing {
    number: u64,
    /// Up to where it reaches.
    len: u64,
}

/// The increment being written.
pub(super) struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn DiskFile>,
    pub(super) syncer: Arc<dyn SyncFile>,
    pub(super) len: u64,
    pub(super) synced_len: u64,
}

impl OpenFile {
    pub(super) fn open(path: PathBuf, file: Box<dyn DiskFile>, len: u64) -> io::Result<Self> {
        let syncer = file.syncer()?;
        Ok(Self { path, file, syncer, len, synced_len: 0 })
    }
}

impl AppendLog {
    /// Opens the last increment of what was loaded, or the first one of a new base. The caller
    /// has made sure that there is a base or an increment, and nothing torn at the end.
    ///
    /// What was loaded is durable when this returns: a process that was killed may have written it
    /// and not synced it, and clients are about to see it.
    pub fn open(
        disk: Arc<dyn Disk>,
        layout: Layout,
        mut manifest: Manifest,
        generation: u64,
    ) -> io::Result<Self> {
        disk.make_folder(&layout.folder())?;
        tidy(&*disk, &layout, &mut manifest)?;
        let is_new = manifest.increments.is_empty();
        if is_new {
            manifest.add_increment(&layout);
        }
        let size_of = |name: &str| disk.size(&layout.path_of(name)).unwrap_or(0);
        let base_len = manifest.base.as_ref().map_or(0, |base| size_of(&base.name));
        let all: u64 = manifest.increments.iter().map(|file| size_of(&file.name)).sum();
        let name = &manifest.increments.last().expect("one was added above").name;
        for earlier in manifest.increments.iter().rev().skip(1) {
            // The next one may have been listed without anybody being sure of it.
            disk.append(&layout.path_of(&earlier.name))?.sync()?;
        }
        let (path, len) = (layout.path_of(name), size_of(name));
        let mut file = OpenFile::open(path.clone(), disk.append(&path)?, len)?;
        file.file.sync()?;
        file.synced_len = len;
        disk.sync_folder(&layout.folder())?;
        if is_new {
            write_manifest(&*disk, &layout, &manifest)?;
        }
        let earlier_len = base_len + all - len;
        let earlier = manifest.increments.iter().rev().skip(1).filter(|_| len == 0);
        let mut earlier =
            earlier.map(|file| Increment { sequence: file.sequence, len: size_of(&file.name) });
        // One without a byte lacks none: what is continued is before it.
        let before = earlier.find(|increment| increment.len > 0);
        let mut log = Self::with_file(disk, layout, manifest, file, generation);
        (log.is_listed, log.before) = (true, before);
        (log.base_len, log.earlier_len) = (base_len, earlier_len);
        log.rewritten_len = earlier_len + len;
        Ok(log)
    }

    pub(super) fn with_file(
        disk: Arc<dyn Disk>,
        layout: Layout,
        manifest: Manifest,
        file: OpenFile,
        generation: u64,
    ) -> Self {
        Self {
            disk,
            layout,
            manifest,
            file,
            generation,
            encoder: Encoder::new(),
            buffer: Vec::new(),
            sealed: 0,
            sums: false,
            before: None,
            is_listed: false,
            earlier_len: 0,
            base_len: 0,
            rewritten_len: 0,
            switch: None,
            trouble: None,
            is_missing: false,
            has_gap: false,
            owes_sync: false,
            retry_at_ms: 0,
            synced_at_ms: 0,
            syncing: None,
            syncs: 0,
            postponed_since_ms: None,
            delayed_syncs: 0,
            has_acknowledged_waiting: false,
        }
    }

    /// What follows is in a file of its own, or behind what another process wrote.
    pub(super) fn begin_file(&mut self, file: OpenFile) {
        self.file = file;
        self.syncing = None;
        self.postponed_since_ms = None;
        self.encoder = Encoder::new();
        self.buffer.clear();
        (self.sealed, self.sums, self.has_gap) = (0, false, false);
        self.has_acknowledged_waiting = false;
        self.before = None;
    }

    /// Takes one unit.
    pub fn add<'r>(
        &mut self,
        now_ms: u64,
        requests: impl ExactSizeIterator<Item = (usize, Request<'r>)>,
        settings: &AppendSettings,
    ) {
        if settings.has_timestamps {
            self.encoder.annotate(now_ms / 1000, &mut self.buffer);
        }
        if settings.has_sums && !self.sums {
            // What stands before this line is not covered.
            Encoder::begin_behind(self.before.take(), &mut self.buffer);
            self.sealed = self.buffer.len();
        }
        self.sums = settings.has_sums;
        self.encoder.add(requests, &mut self.buffer);
    }

    /// Writes what waits, and makes it durable as the settings say. To be called before replies
    /// leave, and when [`wakes_at_ms`](Self::wakes_at_ms) is over.
    ///
    /// Fails only when the process must not go on.
    pub fn flush(
        &mut self,
        now_ms: u64,
        settings: &AppendSettings,
    ) -> Result<Option<Job>, AppendError> {
        let acknowledged_len = (!self.has_acknowledged_waiting).then_some(self.file.len);
        let flushed = self.write_and_sync(now_ms, settings);
        self.has_acknowledged_waiting = self.has_waiting();
        if flushed.is_err()
            && let Some(len) = acknowledged_len.filter(|len| *len < self.file.len)
        {
            // The next start must not show what was promised to nobody and may be gone later.
            // What another policy had acknowledged before is not taken away.
            let _ = self.file.file.set_len(len);
        }
        flushed
    }

    fn write_and_sync(
        &mut self,
        now_ms: u64,
        settings: &AppendSettings,
    ) -> Result<Option<Job>, AppendError> {
        if self.needs_rewrite() {
            // Where files were removed, all that is left is in memory: ending would lose it. What
            // waits then was promised to nobody, since writes are refused.
            let must_end = settings.policy == FsyncPolicy::Always && !self.is_missing;
            if must_end && self.has_waiting() {
                return Err(self.error(io::Error::other(NOT_DURABLE)));
            }
            self.bound_buffer();
            return Ok(None);
        }
        // With `always` a reply waits for this, so there is no later.
        let may_wait = settings.policy != FsyncPolicy::Always || !self.has_waiting();
        if self.trouble.is_some() && may_wait && now_ms < self.retry_at_ms {
            self.bound_buffer();
            return self.make_durable(now_ms, settings);
        }
        if self.postpones(now_ms, settings) {
            return Ok(None);
        }
        if let Err(error) = self.write() {
            self.fail(now_ms, &error, false);
            return match settings.policy {
                FsyncPolicy::Always => Err(self.error(error)),
                // What was written before is promised all the same.
                _ => self.make_durable(now_ms, settings),
            };
        }
        if self.trouble.take().is_some() {
            // What has waited for the disk to work is late already.
            self.keep_promises();
        }
        self.make_durable(now_ms, settings)
    }

    /// Writes and syncs everything, for the end of the process or of the file.
    pub fn flush_all(&mut self, now_ms: u64) -> Result<(), AppendError> {
        if self.needs_rewrite() {
            return Err(self.error(io::Error::other(NOT_DURABLE)));
        }
        self.write_durably(now_ms).map_err(|error| self.error(error))
    }

    /// Sync `number` came to its end on another thread.
    pub fn handle_synced(&mut self, now_ms: u64, number: u64, result: Result<(), io::Error>) {
        let ended = self.syncing.take_if(|syncing| syncing.number == number);
        // One of an increment before this one: it was made durable when this one began.
        let Some(syncing) = ended else { return };
        match result {
            Ok(()) => self.file.synced_len = self.file.synced_len.max(syncing.len),
            // The system may have dropped the bytes: a later sync that works says nothing.
            Err(error) => self.fail(now_ms, &error, true),
        }
    }

    /// These old files are gone. Others may have become old since.
    pub fn handle_removed(&mut self, paths: &[PathBuf]) {
        let layout = &self.layout;
        self.manifest.history.retain(|file| !paths.contains(&layout.path_of(&file.name)));
        if self.is_missing || self.is_listed && self.find_missing().is_some() {
            // What stands there now may be another server's.
            return;
        }
        // Files that are listed and gone are no harm: the next rewrite writes it anew.
        let _ = write_manifest(&*self.disk, &self.layout, &self.manifest);
    }

    /// A file that counts and that somebody removed or replaced, if there is one.
    pub fn find_missing(&self) -> Option<PathBuf> {
        if !self.is_listed || self.is_missing {
            return None;
        }
        if !self.has_its_name() {
            return Some(self.file.path.clone());
        }
        let listed = self.manifest.base.iter().chain(&self.manifest.increments);
        let paths = listed.map(|file| self.layout.path_of(&file.name));
        let mut paths = paths.chain([self.layout.manifest()]);
        paths.find(|path| self.disk.size(path).is_err_and(|error| is_gone(&error)))
    }

    /// Whether what is appended now is to be found under its name. Where the disk cannot tell, it
    /// is.
    pub(super) fn has_its_name(&self) -> bool {
        self.file.file.is_at(&self.file.path).unwrap_or(true)
    }

    /// Somebody removed this file: only a rewrite helps.
    pub fn note_missing(&mut self, now_ms: u64, path: &Path) {
        let gone = format!("{} was removed or replaced", path.display());
        self.fail(now_ms, &io::Error::other(gone), true);
        self.is_missing = true;
    }

    /// What was written so far was promised to be durable by now or soon, whatever the policy is
    /// from now on.
    pub fn keep_promises(&mut self) {
        self.owes_sync = self.file.synced_len < self.file.len || self.has_waiting();
    }

    /// Somebody set the clock by so much: waits go on as they were.
    pub fn clock_stepped(&mut self, step_ms: i64) {
        let moments = [&mut self.retry_at_ms, &mut self.synced_at_ms];
        for at in moments.into_iter().chain(&mut self.postponed_since_ms) {
            *at = at.saturating_add_signed(step_ms);
        }
    }

    /// When [`flush`](Self::flush) is wanted though nothing was added.
    pub fn wakes_at_ms(&self, settings: &AppendSettings) -> Option<u64> {
        if self.needs_rewrite() {
            return None;
        }
        let retry_at_ms = self.trouble.is_some().then_some(self.retry_at_ms);
        let postponed = self.postponed_since_ms.map(|since_ms| since_ms + POSTPONED_MS_MAX);
        let sync_at_ms = postponed.or_else(|| self.sync_at_ms(settings));
        [retry_at_ms, sync_at_ms].into_iter().flatten().min()
    }

    /// When the next sync is to begin.
    fn sync_at_ms(&self, settings: &AppendSettings) -> Option<u64> {
        let is_waiting = self.has_waiting() && self.trouble.is_none();
        let has_more = is_waiting || self.file.synced_len < self.file.len;
        if !has_more || settings.rests_now {
            return None;
        }
        match settings.policy {
            FsyncPolicy::Always => Some(0),
            _ if self.syncing.is_some() => None,
            _ if self.owes_sync => Some(0),
            FsyncPolicy::EverySecond => Some(self.synced_at_ms + SYNC_PERIOD_MS),
            FsyncPolicy::Never => None,
        }
    }

    /// Whether units wait to be written.
    pub fn has_waiting(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Why writes are refused, if they are.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Whether a rewrite is the only way to make the file whole.
    pub fn needs_rewrite(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.needs_rewrite)
    }

    /// Bytes that wait.
    pub fn buffer_len(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of all files that count.
    pub fn len(&self) -> u64 {
        self.earlier_len + self.file.len
    }

    /// Whether no file that counts has a byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all files at the last rewrite.
    pub fn rewritten_len(&self) -> u64 {
        self.rewritten_len
    }

    /// Whether a sync is under way.
    pub fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// How often a sync took so long that a write did not wait for it.
    pub fn delayed_syncs(&self) -> u64 {
        self.delayed_syncs
    }

    /// Which log it is.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Files that count.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where the files lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn postpones(&mut self, now_ms: u64, settings: &AppendSettings) -> bool {
        let waits = settings.policy == FsyncPolicy::EverySecond
            && self.syncing.is_some()
            && self.has_waiting()
            && self.buffer.len() < BUFFER_MAX;
        if !waits {
            self.postponed_since_ms = None;
            return false;
        }
        let since_ms = *self.postponed_since_ms.get_or_insert(now_ms);
        if now_ms < since_ms + POSTPONED_MS_MAX {
            return true;
        }
        self.postponed_since_ms = None;
        self.delayed_syncs += 1;
        false
    }

    /// Writes the buffer. After an error the file has all of it or nothing, as far as the disk
    /// lets itself be told.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if self.sums && self.buffer.len() > self.sealed {
            Encoder::seal(&mut self.buffer, self.sealed);
            self.sealed = self.buffer.len();
        }
        let mut written = 0;
        while written < self.buffer.len() {
            let error = match self.file.file.write(&self.buffer[written..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    written += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            if written > 0 && self.file.file.set_len(self.file.len).is_err() {
                // It stays torn in the file; what is left continues it.
                self.buffer.drain(..written);
                self.sealed = self.buffer.len();
                self.file.len += written as u64;
            }
            return Err(error);
        }
        self.file.len += written as u64;
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_CAPACITY_MAX);
        self.sealed = 0;
        Ok(())
    }

    fn make_durable(
        &mut self,
        now_ms: u64,
        settings: &AppendSettings,
    ) -> Result<Option<Job>, AppendError> {
        if self.file.synced_len == self.file.len || settings.rests_now {
            return Ok(None);
        }
        match settings.policy {
            FsyncPolicy::Always => {
                self.sync(now_ms).map_err(|error| self.error(error))?;
                self.synced_at_ms = now_ms;
                self.owes_sync = false;
                Ok(None)
            }
            FsyncPolicy::EverySecond => Ok(self.begin_sync(now_ms)),
            FsyncPolicy::Never if self.owes_sync => Ok(self.begin_sync(now_ms)),
            FsyncPolicy::Never => Ok(None),
        }
    }

    fn begin_sync(&mut self, now_ms: u64) -> Option<Job> {
        // A clock that was set back must not keep syncs waiting until it is there again.
        let since_ms = now_ms.checked_sub(self.synced_at_ms);
        let is_due = since_ms.is_none_or(|since_ms| since_ms >= SYNC_PERIOD_MS) || self.owes_sync;
        if self.syncing.is_some() || !is_due {
            return None;
        }
        self.owes_sync = false;
        self.synced_at_ms = now_ms;
        self.syncs += 1;
        let number = self.syncs;
        self.syncing = Some(Syncing { number, len: self.file.len });
        let (generation, file) = (self.generation, Arc::clone(&self.file.syncer));
        Some(Job::Sync { generation, file, number })
    }

    /// Writes what waits and makes all durable, whatever the policy.
    pub(super) fn write_durably(&mut self, now_ms: u64) -> io::Result<()> {
        self.write().inspect_err(|error| self.fail(now_ms, error, false))?;
        self.sync(now_ms)
    }

    /// Makes all durable that is written. When that fails only a rewrite helps: the system may
    /// have dropped the bytes, and a later sync that works says nothing about them.
    fn sync(&mut self, now_ms: u64) -> io::Result<()> {
        if self.file.synced_len < self.file.len {
            self.file.file.sync().inspect_err(|error| self.fail(now_ms, error, true))?;
            self.file.synced_len = self.file.len;
        }
        Ok(())
    }

    fn fail(&mut self, now_ms: u64, error: &io::Error, needs_rewrite: bool) {
        let needs_rewrite = needs_rewrite || self.needs_rewrite();
        self.retry_at_ms = now_ms + RETRY_MS;
        self.trouble = Some(Trouble { reason: reason(error), needs_rewrite });
    }

    /// Keys still end while writes are refused, so the buffer may grow even then.
    fn bound_buffer(&mut self) {
        if self.buffer.len() > BUFFER_MAX
            && let Some(trouble) = &mut self.trouble
        {
            trouble.needs_rewrite = true;
            self.has_gap = true;
            self.buffer = Vec::new();
            (self.sealed, self.sums) = (0, false);
        }
    }

    pub(super) fn error(&self, error: io::Error) -> AppendError {
        AppendError { path: self.file.path.clone(), error }
    }
}

/// Leaves files that are there their names, and removes what a process that is gone has begun.
fn tidy(disk: &dyn Disk, layout: &Layout, manifest: &mut Manifest) -> io::Result<()> {
    let names = disk.list(&layout.folder())?;
    manifest.pass_over(layout, &names);
    let begun = begun_manifest(disk, layout);
    // The only copy, perhaps; and who lets it count again needs all of it.
    let aside = superseded_manifest(disk, layout);
    let is_unused = |name: &str| match layout.parse_name(name) {
        _ if manifest.lists(name) || manifest.is_empty() || aside.lists(name) => false,
        // A rewrite was about to list it: all that it has is in the files that count.
        Some((FileKind::Base, _)) => begun.lists(name),
        Some(_) => disk.size(&layout.path_of(name)).is_ok_and(|len| len == 0),
        None => false,
    };
    for name in names.iter().filter(|name| layout.is_leftover(name) || is_unused(name)) {
        // One that stays only takes up room.
        let _ = disk.remove(&layout.path_of(name));
    }
    Ok(())
}

/// What the system says, without the number that Rust adds.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
