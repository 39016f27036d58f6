//! One history: lives of a server on one disk, and what each of them promised.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store_persist::aof::{
    AppendFile, Event, FsyncPolicy, Job, Layout, Output, Part, Phase, Settings, make_plan,
};
use store_persist::disk::{Disk, IgnoredError, SimulatedDisk, SingleFault, SyncFile, exists};
use testkit::Random;

use super::data::{Change, Data, NUMBER, layout, load, write_base};
use super::full_sync::FullSync;

/// What `everysec` may lose.
const LOST_MS_MAX: u64 = 2000;
/// A sync takes less than this; a disk that takes longer loses more with Redis, too.
const SYNC_MS_MAX: u64 = 900;
/// A file of somebody else, with a name that ours would come to.
const FOREIGN: &str = "d/a/f.aof.2.base.aof";
const FOREIGN_BYTES: &[u8] = b"somebody else's";

/// A mistake that was made once, and must be noticed if it is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// S1: the limits of clients end the loading in silence.
    LoaderHasLimits,
    /// S2: a base that was begun while the file was off serves the file that is turned on.
    OldBaseServes,
    /// S3: what a thread says about one base is taken for another.
    EventsHaveNoIdentity,
    /// S4: a rename that fails, such as that of the manifest, counts as done.
    RenamesLie,
    /// S5: a sync that fails inside of a switch counts as done.
    SyncsLie,
    /// S6: half of a script that is cut off is kept.
    HalfScriptsAreKept,
    /// S13: databases that are not there are merged into others.
    DatabasesMerge,
    /// S16: what a killed process wrote counts as durable.
    KilledCountsAsDurable,
    /// A stop does not wait for the first base.
    EndsWithoutBase,
    /// What a failed rewrite has written stays, and fills the disk.
    FailedBasesStay,
    /// An increment that another one continues may lack its end.
    CutsGoUnnoticed,
    /// Who waits for the first base does not wait for the next try to write it.
    TriesAreNotWaitedFor,
    /// Files from before a full sync count until the new data is written.
    ReplacedFilesCount,
    /// Writes are taken while the data of a full sync has no file yet, against `always`.
    WritesBeforeReplacement,
    /// What was set aside goes although the data that was to take its place did not come.
    LostCountsAsReplaced,
    /// The thread that removes what was set aside removes the list of it, too, and another full
    /// sync has set more aside by then.
    ListGoesLate,
    /// A start takes files for left over that were set aside.
    AsideIsTidied,
}

impl Flaw {
    pub(super) const ALL: [Self; 17] = [
        Self::LoaderHasLimits,
        Self::OldBaseServes,
        Self::EventsHaveNoIdentity,
        Self::RenamesLie,
        Self::SyncsLie,
        Self::HalfScriptsAreKept,
        Self::DatabasesMerge,
        Self::KilledCountsAsDurable,
        Self::EndsWithoutBase,
        Self::FailedBasesStay,
        Self::CutsGoUnnoticed,
        Self::TriesAreNotWaitedFor,
        Self::ReplacedFilesCount,
        Self::WritesBeforeReplacement,
        Self::LostCountsAsReplaced,
        Self::ListGoesLate,
        Self::AsideIsTidied,
    ];

    fn ignored(self) -> Option<IgnoredError> {
        match self {
            Self::RenamesLie => Some(IgnoredError::Renames),
            Self::SyncsLie => Some(IgnoredError::Syncs),
            Self::KilledCountsAsDurable => Some(IgnoredError::FirstSyncs),
            Self::FailedBasesStay => Some(IgnoredError::Removals),
            _ => None,
        }
    }
}

/// Something that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    at_ms: u64,
    number: u64,
    policy: FsyncPolicy,
}

/// Work on another thread, and when it comes to its end.
struct Thread {
    ends_ms: u64,
    work: Work,
}

enum Work {
    Sync {
        generation: u64,
        number: u64,
        file: Arc<dyn SyncFile>,
    },
    Remove {
        generation: u64,
        paths: Vec<PathBuf>,
    },
    Base {
        generation: u64,
        path: PathBuf,
        data: Data,
        is_dropped: bool,
    },
    /// Something is said once more.
    Repeat(LateEvent),
}

#[derive(Clone)]
enum LateEvent {
    Synced { generation: u64, number: u64, failed: bool },
    Removed { generation: u64, paths: Vec<PathBuf> },
    Base { generation: u64, path: PathBuf, failed: bool },
}

impl LateEvent {
    fn event(self) -> Event {
        let failure = "said by a thread";
        match self {
            Self::Synced { generation, number, failed } => {
                let result = if failed { Err(std::io::Error::other(failure)) } else { Ok(()) };
                Event::Synced { generation, number, result }
            }
            Self::Removed { generation, paths } => Event::Removed { generation, paths },
            Self::Base { generation, path, failed } => {
                let result = if failed { Err(failure.to_owned()) } else { Ok(()) };
                Event::BaseWritten { generation, path, result }
            }
        }
    }
}

/// Where a file can be cut so that nothing in it tells.
fn whole_lens(bytes: &[u8]) -> Vec<usize> {
    let mark = b"#SUM:";
    let marks = (1..bytes.len()).filter(|at| bytes[*at..].starts_with(mark));
    let ends = marks.filter_map(|at| Some(at + bytes[at..].iter().position(|b| *b == b'\n')? + 1));
    [0].into_iter().chain(ends.filter(|end| *end < bytes.len())).collect()
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// SIGTERM, SHUTDOWN: true when the files are to hold everything, because they are said to, or
    /// because the file is on and the end was not refused.
    Closed(bool),
    /// It must not go on, or was killed.
    Killed,
    PowerLoss,
}

pub(super) struct World {
    pub(super) random: Random,
    pub(super) disk: SimulatedDisk,
    pub(super) flaw: Option<Flaw>,
    pub(super) file: AppendFile,
    pub(super) settings: Settings,
    pub(super) now_ms: u64,
    is_propagating: bool,
    pub(super) memory: Data,
    /// What was there after each unit; the first is nothing.
    pub(super) states: Vec<Data>,
    pub(super) acknowledged: Vec<Acknowledged>,
    /// Since when nothing new is promised.
    pauses_since_ms: Option<u64>,
    /// Since when all is promised again.
    keeps_since_ms: Option<u64>,
    threads: Vec<Thread>,
    last_base: u64,
    /// Another snapshot is under way until then.
    snapshot_until_ms: u64,
    /// Nobody writes for a while.
    is_quiet: bool,
    /// No base can be begun in this life.
    lacks_threads: bool,
    has_foreign: bool,
    must_end: bool,
    /// Where the files lie that count: the setting `dir` may be ahead of it.
    pub(super) home: Layout,
    /// Somebody removed files, and they are not written anew yet: only memory has the data.
    is_robbed: bool,
    /// What processes before this one have begun and left.
    left_before: Vec<String>,
    /// A promise that was broken while the process lived.
    broken: Option<String>,
    /// The last unit of which INFO said that nothing is to be waited for any more.
    pub(super) said_to_be_written: u64,
    /// Whether power was lost since: INFO says what is written, not what is durable.
    lost_power: bool,
    pub(super) sync: FullSync,
}

impl World {
    pub(super) fn begin(seed: u64, flaw: Option<Flaw>) -> Self {
        let mut random = Random::seeded(seed);
        let disk = SimulatedDisk::seeded(seed);
        disk.ignore(flaw.and_then(Flaw::ignored));
        let policy = *random.choose(&[FsyncPolicy::Always, FsyncPolicy::EverySecond]);
        let settings = Settings {
            is_wanted: random.in_range(0..4) > 0,
            layout: layout(),
            policy,
            has_timestamps: random.in_range(0..4) == 0,
            has_sums: random.in_range(0..8) > 0,
            rests_on_rewrite: false,
            has_rdb_base: false,
            growth_percentage: if random.in_range(0..2) == 0 { 0 } else { 100 },
            rewrite_size_min: 400,
        };
        Self {
            file: AppendFile::new(Arc::new(disk.clone()), settings.clone()),
            random,
            disk,
            flaw,
            settings,
            now_ms: 10_000,
            is_propagating: false,
            memory: Data::default(),
            states: vec![Data::default()],
            acknowledged: Vec::new(),
            pauses_since_ms: None,
            keeps_since_ms: None,
            threads: Vec::new(),
            last_base: 0,
            snapshot_until_ms: 0,
            is_quiet: false,
            lacks_threads: false,
            has_foreign: false,
            must_end: false,
            home: layout(),
            is_robbed: false,
            left_before: Vec::new(),
            broken: None,
            said_to_be_written: 0,
            lost_power: false,
            sync: FullSync::default(),
        }
    }

    /// Lives and ends. Fails with the promise that was broken.
    pub(super) fn run(mut self) -> Result<(), String> {
        self.has_foreign = self.chance(4);
        self.sync.is_replica = self.chance(2);
        if self.has_foreign {
            self.put_foreign().map_err(|error| error.to_string())?;
        }
        self.start()?;
        for _ in 0..self.random.in_range(1..5) {
            let end = self.live();
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            if self.is_robbed {
                let is_whole = end == End::Closed(true);
                return if is_whole { Err("it lacks files".to_owned()) } else { Ok(()) };
            }
            self.end(end);
            self.start_again(end)?;
        }
        Ok(())
    }

    pub(super) fn chance(&mut self, one_in: u64) -> bool {
        self.random.in_range(0..one_in) == 0
    }

    // ── a life ──────────────────────────────────────────────────────────────────────────────

    fn live(&mut self) -> End {
        self.lacks_threads = self.chance(6);
        if self.chance(2) {
            self.plan_single_faults();
        }
        for _ in 0..self.random.in_range(1..40) {
            self.turn();
            if self.disk.is_dead() {
                return End::PowerLoss;
            }
            if self.must_end {
                return End::Killed;
            }
        }
        match self.random.in_range(0..4) {
            0 => End::PowerLoss,
            1 => End::Killed,
            _ => self.close(),
        }
    }

    fn plan_single_faults(&mut self) {
        for _ in 0..self.random.in_range(1..4) {
            let later = self.random.in_range(0..80);
            let single_faults = [
                SingleFault::Full,
                SingleFault::Fails,
                SingleFault::Fails,
                SingleFault::Short,
                SingleFault::PowerLoss,
            ];
            let single_fault = *self.random.choose(&single_faults);
            self.disk.plan_single_fault(later, single_fault);
            if self.chance(4) {
                // Full disks stay full for a while.
                let more = self.random.in_range(1..6);
                (1..more).for_each(|more| self.disk.plan_single_fault(later + more, single_fault));
            }
        }
    }

    fn turn(&mut self) {
        self.pass_time();
        self.hear_threads();
        self.end_due_sync();
        self.command();
        let wrote = self.write_units();
        if self.file.flush(self.now_ms).is_err() {
            self.must_end = true;
            return;
        }
        let may_snapshot = self.now_ms >= self.snapshot_until_ms;
        self.file.begin_due_rewrite(self.now_ms, may_snapshot);
        self.drive();
        self.note_phase();
        self.note_files();
        if wrote && !self.disk.is_dead() {
            self.acknowledge();
        }
        self.read_info();
        self.look_for_leftovers();
    }

    /// An operator looks whether a kill would lose something.
    fn read_info(&mut self) {
        let facts = self.file.facts();
        let waits = facts.is_scheduled && self.flaw != Some(Flaw::TriesAreNotWaitedFor)
            || facts.is_rewriting
            || facts.buffer_len > 0;
        if facts.is_on && !waits && facts.trouble.is_none() {
            self.said_to_be_written = self.states.len() as u64 - 1;
        }
    }

    /// What a base that came to nothing has written takes room that others need.
    fn look_for_leftovers(&mut self) {
        let is_written = |thread: &Thread| matches!(thread.work, Work::Base { .. });
        let is_under_way = self.file.facts().is_rewriting || self.threads.iter().any(is_written);
        if is_under_way || self.disk.is_dead() || self.disk.kept_a_file() {
            return;
        }
        let left = self.leftovers().into_iter().find(|name| !self.left_before.contains(name));
        self.broken = left.map(|name| format!("{name} stays, and nobody writes it"));
    }

    /// Bases that are not listed, in all folders.
    fn leftovers(&self) -> Vec<String> {
        let names = |dir: &str| self.disk.list(&Path::new(dir).join("a")).unwrap_or_default();
        let names = ["d", "e"].into_iter().flat_map(names);
        names.filter(|name| name.ends_with(".base") && layout().is_leftover(name)).collect()
    }

    /// Where the files are, and whether those are back that somebody removed.
    pub(super) fn note_files(&mut self) {
        if let Some(layout) = self.file.layout() {
            self.home = layout.clone();
        }
        let is_there = |path: &PathBuf| exists(&self.disk, path);
        let files = self.file.files().unwrap_or_default();
        self.is_robbed &= !self.keeps() || !files.iter().all(is_there);
    }

    /// Somebody removes some of the files while they are open.
    fn rob(&mut self) {
        for path in self.file.files().unwrap_or_default() {
            if self.chance(2) && self.disk.remove(&path).is_ok() {
                self.is_robbed = true;
            }
        }
    }

    /// The loop sleeps until something is due.
    fn pass_time(&mut self) {
        let wanted = self.now_ms + self.random.in_range(0..600);
        let due = self.threads.iter().map(|thread| thread.ends_ms);
        let due = due.chain(self.file.wakes_at_ms()).min().unwrap_or(wanted);
        self.now_ms = self.now_ms.max(wanted.min(due));
    }

    fn command(&mut self) {
        match self.random.in_range(0..24) {
            0 => self.settings.is_wanted = !self.settings.is_wanted,
            1 => {
                let policies = [FsyncPolicy::Always, FsyncPolicy::EverySecond, FsyncPolicy::Never];
                self.settings.policy = *self.random.choose(&policies);
            }
            2 | 3 => return self.file.ask_for_rewrite(),
            4 => {
                self.snapshot_until_ms = self.now_ms + self.random.in_range(0..1000);
                return;
            }
            5 if self.settings.is_wanted => {
                // Off and on in one moment.
                self.settings.is_wanted = false;
                self.apply();
                self.settings.is_wanted = true;
            }
            6 => self.settings.has_sums = !self.settings.has_sums,
            7 | 8 => {
                let dir = *self.random.choose(&["d", "e"]);
                self.settings.layout.dir = dir.into();
            }
            9 if self.chance(4) => return self.rob(),
            11 | 12 if self.sync.may_begin() => return self.begin_sync(),
            10 => {
                self.is_quiet = !self.is_quiet;
                return;
            }
            _ => return,
        }
        self.apply();
    }

    pub(super) fn apply(&mut self) {
        let mut settings = self.settings.clone();
        settings.is_wanted &= self.sync.ends_ms.is_none();
        self.file.apply(self.now_ms, settings);
        self.drive();
        self.note_phase();
        self.note_files();
    }

    /// True when something was written that is acknowledged when the turn ends.
    fn write_units(&mut self) -> bool {
        // While writes are refused keys still end, which nobody is told.
        let refuses = self.file.facts().trouble.is_some();
        if self.is_quiet || self.sync.ends_ms.is_some() {
            return false;
        }
        let refuses = refuses
            || self.file.facts().breaks_promise && self.flaw != Some(Flaw::WritesBeforeReplacement);
        let count = if refuses { self.random.in_range(0..2) } else { self.random.in_range(0..3) };
        for _ in 0..count {
            let changes = self.unit();
            self.take_unit(&changes);
        }
        count > 0 && !refuses
    }

    /// What one request or script does.
    fn unit(&mut self) -> Vec<Change> {
        let number = self.states.len() as u64;
        let mut changes = Vec::new();
        if self.chance(12) {
            changes.push(Change::FlushAll);
        }
        for _ in 0..self.random.in_range(0..6) {
            let key = format!("k{}", self.random.in_range(0..2));
            changes.push(Change::Set(self.random.in_range(0..3) as usize, key, number));
        }
        changes.push(Change::Set(0, NUMBER.to_owned(), number));
        changes
    }

    fn take_unit(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.memory.apply(change));
        self.states.push(self.memory.clone());
        self.append(changes);
    }

    fn append(&mut self, changes: &[Change]) {
        if self.is_propagating {
            let requests: Vec<_> = changes.iter().map(Change::request).collect();
            let unit = requests.iter().map(|(db, request)| (*db, request.as_request()));
            self.file.add(self.now_ms, unit);
        }
    }

    fn acknowledge(&mut self) {
        let number = self.states.len() as u64 - 1;
        // Behind a full sync nothing is taken that a kill may lose.
        let is_promised = self.settings.policy == FsyncPolicy::Always && self.sync.is_begun_anew;
        let is_begun = self.file.phase() == Phase::Starting && is_promised;
        if self.keeps() || self.file.phase() == Phase::Failed || is_begun {
            let (at_ms, policy) = (self.now_ms, self.settings.policy);
            self.acknowledged.push(Acknowledged { at_ms, number, policy });
        }
    }

    pub(super) fn keeps(&self) -> bool {
        matches!(self.file.phase(), Phase::On | Phase::Rewriting)
    }

    pub(super) fn note_phase(&mut self) {
        if !self.keeps() {
            self.keeps_since_ms = None;
            self.pauses_since_ms.get_or_insert(self.now_ms);
            return;
        }
        self.sync.is_begun_anew = false;
        // What has waited for the disk to work again has as long as everything else.
        let since_ms = *self.keeps_since_ms.get_or_insert(self.now_ms);
        if self.now_ms - since_ms >= LOST_MS_MAX {
            self.pauses_since_ms = None;
        }
    }

    /// Whose numbers ours must pass over.
    fn put_foreign(&mut self) -> std::io::Result<()> {
        let mut file = self.disk.create(Path::new(FOREIGN))?;
        file.write_all(FOREIGN_BYTES)?;
        file.sync()?;
        self.disk.sync_folder(Path::new("d/a"))
    }

    // ── its threads ─────────────────────────────────────────────────────────────────────────

    /// Does what the machine asks for, as the server does.
    pub(super) fn drive(&mut self) {
        while let Some(output) = self.file.poll_output() {
            match output {
                Output::Propagate(is_propagating) => self.is_propagating = is_propagating,
                Output::WriteBase { generation, path, .. } => self.begin_base(generation, path),
                Output::DropBase { generation: dropped } => self.drop_base(dropped),
                Output::Work(Job::Sync { generation, file, number }) => {
                    let ends_ms = self.now_ms + self.random.in_range(0..SYNC_MS_MAX);
                    self.threads
                        .push(Thread { ends_ms, work: Work::Sync { generation, number, file } });
                }
                Output::Work(Job::Remove { generation, mut paths }) => {
                    if self.flaw == Some(Flaw::ListGoesLate) && self.sync.is_replacing() {
                        paths.push(self.home.superseded_manifest());
                    }
                    let ends_ms = self.now_ms + self.random.in_range(0..2000);
                    self.threads.push(Thread { ends_ms, work: Work::Remove { generation, paths } });
                }
                Output::Warn(line) => {
                    self.sync.may_come_back |= line.contains("cannot be set aside")
                }
                Output::Note(line) => self.sync.is_set_aside |= line.contains("are set aside as"),
            }
        }
    }

    fn begin_base(&mut self, generation: u64, path: PathBuf) {
        let mut data = self.memory.clone();
        if self.flaw == Some(Flaw::OldBaseServes) {
            let old = self.threads.iter().find_map(|thread| match &thread.work {
                Work::Base { data, .. } => Some(data.clone()),
                _ => None,
            });
            data = old.unwrap_or(data);
        }
        self.last_base = generation;
        let created = self.disk.create(&path);
        let is_begun = created.is_ok() && !self.lacks_threads;
        if !is_begun {
            // The disk fails, or there is no thread to be had.
            let result = Err("not begun".to_owned());
            let event = Event::BaseWritten { generation, path, result };
            return self.file.handle_event(self.now_ms, event);
        }
        let ends_ms = self.now_ms + self.random.in_range(0..2500);
        let work = Work::Base { generation, path, data, is_dropped: false };
        self.threads.push(Thread { ends_ms, work });
    }

    /// The thread may not notice before it is done.
    fn drop_base(&mut self, dropped: u64) {
        let (notices, disk) = (self.chance(2), self.disk.clone());
        self.threads.retain_mut(|thread| match &mut thread.work {
            Work::Base { generation, is_dropped, path, .. } if *generation == dropped => {
                *is_dropped = true;
                if notices {
                    // It throws away what it has, and says nothing.
                    let _ = disk.remove(path);
                }
                !notices
            }
            _ => true,
        });
    }

    fn hear_threads(&mut self) {
        let (ended, running): (Vec<Thread>, Vec<Thread>) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|thread| thread.ends_ms <= self.now_ms);
        self.threads = running;
        for thread in ended {
            let said = self.finish(thread.work);
            if self.chance(6) {
                let ends_ms = self.now_ms + self.random.in_range(0..1500);
                self.threads.push(Thread { ends_ms, work: Work::Repeat(said.clone()) });
            }
            self.file.handle_event(self.now_ms, said.event());
            // In the middle of a script nothing more is done than to listen.
            if self.chance(2) {
                self.drive();
            }
        }
        self.note_phase();
    }

    fn finish(&mut self, work: Work) -> LateEvent {
        match work {
            Work::Sync { generation, number, file } => {
                LateEvent::Synced { generation, number, failed: file.sync().is_err() }
            }
            Work::Remove { generation, paths } => {
                paths.iter().for_each(|path| _ = self.disk.remove(path));
                LateEvent::Removed { generation, paths }
            }
            Work::Base { generation, path, data, is_dropped } => {
                let failed = write_base(&self.disk, &path, &data).is_err();
                let has_identity = self.flaw != Some(Flaw::EventsHaveNoIdentity);
                let generation =
                    if is_dropped && !has_identity { self.last_base } else { generation };
                LateEvent::Base { generation, path, failed }
            }
            Work::Repeat(said) => said,
        }
    }

    // ── its end, and the next start ─────────────────────────────────────────────────────────

    fn close(&mut self) -> End {
        if self.chance(4) {
            // SHUTDOWN NOSAVE in the middle of a script: nothing of it is kept.
            let half: Vec<Change> = self.unit().into_iter().take(1).collect();
            let is_half = matches!(&half[..], [Change::Set(_, key, _)] if key != NUMBER);
            if is_half && self.flaw == Some(Flaw::HalfScriptsAreKept) {
                self.append(&half);
            }
        }
        if let Err(end) = self.wait_for_end() {
            return end;
        }
        // Half of a primary's data is nothing that is kept.
        let is_wanted = self.settings.is_wanted && self.sync.ends_ms.is_none();
        match self.file.close(self.now_ms) {
            Ok(is_whole) if !self.disk.is_dead() => End::Closed(is_whole || is_wanted),
            _ => End::Killed,
        }
    }

    /// Clients are served until nothing is lost by an end, as the server does. Fails with another
    /// end where it is refused, or takes too long for somebody.
    fn wait_for_end(&mut self) -> Result<(), End> {
        for _ in 0..self.random.in_range(1..60) {
            let skips =
                self.flaw == Some(Flaw::EndsWithoutBase) && self.file.phase() == Phase::Starting;
            let prepared = if skips { Ok(()) } else { self.file.prepare_end(self.now_ms) };
            self.drive();
            if self.disk.is_dead() {
                return Err(End::PowerLoss);
            }
            if prepared.is_ok() {
                // Files that lie in another folder by now are those that count.
                let is_there = |path: PathBuf| exists(&self.disk, &path);
                let files = self.file.files();
                self.is_robbed &= !files.is_some_and(|files| files.into_iter().all(is_there));
                return Ok(());
            }
            let facts = self.file.facts();
            let begins = facts.is_starting && facts.start_failure.is_none();
            if !facts.is_rewriting && !begins {
                return Err(End::Killed);
            }
            self.turn();
            if self.must_end {
                return Err(End::Killed);
            }
        }
        Err(End::Killed)
    }

    fn end(&mut self, end: End) {
        self.note_phase();
        self.note_files();
        // Bytes that a failed sync dropped are there until power is lost, and no later sync says
        // so: whoever kills the process before the file is written anew may serve them once more.
        let must_crash = self.disk.is_dead() || self.disk.has_lost_bytes();
        let loses_power = end == End::PowerLoss || must_crash || self.chance(2);
        self.disk = if loses_power { self.disk.crash() } else { self.disk.kill() };
        self.lost_power = loses_power;
        self.threads.clear();
        self.is_propagating = false;
        self.must_end = false;
        (self.sync.ends_ms, self.sync.is_begun_anew) = (None, false);
        (self.snapshot_until_ms, self.is_quiet) = (0, false);
    }

    fn start_again(&mut self, end: End) -> Result<(), String> {
        // A start whose disk fails is refused, and changes nothing that the next one needs.
        if self.chance(4) {
            self.plan_single_faults();
            if self.try_start().is_ok() {
                // It serves: all that it loaded is promised, and it is killed at once.
                let is_dead = self.disk.is_dead() || self.disk.has_lost_bytes();
                self.disk = if is_dead { self.disk.crash() } else { self.disk.kill() };
                self.lost_power |= is_dead;
            } else {
                self.disk = self.disk.crash();
                self.lost_power = true;
            }
        }
        self.settings.is_wanted = true;
        self.try_cut()?;
        let loaded = self.try_start()?;
        self.check(&loaded, end)?;
        self.go_on_with(loaded);
        Ok(())
    }

    /// A start with an increment that lacks its end is refused, wherever another one says how long
    /// it was.
    fn try_cut(&mut self) -> Result<(), String> {
        let Ok(plan) = make_plan(&self.disk, &self.home) else { return Ok(()) };
        let bytes_of = |part: &Part| {
            let mut bytes = Vec::new();
            let read = self.disk.read(&part.path).map(|mut file| file.read_to_end(&mut bytes));
            read.map(|_| bytes).unwrap_or_default()
        };
        let contents: Vec<Vec<u8>> = plan.parts.iter().map(bytes_of).collect();
        let says_so = |at: usize| {
            let next = contents[at + 1..].iter().find(|bytes| !bytes.is_empty());
            // A line that was torn itself says nothing.
            let is_whole = |bytes: &[u8]| bytes.windows(2).any(|pair| pair == b"\r\n");
            next.is_some_and(|bytes| bytes.starts_with(b"#SUM:begin after") && is_whole(bytes))
        };
        for (at, part) in plan.parts.iter().enumerate() {
            let bytes = &contents[at];
            let is_increment = part.name.ends_with("incr.aof");
            if !is_increment || bytes.is_empty() || !says_so(at) || self.random.in_range(0..2) == 0
            {
                continue;
            }
            let len = *self.random.choose(&whole_lens(bytes));
            let put = |bytes: &[u8]| self.disk.damage(&part.path, |file| *file = bytes.to_vec());
            put(&bytes[..len]).map_err(|error| error.to_string())?;
            let loaded = load(&self.disk, &self.home, self.flaw);
            for (part, bytes) in plan.parts.iter().zip(&contents) {
                let put = self.disk.damage(&part.path, |file| *file = bytes.clone());
                put.map_err(|error| error.to_string())?;
            }
            if loaded.is_ok() {
                return Err(format!("{} lacks its end, and a start takes it", part.name));
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        let loaded = self.try_start()?;
        self.go_on_with(loaded);
        Ok(())
    }

    fn try_start(&mut self) -> Result<Data, String> {
        self.settings.layout = self.home.clone();
        let (disk, settings) = (Arc::new(self.disk.clone()), self.settings.clone());
        let loaded = load(&self.disk, &self.home, self.flaw)?;
        self.file = AppendFile::new(disk, settings.clone());
        let write = |path: &Path| write_base(&self.disk, path, &loaded.data);
        let opened = self.file.open(settings, loaded.manifest, write);
        opened.map_err(|error| format!("cannot open: {error}"))?;
        if self.flaw == Some(Flaw::AsideIsTidied) {
            self.tidy_aside();
        }
        Ok(loaded.data)
    }

    /// Clients see what was loaded: from now on it is promised.
    fn go_on_with(&mut self, loaded: Data) {
        let number = loaded.number();
        (self.sync.first, self.sync.may_come_back) = (0, false);
        self.states.truncate(number as usize + 1);
        self.memory = loaded;
        self.acknowledged.clear();
        self.said_to_be_written = number;
        (self.pauses_since_ms, self.keeps_since_ms) = (None, None);
        self.left_before = self.leftovers();
        self.drive();
        self.note_phase();
        if self.keeps() {
            let (at_ms, policy) = (self.now_ms, FsyncPolicy::Always);
            self.acknowledged.push(Acknowledged { at_ms, number, policy });
        }
    }

    fn check(&self, loaded: &Data, end: End) -> Result<(), String> {
        let found = loaded.number();
        let last = self.states.len() as u64 - 1;
        let promised = self.promised();
        if found > last || self.states[found as usize] != *loaded {
            return Err(format!("{loaded:?} was never there"));
        }
        if (1..self.sync.first).contains(&found) && !self.sync.may_come_back {
            return Err(format!("{found} is of a history that ended at {}", self.sync.first));
        }
        self.sync.check_kept(&self.disk)?;
        if found < promised {
            return Err(format!("{promised} was promised, {found} of {last} is there"));
        }
        let said = self.said_to_be_written;
        if found < said && !self.lost_power {
            return Err(format!("INFO said that {said} is written, {found} of {last} is there"));
        }
        if end == End::Closed(true) && found != last {
            return Err(format!("all was said to be there, and {found} of {last} is"));
        }
        if self.has_foreign {
            let mut bytes = Vec::new();
            let read = self.disk.read(Path::new(FOREIGN));
            let read = read.and_then(|mut file| file.read_to_end(&mut bytes));
            if read.is_err() || bytes != FOREIGN_BYTES {
                return Err(format!("{FOREIGN} is not what it was: {read:?}"));
            }
        }
        Ok(())
    }

    /// The number of the last unit that must be there.
    fn promised(&self) -> u64 {
        let until_ms = self.pauses_since_ms.map_or(self.now_ms, |since| since.min(self.now_ms));
        let must_be_there = |acknowledged: &&Acknowledged| match acknowledged.policy {
            FsyncPolicy::Always => true,
            FsyncPolicy::EverySecond => until_ms.saturating_sub(acknowledged.at_ms) >= LOST_MS_MAX,
            FsyncPolicy::Never => false,
        };
        let kept = self.acknowledged.iter().filter(must_be_there);
        kept.map(|acknowledged| acknowledged.number).max().unwrap_or(0)
    }
}
