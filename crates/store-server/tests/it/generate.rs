//! The same words to us and to redis-server, made up by a seed.
//!
//! A family is a list of templates. In a template `{k}` stands for one of a few keys, `{v}` for a
//! value, `{i}` for an integer, `{n}` for a small count, `{f}` for a number with a fraction,
//! `{a|b}` for a or b, and `[…]` for something that may be left out. Directives of case files may
//! stand in front.

use testkit::Random;

use crate::compare::Pair;
use crate::script::Line;

struct Family {
    name: &'static str,
    templates: &'static [&'static str],
}

/// Add your family here.
const FAMILIES: &[Family] = &[
    Family {
        name: "strings",
        templates: &[
            "SET {k} {v} [{NX|XX}] [GET]",
            "SET {k} {v} [KEEPTTL]",
            "SET {k} {v} {EX|PX} {100000|5000000|0|-1|{i}}",
            "GET {k}",
            "GETSET {k} {v}",
            "GETDEL {k}",
            "GETEX {k} [{PERSIST|EX 10000}]",
            "SETNX {k} {v}",
            "MSET {k} {v} {k} {v}",
            "MSETNX {k} {v} {k} {v}",
            "MGET {k} {k} {k}",
            "APPEND {k} {v}",
            "STRLEN {k}",
            "SETRANGE {k} {n} {v}",
            "GETRANGE {k} {i} {i}",
            "INCR {k}",
            "DECR {k}",
            "INCRBY {k} {i}",
            "DECRBY {k} {i}",
            "LCS {k} {k} [LEN] [IDX] [MINMATCHLEN {n}] [WITHMATCHLEN]",
            "DEL {k} {k}",
            "EXISTS {k} {k}",
            "TYPE {k}",
            "INCRBYFLOAT {k} {f}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "bits",
        templates: &[
            "SET {k} {v}",
            "SETBIT {k} {n} {0|1}",
            "SETBIT {k} {i} {n}",
            "GETBIT {k} {n}",
            "GETBIT {k} {i}",
            "BITCOUNT {k} [{i} {i} [{BIT|BYTE|x}]]",
            "BITPOS {k} {0|1|2} [{i} [{i} [{BIT|BYTE}]]]",
            "BITOP {AND|OR|XOR|NOT} {k} {k} [{k}] [{k}]",
            "BITFIELD {k} [OVERFLOW {WRAP|SAT|FAIL}] {SET|INCRBY} {i|u}{n} {n} {i} [GET u{n} {n}]",
            "BITFIELD {k} {GET|SET} {i8|u63|i64|u1} #{n} {i}",
            "BITFIELD_RO {k} GET {i|u}{n} {n}",
            "GET {k}",
            "STRLEN {k}",
            "OBJECT ENCODING {k}",
            "DEL {k}",
        ],
    },
    Family {
        name: "keys",
        templates: &[
            "SET {k} {v}",
            "DEL {k} {k}",
            "UNLINK {k} [{k}]",
            "EXISTS {k} {k}",
            "RENAME {k} {k}",
            "RENAMENX {k} {k}",
            "COPY {k} {k} [DB {n}] [REPLACE]",
            "MOVE {k} {n}",
            "SELECT {0|0|1|2}",
            "SWAPDB {0|1|2} {0|1|2}",
            "EXPIRE {k} {100|200|-1|{i}} [{NX|XX|GT|LT}] [{NX|XX|GT|LT}]",
            "PEXPIREAT {k} {99999999999999|1|{i}}",
            "PERSIST {k}",
            "TTL {k}",
            "EXPIRETIME {k}",
            "GETEX {k} [{PERSIST|EX 10000|PX {i}}]",
            "TYPE {k}",
            "TOUCH {k} {k}",
            "DBSIZE",
            "@unordered KEYS {*|a*|[a-c]|?}",
            "@unordered SCAN 0 COUNT 1000 [MATCH {*|[ab]}] [TYPE {string|list}]",
            "{FLUSHDB|PING|PING|PING|PING|PING|PING}",
            "OBJECT ENCODING {k}",
        ],
    },
    Family {
        name: "transactions",
        templates: &[
            "MULTI",
            "EXEC",
            "DISCARD",
            "WATCH {k} [{k}]",
            "UNWATCH",
            "@on b SET {k} {v}",
            "@on b {GET|DEL|INCR} {k}",
            "@on b EXPIRE {k} {100|-1}",
            "SET {k} {v}",
            "INCR {k}",
            "GET {k}",
            "NOSUCH",
            "SELECT {0|1}",
        ],
    },
];

/// Commands per family and protocol in the everyday run; `COMPAT_COMMANDS` asks for more.
const COMMANDS: usize = 1500;

fn expand(template: &str, random: &mut Random) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '[']) {
        text.push_str(&rest[..at]);
        let inner = enclosed(&rest[at..]);
        if rest[at..].starts_with('[') {
            if random.in_range(0..2) == 1 {
                text.push_str(&expand(inner, random));
            }
        } else {
            text.push_str(&placeholder(inner, random));
        }
        rest = &rest[at + inner.len() + 2..];
    }
    text + rest
}

/// What stands between the bracket at the front and its partner.
fn enclosed(text: &str) -> &str {
    let mut depth = 0;
    for (at, character) in text.char_indices() {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[1..at];
        }
    }
    panic!("unbalanced template {text}");
}

fn placeholder(name: &str, random: &mut Random) -> String {
    const KEYS: &[&str] = &["a", "b", "c", "d", "e"];
    const VALUES: &[&str] = &[
        "x",
        "hello",
        "\"\"",
        "10",
        "-3",
        "0",
        "3.14",
        "9223372036854775807",
        "abcabcabc",
        "\"two words\"",
        "\"\\x00\\xff\"",
        "01",
        "1e5",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    const INTEGERS: &[&str] = &[
        "0",
        "1",
        "-1",
        "2",
        "5",
        "-5",
        "100",
        "-100",
        "9223372036854775807",
        "-9223372036854775808",
        "x",
        "1.5",
        "",
    ];
    const FLOATS: &[&str] = &["0", "1.5", "-2.25", "3.0e2", "inf", "-inf", "nan", "x", "1e400"];
    match name {
        "k" => (*random.choose(KEYS)).to_owned(),
        "v" => (*random.choose(VALUES)).to_owned(),
        "i" => match *random.choose(INTEGERS) {
            "" => "\"\"".to_owned(),
            text => text.to_owned(),
        },
        "f" => (*random.choose(FLOATS)).to_owned(),
        "n" => random.in_range(0..12).to_string(),
        choices => {
            let choices = split_choices(choices);
            let chosen = *random.choose(&choices);
            expand(chosen, random)
        }
    }
}

/// Splits at `|`, but not within inner brackets.
fn split_choices(text: &str) -> Vec<&str> {
    let (mut choices, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            '|' if depth == 0 => {
                choices.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    choices.push(&text[start..]);
    choices
}

#[test]
fn made_up_commands_get_equal_replies() {
    let seed = testkit::seed();
    let commands = match std::env::var("COMPAT_COMMANDS") {
        Ok(count) => count.parse().expect("COMPAT_COMMANDS is a number"),
        Err(_) => COMMANDS,
    };
    for family in FAMILIES {
        for protocol in [2, 3] {
            let mut random = Random::seeded(seed);
            let mut pair = Pair::start(protocol);
            let mut history = Vec::new();
            for _ in 0..commands {
                let template = *random.choose(family.templates);
                let text = expand(template, &mut random);
                let result = pair.run(&Line::parse(&text));
                history.push(text);
                if let Err(difference) = result {
                    let recent = history[history.len().saturating_sub(12)..].join("\n    ");
                    panic!(
                        "{} RESP{protocol}, seed {seed}, after\n    {recent}\n{difference}",
                        family.name
                    );
                }
            }
            println!("{}: {} commands equal in RESP{protocol}", family.name, pair.compared);
        }
    }
}
