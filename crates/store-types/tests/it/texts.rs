//! Numbers and patterns.

use store_types::glob::{Case, matches};
use store_types::number::{Extended, format_f64, parse_f64, parse_i64};
use store_types::{Rng, StreamId};

use crate::redis::{Redis, Reply};

/// A decimal text of some shape, most of them numbers.
fn number_text(rng: &mut Rng) -> String {
    let digits = |rng: &mut Rng, count: usize| -> String {
        (0..count).map(|_| char::from(b'0' + rng.below(10) as u8)).collect()
    };
    let sign = ["", "", "-", "+"][rng.below(4)];
    let whole_len = rng.below(20);
    let whole = digits(rng, whole_len);
    let places_len = rng.below(20);
    let places = digits(rng, places_len);
    let exponent = match rng.below(4) {
        0 => format!("e{}", rng.below(40) as i64 - 20),
        _ => String::new(),
    };
    match rng.below(8) {
        0 => format!("{sign}{whole}"),
        1 => format!("{sign}0x{whole}.{places}p{}", rng.below(20)),
        2 => ["inf", "-inf", "nan", "", " 1", "1 ", "infinity", "0x", ".", "1e400", "1e-400"]
            [rng.below(11)]
        .to_owned(),
        3 => format!("{}", rng.below(1000)),
        _ => format!("{sign}{whole}.{places}{exponent}"),
    }
}

#[test]
fn long_doubles_add_as_incrbyfloat_adds() {
    let mut redis = Redis::start();
    let mut rng = Rng::seeded(1);
    for round in 0..3_000 {
        let (start, step) = (number_text(&mut rng), number_text(&mut rng));
        redis.say(&["SET", "n", &start]);
        let theirs = redis.say(&["INCRBYFLOAT", "n", &step]);
        let ours = Extended::parse(start.as_bytes())
            .zip(Extended::parse(step.as_bytes()))
            .and_then(|(start, step)| start.checked_add(step));
        match (ours, theirs) {
            (Some(sum), Reply::Text(theirs)) => {
                let theirs = String::from_utf8(theirs).unwrap();
                assert_eq!(sum.to_text(), theirs, "round {round}: {start} + {step}");
            }
            (None, Reply::Error(_)) => {}
            (ours, theirs) => panic!("{start} + {step}: {ours:?} but {theirs:?}"),
        }
    }
}

#[test]
fn doubles_read_and_print_as_scores_do() {
    let mut redis = Redis::start();
    let mut rng = Rng::seeded(2);
    for _ in 0..3_000 {
        let text = match rng.below(3) {
            0 => format!("{:e}", f64::from_bits(rng.next_u64())),
            _ => number_text(&mut rng),
        };
        redis.say(&["DEL", "z"]);
        let added = redis.say(&["ZADD", "z", &text, "m"]);
        match parse_f64(text.as_bytes()) {
            Some(score) => {
                assert_eq!(added, Reply::Integer(1), "{text}");
                let mut ours = Vec::new();
                // A listpack keeps no negative zero.
                format_f64(&mut ours, if score == 0.0 { 0.0 } else { score });
                let theirs = redis.say(&["ZSCORE", "z", "m"]).text();
                assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
            }
            None => assert!(added.is_error(), "{text} is a number to Redis"),
        }
    }
}

#[test]
fn integers_are_those_that_incr_takes() {
    let mut redis = Redis::start();
    for text in [
        "0",
        "-0",
        "+1",
        " 1",
        "1 ",
        "01",
        "-1",
        "9223372036854775806",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "1.0",
        "",
        "0x1",
        "1e1",
    ] {
        redis.say(&["SET", "n", text]);
        let theirs = redis.say(&["INCR", "n"]);
        let ours = parse_i64(text.as_bytes());
        assert_eq!(ours.is_none(), theirs.is_error(), "{text:?}");
    }
}

#[test]
fn patterns_match_as_keys_matches() {
    let mut redis = Redis::start();
    let mut rng = Rng::seeded(3);
    const PARTS: &[u8] = b"ab-]^[\\*?c";
    for _ in 0..5_000 {
        let mut text = |parts: &[u8], max: usize| -> Vec<u8> {
            (0..rng.below(max)).map(|_| parts[rng.below(parts.len())]).collect()
        };
        let pattern = text(PARTS, 10);
        let key = text(b"abc-]^[\\", 8);
        // An unclosed class makes Redis read the byte after the pattern; leave those out.
        if pattern.contains(&b'[') && !is_closed(&pattern) {
            continue;
        }
        redis.say(&["FLUSHALL"]);
        redis.ask(&[b"SET", &key, b""]);
        let theirs = redis.ask(&[b"KEYS", &pattern]).texts().len() == 1;
        let ours = matches(&pattern, &key, Case::Sensitive);
        let story = format!("{} on {}", pattern.escape_ascii(), key.escape_ascii());
        assert_eq!(ours, theirs, "{story}");
    }
}

/// Whether every class of the pattern ends within it.
fn is_closed(pattern: &[u8]) -> bool {
    let mut at = 0;
    while at < pattern.len() {
        match pattern[at] {
            b'\\' => at += 2,
            b'[' => {
                at += 1 + usize::from(pattern.get(at + 1) == Some(&b'^'));
                loop {
                    match pattern.get(at) {
                        None => return false,
                        Some(b']') => break,
                        Some(b'\\') if at + 1 < pattern.len() => at += 2,
                        Some(_) if pattern.get(at + 1) == Some(&b'-') && at + 2 < pattern.len() => {
                            at += 3;
                        }
                        Some(_) => at += 1,
                    }
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    true
}

#[test]
fn stream_names_read_as_xadd_reads_them() {
    let mut redis = Redis::start();
    for text in [
        "1-1",
        "5",
        "007-01",
        "5-",
        "-5",
        "5-1-1",
        "+5-+1",
        " 5-1",
        "5 -1",
        "5- 1",
        "a-1",
        "1-a",
        "18446744073709551615-18446744073709551615",
        "18446744073709551616-0",
        "5--1",
        "5--01",
        "",
    ] {
        redis.say(&["DEL", "s"]);
        let theirs = redis.say(&["XADD", "s", text, "f", "v"]);
        match StreamId::parse(text.as_bytes(), 0) {
            Some(id) => assert_eq!(theirs, Reply::Text(id.to_string().into_bytes()), "{text:?}"),
            None => assert!(theirs.is_error(), "{text:?} is a name to Redis"),
        }
    }
}
