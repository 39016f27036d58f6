//! The program `tenure`: one file per subcommand.

mod cli;
mod clock;
mod log_line;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keys are many small allocations; only the program may choose who makes them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One leader among many processes, and the store it needs.
#[derive(Debug, Parser)]
#[command(name = "tenure", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Cli(cli::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Cli(arguments) => Ok(cli::run(&arguments)),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tenure: {error:#}");
            ExitCode::FAILURE
        }
    }
}
