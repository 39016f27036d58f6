//! How long others wait while much is removed at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use testkit::RedisServer;

use crate::Result;
use crate::report::Figures;
use crate::servers::{Expiry, PerSide, Side, info, insert, start};
use crate::stall::longest_wait_ms_during;

const MEMBERS: usize = 1_000_000;
const KEYS: usize = 1_000_000;
const TURN_MS_MAX: f64 = 5.0;

pub(crate) fn measure(figures: &mut Figures) -> Result {
    let what = format!("UNLINK of a set of {MEMBERS}");
    tell(figures, &what, fill, |server| {
        server.cli(&["UNLINK", "big"]);
        Ok(())
    })?;
    let what = format!("half of {KEYS} keys evicted after CONFIG SET maxmemory");
    tell(figures, &what, |server| insert(server, 0..KEYS, Expiry::Never), halve)
}

/// Measures how long others wait while `work` is done, after `prepare`.
fn tell(
    figures: &mut Figures,
    what: &str,
    prepare: impl Fn(&RedisServer) -> Result,
    work: impl Fn(&RedisServer) -> Result,
) -> Result {
    let mut longest_turn_ms = 0.0;
    let waits = PerSide::measure(|side| {
        let server = start(side)?;
        prepare(&server)?;
        server.cli(&["CONFIG", "RESETSTAT"]);
        let wait_ms = longest_wait_ms_during(&server, || work(&server))?;
        if side == Side::Ours {
            longest_turn_ms = info(&server, "stats", "tenure_longest_turn_usec")? / 1e3;
        }
        Ok(wait_ms)
    })?;
    let turn = format!("{what}: longest turn, thread CPU time");
    figures.must(&turn, (longest_turn_ms, "ms"), "not told".to_owned(), TURN_MS_MAX);
    let what = "the same: longest wait of a second connection, wall clock";
    figures.note(what, format!("{:.2} ms", waits.ours), format!("{:.2} ms", waits.theirs));
    Ok(())
}

/// Allows half of what is in use, and waits until the rest is gone.
fn halve(server: &RedisServer) -> Result {
    let memory_max = (info(server, "memory", "used_memory")? / 2.0) as usize;
    let memory_max = memory_max.to_string();
    let policy = "maxmemory-policy";
    server.cli(&["CONFIG", "SET", "maxmemory", &memory_max, policy, "allkeys-lru"]);
    while info(server, "stats", "current_eviction_exceeded_time")? > 0.0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn fill(server: &RedisServer) -> Result {
    const STEP: usize = 1000;
    let mut stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    let reply = format!(":{STEP}\r\n");
    let mut seen = vec![0; reply.len()];
    for first in (0..MEMBERS).step_by(STEP) {
        let mut request = format!("*{}\r\n$4\r\nSADD\r\n$3\r\nbig\r\n", STEP + 2);
        for number in first..first + STEP {
            request.push_str(&format!("$14\r\nmember:{number:07}\r\n"));
        }
        stream.write_all(request.as_bytes())?;
        stream.read_exact(&mut seen)?;
        if seen != reply.as_bytes() {
            return Err(format!("SADD: {}", String::from_utf8_lossy(&seen)).into());
        }
    }
    Ok(())
}
