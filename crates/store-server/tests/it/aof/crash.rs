//! The machine loses power: the real server on a simulated disk, by seed.

use std::path::Path;

use store_resp::Reply;
use store_server::{Fault, Server, SimulatedDisk};
use testkit::Random;

use super::{connect, persistent};

/// Crashes per test; `CRASH_ROUNDS` asks for so many times as many.
fn rounds() -> u64 {
    let times: Option<u64> = std::env::var("CRASH_ROUNDS").ok().and_then(|text| text.parse().ok());
    40 * times.unwrap_or(1)
}

fn start(disk: &SimulatedDisk, policy: &str) -> Result<Server, String> {
    let builder = persistent(Path::new("data")).disk(disk.clone());
    let builder =
        builder.setting("appendfsync", policy).setting("auto-aof-rewrite-percentage", "0");
    builder.start().map_err(|error| error.to_string())
}

fn number(reply: &Reply) -> u64 {
    match reply {
        Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
        _ => 0,
    }
}

/// Lives and crashes of one disk with `always`. Returns what was promised and is not there, or
/// why the files cannot be loaded.
fn broken_promise(seed: u64, fault: Option<Fault>) -> Option<String> {
    let mut random = Random::seeded(seed);
    let mut disk = SimulatedDisk::seeded(seed);
    let mut promised = 0;
    for life in 0..6 {
        let server = match start(&disk, "always") {
            Ok(server) => server,
            Err(error) => return Some(format!("seed {seed}, life {life}: {error}")),
        };
        disk.set_fault(fault);
        let mut connection = connect(&server);
        let found = number(&connection.words("GET token"));
        if found < promised {
            return Some(format!("seed {seed}, life {life}: {promised} promised, {found} there"));
        }
        promised = promised.max(found);
        for _ in 0..random.in_range(1..30) {
            if random.in_range(0..12) == 0 {
                connection.words("BGREWRITEAOF");
            }
            // Two keys in one transaction: both or none.
            let next = promised + 1;
            let script = format!(
                "return{{redis.call('SET','token',{next}),redis.call('SET','twin',{next})}}"
            );
            let reply = connection.ask(&["EVAL", &script, "0"]);
            if matches!(reply, Some(Reply::Array(_))) {
                promised = next;
            }
        }
        let twins = [connection.words("GET token"), connection.words("GET twin")];
        assert_eq!(twins[0], twins[1]);
        // One more in flight, whose reply nobody waits for.
        connection.send(&["SET", "other", &"x".repeat(random.in_range(0..3000) as usize)]);
        disk = disk.crash();
        drop(server);
    }
    None
}

#[test]
fn with_always_nothing_acknowledged_is_lost_and_the_files_always_load() {
    let seed = testkit::seed();
    for round in 0..rounds() {
        let broken = broken_promise(seed.wrapping_add(round), None);
        assert!(broken.is_none(), "{}", broken.unwrap());
    }
}

#[test]
fn a_server_that_does_not_sync_is_caught() {
    let seed = testkit::seed();
    let mut seeds = (0..rounds()).map(|round| seed.wrapping_add(round));
    let caught = seeds.any(|seed| broken_promise(seed, Some(Fault::SyncsLie)).is_some());
    assert!(caught, "syncs that do nothing went unnoticed from seed {seed} on");
}

#[test]
fn half_a_transaction_is_never_loaded() {
    let seed = testkit::seed();
    for round in 0..rounds() {
        let seed = seed.wrapping_add(round);
        let disk = SimulatedDisk::seeded(seed);
        let server = start(&disk, "no").unwrap();
        let mut connection = connect(&server);
        for number in 1..=20 {
            let script = format!(
                "redis.call('SET','token',{number}) return redis.call('SET','twin',{number})"
            );
            connection.ask(&["EVAL", &script, "0"]).unwrap();
        }
        let disk = disk.crash();
        drop(server);
        let server = start(&disk, "no").unwrap();
        let mut connection = connect(&server);
        let twins = [connection.words("GET token"), connection.words("GET twin")];
        assert_eq!(twins[0], twins[1], "seed {seed}");
    }
}
