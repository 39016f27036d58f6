//! The connection for messages: one for all subscriptions, made again when it breaks.
//!
//! In: subscriptions, and messages from the store. Out: signals to the subscribers. A message is
//! handed over at once or dropped, so a slow subscriber holds up nobody.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use tenure_core::StoreError;
use tokio::sync::{Notify, mpsc, watch};

use super::backoff::Backoff;
use super::dial::{DIAL_TIMEOUT, Route};
use super::error;
use super::guard::Backlog;
use super::hint;
use crate::backend::{Signal, Subscription};

/// How many channels one command names: ten thousand elections must not wait one by one.
const CHANNELS_AT_ONCE: usize = 500;
/// How often channels without a subscriber are given up.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The subscriptions of a backend.
#[derive(Debug)]
pub(super) struct Listener {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    channels: Mutex<HashMap<Box<str>, Channel>>,
    /// Wakes the task when there is something to subscribe, or nobody is left.
    changed: Notify,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Channel {
    subscribers: Vec<mpsc::Sender<Signal>>,
    /// Whether the store has confirmed the subscription on the running connection.
    is_confirmed: bool,
}

impl Listener {
    /// Starts the task in the current runtime. It connects once there is a subscription, and anew
    /// whenever the connection for requests was replaced: the store may be another one then.
    pub(super) fn start(route: Route, lines_opened: watch::Receiver<u64>) -> Self {
        let shared = Arc::new(Shared::default());
        let ears = Ears { route, shared: Arc::clone(&shared), lines_opened };
        tokio::spawn(ears.run());
        Listener { shared }
    }

    /// Adds a subscription to `channel`.
    pub(super) fn subscribe(&self, channel: &str) -> Subscription {
        let (sender, subscription) = Subscription::channel();
        let mut channels = self.shared.channels();
        let entry = channels.entry(channel.into()).or_default();
        entry.subscribers.retain(|subscriber| !subscriber.is_closed());
        if entry.is_confirmed {
            // A fresh queue has room.
            let _ = sender.try_send(Signal::Listening);
        }
        entry.subscribers.push(sender);
        if !entry.is_confirmed {
            self.shared.changed.notify_one();
        }
        subscription
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn channels(&self) -> MutexGuard<'_, HashMap<Box<str>, Channel>> {
        // Nothing that runs under this lock leaves the map half changed.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unconfirmed(&self) -> Vec<String> {
        let channels = self.channels();
        let open = channels.iter().filter(|(_, channel)| !channel.is_confirmed);
        open.take(CHANNELS_AT_ONCE).map(|(name, _)| name.to_string()).collect()
    }

    fn confirm(&self, names: &[String]) {
        let mut channels = self.channels();
        for name in names {
            if let Some(channel) = channels.get_mut(name.as_str()) {
                channel.is_confirmed = true;
                channel.tell(&Signal::Listening);
            }
        }
    }

    fn deafen(&self) {
        for channel in self.channels().values_mut() {
            if std::mem::take(&mut channel.is_confirmed) {
                channel.tell(&Signal::Deaf);
            }
        }
    }

    fn hear(&self, name: &str, message: &[u8]) {
        let Some(hint) = hint::parse(message) else { return };
        if let Some(channel) = self.channels().get(name) {
            channel.tell(&Signal::Hint(hint));
        }
    }

    /// Forgets channels that nobody listens to any more.
    fn sweep(&self) -> Vec<String> {
        let mut abandoned = Vec::new();
        self.channels().retain(|name, channel| {
            channel.subscribers.retain(|subscriber| !subscriber.is_closed());
            let is_used = !channel.subscribers.is_empty();
            if !is_used {
                abandoned.push(name.to_string());
            }
            is_used
        });
        abandoned
    }

    fn is_idle(&self) -> bool {
        self.channels().is_empty()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

impl Channel {
    fn tell(&self, signal: &Signal) {
        for subscriber in &self.subscribers {
            // Full: it has enough hints to look at the store once more anyway.
            let _ = subscriber.try_send(signal.clone());
        }
    }
}

struct Ears {
    route: Route,
    shared: Arc<Shared>,
    lines_opened: watch::Receiver<u64>,
}

impl Ears {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut backoff = Backoff::default();
        while !shared.is_closed() {
            if shared.is_idle() {
                shared.changed.notified().await;
                continue;
            }
            self.lines_opened.mark_unchanged();
            let backlog = Arc::new(Backlog::default());
            if let Ok(connection) = self.route.listen(Arc::clone(&backlog)).await {
                let (sink, stream) = connection.split();
                let was_useful = self.listen(&shared, sink, stream, &backlog).await;
                shared.deafen();
                if was_useful {
                    backoff.reset();
                }
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Listens until the connection breaks or should be replaced. Whether it ever worked.
    async fn listen(
        &mut self,
        shared: &Shared,
        mut sink: PubSubSink,
        mut stream: PubSubStream,
        backlog: &Backlog,
    ) -> bool {
        let mut was_useful = false;
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        loop {
            if shared.is_closed() || shared.is_idle() {
                return was_useful;
            }
            match subscribe_open(shared, &mut sink, &mut stream).await {
                Ok(subscribed) => was_useful |= subscribed,
                Err(_) => return was_useful,
            }
            backlog.caught_up();
            tokio::select! {
                message = stream.next() => {
                    let Some(message) = message else { return was_useful };
                    hear(shared, &message);
                    drain(shared, &mut stream);
                }
                () = shared.changed.notified() => {}
                () = replaced(&mut self.lines_opened) => return was_useful,
                _ = sweep.tick() => {
                    let abandoned = shared.sweep();
                    if unsubscribe(&mut sink, &abandoned).await.is_err() {
                        return was_useful;
                    }
                }
            }
        }
    }
}

/// Waits until the connection for requests is another one than the first.
async fn replaced(lines_opened: &mut watch::Receiver<u64>) {
    loop {
        if lines_opened.changed().await.is_err() {
            return std::future::pending().await;
        }
        if *lines_opened.borrow_and_update() > 1 {
            return;
        }
    }
}

/// Subscribes whatever is not yet confirmed. Messages are heard meanwhile.
async fn subscribe_open(
    shared: &Shared,
    sink: &mut PubSubSink,
    stream: &mut PubSubStream,
) -> Result<bool, StoreError> {
    let mut has_subscribed = false;
    loop {
        let names = shared.unconfirmed();
        if names.is_empty() {
            return Ok(has_subscribed);
        }
        timed(sink.subscribe(&names)).await?;
        shared.confirm(&names);
        drain(shared, stream);
        has_subscribed = true;
    }
}

async fn unsubscribe(sink: &mut PubSubSink, names: &[String]) -> Result<(), StoreError> {
    for names in names.chunks(CHANNELS_AT_ONCE) {
        timed(sink.unsubscribe(names)).await?;
    }
    Ok(())
}

async fn timed(
    exchange: impl Future<Output = Result<(), redis::RedisError>>,
) -> Result<(), StoreError> {
    match tokio::time::timeout(DIAL_TIMEOUT, exchange).await {
        Ok(done) => done.map_err(|error| error::from_connection(&error)),
        Err(_) => Err(StoreError::TimedOut(DIAL_TIMEOUT)),
    }
}

fn drain(shared: &Shared, stream: &mut PubSubStream) {
    while let Some(Some(message)) = stream.next().now_or_never() {
        hear(shared, &message);
    }
}

fn hear(shared: &Shared, message: &redis::Msg) {
    shared.hear(message.get_channel_name(), message.get_payload_bytes());
}
