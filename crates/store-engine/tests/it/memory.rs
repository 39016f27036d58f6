//! What keys cost.

use store_resp::OwnedRequest;

use crate::world::World;

/// Bytes per key with 16-byte keys and 8-byte values, the most over 0.6 to 1.2 million keys.
fn worst_bytes_per_key(expiry: &[&[u8]]) -> f64 {
    let mut world = World::seeded(6);
    let before = world.engine.memory();
    let mut worst: f64 = 0.0;
    let mut next_look = 600_000;
    for number in 0..1_200_000 {
        let (key, value) = (format!("key:{number:012}"), format!("v{number:07}"));
        let mut words: Vec<&[u8]> = vec![b"SET", key.as_bytes(), value.as_bytes()];
        words.extend(expiry);
        world.execute("main", OwnedRequest::from_args(words).as_request());
        world.take_reply("main");
        if number + 1 == next_look {
            next_look += next_look / 10;
            let used = world.engine.memory() - before;
            worst = worst.max(used as f64 / f64::from(number + 1));
        }
    }
    worst
}

#[test]
fn a_small_key_stays_within_60_bytes_and_76_with_an_end() {
    let plain = worst_bytes_per_key(&[]);
    assert!(plain <= 60.0, "{plain:.1} bytes per key");
    let ending = worst_bytes_per_key(&[b"PX", b"100000000"]);
    assert!(ending <= 76.0, "{ending:.1} bytes per key that ends");
    println!("{plain:.1} and {ending:.1} bytes per key");
}

#[test]
fn memory_comes_back_when_keys_go() {
    let mut world = World::seeded(7);
    world.run("SET warm up");
    let before = world.engine.memory();
    for number in 0..20_000 {
        world.run(&format!("SET key:{number} {}", "x".repeat(number % 6000)));
        world.run(&format!("APPEND key:{number} {}", "y".repeat(number % 100)));
        world.run(&format!("EXPIRE key:{number} 100"));
    }
    assert!(world.engine.memory() > before + 50_000_000);
    for number in 0..20_000 {
        world.run(&format!("DEL key:{number}"));
    }
    let left = world.engine.memory() - before;
    assert!(left < 40_000, "{left} bytes left");
}

/// A limit is none if a value may grow unseen.
#[test]
fn every_element_counts_at_once_however_large_the_value_is() {
    let text = "x".repeat(100_000);
    for line in ["RPUSH big {n}{text}", "HSET big {n} {text}", "SADD big {n}{text}"] {
        let mut world = World::seeded(8);
        let before = world.engine.memory();
        for number in 1..=100 {
            let line = line.replace("{n}", &number.to_string()).replace("{text}", &text);
            world.run(&line);
            let used = world.engine.memory() - before;
            assert!((number * 100_000..number * 130_000 + 10_000).contains(&used), "{used}");
        }
    }
}

/// What a session holds is added up as it comes and goes, since it is asked for on every turn.
#[test]
fn what_a_session_holds_counts_until_it_is_given_back() {
    let held = |world: &mut World| {
        let id = world.session("main");
        let session = world.engine.session_mut(id).unwrap();
        session.output.clear();
        session.memory()
    };
    let [long, other] = ["a", "b"].map(|letter| letter.repeat(10_000));
    for (begin, again, ends) in [
        ("WATCH", "", &["UNWATCH"][..]),
        ("WATCH", "", &["MULTI", "DISCARD"]),
        ("SUBSCRIBE", "", &["UNSUBSCRIBE"]),
        ("SUBSCRIBE", "PSUBSCRIBE", &["UNSUBSCRIBE", "PUNSUBSCRIBE"]),
        ("SSUBSCRIBE", "SUBSCRIBE", &["RESET"]),
        ("CLIENT TRACKING on BCAST PREFIX", "", &["CLIENT TRACKING off"]),
        ("MULTI", "GET", &["DISCARD"]),
    ] {
        let mut world = World::seeded(8);
        world.run("PING");
        let before = held(&mut world);
        let argument = if begin == "MULTI" { String::new() } else { format!(" {long}") };
        world.send("main", &format!("{begin}{argument}"));
        let once = held(&mut world);
        world.send("main", &format!("{begin}{argument}"));
        assert_eq!(held(&mut world), once, "{begin} twice");
        if !again.is_empty() {
            world.send("main", &format!("{again} {other}"));
        }
        let least = if argument.is_empty() { 10_000 } else { 20_000 };
        assert!(held(&mut world) > before + least, "{begin}");
        ends.iter().for_each(|end| world.send("main", end));
        assert_eq!(held(&mut world), before, "{begin}, {ends:?}");
    }
}
