//! `tenure lock`: a program that runs while a lock is held, once.
//!
//! A lock is the election of its name in which whoever leads runs one program and leaves. So this
//! is `tenure run` with other defaults, and words of its own where they differ.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use super::{ChildOptions, ElectionOptions, Purpose, duration};
use crate::exit::Failure;
use crate::logging::LogOptions;
use crate::store_options::Target;

/// Run a program once, while this instance holds a lock.
///
/// Waits for the lock, runs the program, releases the lock and passes on the exit code. The lease
/// of the lock is renewed for as long as the program runs. If it cannot be renewed in time, or an
/// operator clears it, the program is stopped before anybody else can get the lock, and the exit
/// code is that of --loss-code.
///
/// The lock is the election of the same name: an instance of `tenure run NAME` and a holder of the
/// lock exclude each other, and `tenure who NAME` tells who holds it.
///
/// The program finds TENURE_NAME, TENURE_ID, TENURE_TOKEN and TENURE_TTL_MS in its environment.
/// Only a token that the resource itself checks keeps a late write out.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure lock migrations --store redis://redis.internal -- ./migrate up
  tenure lock backup --no-wait -- ./backup || [ $? = 75 ]   # another one runs: fine
  tenure lock invoices --wait-timeout 30s --ttl 5s -- sh -c './post --fence $TENURE_TOKEN'")]
pub(crate) struct Arguments {
    /// Do not wait: exit with 75 if the lock is not granted at once, or with 69 if the store cannot
    /// be reached.
    #[arg(long, conflicts_with = "wait_timeout")]
    no_wait: bool,
    /// Exit after waiting this long for the lock: with 75, or with 69 while the store cannot be
    /// reached. Waits without end by default.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait_timeout: Option<Duration>,
    /// The exit code if the lock is lost while the program runs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    loss_code: u8,
    /// The program and its arguments.
    #[arg(index = 2, last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    election: ElectionOptions,
    #[command(flatten)]
    child: ChildOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    super::run(arguments.into())
}

impl From<Arguments> for super::Arguments {
    fn from(lock: Arguments) -> Self {
        super::Arguments {
            on_loss: Some("exit".to_owned()),
            loss_code: lock.loss_code,
            wait_timeout: lock.wait_timeout,
            health_cmd: None,
            // Of no effect without a command.
            health_every: Duration::from_secs(5),
            http: None,
            command: lock.command,
            target: lock.target,
            election: lock.election,
            child: lock.child,
            log: lock.log,
            purpose: if lock.no_wait { Purpose::LockAtOnce } else { Purpose::Lock },
        }
    }
}
