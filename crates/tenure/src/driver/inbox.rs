//! What waits for the driver: one queue for everything that comes in.
//!
//! Handles on any thread put messages in and never wait; the driver takes them out in order. The
//! queue also knows whether the driver sleeps and until when, which is how tests with a clock of
//! their own find out that nothing is going on any more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::protocol::{Answer, Call};
use tenure_core::{AskId, Moment, Resource, StoreError};
use tokio::sync::{Notify, oneshot};

use crate::Error;
use crate::backend::{Backend, Signal, Subscription};

use super::Starting;

/// How many requests of handles may wait. Each has a caller that waits for it, so more means that
/// the program asks faster than one thread can queue.
pub(crate) const REQUESTS_QUEUED_MAX: usize = 16_384;
/// How many signals may wait. More are dropped: they are hints, and timers find out as well.
const SIGNALS_QUEUED_MAX: usize = 16_384;

/// Names an election inside one driver; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ElectionKey(pub(crate) u64);

/// The reply to one request.
pub(crate) type Reply = Result<Answer, StoreError>;

/// One thing that waits. Small, for in a rush there are many: what is large is boxed.
pub(crate) enum Message {
    /// Begin an election.
    Start(Box<Starting>),
    /// Wishes or guards of an election changed. At most one per election waits.
    Woken(ElectionKey),
    /// The store replied to an election's request.
    Reply { election: ElectionKey, ask: AskId, reply: Box<Reply> },
    /// A signal about an election's resource.
    Signal { election: ElectionKey, signal: Signal },
    /// Carry out a call for a handle.
    Call { backend: Arc<dyn Backend>, call: Box<Call>, reply: oneshot::Sender<Reply> },
    /// Subscribe for a handle.
    Subscribe {
        backend: Arc<dyn Backend>,
        resource: Resource,
        reply: oneshot::Sender<Subscription>,
    },
    /// Wake a handle at a moment.
    Sleep { until: Moment, wake: oneshot::Sender<()> },
}

impl Message {
    fn is_request(&self) -> bool {
        use Message::{Call, Sleep, Start, Subscribe};
        matches!(self, Start(_) | Call { .. } | Subscribe { .. } | Sleep { .. })
    }
}

pub(crate) struct Inbox {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    requests: usize,
    signals: usize,
    /// No handle is left, or the client was shut down: the driver ends with its last election.
    closed: bool,
    /// The driver is gone.
    dead: bool,
    /// The driver sleeps until this moment, with nothing left to do before.
    sleeps_until: Option<Moment>,
    /// It was roused since it last looked around.
    roused: bool,
    /// How often it was woken: two equal readings mean that it slept all the while.
    wakes: u64,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Inbox { state: Mutex::default(), filled: Notify::new() })
    }

    /// Queues a handle's request. Fails when the driver is gone or far behind.
    pub(crate) fn request(&self, message: Message) -> Result<(), Error> {
        debug_assert!(message.is_request(), "other messages have their own bounds");
        let mut state = self.lock();
        let begins = matches!(message, Message::Start(_));
        if state.dead || (state.closed && begins) {
            return Err(Error::Closed);
        }
        if state.requests >= REQUESTS_QUEUED_MAX {
            return Err(Error::Overloaded { limit: REQUESTS_QUEUED_MAX });
        }
        state.requests += 1;
        self.put(state, message);
        Ok(())
    }

    /// Queues a signal, unless too many wait already.
    pub(crate) fn signal(&self, election: ElectionKey, signal: Signal) {
        let mut state = self.lock();
        if state.dead || state.signals >= SIGNALS_QUEUED_MAX {
            return;
        }
        state.signals += 1;
        self.put(state, Message::Signal { election, signal });
    }

    /// Queues what is bounded by the elections there are: their wake-ups and their replies.
    pub(crate) fn post(&self, message: Message) {
        let state = self.lock();
        if !state.dead {
            self.put(state, message);
        }
    }

    fn put(&self, mut state: MutexGuard<'_, State>, message: Message) {
        state.messages.push_back(message);
        state.wake();
        drop(state);
        self.filled.notify_one();
    }

    /// Has the driver look around although no message came.
    pub(crate) fn rouse(&self) {
        let mut state = self.lock();
        state.roused = true;
        state.wake();
        drop(state);
        self.filled.notify_one();
    }

    /// No new elections: the driver ends once those it has have ended. Until then it answers, for
    /// their work may have something to finish.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.rouse();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    // ------------------------------------------------------------------ the driver's side

    /// Moves everything that waits into `batch`.
    pub(super) fn take_all(&self, batch: &mut VecDeque<Message>) {
        let mut state = self.lock();
        (state.requests, state.signals, state.roused) = (0, 0, false);
        std::mem::swap(&mut state.messages, batch);
    }

    /// Marks the driver as asleep until `until`; `false` when there is something to do first.
    pub(super) fn fall_asleep(&self, until: Moment) -> bool {
        let mut state = self.lock();
        if !state.messages.is_empty() || state.roused {
            return false;
        }
        state.sleeps_until = Some(until);
        true
    }

    pub(super) fn wake_up(&self) {
        self.lock().wake();
    }

    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// The driver ends: whoever waits for an answer is told by the drop of its sender.
    pub(super) fn die(&self) {
        let messages = {
            let mut state = self.lock();
            state.dead = true;
            state.sleeps_until = Some(Moment::NEVER);
            std::mem::take(&mut state.messages)
        };
        drop(messages);
    }

    /// How often it was woken and until when the driver sleeps, if it does.
    pub(crate) fn rest(&self) -> (u64, Option<Moment>) {
        let state = self.lock();
        (state.wakes, state.sleeps_until)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&mut self) {
        if !self.dead && self.sleeps_until.take().is_some() {
            self.wakes += 1;
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Inbox")
            .field("waiting", &state.messages.len())
            .field("closed", &state.closed)
            .finish()
    }
}
