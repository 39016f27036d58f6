//! How long others wait while a value of a million members goes.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::RedisServer;

use crate::Outcome;
use crate::report::Figures;
use crate::servers::{PerSide, Side, info, start};
use crate::stall::longest_wait_ms_during;

const MEMBERS: usize = 1_000_000;
const TURN_MS_MAX: f64 = 5.0;

pub(crate) fn measure(figures: &mut Figures) -> Outcome {
    let mut longest_turn_ms = 0.0;
    let waits = PerSide::measure(|side| {
        let server = start(side)?;
        fill(&server)?;
        server.cli(&["CONFIG", "RESETSTAT"]);
        let wait_ms = longest_wait_ms_during(&server, || {
            server.cli(&["UNLINK", "big"]);
            Ok(())
        })?;
        if side == Side::Ours {
            longest_turn_ms = info(&server, "stats", "tenure_longest_turn_usec")? / 1e3;
        }
        Ok(wait_ms)
    })?;
    let what = format!("UNLINK of a set of {MEMBERS}: longest turn, thread CPU time");
    figures.must(&what, (longest_turn_ms, "ms"), "not told".to_owned(), TURN_MS_MAX);
    let what = "the same: longest wait of a second connection, wall clock";
    figures.note(what, format!("{:.2} ms", waits.ours), format!("{:.2} ms", waits.theirs));
    Ok(())
}

fn fill(server: &RedisServer) -> Outcome {
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
