//! Lazy freeing: which values are handed out, and what is told of them.

use store_engine::Garbage;
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
    std::mem::take(&mut world.engine.effects().garbage)
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
    assert_eq!(pending(&world), (0, 0));
    world.pass(1);
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
        world.engine.set_propagating(true);
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
