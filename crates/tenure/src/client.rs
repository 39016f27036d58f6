//! The client: one instance's connection to a store, and the elections it takes part in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use tenure_core::protocol::{Answer, Call, Request};
use tenure_core::timing::TTL_DEFAULT;
use tenure_core::{InstanceId, Resource};
use tokio::sync::{oneshot, watch};

use crate::backend::{Backend, Connection, Subscription};
use crate::clock::Clock;
use crate::config::{Config, ElectionConfig};
use crate::deadlines::Deadlines;
use crate::driver::{self, Connector, Inbox, Message, Starting};
use crate::election::ElectionBuilder;
use crate::fork::Generation;
use crate::listener::ListenerPool;
use crate::memory::MemoryBackend;
use crate::state::ElectionState;
use crate::{Error, TenureBuilder};

/// How long a call for a handle may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a store may be out of reach before a caller is told so instead of waiting on: long
/// enough for a connection to be replaced.
const OUT_OF_REACH_AFTER: Duration = Duration::from_millis(250);
/// How much longer than the backend itself the client waits, so that the backend says why.
const CALL_TIMEOUT_SLACK: Duration = Duration::from_millis(250);

/// A client: one instance, one store, any number of elections.
///
/// Cheap to clone. Its work is done by two threads of its own, which end some time after the last
/// handle of the client and of its elections is gone. A program that ends should await
/// [`shutdown`](Tenure::shutdown): only then is it certain that leaderships were released.
#[derive(Clone, Debug)]
pub struct Tenure {
    client: Arc<Client>,
}

impl Tenure {
    /// Connects to the store at `address`, such as `redis://127.0.0.1`.
    ///
    /// A store that cannot be reached is not an error: elections start as
    /// [`Role::Unknown`](tenure_core::Role::Unknown) and keep trying. Credentials that the store
    /// refuses are no error either: [`connection`](Self::connection), the status of elections and
    /// each call report them. Fails if the address or a file that it names cannot be used.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        Self::builder().store(address).connect().await
    }

    /// A client with a store of its own inside this process: for elections on one machine, for
    /// tests, and for first steps. The store ends with the client. To share one store between
    /// several clients, use [`TenureBuilder::embedded`].
    ///
    /// ```
    /// # use tenure::Tenure;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// let tenure = Tenure::embedded().await?;
    /// let election = tenure.election("nightly-report").start().await?;
    /// let term = election.wait_for_leadership().await?;
    /// assert!(term.is_valid());
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "embedded")]
    pub async fn embedded() -> Result<Self, Error> {
        Self::builder().store("embedded:").connect().await
    }

    /// A client with settings.
    pub fn builder() -> TenureBuilder {
        TenureBuilder::new()
    }

    /// The id of this instance: the configured name and a random part that is new at every start.
    pub fn id(&self) -> &InstanceId {
        &self.client.id
    }

    /// The store's address, for display. Never contains a secret.
    pub fn store(&self) -> String {
        self.client.backend.describe()
    }

    /// The state of the connection to the store.
    pub fn connection(&self) -> Connection {
        self.client.backend.connection().borrow().clone()
    }

    /// The settings of an election for the leadership of `name`. Start it to take part.
    pub fn election(&self, name: &str) -> ElectionBuilder {
        ElectionBuilder::new(Arc::clone(&self.client), name)
    }

    /// Whether this instance leads `name` now. No I/O. `false` if it takes no part in that
    /// election.
    pub fn is_leader(&self, name: &str) -> bool {
        self.client.election_of(name).is_some_and(|election| election.is_leader())
    }

    /// Stops all elections of this client and waits until their work has ended and the store has
    /// been told, if it answers. After that, no election can be started.
    pub async fn shutdown(&self) {
        if self.client.check_process().is_err() {
            return;
        }
        // Closed first: whatever was begun before that is in the registry by now.
        self.client.inbox.close();
        let elections: Vec<_> = self.client.lock_registry().values().cloned().collect();
        elections.iter().for_each(|election| election.stop());
        for election in elections {
            election.stopped().await;
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }
}

/// What the handles of a client share.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: InstanceId,
    pub(crate) defaults: Defaults,
    pub(crate) clock: Clock,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) deadlines: Arc<Deadlines>,
    registry: driver::Registry,
    born_in: Generation,
    listeners: OnceLock<ListenerPool>,
    /// The store of elections that are switched off.
    alone: OnceLock<Arc<MemoryBackend>>,
    /// That elections are switched off is told once.
    alone_told: Once,
}

/// What elections take from their client unless they are told otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) prefix: String,
    pub(crate) enabled: bool,
    /// What holds for elections that the configuration does not name.
    pub(crate) election: ElectionConfig,
    pub(crate) config: Option<Arc<Config>>,
}

impl Client {
    pub(crate) async fn start(
        id: InstanceId,
        defaults: Defaults,
        clock: Clock,
        connector: Connector,
    ) -> Result<Tenure, Error> {
        let born_in = Generation::current();
        let deadlines =
            Deadlines::start(&clock).map_err(|error| driver::no_thread("clock thread", &error))?;
        let registry = Arc::new(Mutex::new(HashMap::new()));
        let (inbox, backend) =
            driver::start(connector, clock.clone(), Arc::clone(&registry)).await?;
        let client = Client {
            id,
            defaults,
            clock,
            backend,
            inbox,
            deadlines,
            registry,
            born_in,
            listeners: OnceLock::new(),
            alone: OnceLock::new(),
            alone_told: Once::new(),
        };
        Ok(Tenure { client: Arc::new(client) })
    }

    pub(crate) fn resource(&self, name: &str) -> Result<Resource, Error> {
        match &self.election_defaults(name).key {
            Some(key) => Ok(Resource::with_key(name, key)?),
            None => Ok(Resource::with_prefix(&self.defaults.prefix, name)?),
        }
    }

    /// What holds for the election about `name`, unless its caller decides.
    pub(crate) fn election_config(&self, name: &str) -> ElectionConfig {
        let mut config = self.election_defaults(name).clone();
        config.enabled &= self.defaults.enabled;
        config
    }

    fn election_defaults(&self, name: &str) -> &ElectionConfig {
        let named = self.defaults.config.as_deref().and_then(|config| config.named(name));
        named.unwrap_or(&self.defaults.election)
    }

    /// The election of this client about `name`.
    pub(crate) fn election_of(&self, name: &str) -> Option<Arc<ElectionState>> {
        // A forked child takes part in none, and the lock may have been held.
        self.check_process().ok()?;
        let registry = self.lock_registry();
        let by_key = self.resource(name).ok().and_then(|resource| registry.get(resource.key()));
        by_key
            .or_else(|| registry.values().find(|election| election.resource.name() == name))
            .cloned()
    }

    /// Hands an election to the driver, unless this client takes part already. One that is just
    /// stopping is waited for: one instance must not meet itself at the store.
    pub(crate) async fn begin(&self, starting: Starting) -> Result<(), Error> {
        self.check_process()?;
        let key = starting.state.resource.key().to_owned();
        loop {
            let earlier = {
                let mut registry = self.lock_registry();
                match registry.get(&key).filter(|earlier| !earlier.has_stopped()).cloned() {
                    None => {
                        registry.insert(key.clone(), Arc::clone(&starting.state));
                        break;
                    }
                    Some(earlier) => earlier,
                }
            };
            if !earlier.is_stopping() {
                let name = starting.state.resource.name().to_owned();
                return Err(Error::AlreadyTakingPart { name });
            }
            earlier.stopped().await;
        }
        let state = Arc::clone(&starting.state);
        self.inbox.request(Message::Start(Box::new(starting))).inspect_err(|_| {
            self.lock_registry().remove(&key);
            // Somebody who shuts the client down may wait for it already.
            state.orphan();
        })
    }

    /// Asks the store about `resource` in this instance's name.
    pub(crate) async fn call(
        &self,
        resource: &Resource,
        request: Request,
    ) -> Result<Answer, Error> {
        self.call_on(Arc::clone(&self.backend), resource, request).await
    }

    pub(crate) async fn call_on(
        &self,
        backend: Arc<dyn Backend>,
        resource: &Resource,
        request: Request,
    ) -> Result<Answer, Error> {
        self.call_within(backend, resource, request, CALL_TIMEOUT).await
    }

    /// The same with less patience, where the request is repeated.
    pub(crate) async fn call_within(
        &self,
        backend: Arc<dyn Backend>,
        resource: &Resource,
        request: Request,
        timeout: Duration,
    ) -> Result<Answer, Error> {
        self.check_process()?;
        let timeout = timeout.min(CALL_TIMEOUT);
        let call = Call {
            resource: resource.clone(),
            id: self.id.clone(),
            request,
            timeout,
            fleet_max_ttl: self.longest_lease(),
        };
        let (reply, answer) = oneshot::channel();
        let connection = backend.connection();
        self.inbox.request(Message::Call { backend, call: Box::new(call), reply })?;
        tokio::select! {
            biased;
            answer = answer => Ok(answer.map_err(|_| Error::Closed)??),
            error = self.out_of_reach(connection) => Err(error),
            slept = self.sleep(timeout + CALL_TIMEOUT_SLACK) => {
                slept?;
                Err(Error::Store(tenure_core::StoreError::timed_out(timeout)))
            }
        }
    }

    /// Waits until the store has been out of reach for so long that a caller should hear of it.
    pub(crate) async fn out_of_reach(&self, mut connection: watch::Receiver<Connection>) -> Error {
        let is_down = |connection: &Connection| why_down(connection).is_some();
        loop {
            if connection.wait_for(is_down).await.is_err() {
                // The backend is gone; whoever waits for its answer hears of that.
                return std::future::pending().await;
            }
            let slept = tokio::select! {
                slept = self.sleep(OUT_OF_REACH_AFTER) => slept,
                _ = connection.wait_for(|connection| !is_down(connection)) => continue,
            };
            match (slept, why_down(&connection.borrow())) {
                (Err(error), _) => return error,
                (Ok(()), Some(why)) => return Error::Store(why.clone()),
                (Ok(()), None) => {}
            }
        }
    }

    pub(crate) async fn subscribe(
        &self,
        backend: Arc<dyn Backend>,
        resource: &Resource,
    ) -> Result<Subscription, Error> {
        self.check_process()?;
        let (reply, subscription) = oneshot::channel();
        let resource = resource.clone();
        self.inbox.request(Message::Subscribe { backend, resource, reply })?;
        subscription.await.map_err(|_| Error::Closed)
    }

    /// Waits on the client's clock, whatever runtime the caller lives in, if any. Fails when the
    /// client's thread ends meanwhile.
    pub(crate) async fn sleep(&self, pause: Duration) -> Result<(), Error> {
        self.check_process()?;
        let (wake, woken) = oneshot::channel();
        let until = self.clock.now() + pause;
        self.inbox.request(Message::Sleep { until, wake })?;
        woken.await.map_err(|_| Error::Closed)
    }

    /// Waits for `future`, but no longer than `waited`.
    pub(crate) async fn within<T>(
        &self,
        waited: Duration,
        what: &'static str,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            done = future => done,
            slept = self.sleep(waited) => {
                slept.and(Err(Error::TimedOut { what, waited, reason: None }))
            }
        }
    }

    pub(crate) fn listeners(&self) -> Result<&ListenerPool, Error> {
        if let Some(pool) = self.listeners.get() {
            return Ok(pool);
        }
        let pool = ListenerPool::start()
            .map_err(|error| Error::Setting { setting: "listener", why: error.to_string() })?;
        Ok(self.listeners.get_or_init(|| pool))
    }

    /// The store of an election that is switched on or off. Off, nobody else knows it.
    pub(crate) fn backend_when(&self, enabled: bool) -> Arc<dyn Backend> {
        if self.shares_connection(enabled) {
            return Arc::clone(&self.backend);
        }
        let alone = self.alone.get_or_init(|| Arc::new(MemoryBackend::on(self.clock.clone())));
        Arc::clone(alone) as Arc<dyn Backend>
    }

    /// Says that this instance acts alone: a switch that was forgotten lets every one of them act.
    pub(crate) fn tell_alone(&self) {
        self.alone_told.call_once(|| {
            tracing::warn!(target: "tenure", id = self.id.as_str(), reason = "disabled",
                "elections are switched off (TENURE_ENABLED or enabled = false): this instance \
                 acts alone, no store is asked");
        });
    }

    /// Whether an election uses the client's own backend. A client that is switched off as a whole
    /// has one in memory anyway.
    pub(crate) fn shares_connection(&self, enabled: bool) -> bool {
        enabled || !self.defaults.enabled
    }

    /// The longest lease that may be believed in as far as this client was told. A lease that
    /// nobody set is no knowledge: the store knows those that were asked for.
    pub(crate) fn longest_lease(&self) -> Duration {
        let election = &self.defaults.election;
        let own = Some(election.ttl).filter(|ttl| *ttl != TTL_DEFAULT);
        own.max(election.fleet_max_ttl).unwrap_or_default()
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.born_in.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    fn lock_registry(&self) -> MutexGuard<'_, HashMap<String, Arc<ElectionState>>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why requests cannot even be sent. A late answer alone is no reason: it may still come.
fn why_down(connection: &Connection) -> Option<&tenure_core::StoreError> {
    match connection {
        Connection::Down(why) if why.kind() != tenure_core::StoreErrorKind::TimedOut => Some(why),
        _ => None,
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.born_in.is_current() {
            self.inbox.close();
        }
    }
}
