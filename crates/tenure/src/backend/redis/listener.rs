//! The connection for messages: one for all subscriptions, made again when it breaks.
//!
//! In: subscriptions, and messages from the store. Out: signals to the subscribers. A message is
//! handed over at once or dropped, so a slow subscriber holds up nobody.

use std::collections::{HashMap, HashSet};
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
use super::warnings::Warnings;
use crate::backend::{Listening, Signal, SignalSink, Subscription};

/// How many channels one command names: ten thousand elections must not wait one by one.
const CHANNELS_AT_ONCE: usize = 500;
/// The wait before the next try when subscribing is not allowed: a person has to act first.
const DENIED_WAIT: Duration = Duration::from_secs(30);
/// How often channels without a subscriber are given up.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The subscriptions of a backend.
#[derive(Debug)]
pub(super) struct Listener {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    board: Mutex<Board>,
    /// Wakes the task when there is something to subscribe, or nobody is left.
    changed: Notify,
    is_closed: AtomicBool,
}

/// Who listens to what.
#[derive(Debug, Default)]
struct Board {
    channels: HashMap<Arc<str>, Channel>,
    /// Channels that the store has not confirmed on the running connection; names that nobody
    /// listens to any more may be among them.
    unconfirmed: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
struct Channel {
    ears: Vec<Ear>,
    is_confirmed: bool,
}

/// One listener.
#[derive(Debug)]
enum Ear {
    Queue(mpsc::Sender<Signal>),
    Sink { sink: SignalSink, is_over: Arc<AtomicBool> },
}

impl Ear {
    fn put(&self, signal: Signal) {
        match self {
            // Full: it has enough hints to look at the store once more anyway.
            Ear::Queue(queue) => drop(queue.try_send(signal)),
            Ear::Sink { sink, .. } => drop(sink.put(signal)),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Ear::Queue(queue) => queue.is_closed(),
            Ear::Sink { sink, is_over } => is_over.load(Ordering::Acquire) || sink.is_closed(),
        }
    }
}

impl Listener {
    /// Starts the task in the current runtime. It connects once there is a subscription, and anew
    /// whenever the connection for requests was replaced: the store may be another one then.
    pub(super) fn start(
        route: Route,
        lines_opened: watch::Receiver<u64>,
        warnings: Arc<Warnings>,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let ears = Ears { route, shared: Arc::clone(&shared), lines_opened, warnings };
        tokio::spawn(ears.run());
        Listener { shared }
    }

    /// Adds a listener with a queue of its own.
    pub(super) fn subscribe(&self, channel: &str) -> Subscription {
        let (sender, subscription) = Subscription::channel();
        self.shared.add(channel, Ear::Queue(sender));
        subscription
    }

    /// Adds a listener that takes signals at once.
    pub(super) fn listen(&self, channel: &str, sink: SignalSink) -> Listening {
        let is_over = Arc::new(AtomicBool::new(false));
        self.shared.add(channel, Ear::Sink { sink, is_over: Arc::clone(&is_over) });
        // The next sweep does the rest: a listener may end in the middle of a signal.
        Listening::until_dropped(move || is_over.store(true, Ordering::Release))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        // Nothing that runs under this lock leaves the board half changed.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, channel: &str, ear: Ear) {
        let mut board = self.board();
        let Board { channels, unconfirmed } = &mut *board;
        let name: Arc<str> = channel.into();
        let channel = channels.entry(Arc::clone(&name)).or_insert_with(|| {
            unconfirmed.push(name);
            // One each, nearly always: a vector that grows by itself begins with four.
            Channel { ears: Vec::with_capacity(1), is_confirmed: false }
        });
        channel.ears.retain(|ear| !ear.is_closed());
        if channel.is_confirmed {
            ear.put(Signal::Listening);
        }
        channel.ears.push(ear);
        if !unconfirmed.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Some channels to subscribe next.
    fn unconfirmed(&self) -> Vec<Arc<str>> {
        let mut board = self.board();
        let Board { channels, unconfirmed } = &mut *board;
        unconfirmed.retain(|name| channels.contains_key(name));
        unconfirmed.iter().take(CHANNELS_AT_ONCE).cloned().collect()
    }

    /// These are subscribed now.
    fn confirm(&self, names: &[Arc<str>]) {
        let mut board = self.board();
        let Board { channels, unconfirmed } = &mut *board;
        let confirmed: HashSet<&str> = names.iter().map(|name| &**name).collect();
        unconfirmed.retain(|name| !confirmed.contains(&**name));
        for name in names {
            if let Some(channel) = channels.get_mut(name) {
                channel.is_confirmed = true;
                channel.tell(&Signal::Listening);
            }
        }
    }

    fn deafen(&self) {
        let mut board = self.board();
        let Board { channels, unconfirmed } = &mut *board;
        for channel in channels.values_mut() {
            if std::mem::take(&mut channel.is_confirmed) {
                channel.tell(&Signal::Deaf);
            }
        }
        *unconfirmed = channels.keys().cloned().collect();
    }

    fn hear(&self, name: &str, message: &[u8]) {
        let Some(hint) = hint::parse(message) else { return };
        if let Some(channel) = self.board().channels.get(name) {
            channel.tell(&Signal::Hint(hint));
        }
    }

    /// Forgets channels that nobody listens to any more.
    fn sweep(&self) -> Vec<Arc<str>> {
        let mut abandoned = Vec::new();
        self.board().channels.retain(|name, channel| {
            channel.ears.retain(|ear| !ear.is_closed());
            let is_used = !channel.ears.is_empty();
            if !is_used {
                abandoned.push(Arc::clone(name));
            }
            is_used
        });
        abandoned
    }

    fn is_idle(&self) -> bool {
        self.board().channels.is_empty()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    async fn closing(&self) {
        while !self.is_closed() {
            self.changed.notified().await;
        }
    }
}

impl Channel {
    fn tell(&self, signal: &Signal) {
        self.ears.iter().for_each(|ear| ear.put(signal.clone()));
    }
}

struct Ears {
    route: Route,
    shared: Arc<Shared>,
    lines_opened: watch::Receiver<u64>,
    warnings: Arc<Warnings>,
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
            let wait = match self.listen_once(&shared, &mut backoff).await {
                Err(StoreError::Denied(why)) => {
                    self.warnings.tell(format!("hints: not allowed to subscribe: {why}"));
                    DENIED_WAIT
                }
                _ => backoff.next(),
            };
            shared.deafen();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shared.closing() => {}
            }
        }
    }

    /// Opens a connection and listens on it for as long as it lasts.
    async fn listen_once(
        &mut self,
        shared: &Shared,
        backoff: &mut Backoff,
    ) -> Result<(), StoreError> {
        let backlog = Arc::new(Backlog::default());
        let connection = self.route.listen(Arc::clone(&backlog)).await?;
        let (sink, stream) = connection.split();
        self.listen(shared, sink, stream, &backlog, backoff).await
    }

    /// Listens until the connection breaks, should be replaced, or nobody is left to hear.
    async fn listen(
        &mut self,
        shared: &Shared,
        mut sink: PubSubSink,
        mut stream: PubSubStream,
        backlog: &Backlog,
        backoff: &mut Backoff,
    ) -> Result<(), StoreError> {
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        while !shared.is_closed() && !shared.is_idle() {
            if subscribe_open(shared, &mut sink, &mut stream).await? {
                backoff.reset();
            }
            backlog.caught_up();
            tokio::select! {
                message = stream.next() => {
                    let Some(message) = message else { return Ok(()) };
                    hear(shared, &message);
                    drain(shared, &mut stream);
                }
                () = shared.changed.notified() => {}
                () = replaced(&mut self.lines_opened) => return Ok(()),
                _ = sweep.tick() => unsubscribe(&mut sink, &shared.sweep()).await?,
            }
        }
        Ok(())
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
        timed(sink.subscribe(as_text(&names))).await?;
        shared.confirm(&names);
        drain(shared, stream);
        has_subscribed = true;
    }
}

async fn unsubscribe(sink: &mut PubSubSink, names: &[Arc<str>]) -> Result<(), StoreError> {
    for names in names.chunks(CHANNELS_AT_ONCE) {
        timed(sink.unsubscribe(as_text(names))).await?;
    }
    Ok(())
}

fn as_text(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
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
