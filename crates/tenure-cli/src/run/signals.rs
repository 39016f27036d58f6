//! The signals that people and service managers send to the wrapper.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll};

use nix::sys::signal::SigSet;
use rustix::process::{Signal, getpid};
use signal_hook::flag::{register, register_conditional_shutdown};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::exit::{self, Failure};

/// What this process was told to ignore when it was started, as bits of the system's mask: by
/// `nohup`, or by a shell that does not want its background jobs to hear Ctrl-C.
static IGNORED: OnceLock<u64> = OnceLock::new();

/// Whether each of [`FAREWELLS`] ends the first process, too.
static ENDS_FIRST_PROCESS: LazyLock<[Arc<AtomicBool>; FAREWELLS.len()]> =
    LazyLock::new(Default::default);

/// Has every signal arrive, whatever this process was started with: one that is blocked from the
/// start would never tell that a program has ended, or that this process is to end. To be called
/// before the first thread, because each has a mask of its own.
///
/// Programs and hooks are started with nothing blocked as well: their stop signal must arrive.
pub(crate) fn unblock() {
    // It cannot fail with a mask that is valid.
    let _ = SigSet::empty().thread_set_mask();
}

/// Makes a write beyond the limit of file sizes an error like that of a full disk: by default a
/// signal would end this process, and a log that has become too long would cost the leadership.
///
/// It is caught and not ignored: programs inherit only what is ignored.
pub(crate) fn survive_file_limit() {
    let number = Signal::XFSZ.as_raw();
    if !is_ignored(number) {
        // Where it cannot be caught, it ends this process as before.
        let _ = register(number, Arc::default());
    }
}

/// Makes the signals that end programs end this one at once until somebody listens to them, where
/// it is the first process of its namespace: the system lets that ignore them. Everybody else is
/// ended by them anyway.
pub(crate) fn end_at_once() -> Result<(), Failure> {
    if getpid().as_raw_nonzero().get() != 1 {
        return Ok(());
    }
    for (signal, condition) in FAREWELLS.iter().zip(ENDS_FIRST_PROCESS.iter()) {
        let number = signal.as_raw();
        if is_ignored(number) {
            continue;
        }
        condition.store(true, Ordering::Relaxed);
        let condition = Arc::clone(condition);
        let code = i32::from(exit::of_signal(number as u8));
        register_conditional_shutdown(number, code, condition).map_err(unheard)?;
    }
    Ok(())
}

/// Signals are read from here on, and end nobody by themselves.
pub(crate) fn somebody_listens() {
    FAREWELLS.into_iter().for_each(somebody_listens_to);
}

/// The same for one signal.
pub(crate) fn somebody_listens_to(signal: Signal) {
    let place = FAREWELLS.iter().position(|farewell| *farewell == signal);
    if let Some(place) = place {
        ENDS_FIRST_PROCESS[place].store(false, Ordering::Relaxed);
    }
}

fn unheard(error: io::Error) -> Failure {
    Failure::new(exit::NO, format!("cannot listen to signals: {error}"))
}

/// Signals on their way in: all but those that were ignored when this process was started. Those
/// are nobody's business, and the program inherits that.
///
/// A command listens once, before anything else, and whoever acts on signals borrows this value or
/// is handed it: with a second one, or a new one, a signal that nobody has read yet would be lost.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: Option<unix::Signal>,
    hang_up: Option<unix::Signal>,
    quit: Option<unix::Signal>,
    user_1: Option<unix::Signal>,
    user_2: Option<unix::Signal>,
    window: unix::Signal,
    /// It has continued this process, if it was stopped. A program that was stopped as well is not
    /// in its group.
    continued: unix::Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::open().map_err(unheard)
    }

    fn open() -> io::Result<Self> {
        let unless_ignored = |kind: SignalKind| {
            let is_ignored = is_ignored(kind.as_raw_value());
            (!is_ignored).then(|| signal(kind)).transpose()
        };
        let signals = Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: unless_ignored(SignalKind::interrupt())?,
            hang_up: unless_ignored(SignalKind::hangup())?,
            quit: unless_ignored(SignalKind::quit())?,
            user_1: unless_ignored(SignalKind::user_defined1())?,
            user_2: unless_ignored(SignalKind::user_defined2())?,
            window: signal(SignalKind::window_change())?,
            continued: signal(SignalKind::from_raw(Signal::CONT.as_raw()))?,
        };
        somebody_listens();
        Ok(signals)
    }

    /// The next signal, whichever it is.
    pub(super) async fn next(&mut self) -> Signal {
        // A stream of signals never ends, so the pattern always matches.
        tokio::select! {
            Some(()) = self.terminate.recv() => Signal::TERM,
            () = heard(&mut self.interrupt) => Signal::INT,
            () = heard(&mut self.hang_up) => Signal::HUP,
            () = heard(&mut self.quit) => Signal::QUIT,
            () = heard(&mut self.user_1) => Signal::USR1,
            () = heard(&mut self.user_2) => Signal::USR2,
            Some(()) = self.window.recv() => Signal::WINCH,
            Some(()) = self.continued.recv() => Signal::CONT,
        }
    }

    /// The next signal that ends somebody who only waits.
    pub(crate) async fn next_farewell(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if is_farewell(signal) {
                return signal;
            }
        }
    }

    /// The next farewell if it has come, as far as the system has told this process.
    pub(crate) async fn unread_farewell(&mut self) -> Option<Signal> {
        // The runtime asks the system before it goes on.
        tokio::task::yield_now().await;
        poll_fn(|context| Poll::Ready(self.poll_farewell(context))).await
    }

    /// The same for somebody who polls: the next farewell, or a call when there is one.
    pub(crate) fn poll_farewell(&mut self, context: &mut Context<'_>) -> Option<Signal> {
        match pin!(self.next_farewell()).poll(context) {
            Poll::Ready(signal) => Some(signal),
            Poll::Pending => None,
        }
    }
}

/// By what people and service managers end programs.
const FAREWELLS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

pub(crate) fn is_farewell(signal: Signal) -> bool {
    FAREWELLS.contains(&signal)
}

async fn heard(signal: &mut Option<unix::Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// Whether a signal was ignored when this process was started. Read once, before the first signal
/// is caught, which would change it.
fn is_ignored(number: i32) -> bool {
    IGNORED.get_or_init(ignored_signals) & 1 << (number - 1) != 0
}

/// None where it cannot be read.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
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
