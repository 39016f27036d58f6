//! In which order a session hears of one request: its own reply, the events of keys and the
//! invalidations; and in which order another session hears of the same.

use std::collections::BTreeMap;

use store_resp::{Reply, split_quoted};
use testkit::Random;

use super::servers::{Files, Side};
use super::words::{self, LEFT_OUT, OTHER_FAMILIES};
use crate::generate::{self, commands_wanted_or, expand, seeds_wanted};

/// Requests per family in the everyday run.
const REQUESTS: usize = 150;
/// Most commands cause the same whatever they are given, so that fewer seeds do.
const SEEDS_PER_RUN: usize = 5;
/// Says everything, and hears of it itself.
const SPEAKER: &str = "speaker";
const LISTENER: &str = "listener";
/// Each of both keeps all keys before every request.
const KEEP_ALL_KEYS: &str = "EXISTS a b c d e";

/// What no family of one session has.
const MORE: &[&str] = &[
    "{FLUSHALL|FLUSHDB} {SYNC|ASYNC}",
    "MOVE {k} 1",
    "SWAPDB 0 1",
    "COPY {k} {k} REPLACE",
    "BLPOP {k} 0.001",
    "BLMOVE {k} {k} LEFT RIGHT 0.001",
    "BRPOPLPUSH {k} {k} 0.001",
    "BLMPOP 0.001 1 {k} LEFT COUNT 2",
    "BZPOPMIN {k} 0.001",
    "BZMPOP 0.001 1 {k} MIN",
    "RPUSH {k} 1 2 3",
    "ZADD {k} 1 a 2 b",
    "PEXPIREAT {k} 1",
    "EXPIREAT {k} 99999999999",
    "GETEX {k} {PERSIST|PXAT 1|EXAT 99999999999}",
    "SET {k} 1 {EXAT 99999999999|PXAT 99999999999999}",
    "PUBLISH __keyspace@0__:{k} by-hand",
    "EVAL \"return redis.call('incr',KEYS⟨1⟩)\" 1 {k}",
    "EVAL \"redis.call('set',KEYS⟨1⟩,1) redis.call('publish','__keyx','y') return 1\" 1 {k}",
    "EVAL \"redis.call('set',KEYS⟨1⟩,1) return redis.call('del',KEYS⟨2⟩)\" 2 {k} {k}",
    "EVAL \"redis.call('set',KEYS⟨1⟩,1) redis.call('get',KEYS⟨1⟩) return redis.call('incr',KEYS⟨1⟩)\" 1 {k}",
];

/// Redis writes the message in the middle of these replies, which then are none.
const BROKEN: &[&str] =
    &["MGET", "ZPOP", "ZMPOP", "BZPOP", "BZMPOP", "XREADGROUP", "XAUTOCLAIM", "XCLAIM"];

#[test]
fn a_session_hears_of_its_request_in_the_order_of_redis() {
    let mut differences = BTreeMap::new();
    for seed in seeds_wanted().step_by(SEEDS_PER_RUN) {
        for name in OTHER_FAMILIES {
            let family = generate::FAMILIES.iter().find(|it| it.name == *name).expect("a family");
            compare_order(seed, |random| family.line(random), &mut differences);
        }
        let values = words::FAMILIES.iter().find(|it| it.name == "values").expect("a family");
        for templates in [values.templates, MORE] {
            let line = |random: &mut Random| expand(random.choose::<&str>(templates), random);
            compare_order(seed, line, &mut differences);
        }
    }
    let count = differences.len();
    let shown: Vec<String> = differences.into_values().collect();
    assert!(shown.is_empty(), "{count} commands are heard of otherwise\n{}", shown.join("\n"));
}

/// Adds the first difference of each command.
fn compare_order(
    seed: u64,
    mut line: impl FnMut(&mut Random) -> String,
    differences: &mut BTreeMap<String, String>,
) {
    let mut random = Random::seeded(seed);
    let mut sides = [Side::ours(Files::Snapshot), Side::theirs(Files::Snapshot)];
    for side in &mut sides {
        side.ask_line("CONFIG SET notify-keyspace-events KEAn");
        side.ask_line("DEBUG SET-ACTIVE-EXPIRE 0");
        for name in [SPEAKER, LISTENER] {
            for words in ["HELLO 3", "PSUBSCRIBE __key*", "CLIENT TRACKING ON"] {
                side.connection(name).words(words);
            }
        }
    }
    let mut entry = 0;
    for _ in 0..commands_wanted_or(REQUESTS) {
        let line = line(&mut random);
        let is_left_out = |word: &str| LEFT_OUT.contains(&word) || word.starts_with('@');
        if line.split(' ').any(|word| is_left_out(word) && word != "0.001") {
            continue;
        }
        entry += 1;
        let line = line.replace('⟨', "[").replace('⟩', "]").replace(" * ", &format!(" {entry}-1 "));
        if BROKEN.iter().any(|front| line.starts_with(front)) {
            continue;
        }
        let words = split_quoted(line.as_bytes()).expect("balanced quotes");
        let ended = *random.choose(&[None, None, None, Some("a"), Some("b"), Some("c")]);
        let [ours, theirs] = sides.each_mut().map(|side| heard(side, &words, ended));
        if ours != theirs {
            let name: Vec<&str> = line.split(' ').take(2).collect();
            let is_alone = !["XGROUP", "SET"].contains(&name[0]);
            let name = name[..if is_alone { 1 } else { 2 }].join(" ");
            let ended = ended.map_or(String::new(), |key| format!(" ({key} has ended)"));
            let text = format!("{line}{ended}\n    ours   {ours:?}\n    theirs {theirs:?}");
            differences.entry(name).or_insert(text);
        }
    }
}

/// What the speaker and the listener hear of one request, before which a key may have ended.
fn heard(side: &mut Side, words: &[Vec<u8>], ended: Option<&str>) -> [Vec<Reply>; 2] {
    for name in [LISTENER, SPEAKER] {
        let keep: Vec<&str> = KEEP_ALL_KEYS.split(' ').collect();
        side.connection(name).send(&keep);
        side.connection(name).receive_reply(&mut Vec::new()).expect("an answer");
    }
    if let Some(key) = ended {
        side.ask(&["SET", key, "1", "PXAT", "1"]);
    }
    side.ask_line("PING");
    for name in [LISTENER, SPEAKER] {
        side.connection(name).arrived();
    }
    let mut before = Vec::new();
    side.connection(SPEAKER).send(words);
    let reply = side.connection(SPEAKER).receive_reply(&mut before).expect("an answer");
    before.push(reply);
    side.ask_line("PING");
    before.extend(side.connection(SPEAKER).arrived().replies);
    [before, side.connection(LISTENER).arrived().replies]
}
