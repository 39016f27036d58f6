//! Hooks: commands and addresses that are called when this instance starts or stops leading.
//!
//! Each resource has an [`Order`], which decides, and a task, which runs what was decided. A hook
//! that fails is tried again, a little later each time, until it succeeds, is tried out, or
//! something newer happened to the same resource: an old gain told after a loss would be a lie.

mod base64;
mod command;
mod ending;
mod order;
mod plan;
mod proc;
mod signature;
mod webhook;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

pub(crate) use plan::HookPlan;
pub use plan::check_hooks;
pub use webhook::{Webhook, WebhookError};

use self::order::{HookOutcome, Order, Output, Tried};
use crate::clock;
use crate::follow::Release;

/// How often a hook is tried for one event.
pub const HOOK_TRIES_MAX: u32 = 6;
/// How long one try may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long hooks may take to end when the program ends: one whole try, and some air.
const FAREWELL_MAX: Duration = Duration::from_secs(11);
/// How long hooks that were killed at the end of the program may take to be gone.
const KILLED_MAX: Duration = Duration::from_secs(3);

/// A command or address that is called when this instance starts or stops leading.
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

    /// The name of a hook that is a command.
    fn command_name(self) -> &'static str {
        match self {
            Turn::Gain => "on_gain",
            Turn::Loss => "on_loss",
        }
    }
}

#[derive(Clone)]
enum Action {
    Command(String),
    Webhook(Box<Webhook>),
}

/// Why a try did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupted {
    TookTooLong,
    /// Something newer happened, or the program ends.
    Outdated,
}

impl Hook {
    /// Runs `command` in a shell when this instance starts to lead. The environment has
    /// `TENURE_EVENT`, `TENURE_NAME`, `TENURE_ID`, `TENURE_TOKEN` and `TENURE_REASON`.
    pub fn on_gain(command: impl Into<String>) -> Self {
        Hook { turn: Turn::Gain, action: Action::Command(command.into()) }
    }

    /// Runs `command` in a shell when this instance stops leading.
    pub fn on_loss(command: impl Into<String>) -> Self {
        Hook { turn: Turn::Loss, action: Action::Command(command.into()) }
    }

    /// Posts when this instance starts to lead.
    pub fn on_gain_url(webhook: Webhook) -> Self {
        Hook { turn: Turn::Gain, action: Action::Webhook(Box::new(webhook)) }
    }

    /// Posts when this instance stops leading.
    pub fn on_loss_url(webhook: Webhook) -> Self {
        Hook { turn: Turn::Loss, action: Action::Webhook(Box::new(webhook)) }
    }

    /// The name that it has everywhere: in the settings, the log and the metrics.
    fn name(&self) -> &'static str {
        match (self.turn, &self.action) {
            (turn, Action::Command(_)) => turn.command_name(),
            (Turn::Gain, Action::Webhook(_)) => "on_gain_url",
            (Turn::Loss, Action::Webhook(_)) => "on_loss_url",
        }
    }

    /// Runs it once. When this returns, nothing of it runs any more.
    async fn attempt(
        &self,
        happening: &Happening,
        outdated: oneshot::Receiver<()>,
    ) -> Result<Result<(), String>, Interrupted> {
        let interrupted = async {
            match tokio::time::timeout(TRY_TIMEOUT, outdated).await {
                Ok(_) => Interrupted::Outdated,
                Err(_) => Interrupted::TookTooLong,
            }
        };
        match &self.action {
            Action::Command(command) => command::run(command, happening, interrupted).await,
            Action::Webhook(webhook) => tokio::select! {
                posted = webhook.post(happening) => Ok(posted),
                why = interrupted => Err(why),
            },
        }
    }
}

impl fmt::Debug for Hook {
    /// Neither a command nor an address is shown: both may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hook({})", self.name())
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
#[derive(Debug)]
pub(crate) struct Hooks {
    plan: HookPlan,
    /// By the name of the resource.
    resources: Mutex<BTreeMap<String, Arc<ResourceHooks>>>,
}

#[derive(Debug)]
struct Counted {
    hook: Hook,
    /// Its name, with a number from the second of that name on.
    label: String,
    tally: Tally,
}

fn counted(hooks: Vec<Hook>) -> Vec<Counted> {
    let mut seen: BTreeMap<&'static str, usize> = BTreeMap::new();
    let with_label = |hook: Hook| {
        let count = seen.entry(hook.name()).or_default();
        *count += 1;
        let label = match *count {
            1 => hook.name().to_owned(),
            count => format!("{}-{count}", hook.name()),
        };
        Counted { hook, label, tally: Tally::default() }
    };
    hooks.into_iter().map(with_label).collect()
}

/// What came of the tries of one hook so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) done: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) superseded: AtomicU64,
}

impl Tally {
    fn count(&self, outcome: HookOutcome) {
        let counter = match outcome {
            HookOutcome::Done => &self.done,
            HookOutcome::Retried => &self.retried,
            HookOutcome::Failed => &self.failed,
            HookOutcome::Superseded => &self.superseded,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The hooks of one resource: what is decided, and those who wait for it.
#[derive(Debug)]
struct ResourceHooks {
    hooks: Vec<Counted>,
    order: Mutex<Order>,
    /// There is news for the task.
    told: Notify,
    /// Something was decided, for those who wait for the end.
    moved: watch::Sender<()>,
}

impl Hooks {
    /// The hooks of the resources called `names`.
    pub(crate) fn new<'a>(plan: HookPlan, names: impl Iterator<Item = &'a str>) -> Self {
        let resource = |name: &str| (name.to_owned(), ResourceHooks::new(plan.hooks_of(name)));
        let resources = Mutex::new(names.map(resource).collect());
        Hooks { plan, resources }
    }

    /// When a term of this resource is released.
    pub(crate) fn release_of(&self, name: &str) -> Release {
        self.plan.release_of(name)
    }

    /// The hooks of one more resource, as the future that runs them.
    pub(crate) fn add(&self, name: &str) -> impl Future<Output = ()> + Send + 'static {
        let resource = ResourceHooks::new(self.plan.hooks_of(name));
        self.lock().insert(name.to_owned(), Arc::clone(&resource));
        work(resource)
    }

    /// Waits until the hooks of a resource were told everything, as long as at the end of the
    /// program, and forgets it.
    pub(crate) async fn remove(&self, name: &str) {
        let Some(resource) = self.resource(name) else { return };
        if tokio::time::timeout(FAREWELL_MAX, resource.wait_for(Order::is_settled)).await.is_err() {
            tracing::warn!(target: "tenure", resource = name,
                "hooks have not ended within {FAREWELL_MAX:?}: they are killed");
            resource.lock().give_up();
            resource.told.notify_one();
            let settled = resource.wait_for(Order::is_settled);
            let _ = tokio::time::timeout(KILLED_MAX, settled).await;
        }
        self.lock().remove(name);
    }

    fn resource(&self, name: &str) -> Option<Arc<ResourceHooks>> {
        self.lock().get(name).cloned()
    }

    fn all(&self) -> Vec<(String, Arc<ResourceHooks>)> {
        let resources = self.lock();
        resources.iter().map(|(name, resource)| (name.clone(), Arc::clone(resource))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ResourceHooks>>> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One future per resource, each without an end.
    pub(crate) fn workers(&self) -> Vec<impl Future<Output = ()> + Send + 'static> {
        let resources = self.all().into_iter();
        resources.map(|(_, resource)| work(resource)).collect()
    }

    /// Tells every hook of the resource, and ends what became old by it. Never waits.
    pub(crate) fn tell(&self, happening: &Arc<Happening>) {
        if let Some(resource) = self.resource(&happening.name) {
            resource.lock().handle_news(happening);
            resource.told.notify_one();
        }
    }

    /// Waits until every hook was told that the term under `token` is over.
    pub(crate) async fn loss_told(&self, name: &str, token: u64) {
        if let Some(resource) = self.resource(name) {
            resource.wait_for(|order| order.has_lost(token) && order.is_settled()).await;
        }
    }

    /// Waits until every hook was told everything, but not for ever: what has not ended by then is
    /// killed, and seen to be gone.
    pub(crate) async fn end(&self) {
        if tokio::time::timeout(FAREWELL_MAX, self.all_settled()).await.is_ok() {
            return;
        }
        for (name, _) in self.unsettled() {
            tracing::warn!(target: "tenure", resource = name,
                "hooks have not ended within {FAREWELL_MAX:?}: they are killed");
        }
        self.kill().await;
    }

    /// Kills what runs, and begins nothing any more.
    pub(crate) async fn kill(&self) {
        for (_, resource) in self.all() {
            resource.lock().give_up();
            resource.told.notify_one();
        }
        let _ = tokio::time::timeout(KILLED_MAX, self.all_settled()).await;
        for (name, _) in self.unsettled() {
            tracing::warn!(target: "tenure", resource = name,
                "a hook that was killed has not ended within {KILLED_MAX:?}: it is left behind");
        }
    }

    async fn all_settled(&self) {
        for (_, resource) in self.all() {
            resource.wait_for(Order::is_settled).await;
        }
    }

    fn unsettled(&self) -> impl Iterator<Item = (String, Arc<ResourceHooks>)> {
        self.all().into_iter().filter(|(_, resource)| !resource.lock().is_settled())
    }

    /// Tells what came of each hook: the name of its resource, and its own.
    pub(crate) fn each_tally<E>(
        &self,
        mut visit: impl FnMut(&str, &str, &Tally) -> Result<(), E>,
    ) -> Result<(), E> {
        for (name, resource) in self.all() {
            for counted in &resource.hooks {
                visit(&name, &counted.label, &counted.tally)?;
            }
        }
        Ok(())
    }
}

impl ResourceHooks {
    fn new(hooks: Vec<Hook>) -> Arc<Self> {
        let order = Mutex::new(Order::new(hooks.iter().map(|hook| hook.turn).collect()));
        let (told, moved) = (Notify::new(), watch::Sender::new(()));
        Arc::new(ResourceHooks { hooks: counted(hooks), order, told, moved })
    }

    async fn wait_for(&self, condition: impl Fn(&Order) -> bool) {
        let mut moved = self.moved.subscribe();
        // The sender lives in what is borrowed here.
        let _ = moved.wait_for(|()| condition(&self.lock())).await;
    }

    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs what the order of a resource decides. Dropping the future ends every try.
async fn work(resource: Arc<ResourceHooks>) {
    let mut tries = JoinSet::new();
    // Of each try that runs: what ends it.
    let mut ends: BTreeMap<u64, oneshot::Sender<()>> = BTreeMap::new();
    loop {
        let wakes_at = loop {
            let mut order = resource.lock();
            let Some(output) = order.poll_output() else { break order.wakes_at() };
            drop(order);
            match output {
                Output::Count { hook, outcome } => resource.hooks[hook].tally.count(outcome),
                Output::End { number } => drop(ends.remove(&number)),
                Output::Try { number, hook, attempt, happening } => {
                    let (end, ended) = oneshot::channel();
                    ends.insert(number, end);
                    let resource = Arc::clone(&resource);
                    tries.spawn(async move {
                        let counted = &resource.hooks[hook];
                        let tried = AssertUnwindSafe(run_try(counted, attempt, &happening, ended));
                        // What comes after it must not wait for one that will never be told.
                        (number, tried.catch_unwind().await.unwrap_or(Tried::Failed))
                    });
                }
            }
        };
        resource.moved.send_replace(());
        let woken = async {
            match wakes_at {
                Some(wakes_at) => tokio::time::sleep_until(wakes_at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(Ok((number, tried))) = tries.join_next() => {
                ends.remove(&number);
                resource.lock().handle_tried(clock::now(), number, tried);
            }
            () = resource.told.notified() => {}
            () = woken => resource.lock().handle_time(clock::now()),
        }
    }
}

async fn run_try(
    counted: &Counted,
    attempt: u32,
    happening: &Happening,
    ended: oneshot::Receiver<()>,
) -> Tried {
    let (resource, hook) = (happening.name.as_str(), counted.label.as_str());
    let why = match counted.hook.attempt(happening, ended).await {
        Ok(Ok(())) => return Tried::Done,
        Err(Interrupted::Outdated) => {
            tracing::info!(target: "tenure", hook, resource, attempt,
                "hook ended: something newer happened, or the program ends");
            return Tried::Ended;
        }
        Ok(Err(why)) => why,
        Err(Interrupted::TookTooLong) => format!("took longer than {TRY_TIMEOUT:?}"),
    };
    tracing::warn!(target: "tenure", hook, resource, attempt, why, "hook failed");
    Tried::Failed
}

#[cfg(test)]
mod tests {
    use tenure::Secret;

    use super::*;

    #[test]
    fn nothing_secret_is_shown() {
        let url = Secret::new("https://user:secret@example.org/hook?key=secret");
        let webhook = Webhook::new(&url).unwrap().header("x-key", &Secret::new("secret")).unwrap();
        let webhook = webhook.signed_with(&Secret::new("secret secret secret")).unwrap();
        for hook in [Hook::on_gain("secret"), Hook::on_loss_url(webhook.clone())] {
            assert!(!format!("{hook:?} {webhook:?}").contains("secret"), "{hook:?}");
        }
    }

    #[test]
    fn two_hooks_of_one_kind_have_two_names() {
        let hooks = counted(vec![Hook::on_gain("a"), Hook::on_loss("b"), Hook::on_gain("c")]);
        let labels: Vec<&str> = hooks.iter().map(|hook| hook.label.as_str()).collect();
        assert_eq!(labels, ["on_gain", "on_loss", "on_gain-2"]);
    }
}
