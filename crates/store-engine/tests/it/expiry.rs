//! Keys end when they should, asked for or not.

use store_engine::NextTick;
use store_resp::Reply;

use crate::world::{World, bulk, ok};

#[test]
fn a_key_lives_through_its_last_millisecond_and_no_longer() {
    let mut world = World::seeded(1);
    assert_eq!(world.run("SET a 1 PX 100"), ok());
    world.now_ms += 100;
    assert_eq!(world.run("GET a"), bulk("1"));
    assert_eq!(world.run("PTTL a"), Reply::Integer(0));
    world.now_ms += 1;
    assert_eq!(world.run("GET a"), Reply::Null);
    assert_eq!(world.run("TTL a"), Reply::Integer(-2));
    assert_eq!(world.run("DBSIZE"), Reply::Integer(0));
}

#[test]
fn keys_that_nobody_asks_for_end_too() {
    let mut world = World::seeded(2);
    for number in 0..20_000 {
        world.run(&format!("SET key:{number} 1 PX {}", 1 + number % 1000));
    }
    for number in 0..100 {
        world.run(&format!("SET stays:{number} 1"));
    }
    world.pass(500);
    let Reply::Integer(left) = world.run("DBSIZE") else { panic!("no number") };
    assert_eq!(left, 20_000 / 2 + 20 + 100, "those of 500 and more, and those without an end");
    world.pass(1000);
    assert_eq!(world.run("DBSIZE"), Reply::Integer(100));
    assert_eq!(world.engine.keyspace().stats.expired, 20_000);
}

#[test]
fn one_turn_of_expiry_is_bounded() {
    let mut world = World::seeded(3);
    for number in 0..50_000 {
        world.run(&format!("SET key:{number} 1 PX 1"));
    }
    world.now_ms += 10;
    assert_eq!(world.engine.tick(world.now_ms * 1000), NextTick::Soon);
    let expired = world.engine.keyspace().stats.expired;
    assert!((1000..10_000).contains(&expired), "{expired} in one turn");
}

#[test]
fn an_engine_without_ends_wants_no_ticks() {
    let mut world = World::seeded(4);
    world.run("SET a 1");
    assert_eq!(world.engine.next_tick(), NextTick::Never);
    world.run("EXPIRE a 100");
    assert!(matches!(world.engine.next_tick(), NextTick::At(_)));
    world.run("PERSIST a");
    assert_eq!(world.engine.next_tick(), NextTick::Never);
}

#[test]
fn what_flushall_let_go_is_freed_in_slices() {
    let mut world = World::seeded(5);
    for number in 0..50_000 {
        world.run(&format!("SET key:{number} 1"));
    }
    assert_eq!(world.run("FLUSHALL"), ok());
    assert_eq!(world.engine.tick(world.now_ms * 1000), NextTick::Soon);
    world.pass(1);
    assert_eq!(world.engine.next_tick(), NextTick::Never);
}

#[test]
fn info_tells_how_long_keys_live_on_average() {
    let mut world = World::seeded(5);
    world.run("SET stays 1");
    for number in 0..2000 {
        world.run(&format!("SET key:{number} 1 PX {}", 100_000 + number * 100));
    }
    let Reply::Bulk(text) = world.run("INFO keyspace") else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let average = text.split("avg_ttl=").nth(1).unwrap().trim_end().parse::<u64>().unwrap();
    assert!((170_000..230_000).contains(&average), "{text}");
}

/// redis-server 7.0 crashes on this one, so there is nothing to compare with.
#[test]
fn a_key_that_ended_in_a_pause_makes_way_for_its_successor() {
    let mut world = World::seeded(1);
    world.run("DEBUG SET-ACTIVE-EXPIRE 0");
    world.run("SET a 1 PX 20");
    world.pass(50);
    for line in ["MULTI", "CLIENT PAUSE 100000 WRITE", "SET a 2", "EXEC"] {
        world.run(line);
    }
    assert_eq!(world.run("GET a"), bulk("2"));
    assert_eq!(world.run("DBSIZE"), Reply::Integer(1));
    world.run("CLIENT UNPAUSE");
    assert_eq!(world.run("GET a"), bulk("2"));
    assert_eq!(world.run("DBSIZE"), Reply::Integer(1));
}

#[test]
fn a_random_key_is_found_though_all_ended_in_a_pause() {
    let mut world = World::seeded(1);
    world.run("DEBUG SET-ACTIVE-EXPIRE 0");
    world.run("SET a 1 PX 20");
    world.run("CLIENT PAUSE 100000 WRITE");
    world.pass(50);
    assert_eq!(world.run("RANDOMKEY"), bulk("a"));
}

/// Waits are told in seconds, not in moments: whoever sets the wall clock changes none of them.
#[test]
fn a_step_of_the_wall_clock_changes_no_wait() {
    for step_ms in [-3_600_000i64, 3_600_000] {
        let mut world = World::seeded(1);
        world.now_ms = 10_000_000;
        world.send("waits", "BLPOP q 2");
        world.run("CLIENT PAUSE 1000 WRITE");
        world.send("paused", "SET a 1");
        world.pass(500);
        world.now_ms = world.now_ms.saturating_add_signed(step_ms);
        world.engine.clock_stepped(step_ms * 1000);
        world.pass(400);
        assert_eq!(world.take_reply("waits"), None, "step {step_ms}");
        assert!(world.engine.state().pause.is_some());
        world.pass(200);
        assert!(world.engine.state().pause.is_none());
        world.pass(900);
        assert_eq!(world.take_reply("waits"), Some(Reply::NullArray), "step {step_ms}");
    }
}

/// Without this, nothing would end by itself for as long as the clock was set back.
#[test]
fn keys_end_by_themselves_after_the_wall_clock_was_set_back() {
    let mut world = World::seeded(1);
    world.now_ms = 10_000_000;
    world.run("SET a 1 PX 10");
    world.pass(1000);
    world.now_ms -= 3_600_000;
    world.engine.clock_stepped(-3_600_000_000);
    world.run("SET b 1 PX 10");
    world.pass(1000);
    assert_eq!(world.run("DBSIZE"), Reply::Integer(0));
}

#[test]
fn a_search_for_ended_keys_that_takes_long_is_an_event_of_the_latency_monitor() {
    let mut world = World::configured(1, &["--latency-monitor-threshold", "20"]);
    let mut search = |micros| {
        world.run("SET k 1 PX 5");
        world.now_ms += 1000;
        world.engine.tick(world.now_ms * 1000);
        world.engine.finish_tick(micros);
        format!("{:?}", world.run("LATENCY LATEST"))
    };
    assert!(!search(19_999).contains("expire-cycle"));
    let latest = search(25_000);
    assert!(latest.contains("expire-cycle") && latest.contains("25"), "{latest}");
    // A tick that has no key to look for is none.
    world.run("LATENCY RESET");
    world.engine.tick(world.now_ms * 1000);
    world.engine.finish_tick(25_000);
    assert_eq!(world.run("LATENCY LATEST"), Reply::Array(Vec::new()));
}
