//! What ends by itself while writes are held back, as a failover does it: whoever takes over would
//! not have it.

use store_engine::{MigrateRequest, ServerRequest, SessionId};
use store_resp::slot::slot_of;
use store_resp::{OwnedRequest, Reply};

use crate::world::{World, bulk, ok};

/// Held back, and in force: every one of them is to be without effect until the pause ends.
fn hold(world: &mut World) {
    world.take_units();
    world.engine.hold_writes(true);
}

fn assert_unchanged(world: &mut World) {
    world.pass(100);
    assert_eq!(world.take_units().len(), 0, "nothing is propagated");
}

/// A server in which the session `mover` sends the key `k` away, when something has happened.
fn migrating(before: impl FnOnce(&mut World)) -> (World, SessionId, MigrateRequest) {
    let mut world = World::seeded(5);
    world.engine.set_feeding_file(true);
    world.run("SET k old");
    before(&mut world);
    world.send("mover", "MIGRATE 127.0.0.1 7000 k 0 5000");
    let requests = std::mem::take(&mut world.engine.effects().requests);
    let Some(ServerRequest::Migrate(id, request)) = requests.into_iter().next() else {
        panic!("nothing is sent away")
    };
    (world, id, *request)
}

/// The same with the value of a RESTORE decoded.
fn restoring() -> (World, impl FnOnce(&mut World)) {
    let mut world = World::seeded(6);
    world.engine.set_feeding_file(true);
    world.run("CONFIG SET rdbcompression no");
    let value = vec![b'x'; 2_000_000];
    let request = OwnedRequest::from_args([&b"SET"[..], b"big", &value]);
    world.execute("main", request.as_request());
    assert_eq!(world.take_reply("main"), Some(ok()));
    let Reply::Bulk(payload) = world.run("DUMP big") else { panic!("no payload") };
    let request = OwnedRequest::from_args([&b"RESTORE"[..], b"copy", b"0", &payload]);
    world.execute("restorer", request.as_request());
    let requests = std::mem::take(&mut world.engine.effects().requests);
    let Some(ServerRequest::Decode(id, request)) = requests.into_iter().last() else {
        panic!("nothing is decoded elsewhere")
    };
    let finish = move |world: &mut World| {
        let now_us = world.now_ms * 1000;
        let value = request.decode();
        drop(world.engine.finish_restore(now_us, id, request.number, value));
    };
    (world, finish)
}

#[test]
fn a_value_that_is_decoded_in_a_pause_is_restored_behind_it() {
    let (mut world, finish) = restoring();
    hold(&mut world);
    finish(&mut world);
    assert_unchanged(&mut world);
    assert_eq!(world.take_reply("restorer"), None, "nothing is acknowledged");
    world.engine.hold_writes(false);
    world.pass(1);
    assert_eq!(world.take_reply("restorer"), Some(ok()));
    assert_eq!(world.run("STRLEN copy"), Reply::Integer(2_000_000));
}

#[test]
fn a_value_that_is_decoded_when_another_server_has_taken_over_is_refused() {
    for is_held in [true, false] {
        let (mut world, finish) = restoring();
        if is_held {
            hold(&mut world);
            finish(&mut world);
            world.engine.become_replica("127.0.0.1", 7000);
            world.engine.hold_writes(false);
            world.pass(1);
        } else {
            world.engine.become_replica("127.0.0.1", 7000);
            finish(&mut world);
        }
        let said = world.take_reply("restorer").unwrap();
        assert!(matches!(&said, Reply::Error(text) if text.contains("UNBLOCKED")), "{said:?}");
        assert_eq!(world.run("EXISTS copy"), Reply::Integer(0));
    }
}

#[test]
fn a_key_that_has_moved_in_a_pause_goes_behind_it() {
    let (mut world, id, request) = migrating(|_| {});
    hold(&mut world);
    let (now_us, number) = (world.now_ms * 1000, request.number);
    world.engine.finish_moved(now_us, (id, number), request.db, &request.order.keys);
    world.engine.finish_migration(id, number, b"+OK\r\n");
    assert_unchanged(&mut world);
    assert_eq!(world.run("GET k"), bulk("old"));
    assert_eq!(world.take_reply("mover"), None);
    world.engine.hold_writes(false);
    world.pass(1);
    assert_eq!(world.take_reply("mover"), Some(ok()));
    assert_eq!(world.run("EXISTS k"), Reply::Integer(0));
    assert_eq!(world.take_units().len(), 1);
}

#[test]
fn a_key_that_has_moved_in_a_pause_stays_if_another_server_takes_over() {
    let (mut world, id, request) = migrating(|_| {});
    hold(&mut world);
    let (now_us, number) = (world.now_ms * 1000, request.number);
    world.engine.finish_moved(now_us, (id, number), request.db, &request.order.keys);
    world.engine.finish_migration(id, number, b"+OK\r\n");
    world.engine.become_replica("127.0.0.1", 7000);
    world.engine.hold_writes(false);
    assert_unchanged(&mut world);
    let said = world.take_reply("mover").unwrap();
    assert!(matches!(&said, Reply::Error(text) if text.contains("IOERR")), "{said:?}");
    assert_eq!(world.run("GET k"), bulk("old"));
    world.engine.become_primary();
    assert_eq!(world.run("SET k new"), ok(), "it is not on its way any more");
}

#[test]
fn nobody_is_served_in_a_pause_because_a_key_stays() {
    let (mut world, _, request) = migrating(|world| {
        world.send("waiter", "BLMOVE source k LEFT RIGHT 0");
    });
    world.run("RPUSH source x");
    assert_eq!(world.take_reply("waiter"), None, "its target is on its way");
    hold(&mut world);
    world.engine.keep_key(request.db, b"k");
    assert_unchanged(&mut world);
    assert_eq!(world.take_reply("waiter"), None);
    world.engine.hold_writes(false);
    world.pass(1);
    let said = world.take_reply("waiter").unwrap();
    assert!(matches!(&said, Reply::Error(text) if text.starts_with("WRONGTYPE")), "{said:?}");
}

#[test]
fn a_slot_is_emptied_behind_a_pause() {
    let mut world = World::seeded(7);
    world.engine.lay_out_by_slot();
    world.engine.set_feeding_file(true);
    for number in 0..3000 {
        world.run(&format!("SET {{gone}}:{number} value"));
    }
    let gone = slot_of(b"gone");
    world.engine.empty_slot(world.now_ms * 1000, gone);
    hold(&mut world);
    assert_unchanged(&mut world);
    world.run("CLIENT UNPAUSE");
    world.engine.hold_writes(false);
    world.pass(1);
    assert_eq!(world.engine.keyspace().slot_len(gone), 0);
    // And when it goes in the pause.
    world.run("SET {gone}:again value");
    hold(&mut world);
    world.engine.empty_slot(world.now_ms * 1000, gone);
    assert_unchanged(&mut world);
    world.engine.hold_writes(false);
    world.pass(1);
    assert_eq!(world.engine.keyspace().slot_len(gone), 0);
}

/// Whoever reads TRYAGAIN runs the whole script again.
#[test]
fn a_script_that_has_written_is_not_told_to_try_again() {
    let (mut world, ..) = migrating(|_| {});
    let append = "return redis.call('append', 'k', 'x')";
    for (before, code) in [("", "TRYAGAIN "), ("redis.call('incr', 'n') ", "ERR ")] {
        let script = format!("{before}{append}");
        let request = OwnedRequest::from_args([&b"EVAL"[..], script.as_bytes(), b"0"]);
        world.execute("main", request.as_request());
        let said = world.take_reply("main").unwrap();
        assert!(matches!(&said, Reply::Error(text) if text.starts_with(code)), "{said:?}");
    }
}
