//! The append-only file as the loop drives it.
//!
//! ```text
//! Off ── appendonly yes ──► Starting ── first base written ──► On ── appendonly no ──► Off
//!                              └──── it came to nothing: tried again ────┘
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use store_engine::{AofFacts, Config, Engine, SnapshotTurn, Unit};
use store_persist::aof::{
    AppendError, AppendLog, AppendSettings, FsyncPolicy, Job, create_base, make_plan,
};
use store_persist::disk::Disk;

use super::base::{BaseTurn, BaseWriter, write_base_now};
use super::folder::DataFolders;
use super::layout;
use super::start::Loaded;
use super::worker::{FileEvent, Mailbox, Worker};
use crate::server::LogLevel;

/// After a failed rewrite the next automatic one waits this long, twice as long each time.
const RETRY_MS: u64 = 60_000;
const RETRY_MS_MAX: u64 = 3_600_000;
/// Failures in a row that are tried again at once.
const FAILURES_MAX: u64 = 3;

/// The append-only file, on or off.
pub(crate) struct Append {
    disk: Arc<dyn Disk>,
    folders: DataFolders,
    worker: Worker,
    log: Option<AppendLog>,
    /// Whether the settings want the file.
    is_wanted: bool,
    /// The base being written.
    base: Option<BaseWriter>,
    /// Whether a snapshot was given up and leaves its last traces: no other can begin meanwhile.
    settles: bool,
    /// Whether a rewrite was asked for and has not begun.
    rewrite_wanted: bool,
    retry_at_ms: u64,
    settings: Settings,
    facts: AofFacts,
    pub(super) notes: Vec<(LogLevel, String)>,
}

/// What the settings say, looked up once per change.
#[derive(Clone, Copy)]
struct Settings {
    policy: FsyncPolicy,
    has_timestamps: bool,
    rests_on_rewrite: bool,
    has_rdb_base: bool,
    growth_percentage: u64,
    rewrite_size_min: u64,
}

impl Settings {
    fn of(config: &Config) -> Self {
        Self {
            policy: match config.text("appendfsync") {
                "always" => FsyncPolicy::Always,
                "no" => FsyncPolicy::Never,
                _ => FsyncPolicy::EverySecond,
            },
            has_timestamps: config.is_on("aof-timestamp-enabled"),
            rests_on_rewrite: config.is_on("no-appendfsync-on-rewrite"),
            has_rdb_base: config.is_on("aof-use-rdb-preamble"),
            growth_percentage: config.number("auto-aof-rewrite-percentage") as u64,
            rewrite_size_min: config.number("auto-aof-rewrite-min-size") as u64,
        }
    }
}

impl Append {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        folders: DataFolders,
        config: &Config,
        mailbox: Mailbox,
    ) -> Self {
        Self {
            folders,
            worker: Worker::new(Arc::clone(&disk), mailbox),
            disk,
            log: None,
            is_wanted: false,
            base: None,
            settles: false,
            rewrite_wanted: false,
            retry_at_ms: 0,
            settings: Settings::of(config),
            facts: AofFacts::default(),
            notes: Vec::new(),
        }
    }

    /// Opens the file behind what was loaded from it, or makes its first base.
    pub(super) fn open(
        &mut self,
        now_ms: u64,
        engine: &mut Engine,
        loaded: Loaded,
    ) -> Result<(), String> {
        self.is_wanted = engine.config().is_on("appendonly");
        if !self.is_wanted {
            return Ok(());
        }
        let layout = layout(engine.config());
        let folder = layout.folder();
        let says =
            |error| format!("cannot open the append-only file in {}: {error}", folder.display());
        let manifest = match loaded.manifest.is_empty() {
            false => loaded.manifest,
            true => {
                let is_rdb = self.settings.has_rdb_base;
                self.note(format!(
                    "Creating AOF base file in {} on server start",
                    folder.display()
                ));
                let disk = Arc::clone(&self.disk);
                create_base(&*self.disk, &layout, is_rdb, |path| {
                    write_base_now(&*disk, path, engine, now_ms * 1000, is_rdb)
                })
                .map_err(says)?
            }
        };
        let log = AppendLog::open(Arc::clone(&self.disk), layout, manifest).map_err(says)?;
        let old = log.superseded();
        self.log = Some(log);
        if !old.is_empty() {
            self.give(Job::Remove(old));
        }
        engine.set_propagating(true);
        self.tell(engine);
        Ok(())
    }

    /// Whether nothing is to be done before replies leave.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        let is_at_work = self.base.is_some() || self.settles || self.rewrite_wanted;
        self.log.is_none() && !self.is_wanted && !is_at_work
    }

    /// Whether the base wants more of the loop's time.
    pub(super) fn is_busy(&self) -> bool {
        self.settles || self.base.as_ref().is_some_and(|base| !base.waits())
    }

    pub(super) fn take_units(&mut self, now_ms: u64, units: &[Unit]) {
        let settings = self.append_settings();
        let Some(log) = &mut self.log else { return };
        for unit in units {
            let requests = unit.requests.iter().map(|(db, request)| (*db, request.as_request()));
            log.add(now_ms, requests, &settings);
        }
    }

    /// Writes what waits, and goes on with a rewrite.
    pub(super) fn turn(&mut self, now_ms: u64, engine: &mut Engine) -> Result<(), AppendError> {
        self.flush(now_ms)?;
        if self.base.is_some() {
            self.rewrite_turn(now_ms, engine);
        } else if self.settles {
            let turn = engine.snapshot_turn(0);
            self.settles = !matches!(turn, SnapshotTurn::Idle);
        } else if self.wants_rewrite(now_ms) && !engine.has_snapshot() {
            self.begin_rewrite(now_ms, engine);
        }
        self.tell(engine);
        Ok(())
    }

    pub(super) fn flush(&mut self, now_ms: u64) -> Result<(), AppendError> {
        let settings = self.append_settings();
        let Some(log) = &mut self.log else { return Ok(()) };
        let is_due = || log.wakes_at_ms(&settings).is_some_and(|at| at <= now_ms);
        if !log.has_waiting() && !is_due() {
            return Ok(());
        }
        let (delayed, trouble) = (log.delayed_syncs(), log.trouble().cloned());
        let job = log.flush(now_ms, &settings)?;
        let was_delayed = log.delayed_syncs() > delayed;
        let now_trouble = log.trouble().cloned();
        if was_delayed {
            self.warn(
                "Asynchronous AOF fsync is taking too long (disk is busy?). Writing the AOF buffer \
                 without waiting for fsync to complete, this may slow down the server."
                    .to_owned(),
            );
        }
        match (trouble, now_trouble) {
            (None, Some(trouble)) => self.warn(format!(
                "Error writing to the AOF file: {}. Writes are refused until it works again.",
                trouble.reason
            )),
            (Some(_), None) => {
                self.warn("AOF write error looks solved, the server can write again.".to_owned());
            }
            _ => {}
        }
        if let Some(job) = job {
            self.give(job);
        }
        Ok(())
    }

    pub(super) fn wakes_at_ms(&self) -> Option<u64> {
        let log = self.log.as_ref()?;
        let retry = (log.needs_rewrite() && self.base.is_none()).then_some(self.retry_at_ms);
        [log.wakes_at_ms(&self.append_settings()), retry].into_iter().flatten().min()
    }

    pub(super) fn handle_event(&mut self, now_ms: u64, event: FileEvent) {
        match (event, &mut self.log) {
            (FileEvent::Synced { number, result }, Some(log)) => {
                if let Err(error) = &result {
                    let line = format!(
                        "Syncing the AOF file failed: {error}. Writes are refused until it is \
                         written anew."
                    );
                    self.notes.push((LogLevel::Warning, line));
                }
                log.handle_synced(now_ms, number, result);
            }
            (FileEvent::Removed, Some(log)) => log.handle_removed(),
            (FileEvent::BaseWritten(result), _) => {
                if let Some(base) = &mut self.base {
                    base.written = Some(result);
                }
            }
            // Being told is all it takes.
            (FileEvent::BaseWaits, _) | (_, None) => {}
        }
    }

    pub(super) fn ask_for_rewrite(&mut self) {
        self.rewrite_wanted = true;
    }

    /// Turns the file on or off, as the settings now say.
    pub(super) fn apply_settings(&mut self, now_ms: u64, engine: &mut Engine) {
        self.settings = Settings::of(engine.config());
        let wanted = engine.config().is_on("appendonly");
        if wanted == self.is_wanted {
            return;
        }
        self.is_wanted = wanted;
        if wanted {
            self.retry_at_ms = now_ms;
            self.note("AOF is turned on: its first base is written in the background.".to_owned());
        } else {
            self.turn_off(engine);
        }
        self.tell(engine);
    }

    fn turn_off(&mut self, engine: &mut Engine) {
        engine.set_propagating(false);
        self.rewrite_wanted = false;
        if self.base.take().is_some() {
            self.settles = true;
            engine.abandon_snapshot();
        }
        let Some(mut log) = self.log.take() else { return };
        if let Err(error) = log.flush_all() {
            self.warn(format!("Writing the last of the AOF file failed: {error}"));
        }
        self.note("AOF is turned off.".to_owned());
    }

    /// Writes all that waits, whatever the policy.
    pub(super) fn write_all(&mut self) -> Result<(), AppendError> {
        self.log.as_mut().map_or(Ok(()), AppendLog::flush_all)
    }

    /// Makes all durable. True when the files hold everything.
    pub(super) fn close(&mut self, engine: &mut Engine) -> Result<bool, AppendError> {
        if self.base.take().is_some() {
            engine.abandon_snapshot();
        }
        let Some(mut log) = self.log.take() else { return Ok(false) };
        self.note("Calling fsync() on the AOF file.".to_owned());
        log.flush_all()?;
        let is_listed = log.is_listed();
        self.log = Some(log);
        Ok(is_listed)
    }

    /// The files that count, manifest included; `None` while the file is off.
    pub(super) fn files(&self) -> Option<Vec<PathBuf>> {
        let log = self.log.as_ref().filter(|log| log.is_listed())?;
        let manifest = log.manifest();
        let listed = manifest.base.iter().chain(&manifest.increments);
        let listed = listed.map(|file| log.layout().path_of(&file.name));
        Some(listed.chain([log.layout().manifest()]).collect())
    }

    fn wants_rewrite(&self, now_ms: u64) -> bool {
        let is_starting = self.is_wanted && self.log.is_none();
        let needs = self.log.as_ref().is_some_and(AppendLog::needs_rewrite);
        let is_time = now_ms >= self.retry_at_ms;
        self.rewrite_wanted || is_time && (is_starting || needs || self.has_grown())
    }

    fn has_grown(&self) -> bool {
        let Some(log) = &self.log else { return false };
        let Settings { growth_percentage, rewrite_size_min, .. } = self.settings;
        let (len, base) = (log.len(), log.rewritten_len().max(1));
        growth_percentage > 0
            && len > rewrite_size_min
            && (len * 100 / base).saturating_sub(100) >= growth_percentage
    }

    fn begin_rewrite(&mut self, now_ms: u64, engine: &mut Engine) {
        self.rewrite_wanted = false;
        self.facts.rewrites += 1;
        self.facts.rewrite_started_at_ms = now_ms;
        let owned = self.folders.own(&super::dir(engine.config()));
        let begun = owned.map_err(std::io::Error::other).and_then(|()| match &mut self.log {
            Some(log) => log.begin_switch(now_ms),
            None => self.begin_unlisted(now_ms, engine),
        });
        let path = self.log.as_ref().map(|log| log.layout().new_base()).unwrap_or_default();
        let begun = begun.and_then(|()| {
            let is_rdb = self.settings.has_rdb_base;
            let mailbox = self.worker.mailbox();
            BaseWriter::begin(&*self.disk, &path, engine, now_ms * 1000, is_rdb, mailbox)
        });
        match begun {
            Ok(base) => {
                self.base = Some(base);
                self.note("Background append only file rewriting started".to_owned());
            }
            Err(error) => {
                self.settles = engine.has_snapshot();
                self.rewrite_failed(now_ms, engine, &error.to_string());
            }
        }
    }

    /// A file that was off: what it lists, if anything, counts until there is a base.
    fn begin_unlisted(&mut self, now_ms: u64, engine: &mut Engine) -> std::io::Result<()> {
        let layout = layout(engine.config());
        let plan = make_plan(&*self.disk, &layout).map_err(std::io::Error::other)?;
        let disk = Arc::clone(&self.disk);
        self.log = Some(AppendLog::begin_unlisted(disk, layout, plan.manifest, now_ms)?);
        engine.set_propagating(self.is_wanted);
        Ok(())
    }

    fn rewrite_turn(&mut self, now_ms: u64, engine: &mut Engine) {
        let Some(base) = &mut self.base else { return };
        match base.turn(engine) {
            BaseTurn::More => {}
            BaseTurn::Failed(reason) => self.rewrite_failed(now_ms, engine, &reason),
            BaseTurn::Done => {
                self.base = None;
                let Some(log) = &mut self.log else { return };
                match log.finish_switch(self.settings.has_rdb_base) {
                    Ok(job) => self.rewrite_done(now_ms, engine, job),
                    Err(error) => self.rewrite_failed(now_ms, engine, &error.to_string()),
                }
            }
        }
    }

    fn rewrite_done(&mut self, now_ms: u64, engine: &mut Engine, job: Job) {
        self.note("Background AOF rewrite finished successfully".to_owned());
        self.end_rewrite(now_ms);
        (self.facts.last_rewrite_ok, self.facts.rewrite_failures) = (true, 0);
        self.give(job);
        if !self.is_wanted {
            // BGREWRITEAOF with the file off: the base is there, and nothing is appended.
            engine.set_propagating(false);
            self.log = None;
        }
    }

    fn rewrite_failed(&mut self, now_ms: u64, engine: &mut Engine, reason: &str) {
        self.warn(format!("Background AOF rewrite failed: {reason}"));
        self.end_rewrite(now_ms);
        self.facts.last_rewrite_ok = false;
        self.facts.rewrite_failures += 1;
        if self.base.take().is_some() {
            self.settles = true;
            engine.abandon_snapshot();
        }
        let over = self.facts.rewrite_failures.saturating_sub(FAILURES_MAX).min(16);
        let wait_ms = if over == 0 { 1000 } else { RETRY_MS << (over - 1) };
        self.retry_at_ms = now_ms + wait_ms.min(RETRY_MS_MAX);
        if let Some(log) = &mut self.log {
            if log.switch().is_some() {
                log.abort_switch();
            }
            if !log.is_listed() {
                // Its first base came to nothing: it begins anew.
                engine.set_propagating(false);
                self.log = None;
            }
        }
    }

    fn end_rewrite(&mut self, now_ms: u64) {
        let took_ms = now_ms.saturating_sub(self.facts.rewrite_started_at_ms);
        self.facts.last_rewrite_seconds = Some(took_ms / 1000);
    }

    fn append_settings(&self) -> AppendSettings {
        AppendSettings {
            policy: self.settings.policy,
            has_timestamps: self.settings.has_timestamps,
            rests_now: self.settings.rests_on_rewrite && self.base.is_some(),
        }
    }

    fn give(&mut self, job: Job) {
        if let Err(error) = self.worker.give(job) {
            // A sync that is never answered keeps its place: nothing is acknowledged as durable.
            self.warn(format!("Cannot start the thread for files: {error}"));
        }
    }

    /// Tells the engine, for INFO and its gates.
    fn tell(&mut self, engine: &mut Engine) {
        let facts = &mut self.facts;
        facts.is_on = self.is_wanted;
        facts.is_rewriting = self.base.is_some();
        facts.is_scheduled = self.rewrite_wanted || self.is_wanted && self.log.is_none();
        if let Some(log) = &self.log {
            facts.trouble = log.trouble().map(|trouble| trouble.reason.clone());
            facts.current_size = log.len();
            facts.base_size = log.rewritten_len();
            facts.buffer_len = log.buffer_len();
            facts.is_syncing = log.is_syncing();
            facts.delayed_syncs = log.delayed_syncs();
        } else {
            facts.trouble = None;
        }
        if *facts != engine.state().persistence.aof {
            engine.set_aof_facts(facts.clone());
        }
    }

    fn note(&mut self, line: String) {
        self.notes.push((LogLevel::Notice, line));
    }

    fn warn(&mut self, line: String) {
        self.notes.push((LogLevel::Warning, line));
    }
}
