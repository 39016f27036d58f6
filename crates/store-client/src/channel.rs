//! Messages to whoever listens now: chat, notifications, wake-ups.
//!
//! Fire and forget: a message reaches those who are subscribed at that moment and is not stored. A
//! listener whose connection was lost is told so ([`Heard::Gap`]); the messages that it missed are
//! lost. Where that matters, use a [`Log`](crate::Log).

use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSub;
use redis::{RedisResult, ToRedisArgs};

use crate::line::Line;
use crate::store::Store;

/// Between attempts to subscribe again: a store that restarts is found quickly, and one that stays
/// away costs nothing.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// One channel of a store.
#[derive(Debug)]
pub struct Channel {
    name: String,
    store: Store,
    line: Line,
}

/// What a listener receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Message(Vec<u8>),
    /// The connection was lost and made again: messages sent in between are lost.
    Gap,
}

impl Channel {
    /// The channel of this name.
    pub fn new(store: &Store, name: impl Into<String>) -> Self {
        Self { name: name.into(), store: store.clone(), line: Line::new(store) }
    }

    /// Sends a message. Returns how many listeners the store sent it to.
    ///
    /// Fails if the store cannot be reached. The message may have been sent nevertheless.
    pub async fn send(&mut self, message: impl ToRedisArgs) -> RedisResult<usize> {
        self.line.ask(redis::cmd("PUBLISH").arg(&self.name).arg(message)).await
    }

    /// Subscribes. Messages sent after this returns are received.
    ///
    /// Fails if the store cannot be reached.
    pub async fn listen(&self) -> RedisResult<Listener> {
        let messages = subscribe(&self.store, &self.name).await?;
        Ok(Listener {
            store: self.store.clone(),
            name: self.name.clone(),
            messages: Some(messages),
        })
    }
}

/// A subscription to one channel. Dropping it ends the subscription.
pub struct Listener {
    store: Store,
    name: String,
    messages: Option<PubSub>,
}

impl Listener {
    /// Waits for the next message. If the connection is lost, subscribes again for as long as it
    /// takes, and returns [`Heard::Gap`].
    pub async fn next(&mut self) -> Heard {
        loop {
            if let Some(messages) = &mut self.messages {
                let message = messages.on_message().next().await;
                if let Some(message) = message {
                    return Heard::Message(message.get_payload_bytes().to_vec());
                }
                self.messages = None;
            }
            match subscribe(&self.store, &self.name).await {
                Ok(messages) => {
                    self.messages = Some(messages);
                    return Heard::Gap;
                }
                Err(_) => tokio::time::sleep(RETRY_AFTER).await,
            }
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("name", &self.name).finish_non_exhaustive()
    }
}

async fn subscribe(store: &Store, name: &str) -> RedisResult<PubSub> {
    let mut messages = store.listen().await?;
    messages.subscribe(name).await?;
    Ok(messages)
}
