//! Our own clients that write until they are told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use store_client::ClusterClient;
use testkit::{ClusterGroup, GENEROUS, wait_until};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::model::{Tally, Written};

/// Keys of each client, half of them counters and half lists.
pub(super) const KEYS_EACH: usize = 10;
/// Between two writes of one client: the machine also has six servers to run.
const PAUSE: Duration = Duration::from_millis(5);

/// Clients with connections of their own.
pub struct Writers {
    runtime: Runtime,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<Result<Vec<Tally>, String>>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    acknowledged: AtomicU64,
}

impl Writers {
    /// Starts so many clients; each has written something when this returns.
    ///
    /// # Errors
    /// What the cluster answers.
    ///
    /// # Panics
    /// When they do not begin to write.
    pub fn start(group: &ClusterGroup, count: usize) -> Result<Self, String> {
        let builder =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = builder.map_err(|error| error.to_string())?;
        let mut writers = Self { runtime, shared: Arc::default(), tasks: Vec::new() };
        let url = group.url();
        for number in 0..count {
            let connecting = ClusterClient::connect(&url);
            let client = writers.runtime.block_on(connecting).map_err(|error| error.to_string())?;
            let writing = write(client, number, Arc::clone(&writers.shared));
            writers.tasks.push(writers.runtime.spawn(writing));
        }
        writers.wait_for_more(count as u64);
        Ok(writers)
    }

    /// Waits until so many more writes were acknowledged.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn wait_for_more(&self, count: u64) {
        let acknowledged = || self.shared.acknowledged.load(Ordering::Relaxed);
        let enough = acknowledged() + count;
        wait_until("more acknowledged writes", GENEROUS, || acknowledged() >= enough);
    }

    /// Stops them.
    ///
    /// # Errors
    /// An answer that no client should have got.
    pub fn finish(self) -> Result<Written, String> {
        self.shared.is_over.store(true, Ordering::Release);
        let mut written = Written::default();
        for task in self.tasks {
            let told = self.runtime.block_on(task).map_err(|error| error.to_string())?;
            written.keys.extend(told?);
        }
        Ok(written)
    }
}

/// One key after the other. Every answer must be the next number.
async fn write(
    client: ClusterClient,
    number: usize,
    shared: Arc<Shared>,
) -> Result<Vec<Tally>, String> {
    let mut tallies: Vec<Tally> = keys_of(number).map(Tally::new).collect();
    for place in (0..KEYS_EACH).cycle() {
        if shared.is_over.load(Ordering::Acquire) {
            break;
        }
        let tally = &mut tallies[place];
        match client.query::<u64>(&tally.next_write()).await {
            Ok(answer) if answer == tally.acknowledged + 1 => {
                tally.acknowledged += 1;
                shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) => {
                return Err(format!("{} answers {answer} after {}", tally.key, tally.acknowledged));
            }
            // An unknown outcome as well: nothing breaks a connection to a master here.
            Err(error) => return Err(format!("{}: {error}", tally.key)),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(tallies)
}

fn keys_of(writer: usize) -> impl Iterator<Item = String> {
    (0..KEYS_EACH).map(move |key| match key % 2 {
        0 => format!("counter:{writer}:{key}"),
        _ => format!("list:{writer}:{key}"),
    })
}
