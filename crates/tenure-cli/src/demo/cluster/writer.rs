//! Writes to all shards without end, and tells what its callers noticed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store_client::ClusterClient;
use store_client::redis::Cmd;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::super::no;
use crate::clock;
use crate::exit::Failure;
use crate::output::duration;

/// How many write at once, each to keys of its own.
const WRITERS: usize = 8;
const KEYS_EACH: usize = 8;
/// Between two writes of each: enough to notice whatever happens, little for a laptop.
const PAUSE: Duration = Duration::from_millis(5);

/// What was noticed since the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct Noticed {
    acknowledged: u64,
    unknown: u64,
    failed: u64,
    waited_max: Duration,
}

impl fmt::Display for Noticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, unknown, failed, waited_max } = self;
        write!(f, "meanwhile {acknowledged} writes were acknowledged, the slowest ")?;
        write!(f, "after {}; {unknown} have an unknown outcome", duration(*waited_max))?;
        match failed {
            0 => Ok(()),
            _ => write!(f, ", {failed} were refused"),
        }
    }
}

/// The writers. They end when this is dropped.
pub(super) struct Writer {
    noticed: Arc<Mutex<Noticed>>,
    _writing: JoinSet<()>,
}

impl Writer {
    pub(super) async fn start(address: &str) -> Result<Self, Failure> {
        let client = ClusterClient::connect(address).await.map_err(|error| no(&error))?;
        let noticed = Arc::default();
        let mut writing = JoinSet::new();
        for number in 0..WRITERS {
            writing.spawn(write(client.clone(), number, Arc::clone(&noticed)));
        }
        Ok(Self { noticed, _writing: writing })
    }

    /// What was noticed since this was last asked.
    pub(super) fn take(&self) -> Noticed {
        std::mem::take(&mut *lock(&self.noticed))
    }
}

async fn write(client: ClusterClient, number: usize, noticed: Arc<Mutex<Noticed>>) {
    for key in (0..KEYS_EACH).cycle() {
        let began_at = clock::now();
        let outcome = client.query::<i64>(&Cmd::incr(format!("demo:{number}:{key}"), 1)).await;
        let waited = clock::now().saturating_duration_since(began_at);
        {
            let mut noticed = lock(&noticed);
            noticed.waited_max = noticed.waited_max.max(waited);
            match outcome {
                Ok(_) => noticed.acknowledged += 1,
                Err(error) if error.is_outcome_unknown() => noticed.unknown += 1,
                Err(_) => noticed.failed += 1,
            }
        }
        sleep(PAUSE).await;
    }
}

fn lock(noticed: &Mutex<Noticed>) -> MutexGuard<'_, Noticed> {
    // Counts are never left half changed.
    noticed.lock().unwrap_or_else(PoisonError::into_inner)
}
