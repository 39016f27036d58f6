//! What becomes of the effects of scripts.

use store_resp::{OwnedRequest, Reply};
use store_types::crc64::crc64;
use store_types::dump::{VERSION, Writer};

use crate::world::World;

fn eval(world: &mut World, code: &str) -> Reply {
    let request = OwnedRequest::from_args([&b"EVAL"[..], code.as_bytes(), b"0"]);
    world.execute("main", request.as_request());
    world.take_reply("main").unwrap()
}

#[test]
fn a_script_is_one_unit_of_what_it_did_and_replays_the_same() {
    let mut world = World::seeded(11);
    world.engine.set_feeding_file(true);
    eval(
        &mut world,
        "redis.call('sadd','s','a','b','c','d') redis.call('spop','s') redis.call('get','s2')
         redis.call('set','k','v','ex',100) redis.call('select',3)
         redis.call('set','t',redis.call('time')[2]) redis.pcall('incr','t','x')
         return redis.call('lpush','t','x')",
    );
    let units = world.take_units();
    assert_eq!(units.len(), 1);
    let words: Vec<String> = units[0]
        .requests
        .iter()
        .map(|(db, request)| format!("{db} {:?}", request.as_request()))
        .collect();
    assert_eq!(words.len(), 4, "{words:?}");
    assert!(words.iter().all(|words| !words.contains("EVAL") && !words.contains("spop")));
    assert!(words[3].starts_with("3 "), "{words:?}");

    let mut replica = World::seeded(12);
    for (db, request) in &units[0].requests {
        replica.run(&format!("SELECT {db}"));
        replica.execute("main", request.as_request());
        replica.take_reply("main");
    }
    assert_eq!(world.contents(), replica.contents());
}

#[test]
fn that_a_key_ended_is_propagated_though_the_script_keeps_its_writes() {
    let mut world = World::configured(14, &["--enable-debug-command", "yes"]);
    world.engine.set_feeding_file(true);
    world.run("SET gone 1 PX 10");
    world.run("SET read 1 PX 10");
    world.run("DEBUG SET-ACTIVE-EXPIRE 0");
    world.take_units();
    world.pass(20);
    world.take_units();
    eval(
        &mut world,
        "redis.set_repl(redis.REPL_NONE) redis.call('set','gone','2') redis.call('get','read')",
    );
    let requests: Vec<String> = world
        .take_units()
        .iter()
        .flat_map(|unit| &unit.requests)
        .map(|(_, request)| format!("{:?}", request.as_request()))
        .collect();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests[0].contains("gone") && requests[1].contains("read"), "{requests:?}");
}

#[test]
fn what_a_script_keeps_to_itself_is_not_propagated() {
    let mut world = World::seeded(13);
    world.engine.set_feeding_file(true);
    eval(
        &mut world,
        "redis.set_repl(redis.REPL_NONE) redis.call('set','a','1')
         redis.set_repl(redis.REPL_ALL) redis.call('set','b','1')",
    );
    let units = world.take_units();
    assert_eq!(units.len(), 1);
    assert_eq!(units[0].requests.len(), 1);
    eval(&mut world, "return redis.call('get','a')");
    assert!(world.take_units().is_empty());
}

#[test]
fn a_script_of_many_calls_sees_one_moment() {
    let mut world = World::seeded(14);
    let code = "local before = redis.call('time') for i = 1, 1000 do redis.call('incr', 'n') end
                local after = redis.call('time')
                return before[1] == after[1] and before[2] == after[2]";
    assert_eq!(eval(&mut world, code), Reply::Integer(1));
}

/// FUNCTION RESTORE of these libraries.
fn restore(world: &mut World, codes: &[&str], policy: &str) -> Reply {
    let mut payload = Vec::new();
    for code in codes {
        payload.push(245);
        Writer::new(&mut payload, None).string(code.as_bytes());
    }
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    let words = [&b"FUNCTION"[..], b"RESTORE", &payload, policy.as_bytes()];
    world.execute("main", OwnedRequest::from_args(words).as_request());
    world.take_reply("main").unwrap()
}

fn library(name: &str, function: &str, answer: u32) -> String {
    format!(
        "#!lua name={name}\n\
         redis.register_function('{function}', function() return {answer} end)"
    )
}

#[test]
fn libraries_are_restored_all_or_none() {
    let mut world = World::seeded(15);
    let (a, b) = (library("a", "f", 1), library("b", "g", 2));
    assert_eq!(restore(&mut world, &[&a, &b], "APPEND"), Reply::Simple("OK".into()));
    for (codes, policy, text) in [
        (vec![library("c", "h", 3), a.clone()], "APPEND", "ERR Library 'a' already exists"),
        (
            vec![library("c", "h", 3), library("d", "F", 3)],
            "APPEND",
            "ERR Function F already exists",
        ),
        (vec![library("c", "f", 3)], "REPLACE", "ERR Function f already exists"),
        (
            vec![library("a", "f", 3), library("a", "f", 3)],
            "REPLACE",
            "ERR Library 'a' already exists",
        ),
        (
            vec![library("c", "h", 3), library("d", "h", 3)],
            "FLUSH",
            "ERR Function h already exists",
        ),
        (
            vec![library("c", "h", 3), "#!lua name=d\nnosuch()".into()],
            "FLUSH",
            "ERR Error registering",
        ),
    ] {
        let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
        let Reply::Error(error) = restore(&mut world, &codes, policy) else { panic!("{codes:?}") };
        assert!(error.starts_with(text), "{error}");
        assert_eq!(world.run("FCALL f 0"), Reply::Integer(1), "{codes:?}");
        assert_eq!(world.run("FCALL g 0"), Reply::Integer(2), "{codes:?}");
        assert!(matches!(world.run("FCALL h 0"), Reply::Error(_)), "{codes:?}");
    }
    // What was one library's may become another's, when both are replaced.
    let (a, b) = (library("a", "g", 5), library("b", "f", 6));
    assert_eq!(restore(&mut world, &[&a, &b], "REPLACE"), Reply::Simple("OK".into()));
    assert_eq!(world.run("FCALL g 0"), Reply::Integer(5));
    assert_eq!(world.run("FCALL f 0"), Reply::Integer(6));
    assert_eq!(restore(&mut world, &[&library("z", "f", 7)], "FLUSH"), Reply::Simple("OK".into()));
    assert_eq!(world.run("FCALL f 0"), Reply::Integer(7));
    assert!(matches!(world.run("FCALL g 0"), Reply::Error(_)));
}

#[test]
fn the_libraries_of_a_payload_have_one_time_together() {
    let mut world = World::seeded(16);
    let slow = |name: &str| {
        format!(
            "#!lua name={name}\nfor i = 1, 3e7 do end redis.register_function('{name}', function() end)"
        )
    };
    let codes: Vec<String> = (0..20).map(|number| slow(&format!("l{number}"))).collect();
    let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
    assert_eq!(restore(&mut world, &codes[..1], "APPEND"), Reply::Simple("OK".into()));
    let Reply::Error(error) = restore(&mut world, &codes, "REPLACE") else { panic!("it took all") };
    assert!(error.contains("FUNCTION LOAD timeout"), "{error}");
}

/// A minute and more where each is looked for among all.
#[test]
fn many_functions_are_registered_one_as_quickly_as_the_other() {
    let mut world = World::seeded(17);
    let code = "#!lua name=a\nfor i = 1, 45000 do \
                redis.register_function('f' .. i, function() return i end) end";
    assert_eq!(restore(&mut world, &[code], "APPEND"), Reply::Simple("OK".into()));
    assert_eq!(world.run("FCALL F45000 0"), Reply::Integer(45_000));
}
