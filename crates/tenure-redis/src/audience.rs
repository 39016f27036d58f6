//! Who listens to which channel, whatever connection the messages come by.
//!
//! In: listeners, and what a connection hears and loses. Out: signals to the listeners. A message
//! is handed over at once or dropped, so a slow listener holds up nobody.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

use super::hint;
use tenure_backend::{Listening, Signal, SignalSink, Subscription};

/// How many channels one command names: ten thousand elections must not wait one by one.
pub(super) const CHANNELS_AT_ONCE: usize = 500;

/// The listeners of one connection.
#[derive(Debug, Default)]
pub(super) struct Audience {
    board: Mutex<Board>,
    /// Wakes the task when there is something to subscribe, or nobody is left.
    pub(super) changed: Notify,
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
    subscribers: Vec<Subscriber>,
    is_confirmed: bool,
}

/// One listener.
#[derive(Debug)]
pub(super) enum Subscriber {
    Queue(mpsc::Sender<Signal>),
    Sink { sink: SignalSink, is_over: Arc<AtomicBool> },
}

impl Subscriber {
    /// A listener with a queue of its own.
    pub(super) fn queue() -> (Self, Subscription) {
        let (sender, subscription) = Subscription::channel();
        (Subscriber::Queue(sender), subscription)
    }

    /// A listener that takes signals at once.
    pub(super) fn sink(sink: SignalSink) -> (Self, Listening) {
        let is_over = Arc::new(AtomicBool::new(false));
        let subscriber = Subscriber::Sink { sink, is_over: Arc::clone(&is_over) };
        // The next sweep does the rest: a listener may end in the middle of a signal.
        (subscriber, Listening::until_dropped(move || is_over.store(true, Ordering::Release)))
    }

    fn put(&self, signal: Signal) {
        match self {
            // Full: it has enough hints to look at the store once more anyway.
            Subscriber::Queue(queue) => drop(queue.try_send(signal)),
            Subscriber::Sink { sink, .. } => drop(sink.put(signal)),
        }
    }

    /// Whether nobody listens with it any more.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Subscriber::Queue(queue) => queue.is_closed(),
            Subscriber::Sink { sink, is_over } => {
                is_over.load(Ordering::Acquire) || sink.is_closed()
            }
        }
    }
}

impl Audience {
    fn board(&self) -> MutexGuard<'_, Board> {
        // Nothing that runs under this lock leaves the board half changed.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a listener.
    pub(super) fn add(&self, channel: &str, subscriber: Subscriber) {
        let mut board = self.board();
        let Board { channels, unconfirmed } = &mut *board;
        let name: Arc<str> = channel.into();
        let channel = channels.entry(Arc::clone(&name)).or_insert_with(|| {
            unconfirmed.push(name);
            // One each, nearly always: a vector that grows by itself begins with four.
            Channel { subscribers: Vec::with_capacity(1), is_confirmed: false }
        });
        channel.subscribers.retain(|subscriber| !subscriber.is_closed());
        if channel.is_confirmed {
            subscriber.put(Signal::Listening);
        }
        channel.subscribers.push(subscriber);
        if !unconfirmed.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Some channels to subscribe next.
    pub(super) fn unconfirmed(&self) -> Vec<Arc<str>> {
        let mut board = self.board();
        let Board { channels, unconfirmed } = &mut *board;
        unconfirmed.retain(|name| channels.contains_key(name));
        unconfirmed.iter().take(CHANNELS_AT_ONCE).cloned().collect()
    }

    /// These are subscribed now.
    pub(super) fn confirm(&self, names: &[Arc<str>]) {
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

    /// The connection broke: nobody hears anything.
    pub(super) fn deafen(&self) {
        let mut board = self.board();
        let Board { channels, unconfirmed } = &mut *board;
        for channel in channels.values_mut() {
            if std::mem::take(&mut channel.is_confirmed) {
                channel.tell(&Signal::Deaf);
            }
        }
        *unconfirmed = channels.keys().cloned().collect();
    }

    /// A message came.
    pub(super) fn hear(&self, name: &str, message: &[u8]) {
        let Some(hint) = hint::parse(message) else { return };
        if let Some(channel) = self.board().channels.get(name) {
            channel.tell(&Signal::Hint(hint));
        }
    }

    /// Takes away the listeners of some channels: the store speaks of those elsewhere.
    pub(super) fn take(&self, is_leaving: impl Fn(&str) -> bool) -> Vec<(Arc<str>, Subscriber)> {
        let mut board = self.board();
        let mut taken = Vec::new();
        for (name, channel) in board.channels.extract_if(|name, _| is_leaving(name)) {
            if channel.is_confirmed {
                channel.tell(&Signal::Deaf);
            }
            taken.extend(
                channel.subscribers.into_iter().map(|subscriber| (Arc::clone(&name), subscriber)),
            );
        }
        taken
    }

    /// Forgets channels that nobody listens to any more.
    pub(super) fn sweep(&self) -> Vec<Arc<str>> {
        let mut abandoned = Vec::new();
        self.board().channels.retain(|name, channel| {
            channel.subscribers.retain(|subscriber| !subscriber.is_closed());
            let is_used = !channel.subscribers.is_empty();
            if !is_used {
                abandoned.push(Arc::clone(name));
            }
            is_used
        });
        abandoned
    }

    /// Whether nobody listens.
    pub(super) fn is_idle(&self) -> bool {
        self.board().channels.is_empty()
    }

    /// Nobody will listen any more.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Whether nobody will listen any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until nobody will listen any more.
    pub(super) async fn closing(&self) {
        while !self.is_closed() {
            self.changed.notified().await;
        }
    }
}

impl Channel {
    fn tell(&self, signal: &Signal) {
        self.subscribers.iter().for_each(|subscriber| subscriber.put(signal.clone()));
    }
}
