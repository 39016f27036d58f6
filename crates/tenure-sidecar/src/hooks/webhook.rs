//! A hook that posts to an address.

use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tenure::Secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::Happening;

/// Why an address cannot be posted to. It never quotes the address, which may contain a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address of a webhook must look like https://host[:port]/path")]
pub struct WebhookError;

#[derive(Clone)]
pub(super) struct Webhook {
    uri: Uri,
    /// From `user:password@` in the address, as a header.
    login: Option<Secret>,
    /// As the address names it, without the login.
    host_header: String,
    host: String,
    port: u16,
    encrypted: bool,
}

impl Webhook {
    pub(super) fn new(url: &Secret) -> Result<Self, WebhookError> {
        let uri: Uri = url.reveal().trim().parse().map_err(|_| WebhookError)?;
        let encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(WebhookError),
        };
        let authority = uri.authority().ok_or(WebhookError)?;
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
            Some(port) => port.trim_start_matches(':').parse().map_err(|_| WebhookError)?,
            None => return Err(WebhookError),
        };
        if host.is_empty() || port == 0 {
            return Err(WebhookError);
        }
        let host_header = place.to_owned();
        Ok(Webhook { uri, login, host_header, host, port, encrypted })
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
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path)
            .header(HOST, self.host_header.as_str())
            .header(CONTENT_TYPE, "application/json");
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login.reveal());
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| error.to_string())?;
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
        return Err(WebhookError);
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
                let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or(WebhookError);
                let byte = digit(high)? * 16 + digit(low)?;
                bytes.push(u8::try_from(byte).map_err(|_| WebhookError)?);
                rest = tail;
            }
            (b'%', _) => return Err(WebhookError),
            _ => bytes.push(*first),
        }
    }
    Ok(bytes)
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let index = (bits >> (18 - 6 * place)) as usize & 63;
            let letter = if place <= chunk.len() { ALPHABET[index] as char } else { '=' };
            encoded.push(letter);
        }
    }
    encoded
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

    #[test]
    fn base64_pads_as_it_must() {
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
