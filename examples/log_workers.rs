//! Central logs, shared by workers: three services write, a group of workers reads.
//!
//! ```text
//! cargo run -p tenure-examples --bin log_workers [redis://127.0.0.1]
//! ```
//! Without an address it starts a store of its own inside this process. Two worker processes share
//! the entries; one is killed with entries in hand. The other takes them over after a second: every
//! entry is counted at least once.

use std::collections::BTreeSet;
use std::time::Duration;

use store_client::{Entry, Log, Store};
use tenure_examples::{Cast, Outcome, address_or_own_store};

const SERVICES: [&str; 3] = ["web", "shop", "mail"];
const ENTRIES_EACH: usize = 8;
/// Entries in a worker's hand for longer than this are taken over. Far above what one takes here.
const IDLE: Duration = Duration::from_secs(1);
const WORK_TAKES: Duration = Duration::from_millis(30);

fn log() -> Log {
    Log::new("example-logs").keep(10_000)
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
    let mut expected = BTreeSet::new();
    let mut writer = log().writer(&store);
    for number in 0..ENTRIES_EACH {
        for service in SERVICES {
            let text = format!("request {number}");
            expected.insert(writer.append(&[("service", service), ("text", &text)]).await?);
        }
    }
    println!(
        "{} services wrote {} entries, two workers share them",
        SERVICES.len(),
        expected.len()
    );
    let mut cast = Cast::new();
    for name in ["ada", "bob"] {
        cast.start(name, &["worker", name, &address])?;
    }
    let mut is_killed = false;
    while !expected.is_empty() {
        let (name, line) = cast.next().await?;
        if let Some(id) = line.strip_prefix("counted ") {
            expected.remove(id.split(' ').next().unwrap_or_default());
        }
        if !is_killed && line.starts_with("counted") {
            println!("{name} is killed with entries in hand");
            cast.kill(&name).await?;
            is_killed = true;
        }
    }
    println!("every entry was counted, though a worker crashed");
    Ok(())
}

/// What each worker process does.
async fn work(name: &str, store: &Store) -> Outcome {
    let mut worker = log().worker(store, "counters", name);
    loop {
        for entry in worker.read(4, Duration::from_millis(300)).await? {
            count(&entry).await;
            worker.done(&[entry]).await?;
        }
        let orphans = worker.take_over(IDLE, 100).await?;
        if !orphans.is_empty() {
            println!("takes over {} entries of a dead worker", orphans.len());
        }
        for entry in orphans {
            count(&entry).await;
            worker.done(&[entry]).await?;
        }
    }
}

async fn count(entry: &Entry) {
    tokio::time::sleep(WORK_TAKES).await;
    println!("counted {} of {}: {}", entry.id, entry.text("service"), entry.text("text"));
}
