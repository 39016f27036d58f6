//! Exit codes, and the one line that goes with each that is not a success.
//!
//! A program that was run gives its own code. The others are those of `sysexits.h` and of shells,
//! so that scripts and orchestrators know them already.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tenure::StoreErrorKind;
use tenure::config::{Origin, Problem};
use tenure_core::text::escaped_json;

use crate::logging::Level;

/// The answer is no: nobody leads, refused, not done.
pub(crate) const NO: u8 = 1;
/// The words of the command line do not make sense.
pub(crate) const USAGE: u8 = 64;
/// A file is damaged.
pub(crate) const DAMAGED: u8 = 65;
/// A file is not there, or cannot be read.
pub(crate) const NO_INPUT: u8 = 66;
/// The store cannot be reached, or does not answer.
pub(crate) const UNREACHABLE: u8 = 69;
/// A file or folder cannot be written.
pub(crate) const CANNOT_WRITE: u8 = 73;
/// What was waited for did not happen in time.
pub(crate) const TIMED_OUT: u8 = 75;
/// A configuration, address or login that cannot work until a person changes it.
pub(crate) const CONFIGURATION: u8 = 78;

/// A program that is there but cannot be executed, as shells say it.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// A program that is not there, as shells say it.
pub(crate) const NOT_FOUND: u8 = 127;

/// The code of somebody who ended by a signal, as shells say it.
pub(crate) fn of_signal(signal: u8) -> u8 {
    128_u8.saturating_add(signal)
}

/// Whether errors are told as JSON.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Has errors told as JSON from now on: whoever reads results as JSON reads these, too.
pub(crate) fn tell_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Why a command did not do what it was asked for: one line for people, one code for scripts.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Names the thing and the next step.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Failure { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::new(USAGE, message)
    }

    /// Says it on stderr: as one line of JSON where JSON was asked for.
    pub(crate) fn tell(&self) -> ExitCode {
        match AS_JSON.load(Ordering::Relaxed) {
            true => {
                let json = json!({ "error": self.message, "code": self.code }).to_string();
                eprintln!("{}", escaped_json(&json));
            }
            false => crate::output::say(Level::Error, &self.message),
        }
        ExitCode::from(self.code)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::new(NO, with_causes(&error))
    }
}

/// What went wrong, and why. A cause that the text before it repeats is told once.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

impl From<tenure::Error> for Failure {
    fn from(error: tenure::Error) -> Self {
        use tenure::Error as E;
        let code = match &error {
            E::Name(_) => USAGE,
            E::Config(error) if error.problems().iter().all(is_of_a_flag) => USAGE,
            E::Timing(_) | E::Config(_) | E::Setting { .. } | E::Connect(_) => CONFIGURATION,
            E::Conflict { .. } => CONFIGURATION,
            // A login or an address has to be changed first. A replica may be promoted and a
            // sentinel be told of its master, but whoever asks once named the wrong one.
            E::Store(error) if error.kind() == StoreErrorKind::WrongNode => CONFIGURATION,
            E::Store(error) if !error.is_temporary() => CONFIGURATION,
            E::Store(_) => UNREACHABLE,
            E::TimedOut { .. } => TIMED_OUT,
            _ => NO,
        };
        Failure::new(code, error.to_string())
    }
}

/// Whether what is wrong stands on the command line.
fn is_of_a_flag(problem: &Problem) -> bool {
    matches!(problem.origin(), Some(Origin::Argument(_)))
}

impl From<tenure::config::ConfigError> for Failure {
    fn from(error: tenure::config::ConfigError) -> Self {
        Failure::from(tenure::Error::from(error))
    }
}
