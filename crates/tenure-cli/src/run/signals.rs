//! The signals that people and service managers send to the wrapper.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::exit::Failure;

/// Signals on their way in. Each value of this type hears all of them.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    quit: unix::Signal,
    user_1: unix::Signal,
    user_2: unix::Signal,
    window: unix::Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::open().map_err(|error| Failure::new(1, format!("cannot listen to signals: {error}")))
    }

    fn open() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
            window: signal(SignalKind::window_change())?,
        })
    }

    /// The next signal, whichever it is.
    pub(super) async fn next(&mut self) -> Signal {
        // A stream of signals never ends, so the pattern always matches.
        tokio::select! {
            Some(()) = self.terminate.recv() => Signal::TERM,
            Some(()) = self.interrupt.recv() => Signal::INT,
            Some(()) = self.hang_up.recv() => Signal::HUP,
            Some(()) = self.quit.recv() => Signal::QUIT,
            Some(()) = self.user_1.recv() => Signal::USR1,
            Some(()) = self.user_2.recv() => Signal::USR2,
            Some(()) = self.window.recv() => Signal::WINCH,
            else => std::future::pending().await,
        }
    }

    /// The next signal that ends somebody who only waits.
    pub(crate) async fn next_farewell(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].contains(&signal) {
                return signal;
            }
        }
    }
}

/// Reads `TERM`, `SIGTERM` or `15`.
pub(crate) fn parse(text: &str) -> Result<Signal, String> {
    const NAMES: [(&str, Signal); 10] = [
        ("TERM", Signal::TERM),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("KILL", Signal::KILL),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
        ("ABRT", Signal::ABORT),
        ("ALRM", Signal::ALARM),
    ];
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let by_number = |signal: &Signal| text.parse() == Ok(signal.as_raw());
    let found = NAMES.iter().find(|(name, signal)| *name == bare || by_number(signal));
    found.map(|(_, signal)| *signal).ok_or_else(|| {
        let names = NAMES.map(|(name, _)| name).join(", ");
        format!("there is no such signal here: write one of {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_named_in_any_of_the_usual_ways() {
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse(text), Ok(Signal::TERM), "{text}");
        }
        assert!(parse("TREM").unwrap_err().contains("write one of TERM"));
        assert!(parse("").is_err());
    }
}
