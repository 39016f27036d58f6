//! What a store must offer to hold elections.
//!
//! In: [`Call`]s, one request about one resource each. Out: [`Answer`]s as
//! [`tenure_core::protocol`] defines them, and hints pushed to subscribers. A backend decides
//! nothing about leadership: it carries out requests atomically, and reports an error when it does
//! not know the outcome.

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
    /// Carries out one call. The request is queued before this returns; the future only waits for
    /// the answer.
    fn call(&self, call: Call) -> Calling;

    /// Pushes hints about `resource` until the subscription is dropped.
    fn subscribe(&self, resource: &Resource) -> Subscription;

    /// Pushes hints about `resource` into `sink` until the returned [`Listening`] is dropped.
    /// Called inside the driver's runtime. A backend that distributes hints itself overrides this,
    /// which saves a task and a queue per election.
    fn listen(&self, resource: &Resource, sink: SignalSink) -> Listening {
        Listening::forwarding(self.subscribe(resource), sink)
    }

    /// The state of the connection, kept up to date.
    fn connection(&self) -> watch::Receiver<Connection>;

    /// Where the store is, for display. Never contains a secret.
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

/// What a subscriber receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Hints arrive from now on. Earlier ones may have been missed: look at the store once.
    Listening,
    /// Hints may be missing until the next [`Signal::Listening`].
    Deaf,
    /// A hint.
    Hint(Hint),
}

/// How many unread signals a subscriber may have. More are dropped, because they are only hints.
pub const SIGNALS_QUEUED_MAX: usize = 64;

/// A running subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    signals: mpsc::Receiver<Signal>,
}

impl Subscription {
    /// A subscription and the sender for it. After the drop, the sender's `is_closed()` is `true`.
    pub fn channel() -> (mpsc::Sender<Signal>, Subscription) {
        let (sender, signals) = mpsc::channel(SIGNALS_QUEUED_MAX);
        (sender, Subscription { signals })
    }

    /// The next signal; `None` if the backend has ended.
    pub async fn next(&mut self) -> Option<Signal> {
        self.signals.recv().await
    }
}

/// Where a backend puts the signals of one listener. Cheap to clone; never blocks.
#[derive(Clone)]
pub struct SignalSink(Weak<dyn Fn(Signal) + Send + Sync>);

impl SignalSink {
    /// A sink that calls `receiver` until that is dropped.
    pub fn new(receiver: &Arc<dyn Fn(Signal) + Send + Sync>) -> Self {
        SignalSink(Arc::downgrade(receiver))
    }

    /// Passes on a signal. Returns `false` if nobody listens any more.
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

/// Keeps signals coming into a [`SignalSink`] until it is dropped.
pub struct Listening(Option<Box<dyn FnOnce() + Send>>);

impl Listening {
    /// Calls `end` when this is dropped.
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

/// Why a backend could not be set up. An unreachable store is not among the reasons, because it may
/// come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address cannot be parsed, or no backend knows its scheme.
    #[error("store address: {0}")]
    Address(String),
    /// A certificate, key or other file is missing or unusable.
    #[error("store files: {0}")]
    Files(String),
    /// The store refuses the credentials.
    #[error("store denies access: {0}")]
    Denied(String),
    /// An embedded store could not be started.
    #[error("store does not start: {0}")]
    Start(String),
}
