//! Which backend serves which address.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Backend, ConnectError, Connecting, QuorumBackend, redis};

/// Starts a backend for an address.
pub type Starter = Arc<dyn Fn(String) -> Connecting + Send + Sync>;

/// The backends by the scheme of their addresses. A value, not a global: two parts of a program
/// can know different ones.
///
/// ```
/// # use std::sync::Arc;
/// # use tenure::backend::{ConnectError, Registry};
/// let mut registry = Registry::default();
/// registry.register("carrier-pigeon", |address| {
///     Box::pin(async move { Err(ConnectError::Address(format!("{address} does not fly"))) })
/// });
/// assert!(registry.schemes().any(|scheme| scheme == "carrier-pigeon"));
/// ```
#[derive(Clone)]
pub struct Registry {
    starters: BTreeMap<String, Starter>,
}

impl Default for Registry {
    /// Knows `redis`, `rediss` and `unix`, the first two also with `+sentinel`, `+cluster` and
    /// `+quorum`, and `embedded` with the feature of that name.
    fn default() -> Self {
        let mut registry = Registry { starters: BTreeMap::new() };
        let plain = ["redis", "rediss", "unix"];
        let many = ["redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"];
        for scheme in plain.into_iter().chain(many) {
            registry.register(scheme, |address| Box::pin(async move { open_redis(&address) }));
        }
        for scheme in super::quorum::SCHEMES {
            registry
                .register(scheme, |address| Box::pin(async move { open_quorum(&address).await }));
        }
        #[cfg(feature = "embedded")]
        registry.register(super::embedded::SCHEME, |address| {
            Box::pin(async move { super::embedded::open(&address).await })
        });
        registry
    }
}

impl Registry {
    /// Lets `start` serve all addresses that begin with `scheme:`. Replaces an earlier one.
    pub fn register(
        &mut self,
        scheme: &str,
        start: impl Fn(String) -> Connecting + Send + Sync + 'static,
    ) {
        self.starters.insert(scheme.to_ascii_lowercase(), Arc::new(start));
    }

    /// The schemes that are known.
    pub fn schemes(&self) -> impl Iterator<Item = &str> {
        self.starters.keys().map(String::as_str)
    }

    /// Starts the backend for `address`. The future must be awaited inside the runtime in which
    /// the backend shall live. Fails when no backend knows the scheme, or when its backend refuses
    /// the address; an unreachable store is not a failure.
    pub fn connect(&self, address: &str) -> Connecting {
        let address = address.trim().to_owned();
        let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.and_then(|scheme| self.starters.get(&scheme)) {
            Some(start) => start(address),
            // The Redis parser knows the forms that people bring along, and what to write instead.
            None => Box::pin(async move {
                match redis::RedisUrl::parse(&address) {
                    Err(error) => Err(error),
                    Ok(_) => open_redis(&address),
                }
            }),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.schemes()).finish()
    }
}

fn open_redis(address: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    Ok(Arc::new(redis::RedisBackend::open(address)?))
}

async fn open_quorum(address: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    Ok(Arc::new(QuorumBackend::open(address).await?))
}
