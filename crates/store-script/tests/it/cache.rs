//! Which scripts are kept, and for how long.

use store_script::{Digest, LoadError, Origin};

use crate::store::{Memory, Store, limits, show};

#[test]
fn a_script_runs_again_by_its_digest() {
    let mut store = Store::new(Memory::default());
    assert_eq!(store.eval("return 1"), ":1\\r\\n");
    let digest = b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    assert_eq!(store.ask(&[b"EVALSHA", digest, b"0"]), b":1\r\n");
    assert_eq!(store.ask(&[b"EVALSHA", &digest.to_ascii_uppercase(), b"0"]), b":1\r\n");
    assert_eq!(store.interpreter.script_code(&Digest::of(b"return 1")), Some(&b"return 1"[..]));

    store.interpreter.flush_scripts();
    let reply = show(&store.ask(&[b"EVALSHA", digest, b"0"]));
    assert_eq!(reply, "-NOSCRIPT No matching script. Please use EVAL.\\r\\n");
    assert_eq!(store.interpreter.script_count(), 0);
    assert_eq!(store.eval("return 1"), ":1\\r\\n");
}

#[test]
fn unknown_and_malformed_digests_find_nothing() {
    let mut store = Store::new(Memory::default());
    for digest in [&b"abc"[..], b"", &[b'f'; 40], &[b'x'; 40], &[0; 40]] {
        assert!(show(&store.ask(&[b"EVALSHA", digest, b"0"])).starts_with("-NOSCRIPT"));
    }
}

#[test]
fn a_flood_of_scripts_drops_the_longest_unused() {
    let mut store = Store::with_limits(
        Memory::default(),
        limits(|limits| {
            limits.evaluated_count_max = 10;
        }),
    );
    let favourite = "return 'favourite'";
    for number in 0..1000 {
        assert_eq!(store.eval(format!("return {number}")), format!(":{number}\\r\\n"));
        assert_eq!(store.eval(favourite), "$9\\r\\nfavourite\\r\\n");
    }
    assert_eq!(store.interpreter.script_count(), 10);
    assert!(store.interpreter.script_flags(&Digest::of(favourite.as_bytes())).is_some());
    assert!(store.interpreter.script_flags(&Digest::of(b"return 0")).is_none());
    assert!(store.interpreter.memory() < 2 << 20, "{}", store.interpreter.memory());
}

#[test]
fn a_flood_of_long_scripts_is_bounded_in_bytes() {
    let mut store = Store::with_limits(
        Memory::default(),
        limits(|limits| {
            limits.evaluated_bytes_max = 100_000;
        }),
    );
    for number in 0..50 {
        store.eval(format!("return {number} --{}", "x".repeat(30_000)));
        assert!(store.interpreter.script_bytes() <= 100_000);
    }
    let longer = format!("return 7 --{}", "x".repeat(200_000));
    assert_eq!(store.eval(longer), ":7\\r\\n", "the one that runs is kept");
    assert_eq!(store.interpreter.script_count(), 1);
}

#[test]
fn loaded_scripts_stay_and_are_refused_when_they_fill_their_share() {
    let mut store = Store::with_limits(
        Memory::default(),
        limits(|limits| {
            limits.evaluated_count_max = 2;
            limits.loaded_bytes_max = 1000;
        }),
    );
    let kept = store.interpreter.load_script(b"return 'kept'", Origin::Loaded).unwrap();
    store.eval("return 'evaluated, then loaded'");
    let second = b"return 'evaluated, then loaded'";
    let second = store.interpreter.load_script(second, Origin::Loaded).unwrap();
    for number in 0..20 {
        store.eval(format!("return {number}"));
    }
    assert!(store.interpreter.script_flags(&kept).is_some());
    assert!(store.interpreter.script_flags(&second).is_some());

    let long = format!("return '{}'", "x".repeat(1000));
    let refused = store.interpreter.load_script(long.as_bytes(), Origin::Loaded);
    assert_eq!(refused, Err(LoadError::CacheFull { limit: 1000 }));
    assert!(store.interpreter.load_script(long.as_bytes(), Origin::Evaluated).is_ok());
}

#[test]
fn loading_the_same_script_again_takes_no_room() {
    let mut store = Store::with_limits(
        Memory::default(),
        limits(|limits| {
            limits.loaded_bytes_max = 20;
        }),
    );
    for _ in 0..10 {
        store.interpreter.load_script(b"return 'same'", Origin::Loaded).unwrap();
    }
    assert_eq!(store.interpreter.script_bytes(), 13);
}

#[test]
fn nothing_is_started_before_the_first_script() {
    let store = Store::new(Memory::default());
    assert_eq!(store.interpreter.memory(), 0);
}

#[test]
fn the_interpreter_moves_between_threads() {
    let mut store = Store::new(Memory::default());
    assert_eq!(store.eval("return 1"), ":1\\r\\n");
    let mut interpreter = store.interpreter;
    let reply = std::thread::spawn(move || {
        let digest = Digest::of(b"return 1");
        let invocation = store_script::Invocation {
            keys: &[],
            arguments: &[],
            protocol: store_script::Protocol::Resp2,
        };
        let mut reply = Vec::new();
        interpreter.run_script(&digest, invocation, &mut Memory::default(), &mut reply);
        reply
    });
    assert_eq!(reply.join().unwrap(), b":1\r\n");
}
