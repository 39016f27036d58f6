//! A store inside this process, so that nothing needs installing.
//!
//! The backend is the one for Redis; only the other end of its streams is a thread of our own.
//! Nothing listens: each connection is one end of a socket pair.

use std::fmt;
use std::sync::Arc;

use store_server::Server;
use tokio::net::UnixStream;

use tenure_redis::{Connector, Dialing, Login, RedisBackend, Stream, script_digests};

use super::{Backend, ConnectError, Connecting};

/// The scheme of addresses that mean a store of the client's own.
pub(super) const SCHEME: &str = "embedded";

/// A store in memory on a thread of this process, for any number of clients of this process.
///
/// It exists until the last clone, and the last client that uses it, is dropped. It starts empty
/// and says so, so its first leaders need not wait for old leases.
///
/// ```
/// # use tenure::{Tenure, backend::EmbeddedStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let store = EmbeddedStore::start()?;
/// let ada = Tenure::builder().instance("ada").embedded(&store).connect().await?;
/// let bob = Tenure::builder().instance("bob").embedded(&store).connect().await?;
/// let leading = ada.election("report").start().await?;
/// let _term = leading.wait_for_leadership().await?;
/// let waiting = bob.election("report").start().await?;
/// assert!(!waiting.is_leader());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct EmbeddedStore {
    server: Arc<Server>,
}

impl EmbeddedStore {
    /// Starts an empty store. Fails when the system has no thread or descriptor left.
    pub fn start() -> Result<Self, ConnectError> {
        // It serves elections and nothing else, so nobody can make it run code of their own.
        let server = Server::builder().only_scripts(script_digests()).start();
        let server = server.map_err(|error| ConnectError::Start(error.to_string()))?;
        Ok(EmbeddedStore { server: Arc::new(server) })
    }

    /// A backend on this store, which it keeps alive.
    ///
    /// # Panics
    /// Outside a tokio runtime, which its connections need.
    pub fn backend(&self) -> RedisBackend {
        RedisBackend::with_connector(self.clone(), Login::default())
    }
}

impl Connector for EmbeddedStore {
    fn connect(&self) -> Dialing {
        let opened = self.server.connect();
        Box::pin(async move {
            let stream = opened?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(UnixStream::from_std(stream)?) as Box<dyn Stream>)
        })
    }

    fn describe(&self) -> String {
        format!("{SCHEME}:")
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").finish_non_exhaustive()
    }
}

/// Starts a store for one client, at an address that says nothing but `embedded:`.
pub(super) fn open(address: &str) -> Connecting {
    let opened = match address.split_once(':') {
        Some((_, "" | "//")) => EmbeddedStore::start().map(|store| {
            let backend: Arc<dyn Backend> = Arc::new(store.backend());
            backend
        }),
        _ => Err(ConnectError::Address(format!(
            "{address} names a place, but an embedded store has none: write {SCHEME}:"
        ))),
    };
    Box::pin(std::future::ready(opened))
}
