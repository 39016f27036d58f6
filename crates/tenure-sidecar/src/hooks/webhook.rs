//! A hook that posts to an address.

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tenure::Secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::Happening;
use super::base64::base64;
use super::signature::{Signer, message_id};
use crate::clock;

/// Why an address cannot be posted to. It quotes nothing that may contain a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// The address is not one of a web server.
    #[error("the address of a webhook must look like https://host[:port]/path")]
    Address,
    /// A header cannot be sent.
    #[error("the name of a header has letters, digits and hyphens, its value plain ASCII")]
    Header,
    /// The address has a login, and there is a header for another one.
    #[error("the address has a login, and so has the header Authorization: keep one of them")]
    TwoLogins,
    /// The secret cannot sign anything.
    #[error("a secret that begins with whsec_ goes on with base64 of at least 16 bytes")]
    Secret,
}

/// An address that is posted to, with what is sent there. Its `Debug` shows none of it.
#[derive(Clone)]
pub struct Webhook {
    uri: Uri,
    /// From `user:password@` in the address, as a header.
    login: Option<Secret>,
    headers: HeaderMap,
    signer: Option<Signer>,
    /// As the address names it, without the login.
    host_header: String,
    host: String,
    port: u16,
    encrypted: bool,
}

impl Webhook {
    /// Posts to `url`. Fails if that is not `http://…` or `https://…`.
    pub fn new(url: &Secret) -> Result<Self, WebhookError> {
        let uri: Uri = url.reveal().trim().parse().map_err(|_| WebhookError::Address)?;
        let encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(WebhookError::Address),
        };
        let authority = uri.authority().ok_or(WebhookError::Address)?;
        let (login, place) = match authority.as_str().rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority.as_str()),
        };
        let login = login.map(login_header).transpose()?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = match place.strip_prefix(authority.host()) {
            Some("") => {
                if encrypted {
                    443
                } else {
                    80
                }
            }
            Some(port) => {
                port.trim_start_matches(':').parse().map_err(|_| WebhookError::Address)?
            }
            None => return Err(WebhookError::Address),
        };
        if host.is_empty() || port == 0 {
            return Err(WebhookError::Address);
        }
        let host_header = place.to_owned();
        let headers = HeaderMap::new();
        Ok(Webhook { uri, login, headers, signer: None, host_header, host, port, encrypted })
    }

    /// Also sends a header. Fails if HTTP cannot carry it, or if it is a second login.
    pub fn header(mut self, name: &str, value: &Secret) -> Result<Self, WebhookError> {
        let name = HeaderName::try_from(name).map_err(|_| WebhookError::Header)?;
        let value = HeaderValue::try_from(value.reveal()).map_err(|_| WebhookError::Header)?;
        if name == AUTHORIZATION && self.login.is_some() {
            return Err(WebhookError::TwoLogins);
        }
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Signs what is posted with HMAC-SHA256, as the Standard Webhooks specification describes: the
    /// secret is the text as it is, or what follows `whsec_`, decoded from base64.
    pub fn signed_with(mut self, secret: &Secret) -> Result<Self, WebhookError> {
        self.signer = Some(Signer::new(secret).ok_or(WebhookError::Secret)?);
        Ok(self)
    }

    pub(super) async fn post(&self, happening: &Happening) -> Result<(), String> {
        let stream = store_client::connect_tcp(&self.host, self.port)
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        match self.encrypted {
            false => self.exchange(stream, happening).await,
            true => {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|error| format!("cannot check the certificate: {error}"))?;
                let stream = connector()?.connect(name, stream).await;
                let stream = stream.map_err(|error| format!("TLS handshake failed: {error}"))?;
                self.exchange(stream, happening).await
            }
        }
    }

    async fn exchange<S>(&self, stream: S, happening: &Happening) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let body = serde_json::to_vec(happening).map_err(|error| error.to_string())?;
        let request = self.request(happening, body).map_err(|error| error.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let mut answered = std::pin::pin!(sender.send_request(request));
        let response = tokio::select! {
            biased;
            response = &mut answered => response,
            // Whatever ended the connection, the answer may have come before.
            _ = connection => answered.await,
        };
        let status = response.map_err(|error| error.to_string())?.status();
        if status.is_success() { Ok(()) } else { Err(format!("was answered {status}")) }
    }

    fn request(
        &self,
        happening: &Happening,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, axum::http::Error> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request = request
            .header(HOST, self.host_header.as_str())
            .header(CONTENT_TYPE, "application/json");
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login.reveal());
        }
        let (id, sent_at) = (message_id(happening), clock::unix_ms() / 1000);
        request = request.header("webhook-id", &id).header("webhook-timestamp", sent_at);
        if let Some(signer) = &self.signer {
            request = request.header("webhook-signature", signer.sign(&id, sent_at, &body));
        }
        request.body(Full::new(Bytes::from(body)))
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Webhook(***)")
    }
}

fn connector() -> Result<TlsConnector, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// `user:password` of an address, where both may be percent-encoded, as a header. A user name
/// cannot have a colon in it: the header has no way to say so.
fn login_header(login: &str) -> Result<Secret, WebhookError> {
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (user, password) = (decoded(user)?, decoded(password)?);
    if user.contains(&b':') {
        return Err(WebhookError::Address);
    }
    let plain = [user.as_slice(), b":", &password].concat();
    Ok(Secret::new(format!("Basic {}", base64(&plain))))
}

fn decoded(text: &str) -> Result<Vec<u8>, WebhookError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or(WebhookError::Address);
                let byte = digit(high)? * 16 + digit(low)?;
                bytes.push(u8::try_from(byte).map_err(|_| WebhookError::Address)?);
                rest = tail;
            }
            (b'%', _) => return Err(WebhookError::Address),
            _ => bytes.push(*first),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_are_posted_to() {
        for bad in [
            "",
            "example.org",
            "ftp://example.org",
            "http://",
            "/path",
            "http://a b/",
            "http://h:99999/",
            "http://h:0/",
            "http://h:/",
            "http://:80/",
            "http://a%zz:b@h/",
            "http://a:b%4@h/",
            "http://a%3Ab:c@h/",
        ] {
            assert!(Webhook::new(&Secret::new(bad)).is_err(), "{bad}");
        }
        let webhook = Webhook::new(&Secret::new("http://u:p@[::1]:8080/x?y=z")).unwrap();
        assert_eq!((webhook.host.as_str(), webhook.port, webhook.encrypted), ("::1", 8080, false));
        assert_eq!(webhook.login.unwrap().reveal(), "Basic dTpw");
        assert_eq!(Webhook::new(&Secret::new("https://h/")).unwrap().port, 443);
    }

    #[test]
    fn the_host_is_named_as_in_the_address_and_the_login_is_decoded() {
        let of = |url: &str| Webhook::new(&Secret::new(url)).unwrap();
        for (url, host_header) in [
            ("http://us%40er:p%3Aw@[::1]:1/x", "[::1]:1"),
            ("https://h/", "h"),
            ("https://h:443/", "h:443"),
            ("http://[2001:db8::7]/", "[2001:db8::7]"),
        ] {
            assert_eq!(of(url).host_header, host_header);
        }
        let login = |url: &str| of(url).login.unwrap().reveal().to_owned();
        assert_eq!(login("http://us%40er:p%3Aw@[::1]:1/x"), "Basic dXNAZXI6cDp3");
        assert_eq!(login("http://token@h/"), "Basic dG9rZW46", "a name without a password");
    }
}
