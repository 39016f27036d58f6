//! Exit codes, and the one line that goes with each that is not a success.
//!
//! A program that was run gives its own code. The others are those of `sysexits.h` and of shells,
//! so that scripts and orchestrators know them already.

use std::process::ExitCode;

use tenure::core::StoreError;

/// The answer is no: nobody leads, refused, not done.
pub(crate) const NO: u8 = 1;
/// The words of the command line do not make sense.
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached, or does not answer.
pub(crate) const UNREACHABLE: u8 = 69;
/// What was waited for did not happen in time.
pub(crate) const TIMED_OUT: u8 = 75;
/// A configuration, address or login that cannot work until a person changes it.
pub(crate) const CONFIGURATION: u8 = 78;

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

    /// Says it on stderr.
    pub(crate) fn tell(&self) -> ExitCode {
        crate::output::talk(&self.message);
        ExitCode::from(self.code)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::new(NO, format!("{error:#}"))
    }
}

impl From<tenure::Error> for Failure {
    fn from(error: tenure::Error) -> Self {
        use tenure::Error as E;
        let code = match &error {
            E::Name(_) => USAGE,
            E::Timing(_) | E::Config(_) | E::Setting { .. } | E::Connect(_) => CONFIGURATION,
            E::Conflict { .. } => CONFIGURATION,
            E::Store(StoreError::Denied(_)) => CONFIGURATION,
            E::Store(_) => UNREACHABLE,
            E::TimedOut { .. } => TIMED_OUT,
            _ => NO,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<tenure::config::ConfigError> for Failure {
    fn from(error: tenure::config::ConfigError) -> Self {
        Failure::from(tenure::Error::from(error))
    }
}
