//! The life of the append-only file: one state machine for settings, commands, units, time and
//! the threads that do its work.
//!
//! ```text
//! Loading ── data is there ──► Off ◄─────────────── appendonly no ──────────────┐
//!     │                         │ appendonly yes                                │
//!     │                         ▼                                               │
//!     │                      Starting ── first base listed ──► On ◄──► Rewriting┤
//!     │                         └ failed: begun anew            └─► Failed ◄──► ┘
//!     └── appendonly yes ─────────────────────────────────────► On
//! ```
//! `handle_*` and wishes come in, each with the moment; what is to be done goes out by
//! [`poll_output`](AppendFile::poll_output) and must be done in order, before the next unit.
//!
//! What threads say carries the generation of what they worked on. A generation is given to one
//! log or one base and never again, so what comes late or twice is known and ignored.
//!
//! Owns no thread and no clock; reads and writes files by [`Disk`]. The server runs this very
//! machine, and so do the seeded histories in this crate's tests, on a disk that fails.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store_resp::Request;

use super::layout::Layout;
use super::log::{AppendError, AppendLog, AppendSettings, FsyncPolicy, Job};
use super::manifest::{Manifest, Numbers};
use super::plan::{make_plan, remove_begun, set_aside, superseded_manifest};
use super::rewrite::{create_base, make_durable_folder, replace_all};
use crate::disk::Disk;

mod folders;

/// After a failed rewrite the next automatic one waits this long, twice as long each time.
const RETRY_MS: u64 = 60_000;
const RETRY_MS_MAX: u64 = 3_600_000;
/// Failures in a row that are tried again soon.
const FAILURES_MAX: u64 = 3;
const SOON_MS: u64 = 1000;

/// What the settings say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `appendonly`.
    pub is_wanted: bool,
    /// `dir`, `appenddirname` and `appendfilename`.
    pub layout: Layout,
    /// `appendfsync`.
    pub policy: FsyncPolicy,
    /// `aof-timestamp-enabled`.
    pub has_timestamps: bool,
    /// `aof-checksum`.
    pub has_sums: bool,
    /// `no-appendfsync-on-rewrite`.
    pub rests_on_rewrite: bool,
    /// `aof-use-rdb-preamble`.
    pub has_rdb_base: bool,
    /// `auto-aof-rewrite-percentage`; zero for never.
    pub growth_percentage: u64,
    /// `auto-aof-rewrite-min-size`.
    pub rewrite_size_min: u64,
}

/// Where the file is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Data is being loaded: nothing is appended.
    Loading,
    /// Nothing is appended.
    Off,
    /// Wanted, and without a base that counts: an older set of files does until then.
    Starting,
    /// What is acknowledged is kept as the policy says.
    On,
    /// The same, while it is written anew.
    Rewriting,
    /// Writes are refused: bytes could not be written, or may be missing in the file.
    Failed,
}

/// What is to be done, in order.
pub enum Output {
    /// Record units from now on, or no more.
    Propagate(bool),
    /// Take a snapshot of this moment, write it to the path and make it durable, then tell
    /// [`Event::BaseWritten`].
    WriteBase {
        /// Which base it is.
        generation: u64,
        /// Where to.
        path: PathBuf,
        /// As a snapshot, or as requests.
        is_rdb: bool,
    },
    /// Nobody wants that base any more.
    DropBase {
        /// Which one.
        generation: u64,
    },
    /// To be done on another thread.
    Work(Job),
    /// For the log.
    Note(String),
    /// For the log, as a warning.
    Warn(String),
}

/// What threads tell.
#[derive(Debug)]
pub enum Event {
    /// A sync ended.
    Synced {
        /// Of this log.
        generation: u64,
        /// Which one.
        number: u64,
        /// How.
        result: io::Result<()>,
    },
    /// Old files are gone, as far as they can be removed.
    Removed {
        /// Listed by this log.
        generation: u64,
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// A base is whole and durable, or came to nothing.
    BaseWritten {
        /// Which one.
        generation: u64,
        /// Where it was to be, as [`Output::WriteBase`] said.
        path: PathBuf,
        /// Why not.
        result: Result<(), String>,
    },
}

/// What is known of rewrites and sizes, for INFO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AofFacts {
    /// Whether the file is wanted.
    pub is_on: bool,
    /// Whether a base is being written.
    pub is_rewriting: bool,
    /// Whether one is to be.
    pub is_scheduled: bool,
    /// When the last one began, in unix milliseconds.
    pub rewrite_started_at_ms: u64,
    /// How long the last one took.
    pub last_rewrite_seconds: Option<u64>,
    /// Failures in a row.
    pub rewrite_failures: u64,
    /// Whether the last one failed.
    pub last_rewrite_failed: bool,
    /// How many began.
    pub rewrites: u64,
    /// Why writes are refused, if they are.
    pub trouble: Option<String>,
    /// Whether it is wanted and has no base that counts: an end would lose what was taken.
    pub is_starting: bool,
    /// Whether writes wait for that base: data was replaced, and they are promised to be kept.
    pub breaks_promise: bool,
    /// Why the first base came to nothing, if it is to be written and did.
    pub start_failure: Option<String>,
    /// Bytes of all files.
    pub current_size: u64,
    /// Bytes of all files after the last rewrite.
    pub base_size: u64,
    /// Bytes that wait to be written.
    pub buffer_len: usize,
    /// Whether a sync is under way.
    pub is_syncing: bool,
    /// How often a write did not wait for one.
    pub delayed_syncs: u64,
}

/// A base being written.
#[derive(Clone, Debug)]
struct Base {
    generation: u64,
    is_rdb: bool,
    /// Where it belongs: the settings may say another folder by the time it is written.
    layout: Layout,
}

impl Base {
    fn path(&self) -> PathBuf {
        self.layout.new_base(self.generation)
    }
}

enum State {
    Loading,
    /// Perhaps with a base that was asked for all the same.
    Off(Option<Base>),
    /// Without a log until its time has come.
    Starting(Option<(AppendLog, Base)>),
    On(AppendLog),
    Rewriting(AppendLog, Base),
}

/// What took the place of the data that the files had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaced {
    /// Nothing, or a part: what was set aside may be the only copy.
    Lost,
    /// All data of a primary.
    Whole,
}

/// The append-only file, on or off.
pub struct AppendFile {
    disk: Arc<dyn Disk>,
    settings: Settings,
    state: State,
    /// The same file in another folder, while a rewrite moves it there. It counts once it has its
    /// base; until then everything is appended to both.
    moving: Option<AppendLog>,
    /// When files were last looked for.
    looked_at_ms: u64,
    /// The last one that was given out.
    generation: u64,
    /// Numbers of files that this process has given or seen. A manifest that is read again may be
    /// another one, or gone; a thread may still be about to remove a file by its name.
    used: Numbers,
    /// Whether a rewrite was asked for and has not begun.
    rewrite_wanted: bool,
    /// Whether one is due, and another snapshot is under way.
    waits_for_snapshot: bool,
    retry_at_ms: u64,
    /// Whether somebody who wants to end waits for the first base, which had failed before.
    tries_for_end: bool,
    /// Set while the data of a primary, or nothing, takes the place of what the files had.
    replaced: Option<Replaced>,
    /// The list of what was set aside, while a thread removes that. It is not the thread's to
    /// remove: another full sync may set more aside before it comes to it.
    unneeded: Option<(u64, PathBuf)>,
    facts: AofFacts,
    outputs: VecDeque<Output>,
}

impl AppendFile {
    /// A file that waits for data to be loaded.
    pub fn new(disk: Arc<dyn Disk>, settings: Settings) -> Self {
        Self {
            disk,
            settings,
            state: State::Loading,
            moving: None,
            looked_at_ms: 0,
            generation: 0,
            used: Numbers::default(),
            rewrite_wanted: false,
            waits_for_snapshot: false,
            retry_at_ms: 0,
            tries_for_end: false,
            replaced: None,
            unneeded: None,
            facts: AofFacts::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Data is there: opens the file behind what was loaded from it, or makes its first base by
    /// `write_base`, which writes all keys to a path and makes them durable.
    ///
    /// Fails when the disk does; nothing may be served then.
    pub fn open(
        &mut self,
        settings: Settings,
        mut loaded: Manifest,
        write_base: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        self.settings = settings;
        if !self.settings.is_wanted {
            self.state = State::Off(None);
            return Ok(());
        }
        let layout = self.settings.layout.clone();
        let manifest = match loaded.is_empty() {
            false => loaded,
            true => {
                let folder = layout.folder();
                self.note(format!("Creating AOF base file in {} on start", folder.display()));
                remove_begun(&*self.disk, &layout, &mut loaded)?;
                let generation = self.next_generation();
                let is_rdb = self.settings.has_rdb_base;
                create_base(&*self.disk, &layout, loaded, is_rdb, generation, write_base)?
            }
        };
        let generation = self.next_generation();
        let log = AppendLog::open(Arc::clone(&self.disk), layout, manifest, generation)?;
        let paths = log.superseded();
        self.state = State::On(log);
        self.outputs.push_back(Output::Propagate(true));
        if !paths.is_empty() {
            self.outputs.push_back(Output::Work(Job::Remove { generation, paths }));
        }
        Ok(())
    }

    /// The settings may have changed.
    pub fn apply(&mut self, now_ms: u64, settings: Settings) {
        let before = std::mem::replace(&mut self.settings, settings);
        if before.policy != self.settings.policy
            && before.policy != FsyncPolicy::Never
            && let Some(log) = self.log_mut()
        {
            log.keep_promises();
        }
        match (before.is_wanted, self.settings.is_wanted) {
            (false, true) => self.turn_on(now_ms),
            (true, false) => self.turn_off(now_ms),
            _ if before.layout != self.settings.layout => self.follow_folder(),
            _ => {}
        }
    }

    /// A primary's data is about to replace all data. Nothing of that is appended, and the files do
    /// not count any more: a start from them would bring back a history that is over. They stay,
    /// until the new data is in files of its own.
    pub fn handle_data_leaving(&mut self, now_ms: u64) {
        if !self.settings.is_wanted || matches!(self.state, State::Loading) {
            return;
        }
        let layout = self.layout().cloned().unwrap_or_else(|| self.settings.layout.clone());
        self.settings.is_wanted = false;
        self.turn_off(now_ms);
        self.replaced = Some(Replaced::Lost);
        self.unneeded = None;
        let path = layout.superseded_manifest();
        match set_aside(&*self.disk, &layout) {
            Ok(true) => self.note(format!(
                "The AOF files of the data that is replaced are set aside as {} until the new data \
                 is written",
                path.display()
            )),
            Ok(false) => {}
            Err(error) => self.warn(format!(
                "The AOF files of the data that is replaced cannot be set aside as {}: {error}. \
                 After a crash before the new data is written, a start loads them",
                path.display()
            )),
        }
    }

    /// All data of the primary is there. Otherwise what was set aside is kept.
    pub fn handle_data_replaced(&mut self) {
        self.replaced = self.replaced.map(|_| Replaced::Whole);
    }

    /// Whether a write could be lost that is acknowledged now, against what `always` promises: the
    /// files are begun anew with other data, and do not count yet.
    fn breaks_promise(&self) -> bool {
        matches!(self.state, State::Starting(_))
            && self.replaced.is_some()
            && self.settings.policy == FsyncPolicy::Always
    }

    /// The new data is in files of its own: what was set aside may go.
    fn forget_replaced(&mut self, layout: &Layout, manifest: &Manifest) {
        if self.replaced.take() != Some(Replaced::Whole) {
            return;
        }
        let aside = superseded_manifest(&*self.disk, layout);
        let old = aside.base.iter().chain(&aside.increments).chain(&aside.history);
        let itself = layout.superseded_name();
        let old = old.filter(|file| !manifest.lists(&file.name) && file.name != itself);
        let paths: Vec<_> = old.map(|file| layout.path_of(&file.name)).collect();
        let generation = self.next_generation();
        self.unneeded = Some((generation, layout.superseded_manifest()));
        self.outputs.push_back(Output::Work(Job::Remove { generation, paths }));
    }

    /// What was set aside is gone, and so may the list of it, unless something has joined it since.
    fn forget_list(&mut self, generation: u64) {
        let is_due = self.unneeded.as_ref().is_some_and(|(of, _)| *of == generation);
        if let Some((_, path)) = self.unneeded.take_if(|_| is_due) {
            // Where it stays, it lists what is not there.
            let _ = self.disk.remove(&path);
        }
    }

    /// BGREWRITEAOF.
    pub fn ask_for_rewrite(&mut self) {
        self.rewrite_wanted = true;
    }

    /// Takes one unit.
    pub fn add<'r>(
        &mut self,
        now_ms: u64,
        requests: impl ExactSizeIterator<Item = (usize, Request<'r>)>,
    ) {
        let settings = self.append_settings();
        if let Some(moving) = &mut self.moving {
            // A unit is a few requests, and a move is rare.
            let requests: Vec<_> = requests.collect();
            moving.add(now_ms, requests.iter().copied(), &settings);
            if let Some(log) = self.log_mut() {
                log.add(now_ms, requests.into_iter(), &settings);
            }
        } else if let Some(log) = self.log_mut() {
            log.add(now_ms, requests, &settings);
        }
    }

    /// Somebody set the clock by so much: whoever waits for a sync or a retry waits as long as
    /// before.
    pub fn clock_stepped(&mut self, step_ms: i64) {
        self.retry_at_ms = self.retry_at_ms.saturating_add_signed(step_ms);
        let started_at_ms = &mut self.facts.rewrite_started_at_ms;
        *started_at_ms = started_at_ms.saturating_add_signed(step_ms);
        self.looked_at_ms = self.looked_at_ms.saturating_add_signed(step_ms);
        self.moving.iter_mut().for_each(|log| log.clock_stepped(step_ms));
        self.log_mut().into_iter().for_each(|log| log.clock_stepped(step_ms));
    }

    /// Writes what waits. Replies leave when this returns; when it fails they must not, and the
    /// process has to end.
    pub fn flush(&mut self, now_ms: u64) -> Result<(), AppendError> {
        self.flush_log(now_ms)?;
        self.flush_moving(now_ms);
        Ok(())
    }

    fn flush_log(&mut self, now_ms: u64) -> Result<(), AppendError> {
        let settings = self.append_settings();
        let Some(log) = self.log_mut() else { return Ok(()) };
        let is_due = || log.wakes_at_ms(&settings).is_some_and(|at| at <= now_ms);
        if !log.has_waiting() && !is_due() {
            return Ok(());
        }
        let (delayed, had_trouble) = (log.delayed_syncs(), log.trouble().is_some());
        let flushed = log.flush(now_ms, &settings);
        let was_delayed = log.delayed_syncs() > delayed;
        let trouble = log.trouble().map(|trouble| trouble.reason.clone());
        if was_delayed {
            self.warn(
                "Asynchronous AOF fsync is taking too long (disk is busy?). Writing the AOF buffer \
                 without waiting for fsync to complete, this may slow down the server.",
            );
        }
        if let (State::Starting(_), Some(reason)) = (&self.state, &trouble) {
            // Nothing of it counts yet, so nobody's word is broken.
            self.rewrite_failed(now_ms, &reason.clone());
            return Ok(());
        }
        match (had_trouble, trouble) {
            (false, Some(reason)) => self.warn(format!(
                "Error writing to the AOF file: {reason}. Writes are refused until it works again."
            )),
            (true, None) => {
                self.warn("AOF write error looks solved, the server can write again.");
            }
            _ => {}
        }
        self.outputs.extend(flushed?.map(Output::Work));
        Ok(())
    }

    /// Begins a rewrite when one is due. `may_snapshot` says whether no other snapshot is under
    /// way. To be called once per turn, behind [`flush`](Self::flush).
    pub fn begin_due_rewrite(&mut self, now_ms: u64, may_snapshot: bool) {
        let is_due = self.is_rewrite_due(now_ms);
        self.waits_for_snapshot = is_due && !may_snapshot;
        if !is_due || !may_snapshot {
            return;
        }
        self.rewrite_wanted = false;
        self.facts.rewrites += 1;
        self.facts.rewrite_started_at_ms = now_ms;
        match self.begin_rewrite(now_ms) {
            Ok(base) => {
                self.note("Background append only file rewriting started");
                let (generation, is_rdb, path) = (base.generation, base.is_rdb, base.path());
                self.outputs.push_back(Output::WriteBase { generation, path, is_rdb });
            }
            Err(error) => self.rewrite_failed(now_ms, &error.to_string()),
        }
    }

    /// A thread has something to tell.
    pub fn handle_event(&mut self, now_ms: u64, event: Event) {
        match event {
            Event::Synced { generation, number, result } => {
                let Some(log) = self.log_of(generation) else { return };
                let reason = result.as_ref().err().map(ToString::to_string);
                let had_trouble = log.needs_rewrite();
                log.handle_synced(now_ms, number, result);
                if let Some(reason) = reason.filter(|_| log.needs_rewrite() && !had_trouble) {
                    self.sync_failed(now_ms, &reason);
                }
            }
            Event::Removed { generation, paths } => {
                self.forget_list(generation);
                if let Some(log) = self.log_of(generation) {
                    log.handle_removed(&paths);
                }
            }
            Event::BaseWritten { generation, path, result } => {
                self.handle_base(now_ms, generation, &path, result);
            }
        }
    }

    /// The next thing to do; `None` when there is nothing before the next input.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether [`poll_output`](Self::poll_output) has something.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Writes all that waits and makes it durable, whatever the policy.
    pub fn write_all(&mut self, now_ms: u64) -> Result<(), AppendError> {
        let Some(log) = self.log_mut() else { return Ok(()) };
        let had_trouble = log.needs_rewrite();
        let flushed = log.flush_all(now_ms);
        let is_new = log.needs_rewrite() && !had_trouble;
        if let Some(error) = flushed.as_ref().err().filter(|_| is_new) {
            // As if another thread had told: a rewrite under way would list what may be missing.
            self.sync_failed(now_ms, &error.to_string());
        }
        flushed
    }

    /// Nothing follows: makes all durable. True when the files that count hold everything that
    /// was taken, so that a start from them continues where this ends.
    pub fn close(&mut self, now_ms: u64) -> Result<bool, AppendError> {
        self.drop_base();
        let is_whole = matches!(self.phase(), Phase::On | Phase::Rewriting | Phase::Failed);
        if let State::Starting(begun) = &mut self.state {
            if let Some((log, _)) = begun.take() {
                log.discard_unlisted();
            }
            return Ok(false);
        }
        let is_elsewhere = self.is_elsewhere();
        let Some(log) = self.log_mut() else { return Ok(false) };
        log.flush_all(now_ms)?;
        let missing = log.find_missing();
        self.note("Calling fsync() on the AOF file.");
        if let Some(path) = &missing {
            self.warn(format!("{} was removed: the next start lacks data.", path.display()));
        }
        if is_elsewhere {
            self.warn_of_folder();
        }
        Ok(is_whole && missing.is_none() && !is_elsewhere)
    }

    /// When a turn is wanted though nothing happens.
    pub fn wakes_at_ms(&self) -> Option<u64> {
        // Whoever ends the other snapshot takes a turn.
        let retry_at_ms = (!self.waits_for_snapshot).then_some(self.retry_at_ms);
        if let State::Starting(None) = self.state {
            return retry_at_ms;
        }
        let log = self.log()?;
        let waits = log.needs_rewrite() && matches!(self.state, State::On(_));
        let retry_at_ms = retry_at_ms.filter(|_| waits);
        let settings = self.append_settings();
        let moving = self.moving.as_ref().and_then(|log| log.wakes_at_ms(&settings));
        [log.wakes_at_ms(&settings), retry_at_ms, moving].into_iter().flatten().min()
    }

    /// Whether nothing is to be done before replies leave, now or later.
    #[inline]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Off(None) | State::Loading)
            && !self.rewrite_wanted
            && self.outputs.is_empty()
    }

    /// Where the file is in its life.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Loading => Phase::Loading,
            State::Off(_) => Phase::Off,
            State::Starting(_) => Phase::Starting,
            State::On(log) | State::Rewriting(log, _) if log.trouble().is_some() => Phase::Failed,
            State::On(_) => Phase::On,
            State::Rewriting(..) => Phase::Rewriting,
        }
    }

    /// The files that count, manifest included; `None` unless units are appended to them.
    pub fn files(&self) -> Option<Vec<PathBuf>> {
        let (State::On(log) | State::Rewriting(log, _)) = &self.state else { return None };
        let manifest = log.manifest();
        let listed = manifest.base.iter().chain(&manifest.increments);
        let listed = listed.map(|file| log.layout().path_of(&file.name));
        Some(listed.chain([log.layout().manifest()]).collect())
    }

    /// For INFO.
    pub fn facts(&self) -> AofFacts {
        let log = self.log();
        let trouble = log.filter(|_| self.phase() == Phase::Failed).and_then(AppendLog::trouble);
        AofFacts {
            is_on: self.settings.is_wanted,
            is_rewriting: self.base().is_some(),
            is_scheduled: self.rewrite_wanted || matches!(self.state, State::Starting(None)),
            trouble: trouble.map(|trouble| trouble.reason.clone()),
            is_starting: matches!(self.state, State::Starting(_)),
            breaks_promise: self.breaks_promise(),
            current_size: log.map_or(0, AppendLog::len),
            base_size: log.map_or(0, AppendLog::rewritten_len),
            buffer_len: log.map_or(0, AppendLog::buffer_len),
            is_syncing: log.is_some_and(AppendLog::is_syncing),
            delayed_syncs: log.map_or(self.facts.delayed_syncs, AppendLog::delayed_syncs),
            ..self.facts.clone()
        }
    }
}

/// Turning on and off, and rewrites.
impl AppendFile {
    fn turn_on(&mut self, now_ms: u64) {
        if let State::Loading = self.state {
            return;
        }
        // A base that was begun while nothing was appended is older than what comes.
        self.drop_base();
        self.state = State::Starting(None);
        self.facts.start_failure = None;
        self.retry_at_ms = now_ms;
        self.note("AOF is turned on: its first base is written in the background.");
    }

    fn turn_off(&mut self, now_ms: u64) {
        self.drop_base();
        self.rewrite_wanted = false;
        self.facts.start_failure = None;
        self.outputs.push_back(Output::Propagate(false));
        match std::mem::replace(&mut self.state, State::Off(None)) {
            State::Loading => self.state = State::Loading,
            State::Off(_) | State::Starting(None) => {}
            State::Starting(Some((log, _))) => log.discard_unlisted(),
            State::On(mut log) | State::Rewriting(mut log, _) => {
                self.use_up_numbers(log.manifest().numbers());
                if let Err(error) = log.flush_all(now_ms) {
                    self.warn(format!("Writing the last of the AOF file failed: {error}"));
                }
            }
        }
        self.note("AOF is turned off.");
    }

    /// Whether a rewrite begins as soon as no other snapshot is under way. Whoever drives this
    /// makes sure before that the folder of the settings is its own: that files are gone, so that
    /// they are to be written anew, may mean that the folder is another one by now.
    pub fn is_rewrite_due(&mut self, now_ms: u64) -> bool {
        self.look_for_files(now_ms);
        let is_time = now_ms >= self.retry_at_ms;
        match &self.state {
            State::Off(None) => self.rewrite_wanted,
            State::Starting(None) => is_time || self.rewrite_wanted,
            State::On(log) => {
                self.rewrite_wanted || is_time && (log.needs_rewrite() || self.has_grown(log))
            }
            _ => false,
        }
    }

    fn has_grown(&self, log: &AppendLog) -> bool {
        let Settings { growth_percentage, rewrite_size_min, .. } = self.settings;
        let (len, base) = (log.len(), log.rewritten_len().max(1));
        growth_percentage > 0
            && len > rewrite_size_min
            && (len * 100 / base).saturating_sub(100) >= growth_percentage
    }

    /// From here on units go to an increment of their own, if they go anywhere.
    fn begin_rewrite(&mut self, now_ms: u64) -> io::Result<Base> {
        let generation = self.next_generation();
        let (layout, is_rdb) = (self.settings.layout.clone(), self.settings.has_rdb_base);
        let base = |layout: &Layout| Base { generation, is_rdb, layout: layout.clone() };
        match std::mem::replace(&mut self.state, State::Loading) {
            State::Off(_) => {
                self.state = State::Off(None);
                make_durable_folder(&*self.disk, &layout)?;
                let base = base(&layout);
                self.state = State::Off(Some(base.clone()));
                Ok(base)
            }
            State::Starting(_) => {
                self.state = State::Starting(None);
                let plan = make_plan(&*self.disk, &layout).map_err(io::Error::other)?;
                let mut manifest = plan.manifest;
                remove_begun(&*self.disk, &layout, &mut manifest)?;
                let (disk, base) = (Arc::clone(&self.disk), base(&layout));
                manifest.continue_numbers(self.used);
                let log = AppendLog::begin_unlisted(disk, layout, manifest, now_ms, generation)?;
                self.state = State::Starting(Some((log, base.clone())));
                self.outputs.push_back(Output::Propagate(true));
                Ok(base)
            }
            State::On(log) if *log.layout() != layout => {
                let begun = self.begin_move(now_ms, generation);
                let base = base(&layout);
                self.state = match begun {
                    Ok(()) => State::Rewriting(log, base.clone()),
                    Err(_) => State::On(log),
                };
                begun.map(|()| base)
            }
            State::On(mut log) => {
                let begun = log.begin_switch(now_ms, generation);
                let base = base(log.layout());
                self.state = match begun {
                    Ok(()) => State::Rewriting(log, base.clone()),
                    Err(_) => State::On(log),
                };
                begun.map(|()| base)
            }
            other => {
                self.state = other;
                Err(io::Error::other("another rewrite is under way"))
            }
        }
    }

    fn handle_base(
        &mut self,
        now_ms: u64,
        generation: u64,
        path: &Path,
        result: Result<(), String>,
    ) {
        let Some(base) = self.base().filter(|base| base.generation == generation).cloned() else {
            // Late or repeated. What it wrote, if anything, is nobody's.
            return self.remove_base(path);
        };
        if let Err(reason) = result {
            // What it wrote takes room that the next write may need.
            self.remove_base(path);
            return self.rewrite_failed(now_ms, &reason);
        }
        let finished = match std::mem::replace(&mut self.state, State::Off(None)) {
            State::Off(_) => self.finish_off(&base),
            State::Starting(Some((mut log, _))) => {
                let job = log.finish_switch(now_ms, base.is_rdb, &base.path());
                self.use_up_numbers(log.manifest().numbers());
                if job.is_ok() {
                    self.forget_replaced(log.layout(), log.manifest());
                }
                self.state = match job {
                    Ok(_) => State::On(log),
                    Err(_) => {
                        log.discard_unlisted();
                        State::Starting(None)
                    }
                };
                job
            }
            State::Rewriting(log, _) if self.moving.is_some() => {
                self.finish_move(now_ms, log, &base)
            }
            State::Rewriting(mut log, _) => {
                let job = log.finish_switch(now_ms, base.is_rdb, &base.path());
                self.state = State::On(log);
                job
            }
            other => {
                self.state = other;
                return;
            }
        };
        match finished {
            Ok(job) => self.rewrite_done(now_ms, job),
            Err(error) => {
                self.remove_base(&base.path());
                self.end_rewrite(now_ms);
                self.rewrite_failed(now_ms, &error.to_string());
            }
        }
    }

    /// BGREWRITEAOF with the file off: the base is there, and nothing is appended to it.
    fn finish_off(&mut self, base: &Base) -> io::Result<Job> {
        let Base { generation, is_rdb, ref layout } = *base;
        let manifest = replace_all(&*self.disk, layout, is_rdb, &base.path(), self.used)?;
        self.use_up_numbers(manifest.numbers());
        let paths = manifest.history.iter().map(|file| layout.path_of(&file.name)).collect();
        Ok(Job::Remove { generation, paths })
    }

    fn rewrite_done(&mut self, now_ms: u64, job: Job) {
        self.note("Background AOF rewrite finished successfully");
        self.end_rewrite(now_ms);
        (self.facts.last_rewrite_failed, self.facts.rewrite_failures) = (false, 0);
        self.facts.start_failure = None;
        self.outputs.push_back(Output::Work(job));
    }

    /// What counted before counts. A file that was about to be turned on begins anew.
    fn rewrite_failed(&mut self, now_ms: u64, reason: &str) {
        self.warn(format!("Background AOF rewrite failed: {reason}"));
        if self.base().is_some() {
            // One that never began took no time.
            self.end_rewrite(now_ms);
        }
        self.facts.last_rewrite_failed = true;
        self.facts.rewrite_failures += 1;
        if let State::Starting(_) = self.state {
            self.facts.start_failure = Some(reason.to_owned());
        }
        let over = self.facts.rewrite_failures.saturating_sub(FAILURES_MAX).min(16);
        let wait_ms = if over == 0 { SOON_MS } else { RETRY_MS << (over - 1) };
        self.retry_at_ms = now_ms + wait_ms.min(RETRY_MS_MAX);
        self.drop_base();
    }

    /// The base under way comes to nothing, if there is one.
    fn drop_base(&mut self) {
        let Some(generation) = self.base().map(|base| base.generation) else {
            if let State::Starting(_) = self.state {
                self.outputs.push_back(Output::Propagate(false));
            }
            return;
        };
        self.outputs.push_back(Output::DropBase { generation });
        self.state = match std::mem::replace(&mut self.state, State::Loading) {
            State::Off(_) => State::Off(None),
            State::Starting(begun) => {
                if let Some((log, _)) = begun {
                    log.discard_unlisted();
                }
                self.outputs.push_back(Output::Propagate(false));
                State::Starting(None)
            }
            State::Rewriting(mut log, _) => {
                match self.moving.take() {
                    Some(moving) => moving.discard_unlisted(),
                    None => log.abort_switch(),
                }
                State::On(log)
            }
            other => other,
        };
    }

    /// A sync on another thread failed.
    fn sync_failed(&mut self, now_ms: u64, reason: &str) {
        match &self.state {
            State::Starting(_) => self.rewrite_failed(now_ms, reason),
            State::Rewriting(..) => {
                // What the new increment has before the base is finished may be missing.
                self.rewrite_failed(now_ms, reason);
                self.retry_at_ms = now_ms;
            }
            _ => self.warn(format!(
                "Syncing the AOF file failed: {reason}. Writes are refused until it is written \
                 anew."
            )),
        }
    }

    fn end_rewrite(&mut self, now_ms: u64) {
        let took_ms = now_ms.saturating_sub(self.facts.rewrite_started_at_ms);
        self.facts.last_rewrite_seconds = Some(took_ms / 1000);
    }

    fn remove_base(&self, path: &Path) {
        // One that stays is removed at the next start.
        let _ = self.disk.remove(path);
    }

    fn append_settings(&self) -> AppendSettings {
        AppendSettings {
            policy: self.settings.policy,
            has_timestamps: self.settings.has_timestamps,
            has_sums: self.settings.has_sums,
            rests_now: self.settings.rests_on_rewrite && self.base().is_some(),
        }
    }

    fn use_up_numbers(&mut self, numbers: Numbers) {
        self.used.base = self.used.base.max(numbers.base);
        self.used.increment = self.used.increment.max(numbers.increment);
    }

    fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    fn base(&self) -> Option<&Base> {
        match &self.state {
            State::Off(base) => base.as_ref(),
            State::Starting(begun) => begun.as_ref().map(|(_, base)| base),
            State::Rewriting(_, base) => Some(base),
            State::Loading | State::On(_) => None,
        }
    }

    fn log(&self) -> Option<&AppendLog> {
        match &self.state {
            State::Loading | State::Off(_) => None,
            State::Starting(begun) => begun.as_ref().map(|(log, _)| log),
            State::On(log) | State::Rewriting(log, _) => Some(log),
        }
    }

    fn log_mut(&mut self) -> Option<&mut AppendLog> {
        match &mut self.state {
            State::Loading | State::Off(_) => None,
            State::Starting(begun) => begun.as_mut().map(|(log, _)| log),
            State::On(log) | State::Rewriting(log, _) => Some(log),
        }
    }

    fn log_of(&mut self, generation: u64) -> Option<&mut AppendLog> {
        if self.moving.as_ref().is_some_and(|log| log.generation() == generation) {
            return self.moving.as_mut();
        }
        self.log_mut().filter(|log| log.generation() == generation)
    }

    fn note(&mut self, line: impl Into<String>) {
        self.outputs.push_back(Output::Note(line.into()));
    }

    fn warn(&mut self, line: impl Into<String>) {
        self.outputs.push_back(Output::Warn(line.into()));
    }
}
