//! One truth for the protocol: the model that the simulator believes, and the scripts that users
//! run, are given the same requests at the same moments. After each of them the answers, the hints
//! and everything in the store must be equal.
//!
//! A seed makes a story (`story`): requests of several instances with different settings, words of
//! foreign programs, clocks that move either way, restarts, failovers, older data put back,
//! servers that take no writes. It is played to the model and to real servers (`real`), which are a
//! redis-server and our own store. `cargo xtask conform` runs many seeds, a test of every run some.
//!
//! What is put in the scripts' way is in `stage.lua`; the scripts are the real ones. What is not
//! compared: ids of stream entries, how a server words an error behind its code, the marks of
//! `strict` mode and heartbeats for other programs, which the model does not have, and text that is
//! not plain ASCII, which the model does not escape.
//!
//! Scripts with a mistake that we once made are played, too: a difference must be found.

mod real;
mod story;

use std::collections::BTreeMap;
use tenure_core::StoreErrorKind;

use store_server::Server;
use tenure_core::memory_store::{MemoryStore, Shown};
use tenure_core::protocol::{Answer, Hint, HistoryKind, LostWhy, Outcome, TickOutcome};
use testkit::RedisServer;

use self::real::Real;
use self::story::{Event, Story};
use super::text::cleaned;

/// How many seeds every run of the tests plays on each server.
const SEEDS_IN_CI: u64 = 36;
/// How many seeds a mistake may take until it is noticed.
const SEEDS_FOR_CONTROL: u64 = 400;
/// How many events a difference is shown with, unless it is the only one that is looked for.
const SHOWN: usize = 3;
/// After so many differences the rest is not looked for.
const DIFFERENCES_MAX: usize = 8;
const SEEDS: &str = "CONFORM_SEEDS";
const SEED: &str = "CONFORM_SEED";

/// What came of one event.
#[derive(Debug, PartialEq)]
struct Seen {
    answer: Option<Result<Answer, &'static str>>,
    hints: Vec<Hint>,
    keys: BTreeMap<String, Shown>,
}

/// A mistake that scripts had, as a change of their text.
struct Control {
    name: &'static str,
    changes: &'static [(&'static str, &'static str)],
}

const CONTROLS: [Control; 4] = [
    Control {
        name: "E5: a quarantine forgets the longest lease of the fleet",
        changes: &[
            ("local LONGEST = math.min(tonumber(ARGV[5]) or 0, TTL_MAX)", "local LONGEST = 0"),
            ("if ends > quarantine_until then", "if false then"),
        ],
    },
    Control {
        name: "E6: a new life shortens a quarantine",
        changes: &[(
            "math.max(quarantine_until, now + lasts * 1000), now",
            "now + lasts * 1000, now",
        )],
    },
    Control {
        name: "E19: a server that takes no writes says that a term is lost",
        changes: &[("if life.is_replica then", "if false then")],
    },
    Control {
        name: "a lost term is waited for twice",
        changes: &[("or quarantine_covers >= floor then", "then")],
    },
];

fn play(seed: u64, real: &mut Real) -> Result<u64, String> {
    let mut story = Story::new(seed, real.is_own());
    real.begin();
    let mut model = story.model();
    let mut saved: Option<(MemoryStore, real::Saved)> = None;
    let mut played = 0;
    while let Some((event, now)) = story.next() {
        model.remove_expired(now);
        real.remove_expired(now);
        match &event {
            Event::Save => saved = Some((model.clone(), real.save())),
            Event::PutBack(life) => {
                if let Some((old_model, old_real)) = &saved {
                    model = old_model.clone();
                    real.put_back(old_real);
                }
                model.set_life(life.clone());
                model.remove_expired(now);
                real.remove_expired(now);
            }
            Event::Live(life) => model.set_life(life.clone()),
            Event::Foreign(_) | Event::Call { .. } => {}
        }
        let expected = play_to_model(&mut model, &event, now);
        let found = real.play(&event, now, model.life());
        if let Some(Ok(answer)) = &expected.answer {
            story.learn(&event, answer);
        }
        if expected != found {
            return Err(describe(seed, &story, &expected, &found));
        }
        played += 1;
    }
    Ok(played)
}

fn play_to_model(model: &mut MemoryStore, event: &Event, now: tenure_core::ServerTime) -> Seen {
    let (mut answer, mut hints) = (None, Vec::new());
    match event {
        Event::Foreign(word) => model.apply(now, word),
        Event::Call { call, read_only } => {
            let done = match read_only {
                true => model.execute_read_only(now, call),
                false => Ok(model.execute(now, call)),
            };
            answer = Some(match done {
                Ok((given, told)) => {
                    hints = told;
                    Ok(as_read(given))
                }
                Err(error) if error.kind() == StoreErrorKind::WrongNode => Err("READONLY"),
                Err(other) => panic!("the model has no other errors: {other}"),
            });
        }
        Event::Save | Event::PutBack(_) | Event::Live(_) => {}
    }
    Seen { answer, hints, keys: model.show(now) }
}

/// The model's answer as it would be after its way through a reply.
fn as_read(mut answer: Answer) -> Answer {
    let clean = |text: &mut String| *text = cleaned(text);
    answer.warnings.iter_mut().for_each(clean);
    answer.view.quarantine_why.iter_mut().for_each(clean);
    if let Some(wish) = &mut answer.view.wish {
        wish.refused.iter_mut().for_each(clean);
    }
    match &mut answer.outcome {
        Outcome::Conflict { what } => clean(what),
        Outcome::Quarantine { reason, .. } => clean(reason),
        Outcome::Lost(LostWhy::Overwritten(what)) => clean(what),
        Outcome::TickDone(TickOutcome::Failed(words)) => clean(words),
        Outcome::History(entries) => {
            for entry in entries {
                match &mut entry.what {
                    HistoryKind::Closed { detail, .. } | HistoryKind::Quarantined { detail } => {
                        clean(detail);
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    answer
}

/// What differs, after the events that led there.
fn describe(seed: u64, story: &Story, expected: &Seen, found: &Seen) -> String {
    let mut text = format!("seed {seed}; to repeat: cargo xtask conform --seed {seed}\n");
    let skipped = if seeds().len() == 1 { 0 } else { story.told().len().saturating_sub(SHOWN) };
    for (event, now) in story.told().iter().skip(skipped) {
        text.push_str(&format!("  {} {event:?}\n", now.0));
    }
    if expected.answer != found.answer {
        let (model, real) = (&expected.answer, &found.answer);
        text.push_str(&format!("answer\n  model {model:?}\n  real  {real:?}\n"));
    }
    if expected.hints != found.hints {
        let (model, real) = (&expected.hints, &found.hints);
        text.push_str(&format!("hints\n  model {model:?}\n  real  {real:?}\n"));
    }
    let keys: std::collections::BTreeSet<_> =
        expected.keys.keys().chain(found.keys.keys()).collect();
    for key in keys {
        let (model, real) = (expected.keys.get(key), found.keys.get(key));
        if model != real {
            text.push_str(&format!("key {key}\n  model {model:?}\n  real  {real:?}\n"));
        }
    }
    text
}

/// The seeds to play: one, so many, or those of every run.
fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    match (number(SEED), number(SEEDS)) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (0..count).collect(),
        (None, None) => (0..SEEDS_IN_CI).collect(),
    }
}

fn play_all(mut real: Real) {
    let seeds = seeds();
    let (mut played, mut differences) = (0, Vec::new());
    for seed in &seeds {
        match play(*seed, &mut real) {
            Ok(events) => played += events,
            Err(difference) => differences.push(difference),
        }
        if differences.len() == DIFFERENCES_MAX {
            break;
        }
    }
    let (name, count) = (real.name(), seeds.len());
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
    println!("{name}: {count} seeds, {played} events, no difference");
}

fn own_store() -> Server {
    Server::builder().any_port().start().expect("our own store starts")
}

fn address_of(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port().expect("it listens"))
}

#[test]
fn the_model_and_redis_do_the_same() {
    let server = RedisServer::start();
    play_all(Real::new("redis-server", &server.url(), false, &[]));
}

#[test]
fn the_model_and_our_own_store_do_the_same() {
    let server = own_store();
    play_all(Real::new("our own store", &address_of(&server), true, &[]));
}

#[test]
fn scripts_with_an_old_mistake_differ() {
    let server = RedisServer::start();
    for control in CONTROLS {
        let mut real = Real::new(control.name, &server.url(), false, control.changes);
        let noticed = (0..SEEDS_FOR_CONTROL).find(|seed| play(*seed, &mut real).is_err());
        let seed = noticed.unwrap_or_else(|| panic!("{} went unnoticed", control.name));
        println!("{}: noticed at seed {seed}", control.name);
    }
}
