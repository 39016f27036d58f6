//! Which backend serves which address.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Connecting, address, postgres_address};

/// Starts a backend for an address.
type Starter = Arc<dyn Fn(String) -> Connecting + Send + Sync>;

/// The backends by the scheme of their addresses. A value, not a global: two parts of a program
/// can know different ones.
#[derive(Clone)]
pub(crate) struct Registry {
    starters: BTreeMap<String, Starter>,
}

impl Default for Registry {
    /// With the feature `redis`: `redis`, `rediss` and `unix`, the first two also with `+sentinel`,
    /// `+cluster` and `+quorum`. With the feature `postgres`: `postgres` and `postgresql`. With the
    /// feature `embedded`: `embedded`.
    fn default() -> Self {
        let mut registry = Registry { starters: BTreeMap::new() };
        for scheme in address::SCHEMES {
            registry
                .register(scheme, |address| Box::pin(async move { address::open(&address).await }));
        }
        for scheme in postgres_address::SCHEMES {
            registry.register(scheme, |address| {
                Box::pin(async move { postgres_address::open(&address) })
            });
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
    pub(crate) fn register(
        &mut self,
        scheme: &str,
        start: impl Fn(String) -> Connecting + Send + Sync + 'static,
    ) {
        self.starters.insert(scheme.to_ascii_lowercase(), Arc::new(start));
    }

    /// The schemes that are known.
    fn schemes(&self) -> impl Iterator<Item = &str> {
        self.starters.keys().map(String::as_str)
    }

    /// Starts the backend for `address`. The future must be awaited inside the runtime in which
    /// the backend shall live. Fails when no backend knows the scheme, or when its backend refuses
    /// the address; an unreachable store is not a failure.
    pub(crate) fn connect(&self, address: &str) -> Connecting {
        let address = address.trim().to_owned();
        let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.and_then(|scheme| self.starters.get(&scheme)) {
            Some(start) => start(address),
            None => Box::pin(async move { address::open_unnamed(&address).await }),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.schemes()).finish()
    }
}
