//! A job queue that survives the crash of a worker.
//!
//! ```text
//! cargo run -p tenure-examples --bin job_queue [redis://127.0.0.1]
//! ```
//! Without an address it starts a store of its own inside this process. Two worker processes share
//! six jobs; one of them is killed in the middle of a job. The other finds that job after two
//! seconds and does it: every job is done, none is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use store_client::{Finished, Queue, Store};
use tenure_examples::{Cast, Outcome, address_or_own_store};

const JOBS: usize = 6;
/// A worker without a sign for so long is dead. Far above what a job takes here.
const ALIVE_FOR: Duration = Duration::from_secs(2);
const WORK_TAKES: Duration = Duration::from_millis(200);

fn queue() -> Queue {
    Queue::new("example-jobs").alive_for(ALIVE_FOR)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [word, name, address] if word == "worker" => work(name, &Store::open(address)?).await,
        _ => share().await,
    }
}

async fn share() -> Outcome {
    let (address, _own) = address_or_own_store()?;
    let store = Store::open(&address)?;
    let mut sender = queue().sender(&store);
    for number in 1..=JOBS {
        sender.push(format!("job-{number}")).await?;
    }
    println!("{JOBS} jobs wait, two workers share them");
    let mut cast = Cast::new();
    for name in ["ada", "bob"] {
        cast.start(name, &["worker", name, &address])?;
    }
    let (mut done, mut is_killed) = (BTreeSet::new(), false);
    while done.len() < JOBS {
        let (name, line) = cast.next().await?;
        if let Some(job) = line.strip_prefix("has done ") {
            done.insert(job.to_owned());
        }
        if !is_killed && line.starts_with("begins") && !done.is_empty() {
            println!("{name} is killed in the middle of it");
            cast.kill(&name).await?;
            is_killed = true;
        }
    }
    println!("all {JOBS} jobs are done, though a worker crashed");
    Ok(())
}

/// What each worker process does.
async fn work(name: &str, store: &Store) -> Outcome {
    let mut worker = queue().worker(store, name);
    loop {
        let recovered = worker.recover().await?;
        if recovered.back > 0 {
            println!("found {} job of a dead worker", recovered.back);
        }
        let Some(job) = worker.take(Duration::from_millis(500)).await? else { continue };
        let text = String::from_utf8_lossy(job.bytes()).into_owned();
        println!("begins {text}");
        tokio::time::sleep(WORK_TAKES).await;
        match worker.done(job).await? {
            Finished::Ours => println!("has done {text}"),
            Finished::TakenAway => println!("was too slow: {text} may be done twice"),
        }
    }
}
