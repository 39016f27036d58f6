//! What a store must offer to hold elections.
//!
//! In: [`Call`]s, one request about one resource each. Out: [`Answer`]s in the words of
//! [`tenure_core::protocol`], and hints pushed to subscribers. A backend decides nothing about
//! leadership; it carries out requests atomically and says honestly when it does not know.

pub mod clock;
mod secret;
mod suggest;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use tenure_core::protocol::{Answer, Call, Hint};
use tenure_core::{Resource, StoreError};
use tokio::sync::{mpsc, watch};

pub use self::secret::Secret;
pub use self::suggest::nearest;

/// The future of one call: owned, so that a driver can keep thousands in flight.
pub type Calling = Pin<Box<dyn Future<Output = Result<Answer, StoreError>> + Send>>;

/// A store that holds elections.
///
/// Contract, checked by the conformance suite:
/// - a call takes effect atomically, at most once, or not at all;
/// - calls of one instance about one resource, made one after the other on a healthy connection,
///   take effect in that order;
/// - a call is answered or fails within its time-out; after that its answer is never delivered;
/// - an error means "not known to be done", never "not done".
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Carries out one call. The request is queued before this returns; the future only waits.
    fn call(&self, call: Call) -> Calling;

    /// Pushes hints about `resource` until the subscription is dropped.
    fn subscribe(&self, resource: &Resource) -> Subscription;

    /// Pushes hints about `resource` into `sink` until the returned [`Listening`] is dropped.
    /// Called inside the driver's runtime. A backend that fans hints out itself overrides this:
    /// it saves a task and a queue per election.
    fn listen(&self, resource: &Resource, sink: SignalSink) -> Listening {
        Listening::forwarding(self.subscribe(resource), sink)
    }

    /// The state of the connection, kept up to date.
    fn connection(&self) -> watch::Receiver<Connection>;

    /// Where the store is, for people. Never contains a secret.
    fn describe(&self) -> String;
}

/// The state of the connection to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The first attempt is under way.
    Connecting,
    /// Requests go through.
    Up,
    /// Requests fail for this reason; the backend keeps trying.
    Down(StoreError),
}

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// From here on hints arrive. What happened before may have been missed: look once.
    Listening,
    /// Hints may be missing until the next [`Signal::Listening`].
    Deaf,
    /// A hint.
    Hint(Hint),
}

/// How many unread signals a subscriber may pile up; more are dropped, for they are hints only.
pub const SIGNALS_QUEUED_MAX: usize = 64;

/// A running subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    signals: mpsc::Receiver<Signal>,
}

impl Subscription {
    /// A subscription and the end that feeds it. The feeder sees `is_closed()` after the drop.
    pub fn channel() -> (mpsc::Sender<Signal>, Subscription) {
        let (sender, signals) = mpsc::channel(SIGNALS_QUEUED_MAX);
        (sender, Subscription { signals })
    }

    /// The next signal; `None` when the backend is gone.
    pub async fn next(&mut self) -> Option<Signal> {
        self.signals.recv().await
    }
}

/// Where a backend puts the signals of one listener. Cheap to clone; never blocks.
#[derive(Clone)]
pub struct SignalSink(Weak<dyn Fn(Signal) + Send + Sync>);

impl SignalSink {
    /// A sink that calls `receiver` for as long as that lives elsewhere.
    pub fn new(receiver: &Arc<dyn Fn(Signal) + Send + Sync>) -> Self {
        SignalSink(Arc::downgrade(receiver))
    }

    /// Hands a signal over; `false` when nobody listens any more.
    pub fn put(&self, signal: Signal) -> bool {
        match self.0.upgrade() {
            Some(receiver) => {
                receiver(signal);
                true
            }
            None => false,
        }
    }

    /// Whether nobody listens any more.
    pub fn is_closed(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl fmt::Debug for SignalSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalSink").field("closed", &self.is_closed()).finish()
    }
}

/// Keeps signals coming into a [`SignalSink`]. Dropping it ends that.
pub struct Listening(Option<Box<dyn FnOnce() + Send>>);

impl Listening {
    /// Runs `end` when the listener does not want to hear any more.
    pub fn until_dropped(end: impl FnOnce() + Send + 'static) -> Self {
        Listening(Some(Box::new(end)))
    }

    /// Copies a subscription into a sink by a task on the current runtime.
    fn forwarding(mut subscription: Subscription, sink: SignalSink) -> Self {
        let task = tokio::spawn(async move {
            while let Some(signal) = subscription.next().await {
                if !sink.put(signal) {
                    return;
                }
            }
        });
        Listening::until_dropped(move || task.abort())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listening")
    }
}

/// Starts a backend inside the driver's runtime: background tasks may be spawned there.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>, ConnectError>> + Send>>;

/// Why a backend could not be set up. An unreachable store is not one of these: it may come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one that we understand.
    #[error("store address: {0}")]
    Address(String),
    /// A certificate, key or other file is missing or unusable.
    #[error("store files: {0}")]
    Files(String),
    /// The store refuses the credentials.
    #[error("store denies access: {0}")]
    Denied(String),
    /// An embedded store does not start.
    #[error("store does not start: {0}")]
    Start(String),
}
