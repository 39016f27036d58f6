//! Encrypted streams. Everything is set per connection; no process-wide default is touched.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tenure_backend::ConnectError;
use tenure_core::StoreError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::address::{TlsMode, Verify};
use crate::dial::Stream;
use crate::text::cleaned;

/// How to encrypt streams to the hosts of one address.
#[derive(Clone)]
pub(crate) struct Tls(Option<TlsConnector>);

impl Tls {
    /// Reads the files. Fails when one is missing or unusable, naming it.
    pub(crate) fn new(mode: &TlsMode) -> Result<Self, ConnectError> {
        match mode.verify {
            Verify::Plain => Ok(Tls(None)),
            _ => Ok(Tls(Some(TlsConnector::from(Arc::new(client_config(mode)?))))),
        }
    }

    /// What encrypts one stream to `host`.
    pub(crate) fn to(&self, host: &str) -> Encryption {
        let name = ServerName::try_from(host.to_owned()).ok();
        Encryption { connector: self.0.clone(), name }
    }
}

fn client_config(mode: &TlsMode) -> Result<ClientConfig, ConnectError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::Files(format!("TLS: {error}")))?;
    let verifier: Arc<dyn ServerCertVerifier> = match mode.verify {
        Verify::Plain | Verify::Prefer | Verify::Require => {
            Arc::new(Lenient { provider, inner: None })
        }
        Verify::Authority | Verify::Full => {
            let roots = Arc::new(roots(mode.root.as_deref())?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
            let inner = inner.build();
            let inner = inner.map_err(|error| ConnectError::Files(format!("TLS: {error}")))?;
            match mode.verify {
                Verify::Full => inner,
                _ => Arc::new(Lenient { provider, inner: Some(inner) }),
            }
        }
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(match &mode.client {
        Some((cert, key)) => builder
            .with_client_auth_cert(certificates("sslcert", cert)?, private_key(key)?)
            .map_err(|error| {
                ConnectError::Files(format!("{} and its key: {error}", cert.display()))
            })?,
        None => builder.with_no_client_auth(),
    })
}

fn roots(root: Option<&Path>) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    match root {
        Some(path) => {
            for certificate in certificates("sslrootcert", path)? {
                roots.add(certificate).map_err(|error| unusable("sslrootcert", path, &error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(ConnectError::Files(
                    "this system has no certificate authorities: name yours with ?sslrootcert=FILE"
                        .into(),
                ));
            }
        }
    }
    Ok(roots)
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(unusable(option, path, &"no certificate in it")),
        Err(error) => Err(unusable(option, path, &error)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConnectError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable("sslkey", path, &error))
}

fn unusable(option: &str, path: &Path, why: &dyn std::fmt::Display) -> ConnectError {
    ConnectError::Files(format!(
        "?{option}={}: {why}; name a PEM file that this user may read",
        path.display()
    ))
}

/// What encrypts one stream.
pub(crate) struct Encryption {
    connector: Option<TlsConnector>,
    /// `None` where the host cannot be in a certificate, as a folder of sockets.
    name: Option<ServerName<'static>>,
}

impl TlsConnect<Stream> for Encryption {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: Stream) -> Self::Future {
        Box::pin(async move {
            let (Some(connector), Some(name)) = (self.connector, self.name) else {
                return Err(io::Error::other("this address is not to be encrypted"));
            };
            let encrypted = connector.connect(name, stream).await.map_err(|error| {
                let why = error.get_ref().and_then(|inner| inner.downcast_ref()).map(from_tls);
                why.map_or(error, io::Error::other)
            })?;
            Ok(Encrypted(encrypted))
        })
    }
}

/// An encrypted stream.
pub(crate) struct Encrypted(tokio_rustls::client::TlsStream<Stream>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// The error for a stream that cannot be encrypted, or that the peer ends with a reason.
fn from_tls(error: &rustls::Error) -> StoreError {
    use rustls::{AlertDescription as Alert, Error};
    match error {
        Error::InvalidCertificate(reason) => {
            let what = format!("the server's certificate is not accepted: {reason}");
            StoreError::denied(cleaned(&what)).with_next_step(certificate_advice(reason))
        }
        Error::AlertReceived(Alert::CertificateRequired) => {
            StoreError::denied("the server asks for a client certificate")
                .with_next_step("name one with ?sslcert=FILE&sslkey=FILE")
        }
        other => StoreError::unreachable(cleaned(&format!("TLS handshake failed: {other}"))),
    }
}

/// What helps against a certificate that is not accepted.
fn certificate_advice(reason: &CertificateError) -> &'static str {
    use CertificateError as Why;
    match reason {
        Why::Expired | Why::ExpiredContext { .. } => "renew it, or correct this machine's clock",
        Why::NotValidYet | Why::NotValidYetContext { .. } => "correct this machine's clock",
        Why::NotValidForName | Why::NotValidForNameContext { .. } => {
            "write a name that it holds as the host, or give it this one"
        }
        _ => "name its issuer with ?sslrootcert=FILE",
    }
}

/// Accepts every certificate, or every one of a trusted authority, whatever its name.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    inner: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::Error::InvalidCertificate;
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The chain is checked before the name.
            Err(InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
