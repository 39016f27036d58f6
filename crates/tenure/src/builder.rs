//! Settings of a client, and how it connects to its store.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{DEFAULT_PREFIX, Resource};

use crate::backend::{Backend, Connecting, Registry};
use crate::client::{Client, Defaults};
use crate::clock::Clock;
use crate::config::{Config, ElectionConfig};
use crate::driver::Connector;
use crate::memory::MemoryBackend;
use crate::{Error, Tenure, identity};

/// Settings of a [`Tenure`] client. Settings of elections that are set here are defaults for all
/// elections of the client.
#[must_use = "nothing happens before `connect`"]
pub struct TenureBuilder {
    instance: Option<String>,
    store: Store,
    schemes: Registry,
    defaults: Defaults,
    clock: Clock,
}

enum Store {
    Missing,
    Address(String),
    Connector(Connector),
}

impl TenureBuilder {
    pub(crate) fn new() -> Self {
        TenureBuilder {
            instance: None,
            store: Store::Missing,
            schemes: Registry::default(),
            defaults: Defaults {
                prefix: DEFAULT_PREFIX.to_owned(),
                enabled: true,
                election: ElectionConfig::default(),
                config: None,
            },
            clock: Clock::System,
        }
    }

    /// Uses a whole configuration: the store, the prefix, this instance's name and the settings of
    /// elections. Later calls on this builder change the defaults for elections that the
    /// configuration does not name.
    pub fn config(mut self, config: Config) -> Self {
        if let Some(url) = config.store.url() {
            self.store = Store::Address(url.reveal().to_owned());
        }
        self.instance = config.instance.clone().or(self.instance);
        self.defaults = Defaults {
            prefix: config.prefix.clone(),
            enabled: config.enabled,
            election: config.defaults.clone(),
            config: Some(Arc::new(config)),
        };
        self
    }

    /// The name of this instance; `{host}_{pid}` by default. Two processes with the same name are
    /// still two instances: each start adds a random part.
    pub fn instance(mut self, name: &str) -> Self {
        self.instance = Some(name.to_owned());
        self
    }

    /// The store's address, such as `redis://127.0.0.1`.
    pub fn store(mut self, address: &str) -> Self {
        self.store = Store::Address(address.to_owned());
        self
    }

    /// Uses a store inside this process, which other clients of the process can use, too.
    #[cfg(feature = "embedded")]
    pub fn embedded(self, store: &crate::backend::EmbeddedStore) -> Self {
        let store = store.clone();
        self.connector(move || {
            Box::pin(async move { Ok(Arc::new(store.backend()) as Arc<dyn Backend>) })
        })
    }

    /// Uses this backend.
    pub fn backend(self, backend: Arc<dyn Backend>) -> Self {
        self.connector(move || Box::pin(std::future::ready(Ok(backend))))
    }

    /// Creates the backend inside the client's own runtime.
    pub fn connector<C>(mut self, connector: C) -> Self
    where
        C: FnOnce() -> Connecting + Send + 'static,
    {
        self.store = Store::Connector(Box::new(connector));
        self
    }

    /// Registers `start` for addresses that begin with `scheme:`.
    pub fn scheme<S>(mut self, scheme: &str, start: S) -> Self
    where
        S: Fn(String) -> Connecting + Send + Sync + 'static,
    {
        self.schemes.register(scheme, start);
        self
    }

    /// The prefix of every key in the store; `tenure:` by default.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.defaults.prefix = prefix.to_owned();
        self
    }

    /// How long a lease lasts without renewal; 10 s by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.defaults.election.ttl = ttl;
        self
    }

    /// How often to renew the lease; a third of the ttl by default.
    pub fn renew_every(mut self, renew_every: Duration) -> Self {
        self.defaults.election.renew_every = Some(renew_every);
        self
    }

    /// How long work gets to stop before the lease ends; 30 % of the lease by default.
    pub fn stop_grace(mut self, stop_grace: Duration) -> Self {
        self.defaults.election.stop_grace = Some(stop_grace);
        self
    }

    /// The shortest ttl that any other instance uses; this instance's own by default.
    pub fn fleet_min_ttl(mut self, ttl: Duration) -> Self {
        self.defaults.election.fleet_min_ttl = Some(ttl);
        self
    }

    /// The longest ttl that any other instance may still rely on; this instance's own by default.
    pub fn fleet_max_ttl(mut self, ttl: Duration) -> Self {
        self.defaults.election.fleet_max_ttl = Some(ttl);
        self
    }

    /// Declares that nobody has ever led on this store, so that the first leaders need not wait for
    /// leases that may have been lost.
    pub fn fresh_store(mut self, fresh_store: bool) -> Self {
        self.defaults.election.fresh_store = fresh_store;
        self
    }

    /// Whether elections take place at all. If `false`, this instance leads everything that it
    /// takes part in, alone and without a store.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.defaults.enabled = enabled;
        self
    }

    pub(crate) fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Starts the client. Fails if a setting is wrong, or if the store's address or a file that it
    /// names cannot be used. A store that is out of reach or refuses the login is no failure,
    /// because both may change.
    pub async fn connect(self) -> Result<Tenure, Error> {
        let id = identity::instance_id(self.instance.as_deref())?;
        self.defaults.election.timing()?;
        Resource::with_prefix(&self.defaults.prefix, "any")?;
        let connector = match self.store {
            _ if !self.defaults.enabled => alone(self.clock.clone()),
            Store::Address(address) => {
                let schemes = self.schemes;
                Box::new(move || schemes.connect(&address))
            }
            Store::Connector(connector) => connector,
            Store::Missing => {
                let why = "none was given: set an address such as redis://127.0.0.1".to_owned();
                return Err(Error::Setting { setting: "store", why });
            }
        };
        Client::start(id, self.defaults, self.clock, connector).await
    }
}

fn alone(clock: Clock) -> Connector {
    Box::new(move || {
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::on(clock));
        Box::pin(std::future::ready(Ok(backend)))
    })
}

impl std::fmt::Debug for TenureBuilder {
    /// The address may hold a password, so it is left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TenureBuilder")
            .field("instance", &self.instance)
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}
