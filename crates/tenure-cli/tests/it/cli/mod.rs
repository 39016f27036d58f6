//! `tenure cli` against our own store and a real redis-server.

mod bulk;
mod cluster;
mod interactive;
mod one_shot;
mod same_output;
pub(crate) mod terminal;
mod tls;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use testkit::{RedisServer, RedisServerBuilder, ServerProgram};

/// The program under test.
const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// `tenure serve` with nothing special about it.
pub(crate) fn our_store() -> RedisServerBuilder {
    RedisServer::builder().program(ServerProgram::new(TENURE).arg("serve"))
}

/// Our store and redis-server, one after the other.
fn both_stores() -> [RedisServer; 2] {
    [our_store().start(), RedisServer::start()]
}

/// `tenure cli` with these words, in an environment that says nothing of stores.
fn tenure_cli(words: &[&str]) -> Command {
    let mut command = Command::new(TENURE);
    command.arg("cli").args(words);
    for name in ["TENURE_STORE", "REDISCLI_AUTH", "FAKETTY", "TENURE_CLI_HISTORY"] {
        command.env_remove(name);
    }
    command
}

/// `tenure cli` on the port of `server`.
fn cli_on(server: &RedisServer, words: &[&str]) -> Command {
    let port = server.port().to_string();
    tenure_cli(&[&["-p", &port], words].concat())
}

/// Runs a command to its end, with `input` as its standard input.
fn run(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // From a thread of its own: a program that does not read its input must not hang the test.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
