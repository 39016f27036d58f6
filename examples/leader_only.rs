//! A function that runs only on the leader.
//!
//! ```text
//! cargo run -p tenure-examples --bin leader_only [redis://127.0.0.1]
//! ```
//! Start it several times: every instance calls `refresh` all the time, and on one of them it runs.

use std::error::Error;
use std::time::Duration;

use tenure::{Tenure, Term, leader_only};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tenure = tenure_examples::connect().await?;
    // Taking part lasts: this instance leads until it stops. Without this line each call would
    // try to lead for as long as the function runs.
    let _election = tenure.election("example-refresh").start().await?;
    println!("calling on {}", tenure.id());
    let calls = async {
        loop {
            match refresh(&tenure, 3).await {
                Ok(Some(Ok(rows))) => println!("refreshed {rows} rows"),
                Ok(Some(Err(error))) => println!("failed: {error}"),
                Ok(None) => println!("not the leader"),
                Err(error) => println!("interrupted: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = calls => {}
        stop = tenure_examples::asked_to_stop() => stop?,
    }
    tenure.shutdown().await;
    println!("stopped");
    Ok(())
}

/// The caller passes the client and the number; the term is filled in.
#[leader_only("example-refresh")]
async fn refresh(_tenure: &Tenure, rows: u32, #[term] term: Term) -> Result<u32, std::io::Error> {
    let text = format!("{rows}");
    let rows: u32 = text.parse().map_err(std::io::Error::other)?;
    println!("refreshing under token {}", term.token());
    Ok(rows)
}
