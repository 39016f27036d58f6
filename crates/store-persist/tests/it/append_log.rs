//! The append-only file under crashes, in virtual time: what each policy may lose, and that what
//! is left always loads.

use std::path::PathBuf;
use std::sync::Arc;

use store_persist::aof::{
    AofError, AppendLog, AppendSettings, CommandReader, Encoder, FsyncPolicy, Job, Layout,
    Manifest, create_base, make_plan,
};
use store_persist::disk::{Disk, DiskFile, Fault, SimulatedDisk, SyncFile};
use store_resp::OwnedRequest;
use testkit::Random;

/// What `everysec` may lose.
const LOST_MS_MAX: u64 = 2000;
/// A sync takes less than this; a disk that takes longer loses more with Redis, too.
const SYNC_MS_MAX: u64 = 900;
const DAY_MS: u64 = 86_400_000;

fn layout() -> Layout {
    Layout { dir: "d".into(), folder_name: "a".into(), file_name: "f.aof".into() }
}

fn settings(policy: FsyncPolicy) -> AppendSettings {
    AppendSettings { policy, has_timestamps: false, rests_now: false, has_sums: true }
}

/// One life of a server that counts: token 1, 2, 3, each written at a moment.
struct World {
    random: Random,
    disk: SimulatedDisk,
    log: AppendLog,
    policy: FsyncPolicy,
    /// A steady clock, which decides about what may be lost.
    now_ms: u64,
    /// By how much the wall clock, which the log goes by, is ahead.
    ahead_ms: u64,
    token: u64,
    /// When each token was acknowledged.
    acknowledged: Vec<(u64, u64)>,
    /// A sync on another thread, and when it ends.
    sync: Option<Sync>,
    /// A rewrite: the token its base has, and when it is written.
    base: Option<(u64, u64)>,
}

struct Sync {
    file: Arc<dyn SyncFile>,
    number: u64,
    ends_ms: u64,
}

fn write_base(file: &mut dyn DiskFile, token: u64) {
    let mut bytes = Vec::new();
    Encoder::begin(&mut bytes);
    let from = bytes.len();
    let request = set_token(token);
    Encoder::new().add([(0, request.as_request())].into_iter(), &mut bytes);
    Encoder::seal(&mut bytes, from);
    file.write_all(&bytes).unwrap();
    file.sync().unwrap();
}

fn set_token(token: u64) -> OwnedRequest {
    let text = token.to_string();
    OwnedRequest::from_args([&b"SET"[..], b"token", text.as_bytes()])
}

impl World {
    fn begin(seed: u64, policy: FsyncPolicy, fault: Option<Fault>) -> Self {
        let disk = SimulatedDisk::seeded(seed);
        let create = |path: &std::path::Path| {
            write_base(&mut *disk.create(path)?, 0);
            Ok(())
        };
        let manifest =
            create_base(&disk, &layout(), Manifest::default(), false, 1, create).unwrap();
        disk.set_fault(fault);
        let log = AppendLog::open(Arc::new(disk.clone()), layout(), manifest, 2).unwrap();
        let random = Random::seeded(seed);
        let (acknowledged, sync, base) = (Vec::new(), None, None);
        Self {
            random,
            disk,
            log,
            policy,
            now_ms: 10_000,
            ahead_ms: DAY_MS,
            token: 0,
            acknowledged,
            sync,
            base,
        }
    }

    fn wall_ms(&self) -> u64 {
        self.now_ms + self.ahead_ms
    }

    /// Somebody sets the wall clock, up to an hour ahead or back.
    fn step_clock(&mut self) {
        let ahead_ms = DAY_MS + self.random.in_range(0..7_200_000) - 3_600_000;
        self.log.clock_stepped(ahead_ms as i64 - self.ahead_ms as i64);
        self.ahead_ms = ahead_ms;
    }

    /// A turn of the loop: time passes, other threads come to their ends, some writes happen.
    fn turn(&mut self) {
        self.now_ms += self.random.in_range(0..120);
        if self.random.in_range(0..25) == 0 {
            self.step_clock();
        }
        if let Some(sync) = self.sync.take_if(|sync| sync.ends_ms <= self.now_ms) {
            self.log.handle_synced(self.wall_ms(), sync.number, sync.file.sync());
        }
        if self.base.is_some_and(|(_, ends_ms)| ends_ms <= self.now_ms) {
            self.finish_rewrite();
        }
        if self.base.is_none() && self.random.in_range(0..40) == 0 {
            self.begin_rewrite();
        }
        let writes = self.random.in_range(0..3);
        for _ in 0..writes {
            self.token += 1;
            let request = set_token(self.token);
            let unit = [(0, request.as_request())].into_iter();
            let wall_ms = self.wall_ms();
            self.log.add(wall_ms, unit, &settings(self.policy));
        }
        match self.log.flush(self.wall_ms(), &settings(self.policy)).unwrap() {
            Some(Job::Sync { file, number, .. }) => {
                let ends_ms = self.now_ms + self.random.in_range(0..SYNC_MS_MAX);
                // One that is under way comes to its end first, on the same thread.
                if let Some(sync) = self.sync.replace(Sync { file, number, ends_ms }) {
                    self.log.handle_synced(self.wall_ms(), sync.number, sync.file.sync());
                }
            }
            Some(Job::Remove { .. }) | None => {}
        }
        if writes > 0 {
            self.acknowledged.push((self.token, self.now_ms));
        }
    }

    fn begin_rewrite(&mut self) {
        self.log.begin_switch(self.wall_ms(), 3).unwrap();
        self.base = Some((self.token, self.now_ms + self.random.in_range(0..2000)));
    }

    fn finish_rewrite(&mut self) {
        let Some((token, _)) = self.base.take() else { return };
        if self.random.in_range(0..4) == 0 {
            return self.log.abort_switch();
        }
        let new_base = self.log.layout().new_base(3);
        write_base(&mut *self.disk.create(&new_base).unwrap(), token);
        let finished = self.log.finish_switch(self.wall_ms(), false, &new_base).unwrap();
        let Job::Remove { paths, .. } = finished else { panic!("no list") };
        paths.iter().for_each(|path: &PathBuf| self.disk.remove(path).unwrap());
        self.log.handle_removed(&paths);
    }
}

/// The token that files have after a crash, or why they cannot be loaded.
fn loaded(disk: &SimulatedDisk) -> Result<u64, String> {
    let plan = make_plan(disk, &layout()).map_err(|error| error.to_string())?;
    let mut token = None;
    for part in &plan.parts {
        let mut reader = CommandReader::new(disk.read(&part.path).unwrap(), 0);
        loop {
            match reader.advance() {
                Ok(true) => {
                    let request = reader.request();
                    if request.arg(0) == b"SET" {
                        let text = std::str::from_utf8(request.arg(2)).unwrap();
                        token = Some(text.parse().unwrap());
                    }
                }
                Ok(false) => break,
                Err(AofError::Truncated { .. }) if part.is_last => break,
                Err(error) => return Err(format!("{}: {error}", part.name)),
            }
        }
    }
    token.ok_or_else(|| "not even the base is there".to_owned())
}

/// Runs until a crash, and says what is worse than the policy allows.
fn broken_promise(seed: u64, policy: FsyncPolicy, fault: Option<Fault>) -> Option<String> {
    let mut world = World::begin(seed, policy, fault);
    for _ in 0..world.random.in_range(1..150) {
        world.turn();
    }
    let lost_ms_max = match policy {
        FsyncPolicy::Always => 0,
        FsyncPolicy::EverySecond => LOST_MS_MAX,
        FsyncPolicy::Never => u64::MAX,
    };
    let promised = world
        .acknowledged
        .iter()
        .rev()
        .find(|(_, at_ms)| world.now_ms.saturating_sub(*at_ms) >= lost_ms_max);
    let promised = promised.map_or(0, |(token, _)| *token);
    match loaded(&world.disk.crash()) {
        Ok(token) if token >= promised => None,
        Ok(token) => Some(format!("seed {seed}: {promised} promised, {token} there")),
        Err(error) => Some(format!("seed {seed}: {error}")),
    }
}

/// `count` seeds, or so many times as many as `CRASH_ROUNDS` asks for.
#[expect(clippy::disallowed_methods, reason = "a test may be told how long to run")]
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let seed = testkit::seed();
    let times = std::env::var("CRASH_ROUNDS").ok().and_then(|text| text.parse().ok());
    let count = count * times.unwrap_or(1);
    (0..count).map(move |offset| seed.wrapping_add(offset))
}

#[test]
fn always_loses_nothing_acknowledged() {
    for seed in seeds(200) {
        let broken = broken_promise(seed, FsyncPolicy::Always, None);
        assert!(broken.is_none(), "{}", broken.unwrap());
    }
}

#[test]
fn everysec_loses_two_seconds_at_most() {
    for seed in seeds(200) {
        let broken = broken_promise(seed, FsyncPolicy::EverySecond, None);
        assert!(broken.is_none(), "{}", broken.unwrap());
    }
}

#[test]
fn without_any_sync_of_ours_the_files_load_all_the_same() {
    for seed in seeds(100) {
        let broken = broken_promise(seed, FsyncPolicy::Never, None);
        assert!(broken.is_none(), "{}", broken.unwrap());
    }
}

#[test]
fn syncs_that_do_nothing_are_caught() {
    for policy in [FsyncPolicy::Always, FsyncPolicy::EverySecond] {
        let lies = |seed| broken_promise(seed, policy, Some(Fault::SyncsLie)).is_some();
        let caught = seeds(100).filter(|seed| lies(*seed)).count();
        assert!(caught > 20, "{policy:?}: only {caught} of 100 were caught");
    }
}

/// A server that nobody writes to any more wakes for its last sync by this moment alone.
#[test]
fn a_clock_that_is_set_back_does_not_put_the_last_sync_off() {
    let mut world = World::begin(1, FsyncPolicy::EverySecond, None);
    let settings = settings(FsyncPolicy::EverySecond);
    for token in 1..=2 {
        let request = set_token(token);
        let wall_ms = world.wall_ms();
        world.log.add(wall_ms, [(0, request.as_request())].into_iter(), &settings);
        if let Some(Job::Sync { file, number, .. }) = world.log.flush(wall_ms, &settings).unwrap() {
            world.log.handle_synced(wall_ms, number, file.sync());
        }
    }
    world.ahead_ms -= 3_600_000;
    world.log.clock_stepped(-3_600_000);
    let wakes_at_ms = world.log.wakes_at_ms(&settings).expect("the second write waits for a sync");
    assert!(wakes_at_ms <= world.wall_ms() + 1000, "{wakes_at_ms}");
}

/// With `always` a sync that fails ends the process. What is taken out of the file then was
/// promised to nobody: what another policy had acknowledged before stays.
#[test]
fn a_sync_that_fails_takes_nothing_away_that_was_acknowledged() {
    let resting = AppendSettings { rests_now: true, ..settings(FsyncPolicy::Always) };
    for before in [settings(FsyncPolicy::Never), settings(FsyncPolicy::EverySecond), resting] {
        for fault in [None, Some(Fault::WritesFail)] {
            let mut world = World::begin(1, FsyncPolicy::Always, None);
            let mut take = |token: u64, settings: &AppendSettings| {
                let request = set_token(token);
                world.log.add(20_000, [(0, request.as_request())].into_iter(), settings);
                world.log.flush(20_000, settings).is_ok()
            };
            assert!(take(1, &before));
            world.disk.set_fault(fault);
            let acknowledged = if take(2, &before) { 2 } else { 1 };
            world.disk.set_fault(Some(Fault::SyncsFail));
            assert!(!take(3, &settings(FsyncPolicy::Always)), "it is not durable");
            world.disk.set_fault(None);
            let token = loaded(&world.disk.kill()).unwrap();
            assert!(token >= acknowledged, "{before:?}, {fault:?}: {token}");
        }
    }
}

/// A process that was killed left an increment of this name, and power is lost before anything is
/// written to the new one.
#[test]
fn nothing_of_an_earlier_increment_comes_back() {
    for seed in 0..20 {
        let disk = SimulatedDisk::seeded(seed);
        let layout = layout();
        let folder = layout.folder();
        disk.make_folder(&folder).unwrap();
        let mut left = disk.create(&layout.new_increment(6)).unwrap();
        left.write_all(b"of before").unwrap();
        left.sync().unwrap();
        disk.sync_folder(&folder).unwrap();
        let manifest = Manifest::default();
        let begun =
            AppendLog::begin_unlisted(Arc::new(disk.clone()), layout.clone(), manifest, 0, 6);
        let new_base = layout.new_base(6);
        write_base(&mut *disk.create(&new_base).unwrap(), 1);
        begun.unwrap().finish_switch(0, false, &new_base).unwrap();
        let disk = disk.crash();
        let plan = make_plan(&disk, &layout).unwrap();
        let increment = &plan.parts.last().unwrap().path;
        assert_eq!(disk.size(increment).unwrap(), 0, "{}", increment.display());
    }
}

/// A process that is killed again and again must not fill the disk with what nobody reads.
#[test]
fn what_a_rewrite_left_when_it_was_killed_is_removed_and_nothing_else() {
    let (disk, layout) = (Arc::new(SimulatedDisk::seeded(1)), layout());
    disk.make_folder(&layout.folder()).unwrap();
    let put = |path: PathBuf, text: &str| {
        let mut file = disk.create(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync().unwrap();
    };
    let listed = "file f.aof.1.base.aof seq 1 type b\nfile f.aof.1.incr.aof seq 1 type i\n";
    let begun = "file f.aof.2.base.aof seq 2 type b\nfile f.aof.1.incr.aof seq 1 type i\n";
    put(layout.manifest(), listed);
    put(layout.new_manifest(), begun);
    // The last two are somebody else's: a backup, and writes of a manifest that is lost.
    let kept = ["f.aof.1.base.aof", "f.aof.1.incr.aof", "f.aof.7.base.rdb", "f.aof.8.incr.aof"];
    kept.iter().for_each(|name| put(layout.path_of(name), "*1\r\n$4\r\nPING\r\n"));
    put(layout.path_of("f.aof.2.base.aof"), "all that there was");
    put(layout.path_of("f.aof.3.incr.aof"), "");
    let plan = make_plan(&*disk, &layout).unwrap();
    drop(AppendLog::open(disk.clone(), layout.clone(), plan.manifest, 1).unwrap());
    let names = disk.list(&layout.folder()).unwrap();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.retain(|name| layout.parse_name(name).is_some());
    names.sort_unstable();
    assert_eq!(names, kept);
}
