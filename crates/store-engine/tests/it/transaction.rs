//! Sessions that come and go in the middle of things.

use store_resp::Reply;

use crate::world::{World, bulk, ok};

#[test]
fn a_watched_key_that_ends_breaks_the_transaction() {
    let mut world = World::seeded(10);
    world.run("SET a 1 PX 100");
    world.run("WATCH a");
    world.run("MULTI");
    world.run("PING");
    world.now_ms += 200;
    assert_eq!(world.run("EXEC"), Reply::NullArray);
}

#[test]
fn a_session_that_goes_away_leaves_no_watch_behind() {
    let mut world = World::seeded(11);
    world.run_as("gone", "WATCH a b c");
    world.run_as("gone", "MULTI");
    world.close("gone");
    assert!(world.engine.keyspace().watches.is_empty());
    assert_eq!(world.run("SET a 1"), ok());
    assert_eq!(world.run_as("new", "GET a"), bulk("1"));
}

#[test]
fn the_same_seed_and_words_give_the_same_replies() {
    let replies = |seed| {
        let mut world = World::seeded(seed);
        (0..200).for_each(|number| drop(world.run(&format!("SET key:{number} 1"))));
        (0..50).map(|_| format!("{:?}", world.run("RANDOMKEY"))).collect::<Vec<_>>()
    };
    assert_eq!(replies(12), replies(12));
    assert_ne!(replies(12), replies(13));
}

/// To look through all watched keys for each that ended would take minutes here.
#[test]
fn many_watched_keys_that_end_at_once_are_looked_up_one_by_one() {
    const KEYS: usize = 60_000;
    let mut world = World::configured(15, &["--enable-debug-command", "yes"]);
    world.run("DEBUG SET-ACTIVE-EXPIRE 0");
    let names: Vec<String> = (0..KEYS).map(|at| format!("k{at}")).collect();
    world.run("SELECT 1");
    for name in &names {
        world.run(&format!("SET {name} 1 PX 10"));
    }
    world.run("SELECT 0");
    world.run(&format!("WATCH {}", names.join(" ")));
    world.pass(20);
    // None were there, and none are: ended ones count as none.
    world.run("SWAPDB 0 1");
    world.run("MULTI");
    world.run("PING");
    assert_eq!(world.run("EXEC"), Reply::Array(vec![Reply::Simple("PONG".into())]));
}
