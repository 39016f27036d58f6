//! The program `tenure`: one file per subcommand.
//!
//! What comes in: words and the environment. What goes out: results on stdout, talk on stderr, and
//! an exit code of [`exit`]. A subcommand is a module with `Arguments` and `run`, and two lines
//! here: one in [`Command`], one in [`dispatch`].

mod clock;
mod config_check;
mod demo;
mod exit;
mod history;
mod log_line;
mod members;
mod output;
mod serve;
mod sidecar;
mod status;
mod store_options;
mod usage;
mod who;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Failure;

/// Keys are many small allocations; only the program may choose who makes them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One leader among many processes, and the store it needs.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, after_help = usage::EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Who(who::Arguments),
    Status(status::Arguments),
    Members(members::Arguments),
    History(history::Arguments),
    #[command(subcommand)]
    Config(config_check::Command),
    Sidecar(sidecar::Arguments),
    Demo(demo::Arguments),
    Serve(serve::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::answer(&error),
    };
    match arguments.command.map_or_else(usage::teach, dispatch) {
        Ok(code) => code,
        Err(failure) => failure.tell(),
    }
}

fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Who(arguments) => who::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Members(arguments) => members::run(arguments),
        Command::History(arguments) => history::run(arguments),
        Command::Config(command) => config_check::run(command),
        Command::Sidecar(arguments) => sidecar::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Serve(arguments) => Ok(serve::run(arguments)?),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_tree_of_commands_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
