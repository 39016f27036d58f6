//! I4 and I5: every change is one unit, and replaying the units gives the same keys.

use store_resp::Reply;
use testkit::Random;

use crate::world::{World, ok};

const TEMPLATES: &[&str] = &[
    "SET {k} {n}",
    "SET {k} {n} NX GET",
    "SET {k} {n} PX {n}0",
    "SET {k} {n} KEEPTTL XX",
    "SETEX {k} {n} v",
    "GETSET {k} x",
    "GETDEL {k}",
    "GETEX {k} PX {n}",
    "GETEX {k} PERSIST",
    "APPEND {k} x",
    "INCRBY {k} {n}",
    "INCRBYFLOAT {k} 0.{n}",
    "SETRANGE {k} 3 y",
    "SETBIT {k} {n} 1",
    "BITFIELD {k} SET u8 {n} 7",
    "BITOP XOR {k} {k} {k}",
    "MSET {k} 1 {k} 2",
    "MSETNX {k} 1 {k} 2",
    "DEL {k} {k}",
    "EXPIRE {k} {n}",
    "PEXPIRE {k} {n} GT",
    "EXPIREAT {k} {n}",
    "PERSIST {k}",
    "RENAME {k} {k}",
    "COPY {k} {k} DB 1 REPLACE",
    "MOVE {k} 1",
    "SELECT 0",
    "SELECT 1",
    "SWAPDB 0 1",
    "MULTI",
    "EXEC",
    "FLUSHDB",
];

fn made_up(random: &mut Random) -> String {
    let mut line = (*random.choose(TEMPLATES)).to_owned();
    while line.contains("{k}") {
        line = line.replacen("{k}", random.choose::<&str>(&["a", "b", "c", "d"]), 1);
    }
    line.replace("{n}", &random.in_range(1..300).to_string())
}

#[test]
fn replaying_what_is_propagated_gives_the_same_keys() {
    let seed = testkit::seed();
    let mut random = Random::seeded(seed);
    let mut original = World::seeded(seed);
    original.engine.set_feeding_file(true);
    let mut replica = World::seeded(seed ^ 1);
    for round in 0..3000 {
        let line = made_up(&mut random);
        original.run(&line);
        if round % 7 == 0 {
            original.pass(random.in_range(0..50));
        }
        for unit in original.take_units() {
            for (db, request) in unit.requests {
                replica.run(&format!("SELECT {db}"));
                // Long ago on the replica: only the original decides when a key ends.
                replica.execute("main", request.as_request());
                let reply = replica.take_reply("main").unwrap();
                let failed = matches!(&reply, Reply::Error(_));
                assert!(!failed, "{line} → {request:?}: {reply:?}");
            }
        }
    }
    // Long enough for a look for keys that ended, whenever the last one was.
    original.pass(200);
    for unit in original.take_units() {
        for (db, request) in unit.requests {
            replica.run(&format!("SELECT {db}"));
            replica.execute("main", request.as_request());
            replica.take_reply("main");
        }
    }
    original.close("main");
    assert_eq!(original.contents(), replica.contents());
}

#[test]
fn a_transaction_is_one_unit_and_a_read_is_none() {
    let mut world = World::seeded(8);
    world.engine.set_feeding_file(true);
    world.run("GET a");
    world.run("EXPIRE none 10");
    assert!(world.take_units().is_empty());
    world.run("MULTI");
    world.run("SET a 1");
    world.run("GET a");
    world.run("INCR a");
    world.run("EXEC");
    let units = world.take_units();
    assert_eq!(units.len(), 1);
    let words: Vec<String> = units[0]
        .requests
        .iter()
        .map(|(_, request)| format!("{:?}", request.as_request()))
        .collect();
    assert_eq!(words, [r#"["SET", "a", "1"]"#, r#"["INCR", "a"]"#]);
}

#[test]
fn times_are_propagated_as_moments() {
    let mut world = World::seeded(9);
    world.engine.set_feeding_file(true);
    assert_eq!(world.run("SET a 1 EX 100"), ok());
    world.run("EXPIRE a 50");
    world.run("EXPIRE a -1");
    let units = world.take_units();
    let words: Vec<String> =
        units.iter().map(|unit| format!("{:?}", unit.requests[0].1.as_request())).collect();
    assert_eq!(
        words,
        [
            r#"["SET", "a", "1", "PXAT", "1100000"]"#,
            r#"["PEXPIREAT", "a", "1050000"]"#,
            r#"["DEL", "a"]"#
        ]
    );
}
