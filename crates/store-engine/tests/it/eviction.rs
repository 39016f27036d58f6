//! `maxmemory`: which keys go, when, and what is told of it.

use std::collections::BTreeSet;

use store_resp::Reply;
use testkit::Random;

use crate::world::{World, bulk, made_up, ok};

const EVICTING: &[&str] = &[
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// A world in which about `keys` small keys fit.
fn limited(seed: u64, policy: &str, keys: usize) -> World {
    let mut world = World::configured(seed, &["--maxmemory-policy", policy]);
    for number in 0..keys {
        world.run(&format!("SET probe:{number:07} value EX 1000000"));
    }
    let memory_max = world.engine.memory();
    world.run("FLUSHALL");
    world.pass(1);
    assert_eq!(world.run(&format!("CONFIG SET maxmemory {memory_max}")), ok());
    world.run("CONFIG RESETSTAT");
    world
}

fn oom() -> Reply {
    Reply::Error("OOM command not allowed when used memory > 'maxmemory'.".into())
}

fn count(world: &mut World, line: &str) -> i64 {
    match world.run(line) {
        Reply::Integer(count) => count,
        other => panic!("{line} → {other:?}"),
    }
}

/// A number that INFO tells.
fn fact(world: &mut World, name: &str) -> u64 {
    let Reply::Bulk(text) = world.run("INFO") else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("INFO has no {name}")).parse().unwrap()
}

#[test]
fn every_policy_keeps_memory_within_the_limit() {
    for policy in EVICTING {
        let mut world = limited(1, policy, 2000);
        let memory_max = fact(&mut world, "maxmemory") as usize;
        for number in 0..6000 {
            assert_eq!(world.run(&format!("SET key:{number:09} value EX 1000000")), ok());
            // Room is made before a request, so the last one may be over: a key, or a split.
            assert!(world.engine.memory() < memory_max + 20_000, "{policy} at {number}");
        }
        let held = count(&mut world, "DBSIZE");
        assert!((1700..2300).contains(&held), "{policy}: {held} keys");
        assert_eq!(fact(&mut world, "evicted_keys"), 6000 - held as u64, "{policy}");
    }
}

/// What clients keep of the store, and code, take memory like keys do.
#[test]
fn tracked_keys_and_scripts_count_for_the_limit() {
    let grown: [fn(&mut World); 2] = [
        |world| {
            world.run_as("reader", "HELLO 3");
            assert_eq!(world.run_as("reader", "CLIENT TRACKING ON"), ok());
            for number in 0..100 {
                world.run_as("reader", &format!("GET absent:{number:08}"));
            }
        },
        |world| {
            for number in 0..60 {
                world.run(&format!("SCRIPT LOAD --{number:0400}"));
            }
        },
    ];
    for grow in grown {
        let mut world = limited(3, "allkeys-lru", 1000);
        let fill = |world: &mut World| {
            for number in 0..2000 {
                assert_eq!(world.run(&format!("SET key:{number:09} value")), ok());
            }
            count(world, "DBSIZE")
        };
        let held_before = fill(&mut world);
        let uncounted_before = fact(&mut world, "mem_not_counted_for_evict");
        grow(&mut world);
        let held = fill(&mut world);
        assert!(held < held_before - 100, "{held_before} keys, then {held}");
        assert_eq!(fact(&mut world, "mem_not_counted_for_evict"), uncounted_before);
    }
}

#[test]
fn keys_without_an_end_are_safe_from_volatile_policies() {
    for policy in EVICTING.iter().filter(|name| name.starts_with("volatile")) {
        let mut world = limited(2, policy, 1000);
        for number in 0..300 {
            world.run(&format!("SET kept:{number:08} value"));
            world.run(&format!("SET ends:{number:08} value EX 1000000"));
        }
        let mut refused = 0;
        for number in 0..1000 {
            match world.run(&format!("SET more:{number:08} value")) {
                reply if reply == oom() => refused += 1,
                reply => assert_eq!(reply, ok()),
            }
        }
        assert!(refused > 50, "{policy}: only {refused} were refused");
        for number in 0..300 {
            assert_eq!(count(&mut world, &format!("EXISTS kept:{number:08}")), 1, "{policy}");
        }
        let Reply::Array(ending) = world.run("KEYS ends:*") else { panic!("no keys") };
        assert!(ending.is_empty(), "{policy} refuses writes though {} keys may go", ending.len());
        assert_eq!(world.run("DEL more:00000000"), Reply::Integer(1));
        assert_eq!(world.run("GET kept:00000000"), bulk("value"));
    }
}

#[test]
fn without_a_policy_writes_are_refused_and_all_else_runs() {
    let mut world = limited(3, "noeviction", 100);
    for number in 0..400 {
        world.run(&format!("SET key:{number:09} value"));
    }
    let held = count(&mut world, "DBSIZE");
    assert!((50..200).contains(&held));
    assert_eq!(world.run("SET one more"), oom());
    assert_eq!(world.run("LPUSH list x"), oom());
    assert_eq!(world.run("GET key:000000001"), bulk("value"));
    assert_eq!(world.run("DEL key:000000001"), Reply::Integer(1));
    assert_eq!(fact(&mut world, "evicted_keys"), 0);
    world.run("CONFIG SET maxmemory 0");
    assert_eq!(world.run("SET one more"), ok());
}

/// The model: the evicted keys are compared with what an exact policy would have evicted.
#[test]
fn what_goes_is_close_to_what_an_exact_policy_would_choose() {
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-lfu"] {
        let mut world = limited(4, policy, 1000);
        world.run("CONFIG SET maxmemory-samples 10");
        let mut random = Random::seeded(testkit::seed());
        let mut order: Vec<usize> = (0..900).collect();
        order.sort_by_cached_key(|_| random.in_range(0..1 << 60));
        // The later in `order`, the better the reason to keep it.
        for (rank, key) in order.iter().enumerate() {
            world.run(&format!("SET key:{key:09} value EX {}", 10_000 + rank));
            for _ in 0..if policy == "allkeys-lfu" { rank / 10 } else { 0 } {
                world.run(&format!("GET key:{key:09}"));
            }
            world.pass(1000);
        }
        for number in 0..400 {
            // Better in every respect than what is there.
            world.run(&format!("SET new:{number:09} value EX 100000"));
            for _ in 0..if policy == "allkeys-lfu" { 150 } else { 0 } {
                world.run(&format!("GET new:{number:09}"));
            }
        }
        let evicted: Vec<usize> = (0..900)
            .filter(|rank| count(&mut world, &format!("EXISTS key:{:09}", order[*rank])) == 0)
            .collect();
        assert!(evicted.len() > 200, "{policy}: only {} were evicted", evicted.len());
        let first: BTreeSet<usize> = (0..evicted.len() * 3 / 2).collect();
        let wrong = evicted.iter().filter(|rank| !first.contains(rank)).count();
        assert!(wrong * 20 <= evicted.len(), "{policy}: {wrong} of {} wrong", evicted.len());
    }
}

#[test]
fn three_hot_keys_outlive_a_scan_under_lfu_but_not_under_lru() {
    let survivors = |policy: &str| {
        let mut world = limited(5, policy, 500);
        for hot in ["a", "b", "c"] {
            world.run(&format!("SET hot:{hot} value"));
            for _ in 0..300 {
                world.run(&format!("GET hot:{hot}"));
            }
        }
        world.pass(5000);
        for number in 0..5000 {
            world.run(&format!("SET scan:{number:08} value"));
        }
        count(&mut world, "EXISTS hot:a hot:b hot:c")
    };
    assert_eq!(survivors("allkeys-lfu"), 3);
    assert_eq!(survivors("allkeys-lru"), 0);
}

/// Hits in percent of a cache that is asked for keys of very different popularity.
fn zipf_hit_rate(policy: &str) -> f64 {
    const UNIVERSE: usize = 4000;
    let mut world = limited(6, policy, 400);
    let mut random = Random::seeded(6);
    let weights: Vec<f64> = (1..=UNIVERSE).map(|rank| 1.0 / rank as f64).collect();
    let total: f64 = weights.iter().sum();
    let (mut hits, mut asked) = (0, 0);
    for round in 0..40_000 {
        let mut place = random.in_range(0..1 << 32) as f64 / (1u64 << 32) as f64 * total;
        let found = weights.iter().position(|weight| {
            place -= weight;
            place < 0.0
        });
        let key = format!("key:{:09}", found.unwrap_or(UNIVERSE - 1));
        let is_hit = world.run(&format!("GET {key}")) != Reply::Null;
        if !is_hit {
            world.run(&format!("SET {key} value EX 1000000"));
        }
        if round > 10_000 {
            (hits, asked) = (hits + u32::from(is_hit), asked + 1);
        }
        if round % 100 == 0 {
            world.pass(1000);
        }
    }
    100.0 * f64::from(hits) / f64::from(asked)
}

/// The control is the random policy: a test that cannot tell it from the others shows nothing.
#[test]
fn on_a_zipf_workload_lfu_beats_lru_and_both_beat_chance() {
    let [lfu, lru, random] = ["allkeys-lfu", "allkeys-lru", "allkeys-random"].map(zipf_hit_rate);
    println!("hits: lfu {lfu:.1} %, lru {lru:.1} %, random {random:.1} %");
    assert!(lfu > lru + 1.0 && lru > random + 2.0, "lfu {lfu}, lru {lru}, random {random}");
}

#[test]
fn evictions_are_propagated_before_what_they_make_room_for() {
    for (setting, word) in [("no", "DEL"), ("yes", "UNLINK")] {
        let mut world = limited(7, "allkeys-random", 100);
        world.run(&format!("CONFIG SET lazyfree-lazy-eviction {setting}"));
        for number in 0..200 {
            world.run(&format!("SET key:{number:09} value"));
        }
        world.engine.set_feeding_file(true);
        world.take_units();
        let evicted = fact(&mut world, "evicted_keys");
        world.run("MULTI");
        world.run("SET new:00000001 value");
        world.run("SET new:00000002 value");
        world.run("EXEC");
        let units = world.take_units();
        let gone = fact(&mut world, "evicted_keys") - evicted;
        let words = |unit: &store_engine::Unit| -> Vec<String> {
            let words = |request: &store_resp::OwnedRequest| {
                String::from_utf8_lossy(request.as_request().arg(0)).into_owned()
            };
            unit.requests.iter().map(|(_, request)| words(request)).collect()
        };
        let (last, before) = units.split_last().unwrap();
        assert_eq!(words(last), ["SET", "SET"]);
        assert!(!before.is_empty() && before.len() as u64 <= gone);
        for unit in before {
            assert_eq!(words(unit), [word]);
        }
    }
}

#[test]
fn an_eviction_is_an_event_and_breaks_a_watch() {
    let mut world = limited(8, "allkeys-lru", 100);
    world.run("CONFIG SET notify-keyspace-events Ee");
    world.run_as("listener", "SUBSCRIBE __keyevent@0__:evicted");
    world.run_as("watcher", "SET watched:000001 value");
    world.run_as("watcher", "WATCH watched:000001");
    world.pass(5000);
    for number in 0..300 {
        world.run(&format!("SET key:{number:09} value"));
    }
    let Some(Reply::Array(message)) = world.take_reply("listener") else { panic!("no message") };
    assert_eq!(message[1], bulk("__keyevent@0__:evicted"));
    world.run_as("watcher", "MULTI");
    world.run_as("watcher", "PING");
    assert_eq!(world.run_as("watcher", "EXEC"), Reply::NullArray);
}

#[test]
fn a_lowered_limit_is_reached_in_slices() {
    let mut world = limited(9, "allkeys-lru", 20_000);
    for number in 0..19_000 {
        world.run(&format!("SET key:{number:09} value"));
    }
    let held = |world: &World| world.engine.keyspace().counts(0).0;
    let start = held(&world);
    let used = world.engine.memory();
    world.run(&format!("CONFIG SET maxmemory {}", used / 2));
    assert_eq!(held(&world), start, "a slice too early");
    let mut ticks = 0;
    let mut before = start;
    while world.engine.next_tick() == store_engine::NextTick::Soon {
        world.engine.tick(world.now_ms * 1000);
        assert!(before - held(&world) <= 200, "{} keys in one turn", before - held(&world));
        before = held(&world);
        ticks += 1;
        world.now_ms += 1;
    }
    assert!(ticks > 50, "only {ticks} turns");
    assert!(world.engine.memory() <= used / 2);
    let told = fact(&mut world, "total_eviction_exceeded_time");
    assert!(told >= 50 && told <= ticks, "{told} ms in {ticks} turns of 1 ms");
    assert_eq!(fact(&mut world, "current_eviction_exceeded_time"), 0);
}

#[test]
fn scripts_are_refused_by_what_they_promised() {
    let mut world = limited(10, "noeviction", 50);
    world.run("CONFIG SET maxmemory 1");
    let ask = |world: &mut World, script: &str| {
        let words = [&b"EVAL"[..], script.as_bytes(), b"0"];
        let request = store_resp::OwnedRequest::from_args(words);
        world.execute("main", request.as_request());
        world.take_reply("main").unwrap()
    };
    let is_oom = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("OOM "));
    assert_eq!(ask(&mut world, "return 1"), Reply::Integer(1));
    assert!(is_oom(&ask(&mut world, "return redis.call('SET', 'a', 'b')")));
    assert!(is_oom(&ask(&mut world, "#!lua\nreturn 1")));
    assert_eq!(ask(&mut world, "#!lua flags=no-writes\nreturn 1"), Reply::Integer(1));
    let allowed = "#!lua flags=allow-oom\nreturn redis.call('SET', 'a', 'b')";
    assert_eq!(ask(&mut world, allowed), ok());
}

#[test]
fn while_clients_are_paused_no_key_goes() {
    let mut world = limited(11, "allkeys-random", 100);
    for number in 0..90 {
        world.run(&format!("SET key:{number:09} value"));
    }
    world.run("CLIENT PAUSE 1000 WRITE");
    world.run("CONFIG SET maxmemory 1");
    world.pass(10);
    assert_eq!(count(&mut world, "DBSIZE"), 90);
    world.pass(2000);
    world.run("PING");
    world.pass(10);
    assert_eq!(count(&mut world, "DBSIZE"), 0);
}

#[test]
fn keys_of_all_databases_go() {
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl"] {
        let mut world = limited(12, policy, 400);
        for db in 0..4 {
            world.run(&format!("SELECT {db}"));
            for number in 0..200 {
                world.run(&format!("SET key:{db}:{number:07} value EX 1000"));
            }
        }
        for db in 0..4 {
            let (held, _) = world.engine.keyspace().counts(db);
            assert!((1..200).contains(&held) || db == 3, "{policy}: {held} keys in {db}");
        }
    }
}

#[test]
fn a_session_that_hears_nothing_of_its_own_changes_hears_of_evictions() {
    let mut world = limited(13, "allkeys-lru", 100);
    world.run("HELLO 3");
    world.run("SET cached:0000001 value");
    world.run("CLIENT TRACKING ON NOLOOP");
    world.run("GET cached:0000001");
    world.pass(5000);
    let told = (0..300).any(|number| {
        let mut replies = vec![world.run(&format!("SET key:{number:09} value"))];
        replies.extend(std::iter::from_fn(|| world.take_reply("main")));
        format!("{replies:?}").contains("cached:0000001")
    });
    assert!(told, "the session would keep its copy for ever");
}

/// I5 under a limit: the keys that go are propagated, too.
#[test]
fn replaying_what_is_propagated_gives_the_same_keys_under_a_limit() {
    const LINES: &[&str] = &[
        "SET {k}:{n} {n}{n}{n}{n}{n}{n}",
        "SET {k}:{n} {n} PX {n}000",
        "RPUSH l:{n} {n} {n} {n}",
        "HSET h:{n} {n} value {n} value",
        "DEL {k}:{n}",
        "SELECT {0|1}",
        "EXPIRE {k}:{n} {n}",
        "MULTI",
        "EXEC",
        "CONFIG SET lazyfree-lazy-eviction {yes|no}",
    ];
    let seed = testkit::seed();
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        // Keys that never end would fill the memory for good.
        let lasts = |line: &str| line.contains("PUSH") || line.contains("HSET");
        let all_end = policy.starts_with("volatile");
        let lines: Vec<&str> = LINES[usize::from(all_end)..]
            .iter()
            .copied()
            .filter(|l| !(all_end && lasts(l)))
            .collect();
        let mut random = Random::seeded(seed);
        let mut original = limited(seed, policy, if all_end { 10 } else { 40 });
        original.engine.set_feeding_file(true);
        let mut replica = World::seeded(seed ^ 1);
        for round in 0..2000 {
            original.run(&made_up(&mut random, &lines));
            if round % 7 == 0 {
                original.pass(random.in_range(0..50));
            }
        }
        original.run("DISCARD");
        original.pass(0);
        assert!(fact(&mut original, "evicted_keys") > 5, "{policy}");
        for (db, request) in original.take_units().into_iter().flat_map(|unit| unit.requests) {
            replica.run(&format!("SELECT {db}"));
            replica.execute("main", request.as_request());
            let reply = replica.take_reply("main").unwrap();
            assert!(!matches!(reply, Reply::Error(_)), "{request:?}: {reply:?}");
        }
        original.run("CONFIG SET maxmemory 0");
        original.close("main");
        assert_eq!(original.contents(), replica.contents(), "{policy}");
    }
}

#[test]
fn nothing_goes_while_data_is_loaded_and_then_it_does() {
    let mut world = limited(14, "allkeys-lru", 100);
    let now_us = world.now_ms * 1000;
    let loader = world.engine.begin_loading(now_us, 1);
    for number in 0..500 {
        let key = format!("key:{number:09}");
        let words = [&b"SET"[..], key.as_bytes(), b"value"];
        let request = store_resp::OwnedRequest::from_args(words);
        world.engine.load_request(now_us, loader, request.as_request()).unwrap();
        world.run("PING");
    }
    world.pass(1);
    assert_eq!(world.engine.keyspace().counts(0).0, 500);
    world.engine.end_loading(loader);
    world.pass(1);
    let held = world.engine.keyspace().counts(0).0;
    assert!((50..250).contains(&held), "{held} keys");
}

#[test]
fn an_evicted_key_is_told_of_before_the_reply_to_the_request_that_needed_room() {
    let mut world = World::configured(1, &["--maxmemory-policy", "allkeys-random"]);
    world.run("SET k 1");
    world.run_as("a", "HELLO 3");
    assert_eq!(world.run_as("a", "CLIENT TRACKING ON"), ok());
    assert_eq!(world.run_as("a", "GET k"), bulk("1"));
    world.run("CONFIG SET maxmemory 1");

    let told = world.run_as("a", "GET k");
    assert_eq!(told, Reply::Push(vec![bulk("invalidate"), Reply::Array(vec![bulk("k")])]));
    assert_eq!(world.take_reply("a"), Some(Reply::Null));
    assert_eq!(world.take_reply("a"), None, "once is enough");

    // The reply said that there is none, so a new one is told.
    world.run("CONFIG SET maxmemory 0");
    world.run("SET k 2");
    assert!(matches!(world.take_reply("a"), Some(Reply::Push(_))));
}
