//! Serving a sidecar: where, to whom, and within which limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tenure::Secret;
use tenure::config::SidecarConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::access::Access;
use crate::error::SidecarError;
use crate::sidecar::Sidecar;
use crate::tls;

/// How many connections may be open at a time; more wait in the listener's queue.
pub const CONNECTIONS_MAX: usize = 256;
/// How long a caller may take to send the head of a request, and to agree on encryption, unless
/// told otherwise.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes that a head may have.
const HEAD_LEN_MAX: usize = 32 * 1024;
/// The fewest characters of a token: less could be guessed.
const TOKEN_LEN_MIN: usize = 16;
/// How long to wait when the system has no descriptor left for a caller.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long open connections get to end at a shutdown.
const FAREWELL: Duration = Duration::from_millis(500);

/// Where to serve and whom to serve.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    listen: String,
    access: Access,
    token: Option<Secret>,
    tls: Option<tls::Files>,
    head_timeout: Duration,
}

impl ServerSettings {
    /// Serves at this address, such as `127.0.0.1:8420`.
    pub fn listen(address: impl Into<String>) -> Self {
        ServerSettings {
            listen: address.into(),
            access: Access::default(),
            token: None,
            tls: None,
            head_timeout: HEAD_TIMEOUT,
        }
    }

    /// As the section `sidecar` of a configuration says. Fails when its certificates do not fit
    /// together.
    pub fn from_config(config: &SidecarConfig) -> Result<Self, SidecarError> {
        let settings = Self::listen(config.listen.clone()).hosts(config.hosts.iter().cloned());
        let settings = match &config.token {
            Some(token) => settings.token(token.clone()),
            None => settings,
        };
        Ok(ServerSettings { tls: tls::Files::from_config(config)?, ..settings })
    }

    /// Only with this bearer token.
    #[must_use]
    pub fn token(mut self, token: Secret) -> Self {
        self.access = self.access.token(Some(token.clone()));
        self.token = Some(token);
        self
    }

    /// Also under these host names.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.access = self.access.hosts(hosts);
        self
    }

    /// Hangs up on callers who take longer than this to send the head of a request, or to agree on
    /// encryption; 10 s by default. A silent caller has one of [`CONNECTIONS_MAX`] places.
    #[must_use]
    pub fn head_timeout(mut self, limit: Duration) -> Self {
        self.head_timeout = limit;
        self
    }

    /// Refuses what would let strangers in.
    fn check(&self, address: SocketAddr) -> Result<(), SidecarError> {
        if let Some(token) = &self.token
            && token.reveal().len() < TOKEN_LEN_MIN
        {
            let (given, least) = (token.reveal().len(), TOKEN_LEN_MIN);
            return Err(SidecarError::TokenTooShort { given, least });
        }
        let knows_callers =
            self.token.is_some() || self.tls.as_ref().is_some_and(tls::Files::asks_for_clients);
        match address.ip().is_loopback() || knows_callers {
            true => Ok(()),
            false => Err(SidecarError::OpenToAll { address }),
        }
    }
}

/// A sidecar that listens.
pub struct Server {
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    head_timeout: Duration,
}

impl Server {
    /// Listens as `settings` say. Fails when the address is taken, when it is open to strangers,
    /// or when certificates cannot be used.
    pub async fn bind(sidecar: &Sidecar, settings: ServerSettings) -> Result<Self, SidecarError> {
        let address: SocketAddr = match settings.listen.parse() {
            Ok(address) => address,
            Err(_) => return Err(SidecarError::Address { given: settings.listen.clone() }),
        };
        settings.check(address)?;
        let acceptor = settings.tls.as_ref().map(tls::Files::acceptor).transpose()?;
        if acceptor.is_none() && !address.ip().is_loopback() {
            tracing::warn!(target: "tenure", %address,
                "sidecar: tokens travel unencrypted; set sidecar.tls unless something else does");
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| SidecarError::Listen { address, source })?;
        let router = settings.access.guard(sidecar.router());
        Ok(Server { listener, acceptor, router, head_timeout: settings.head_timeout })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The address of the page.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.acceptor.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}/", self.address()?))
    }

    /// Serves until `ends`, then lets open requests end, for a moment.
    pub async fn serve(self, ends: impl Future<Output = ()>) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (farewell, _) = watch::channel(false);
        let Server { listener, acceptor, router, head_timeout } = self;
        let service = Service { router, acceptor, head_timeout };
        let mut ends = std::pin::pin!(ends);
        loop {
            let accepted = tokio::select! {
                () = &mut ends => break,
                accepted = accept(&listener, &places) => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    tokio::spawn(service.clone().attend(stream, farewell.subscribe(), place));
                }
                Err(error) => {
                    tracing::warn!(target: "tenure", %error, "sidecar: cannot accept");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
        drop(listener);
        farewell.send_replace(true);
        let all = u32::try_from(CONNECTIONS_MAX).expect("a few hundred");
        // Whoever is not done by then is cut off with the process.
        let _ = tokio::time::timeout(FAREWELL, places.acquire_many(all)).await;
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// A place first: callers beyond the limit wait outside.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, place))
}

#[derive(Clone)]
struct Service {
    router: Router,
    acceptor: Option<TlsAcceptor>,
    head_timeout: Duration,
}

impl Service {
    async fn attend(
        self,
        stream: TcpStream,
        farewell: watch::Receiver<bool>,
        _place: OwnedSemaphorePermit,
    ) {
        let Some(acceptor) = self.acceptor.clone() else {
            return self.converse(stream, farewell).await;
        };
        match tokio::time::timeout(self.head_timeout, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.converse(stream, farewell).await,
            Ok(Err(error)) => tracing::debug!(target: "tenure", %error, "sidecar: no trust"),
            Err(_) => {}
        }
    }

    async fn converse<S>(self, stream: S, mut farewell: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_timeout)
            .max_buf_size(HEAD_LEN_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(self.router));
        let mut connection = std::pin::pin!(connection);
        // A caller who hangs up in the middle is no news.
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = farewell.wait_for(|leaves| *leaves) => {}
        }
        // Streams of events have no end of their own.
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(FAREWELL / 2, connection).await;
    }
}
