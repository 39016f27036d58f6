//! Listens to the sentinels for word of a new primary.
//!
//! A message only says when to look; the sentinels are asked for the address anyway.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt;
use tenure_core::StoreError;
use tokio::sync::watch;

use super::{Shared, locked};
use crate::backoff::Backoff;
use crate::guard::Backlog;
use crate::node::Node;

/// The channel on which a sentinel tells `name old-host old-port new-host new-port`.
const SWITCHED: &str = "+switch-master";
/// How often the sentinels are asked all the same: the one we listen to may be cut off.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The one that announces a new primary knows of it before the others, and most must agree. They
/// are asked again at this pace, so many times.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);
const LOOKS_MAX: usize = 20;

/// Counts `tell` up whenever the primary is another one than the last stream leads to. Ends when it
/// is aborted.
pub(super) async fn run(shared: Arc<Shared>, tell: watch::Sender<u64>) {
    let mut backoff = Backoff::default();
    for turn in 0.. {
        // Another sentinel after each failure.
        let way = turn % shared.transport.len();
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
    let mut messages = shared.transport[way].listen(Arc::clone(&backlog)).await?;
    let subscribed = messages.subscribe(SWITCHED).await;
    subscribed.map_err(|error| super::error::from_connection(&error))?;
    backoff.reset();
    // What happened before this was missed.
    let _ = look(shared, tell).await;
    let mut messages = messages.on_message();
    loop {
        backlog.caught_up();
        match tokio::time::timeout(LOOK_EVERY, messages.next()).await {
            Err(_) => drop(look(shared, tell).await),
            Ok(None) => return Ok(()),
            Ok(Some(message)) => {
                let left = left_by(&shared.address.master, message.get_payload_bytes());
                if let Some(left) = left {
                    look_until_most_agree(shared, tell, &left).await;
                }
            }
        }
    }
}

/// Which server the primary of this name was before, if a message is about it.
fn left_by(master: &str, message: &[u8]) -> Option<Node> {
    let mut words = std::str::from_utf8(message).ok()?.split(' ');
    if words.next()? != master {
        return None;
    }
    Some(Node { host: words.next()?.to_owned(), port: words.next()?.parse().ok()? })
}

async fn look_until_most_agree(shared: &Shared, tell: &watch::Sender<u64>, left: &Node) {
    for _ in 0..LOOKS_MAX {
        if look(shared, tell).await.is_some_and(|found| found != *left) {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}

/// The primary that most name; told when it is another one than before.
async fn look(shared: &Shared, tell: &watch::Sender<u64>) -> Option<Node> {
    let node = shared.find_master().await.ok()?;
    let has_moved = locked(&shared.last).as_ref().is_some_and(|last| *last != node);
    if has_moved {
        tell.send_modify(|count| *count += 1);
    }
    Some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_who_is_no_longer_master() {
        let message = b"main 10.0.0.1 6379 10.0.0.2 6380";
        assert_eq!(left_by("main", message), Some(Node { host: "10.0.0.1".into(), port: 6379 }));
        assert_eq!(left_by("mai", message), None);
        assert_eq!(left_by("main", b"main 10.0.0.1 x 10.0.0.2 6380"), None);
        assert_eq!(left_by("main", b"main"), None);
        assert_eq!(left_by("main", b"\xff\xfe"), None);
    }
}
