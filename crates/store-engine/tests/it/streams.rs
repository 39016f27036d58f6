//! Streams and what else depends on time: what is propagated, and who is served when.

use store_resp::Reply;
use testkit::Random;

use crate::world::{World, bulk, made_up, ok};

const TEMPLATES: &[&str] = &[
    "XADD {k}x * f {n}",
    "XADD {k}x {n}00-* f {n}",
    "XADD {k}x MAXLEN ~ 5 LIMIT {n} * f {n} g {n}",
    "XADD {k}x NOMKSTREAM MINID ~ {n}00 * f {n}",
    "XTRIM {k}x MAXLEN ~ {n} LIMIT 100",
    "XTRIM {k}x MAXLEN {n}",
    "XDEL {k}x {n}00-0 {n}00-1",
    "XSETID {k}x 9{n}00000-0 ENTRIESADDED {n}000",
    "XGROUP CREATE {k}x {g|h} 0 MKSTREAM",
    "XGROUP CREATE {k}x {g|h} $ ENTRIESREAD {n}",
    "XGROUP SETID {k}x {g|h} 0",
    "XGROUP DESTROY {k}x h",
    "XGROUP CREATECONSUMER {k}x g {ada|bob}",
    "XGROUP DELCONSUMER {k}x g {ada|bob}",
    "XREADGROUP GROUP {g|h} {ada|bob} COUNT 3 STREAMS {k}x >",
    "XREADGROUP GROUP {g|h} {ada|bob} STREAMS {k}x {k}x > 0",
    "XREADGROUP GROUP {g|h} {ada|cid} NOACK COUNT {n} STREAMS {k}x >",
    "XACK {k}x g {n}00-0 {n}00-1",
    "XCLAIM {k}x {g|h} {ada|dan} 0 {n}00-0 {n}00-1 FORCE IDLE {n}",
    "XCLAIM {k}x {g|h} {ada|bob} {n} {n}00-0 LASTID {n}00-5",
    "XAUTOCLAIM {k}x {g|h} {ada|eve} {n} 0 COUNT 5",
    "PFADD {k}p {n} {n} {n}",
    "PFCOUNT {k}p",
    "PFMERGE {k}p {k}p {k}p",
    "PFDEBUG TODENSE {k}p",
    "GEOADD {k}z CH {n}.5 {n}.25 m{n}",
    "GEOSEARCHSTORE {k}z {k}z FROMLONLAT 10 10 BYRADIUS 900 km COUNT {n} ANY",
    "GEORADIUS {k}z 10 10 900 km STOREDIST {k}z",
    "SADD {k}s {n} m{n}",
    "SORT {k}s BY nosort STORE {k}l",
    "SORT {k}s ALPHA GET {k}p STORE {k}l",
    "DEL {k}{x|x|p|z|s|l}",
];

const WAITING: &[&str] = &[
    "XREADGROUP GROUP {g|h} {ada|bob} COUNT 2 BLOCK 0 STREAMS {k}x {k}x > >",
    "XREADGROUP GROUP {g|h} {bob|fay} NOACK BLOCK 20 STREAMS {k}x >",
    "XREAD BLOCK 0 STREAMS {k}x {k}x $ $",
];

#[test]
fn replaying_what_is_propagated_gives_the_same_streams() {
    let seed = testkit::seed();
    let mut random = Random::seeded(seed);
    // Few entries to a node, so that cutting roughly means something.
    let settings = ["--stream-node-max-entries", "3"];
    let mut original = World::configured(seed, &settings);
    original.engine.set_feeding_file(true);
    let mut replica = World::configured(seed ^ 1, &["--stream-node-max-entries", "7"]);
    let mut propagated = 0;
    for _ in 0..4000 {
        let line = made_up(&mut random, TEMPLATES);
        original.run(&line);
        original.send("first", &made_up(&mut random, WAITING));
        original.send("second", &made_up(&mut random, WAITING));
        original.pass(random.in_range(0..50));
        replica.now_ms = original.now_ms;
        for unit in original.take_units() {
            for (_, request) in unit.requests {
                propagated += 1;
                replica.execute("main", request.as_request());
                let reply = replica.take_reply("main").unwrap();
                let failed = matches!(&reply, Reply::Error(_));
                assert!(!failed, "seed {seed}: {line} → {request:?}: {reply:?}");
            }
        }
    }
    assert!(propagated > 1000, "only {propagated} requests");
    for name in ["main", "first", "second"] {
        original.close(name);
    }
    assert_eq!(original.contents(), replica.contents(), "seed {seed}");
}

fn propagated(world: &mut World) -> Vec<Vec<String>> {
    let words = |unit: store_engine::Unit| {
        let text = |(_, request): (usize, store_resp::OwnedRequest)| {
            let words = request.as_request();
            let words = words.args_from(0).map(|word| String::from_utf8_lossy(word).into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        unit.requests.into_iter().map(text).collect()
    };
    world.take_units().into_iter().map(words).collect()
}

#[test]
fn what_was_chosen_is_propagated_as_chosen() {
    let mut world = World::configured(1, &["--stream-node-max-entries", "2"]);
    world.engine.set_feeding_file(true);
    world.run("XADD s * a 1");
    world.run("XADD s 2000000-* a 2");
    world.run("XADD s NOMKSTREAM MAXLEN ~ 1 LIMIT 10 * a 3");
    world.run("XTRIM s MAXLEN ~ 1 LIMIT 10");
    world.run("XTRIM s MINID 5000000");
    world.run("GEOADD g NX CH 13.361389 38.115556 Palermo");
    world.run("RESTORE none 100 x");
    assert_eq!(
        propagated(&mut world),
        [
            vec!["XADD s 1000000-0 a 1"],
            vec!["XADD s 2000000-0 a 2"],
            vec!["XADD s NOMKSTREAM MAXLEN = 1 2000000-1 a 3"],
            vec!["XTRIM s MINID 5000000"],
            vec!["ZADD g NX CH 3479099956230698 Palermo"],
        ]
    );
}

#[test]
fn reading_in_a_group_is_propagated_as_claims_and_a_move() {
    let mut world = World::seeded(2);
    world.run("XADD s 1-1 a 1");
    world.run("XADD s 1-2 a 2");
    world.run("XGROUP CREATE s g 0");
    world.engine.set_feeding_file(true);
    world.run("XREADGROUP GROUP g ada COUNT 1 STREAMS s >");
    world.run("XREADGROUP GROUP g ada NOACK STREAMS s >");
    world.run("XREADGROUP GROUP g ada STREAMS s >");
    let claim = "XCLAIM s g ada 0 1-1 TIME 1000000 RETRYCOUNT 1 FORCE JUSTID LASTID 1-1";
    assert_eq!(
        propagated(&mut world),
        [
            vec!["XGROUP CREATECONSUMER s g ada", claim, "XGROUP SETID s g 1-1 ENTRIESREAD 1"],
            vec!["XGROUP SETID s g 1-2 ENTRIESREAD 2"],
        ]
    );
}

#[test]
fn who_waits_in_a_group_is_served_in_order_and_within_the_unit() {
    let mut world = World::seeded(3);
    world.run("XGROUP CREATE s g $ MKSTREAM");
    world.engine.set_feeding_file(true);
    for name in ["first", "second"] {
        world.send(name, &format!("XREADGROUP GROUP g {name} BLOCK 0 STREAMS s >"));
    }
    world.run("XADD s 1-1 a 1");
    let entry = Reply::Array(vec![bulk("1-1"), Reply::Array(vec![bulk("a"), bulk("1")])]);
    let stream = Reply::Array(vec![bulk("s"), Reply::Array(vec![entry])]);
    assert_eq!(world.take_reply("first"), Some(Reply::Array(vec![stream])));
    assert_eq!(world.take_reply("second"), None);
    let units = propagated(&mut world);
    assert_eq!(units.len(), 1);
    assert_eq!(units[0][0], "XADD s 1-1 a 1");
    assert!(units[0][2].starts_with("XCLAIM s g first 0 1-1 "), "{units:?}");

    world.run("DEL s");
    let gone = Reply::Error("UNBLOCKED the stream key no longer exists".into());
    assert_eq!(world.take_reply("second"), Some(gone));
}

#[test]
fn the_last_id_is_the_one_of_when_waiting_began() {
    let mut world = World::seeded(4);
    world.run("XADD s 5-0 a 1");
    world.send("reader", "XREAD BLOCK 100 STREAMS s $");
    world.run("XDEL s 5-0");
    assert_eq!(world.take_reply("reader"), None);
    world.pass(99);
    assert_eq!(world.take_reply("reader"), None);
    world.pass(1);
    assert_eq!(world.take_reply("reader"), Some(Reply::NullArray));
    world.send("reader", "XREAD BLOCK 100 STREAMS s $");
    world.run("XADD s 5-1 a 1");
    assert!(matches!(world.take_reply("reader"), Some(Reply::Array(_))));
}

#[test]
fn a_stream_that_ends_tells_who_waits_in_its_groups() {
    let mut world = World::seeded(5);
    world.run("XGROUP CREATE s g $ MKSTREAM");
    world.run("PEXPIRE s 50");
    world.send("reader", "XREADGROUP GROUP g ada BLOCK 0 STREAMS s >");
    world.pass(200);
    let gone = Reply::Error("UNBLOCKED the stream key no longer exists".into());
    assert_eq!(world.take_reply("reader"), Some(gone));
}

#[test]
fn a_closed_session_leaves_the_queues() {
    let mut world = World::seeded(6);
    world.run("XGROUP CREATE s g $ MKSTREAM");
    world.send("gone", "XREADGROUP GROUP g ada BLOCK 0 STREAMS s s >  >");
    world.send("gone", "XREADGROUP GROUP g ada BLOCK 0 STREAMS s >");
    world.close("gone");
    world.run("XADD s 1-1 a 1");
    assert_eq!(world.run("DEL s"), Reply::Integer(1));
    assert_eq!(world.run("PFSELFTEST"), ok());
}
