//! The process of the local store: it serves while it is used, then leaves.

use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use store_server::{LogLevel, Server};

use super::ask::other_clients;
use super::lock::Lock;
use super::place::Place;
use crate::exit::{self, Failure};
use crate::log_line;

/// How many looks make up the idle time: it may last this much of it longer.
const LOOKS_PER_IDLE: u32 = 10;
/// A client that has just found the socket gets this long to be counted.
const LAST_CALL: Duration = Duration::from_millis(100);

/// Serves until nobody has been connected for `idle`, or until told to end.
pub(super) fn serve(place: &Place, idle: Duration) -> Result<(), Failure> {
    let _ = rustix::process::setsid();
    let server = start(place)?;
    let failed = |error: std::io::Error| Failure::new(exit::NO, format!("local store: {error}"));
    let mut ear = server.connect().map_err(failed)?;
    let ends = endings(&server).map_err(failed)?;
    serve_while_used(place, &ends, idle, &mut ear);
    let stopper = server.stopper();
    stopper.stop();
    server.wait().map_err(failed)?;
    let _ = fs::remove_file(place.socket());
    // Only now is everything on disk; whoever starts the next store may rely on it.
    fs::remove_file(place.running()).map_err(failed)
}

fn start(place: &Place) -> Result<Server, Failure> {
    let builder = Server::builder().persist(&place.state).unix_socket(place.socket()).log(log);
    builder.start().map_err(|error| Failure::new(exit::NO, format!("local store: {error}")))
}

fn log(level: LogLevel, text: &str) {
    println!("{}", log_line::format(level, text));
}

/// Something comes here when the store is to end: a signal, or SHUTDOWN by a client.
fn endings(server: &Server) -> std::io::Result<Receiver<()>> {
    let (end, ends) = channel();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let on_signal = end.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let _ = on_signal.send(());
        }
    });
    // A connection that ends tells that the server has: nobody else ends this one.
    let mut watch = server.connect()?;
    std::thread::spawn(move || {
        let _ = std::io::Read::read(&mut watch, &mut [0]);
        let _ = end.send(());
    });
    Ok(ends)
}

fn serve_while_used(place: &Place, ends: &Receiver<()>, idle: Duration, ear: &mut UnixStream) {
    let mut quiet_looks = 0;
    loop {
        match ends.recv_timeout(idle / LOOKS_PER_IDLE) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        match is_unused(ear) {
            true => quiet_looks += 1,
            false => quiet_looks = 0,
        }
        if quiet_looks >= LOOKS_PER_IDLE && may_leave(place, ear) {
            log(LogLevel::Notice, "Nobody has been here for a while, leaving");
            return;
        }
    }
}

/// Whether nobody but this process is connected: the ear, and the watch for the end.
fn is_unused(ear: &mut UnixStream) -> bool {
    other_clients(ear).is_ok_and(|others| others <= 1)
}

/// Hides the socket, so that nobody new comes in, and looks once more. Somebody who came at the
/// last moment gets it back. Whoever wants to start a store waits for the lock meanwhile.
fn may_leave(place: &Place, ear: &mut UnixStream) -> bool {
    let Some(lock) = Lock::try_take(&place.lock()) else { return false };
    let hidden = place.socket().with_extension("leaving");
    if fs::rename(place.socket(), &hidden).is_err() {
        return false;
    }
    std::thread::sleep(LAST_CALL);
    if is_unused(ear) {
        let _ = fs::remove_file(&hidden);
        // Kept until the process has ended: the next store must not meet the files of this one.
        lock.keep();
        return true;
    }
    let _ = fs::rename(&hidden, place.socket());
    false
}
