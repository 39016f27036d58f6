//! The keys that are checked are the keys that are used.

use store_resp::OwnedRequest;
use testkit::Random;

use super::*;
use crate::command::{Group, flag};
use crate::commands::made_up_arguments;
use crate::config::Config;
use crate::engine::Engine;
use crate::platform::NoPlatform;
use crate::session::Origin;
use crate::state::Identity;

const NOW_US: u64 = 1_000_000_000;
/// Requests made up for each command whose keys always stand at the same places.
const TRIES: usize = 200;
/// And for each of those whose keys depend on other arguments.
const TRIES_MOVABLE: usize = 5000;

struct World {
    engine: Engine,
}

impl World {
    fn filled(seed: u64) -> Self {
        let platform = Box::new(NoPlatform);
        let engine = Engine::new(Config::default(), Identity::default(), seed, platform);
        let mut world = Self { engine };
        world.fill();
        world
    }

    fn fill(&mut self) {
        let lines = [
            "FLUSHALL",
            "SET string 5",
            "RPUSH list 1 2 3",
            "HSET hash 1 2 f 3",
            "SADD set 1 2 3",
            "ZADD zset 1 1 2 2",
            "GEOADD geo 13.5 38 2 14 38 m",
            "XADD stream 1-1 f v",
            "XGROUP CREATE stream g 0",
            "RPUSH STORE 1",
            "ZADD STREAMS 1 m",
            "XADD KEYS 1-1 f v",
            "XGROUP CREATE KEYS g 0",
        ];
        for line in lines {
            self.run(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        }
    }

    /// The keys that the request looked up or set.
    fn run(&mut self, words: &[String]) -> Vec<Vec<u8>> {
        let session = self.engine.open_session(NOW_US, Origin::default());
        self.engine.keyspace_mut().looked_up.clear();
        let request = OwnedRequest::from_args(words.iter().map(String::as_bytes));
        self.engine.execute(NOW_US, session, request.as_request());
        self.engine.finish(None, 0);
        let touched = std::mem::take(&mut self.engine.keyspace_mut().looked_up);
        self.engine.close_session(session);
        touched.into_iter().collect()
    }
}

/// Why a command may touch keys that no argument names, or is not tried.
fn is_exempt(command: &Command, words: &[String]) -> bool {
    let has = |word: &str| words.iter().any(|other| other.eq_ignore_ascii_case(word));
    match command.name {
        // Which keys these read depends on what is there; the command asks for all rights.
        "sort" | "sort_ro" => has("BY") || has("GET"),
        // They are about the keyspace as a whole.
        "randomkey" | "scan" | "keys" => true,
        // They end the world, or rest for long.
        _ => command.has(flag::ADMIN) || command.group == Group::Scripting,
    }
}

/// Each made-up request touches only keys that the finder finds.
#[test]
fn no_command_touches_a_key_that_was_not_checked() {
    let seed = testkit::seed();
    let mut random = Random::seeded(seed);
    let mut world = World::filled(seed);
    let rows: Vec<_> = world.engine.state().registry.ids().collect();
    let (mut tried, mut touching) = (0, 0);
    for id in rows {
        let row = world.engine.state().registry.row(id);
        let (command, name) = (row.command, row.full_name.clone());
        if !command.subcommands.is_empty() {
            continue;
        }
        for _ in 0..if is_movable(command) { TRIES_MOVABLE } else { TRIES } {
            let mut words: Vec<String> = name.split('|').map(str::to_owned).collect();
            words.extend(made_up_arguments(command, &mut random));
            if !command.arity.admits(words.len()) || is_exempt(command, &words) {
                continue;
            }
            let request = OwnedRequest::from_args(words.iter().map(String::as_bytes));
            let request = request.as_request();
            let found = keys_of(command, request);
            let touched = world.run(&words);
            tried += 1;
            touching += usize::from(!touched.is_empty());
            // Without an answer nobody who is restricted may run it.
            let Some(found) = found else { continue };
            for key in touched {
                let is_found = found.iter().any(|found| request.arg(found.arg) == key);
                let key = String::from_utf8_lossy(&key);
                assert!(is_found, "{words:?} touched {key}, found were {found:?} (seed {seed})");
            }
        }
        world.fill();
    }
    assert!(touching * 4 > tried, "too many requests were refused at once: {touching} of {tried}");
}

#[track_caller]
fn found(line: &str) -> Vec<usize> {
    let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
    let registry = crate::registry::Registry::new();
    let row = registry.find(request.as_request().arg(0)).unwrap();
    let keys = keys_of(registry.row(row).command, request.as_request()).unwrap();
    keys.iter().map(|key| key.arg).collect()
}

#[test]
fn options_that_look_like_others_hide_no_key() {
    // Of several, the last one is used.
    assert_eq!(found("GEORADIUS mine 13 38 200 km STORE a STORE victim"), [1, 9]);
    assert_eq!(found("GEORADIUS mine 13 38 200 km STORE STOREDIST STOREDIST victim"), [1, 9]);
    assert_eq!(found("GEORADIUSBYMEMBER mine m 200 km STORE a STOREDIST victim"), [1, 8]);
    // The consumer is called STREAMS.
    assert_eq!(found("XREADGROUP COUNT 5 GROUP g STREAMS STREAMS victim >"), [7]);
    assert_eq!(found("XREADGROUP GROUP STREAMS STREAMS STREAMS a b > >"), [5, 6]);
    // The first target is called GET, and the second one counts.
    assert_eq!(found("SORT mine STORE GET STORE victim"), [1, 5]);
    assert_eq!(found("SORT mine BY STORE ASC STORE a"), [1, 6]);
}
