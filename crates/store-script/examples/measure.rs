//! Prints what scripts cost: starting the machine, and calls of small scripts by their digest.
//!
//! `cargo run --release -p store-script --example measure`
#![allow(clippy::disallowed_methods, reason = "a clock is what this is about")]

use std::time::{Duration, Instant};

use store_script::{
    AclAnswer, Digest, Host, Interpreter, Invocation, Limits, LogLevel, Origin, Protocol,
    Replication, Tick,
};

/// Answers every command at once, so that only the scripting is measured.
struct Instantly;

impl Host for Instantly {
    fn call(&mut self, _: &[&[u8]], _: Protocol, reply: &mut Vec<u8>) {
        reply.extend_from_slice(b"$5\r\nvalue\r\n");
    }

    fn acl_check(&mut self, _: &[&[u8]]) -> AclAnswer {
        AclAnswer::Allowed
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&mut self, _: Replication) {}

    fn tick(&mut self) -> Tick {
        Tick::Continue
    }
}

const CALLS: u32 = 100_000;
const ROUNDS: u32 = 5;

fn main() {
    let start = (0..20).map(|_| time(|| drop(started()))).min().unwrap_or_default();
    println!("start, with a first script   {start:>10.1?}");
    println!("memory once started          {:>7} KiB", started().0.memory() / 1024);

    let scripts: [(&str, &[u8]); 6] = [
        ("return 1", b"return 1"),
        ("return redis.call('GET')", b"return redis.call('GET', KEYS[1])"),
        (
            "compare and set",
            b"if redis.call('GET', KEYS[1]) == ARGV[1] then \
           return redis.call('SET', KEYS[1], ARGV[2]) else return 0 end",
        ),
        ("100 calls", b"for i = 1, 100 do redis.call('GET', KEYS[1]) end return 1"),
        (
            "cjson there and back",
            b"return #cjson.encode(cjson.decode(\
           '{\"id\":17,\"tags\":[\"a\",\"b\"],\"x\":1.5}'))",
        ),
        ("10,000 turns of a loop", b"local n = 0 for i = 1, 10000 do n = n + i end return n"),
    ];
    for (name, code) in scripts {
        let (mut interpreter, _) = started();
        let digest = interpreter.load_script(code, Origin::Loaded).expect("valid Lua");
        let calls = if name.starts_with('1') { CALLS / 100 } else { CALLS };
        let best = (0..ROUNDS)
            .map(|_| time(|| (0..calls).for_each(|_| run(&mut interpreter, &digest))))
            .min()
            .unwrap_or_default();
        println!("{name:<28} {:>10.2} µs", best.as_secs_f64() * 1e6 / f64::from(calls));
    }
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn started() -> (Interpreter, Digest) {
    let mut interpreter = Interpreter::new(Limits::default());
    let digest = interpreter.load_script(b"return 1", Origin::Evaluated).expect("valid Lua");
    run(&mut interpreter, &digest);
    (interpreter, digest)
}

fn run(interpreter: &mut Interpreter, digest: &Digest) {
    let (keys, arguments): ([&[u8]; 1], [&[u8]; 2]) = ([b"key"], [b"value", b"other"]);
    let invocation = Invocation { keys: &keys, arguments: &arguments, protocol: Protocol::Resp2 };
    let mut reply = Vec::new();
    interpreter.run_script(digest, invocation, &mut Instantly, &mut reply).expect("it is kept");
    std::hint::black_box(reply);
}
