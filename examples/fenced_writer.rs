//! A writer whose resource turns away earlier leaders.
//!
//! ```text
//! cargo run -p tenure-examples --bin fenced_writer [redis://127.0.0.1 [LEDGER]]
//! ```
//! Start it twice on the same ledger, freeze the one that writes (`kill -STOP`) for longer than the
//! lease, and wake it again (`kill -CONT`). It wakes in the middle of a write that it began while
//! it led. Nothing can call that write back: not a lease, not a check before it. But the ledger
//! has seen the token of the next leader by then, and refuses the older one.
//!
//! The ledger here is a file. See `tenure::fence` for values in Redis and rows in SQL.

use std::convert::Infallible;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::fence::Fence;
use tenure::{Term, Token};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tenure = tenure_examples::connect().await?;
    let ledger = std::env::args().nth(2).map(PathBuf::from);
    let ledger = ledger.unwrap_or_else(|| std::env::temp_dir().join("tenure-example-ledger"));
    let election = tenure.election("example-ledger").start().await?;
    println!("candidate {} for {}", tenure.id(), ledger.display());

    tokio::select! {
        never = election.run_while_leader(|term| keep_writing(term, &ledger)) => match never? {},
        stop = tenure_examples::asked_to_stop() => stop?,
    }
    tenure.shutdown().await;
    println!("stopped");
    Ok(())
}

async fn keep_writing(term: Term, ledger: &Path) -> Infallible {
    loop {
        let (token, ledger) = (term.token(), ledger.to_owned());
        println!("writing under token {token}");
        // Blocking work cannot be dropped half-way, so here the token is the only safeguard.
        let written = tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(300)); // A good moment to be frozen.
            match append(&ledger, token, "an entry") {
                Ok(()) => println!("written under token {token}"),
                Err(error) => println!("refused: {error}"),
            }
        });
        if let Err(error) = written.await {
            println!("failed: {error}");
        }
    }
}

/// Appends a line, unless a leader with a higher token has been here.
fn append(ledger: &Path, token: Token, text: &str) -> io::Result<()> {
    // Locked until the end, so that nobody writes between the check and the deed.
    let fence_file = ledger.with_extension("fence");
    let lock = File::options().create(true).append(true).open(&fence_file)?;
    lock.lock()?;
    let stored = fs::read_to_string(&fence_file)?;
    let mut fence = match stored.as_str() {
        "" => Fence::new(),
        number => number.parse().map_err(io::Error::other)?,
    };
    fence.admit(token).map_err(io::Error::other)?;
    // The fence first: if this process dies in between, an entry is missing, which can be seen.
    // The other way round a leader of the past could still write.
    fs::write(&fence_file, fence.to_string())?;
    let mut file = File::options().create(true).append(true).open(ledger)?;
    writeln!(file, "{token} {text}")
}
