//! Commands from a person: a line at a time, with history, completion and hints.

mod editor;
mod help;
mod history;
mod secrecy;

use std::time::Duration;

use rustyline::error::ReadlineError;
use store_resp::split_quoted;

use self::editor::Editor;
use super::client::{Client, RequestOutcome, print};
use super::clock::Stopwatch;
use super::command_docs::CommandDocs;
use super::error::ClientError;
use super::format::Form;
use super::terminal::Interrupt;

/// A command that took longer says how long, as in redis-cli.
const WORTH_TELLING: Duration = Duration::from_millis(500);
/// A number before a command repeats it, up to this often.
const REPEAT_MAX: u64 = 1_000_000;

/// Reads and runs commands until the person has enough.
pub(super) fn run(mut client: Client) -> Result<RequestOutcome, ClientError> {
    client.interrupt = Some(Interrupt::listen().map_err(ClientError::Local)?);
    let docs = open(&mut client);
    let mut editor = Editor::new(docs).map_err(unusable)?;
    loop {
        match editor.read(&prompt(&client)) {
            Ok(line) => {
                if converse(&mut client, &mut editor, &line)? == Wish::Leave {
                    return Ok(RequestOutcome::Fine);
                }
            }
            // At the prompt, Ctrl-C leaves as in redis-cli, and so does Ctrl-D on an empty line.
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => {
                return Ok(RequestOutcome::Fine);
            }
            Err(error) => return Err(unusable(error)),
        }
    }
}

fn unusable(error: ReadlineError) -> ClientError {
    ClientError::Local(std::io::Error::other(format!("the terminal cannot be used: {error}")))
}

/// Connects and learns the server's commands. A server that is not there may come yet.
fn open(client: &mut Client) -> CommandDocs {
    let mut docs = CommandDocs::built_in();
    let reply = client.connection().and_then(|connection| connection.ask(&["COMMAND", "DOCS"]));
    match reply {
        Ok(reply) => docs.learn(&reply),
        Err(error) => {
            client.disconnect();
            eprintln!("{error}");
        }
    }
    docs
}

/// `127.0.0.1:6379[3](TX)> `
fn prompt(client: &Client) -> String {
    if !client.is_connected() {
        return "not connected> ".to_owned();
    }
    let name = client.target.name();
    let database = match client.target.login.database {
        0 => String::new(),
        number => format!("[{number}]"),
    };
    let transaction = if client.in_transaction { "(TX)" } else { "" };
    format!("{name}{database}{transaction}> ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Stay,
    Leave,
}

fn converse(client: &mut Client, editor: &mut Editor, line: &str) -> Result<Wish, ClientError> {
    let Some(mut words) = split_quoted(line.as_bytes()) else {
        editor.remember(line, None);
        print(b"Invalid argument(s): a quote does not close\n")?;
        return Ok(Wish::Stay);
    };
    if words.is_empty() {
        return Ok(Wish::Stay);
    }
    let times = repetitions(&mut words);
    editor.remember(line, Some(&words));
    match words[0].to_ascii_lowercase().as_slice() {
        b"quit" | b"exit" => return Ok(Wish::Leave),
        b"clear" if words.len() == 1 => print(b"\x1b[H\x1b[2J")?,
        b"help" | b"?" => print(help::about(editor.docs(), &words[1..]).as_bytes())?,
        b"connect" if words.len() == 3 => connect(client, &words),
        _ => {
            for _ in 0..times {
                attempt(client, &words)?;
            }
        }
    }
    Ok(Wish::Stay)
}

/// `5 PING` pings five times.
fn repetitions(words: &mut Vec<Vec<u8>>) -> u64 {
    let number = std::str::from_utf8(&words[0]).ok().and_then(|word| word.parse::<u64>().ok());
    match number {
        Some(times) if words.len() > 1 && (1..=REPEAT_MAX).contains(&times) => {
            words.remove(0);
            times
        }
        _ => 1,
    }
}

/// Runs one command; whatever goes wrong with the store is told, and the dialogue goes on.
fn attempt(client: &mut Client, words: &[Vec<u8>]) -> Result<(), ClientError> {
    if let Some(interrupt) = &client.interrupt {
        interrupt.clear();
    }
    let was_in_transaction = client.in_transaction;
    if client.notice_loss() {
        let place = client.target.name();
        let gone = if was_in_transaction { " The transaction was discarded." } else { "" };
        eprintln!("(the connection was lost; connecting to {place} again.{gone})");
    }
    let watch = Stopwatch::start();
    match client.run(words) {
        Ok(_) => {}
        Err(ClientError::Interrupted) => {
            eprintln!("(interrupted by Ctrl-C; connected again)");
            reconnect(client);
        }
        Err(error @ ClientError::Lost(_)) => {
            eprintln!("Error: {error}");
            reconnect(client);
        }
        Err(error @ ClientError::Local(_)) => return Err(error),
        Err(error) => eprintln!("Error: {error}"),
    }
    let elapsed = watch.reading();
    if elapsed >= WORTH_TELLING && client.form == Form::Readable {
        print(format!("({:.2}s)\n", elapsed.as_secs_f64()).as_bytes())?;
    }
    Ok(())
}

/// Tries once; the prompt says whether it went well.
fn reconnect(client: &mut Client) {
    if let Err(error) = client.connection() {
        client.disconnect();
        eprintln!("{error}");
    }
}

fn connect(client: &mut Client, words: &[Vec<u8>]) {
    let text = |at: usize| String::from_utf8_lossy(&words[at]).into_owned();
    let Ok(port) = text(2).parse() else {
        return eprintln!("Error: {:?} is not a port", text(2));
    };
    client.target.place = tenure::backend::redis::Endpoint::Tcp { host: text(1), port, tls: None };
    client.disconnect();
    reconnect(client);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_before_a_command_repeats_it() {
        let of = |line: &str| {
            let mut words = split_quoted(line.as_bytes()).unwrap();
            (repetitions(&mut words), words.len())
        };
        assert_eq!(of("3 PING"), (3, 1));
        assert_eq!(of("PING 3"), (1, 2));
        assert_eq!(of("3"), (1, 1));
        assert_eq!(of("0 PING"), (1, 2));
        assert_eq!(of("99999999999 PING"), (1, 2));
    }
}
