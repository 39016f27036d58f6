//! The program `tenure`: one file per subcommand.

mod check_rdb;
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
    CheckRdb(check_rdb::Arguments),
    Serve(serve::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::CheckRdb(arguments) => check_rdb::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tenure: {error:#}");
            ExitCode::FAILURE
        }
    }
}
