//! The append-only file as the loop drives it: what `AppendFile` decides is done here, in order.
//!
//! ```text
//! units, settings, commands, time ─► AppendFile ─► Output ─► engine, thread for files, base
//!                                        ▲                                        │
//!                                        └────────── FileEvent, with a generation ┘
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store_engine::{Audience, Config, Engine, LogLevel, Unit};
use store_persist::aof::{AppendError, AppendFile, Event, Layout, Manifest, Output, Settings};
use store_persist::disk::{Disk, exists};

use super::base::{BaseTurn, BaseWriter, write_base_now};
use super::dir;
use super::folder::DataFolders;
use super::known::KnownDisk;
use super::worker::{Mailbox, Worker};

/// The append-only file, on or off.
pub(crate) struct Append {
    disk: Arc<KnownDisk>,
    folders: DataFolders,
    worker: Worker,
    file: AppendFile,
    /// The base being written.
    base: Option<BaseWriter>,
    /// Whether nothing is appended whatever the settings say: all data is about to be replaced.
    is_held: bool,
    pub(super) notes: Vec<(LogLevel, String)>,
}

fn settings(config: &Config) -> Settings {
    config.settings().append.file.clone()
}

impl Append {
    pub(super) fn new(
        disk: Arc<KnownDisk>,
        folders: DataFolders,
        config: &Config,
        mailbox: Mailbox,
    ) -> Self {
        Self {
            folders,
            worker: Worker::new(disk.clone(), mailbox),
            file: AppendFile::new(disk.clone(), settings(config)),
            disk,
            base: None,
            is_held: false,
            notes: Vec::new(),
        }
    }

    /// Opens the file behind what was loaded from it, or makes its first base.
    pub(super) fn open(
        &mut self,
        now_ms: u64,
        engine: &mut Engine,
        loaded: Manifest,
    ) -> Result<(), String> {
        let settings = settings(engine.config());
        let (folder, is_rdb) = (settings.layout.folder(), settings.has_rdb_base);
        let disk = Arc::clone(&self.disk);
        let opened = self.file.open(settings, loaded, |path| {
            write_base_now(&*disk, path, engine, now_ms * 1000, is_rdb)
        });
        opened.map_err(|error| {
            format!("cannot open the append-only file in {}: {error}", folder.display())
        })?;
        self.drive(now_ms, engine);
        self.tell(engine);
        Ok(())
    }

    /// Whether nothing is to be done before replies leave.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.base.is_none() && self.file.is_idle()
    }

    /// Whether the base wants more of the loop's time.
    pub(super) fn is_busy(&self) -> bool {
        self.file.has_output() || self.base.as_ref().is_some_and(|base| !base.waits())
    }

    pub(super) fn take_units(&mut self, now_ms: u64, units: &[Unit]) {
        for unit in units {
            if unit.is_for_all() {
                let requests = unit.requests.iter();
                self.file.add(now_ms, requests.map(|(db, request)| (*db, request.as_request())));
                continue;
            }
            let requests = unit.requests_for(Audience::File);
            if !requests.is_empty() {
                self.file.add(now_ms, requests.into_iter());
            }
        }
    }

    /// Writes what waits, and goes on with a rewrite.
    pub(super) fn turn(&mut self, now_ms: u64, engine: &mut Engine) -> Result<(), AppendError> {
        let rest_us = engine.state().debug.flush_sleep_us;
        if rest_us > 0 && self.file.facts().buffer_len > 0 {
            std::thread::sleep(Duration::from_micros(rest_us));
        }
        self.flush(now_ms)?;
        self.own_folder(now_ms, engine);
        self.file.begin_due_rewrite(now_ms, !engine.has_snapshot());
        self.drive(now_ms, engine);
        self.walk(now_ms, engine);
        self.tell(engine);
        Ok(())
    }

    /// A rewrite makes files, in a folder that CONFIG SET may have named: not in another server's.
    fn own_folder(&mut self, now_ms: u64, engine: &Engine) {
        if self.file.is_rewrite_due(now_ms) {
            let free = self.check_manifest();
            let owned = free.and_then(|()| self.folders.own(&dir(engine.config())));
            if let Err(reason) = owned {
                self.file.refuse_rewrite(now_ms, &reason);
            }
        }
    }

    /// Fails where other files stand in place of ours: a backup that was put back, or the files of
    /// a server that ran there meanwhile. They may be the only copy of that data.
    fn check_manifest(&self) -> Result<(), String> {
        let Some(path) = self.file.layout().map(Layout::manifest) else { return Ok(()) };
        let is_free = !exists(&*self.disk, &path);
        match is_free || self.disk.is_ours(&path).unwrap_or(false) {
            true => Ok(()),
            false => Err(format!(
                "{} is not the one that this server wrote, so the files there are another's: put \
                 its own folder back, or move those files away and this server writes all its data \
                 anew",
                path.display()
            )),
        }
    }

    pub(super) fn flush(&mut self, now_ms: u64) -> Result<(), AppendError> {
        self.file.flush(now_ms)
    }

    pub(super) fn clock_stepped(&mut self, step_ms: i64) {
        self.file.clock_stepped(step_ms);
    }

    pub(super) fn wakes_at_ms(&self) -> Option<u64> {
        self.file.wakes_at_ms()
    }

    /// A thread has something to tell. What follows from it is done in the turn.
    pub(super) fn handle_event(&mut self, now_ms: u64, event: Event) {
        self.file.handle_event(now_ms, event);
    }

    pub(super) fn ask_for_rewrite(&mut self) {
        self.file.ask_for_rewrite();
    }

    /// Turns the file on or off, as the settings now say.
    pub(super) fn apply_settings(&mut self, now_ms: u64, engine: &mut Engine) {
        let mut settings = settings(engine.config());
        settings.is_wanted &= !self.is_held;
        self.file.apply(now_ms, settings);
        self.drive(now_ms, engine);
        self.tell(engine);
    }

    /// Appends nothing until all data has been replaced; then the file begins anew.
    pub(super) fn hold(&mut self, now_ms: u64, engine: &mut Engine, is_held: bool) {
        self.is_held = is_held;
        if is_held {
            self.file.handle_data_leaving(now_ms);
        }
        self.apply_settings(now_ms, engine);
    }

    /// All data of a primary takes the place of the old.
    pub(super) fn note_replaced(&mut self) {
        self.file.handle_data_replaced();
    }

    /// Writes all that waits, whatever the policy.
    pub(super) fn write_all(&mut self, now_ms: u64) -> Result<(), AppendError> {
        self.file.write_all(now_ms)
    }

    /// Makes sure that an end loses nothing. Fails with what is to be told.
    pub(super) fn prepare_end(&mut self, now_ms: u64, engine: &mut Engine) -> Result<(), String> {
        let prepared = self.file.prepare_end(now_ms);
        self.drive(now_ms, engine);
        self.tell(engine);
        prepared
    }

    /// The same, and what follows from it is left to the turn.
    pub(super) fn look_before_end(&mut self, now_ms: u64) -> Result<(), String> {
        self.file.prepare_end(now_ms)
    }

    /// Where the files lie that count; `None` while the file is off.
    pub(super) fn layout(&self) -> Option<&Layout> {
        self.file.layout()
    }

    /// Makes all durable. True when the files hold everything.
    pub(super) fn close(&mut self, now_ms: u64, engine: &mut Engine) -> Result<bool, AppendError> {
        let closed = self.file.close(now_ms);
        self.drive(now_ms, engine);
        closed
    }

    /// The files that count, manifest included; `None` while the file is off.
    pub(super) fn files(&self) -> Option<Vec<PathBuf>> {
        self.file.files()
    }

    /// Fails when the files do not have as many bytes as were written to them.
    pub(super) fn check_len(&self) -> io::Result<()> {
        let Some(files) = self.file.files() else { return Ok(()) };
        let mut found = 0;
        // The last one is the manifest.
        for path in &files[..files.len().saturating_sub(1)] {
            found += self.disk.size(path)?;
        }
        let written = self.file.facts().current_size;
        match found == written {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "the append-only files have {found} bytes, {written} were written"
            ))),
        }
    }

    /// Does what the machine asks for.
    fn drive(&mut self, now_ms: u64, engine: &mut Engine) {
        while let Some(output) = self.file.poll_output() {
            match output {
                Output::Propagate(is_feeding) => engine.set_feeding_file(is_feeding),
                Output::WriteBase { generation, path, is_rdb } => {
                    let (mailbox, now_us) = (self.worker.mailbox(), now_ms * 1000);
                    let at = path.clone();
                    let disk: Arc<dyn Disk> = self.disk.clone();
                    let begun =
                        BaseWriter::begin(&disk, at, engine, now_us, is_rdb, generation, mailbox);
                    match begun {
                        Ok(base) => self.base = Some(base),
                        Err(error) => self.end_base(now_ms, generation, path, error.to_string()),
                    }
                }
                Output::DropBase { generation } => {
                    if self.base.take_if(|base| base.generation == generation).is_some() {
                        engine.abandon_snapshot();
                    }
                }
                Output::Work(job) => {
                    if let Err(error) = self.worker.give(job) {
                        // A sync that is never answered keeps its place: nothing is acknowledged
                        // as durable.
                        let line = format!("Cannot start the thread for files: {error}");
                        self.notes.push((LogLevel::Warning, line));
                    }
                }
                Output::Note(line) => self.notes.push((LogLevel::Notice, line)),
                Output::Warn(line) => self.notes.push((LogLevel::Warning, line)),
            }
        }
    }

    fn end_base(&mut self, now_ms: u64, generation: u64, path: PathBuf, reason: String) {
        let result = Err(reason);
        self.file.handle_event(now_ms, Event::BaseWritten { generation, path, result });
    }

    /// Goes on with the walk for the base, if there is one.
    fn walk(&mut self, now_ms: u64, engine: &mut Engine) {
        let Some(base) = &mut self.base else { return };
        match base.turn(engine) {
            BaseTurn::More => {}
            BaseTurn::HandedOver => self.base = None,
            BaseTurn::Failed(reason) => {
                let (generation, path) = (base.generation, base.path.clone());
                self.end_base(now_ms, generation, path, reason);
                self.drive(now_ms, engine);
            }
        }
    }

    /// Tells the engine, for INFO and its gates.
    fn tell(&mut self, engine: &mut Engine) {
        let facts = self.file.facts();
        if facts != engine.state().persistence.aof {
            engine.set_aof_facts(facts);
        }
    }
}
