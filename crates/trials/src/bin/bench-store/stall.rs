//! How long others wait while very many keys are inserted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::RedisServer;
use trials::clock;

use crate::report::Figures;
use crate::servers::{Expiry, PerSide, Side, info, insert, start};
use crate::{Result, Scale};

const TURN_MS_MAX: f64 = 5.0;
/// How often the second connection asks.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    let mut longest_turn_ms = 0.0;
    let waits = PerSide::measure(|side| {
        let server = start(side)?;
        let wait_ms = longest_wait_ms_during(&server, || {
            insert(&server, 0..scale.stall_keys, Expiry::Never)
        })?;
        if side == Side::Ours {
            longest_turn_ms = info(&server, "stats", "tenure_longest_turn_usec")? / 1e3;
        }
        Ok(wait_ms)
    })?;
    let what = format!("inserting {} keys: longest turn, thread CPU time", scale.stall_keys);
    figures.must(&what, (longest_turn_ms, "ms"), "not told".to_owned(), TURN_MS_MAX);
    let what = "the same: longest wait of a second connection, wall clock";
    figures.note(what, format!("{:.2} ms", waits.ours), format!("{:.2} ms", waits.theirs));
    Ok(())
}

/// How long a second connection waits for an answer at most while `work` is done.
pub(crate) fn longest_wait_ms_during(
    server: &RedisServer,
    work: impl FnOnce() -> Result,
) -> Result<f64> {
    let done = AtomicBool::new(false);
    let mut connection = TcpStream::connect(("127.0.0.1", server.port()))?;
    connection.set_nodelay(true)?;
    let longest = std::thread::scope(|scope| {
        let asker = scope.spawn(|| longest_ping(&mut connection, &done));
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let longest = asker.join().expect("the asker does not panic")?;
        worked.map(|()| longest)
    })?;
    Ok(longest.as_secs_f64() * 1e3)
}

fn longest_ping(connection: &mut TcpStream, done: &AtomicBool) -> std::io::Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut reply = [0; b"+PONG\r\n".len()];
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        let asked_at = clock::now();
        connection.write_all(b"PING\r\n")?;
        connection.read_exact(&mut reply)?;
        longest = longest.max(clock::now().since(asked_at));
    }
    Ok(longest)
}
