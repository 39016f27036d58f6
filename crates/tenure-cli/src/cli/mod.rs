//! `tenure cli`: a client for our store, Redis and Valkey.
//!
//! ```text
//! words + environment ─► target ─► connection ─► stream
//!            └─► one_shot | interactive | bulk | look ─► client ─► format ─► standard output
//! ```

mod args;
mod bulk;
mod client;
mod clock;
mod command_docs;
mod connection;
mod error;
mod format;
mod frame;
mod interactive;
mod logged_in;
mod look;
mod one_shot;
mod progress;
mod stream;
mod target;
mod terminal;

use std::io::IsTerminal;
use std::process::ExitCode;

pub(crate) use args::Arguments;
use client::{Client, Redirections, RequestOutcome};
use error::ClientError;
use format::Form;
pub(crate) use logged_in::LoggedInConnection;
use target::Target;

/// Does what the words say; the exit code tells how it went.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match dispatch(arguments) {
        Ok(RequestOutcome::Fine) => ExitCode::SUCCESS,
        Ok(RequestOutcome::ErrorReply) => ExitCode::FAILURE,
        // Whoever read our output had enough of it.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tenure cli: {error}");
            error.exit_code()
        }
    }
}

/// No command begins with a dash, so a first word that does is an option that we do not have.
fn refuse_unknown_options(arguments: &Arguments) -> Result<(), ClientError> {
    let first = arguments.command.first().map(|word| word.to_string_lossy());
    match first.filter(|word| word.starts_with('-')) {
        None => Ok(()),
        Some(word) => {
            let word = crate::output::plain(&word);
            Err(ClientError::Usage(format!("unknown option '{word}' (see tenure cli --help)")))
        }
    }
}

fn dispatch(arguments: &Arguments) -> Result<RequestOutcome, ClientError> {
    refuse_unknown_options(arguments)?;
    let target = Target::from(arguments)?;
    let work = &arguments.work;
    if work.pipe {
        return bulk::run(&target, work);
    }
    let mut client = Client::new(target, Form::of(&arguments.shape));
    if arguments.cluster {
        client.redirections = Redirections::Followed;
    }
    if work.scan {
        return look::scan(&mut client, work);
    }
    if work.latency {
        return look::latency(&mut client, work);
    }
    if work.stat {
        return look::stat(&mut client, work);
    }
    let has_command = !arguments.command.is_empty() || work.last_from_stdin;
    if has_command || work.eval.is_some() {
        return one_shot::run_command(&mut client, arguments);
    }
    if arguments.cluster {
        client.redirections = Redirections::FollowedAndTold;
    }
    if std::io::stdin().is_terminal() {
        return interactive::run(client);
    }
    one_shot::run_lines(&mut client)
}
