//! A background worker that runs on one instance at a time.
//!
//! ```text
//! cargo run -p tenure-examples --bin background_worker [redis://127.0.0.1]
//! ```
//! Start it twice. One works, the other waits. Stop the first with Ctrl-C and the second goes on at
//! once, because the lease was released; kill it with `kill -9` and the second goes on when the
//! lease has ended, and not before.
//!
//! `run_while_leader` does the hard part. It calls `work` for each term, and drops it before
//! the lease can end for anybody else: when the store is unreachable, when this process was frozen
//! for too long, when an operator asks for the leadership back.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use tenure::Term;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tenure = tenure_examples::connect().await?;
    let election = tenure.election("example-worker").start().await?;
    println!("candidate {} on {}", tenure.id(), tenure.store());

    tokio::select! {
        never = election.run_while_leader(work) => match never? {},
        stop = tenure_examples::asked_to_stop() => stop?,
    }

    // The work was dropped above. Only now is the lease given back: in this order the next leader
    // cannot begin while anything of ours still runs.
    tenure.shutdown().await;
    println!("stopped");
    Ok(())
}

/// The work of one term. Anything after an `.await` may not happen: that is where it is dropped.
async fn work(term: Term) -> Infallible {
    println!("leading with token {}", term.token());
    let mut round = 0;
    loop {
        round += 1;
        // A real worker sends the token along, so that the resource can refuse a late write:
        // see fenced_writer.
        println!("round {round} under token {}", term.token());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
