//! Lists, hashes, sets and sorted sets: what is propagated, and who is served when.

use store_resp::{OwnedRequest, Reply};
use testkit::Random;

use crate::world::{World, bulk, made_up};

const TEMPLATES: &[&str] = &[
    "{L|R}PUSH {k}l {n} {n} {n}",
    "LPUSHX {k}l {n}",
    "{L|R}POP {k}l 2",
    "LINSERT {k}l BEFORE {n} x",
    "LSET {k}l 0 {n}",
    "LREM {k}l 1 {n}",
    "LTRIM {k}l 1 -1",
    "LMOVE {k}l {k}l LEFT RIGHT",
    "LMPOP 2 {k}l {k}l LEFT COUNT 2",
    "HSET {k}h {n} {n} {n} x",
    "HSETNX {k}h {n} x",
    "HDEL {k}h {n} {n} {n}",
    "HINCRBY {k}h {n} {n}",
    "HINCRBYFLOAT {k}h f 0.{n}",
    "SADD {k}s {n} {n} {n}",
    "SADD {k}s m{n} m{n} m{n}",
    "SREM {k}s {n} m{n}",
    "SPOP {k}s",
    "SPOP {k}s {n}",
    "SMOVE {k}s {k}s {n}",
    "S{UNION|INTER|DIFF}STORE {k}s {k}s {k}s",
    "ZADD {k}z {n} {n} 0.{n} m{n} {n} m{n}",
    "ZADD {k}z GT CH {n} {n}",
    "ZINCRBY {k}z 0.{n} {n}",
    "ZREM {k}z {n} m{n}",
    "ZPOP{MIN|MAX} {k}z",
    "ZMPOP 2 {k}z {k}z MAX COUNT 2",
    "ZREMRANGEBYRANK {k}z 1 2",
    "ZREMRANGEBYSCORE {k}z {n} 300",
    "Z{UNION|INTER|DIFF}STORE {k}z 2 {k}z {k}z",
    "ZRANGESTORE {k}z {k}z 0 20",
    "EXPIRE {k}{l|h|s|z} 1",
    "RENAME {k}l {k}l",
    "DEL {k}{l|h|s|z}",
];

/// What sessions of their own ask for: most of it waits until another session brings it.
const WAITING: &[&str] = &[
    "B{L|R}POP {k}l {k}l 0",
    "BLMOVE {k}l {k}l RIGHT LEFT 0",
    "BRPOPLPUSH {k}l {k}l 0.05",
    "BLMPOP 0 2 {k}l {k}l LEFT COUNT 2",
    "BZPOP{MIN|MAX} {k}z {k}z 0",
    "BZMPOP 0.05 1 {k}z MIN COUNT 3",
];

fn replay(original: &mut World, replica: &mut World) {
    for unit in original.take_units() {
        for (_, request) in unit.requests {
            replica.execute("main", request.as_request());
            let reply = replica.take_reply("main").expect("nothing propagated waits");
            assert!(!matches!(reply, Reply::Error(_)), "{request:?}: {reply:?}");
        }
    }
}

#[test]
fn replaying_what_is_propagated_gives_the_same_collections() {
    let seed = testkit::seed();
    let mut random = Random::seeded(seed);
    let mut original = World::seeded(seed);
    original.engine.set_feeding_file(true);
    let mut replica = World::seeded(seed ^ 1);
    for round in 0..6000 {
        if round % 5 == 0 {
            let name = (*random.choose(&["v", "w", "x", "y"])).to_owned();
            let line = made_up(&mut random, WAITING);
            original.send(&name, &line);
        }
        let line = made_up(&mut random, TEMPLATES);
        original.run(&line);
        if round % 11 == 0 {
            original.pass(random.in_range(0..30));
        }
        if round % 97 == 0 {
            original.close("w");
        }
        replay(&mut original, &mut replica);
    }
    assert_eq!(original.contents(), replica.contents());
}

fn words(world: &mut World) -> Vec<String> {
    let requests = world.take_units().into_iter().flat_map(|unit| unit.requests);
    let text = |(_, request): (usize, OwnedRequest)| {
        let words: Vec<String> = request
            .as_request()
            .args_from(0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        words.join(" ")
    };
    requests.map(text).collect()
}

#[test]
fn what_was_chosen_is_propagated_not_the_choosing() {
    let mut world = World::seeded(1);
    world.engine.set_feeding_file(true);
    world.run("SADD one m");
    world.run("SPOP one");
    world.run("SADD all 1 2");
    world.run("SPOP all 5");
    world.run("HINCRBYFLOAT h f 0.1");
    world.run("RPUSH l 1 2 3");
    world.run("BLPOP none l 0");
    world.run("LMPOP 2 none l RIGHT COUNT 9");
    world.run("ZADD z 1 a 2 b 3 c");
    world.run("BZPOPMAX z 0");
    world.run("BZMPOP 0 1 z MIN COUNT 9");
    assert_eq!(
        words(&mut world),
        [
            "SADD one m",
            "SREM one m",
            "SADD all 1 2",
            "DEL all",
            "HSET h f 0.1",
            "RPUSH l 1 2 3",
            "LPOP l",
            "RPOP l 2",
            "ZADD z 1 a 2 b 3 c",
            "ZPOPMAX z",
            "ZPOPMIN z 2",
        ]
    );
}

#[test]
fn a_push_and_the_pops_it_serves_are_one_unit() {
    let mut world = World::seeded(2);
    world.engine.set_feeding_file(true);
    world.send("first", "BLMOVE l t LEFT RIGHT 0");
    world.send("second", "BLPOP l t 0");
    world.run("RPUSH l 1 2");
    assert_eq!(world.take_reply("first"), Some(bulk("1")));
    assert_eq!(world.take_reply("second"), Some(Reply::Array(vec![bulk("l"), bulk("2")])));
    let units = world.take_units();
    assert_eq!(units.len(), 1);
    assert_eq!(units[0].requests.len(), 3);
}

#[test]
fn a_session_that_went_away_is_not_served() {
    let mut world = World::seeded(3);
    world.send("gone", "BLPOP l 0");
    world.send("there", "BLPOP l 0");
    world.close("gone");
    world.run("RPUSH l 1 2");
    assert_eq!(world.take_reply("there"), Some(Reply::Array(vec![bulk("l"), bulk("1")])));
    assert_eq!(world.run("LLEN l"), Reply::Integer(1));
}

#[test]
fn a_wait_ends_at_its_time_and_not_before() {
    let mut world = World::seeded(4);
    world.send("short", "BZPOPMIN z 0.5");
    world.send("long", "BZPOPMIN z 0");
    world.pass(499);
    assert_eq!(world.take_reply("short"), None);
    world.pass(1);
    assert_eq!(world.take_reply("short"), Some(Reply::NullArray));
    world.pass(1_000_000);
    assert_eq!(world.take_reply("long"), None);
    world.run("ZADD z 1 m");
    let served = Reply::Array(vec![bulk("z"), bulk("m"), bulk("1")]);
    assert_eq!(world.take_reply("long"), Some(served));
}

#[test]
fn a_request_for_more_picks_than_fit_is_refused() {
    let mut world = World::seeded(5);
    world.run("SADD s m");
    world.run("HSET h f v");
    world.run("ZADD z 1 m");
    let refusal = Reply::Error("ERR value is out of range".into());
    for command in ["SRANDMEMBER s", "HRANDFIELD h", "ZRANDMEMBER z"] {
        assert_eq!(world.run(&format!("{command} -9223372036854775807")), refusal, "{command}");
    }
}
