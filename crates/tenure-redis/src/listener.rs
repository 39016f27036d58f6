//! The connection for messages: one for all subscriptions, made again when it breaks.
//!
//! In: subscriptions, and messages from the store. Out: signals to the subscribers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use tenure_core::{StoreError, StoreErrorKind};
use tokio::sync::watch;

use super::audience::{Audience, CHANNELS_AT_ONCE, Subscriber};
use super::backoff::Backoff;
use super::dial::{DIAL_TIMEOUT, Route};
use super::error;
use super::guard::Backlog;
use super::transport::RequestConnections;
use super::warnings::Warnings;
use tenure_backend::{Connection, Listening, SignalSink, Subscription};

/// The wait before the next try when subscribing is not allowed: a person has to act first.
pub(super) const DENIED_WAIT: Duration = Duration::from_secs(30);
/// How often channels without a subscriber are unsubscribed.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The subscriptions of a backend.
#[derive(Debug)]
pub(super) struct Listener {
    shared: Arc<Audience>,
}

impl Listener {
    /// Starts the task in the current runtime. It connects once there is a subscription, and again
    /// whenever the connections for `requests` were replaced: the store may be another one then.
    pub(super) fn start(
        route: Route,
        requests: &RequestConnections,
        warnings: Arc<Warnings>,
    ) -> Self {
        let shared = Arc::new(Audience::default());
        let task = ListenerTask {
            route,
            shared: Arc::clone(&shared),
            lines_opened: requests.lines_opened(),
            requests: requests.state().clone(),
            warnings,
        };
        tokio::spawn(task.run());
        Listener { shared }
    }

    /// Adds a listener with a queue of its own.
    pub(super) fn subscribe(&self, channel: &str) -> Subscription {
        let (subscriber, subscription) = Subscriber::queue();
        self.shared.add(channel, subscriber);
        subscription
    }

    /// Adds a listener that takes signals at once.
    pub(super) fn listen(&self, channel: &str, sink: SignalSink) -> Listening {
        let (subscriber, listening) = Subscriber::sink(sink);
        self.shared.add(channel, subscriber);
        listening
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.close();
    }
}

struct ListenerTask {
    route: Route,
    shared: Arc<Audience>,
    lines_opened: watch::Receiver<u64>,
    /// How the connections for requests stand.
    requests: watch::Receiver<Connection>,
    warnings: Arc<Warnings>,
}

impl ListenerTask {
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
                Err(error) if error.kind() == StoreErrorKind::Denied => {
                    let why = error.detail();
                    self.warnings.tell(format!("hints: not allowed to subscribe: {why}"));
                    DENIED_WAIT
                }
                _ => backoff.next(),
            };
            shared.deafen();
            tokio::select! {
                () = self.rest(wait) => {}
                () = shared.closing() => {}
            }
        }
    }

    /// Waits, and then for requests to get through: without them hints are of no use, and one
    /// connection is enough to find out that the store is back.
    async fn rest(&mut self, wait: Duration) {
        tokio::time::sleep(wait).await;
        let gets_through = |state: &Connection| !matches!(state, Connection::Down(_));
        // Fails when there will be no requests any more; then nobody listens either.
        let _ = self.requests.wait_for(gets_through).await;
    }

    /// Opens a connection and listens on it for as long as it lasts.
    async fn listen_once(
        &mut self,
        shared: &Audience,
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
        shared: &Audience,
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
pub(super) async fn replaced(lines_opened: &mut watch::Receiver<u64>) {
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
    shared: &Audience,
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
        Err(_) => Err(StoreError::timed_out(DIAL_TIMEOUT)),
    }
}

fn drain(shared: &Audience, stream: &mut PubSubStream) {
    while let Some(Some(message)) = stream.next().now_or_never() {
        hear(shared, &message);
    }
}

fn hear(shared: &Audience, message: &redis::Msg) {
    shared.hear(message.get_channel_name(), message.get_payload_bytes());
}
