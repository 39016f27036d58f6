//! Listens to the sentinels for word of a new master.
//!
//! A message only says when to look; the sentinels are asked for the address anyway.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt;
use tenure_core::StoreError;
use tokio::sync::watch;

use super::Shared;
use crate::backend::redis::backoff::Backoff;
use crate::backend::redis::guard::Backlog;

/// The channel on which a sentinel tells `name old-host old-port new-host new-port`.
const SWITCHED: &str = "+switch-master";
/// How often the sentinels are asked all the same: the one we listen to may be cut off.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Counts `tell` up whenever the master is another one than the last stream leads to. Ends when it
/// is aborted.
pub(super) async fn run(shared: Arc<Shared>, tell: watch::Sender<u64>) {
    let mut backoff = Backoff::default();
    for turn in 0.. {
        // Another sentinel after each failure.
        let way = turn % shared.ways.len();
        if let Ok(()) = listen(&shared, way, &tell, &mut backoff).await {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

async fn listen(
    shared: &Shared,
    way: usize,
    tell: &watch::Sender<u64>,
    backoff: &mut Backoff,
) -> Result<(), StoreError> {
    let backlog = Arc::new(Backlog::default());
    let mut ears = shared.ways[way].listen(Arc::clone(&backlog)).await?;
    let subscribed = ears.subscribe(SWITCHED).await;
    subscribed.map_err(|error| super::error::from_connection(&error))?;
    backoff.reset();
    // What happened before this was missed.
    look(shared, tell).await;
    let mut messages = ears.on_message();
    loop {
        backlog.caught_up();
        match tokio::time::timeout(LOOK_EVERY, messages.next()).await {
            Err(_) => look(shared, tell).await,
            Ok(None) => return Ok(()),
            Ok(Some(message)) if is_about(&shared.address.master, message.get_payload_bytes()) => {
                look(shared, tell).await;
            }
            Ok(Some(_)) => {}
        }
    }
}

fn is_about(master: &str, message: &[u8]) -> bool {
    message.split(|byte| *byte == b' ').next() == Some(master.as_bytes())
}

async fn look(shared: &Shared, tell: &watch::Sender<u64>) {
    let Ok(node) = shared.find_master().await else { return };
    let has_moved = shared.last().as_ref().is_some_and(|last| *last != node);
    if has_moved {
        tell.send_modify(|count| *count += 1);
    }
}
