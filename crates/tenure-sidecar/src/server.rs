//! Serving a sidecar: on which address, to whom, and with which limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tenure::Secret;
use tenure::config::SidecarConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::access::Access;
use crate::connections::Connections;
use crate::endpoint::{Endpoints, Listening, Stream};
use crate::error::SidecarError;
use crate::paced::Paced;
use crate::routes::{BODY_LEN_MAX, problem};
use crate::sidecar::Sidecar;
use crate::tls::{self, Certificates};

/// How long a caller may take to send a request, to take in a part of the answer, and to agree on
/// encryption, unless told otherwise.
const CALLER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes that a head may have.
const HEAD_LEN_MAX: usize = 32 * 1024;
/// The fewest characters of a token: less could be guessed.
const TOKEN_LEN_MIN: usize = 16;
/// How long to wait when the system has no descriptor left for a caller.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How often to look whether the files of certificates have changed.
const CERTIFICATES_LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long open connections get to end at a shutdown.
const FAREWELL: Duration = Duration::from_millis(500);

/// The address to listen on, who may call, and the limits.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    listen: String,
    access: Access,
    token: Option<Secret>,
    tls: Option<tls::Files>,
    caller_timeout: Duration,
}

impl ServerSettings {
    /// Listens on this address, such as `127.0.0.1:8420`, on a socket file, such as
    /// `unix:/run/tenure.sock`, or on both, with a comma between them.
    pub fn listen(address: impl Into<String>) -> Self {
        ServerSettings {
            listen: address.into(),
            access: Access::default(),
            token: None,
            tls: None,
            caller_timeout: CALLER_TIMEOUT,
        }
    }

    /// The settings in the section `sidecar` of a configuration. Fails if its certificate settings
    /// contradict each other.
    pub fn from_config(config: &SidecarConfig) -> Result<Self, SidecarError> {
        let settings = Self::listen(config.listen.clone()).hosts(config.hosts.iter().cloned());
        let settings = match &config.token {
            Some(token) => settings.token(token.clone()),
            None => settings,
        };
        Ok(ServerSettings { tls: tls::Files::from_config(config)?, ..settings })
    }

    /// Requires this bearer token.
    #[must_use]
    pub fn token(mut self, token: Secret) -> Self {
        self.access = self.access.token(Some(token.clone()));
        self.token = Some(token);
        self
    }

    /// Also allows these host names.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.access = self.access.hosts(hosts);
        self
    }

    /// Closes the connection of a caller that takes longer than this to send the head or the body
    /// of a request, to agree on encryption, or to receive any part of an answer; 10 s by default.
    #[must_use]
    pub fn caller_timeout(mut self, limit: Duration) -> Self {
        self.caller_timeout = limit;
        self
    }

    /// Checks the settings without listening.
    pub fn check(&self) -> Result<(), SidecarError> {
        self.judge().map(drop)
    }

    /// Listens on the address before there is anything to serve, so that a process that cannot
    /// listen takes part in nothing. Fails if the address is taken, if others could call without a
    /// token or certificate, or if certificates cannot be used.
    pub async fn bind(self) -> Result<Listener, SidecarError> {
        let (endpoints, certificates) = self.judge()?;
        let certificates = certificates.map(Arc::new);
        let exposed = endpoints.address.filter(|address| !address.ip().is_loopback());
        if let (None, Some(address)) = (&certificates, exposed) {
            tracing::warn!(target: "tenure", %address,
                "sidecar: tokens are sent unencrypted; set sidecar.tls unless something else \
                 encrypts");
        }
        let listener = endpoints.listen().await?;
        Ok(Listener { listener, certificates, settings: self })
    }

    /// The address and the certificates to serve with.
    fn judge(&self) -> Result<(Endpoints, Option<Certificates>), SidecarError> {
        let endpoints = Endpoints::parse(&self.listen)?;
        self.refuse_strangers(endpoints.address)?;
        Ok((endpoints, self.tls.clone().map(Certificates::load).transpose()?))
    }

    /// Refuses what would let strangers in.
    fn refuse_strangers(&self, address: Option<SocketAddr>) -> Result<(), SidecarError> {
        if let Some(token) = &self.token
            && token.reveal().len() < TOKEN_LEN_MIN
        {
            let (given, least) = (token.reveal().len(), TOKEN_LEN_MIN);
            return Err(SidecarError::TokenTooShort { given, least });
        }
        let knows_callers =
            self.token.is_some() || self.tls.as_ref().is_some_and(tls::Files::asks_for_clients);
        match address.filter(|address| !address.ip().is_loopback() && !knows_callers) {
            None => Ok(()),
            Some(address) => Err(SidecarError::OpenToAll { address }),
        }
    }
}

/// An address that is listened on, with nothing to serve yet. Callers wait meanwhile.
pub struct Listener {
    listener: Listening,
    certificates: Option<Arc<Certificates>>,
    settings: ServerSettings,
}

impl Listener {
    /// Serves `sidecar` here.
    pub fn show(self, sidecar: &Sidecar) -> Server {
        let Listener { listener, certificates, settings } = self;
        let caller_timeout = settings.caller_timeout;
        let whole = middleware::from_fn_with_state(caller_timeout, whole_body);
        let router = settings.access.guard(sidecar.router().layer(whole));
        let router = router.layer(middleware::from_fn(bounded_head));
        Server { listener, certificates, router, caller_timeout }
    }
}

/// A sidecar that listens.
pub struct Server {
    listener: Listening,
    certificates: Option<Arc<Certificates>>,
    router: Router,
    caller_timeout: Duration,
}

impl Server {
    /// Listens with these settings. Fails if the address is taken, if others could call without a
    /// token or certificate, or if certificates cannot be used.
    pub async fn bind(sidecar: &Sidecar, settings: ServerSettings) -> Result<Self, SidecarError> {
        Ok(settings.bind().await?.show(sidecar))
    }

    /// Its certificates, to reload their files; `None` if it serves plain HTTP.
    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        self.certificates.clone()
    }

    /// The address that it listens on. Fails where it listens on a socket file only.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.address()
    }

    /// The address of the page; `unix:` and its path where it listens on a socket file only.
    pub fn url(&self) -> io::Result<String> {
        if let Listening { tcp: None, file: Some(file) } = &self.listener {
            return Ok(format!("unix:{}", file.path().display()));
        }
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}/", self.address()?))
    }

    /// Serves until `ends` is done, then waits a moment for open requests. Renewed certificates are
    /// read within a few seconds.
    pub async fn serve(self, ends: impl Future<Output = ()>) {
        let connections = Connections::new();
        let (farewell, _) = watch::channel(false);
        let Server { listener, certificates, router, caller_timeout } = self;
        let service = Service { router, certificates: certificates.clone(), caller_timeout };
        let mut ends = std::pin::pin!(ends);
        let mut renewals = std::pin::pin!(follow_renewals(certificates));
        let mut is_refusing = false;
        loop {
            let accepted = tokio::select! {
                () = &mut ends => break,
                accepted = listener.accept() => accepted,
                () = &mut renewals => continue,
            };
            match accepted {
                Ok((stream, address)) => {
                    is_refusing = false;
                    let (place, ended) = connections.enter(address);
                    let stream = Paced::new(stream, place, caller_timeout);
                    let attended = service.clone().attend(stream, farewell.subscribe());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = attended => {}
                            _ = ended => {}
                        }
                    });
                }
                Err(error) => {
                    // Once until somebody is accepted again, not ten times a second.
                    if !std::mem::replace(&mut is_refusing, true) {
                        tracing::warn!(target: "tenure", %error, "sidecar: cannot accept");
                    }
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
        drop(listener);
        farewell.send_replace(true);
        // Whoever is not done by then is cut off with the process.
        let _ = tokio::time::timeout(FAREWELL, connections.all_gone()).await;
    }
}

/// Looks at the files of certificates again and again. Never ends.
async fn follow_renewals(certificates: Option<Arc<Certificates>>) {
    let Some(certificates) = certificates else { return std::future::pending().await };
    loop {
        tokio::time::sleep(CERTIFICATES_LOOK_EVERY).await;
        certificates.follow_files();
    }
}

/// Refuses a head that is too long: the connection's own bound is on what waits to be read, which
/// a head that comes at once may exceed.
async fn bounded_head(request: Request, next: Next) -> Response {
    // A header takes a colon, a space and the end of its line.
    let of_headers: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if of_headers + request.uri().to_string().len() <= HEAD_LEN_MAX {
        return next.run(request).await;
    }
    let error = format!("the head is longer than {HEAD_LEN_MAX} bytes: send less");
    let close = [(header::CONNECTION, "close")];
    (close, problem(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, error)).into_response()
}

/// Takes in the body of a request before anybody works on it: one that does not end in time holds
/// up nobody.
async fn whole_body(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let close = [(header::CONNECTION, "close")];
    match tokio::time::timeout(limit, to_bytes(body, BODY_LEN_MAX)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err(_)) => {
            let error = format!("the body is longer than {BODY_LEN_MAX} bytes, or was cut off");
            (close, problem(StatusCode::PAYLOAD_TOO_LARGE, error)).into_response()
        }
        Err(_) => {
            let error = format!("the body did not arrive within {limit:?}: send it at once");
            (close, problem(StatusCode::REQUEST_TIMEOUT, error)).into_response()
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Service {
    router: Router,
    certificates: Option<Arc<Certificates>>,
    caller_timeout: Duration,
}

impl Service {
    async fn attend(self, stream: Paced<Stream>, farewell: watch::Receiver<bool>) {
        // What comes through a file stays on this machine.
        let certificates = self.certificates.as_ref().filter(|_| !stream.get_ref().is_local());
        let Some(acceptor) = certificates.map(|known| known.acceptor()) else {
            return self.converse(stream, farewell).await;
        };
        match tokio::time::timeout(self.caller_timeout, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.converse(stream, farewell).await,
            Ok(Err(error)) => tracing::debug!(target: "tenure", %error, "sidecar: TLS handshake \
                                                                         failed"),
            Err(_) => {}
        }
    }

    async fn converse<S>(self, stream: S, mut farewell: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.caller_timeout)
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
