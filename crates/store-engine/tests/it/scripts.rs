//! What becomes of the effects of scripts.

use store_resp::{OwnedRequest, Reply};

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
