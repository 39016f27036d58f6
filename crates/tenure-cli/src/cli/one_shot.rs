//! Commands from the command line, from a file of lines, or a script.

use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use store_resp::split_quoted;

use super::args::Arguments;
use super::client::{Client, RequestOutcome};
use super::error::ClientError;

/// Longest wait between repetitions: a day, so that a typing error does not overflow.
const INTERVAL_MAX: f64 = 86_400.0;

/// Runs the command of the words, as often as they say.
pub(super) fn run_command(
    client: &mut Client,
    arguments: &Arguments,
) -> Result<RequestOutcome, ClientError> {
    let mut words: Vec<Vec<u8>> =
        arguments.command.iter().map(|word| word.as_bytes().to_vec()).collect();
    if arguments.work.last_from_stdin {
        let mut last = Vec::new();
        std::io::stdin().read_to_end(&mut last).map_err(ClientError::Local)?;
        words.push(last);
    }
    if let Some(path) = &arguments.work.eval {
        words = script(path, &words)?;
    }
    let interval = pause(arguments.work.interval);
    let mut outcome = RequestOutcome::Fine;
    let mut left = arguments.work.repeat;
    while left != 0 {
        if client.run(&words)? == RequestOutcome::ErrorReply {
            outcome = RequestOutcome::ErrorReply;
        }
        left -= i64::from(left > 0);
        if left != 0 {
            thread::sleep(interval);
        }
    }
    Ok(outcome)
}

/// The wait between repetitions.
pub(super) fn pause(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, INTERVAL_MAX)).unwrap_or_default()
}

/// `EVAL` with the file's text; a comma alone parts keys from arguments.
fn script(path: &Path, words: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ClientError> {
    let text = std::fs::read(path).map_err(|error| {
        ClientError::Usage(format!("--eval: cannot read {}: {error}", path.display()))
    })?;
    let comma = words.iter().position(|word| word == b",");
    let (keys, arguments) = match comma {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (words, &[][..]),
    };
    let head = [b"EVAL".to_vec(), text, keys.len().to_string().into_bytes()];
    Ok([&head, keys, arguments].concat())
}

/// Runs the lines of standard input, one command each. An error does not stop the rest.
pub(super) fn run_lines(client: &mut Client) -> Result<RequestOutcome, ClientError> {
    let mut outcome = RequestOutcome::Fine;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(ClientError::Local)? == 0 {
            break;
        }
        let words = split_quoted(&line);
        match words {
            Some(words) if words.is_empty() => {}
            Some(words) if words[0].eq_ignore_ascii_case(b"quit") => break,
            Some(words) => {
                if client.run(&words)? == RequestOutcome::ErrorReply {
                    outcome = RequestOutcome::ErrorReply;
                }
            }
            None => {
                eprintln!("tenure cli: line {number}: a quote does not close");
                outcome = RequestOutcome::ErrorReply;
            }
        }
    }
    Ok(outcome)
}
