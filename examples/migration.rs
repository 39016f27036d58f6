//! A database migration: one instance runs it, the others wait for the outcome.
//!
//! ```text
//! cargo run -p tenure-examples --bin migration [redis://127.0.0.1]
//! ```
//! Start it several times at once, as a deployment would. One migrates; all of them go on only
//! when it is done, and none of them if it failed. Start it again later: the outcome is still
//! known, so nothing runs. An instance that dies half-way leaves a migration that was begun and
//! not finished: that needs a person, so it is not repeated by itself.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tenure::{OnceOutcome, Term, Tick, TickOutcome};

/// A new name for each migration. It runs once under its name, for ever.
const MIGRATION: &str = "0007-index-on-orders";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let tenure = tenure_examples::connect().await?;
    let job = tenure.job("example-migration").tick(Tick::named(MIGRATION));
    let outcome = job.wait_for_outcome(Duration::from_secs(60)).run(migrate).await?;
    let code = match outcome {
        OnceOutcome::Ran(Ok(rows)) => {
            println!("migrated {rows} rows here");
            ExitCode::SUCCESS
        }
        OnceOutcome::AlreadyDone(TickOutcome::Succeeded) => {
            println!("migrated elsewhere");
            ExitCode::SUCCESS
        }
        // Failed, here or elsewhere; begun and not finished; or interrupted half-way.
        other => {
            eprintln!("not migrated: {other:?}");
            ExitCode::FAILURE
        }
    };
    tenure.shutdown().await;
    Ok(code)
}

/// The migration. A database that can compare numbers should refuse a smaller token.
async fn migrate(term: Term) -> Result<u32, std::io::Error> {
    println!("migrating under token {}", term.token());
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(42)
}
