//! The handle of a sidecar, and how it is started.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tenure::backend::Connection;
use tenure::config::Config;
use tenure::{Election, EventKind, Events, OnLoss, Tenure, Term};
use tenure_core::timing::duration_text;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};

use crate::callers::Callers;
use crate::error::SidecarError;
use crate::follow::Release;
use crate::hooks::{Hook, HookPlan, Hooks};
use crate::journal::Journal;
use crate::streams::Streams;
use crate::watched::Watched;
use crate::{clock, follow, routes};

/// How long the last events of stopped elections may take to be read: they are there already.
pub(crate) const EVENTS_END_MAX: Duration = Duration::from_secs(2);

/// How long elections may take to stop, beyond what was promised in their name: the store may not
/// answer, and then leases end by themselves.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(5);

/// A running sidecar. Cheap to clone; its background tasks end with the last clone.
#[derive(Clone, Debug)]
pub struct Sidecar {
    shared: Arc<Shared>,
    _tasks: Arc<Following>,
}

/// What the routes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) tenure: Tenure,
    /// By name. Programs join and leave elections over HTTP, so this changes.
    resources: watch::Sender<Resources>,
    /// What programs hold through this sidecar.
    pub(crate) callers: Callers,
    pub(crate) journal: Arc<Journal>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) hooks: Arc<Hooks>,
    /// How many elections are listened to.
    listening: watch::Sender<usize>,
    pub(crate) standby_is_degraded: bool,
    pub(crate) started_at_ms: u64,
}

/// The elections that a sidecar watches at one moment.
pub(crate) type Resources = Arc<[Arc<Watched>]>;

impl Shared {
    /// What is watched now, by name.
    pub(crate) fn resources(&self) -> Resources {
        Arc::clone(&self.resources.borrow())
    }

    /// Tells when something is watched that was not before, or is not any more.
    pub(crate) fn follow_resources(&self) -> watch::Receiver<Resources> {
        self.resources.subscribe()
    }

    pub(crate) fn resource(&self, name: &str) -> Option<Arc<Watched>> {
        self.resources().iter().find(|watched| watched.name() == name).cloned()
    }

    /// Watches one more election that this client takes part in, like those of the configuration.
    /// `None` if its name is watched already.
    ///
    /// The second value ends when all events of the election were heard.
    pub(crate) fn watch_more(
        &self,
        watched: &Arc<Watched>,
        events: Events,
    ) -> Option<(Following, JoinHandle<()>)> {
        let mut is_new = false;
        self.resources.send_if_modified(|resources| {
            is_new = resources.iter().all(|known| known.name() != watched.name());
            if is_new {
                let mut all = resources.to_vec();
                all.push(Arc::clone(watched));
                all.sort_by(|a, b| a.name().cmp(b.name()));
                *resources = all.into();
            }
            is_new
        });
        is_new.then(|| {
            let worker = self.hooks.add(watched.name());
            self.listening.send_modify(|count| *count += 1);
            let mut tasks = vec![tokio::spawn(worker).abort_handle()];
            let (listener, keeper) = follow_own(self, watched, events);
            // Whoever listens holds the election: it must not outlive this sidecar.
            tasks.extend([listener.abort_handle(), keeper]);
            tasks.extend(follow_state(self, watched));
            (Following(tasks), listener)
        })
    }

    /// Watches an election no more that has stopped: what followed it is dropped by the caller.
    pub(crate) async fn watch_no_more(&self, watched: &Arc<Watched>) {
        self.hooks.remove(watched.name()).await;
        self.resources.send_modify(|resources| {
            let rest = resources.iter().filter(|known| !Arc::ptr_eq(known, watched));
            *resources = rest.cloned().collect();
        });
    }

    /// Stops every election and ends the hooks. What is `held` of a term is dropped as soon as
    /// nothing contends any more.
    async fn shutdown(&self, held: Option<Term>) {
        let stopped = async {
            // Polled in this order: the first asks the elections to stop before it waits.
            tokio::join!(self.tenure.shutdown(), async move { drop(held) });
        };
        let stop_max = self.stop_max();
        let resources = self.resources();
        let mut statuses = resources.iter().filter_map(|watched| watched.status());
        let has_term = statuses.any(|status| status.token.is_some());
        match tokio::time::timeout(stop_max, stopped).await {
            Ok(()) => {
                self.read_last_events().await;
                // The log said `released` when the work had stopped, before the store was asked.
                if has_term && matches!(self.tenure.connection(), Connection::Down(_)) {
                    tracing::warn!(target: "tenure",
                        "sidecar: the store did not confirm the release: leases end by themselves");
                }
            }
            // The loss was told long ago; only the store was not.
            Err(_) => tracing::warn!(target: "tenure",
                "sidecar: the store did not answer within {}: leases end by themselves",
                duration_text(stop_max)),
        }
        self.hooks.end().await;
    }

    /// How long the elections may take to stop: until the last promise to a caller is over, and
    /// until the hooks on loss have had their time where the release waits for them.
    fn stop_max(&self) -> Duration {
        let resources = self.resources();
        let promised = resources.iter().map(|watched| watched.promised_for());
        let promised = promised.chain([self.callers.promised_for()]).max();
        let waits =
            |watched: &&Arc<Watched>| self.hooks.release_of(watched.name()) == Release::AfterHooks;
        let statuses = resources.iter().filter(waits).filter_map(|watched| watched.status());
        let grace = statuses.map(|status| status.timing.stop_grace()).max();
        promised.max(grace).unwrap_or_default() + STOP_MAX
    }

    /// The end of each election is in its events; until they are read, no hook knows of it.
    async fn read_last_events(&self) {
        let mut listening = self.listening.subscribe();
        let all_read = listening.wait_for(|count| *count == 0);
        if tokio::time::timeout(EVENTS_END_MAX, all_read).await.is_err() {
            tracing::warn!(target: "tenure", "sidecar: the events of an election have no end");
        }
    }

    /// Ends the process with `code` once the term of an election was lost and the hooks know of it.
    async fn exit_on_loss(self: Arc<Self>, election: Election, mut events: Events, code: i32) {
        let held = tokio::select! {
            biased;
            term = lost_term(&election) => Some(term),
            is_lost = hears_of_loss(&election, &mut events) => match is_lost {
                true => None,
                false => return,
            },
        };
        // Nothing is dropped below, so what a hook still runs would outlive this process.
        self.shutdown(held).await;
        std::process::exit(code);
    }
}

/// Waits for a term that is lost. The election does not contend again before it is dropped.
async fn lost_term(election: &Election) -> Term {
    while let Ok(term) = election.wait_for_leadership().await {
        term.wait_until_stopping().await;
        if term.stop_reason().is_some_and(|reason| reason.is_involuntary()) {
            return term;
        }
    }
    std::future::pending().await
}

/// Waits for the loss of a term that came and went unseen, or while it was being released;
/// `false` when the election has stopped.
async fn hears_of_loss(election: &Election, events: &mut Events) -> bool {
    while let Some(event) = events.next().await {
        let is_lost = match event {
            Ok(event) => is_loss(&event.kind),
            // Some were dropped; the status has counted what was in them.
            Err(_) => election.status().counts.losses > 0,
        };
        if is_lost {
            return true;
        }
    }
    false
}

fn is_loss(event: &EventKind) -> bool {
    matches!(event, EventKind::Lost { reason, .. } if reason.is_involuntary())
}

/// Ends what runs beside, so that it does not outlive whoever wanted it.
#[derive(Debug)]
pub(crate) struct Following(Vec<AbortHandle>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Sidecar {
    /// The settings of a sidecar for this client.
    pub fn builder(tenure: Tenure) -> SidecarBuilder {
        SidecarBuilder {
            tenure,
            elections: Vec::new(),
            observed: Vec::new(),
            hooks: HookPlan::default(),
            exits: Vec::new(),
            standby_is_degraded: false,
            may_be_empty: false,
        }
    }

    /// Starts a client and a sidecar with the settings of a configuration: it takes part in every
    /// election that is named there, and observes those in `sidecar.observe`.
    ///
    /// Fails if the configuration is wrong. A store that does not answer is no failure.
    pub async fn from_config(config: Config) -> Result<Self, SidecarError> {
        let names: Vec<String> = config.elections.keys().cloned().collect();
        Self::taking_part(config, &names).await
    }

    /// Like [`from_config`](Self::from_config), but takes part in the elections `names`, whether
    /// the configuration names them or not.
    ///
    /// `require_beat` has no effect: only a program that joins over HTTP can ask for beats. Where
    /// `on_loss` is `exit`, the process ends when the hooks on loss have.
    pub async fn taking_part(config: Config, names: &[String]) -> Result<Self, SidecarError> {
        let settings = config.sidecar.clone();
        let mut hooks = HookPlan::default();
        hooks.configure(&config)?;
        let on_loss = |name: &String| config.election(name).on_loss;
        let on_loss: BTreeMap<String, OnLoss> =
            names.iter().map(|name| (name.clone(), on_loss(name))).collect();
        let tenure = Tenure::from_config(config).await?;
        let mut builder = Sidecar::builder(tenure.clone())
            .standby_is_degraded(settings.standby_is_degraded)
            .may_be_empty(settings.empty);
        builder.hooks = hooks;
        for name in names {
            // The library would end the process at once; here the hooks come first.
            let mut starting = tenure.election(name).on_loss(OnLoss::Recontend).require_beat(None);
            let events = starting.events();
            let losses = starting.events();
            let election = starting.start().await?;
            if let OnLoss::Exit(code) = on_loss[name] {
                builder.exits.push((election.clone(), losses, code));
            }
            builder = builder.election_from_start(election, events);
        }
        for name in &settings.observe {
            builder = builder.observe(name);
        }
        builder.start()
    }

    /// The routes, to be served by a [`Server`](crate::Server) or mounted into another router.
    ///
    /// They do not check who calls: if you mount them elsewhere, put [`Access`](crate::Access) or
    /// checks of your own around them.
    pub fn router(&self) -> Router {
        routes::router(Arc::clone(&self.shared))
    }

    /// Stops every election of its client, releases leases, and waits for the hooks on loss, but no
    /// longer than one attempt of each takes: then they are killed. A store that does not answer is
    /// waited for as long as callers may rely on an answer, and 5 s more.
    ///
    /// Without this, running hooks are killed when the last clone is dropped.
    pub async fn shutdown(&self) {
        self.shared.shutdown(None).await;
    }

    /// Kills the hooks that run, and begins none any more: for a program that must end now.
    pub async fn kill_hooks(&self) {
        self.shared.hooks.kill().await;
    }

    /// The client of the sidecar.
    pub fn tenure(&self) -> &Tenure {
        &self.shared.tenure
    }

    /// The names of the elections that it watches.
    pub fn names(&self) -> Vec<String> {
        self.shared.resources().iter().map(|watched| watched.name().to_owned()).collect()
    }
}

/// The settings of a sidecar: what it watches, and its hooks.
#[derive(Debug)]
#[must_use = "nothing happens before `start`"]
pub struct SidecarBuilder {
    tenure: Tenure,
    elections: Vec<(Election, Events)>,
    observed: Vec<String>,
    hooks: HookPlan,
    /// Elections whose loss ends the process, with the exit code.
    exits: Vec<(Election, Events, i32)>,
    standby_is_degraded: bool,
    may_be_empty: bool,
}

impl SidecarBuilder {
    /// Watches an election that this client takes part in.
    pub fn election(self, election: Election) -> Self {
        let events = election.events();
        self.election_from_start(election, events)
    }

    /// Like [`election`](Self::election), with the events since the election was started.
    pub fn election_from_start(mut self, election: Election, events: Events) -> Self {
        self.elections.push((election, events));
        self
    }

    /// Observes the election `name` without taking part.
    pub fn observe(mut self, name: &str) -> Self {
        self.observed.push(name.to_owned());
        self
    }

    /// Adds a hook to every election, joined ones included.
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.add(hook);
        self
    }

    /// Adds a hook to the election `name` alone.
    pub fn hook_for(mut self, name: &str, hook: Hook) -> Self {
        self.hooks.add_for(name, hook);
        self
    }

    /// Whether a term is released only after the hooks on loss have ended, or the stop grace
    /// (`stop_grace`) is over. By default hooks and release begin at the same time.
    pub fn release_after_hooks(mut self, is_so: bool) -> Self {
        self.hooks.release_after_hooks(is_so);
        self
    }

    /// Whether `/health` reports a standby as Degraded and an instance without a store as
    /// Unhealthy, as some other systems do. By default a standby is Healthy.
    pub fn standby_is_degraded(mut self, is_so: bool) -> Self {
        self.standby_is_degraded = is_so;
        self
    }

    /// Whether it may start with nothing to watch, because programs join elections over HTTP.
    /// By default that is an error: a name was probably forgotten.
    pub fn may_be_empty(mut self, is_so: bool) -> Self {
        self.may_be_empty = is_so;
        self
    }

    /// Starts watching. Fails if there is nothing to watch, or if a name cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime, which its tasks need.
    pub fn start(self) -> Result<Sidecar, SidecarError> {
        let mut listening = Vec::new();
        let mut resources = Vec::new();
        for (election, events) in self.elections {
            let resource = election.resource();
            let observer = self.tenure.observe_key(resource.name(), resource.key())?;
            let watched = Arc::new(Watched::new(observer, Some(election)));
            listening.push((Arc::clone(&watched), events));
            resources.push(watched);
        }
        for name in &self.observed {
            resources.push(Arc::new(Watched::new(self.tenure.observe(name)?, None)));
        }
        if resources.is_empty() && !self.may_be_empty {
            return Err(SidecarError::NothingToWatch);
        }
        check_names(&resources)?;
        resources.sort_by(|a, b| a.name().cmp(b.name()));
        let names = listening.iter().map(|(watched, _)| watched.name());
        let hooks = Arc::new(Hooks::new(self.hooks, names));
        let shared = Arc::new(Shared {
            tenure: self.tenure,
            callers: Callers::new(resources.iter().map(|watched| watched.name())),
            resources: watch::Sender::new(resources.into()),
            journal: Arc::new(Journal::new()),
            streams: Arc::default(),
            hooks,
            listening: watch::Sender::new(listening.len()),
            standby_is_degraded: self.standby_is_degraded,
            started_at_ms: clock::unix_ms(),
        });
        let mut tasks = start_tasks(&shared, listening);
        for (election, events, code) in self.exits {
            let exit = Arc::clone(&shared).exit_on_loss(election, events, code);
            tasks.push(tokio::spawn(exit).abort_handle());
        }
        Ok(Sidecar { shared, _tasks: Arc::new(Following(tasks)) })
    }
}

fn check_names(resources: &[Arc<Watched>]) -> Result<(), SidecarError> {
    let mut names = BTreeSet::new();
    match resources.iter().find(|watched| !names.insert(watched.name())) {
        None => Ok(()),
        Some(watched) => Err(SidecarError::NamedTwice { name: watched.name().to_owned() }),
    }
}

fn start_tasks(shared: &Arc<Shared>, listening: Vec<(Arc<Watched>, Events)>) -> Vec<AbortHandle> {
    let mut tasks: Vec<AbortHandle> = Vec::new();
    tasks.extend(shared.hooks.workers().into_iter().map(|work| tokio::spawn(work).abort_handle()));
    for (watched, events) in listening {
        let (listener, keeper) = follow_own(shared, &watched, events);
        tasks.extend([listener.abort_handle(), keeper]);
    }
    for watched in shared.resources().iter() {
        tasks.extend(follow_state(shared, watched));
    }
    tasks
}

/// Listens to an election that this instance takes part in, and keeps what is promised of it.
fn follow_own(
    shared: &Shared,
    watched: &Arc<Watched>,
    events: Events,
) -> (JoinHandle<()>, AbortHandle) {
    let (journal, hooks) = (Arc::clone(&shared.journal), Arc::clone(&shared.hooks));
    let (listener, keeping) = (Arc::clone(watched), Arc::clone(watched));
    let (ended, release) = (shared.listening.clone(), hooks.release_of(watched.name()));
    let listened = async move {
        follow::listen(listener, events, journal, hooks, release).await;
        ended.send_modify(|count| *count -= 1);
    };
    let keeper = tokio::spawn(async move { keeping.keep_promises().await });
    (tokio::spawn(listened), keeper.abort_handle())
}

/// Looks at an election again and again. One that is switched off is nowhere to be looked at.
fn follow_state(shared: &Shared, watched: &Arc<Watched>) -> Vec<AbortHandle> {
    if !watched.is_held() {
        return Vec::new();
    }
    let changed = Arc::new(Notify::new());
    let following = follow::follow_changes(Arc::clone(watched), Arc::clone(&changed));
    let (journal, streams) = (Arc::clone(&shared.journal), Arc::clone(&shared.streams));
    let looking = follow::keep_looking(Arc::clone(watched), changed, journal, streams);
    vec![tokio::spawn(following).abort_handle(), tokio::spawn(looking).abort_handle()]
}
