//! Pipelining: the same commands one by one, and in few round trips.
//!
//! ```text
//! cargo run -p tenure-examples --bin pipelining [redis://127.0.0.1]
//! ```
//! Without an address it starts a store of its own inside this process. A command that fails does
//! not stop the others, and every one has its own outcome.

use std::time::Instant;

use store_client::redis::Cmd;
use store_client::{Store, pipelined};
use tenure_examples::{Outcome, address_or_own_store};

const COMMANDS: usize = 2_000;
const WINDOW: usize = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let (address, _own) = address_or_own_store()?;
    let mut connection = Store::open(&address)?.connect().await?;

    let begun_at = Instant::now();
    for number in 0..COMMANDS {
        Cmd::set(format!("example:{number}"), number).query_async::<()>(&mut connection).await?;
    }
    println!("{COMMANDS} commands one by one: {:.0} ms", begun_at.elapsed().as_secs_f64() * 1e3);

    let begun_at = Instant::now();
    let commands = (0..COMMANDS).map(|number| match number {
        // A wrong one among them: the number is no list.
        1234 => Cmd::lpush("example:0", "x"),
        _ => Cmd::incr(format!("example:{number}"), 1),
    });
    let told = pipelined(&mut connection, commands, WINDOW, |number, outcome| {
        if let Err(error) = outcome {
            println!("  command {number} failed alone: {error}");
        }
    });
    let told = told.await?;
    println!(
        "{} commands in {} round trips: {:.0} ms, {} failed",
        told.done + told.failed,
        told.round_trips,
        begun_at.elapsed().as_secs_f64() * 1e3,
        told.failed
    );
    Ok(())
}
