//! Requests made up after what the rows say that commands take.

use testkit::Random;

use super::{Argument, parse};
use crate::command::Command;

/// What stands for values, numbers and keys alike: numbers, ends of ranges, and words that are
/// options elsewhere.
const WORDS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "5",
    "13.5",
    "38",
    "km",
    "m",
    "g",
    "c",
    "*",
    "$",
    ">",
    "0-0",
    "1-1",
    "-",
    "+",
    "(1",
    "[a",
    "u8",
    "#0",
    "pattern-*",
    "STORE",
    "STOREDIST",
    "STREAMS",
    "KEYS",
    "GET",
    "BY",
    "LIMIT",
    "COUNT",
    "GROUP",
    "AUTH",
    "WEIGHTS",
];
/// Keys of every kind, and some that look like options.
pub(crate) const KEYS: &[&str] = &[
    "string", "list", "hash", "set", "zset", "geo", "stream", "absent", "STORE", "GET", "STREAMS",
    "KEYS", "LIMIT", "GROUP", "2",
];

/// Arguments for a command, its name not among them. Options come in any order and more than once.
/// About half of the lines are as they should be; the others have something exchanged, added or
/// left out.
pub(crate) fn arguments_of(command: &Command, random: &mut Random) -> Vec<String> {
    let mut arguments = parse(command.arguments);
    shuffle_options(&mut arguments, random);
    let mut words = Vec::new();
    write_all(&arguments, random, &mut words);
    if random.in_range(0..2) == 0 {
        for _ in 0..random.in_range(1..4) {
            spoil(&mut words, random);
        }
    }
    words
}

/// Exchanges arguments that are told by a word in front of them.
fn shuffle_options(arguments: &mut [Argument<'_>], random: &mut Random) {
    let options: Vec<usize> =
        (0..arguments.len()).filter(|at| arguments[*at].token.is_some()).collect();
    if options.len() > 1 && random.in_range(0..2) == 0 {
        arguments.swap(*random.choose(&options), *random.choose(&options));
    }
}

fn write_all(arguments: &[Argument<'_>], random: &mut Random, words: &mut Vec<String>) {
    for argument in arguments {
        let is_optional = argument.flags.contains(&"optional");
        if is_optional && random.in_range(0..2) == 0 {
            continue;
        }
        let is_multiple = argument.flags.contains(&"multiple");
        let count = if is_multiple || is_optional { random.in_range(1..4) } else { 1 };
        for index in 0..count {
            if index == 0 || !is_multiple || argument.flags.contains(&"multiple_token") {
                words.extend(argument.token.map(str::to_owned));
            }
            write_one(argument, random, words);
        }
    }
}

fn write_one(argument: &Argument<'_>, random: &mut Random, words: &mut Vec<String>) {
    match argument.kind {
        "pure-token" => {}
        "oneof" if !argument.inner.is_empty() => {
            let chosen = random.in_range(0..argument.inner.len() as u64) as usize;
            write_all(&argument.inner[chosen..=chosen], random, words);
        }
        "block" => write_all(&argument.inner, random, words),
        "key" => words.push((*random.choose(KEYS)).to_owned()),
        "integer" => words.push(random.in_range(0..4).to_string()),
        "double" => words.push("13.5".to_owned()),
        // What is free to be anything looks like an option as often as not.
        _ => words.push(any_word(random)),
    }
}

fn any_word(random: &mut Random) -> String {
    let words = if random.in_range(0..2) == 0 { WORDS } else { KEYS };
    (*random.choose(words)).to_owned()
}

fn spoil(words: &mut Vec<String>, random: &mut Random) {
    let other = any_word(random);
    let at = random.in_range(0..words.len() as u64 + 1) as usize;
    match random.in_range(0..4) {
        0 if at < words.len() => words[at] = other,
        1 if at < words.len() => drop(words.remove(at)),
        2 if at < words.len() => words.swap(0, at),
        _ => words.insert(at, other),
    }
}
