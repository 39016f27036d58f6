//! How to reach a store.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, RedisConnectionInfo, RedisResult};

/// Longer than a store on the other side of the world takes.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Dial = Arc<dyn Fn() -> io::Result<UnixStream> + Send + Sync>;

/// A store that connections can be made to. Cloning is cheap.
#[derive(Clone)]
pub struct Store {
    route: Route,
}

#[derive(Clone)]
enum Route {
    Client(Client),
    Streams(Dial),
}

impl Store {
    /// The store at an address such as `redis://127.0.0.1`. Connects when needed.
    ///
    /// Fails if the address cannot be parsed.
    pub fn open(address: &str) -> RedisResult<Self> {
        Ok(Self::of_client(Client::open(address)?))
    }

    /// The store of an existing client, for example one with TLS.
    pub fn of_client(client: Client) -> Self {
        Self { route: Route::Client(client) }
    }

    /// The store at the other end of these streams, for example of `store_server::Server::connect`,
    /// so that no port is needed.
    pub fn of_streams(dial: impl Fn() -> io::Result<UnixStream> + Send + Sync + 'static) -> Self {
        Self { route: Route::Streams(Arc::new(dial)) }
    }

    /// A new connection on which commands may block: nothing else waits behind them, and the client
    /// has no timeout. Set a limit for your own wait.
    pub async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(CONNECT_TIMEOUT));
        match &self.route {
            Route::Client(client) => {
                client.get_multiplexed_async_connection_with_config(&config).await
            }
            Route::Streams(dial) => {
                let info = RedisConnectionInfo::default();
                let stream = asynchronous(dial()?)?;
                let (connection, driver) =
                    MultiplexedConnection::new_with_config(&info, stream, config).await?;
                // It ends with the last clone of the connection.
                tokio::spawn(driver);
                Ok(connection)
            }
        }
    }

    /// A connection for messages.
    pub(crate) async fn listen(&self) -> RedisResult<PubSub> {
        match &self.route {
            Route::Client(client) => client.get_async_pubsub().await,
            Route::Streams(dial) => {
                let stream = asynchronous(dial()?)?;
                PubSub::new(&RedisConnectionInfo::default(), stream).await
            }
        }
    }
}

fn asynchronous(stream: UnixStream) -> io::Result<tokio::net::UnixStream> {
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

/// Without the address, in which a password may stand.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
