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
