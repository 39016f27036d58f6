//! Hooks: whoever must know that this instance begins or ceases to lead.
//!
//! Each hook has a worker and a short queue of its own, so that a broken one holds up nobody. A
//! hook that fails is tried again, a little later each time, until it succeeds, is tried out, or
//! something newer happened to the same resource: an old gain told after a loss would be a lie.

mod command;
mod webhook;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tenure::Secret;
use tokio::sync::Notify;

pub use webhook::WebhookError;

/// How many happenings may wait for one hook. More than this and it is hopelessly behind: the
/// oldest go, for the newest say how things stand.
pub const HOOK_QUEUED_MAX: usize = 64;
/// How often one happening is tried.
pub const HOOK_TRIES_MAX: u32 = 6;
/// How long one try may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the first failure; doubled after each further one.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Something to do when this instance begins or ceases to lead.
#[derive(Clone)]
pub struct Hook {
    turn: Turn,
    action: Action,
}

/// Which turn of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Turn {
    Gain,
    Loss,
}

impl Turn {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Turn::Gain => "gain",
            Turn::Loss => "loss",
        }
    }
}

#[derive(Clone)]
enum Action {
    Command(String),
    Webhook(webhook::Webhook),
}

impl Hook {
    /// Runs `command` in a shell when this instance begins to lead. The environment has
    /// `TENURE_EVENT`, `TENURE_NAME`, `TENURE_ID`, `TENURE_TOKEN` and `TENURE_REASON`.
    pub fn command_on_gain(command: impl Into<String>) -> Self {
        Hook { turn: Turn::Gain, action: Action::Command(command.into()) }
    }

    /// Runs `command` in a shell when this instance leads no more.
    pub fn command_on_loss(command: impl Into<String>) -> Self {
        Hook { turn: Turn::Loss, action: Action::Command(command.into()) }
    }

    /// Posts to `url` when this instance begins to lead. Fails when `url` is not `http://…` or
    /// `https://…`.
    pub fn webhook_on_gain(url: &Secret) -> Result<Self, WebhookError> {
        Ok(Hook { turn: Turn::Gain, action: Action::Webhook(webhook::Webhook::new(url)?) })
    }

    /// Posts to `url` when this instance leads no more.
    pub fn webhook_on_loss(url: &Secret) -> Result<Self, WebhookError> {
        Ok(Hook { turn: Turn::Loss, action: Action::Webhook(webhook::Webhook::new(url)?) })
    }

    async fn attempt(&self, happening: &Happening) -> Result<(), String> {
        let attempt = async {
            match &self.action {
                Action::Command(command) => command::run(command, happening).await,
                Action::Webhook(webhook) => webhook.post(happening).await,
            }
        };
        match tokio::time::timeout(TRY_TIMEOUT, attempt).await {
            Ok(done) => done,
            Err(_) => Err(format!("took longer than {TRY_TIMEOUT:?}")),
        }
    }
}

impl fmt::Debug for Hook {
    /// Neither a command nor an address is shown: both may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.action {
            Action::Command(_) => "command",
            Action::Webhook(_) => "webhook",
        };
        write!(f, "Hook({kind} on {})", self.turn.as_str())
    }
}

/// A leadership that began or ended here.
#[derive(Debug, Serialize)]
pub(crate) struct Happening {
    #[serde(rename = "event")]
    pub(crate) turn: Turn,
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) token: u64,
    pub(crate) reason: &'static str,
}

/// All hooks of a sidecar.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    queues: Vec<Arc<Queue>>,
}

/// What came of the tries of one hook so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) done: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) superseded: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    hook: Hook,
    waiting: Mutex<VecDeque<Arc<Happening>>>,
    filled: Notify,
    tally: Tally,
}

impl Hooks {
    /// The hooks, and the work of each, to be run beside the rest.
    pub(crate) fn new(hooks: Vec<Hook>) -> Self {
        let queue = |hook| Queue {
            hook,
            waiting: Mutex::default(),
            filled: Notify::new(),
            tally: Tally::default(),
        };
        Hooks { queues: hooks.into_iter().map(|hook| Arc::new(queue(hook))).collect() }
    }

    /// One future per hook, each without an end.
    pub(crate) fn workers(&self) -> Vec<impl Future<Output = ()> + Send + 'static> {
        self.queues.iter().map(|queue| work(Arc::clone(queue))).collect()
    }

    /// Tells every hook; those of the other turn learn that what they knew is over. Never waits.
    pub(crate) fn tell(&self, happening: &Arc<Happening>) {
        self.queues.iter().for_each(|queue| queue.push(happening));
    }

    /// What came of each hook, with its turn.
    pub(crate) fn tallies(&self) -> impl Iterator<Item = (Turn, &Tally)> {
        self.queues.iter().map(|queue| (queue.hook.turn, &queue.tally))
    }
}

impl Queue {
    fn push(&self, happening: &Arc<Happening>) {
        let mut waiting = self.lock();
        let is_ours = |earlier: &Happening| earlier.turn == self.hook.turn;
        let same = |earlier: &&Arc<Happening>| earlier.name == happening.name && is_ours(earlier);
        self.count(&self.tally.superseded, waiting.iter().filter(same).count());
        waiting.retain(|earlier| earlier.name != happening.name);
        if waiting.len() == HOOK_QUEUED_MAX {
            waiting.pop_front();
            self.count(&self.tally.dropped, 1);
            tracing::warn!(target: "tenure", hook = ?self.hook, "hook is too far behind");
        }
        waiting.push_back(Arc::clone(happening));
        drop(waiting);
        self.filled.notify_one();
    }

    fn count(&self, counter: &AtomicU64, by: usize) {
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }

    async fn next(&self) -> Arc<Happening> {
        loop {
            if let Some(happening) = self.lock().pop_front() {
                return happening;
            }
            self.filled.notified().await;
        }
    }

    /// Whether something newer about the same resource waits.
    fn is_outdated(&self, happening: &Happening) -> bool {
        self.lock().iter().any(|later| later.name == happening.name)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Happening>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn work(queue: Arc<Queue>) {
    loop {
        let happening = queue.next().await;
        // The other turn only had to end what was under way.
        if happening.turn == queue.hook.turn {
            deliver(&queue, &happening).await;
        }
    }
}

async fn deliver(queue: &Queue, happening: &Happening) {
    let mut pause = PAUSE_MIN;
    for attempt in 1..=HOOK_TRIES_MAX {
        let Err(why) = queue.hook.attempt(happening).await else {
            return queue.count(&queue.tally.done, 1);
        };
        let (hook, resource) = (&queue.hook, happening.name.as_str());
        tracing::warn!(target: "tenure", ?hook, resource, attempt, why, "hook failed");
        if attempt == HOOK_TRIES_MAX {
            break;
        }
        tokio::time::sleep(pause).await;
        if queue.is_outdated(happening) {
            return queue.count(&queue.tally.superseded, 1);
        }
        queue.count(&queue.tally.retried, 1);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    queue.count(&queue.tally.failed, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(turn: Turn, name: &str) -> Arc<Happening> {
        let (name, id) = (name.to_owned(), "ada_1".to_owned());
        Arc::new(Happening { turn, name, id, token: 7, reason: "granted" })
    }

    #[test]
    fn the_queue_is_bounded_and_the_newest_word_about_a_resource_counts() {
        let hooks = Hooks::new(vec![Hook::command_on_gain("true")]);
        for number in 0..HOOK_QUEUED_MAX + 5 {
            hooks.tell(&happening(Turn::Gain, &format!("r{number}")));
        }
        let queue = &hooks.queues[0];
        assert_eq!(queue.lock().len(), HOOK_QUEUED_MAX);
        assert_eq!(queue.tally.dropped.load(Ordering::Relaxed), 5);

        hooks.tell(&happening(Turn::Loss, "r60"));
        assert_eq!(queue.lock().len(), HOOK_QUEUED_MAX, "the loss took the gain's place");
        assert_eq!(queue.tally.superseded.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let url = Secret::new("https://user:secret@example.org/hook?key=secret");
        for hook in [Hook::command_on_gain("secret"), Hook::webhook_on_loss(&url).unwrap()] {
            assert!(!format!("{hook:?}").contains("secret"), "{hook:?}");
        }
    }
}
