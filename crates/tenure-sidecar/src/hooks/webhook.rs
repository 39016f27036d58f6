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
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Happening;

/// Why an address cannot be posted to. Never quotes it, for it may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address of a webhook must look like https://host[:port]/path")]
pub struct WebhookError;

#[derive(Clone)]
pub(super) struct Webhook {
    uri: Uri,
    /// From `user:password@` in the address, as a header.
    login: Option<Secret>,
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
        let login = authority.as_str().rsplit_once('@');
        let login = login.map(|(login, _)| Secret::new(format!("Basic {}", base64(login))));
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        Ok(Webhook { uri, login, host, port, encrypted })
    }

    pub(super) async fn post(&self, happening: &Happening) -> Result<(), String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        match self.encrypted {
            false => self.exchange(stream, happening).await,
            true => {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|error| format!("cannot check the certificate: {error}"))?;
                let stream = connector()?.connect(name, stream).await;
                let stream = stream.map_err(|error| format!("no trust: {error}"))?;
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
            .header(HOST, format!("{}:{}", self.host, self.port))
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

fn base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
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
        for bad in ["", "example.org", "ftp://example.org", "http://", "/path", "http://a b/"] {
            assert!(Webhook::new(&Secret::new(bad)).is_err(), "{bad}");
        }
        let webhook = Webhook::new(&Secret::new("http://u:p@[::1]:8080/x?y=z")).unwrap();
        assert_eq!((webhook.host.as_str(), webhook.port, webhook.encrypted), ("::1", 8080, false));
        assert_eq!(webhook.login.unwrap().reveal(), "Basic dTpw");
        assert_eq!(Webhook::new(&Secret::new("https://h/")).unwrap().port, 443);
    }

    #[test]
    fn base64_pads_as_it_must() {
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(text), expected);
        }
    }
}
