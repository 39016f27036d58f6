//! A job that runs once per tick, however many instances have it in their schedule.
//!
//! ```text
//! cargo run -p tenure-examples --bin cron_job [redis://127.0.0.1]
//! ```
//! Start it several times. Every two seconds one of them runs the job, the others skip. The tick is
//! counted by the store's clock, so it does not matter that the clocks of the instances differ, or
//! that one of them is done before another even looks.

use std::error::Error;
use std::time::Duration;

use tenure::{OnceOutcome, Term, Tick};

/// Short, to have something to look at.
const PERIOD: Duration = Duration::from_secs(2);
/// How often each instance looks. More often than the period, so that no tick is missed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tenure = tenure_examples::connect().await?;
    println!("scheduled {} on {}", tenure.id(), tenure.store());
    let look = async {
        loop {
            match tenure.once("example-cron", Tick::every(PERIOD), report).await {
                Ok(OnceOutcome::Ran(Ok(rows))) => println!("ran: {rows} rows"),
                // Kept as the outcome of this tick; the next tick gets its own chance.
                Ok(OnceOutcome::Ran(Err(error))) => println!("failed: {error}"),
                Ok(other) => println!("skipped: {other:?}"),
                Err(error) => eprintln!("not known: {error}"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        () = look => {}
        stop = tenure_examples::asked_to_stop() => stop?,
    }
    tenure.shutdown().await;
    println!("stopped");
    Ok(())
}

/// The job. Its lease is renewed while it runs, however long that takes.
async fn report(term: Term) -> Result<u64, std::io::Error> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(term.token().get() % 100)
}
