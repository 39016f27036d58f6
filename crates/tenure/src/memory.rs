//! A store in memory: for elections that are switched off, for tests, and for several clients in
//! one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::memory_store::MemoryStore;
use tenure_core::protocol::{Answer, Call, Hint};
use tenure_core::{Moment, Resource, ServerTime, StoreError};
use tokio::sync::{mpsc, watch};

use crate::backend::{Backend, Calling, Connection, Listening, Signal, SignalSink, Subscription};
use crate::clock::{self, Clock};

/// A store in the memory of this process, for all clients that share it.
///
/// ```
/// # use std::sync::Arc;
/// # use tenure::{MemoryBackend, Tenure};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = Arc::new(MemoryBackend::new());
/// let tenure = Tenure::builder().backend(store).connect().await?;
/// let election = tenure.election("nightly-report").start().await?;
/// let term = election.wait_for_leadership().await?;
/// assert!(term.is_valid());
/// # Ok::<(), tenure::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
    link: Arc<Link>,
}

#[derive(Debug)]
struct Shared {
    store: Mutex<MemoryStore>,
    clock: Clock,
    /// Where the store's clock stood when the local one stood at `Moment::ORIGIN`.
    origin: ServerTime,
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    by_key: HashMap<String, Vec<(u64, MemorySubscriber)>>,
    count: u64,
}

/// One listener and the link over which it hears.
#[derive(Clone, Debug)]
struct MemorySubscriber {
    target: SignalTarget,
    link: Arc<Link>,
}

#[derive(Clone, Debug)]
enum SignalTarget {
    Sink(SignalSink),
    Queue(mpsc::Sender<Signal>),
}

impl MemorySubscriber {
    fn put(&self, signal: Signal) {
        match &self.target {
            SignalTarget::Sink(sink) => drop(sink.put(signal)),
            // Full: whoever does not read has enough hints already.
            SignalTarget::Queue(queue) => drop(queue.try_send(signal)),
        }
    }

    fn is_closed(&self) -> bool {
        match &self.target {
            SignalTarget::Sink(sink) => sink.is_closed(),
            SignalTarget::Queue(queue) => queue.is_closed(),
        }
    }
}

/// What lies between one client and the store.
#[derive(Debug)]
struct Link {
    state: watch::Sender<LinkState>,
    connection: watch::Sender<Connection>,
}

/// How requests fare on their way to the store and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// They arrive and are answered.
    Open,
    /// They vanish. Nobody answers, nothing is heard.
    Cut,
    /// They arrive and take effect, but the answers vanish.
    AnswersLost,
}

impl Link {
    fn open() -> Arc<Self> {
        let state = watch::Sender::new(LinkState::Open);
        Arc::new(Link { state, connection: watch::Sender::new(Connection::Up) })
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBackend {
    /// An empty store.
    pub fn new() -> Self {
        Self::on(Clock::System)
    }

    pub(crate) fn on(clock: Clock) -> Self {
        let elapsed = clock.now().since(Moment::ORIGIN).as_micros() as u64;
        let wall = match clock {
            Clock::System => clock::wall_micros(),
            // The same in every run of a test: 1 January 2026.
            Clock::Manual(_) => 1_767_225_600_000_000,
        };
        let origin = ServerTime(wall.saturating_sub(elapsed));
        let store = Mutex::new(MemoryStore::new(ServerTime(wall)));
        let shared = Shared { store, clock, origin, listeners: Mutex::default() };
        MemoryBackend { shared: Arc::new(shared), link: Link::open() }
    }

    /// The same store over another link.
    pub(crate) fn over_own_link(&self) -> Self {
        MemoryBackend { shared: Arc::clone(&self.shared), link: Link::open() }
    }

    pub(crate) fn set_link(&self, state: LinkState) {
        let open = state == LinkState::Open;
        self.link.state.send_replace(state);
        self.link.connection.send_replace(match open {
            true => Connection::Up,
            false => Connection::Down(StoreError::unreachable("the link is cut".to_owned())),
        });
        let signal = if open { Signal::Listening } else { Signal::Deaf };
        self.tell(|subscriber| Arc::ptr_eq(&subscriber.link, &self.link), signal);
    }

    /// The store itself, with its clock: for tests that do what no client would.
    pub(crate) fn with_store<T>(&self, act: impl FnOnce(&mut MemoryStore, ServerTime) -> T) -> T {
        let now = self.shared.now();
        act(&mut self.shared.lock_store(), now)
    }

    fn execute(&self, call: &Call) -> Answer {
        let (answer, hints) = self.with_store(|store, now| store.execute(now, call));
        for hint in hints {
            self.publish(&call.resource, hint);
        }
        answer
    }

    pub(crate) fn publish(&self, resource: &Resource, hint: Hint) {
        let subscribers = match self.shared.lock_listeners().by_key.get(resource.key()) {
            Some(subscribers) => subscribers.clone(),
            None => return,
        };
        for (_, subscriber) in subscribers {
            if *subscriber.link.state.borrow() == LinkState::Open {
                subscriber.put(Signal::Hint(hint.clone()));
            }
        }
    }

    fn add_subscriber(&self, resource: &Resource, target: SignalTarget) -> u64 {
        let subscriber = MemorySubscriber { target, link: Arc::clone(&self.link) };
        if *self.link.state.borrow() == LinkState::Open {
            subscriber.put(Signal::Listening);
        }
        self.shared.lock_listeners().add(resource.key(), subscriber)
    }

    fn tell(&self, who: impl Fn(&MemorySubscriber) -> bool, signal: Signal) {
        let listeners = self.shared.lock_listeners();
        let subscribers: Vec<MemorySubscriber> =
            listeners.by_key.values().flatten().map(|(_, subscriber)| subscriber.clone()).collect();
        drop(listeners);
        for subscriber in subscribers.iter().filter(|subscriber| who(subscriber)) {
            subscriber.put(signal.clone());
        }
    }
}

impl Backend for MemoryBackend {
    fn call(&self, call: Call) -> Calling {
        let state = self.link.state.borrow().clone();
        match state {
            LinkState::Open => Box::pin(std::future::ready(Ok(self.execute(&call)))),
            LinkState::AnswersLost => {
                self.execute(&call);
                Box::pin(std::future::pending())
            }
            LinkState::Cut => Box::pin(std::future::pending()),
        }
    }

    fn subscribe(&self, resource: &Resource) -> Subscription {
        let (sender, subscription) = Subscription::channel();
        self.add_subscriber(resource, SignalTarget::Queue(sender));
        subscription
    }

    fn listen(&self, resource: &Resource, sink: SignalSink) -> Listening {
        let number = self.add_subscriber(resource, SignalTarget::Sink(sink));
        let (shared, key) = (Arc::clone(&self.shared), resource.key().to_owned());
        Listening::until_dropped(move || shared.lock_listeners().remove(&key, number))
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        self.link.connection.subscribe()
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

impl Shared {
    fn now(&self) -> ServerTime {
        let elapsed = self.clock.now().since(Moment::ORIGIN).as_micros() as u64;
        ServerTime(self.origin.0 + elapsed)
    }

    fn lock_store(&self) -> MutexGuard<'_, MemoryStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many listeners come before those that went away are looked for.
const SWEEP_EVERY: u64 = 64;

impl Listeners {
    fn add(&mut self, key: &str, subscriber: MemorySubscriber) -> u64 {
        self.count += 1;
        if self.count.is_multiple_of(SWEEP_EVERY) {
            self.sweep();
        }
        self.by_key.entry(key.to_owned()).or_default().push((self.count, subscriber));
        self.count
    }

    fn sweep(&mut self) {
        self.by_key.retain(|_, subscribers| {
            subscribers.retain(|(_, subscriber)| !subscriber.is_closed());
            !subscribers.is_empty()
        });
    }

    fn remove(&mut self, key: &str, number: u64) {
        if let Some(subscribers) = self.by_key.get_mut(key) {
            subscribers.retain(|(other, _)| *other != number);
            if subscribers.is_empty() {
                self.by_key.remove(key);
            }
        }
    }
}
