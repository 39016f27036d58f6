//! The same scripts to us and to a real server: replies must be equal, byte for byte.

use store_script::Protocol;

use crate::real::Real;
use crate::store::{Relay, Store, show};

/// Runs every script of a file (they are separated by lines of `----`) in both protocols.
fn compare(scripts: &str) {
    let mut differences = Vec::new();
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut real = Real::start();
        let mut ours = Store::new(Relay::start());
        ours.protocol = protocol;
        if protocol == Protocol::Resp3 {
            real.ask(&[b"HELLO", b"3"]);
        }
        for script in scripts.split("\n----\n") {
            let script = script.trim_end_matches('\n');
            let words = words_of(script);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let (expected, found) = (real.ask(&words), ours.ask(&words));
            if expected != found {
                differences.push(format!(
                    "{protocol:?}\n{script}\n  real: {}\n  ours: {}\n",
                    show(&expected),
                    show(&found)
                ));
            }
        }
    }
    let count = differences.len();
    assert!(differences.is_empty(), "{count} differences\n{}", differences.join("\n"));
}

/// The command a script stands for: EVAL with two keys and two arguments, or, for a first line
/// `FUNCTION` or `FCALL name`, that.
fn words_of(script: &str) -> Vec<Vec<u8>> {
    let arguments: [&[u8]; 5] = [b"2", b"key one", b"key\0two", b"argument", b"4"];
    let mut words: Vec<&[u8]> = Vec::new();
    match script.split_once('\n') {
        Some(("FUNCTION", code)) => words.extend([&b"FUNCTION"[..], b"LOAD", code.as_bytes()]),
        _ => match script.strip_prefix("FCALL ") {
            Some(name) => words.extend([&b"FCALL"[..], name.as_bytes()]),
            None => words.extend([&b"EVAL"[..], script.as_bytes()]),
        },
    }
    if words[0] != b"FUNCTION" {
        words.extend(arguments);
    }
    words.into_iter().map(<[u8]>::to_vec).collect()
}

macro_rules! compared {
    ($($name:ident: $file:literal,)*) => {
        $(
            #[test]
            fn $name() {
                compare(include_str!(concat!("../scripts/", $file)));
            }
        )*
    };
}

compared! {
    the_language_is_the_same: "language.txt",
    globals_are_as_frozen: "frozen.txt",
    redis_functions_answer_alike: "redis.txt",
    values_become_replies_alike: "replies.txt",
    shebangs_are_read_alike: "shebang.txt",
    cjson_is_the_same: "cjson.txt",
    cmsgpack_is_the_same: "cmsgpack.txt",
    struct_is_the_same: "struct.txt",
    bit_is_the_same: "bit.txt",
    functions_are_the_same: "functions.txt",
}
