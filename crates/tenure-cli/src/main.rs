//! The program `tenure`: one file per subcommand.
//!
//! What comes in: words and the environment. What goes out: results on stdout, talk on stderr, and
//! an exit code of [`exit`]. A subcommand is a module with `Arguments` and `run`, and two lines
//! here: one in [`Command`], one in [`dispatch`].

mod check_aof;
mod check_rdb;
mod cli;
mod clock;
mod config_check;
mod demo;
mod doctor;
mod exit;
mod history;
mod local;
mod log_line;
mod logging;
mod manual;
mod members;
mod once;
mod output;
mod pause;
mod run;
mod serve;
mod sidecar;
mod status;
mod store_options;
mod usage;
mod watch;
mod who;
mod wish;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

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
    Run(run::Arguments),
    Once(once::Arguments),
    Who(who::Arguments),
    Status(status::Arguments),
    Members(members::Arguments),
    History(history::Arguments),
    Watch(watch::Arguments),
    HandOver(wish::HandOver),
    Resign(wish::Resign),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Clear(pause::Clear),
    Doctor(doctor::Arguments),
    #[command(subcommand)]
    Config(config_check::Command),
    #[command(subcommand)]
    Local(local::Command),
    Sidecar(sidecar::Arguments),
    Demo(demo::Arguments),
    Serve(serve::Arguments),
    Cli(cli::Arguments),
    CheckRdb(check_rdb::Arguments),
    CheckAof(check_aof::Arguments),
    Completions(manual::Completions),
    Man(manual::Man),
}

fn main() -> ExitCode {
    let word = std::env::args_os().nth(1).unwrap_or_default();
    // What stays beside a program is to stay small, from the first allocation on.
    if word == "run" || word == "once" || word == run::guard::SUBCOMMAND {
        run::guard::stay_small();
    }
    // Not one of the commands: nobody but `run` starts it.
    if word == run::guard::SUBCOMMAND {
        return run::guard::run();
    }
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
        Command::Run(arguments) => run::run(arguments),
        Command::Once(arguments) => once::run(arguments),
        Command::Who(arguments) => who::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Members(arguments) => members::run(arguments),
        Command::History(arguments) => history::run(arguments),
        Command::Watch(arguments) => watch::run(arguments),
        Command::HandOver(arguments) => wish::hand_over(arguments),
        Command::Resign(arguments) => wish::resign(arguments),
        Command::Pause(arguments) => pause::pause(arguments),
        Command::Resume(arguments) => pause::resume(arguments),
        Command::Clear(arguments) => pause::clear(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Config(command) => config_check::run(command),
        Command::Local(command) => local::run(command),
        Command::Sidecar(arguments) => sidecar::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Serve(arguments) => Ok(serve::run(arguments)?),
        Command::Cli(arguments) => Ok(cli::run(&arguments)),
        Command::CheckRdb(arguments) => check_rdb::run(&arguments),
        Command::CheckAof(arguments) => check_aof::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments, Arguments::command()),
        Command::Man(arguments) => manual::man(&arguments, Arguments::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Arguments::command().debug_assert();
    }
}
