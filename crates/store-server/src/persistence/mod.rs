//! Files around the engine: what is loaded at the start, appended meanwhile and left at the end.
//!
//! ```text
//! start     settings ─► start::Loader ─► requests and entries into the engine, in slices
//! turn      units ─► append ─► AppendLog ─► disk; replies leave behind it
//! snapshot  parts ─► a file of all keys: dump.rdb, or the base of the append-only file
//! end       everything durable ─► life: the next start continues this incarnation
//! ```

mod append;
mod base;
mod delay;
mod disk;
mod folder;
mod known;
mod life;
pub(crate) mod snapshot;
mod start;
mod witness;
mod worker;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store_engine::{Config, Engine, LogLevel, ServerRequest, Unit};
use store_persist::aof::{AppendError, Layout, Manifest};
use store_persist::disk::exists;

pub(crate) use append::Append;
pub(crate) use delay::KeyDelay;
pub(crate) use disk::FileDisk;
pub use disk::volatile_folder;
pub(crate) use folder::DataFolders;
pub(crate) use known::KnownDisk;
pub(crate) use life::{History, Life};
pub(crate) use start::{Loader, Step, mended_words, stream_db};
pub(crate) use worker::{FileEvent, Mailbox};

use crate::clock::Running;

/// All files of a server.
pub(crate) struct Persistence {
    pub(crate) disk: Arc<KnownDisk>,
    pub(crate) folders: DataFolders,
    append: Append,
    life: Option<Life>,
    /// What to say of a life that begins now.
    history: History,
    running: Running,
    notes: Vec<(LogLevel, String)>,
}

impl Persistence {
    pub(crate) fn new(
        disk: Arc<KnownDisk>,
        folders: DataFolders,
        config: &Config,
        mailbox: Mailbox,
        history: History,
    ) -> Self {
        let append = Append::new(disk.clone(), folders.clone(), config, mailbox);
        let running = Running::begin();
        Self { disk, folders, append, life: None, history, running, notes: Vec::new() }
    }

    /// Whether there are lines for the log.
    #[inline]
    pub(crate) fn has_notes(&self) -> bool {
        !self.notes.is_empty() || !self.append.notes.is_empty()
    }

    /// Lines for the log since the last call.
    pub(crate) fn take_notes(&mut self) -> Vec<(LogLevel, String)> {
        self.notes.append(&mut self.append.notes);
        std::mem::take(&mut self.notes)
    }

    /// Takes what requests changed.
    pub(crate) fn take_units(&mut self, now_ms: u64, units: &[Unit]) {
        self.append.take_units(now_ms, units);
    }

    /// Replies leave when this returns. Fails when they must not, and the server has to end.
    #[inline]
    pub(crate) fn before_replies(
        &mut self,
        now_ms: u64,
        engine: &mut Engine,
    ) -> Result<(), AppendError> {
        if self.append.is_idle() {
            return Ok(());
        }
        self.append.turn(now_ms, engine)
    }

    /// The same in the middle of a script: what ran before it is written, and nothing else done.
    pub(crate) fn before_early_replies(
        &mut self,
        now_ms: u64,
        units: &[Unit],
    ) -> Result<(), AppendError> {
        self.append.take_units(now_ms, units);
        self.append.flush(now_ms)
    }

    /// A loader of all that was appended so far. Fails with what is to be told.
    pub(crate) fn appended(&mut self, now_ms: u64, engine: &Engine) -> Result<Loader, String> {
        self.append.write_all(now_ms).map_err(|error| error.to_string())?;
        let layout = self.append.layout().cloned().unwrap_or_else(|| layout(engine.config()));
        Loader::of_appended(self.disk.clone(), engine.config(), &layout)
    }

    /// Somebody set the wall clock by so much.
    pub(crate) fn clock_stepped(&mut self, step_ms: i64) {
        self.append.clock_stepped(step_ms);
    }

    /// When a turn is wanted though nothing happens.
    pub(crate) fn wakes_at_ms(&self) -> Option<u64> {
        self.append.wakes_at_ms()
    }

    /// Whether a turn is wanted at once.
    pub(crate) fn is_busy(&self) -> bool {
        self.append.is_busy()
    }

    pub(crate) fn handle_event(&mut self, now_ms: u64, event: FileEvent) {
        match event {
            FileEvent::Done(event) => self.append.handle_event(now_ms, event),
            FileEvent::BaseWaits => {}
        }
    }

    /// The settings changed, or BGREWRITEAOF was asked for.
    pub(crate) fn apply(&mut self, request: &ServerRequest, now_ms: u64, engine: &mut Engine) {
        match request {
            ServerRequest::RewriteAof => self.append.ask_for_rewrite(),
            ServerRequest::SettingsChanged => self.append.apply_settings(now_ms, engine),
            _ => {}
        }
    }

    /// A primary's data is about to replace all data: nothing of that is appended.
    pub(crate) fn hold_append(&mut self, now_ms: u64, engine: &mut Engine) {
        self.append.hold(now_ms, engine, true);
    }

    /// All data is a primary's: what files had before it is needed no more, once it is in files.
    pub(crate) fn note_replaced(&mut self) {
        self.append.note_replaced();
    }

    /// All data was replaced: the append-only file begins anew, with all of it.
    pub(crate) fn resume_append(&mut self, now_ms: u64, engine: &mut Engine) {
        self.append.hold(now_ms, engine, false);
    }

    /// The data is not what it was, and the engine calls it another incarnation: so does the next
    /// start. Where that cannot be written, no start continues either of them.
    pub(crate) fn begin_life(&mut self, engine: &Engine) {
        let Some(life) = &mut self.life else { return };
        life.incarnation.clone_from(&engine.state().identity.incarnation);
        (life.served_ms, life.history) = (0, History::Unknown);
        self.running = Running::begin();
        let dir = dir(engine.config());
        let begun = life::begin(&*self.disk, &dir, life);
        if begun.is_err()
            && let Err(error) = life::forget(&*self.disk, &dir)
        {
            let line = format!("cannot write in {}: {error}", dir.display());
            self.notes.push((LogLevel::Warning, line));
        }
    }

    /// Data is there: files are opened for what follows. Fails with what is to be told.
    pub(crate) fn open(
        &mut self,
        now_ms: u64,
        engine: &mut Engine,
        loaded: start::Loaded,
    ) -> Result<(), String> {
        self.append.open(now_ms, engine, loaded.manifest)?;
        self.notes.append(&mut self.append.notes);
        if !persists(engine.config()) {
            return self.forget_life(&dir(engine.config()));
        }
        let fresh = Life {
            incarnation: engine.identity_mut().incarnation.clone(),
            served_ms: 0,
            history: self.history,
            family: String::new(),
        };
        let (dir, files) = (dir(engine.config()), self.data_files(engine.config()));
        let life = life::resume(&*self.disk, &dir, &files, (fresh, loaded.has_data))
            .map_err(|error| format!("cannot write in {}: {error}", dir.display()))?;
        let identity = engine.identity_mut();
        identity.incarnation.clone_from(&life.incarnation);
        identity.history_complete = life.history.is_complete();
        (self.life, self.running) = (Some(life), Running::begin());
        Ok(())
    }

    /// There is nothing to load, and nothing is kept until the settings say otherwise.
    pub(crate) fn open_without_data(
        &mut self,
        now_ms: u64,
        engine: &mut Engine,
    ) -> Result<(), String> {
        self.append.open(now_ms, engine, Manifest::default())
    }

    /// What changes now is not kept, so a clean end before this must not be continued after it.
    fn forget_life(&mut self, dir: &Path) -> Result<(), String> {
        // Where another server lives, its mark says that it runs, and vouches for nothing.
        let has_mark = exists(&*self.disk, &dir.join(life::NAME));
        if !has_mark || self.folders.own(dir).is_err() {
            return Ok(());
        }
        let forgotten = life::forget(&*self.disk, dir);
        self.folders.release();
        forgotten.map_err(|error| format!("cannot write in {}: {error}", dir.display()))
    }

    /// Makes sure that an end loses nothing of what the append-only file is to keep. Fails with
    /// what is to be told.
    pub(crate) fn prepare_end(&mut self, now_ms: u64, engine: &mut Engine) -> Result<(), String> {
        self.append.prepare_end(now_ms, engine)
    }

    /// The same in the middle of a request: what follows from it is done in the turn.
    pub(crate) fn look_before_end(&mut self, now_ms: u64) -> Result<(), String> {
        self.append.look_before_end(now_ms)
    }

    /// Nothing follows: makes all durable that is to be, and says so for the next start.
    pub(crate) fn close(&mut self, now_ms: u64, engine: &mut Engine) -> Result<(), AppendError> {
        let is_appended = self.append.close(now_ms, engine)?;
        let is_saved =
            engine.config().settings().snapshot.is_automatic() && engine.keyspace().dirty == 0;
        if (is_appended || is_saved) && !engine.is_half_loaded() {
            let ended = self.end_life(engine.config());
            if let Err(error) = ended {
                let line = format!("The next start will not know of this clean end: {error}");
                self.notes.push((LogLevel::Warning, line));
            }
        }
        Ok(())
    }

    /// Says for the next start that these files have everything. Fails when they are not those that
    /// this process wrote or loaded.
    fn end_life(&self, config: &Config) -> io::Result<()> {
        let Some(life) = &self.life else { return Ok(()) };
        let (dir, files) = (dir(config), self.data_files(config));
        for path in &files {
            if !self.disk.is_ours(path)? {
                return Err(io::Error::other(format!("{} was replaced", path.display())));
            }
        }
        self.append.check_len()?;
        let ran_ms = self.running.millis();
        life::end_cleanly(&*self.disk, &dir, &files, (life, ran_ms))
    }

    /// Files that hold the data.
    fn data_files(&self, config: &Config) -> Vec<PathBuf> {
        match self.append.files() {
            Some(files) => files,
            None => snapshot_path(config).into_iter().collect(),
        }
    }
}

/// The folder of all files.
pub(crate) fn dir(config: &Config) -> PathBuf {
    config.settings().snapshot.folder.clone()
}

/// The snapshot file; none without a name, which Redis allows.
pub(crate) fn snapshot_path(config: &Config) -> Option<PathBuf> {
    config.settings().snapshot.path()
}

/// Folder and names of the append-only file.
pub(crate) fn layout(config: &Config) -> Layout {
    config.settings().append.file.layout.clone()
}

/// Whether the server is to find its data again.
pub(crate) fn persists(config: &Config) -> bool {
    config.settings().append.file.is_wanted || config.settings().snapshot.is_automatic()
}
