//! Lazy freeing: which values are handed out, and what is told of them.

use store_engine::{Garbage, NextTick, SnapshotForm, SnapshotKind};
use store_resp::{OwnedRequest, Reply};

use crate::world::{World, ok};

const MEMBERS: usize = 300;

fn with_big(kind: &str) -> World {
    let mut world = World::seeded(20);
    make_big(&mut world, "big", kind);
    world
}

/// A value of more parts than are freed at once.
fn make_big(world: &mut World, key: &str, kind: &str) {
    for number in 0..MEMBERS {
        let line = match kind {
            "hash" => format!("HSET {key} field:{number} value:{number}:{}", "x".repeat(64)),
            "set" => format!("SADD {key} member:{number}"),
            "zset" => format!("ZADD {key} {number} member:{number}"),
            "list" => format!("RPUSH {key} {}", "x".repeat(5000)),
            "stream" => format!("XADD {key} * field {}", "x".repeat(3000)),
            _ => format!("APPEND {key} {}", "x".repeat(5000)),
        };
        assert!(!matches!(world.run(&line), Reply::Error(_)), "{line}");
    }
}

fn take_garbage(world: &mut World) -> Vec<Garbage> {
    world.engine.take_garbage()
}

fn pending(world: &World) -> (usize, u64) {
    let stats = world.engine.keyspace().freeing_stats();
    (stats.pending_objects, stats.freed_objects)
}

#[test]
fn unlink_hands_out_large_values_of_every_kind_and_no_small_ones() {
    for kind in ["hash", "set", "zset", "list", "stream", "string"] {
        let mut world = with_big(kind);
        let before = world.engine.memory();
        world.run("SET small value");
        assert_eq!(world.run("UNLINK big small none"), Reply::Integer(2), "{kind}");
        let garbage = take_garbage(&mut world);
        assert_eq!(garbage.len(), 1, "{kind}");
        assert!(garbage[0].bytes() > 5000 && garbage[0].bytes() < before, "{kind}");
        assert!(world.engine.memory() < before - garbage[0].bytes() + 1000, "{kind}");
        assert_eq!(pending(&world), (1, 0));
        let (objects, bytes) = (garbage[0].objects(), garbage[0].bytes());
        drop(garbage);
        world.engine.note_freed(objects, bytes);
        assert_eq!(pending(&world), (0, 1));
        assert_eq!(world.engine.keyspace().freeing_stats().pending_bytes, 0);
    }
}

/// Each setting, and a request that removes `big` for its reason.
const REASONS: &[(&str, &[&str])] = &[
    ("lazyfree-lazy-user-del", &["DEL big"]),
    ("lazyfree-lazy-server-del", &["SET big small"]),
    ("lazyfree-lazy-server-del", &["SET other x", "RENAME other big"]),
    ("lazyfree-lazy-server-del", &["SET other x", "COPY other big REPLACE"]),
    ("lazyfree-lazy-server-del", &["SUNIONSTORE big none"]),
    ("lazyfree-lazy-server-del", &["ZADD one 1 a", "ZUNIONSTORE big 1 one"]),
    ("lazyfree-lazy-expire", &["EXPIRE big -1"]),
    ("lazyfree-lazy-expire", &["PEXPIRE big 1", "wait", "GET big"]),
    ("lazyfree-lazy-expire", &["PEXPIRE big 1", "wait"]),
    ("lazyfree-lazy-eviction", &["CONFIG SET maxmemory 1 maxmemory-policy allkeys-lru", "wait"]),
    ("lazyfree-lazy-user-flush", &["FLUSHALL"]),
    ("lazyfree-lazy-user-flush", &["FLUSHDB"]),
];

#[test]
fn each_setting_decides_about_its_own_reason_to_remove() {
    for (setting, lines) in REASONS {
        for is_lazy in [false, true] {
            let mut world = with_big("hash");
            if is_lazy {
                world.run(&format!("CONFIG SET {setting} yes"));
            }
            for line in *lines {
                match *line {
                    "wait" => world.pass(1000),
                    line => drop(world.run(line)),
                }
            }
            let garbage = take_garbage(&mut world);
            assert_eq!(garbage.len(), usize::from(is_lazy), "{setting} {lines:?}");
        }
    }
}

#[test]
fn a_flush_says_by_itself_how_it_frees() {
    for (option, is_lazy) in [("ASYNC", true), ("SYNC", false)] {
        for setting in ["yes", "no"] {
            let mut world = World::seeded(21);
            let before = world.engine.memory();
            world.run(&format!("CONFIG SET lazyfree-lazy-user-flush {setting}"));
            for number in 0..5000 {
                world.run(&format!("SET key:{number} value"));
            }
            assert!(world.engine.memory() > before + 200_000);
            assert_eq!(world.run(&format!("FLUSHALL {option}")), ok());
            let garbage = take_garbage(&mut world);
            let objects: usize = garbage.iter().map(Garbage::objects).sum();
            assert_eq!(objects, if is_lazy { 5000 } else { 0 });
            assert_eq!(world.engine.memory(), before);
        }
    }
}

#[test]
fn what_the_driver_gives_back_is_freed_here() {
    let mut world = with_big("hash");
    world.run("UNLINK big");
    for number in 0..5000 {
        world.run(&format!("SET key:{number} value"));
    }
    world.run("FLUSHALL ASYNC");
    assert_eq!(pending(&world), (5001, 0));
    for garbage in take_garbage(&mut world) {
        world.engine.take_back(garbage);
    }
    // The table waits here, to be freed in slices; that is no lazy freeing.
    world.pass(1);
    assert_eq!(pending(&world), (0, 0));
    assert_eq!(world.run("DBSIZE"), Reply::Integer(0));
}

#[test]
fn removals_are_propagated_as_they_free() {
    for (setting, word) in [("no", "DEL"), ("yes", "UNLINK")] {
        let mut world = World::seeded(22);
        for name in ["expire", "user-del"] {
            world.run(&format!("CONFIG SET lazyfree-lazy-{name} {setting}"));
        }
        for key in ["a", "b", "c", "d"] {
            world.run(&format!("SET {key} 1"));
        }
        world.run("PEXPIRE a 1");
        world.engine.set_feeding_file(true);
        world.pass(1000);
        world.run("EXPIRE b -1");
        world.run("GETDEL c");
        world.run("GETEX d PXAT 1");
        let words = |request: &OwnedRequest| request.as_request().arg(0).to_vec();
        let seen: Vec<Vec<u8>> =
            world.take_units().iter().map(|unit| words(&unit.requests[0].1)).collect();
        assert_eq!(seen, vec![word.as_bytes().to_vec(); 4]);
    }
}

/// Keys of some four kilobytes each.
fn fill(world: &mut World, count: usize) {
    let text = "x".repeat(4000);
    for number in 0..count {
        world.run(&format!("SET key:{number} {text}"));
    }
}

fn waiting_bytes(world: &World) -> usize {
    world.engine.keyspace().freeing_stats().pending_bytes
}

#[test]
fn a_flushed_database_counts_until_it_is_freed_and_that_needs_no_request() {
    let mut world = World::seeded(23);
    fill(&mut world, 5000);
    assert_eq!(world.run("FLUSHALL"), ok());
    let stats = world.engine.keyspace().freeing_stats();
    assert!(stats.pending_bytes > 20_000_000, "{stats:?}");
    assert!((4000..=5000).contains(&stats.pending_objects), "{stats:?}");
    let Reply::Bulk(text) = world.run("INFO memory") else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let used = text.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    assert!(used.parse::<usize>().unwrap() > 20_000_000, "{used}");
    assert_eq!(world.engine.next_tick(), NextTick::Soon);
    world.pass(1);
    assert_eq!(waiting_bytes(&world), 0);
    assert_eq!(pending(&world), (0, 0));
}

/// A loop of writes and flushes between two ticks: what waits here is bounded, the rest is
/// handed out, and what the driver cannot take is freed at once.
#[test]
fn flushed_databases_do_not_pile_up() {
    const WAITING_MAX: usize = 33 << 20;
    let mut world = World::seeded(24);
    let mut handed_out = 0;
    for _ in 0..6 {
        fill(&mut world, 5000);
        world.run("FLUSHALL");
        let garbage = take_garbage(&mut world);
        let bytes: usize = garbage.iter().map(Garbage::bytes).sum();
        assert!(waiting_bytes(&world) - bytes < WAITING_MAX);
        handed_out += garbage.len();
        garbage.into_iter().for_each(|garbage| world.engine.take_back(garbage));
        assert!(waiting_bytes(&world) < WAITING_MAX);
    }
    assert_eq!(handed_out, 5, "one waits here");
}

#[test]
fn memory_that_waits_to_be_freed_is_freed_before_a_key_goes() {
    let settings = ["--maxmemory", "32mb", "--maxmemory-policy", "allkeys-random"];
    let mut world = World::configured(25, &settings);
    for _ in 0..5 {
        fill(&mut world, 5000);
        assert_eq!(world.run("FLUSHALL"), ok());
        assert!(world.engine.memory() + waiting_bytes(&world) < 33 << 20);
    }
    assert_eq!(world.engine.keyspace().stats.evicted, 0);
}

/// A database that was flushed while the append-only file is rewritten is kept for it.
#[test]
fn a_database_kept_for_a_snapshot_counts() {
    let mut world = World::seeded(26);
    fill(&mut world, 5000);
    let (kind, form) = (SnapshotKind::Rewrite, SnapshotForm::Entries);
    assert!(world.engine.start_snapshot(world.now_ms * 1000, kind, form));
    assert_eq!(world.run("FLUSHALL"), ok());
    assert!(waiting_bytes(&world) > 20_000_000);
}
