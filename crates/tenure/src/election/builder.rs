//! Settings of one election.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Contest, Event, EventKind, Failback, InstanceId, Moment, Reason, Resource, Settings,
};

use crate::client::Client;
use crate::config::ElectionConfig;
use crate::driver::{Policy, Starting};
use crate::events::{EventQueue, Events};
use crate::listener::{Callback, Listener, blocking_on};
use crate::state::ElectionState;
use crate::{Election, Error, Term};

/// The settings of an election before it starts.
#[must_use = "nothing happens before `start`"]
pub struct ElectionBuilder {
    client: Arc<Client>,
    name: String,
    config: ElectionConfig,
    ready: bool,
    endless_holder: Option<(InstanceId, Moment)>,
    callbacks: Vec<Callback>,
    queues: Vec<Arc<EventQueue>>,
}

/// What to do when this instance loses the leadership. To be notified of it, see
/// [`ElectionBuilder::on_event`] and [`Reason::is_involuntary`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLoss {
    /// Contend again.
    #[default]
    Recontend,
    /// End the process with this code, so that an orchestrator starts it again.
    Exit(i32),
}

impl ElectionBuilder {
    pub(crate) fn new(client: Arc<Client>, name: &str) -> Self {
        let config = client.election_config(name);
        Self::with_config(client, name, config)
    }

    pub(crate) fn with_config(client: Arc<Client>, name: &str, config: ElectionConfig) -> Self {
        ElectionBuilder {
            client,
            name: name.to_owned(),
            config,
            ready: true,
            endless_holder: None,
            callbacks: Vec::new(),
            queues: Vec::new(),
        }
    }

    /// How long a lease lasts without renewal; at least 300 ms.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl;
        self
    }

    /// How often to renew the lease; a third of the ttl by default.
    pub fn renew_every(mut self, renew_every: Duration) -> Self {
        self.config.renew_every = Some(renew_every);
        self
    }

    /// How long work gets to stop before the lease ends; 30 % of the lease by default.
    pub fn stop_grace(mut self, stop_grace: Duration) -> Self {
        self.config.stop_grace = Some(stop_grace);
        self
    }

    /// The shortest ttl that any other instance uses at this key; this instance's own by default.
    pub fn fleet_min_ttl(mut self, ttl: Duration) -> Self {
        self.config.fleet_min_ttl = Some(ttl);
        self
    }

    /// The longest ttl that any other instance may still rely on; this instance's own by default.
    pub fn fleet_max_ttl(mut self, ttl: Duration) -> Self {
        self.config.fleet_max_ttl = Some(ttl);
        self
    }

    /// Instances with a higher priority are preferred; 0 by default.
    pub fn priority(mut self, priority: i32) -> Self {
        self.config.priority = priority;
        self
    }

    /// Whether this instance may lead from the start; `true` by default. See
    /// [`Election::set_ready`].
    pub fn ready(mut self, ready: bool) -> Self {
        self.ready = ready;
        self
    }

    /// The application's version: a hand-over never chooses a member with an older one.
    pub fn version(mut self, version: &str) -> Self {
        self.config.version = version.to_owned();
        self
    }

    /// Text shown beside this member, such as its address. Together at most
    /// [`MemberRecord::METADATA_MAX`](crate::MemberRecord::METADATA_MAX) bytes.
    pub fn metadata(mut self, name: &str, value: &str) -> Self {
        self.config.metadata.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Whether and when this instance, while leading, hands over to one with a higher priority.
    pub fn failback(mut self, failback: Failback) -> Self {
        self.config.failback = Some(failback);
        self
    }

    /// Requires a [`beat`](Election::beat) of the work at least this often while leading. If it
    /// does not come, the term is released. `None` where nobody beats, whatever the configuration
    /// says.
    pub fn require_beat(mut self, every: impl Into<Option<Duration>>) -> Self {
        self.config.require_beat = every.into();
        self
    }

    /// How long nobody leads after a crash, for resources that cannot check tokens.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.config.lock_delay = delay;
        self
    }

    /// Declares that nobody has led this resource before, so that its first leader need not wait.
    pub fn fresh_store(mut self, fresh_store: bool) -> Self {
        self.config.fresh_store = fresh_store;
        self
    }

    /// The whole key in the store, instead of prefix and name.
    pub fn key(mut self, key: &str) -> Self {
        self.config.key = Some(key.to_owned());
        self
    }

    /// While leading, also keeps a heartbeat at `prefix` followed by this instance's id: the time
    /// in milliseconds since 1970. It is for a roll-out beside Sovereign, whose instances look for
    /// it there; Tenure itself does not read it. Off by default.
    pub fn heartbeat_prefix(mut self, prefix: &str) -> Self {
        self.config.heartbeat_prefix = Some(prefix.to_owned());
        self
    }

    /// Whether the election takes place. If `false`, this instance leads, alone and without a
    /// store.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.config.enabled = enabled;
        self
    }

    /// What to do when this instance loses the leadership.
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.config.on_loss = on_loss;
        self
    }

    /// Aborts the process if work is still running at the end of its grace: the last resort for
    /// work that can neither be dropped nor fenced.
    pub fn abort_on_overrun(mut self, abort: bool) -> Self {
        self.config.abort_on_overrun = abort;
        self
    }

    /// Calls `listener` for every event from the first, for as long as the election lasts.
    pub fn on_event<F>(mut self, mut listener: F) -> Self
    where
        F: FnMut(&Event) + Send + 'static,
    {
        self.callbacks.push(Box::new(move |event| listener(&event)));
        self
    }

    /// Like [`on_event`](Self::on_event), for async functions.
    pub fn on_event_async<F, Fut>(mut self, listener: F) -> Self
    where
        F: FnMut(Arc<Event>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        self.callbacks.push(blocking_on(listener));
        self
    }

    /// The stream of all events, from the first.
    pub fn events(&mut self) -> Events {
        let events = Events::new();
        self.queues.push(Arc::clone(events.queue()));
        events
    }

    /// Starts to take part. Fails if settings contradict each other, or if this client takes part
    /// in the same election already. Does not wait for the store.
    pub async fn start(self) -> Result<Election, Error> {
        self.start_as(Contest::Lasting).await
    }

    /// Tries once to lead. The term is renewed while the guard exists and released when it is
    /// dropped. Returns `None` if another instance leads, or if nobody may lead at the moment.
    /// Fails if the store does not answer.
    pub async fn try_acquire(self) -> Result<Option<Term>, Error> {
        match self.attempt().await? {
            Attempt::Granted(term) => Ok(Some(term)),
            Attempt::Denied(_) | Attempt::TakesPart => Ok(None),
        }
    }

    /// Tries once and says why not. A store that stays out of reach is not waited for.
    pub(crate) async fn attempt(self) -> Result<Attempt, Error> {
        let client = Arc::clone(&self.client);
        let connection = client.backend_when(self.config.enabled).connection();
        tokio::select! {
            biased;
            attempt = self.attempt_patiently() => attempt,
            error = client.out_of_reach(connection) => Err(error),
        }
    }

    async fn attempt_patiently(mut self) -> Result<Attempt, Error> {
        let mut events = self.events();
        let election = match self.start_as(Contest::OneShot).await {
            Ok(election) => election,
            Err(Error::AlreadyTakingPart { .. }) => return Ok(Attempt::TakesPart),
            Err(error) => return Err(error),
        };
        while let Some(event) = events.next().await {
            match event.as_ref().map(|event| &event.kind) {
                Ok(EventKind::Acquired { .. }) => match election.term() {
                    Some(term) => return Ok(Attempt::Granted(term.owning(election))),
                    None => return Ok(Attempt::Denied(Reason::GrantTooLate)),
                },
                Ok(EventKind::ElectionFailed { reason: Reason::Store(error) }) => {
                    return Err(Error::Store(error.clone()));
                }
                Ok(EventKind::ElectionFailed { reason: Reason::Conflict(what) }) => {
                    return Err(Error::Conflict { what: what.clone() });
                }
                Ok(EventKind::ElectionFailed { reason }) => {
                    return Ok(Attempt::Denied(reason.clone()));
                }
                _ => {}
            }
        }
        Err(Error::Closed)
    }

    async fn start_as(mut self, contest: Contest) -> Result<Election, Error> {
        let settings = self.settings(contest)?;
        let (client, enabled) = (Arc::clone(&self.client), self.config.enabled);
        let state = ElectionState::new(&settings, &client, enabled);
        self.register_listeners(&state)?;
        let starting = Starting {
            state: Arc::clone(&state),
            settings,
            backend: client.backend_when(enabled),
            shares_connection: client.shares_connection(enabled),
            policy: Policy::new(self.config.on_loss, self.config.abort_on_overrun),
        };
        // Whoever tries again and again would be told as often.
        let is_lasting = starting.settings.contest == Contest::Lasting;
        if let Some(advice) = starting.settings.timing.advice().filter(|_| is_lasting) {
            tracing::warn!(target: "tenure", resource = self.name, advice, "unusual ttl");
        }
        if !enabled {
            client.tell_alone();
        }
        client.begin(starting).await?;
        Ok(Election::new(state, client))
    }

    fn register_listeners(&mut self, state: &ElectionState) -> Result<(), Error> {
        self.queues.drain(..).for_each(|queue| state.subscribe(queue));
        for callback in self.callbacks.drain(..) {
            let (listener, handle) = Listener::new(callback, self.client.listeners()?);
            state.add_listener(listener);
            handle.forever();
        }
        Ok(())
    }

    pub(crate) fn resource(&self) -> Result<Resource, Error> {
        let resource = match &self.config.key {
            Some(key) => Resource::with_key(&self.name, key)?,
            None => self.client.resource(&self.name)?,
        };
        match &self.config.heartbeat_prefix {
            Some(prefix) => Ok(resource.with_heartbeat_prefix(prefix)?),
            None => Ok(resource),
        }
    }

    fn settings(&self, contest: Contest) -> Result<Settings, Error> {
        let (resource, id) = (self.resource()?, self.client.id.clone());
        Ok(Settings {
            ready: self.ready,
            endless_holder: self.endless_holder.clone(),
            ..self.config.settings(resource, id, contest)?
        })
    }

    /// What an earlier try found out about whoever holds the resource.
    pub(crate) fn endless_holder(mut self, holder: Option<(InstanceId, Moment)>) -> Self {
        self.endless_holder = holder;
        self
    }
}

/// What came of a single try.
pub(crate) enum Attempt {
    Granted(Term),
    Denied(Reason),
    /// This client leads already, or contends. Nothing was asked of the store.
    TakesPart,
}

impl std::fmt::Debug for ElectionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElectionBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
