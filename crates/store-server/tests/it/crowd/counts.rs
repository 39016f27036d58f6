//! What each command counts: hits, misses, changes, calls and errors, one request at a time.

use std::collections::BTreeMap;

use store_resp::split_quoted;
use testkit::Random;

use super::servers::{Files, Side};
use super::words::OTHER_FAMILIES;
use crate::generate::{self, commands_wanted, seeds_wanted};
use crate::script::Line;

/// The counters of INFO that a request may move.
const COUNTERS: &[&str] = &[
    "keyspace_hits",
    "keyspace_misses",
    "rdb_changes_since_last_save",
    "expired_keys",
    "total_error_replies",
    "total_commands_processed",
    "unexpected_error_replies",
];
/// A part of what is tried elsewhere: the servers are asked after every request.
const SHARE: usize = 10;

#[test]
fn made_up_commands_count_the_same_on_both_servers() {
    let mut differences: BTreeMap<String, String> = BTreeMap::new();
    for seed in seeds_wanted() {
        for family in OTHER_FAMILIES {
            compare_counts(family, seed, &mut differences);
        }
    }
    let count = differences.len();
    let shown: Vec<String> = differences.into_values().collect();
    assert!(shown.is_empty(), "{count} commands count otherwise\n{}", shown.join("\n"));
}

fn compare_counts(family: &str, seed: u64, differences: &mut BTreeMap<String, String>) {
    let family = generate::FAMILIES.iter().find(|it| it.name == family).expect("a family");
    let mut random = Random::seeded(seed);
    let mut sides = [Side::ours(Files::Snapshot), Side::theirs(Files::Snapshot)];
    let mut before = sides.each_mut().map(counters);
    for _ in 0..commands_wanted() / SHARE {
        let line = Line::parse(&family.line(&mut random));
        let words = split_quoted(line.text.as_bytes()).expect("balanced quotes");
        let after = sides.each_mut().map(|side| {
            for index in 0..line.times {
                side.ask(&line.words(index));
            }
            counters(side)
        });
        let moved = [0, 1].map(|side| moved(&before[side], &after[side]));
        if moved[0] != moved[1] {
            let [ours, theirs] = moved;
            let name = words.first().map(|word| String::from_utf8_lossy(word).into_owned());
            let name = format!("{} {ours:?} {theirs:?}", name.unwrap_or_default());
            let text = format!("{}\n    ours   {ours:?}\n    theirs {theirs:?}", line.text);
            differences.entry(name).or_insert(text);
        }
        before = after;
    }
}

fn counters(side: &mut Side) -> Vec<u64> {
    let store_resp::Reply::Bulk(info) = side.ask_line("INFO everything") else {
        panic!("INFO tells a text");
    };
    let info = String::from_utf8_lossy(&info).into_owned();
    let value = |name: &&str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.parse().ok()).expect("a number")
    };
    COUNTERS.iter().map(value).collect()
}

fn moved(before: &[u64], after: &[u64]) -> Vec<String> {
    let each = COUNTERS.iter().zip(before.iter().zip(after));
    each.filter(|(_, (before, after))| before != after)
        .map(|(name, (before, after))| format!("{name} +{}", after - before))
        .collect()
}
