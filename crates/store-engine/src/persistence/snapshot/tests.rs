//! A snapshot shows the moment it began at, whatever happens while it is taken.

use std::collections::BTreeMap;

use store_persist::rdb::{FileReader, FileWriter};
use store_resp::OwnedRequest;
use store_types::Limits;
use store_types::dump::{self, type_code};
use testkit::Random;

use super::*;
use crate::config::Config;
use crate::effects::ServerRequest;
use crate::engine::NextTick;
use crate::platform::NoPlatform;
use crate::session::{Origin, SessionId};
use crate::state::Identity;

const START_MS: u64 = 1_000_000;
/// Enough keys that a snapshot takes many slices.
const KEYS: u64 = 4000;
/// So much waits to be written that the walk waits, too.
const WALK_WAITS: usize = 8 * 1024 * 1024;

struct World {
    engine: Engine,
    session: SessionId,
    now_ms: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let identity = Identity::default();
        let mut engine = Engine::new(Config::default(), identity, seed, Box::new(NoPlatform));
        let session = engine.open_session(START_MS * 1000, Origin::default());
        Self { engine, session, now_ms: START_MS }
    }

    fn run(&mut self, line: &str) {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        self.engine.execute(self.now_ms * 1000, self.session, request.as_request());
        self.engine.finish(None, 0);
        if let Some(session) = self.engine.session_mut(self.session) {
            session.output.clear();
        }
    }

    /// Data of every kind, small and large, in three databases.
    fn fill(&mut self, random: &mut Random) {
        for number in 0..KEYS {
            let db = number % 3;
            self.run(&format!("SELECT {db}"));
            match number % 10 {
                0 => self.run(&format!("SET key:{number} value PX {}", 1 + number)),
                1 => self.run(&format!("RPUSH key:{number} a b {number}")),
                2 => self.run(&format!("HSET key:{number} f {number}")),
                3 => self.run(&format!("ZADD key:{number} {number} m 2 n")),
                4 => self.run(&format!("SADD key:{number} {number} 7")),
                5 => self.run(&format!("XADD key:{number} 1-1 f v")),
                _ => self.run(&format!("SET key:{number} {}", random.next_u64())),
            }
        }
        for db in 0..3 {
            self.run(&format!("SELECT {db}"));
            self.fill_large();
        }
    }

    /// Values over the size at which they are shared instead of copied.
    fn fill_large(&mut self) {
        for chunk in 0..15 {
            let numbers = chunk * 100..(chunk + 1) * 100;
            let pairs = |name: &str| -> String {
                let pair = |n: u64| format!(" {n} {name}-{n}-{}", "x".repeat(20));
                numbers.clone().map(pair).collect()
            };
            self.run(&format!("ZADD large:zset{}", pairs("member")));
            self.run(&format!("HSET large:hash{}", pairs("value")));
            self.run(&format!("SADD large:set{}", pairs("member")));
            self.run(&format!("RPUSH large:list{}", pairs("element")));
            for n in numbers.clone() {
                let value = "v".repeat(60);
                self.run(&format!("XADD large:stream {}-1 field {value}-{n}", n + 1));
            }
        }
        self.run("XGROUP CREATE large:stream group 0");
        self.run("XREADGROUP GROUP group ada COUNT 50 STREAMS large:stream >");
        self.run("SETRANGE large:string 200000 x");
    }

    /// A change of any kind, to a key that may be anywhere.
    fn change(&mut self, random: &mut Random) {
        let number = random.in_range(0..KEYS + 100);
        let (n, m) = (random.in_range(0..1500), random.in_range(0..KEYS));
        let line = match random.in_range(0..34) {
            0 => format!("SET key:{number} other"),
            1 => format!("SET key:{number} other EX 1"),
            2 => format!("APPEND key:{number} more"),
            3 => format!("INCR key:{number}"),
            4 => format!("DEL key:{number}"),
            5 => format!("PEXPIRE key:{number} {n}"),
            6 => format!("PERSIST key:{number}"),
            7 => format!("RENAME key:{number} key:{m}"),
            8 => format!("COPY key:{number} key:{m} REPLACE"),
            9 => format!("MOVE key:{number} {}", n % 3),
            10 => format!("LPUSH key:{number} x"),
            11 => format!("HSET key:{number} g 1"),
            12 => format!("ZADD key:{number} 9 m"),
            13 => format!("SREM key:{number} 7"),
            14 => format!("XADD key:{number} * g w"),
            15 => "LPUSH large:list front".to_owned(),
            16 => format!("LSET large:list {n} changed"),
            17 => "RPOP large:list 30".to_owned(),
            18 => format!("HSET large:hash {n} changed"),
            19 => format!("HDEL large:hash {n}"),
            20 => format!("SADD large:set {n}"),
            21 => format!("SREM large:set {n}"),
            22 => format!("ZINCRBY large:zset 100.5 {n}"),
            23 => "ZPOPMIN large:zset 20".to_owned(),
            24 => format!("XDEL large:stream {n}-1"),
            25 => format!("XACK large:stream group {}-1", n % 60),
            26 => "XREADGROUP GROUP group bob COUNT 5 STREAMS large:stream >".to_owned(),
            27 => format!("SETBIT large:string {} 1", n * 800),
            28 => format!("SWAPDB {} {}", n % 3, m % 4),
            29 => format!("SUNIONSTORE key:{number} large:set"),
            30 => format!("SORT large:set ALPHA LIMIT 0 5 STORE key:{number}"),
            31 => format!("GETEX key:{number} PERSIST"),
            32 => format!("UNLINK large:{}", random.choose(&["list", "hash", "zset"])),
            _ => format!("SELECT {}", n % 4),
        };
        self.run(&line);
        if random.in_range(0..400) == 0 {
            self.run("FLUSHDB");
        }
        if random.in_range(0..50) == 0 {
            self.now_ms += random.in_range(0..300);
            self.engine.tick(self.now_ms * 1000);
        }
    }

    fn start(&mut self) -> bool {
        let form = SnapshotForm::Rdb { compresses: true };
        self.engine.start_snapshot(self.now_ms * 1000, SnapshotKind::Save, form)
    }

    /// Takes a snapshot to its end, with changes after every slice.
    fn file(&mut self, random: &mut Random) -> Vec<u8> {
        let head = self.engine.snapshot_head(false);
        let mut file = FileWriter::begin(Vec::new(), &head).unwrap();
        loop {
            for _ in 0..random.in_range(0..300) {
                self.change(random);
            }
            let ahead_bytes = if random.in_range(0..3) == 0 { WALK_WAITS } else { 0 };
            let (parts, is_done) = match self.engine.snapshot_turn(ahead_bytes) {
                SnapshotTurn::More(parts) | SnapshotTurn::Waiting(parts) => (parts, false),
                SnapshotTurn::Done(parts) => (parts, true),
                other => panic!("the snapshot did not end well: {other:?}"),
            };
            parts.iter().for_each(|part| file.part(part).unwrap());
            if is_done {
                return file.finish().unwrap().0;
            }
        }
    }

    fn picture(&mut self) -> Picture {
        let mut picture = Picture::new();
        for db in 0..self.engine.keyspace.database_count() {
            self.engine.keyspace.select(db);
            self.engine.keyspace.for_each(&mut |entry| {
                let key = (db, String::from_utf8_lossy(entry.key()).into_owned());
                picture.insert(key, (entry.expires_at(), describe(entry)));
            });
        }
        picture
    }
}

/// Everything there is, by database and key: when it ends, and what it holds.
type Picture = BTreeMap<(usize, String), (Option<u64>, Vec<Vec<u8>>)>;

/// The parts of a value in an order that does not depend on how it is kept.
fn describe(entry: &crate::Entry) -> Vec<Vec<u8>> {
    let mut scratch = [0; 20];
    let value = crate::keyspace::saved(entry.value(), &mut scratch);
    let mut parts: Vec<Vec<u8>> = match value {
        dump::ValueRef::Set(set) => set.iter().map(|member| member.to_vec()).collect(),
        dump::ValueRef::Hash(hash) => {
            let pair = |(field, value): (store_types::Element<'_>, store_types::Element<'_>)| {
                [field.to_vec(), value.to_vec()].join(&b'=')
            };
            hash.iter().map(pair).collect()
        }
        other => vec![dump::dump(other, None)],
    };
    parts.sort();
    parts.push(vec![type_code(value)]);
    parts
}

/// What a fresh engine makes of a file.
fn picture_of(file: &[u8], now_ms: u64) -> Picture {
    let mut world = World::new(99);
    let options = LoadOptions { ended: EndedKeys::Loaded, ..LoadOptions::default() };
    let loaded = world.engine.load_snapshot(now_ms * 1000, file, options, &mut |_| {});
    loaded.unwrap_or_else(|error| panic!("{error}"));
    world.picture()
}

/// The first keys in which two pictures differ.
fn differences(expected: &Picture, found: &Picture) -> Vec<(usize, String)> {
    let keys: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let differing = keys.into_iter().filter(|key| expected.get(*key) != found.get(*key));
    differing.take(5).cloned().collect()
}

fn run_seed(seed: u64, is_careless: bool) -> Vec<(usize, String)> {
    let mut random = Random::seeded(seed);
    let mut world = World::new(seed);
    world.fill(&mut random);
    world.engine.keyspace.is_careless = is_careless;
    if random.in_range(0..2) == 0 {
        // One that is given up half-way must not spoil the next.
        assert!(world.start());
        world.engine.snapshot_turn(0);
        (0..200).for_each(|_| world.change(&mut random));
        world.engine.abandon_snapshot();
        assert!(!world.start());
        while world.engine.has_snapshot() {
            world.engine.snapshot_turn(0);
            (0..50).for_each(|_| world.change(&mut random));
        }
    }
    let expected = world.picture();
    assert!(world.start());
    let file = world.file(&mut random);
    differences(&expected, &picture_of(&file, world.now_ms))
}

#[test]
fn a_snapshot_shows_the_moment_it_began_at() {
    let seed = testkit::seed();
    for seed in seed..seed + 2 {
        assert_eq!(run_seed(seed, false), [], "seed {seed}");
    }
}

#[test]
fn the_test_above_notices_changes_that_are_not_saved_first() {
    assert!(!run_seed(1, true).is_empty());
}

#[test]
fn a_database_that_goes_while_a_snapshot_settles_leaves_the_others_whole() {
    let mut world = World::new(5);
    for db in 0..2 {
        world.run(&format!("SELECT {db}"));
        (0..5000).for_each(|number| world.run(&format!("SET key:{number} {number}")));
    }
    assert!(world.start());
    world.engine.snapshot_turn(0);
    world.engine.abandon_snapshot();
    world.run("SELECT 0");
    world.run("FLUSHDB");
    while world.engine.has_snapshot() {
        world.engine.snapshot_turn(0);
    }
    let expected = world.picture();
    assert_eq!(expected.len(), 5000);
    assert!(world.start());
    let head = world.engine.snapshot_head(false);
    let mut file = FileWriter::begin(Vec::new(), &head).unwrap();
    while let SnapshotTurn::More(parts) | SnapshotTurn::Done(parts) = world.engine.snapshot_turn(0)
    {
        parts.iter().for_each(|part| file.part(part).unwrap());
    }
    let found = picture_of(&file.finish().unwrap().0, world.now_ms);
    assert_eq!(differences(&expected, &found), []);
}

#[test]
fn flushall_gives_a_save_up_but_not_a_rewrite() {
    let mut random = Random::seeded(5);
    for kind in [SnapshotKind::Save, SnapshotKind::Rewrite] {
        let mut world = World::new(5);
        world.fill(&mut random);
        let expected = world.picture();
        let form = SnapshotForm::Rdb { compresses: false };
        assert!(world.engine.start_snapshot(world.now_ms * 1000, kind, form));
        if kind == SnapshotKind::Save {
            world.engine.state.saving.pretend_running();
        }
        let head = world.engine.snapshot_head(false);
        let mut file = FileWriter::begin(Vec::new(), &head).unwrap();
        world.run("FLUSHALL");
        let turn = loop {
            match world.engine.snapshot_turn(0) {
                SnapshotTurn::More(parts) => parts.iter().for_each(|p| file.part(p).unwrap()),
                other => break other,
            }
        };
        match (kind, turn) {
            (SnapshotKind::Save, SnapshotTurn::Abandoned(reason)) => {
                assert_eq!(reason, "FLUSHALL");
            }
            (SnapshotKind::Rewrite, SnapshotTurn::Done(parts)) => {
                parts.iter().for_each(|part| file.part(part).unwrap());
                let found = picture_of(&file.finish().unwrap().0, world.now_ms);
                assert_eq!(differences(&expected, &found), []);
            }
            (kind, turn) => panic!("{kind:?}: {turn:?}"),
        }
    }
}

#[test]
fn a_snapshot_whose_parts_nobody_writes_is_given_up() {
    let mut world = World::new(3);
    world.run("DEBUG POPULATE 200");
    let value = "v".repeat(60_000);
    for number in 0..3000 {
        world.run(&format!("SET key:{number} {value}"));
    }
    assert!(world.start());
    for number in 0..3000 {
        world.run(&format!("SET key:{number} other"));
    }
    let SnapshotTurn::Abandoned(reason) = world.engine.snapshot_turn(0) else {
        panic!("the buffer has no bound");
    };
    assert!(reason.contains("bytes wait for the file"), "{reason}");
    assert!(matches!(world.engine.snapshot_turn(0), SnapshotTurn::Settling | SnapshotTurn::Idle));
}

/// A platform with files that nobody ever sees.
struct Shelf;

impl crate::platform::Platform for Shelf {
    fn usage(&self) -> crate::platform::Usage {
        crate::platform::Usage::default()
    }

    fn rewrite_config(&self, _: &str, _: &dyn Fn(&str) -> String) -> Result<(), String> {
        Ok(())
    }

    fn follow_settings(
        &self,
        _: &Config,
        _: &mut Config,
        _: &[&crate::Setting],
    ) -> Result<(), crate::SettingRefused> {
        Ok(())
    }

    fn read_file(&self, _: &str) -> Result<String, String> {
        Err("no such file".to_owned())
    }

    fn write_file(&self, _: &str, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn keeps_files(&self) -> bool {
        true
    }

    fn save_snapshot(
        &self,
        _: &SaveJob,
        next: &mut dyn FnMut() -> Option<Vec<store_persist::rdb::Part>>,
    ) -> Result<(), String> {
        while next().is_some() {}
        Ok(())
    }

    fn open_file(&self, _: &std::path::Path) -> Result<Box<dyn std::io::Read>, String> {
        Err("no such file".to_owned())
    }

    fn fill_secret(&self, _: &mut [u8]) -> bool {
        false
    }
}

/// A world whose server was started at its moment and has these save points.
fn saving_world(points: &str) -> World {
    let mut config = Config::default();
    let setting = Config::find("save").unwrap();
    config.set(setting, &[points]).unwrap();
    let identity = Identity { started_at_ms: START_MS, ..Identity::default() };
    let mut engine = Engine::new(config, identity, 1, Box::new(Shelf));
    let session = engine.open_session(START_MS * 1000, Origin::default());
    World { engine, session, now_ms: START_MS }
}

impl World {
    /// Lets time pass, and tells whether a save began.
    fn saves_after(&mut self, milliseconds: u64) -> bool {
        self.now_ms += milliseconds;
        self.engine.tick(self.now_ms * 1000);
        let requests = std::mem::take(&mut self.engine.effects().requests);
        requests.iter().any(|request| matches!(request, ServerRequest::SaveStarted(_)))
    }

    fn finish(&mut self, result: Result<(), SaveFailure>) {
        if result.is_err() {
            self.engine.abandon_snapshot();
        }
        while self.engine.has_snapshot() {
            self.engine.snapshot_turn(0);
        }
        self.engine.finish_save(self.now_ms * 1000, result);
    }
}

#[test]
fn a_save_point_needs_its_seconds_and_its_changes() {
    let mut world = saving_world("900 1 60 3");
    assert_eq!(world.engine.next_tick(), NextTick::Never, "nothing changed, nothing is due");
    world.run("SET a 1");
    assert_eq!(world.engine.next_tick(), NextTick::At(START_MS + 900_001));
    world.run("SET b 1");
    world.run("SET c 1");
    assert_eq!(world.engine.next_tick(), NextTick::At(START_MS + 60_001));
    assert!(!world.saves_after(60_000));
    assert!(world.saves_after(1));
    world.run("SET d 1");
    assert!(!world.saves_after(1_000_000), "one at a time");
    world.finish(Ok(()));
    assert_eq!(world.engine.keyspace.dirty, 1, "what came meanwhile is not in the file");
    assert!(world.saves_after(900_001));
}

#[test]
fn a_failed_save_is_tried_again_after_a_rest_and_refuses_writes_meanwhile() {
    let mut world = saving_world("1 1");
    world.run("SET a 1");
    assert!(world.saves_after(1001));
    world.finish(Err(SaveFailure::Failed("the disk is full".to_owned())));
    world.run("SET b 1");
    assert!(!world.engine.keyspace.contains_at(0, b"b"));
    assert!(!world.saves_after(4999));
    assert!(world.saves_after(1));
    world.finish(Ok(()));
    world.run("SET b 1");
    assert!(world.engine.keyspace.contains_at(0, b"b"));
}

#[test]
fn flushall_forgets_a_running_save_without_calling_it_a_failure() {
    let mut world = saving_world("1 1");
    world.run("SET a 1");
    assert!(world.saves_after(1001));
    world.run("FLUSHALL");
    let requests = std::mem::take(&mut world.engine.effects().requests);
    assert!(requests.contains(&ServerRequest::SaveCancelled));
    world.finish(Err(SaveFailure::Failed("FLUSHALL".to_owned())));
    assert!(world.engine.state.saving.is_ok);
    assert_eq!(world.engine.keyspace.dirty, 0, "the empty store was saved");
}

#[test]
fn bgsave_waits_for_the_traces_of_one_that_was_given_up() {
    let mut world = saving_world("");
    for number in 0..3 * KEYS {
        world.run(&format!("SET key:{number} 1"));
    }
    world.run("BGSAVE");
    assert!(world.saves_after(0));
    world.engine.snapshot_turn(0);
    world.engine.abandon_snapshot();
    let failure = SaveFailure::Failed("it failed".to_owned());
    world.engine.finish_save(world.now_ms * 1000, Err(failure));
    world.run("BGSAVE");
    let mut ticks = 1;
    while !world.saves_after(0) {
        assert_eq!(world.engine.next_tick(), NextTick::Soon);
        ticks += 1;
    }
    assert!(ticks > 1, "the walk settles first");
}

#[test]
fn what_a_start_refuses_is_not_called_whole() {
    let library = |code: &[u8]| [b"\xf5", &[code.len() as u8][..], code].concat();
    let good: &[u8] = b"#!lua name=l\nredis.register_function('f', function() end)";
    let file = |rest: &[u8]| [b"REDIS0010", rest, b"\xff", &[0; 8]].concat();
    let far = b"\xfe\x40\x63\x00\x01a\x01x";
    let check = |bytes: &[u8], databases| {
        check_snapshot(bytes, databases, 5_000_000, LoadOptions::default(), &mut |_| {}).map(drop)
    };
    let cases: [(Vec<u8>, &str); 4] = [
        (file(b"\xfe\x00\x00\x01a\x01x\x00\x01a\x01y"), "twice"),
        (file(far), "databases is 16"),
        (file(&library(b"#!lua name=l\nnonsense(")), "library"),
        (file(&[library(good), library(good)].concat()), "library"),
    ];
    for (bytes, reason) in cases {
        // No record by itself is wrong.
        let mut records = FileReader::begin(&bytes[..], Limits::default()).unwrap();
        while records.next_item().unwrap().is_some() {}
        let error = check(&bytes, 16).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}\nlacks {reason}");
    }
    check(&file(far), 100).unwrap();
    check(&file(&library(good)), 16).unwrap();
}
