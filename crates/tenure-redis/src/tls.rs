//! Encrypted streams. Everything is set per connection; no process-wide default is touched.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tenure_core::StoreError;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::text::cleaned;
use super::url::TlsFiles;
use tenure_backend::ConnectError;

/// How to encrypt streams to one host.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
    /// The authorities that were named, for people.
    ca: Option<PathBuf>,
}

impl Tls {
    /// Reads the files. Fails when one is missing or unusable, naming it.
    pub(super) fn new(host: &str, files: &TlsFiles) -> Result<Self, ConnectError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            ConnectError::Address("the host is neither a name nor an IP address".into())
        })?;
        let config = files.client_config()?;
        let ca = files.ca.clone();
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), name, ca })
    }

    /// Encrypts a fresh stream.
    pub(super) async fn encrypt(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let encrypted = self.connector.connect(self.name.clone(), stream).await;
        encrypted.map_err(|error| self.with_file(error))
    }

    /// A certificate that the named authorities did not issue: the file is what to look at.
    fn with_file(&self, error: io::Error) -> io::Error {
        use rustls::{CertificateError as Why, Error};
        let why = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match (why, &self.ca) {
            // An issuer of the same name has another key.
            (Some(Error::InvalidCertificate(Why::UnknownIssuer | Why::BadSignature)), Some(ca)) => {
                let refusal = StoreError::denied(format!(
                    "the server's certificate is not accepted: it is of another issuer than {}",
                    cleaned(&ca.display().to_string())
                ));
                io::Error::other(
                    refusal.with_next_step("give the file of its own issuer with ?ca=FILE"),
                )
            }
            _ => error,
        }
    }
}

impl TlsFiles {
    /// Reads the files into a configuration of rustls. Fails if one is missing or unusable, and
    /// names it.
    pub fn client_config(&self) -> Result<ClientConfig, ConnectError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| ConnectError::Files(format!("TLS: {error}")))?;
        let builder = match self.insecure {
            true => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(TakesAnything(provider))),
            false => builder.with_root_certificates(roots(self.ca.as_deref())?),
        };
        Ok(match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(certificates("cert", cert)?, private_key(key)?)
                .map_err(|error| {
                    ConnectError::Files(format!("{} and its key: {error}", cert.display()))
                })?,
            _ => builder.with_no_client_auth(),
        })
    }
}

/// The error for a stream that was broken off, where its encryption is why.
pub(super) fn error_of(error: &io::Error) -> Option<StoreError> {
    error.get_ref().and_then(|inner| inner.downcast_ref()).map(from_tls)
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
                .with_next_step("name one with ?cert=FILE&key=FILE")
        }
        Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError,
        ) => StoreError::denied(cleaned(&format!("the client certificate is refused: {error}")))
            .with_next_step(
                "show one of an issuer that the server trusts, with ?cert=FILE&key=FILE",
            ),
        other => StoreError::unreachable(cleaned(&format!("TLS handshake failed: {other}")))
            .with_next_step("does this port speak TLS?"),
    }
}

/// What helps against a certificate that is not accepted.
fn certificate_advice(reason: &rustls::CertificateError) -> &'static str {
    use rustls::CertificateError as Why;
    match reason {
        Why::Expired | Why::ExpiredContext { .. } => "renew it, or correct this machine's clock",
        Why::NotValidYet | Why::NotValidYetContext { .. } => "correct this machine's clock",
        Why::NotValidForName | Why::NotValidForNameContext { .. } => {
            "write a name that it holds as the host, or give it this one"
        }
        _ => "name its issuer with ?ca=FILE",
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates("ca", path)? {
                roots.add(certificate).map_err(|error| unusable("ca", path, &error))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(ConnectError::Files(
                    "this system has no certificate authorities: name yours with ?ca=FILE".into(),
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
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable("key", path, &error))
}

/// Says which option of the address, or which setting, names the file.
fn unusable(option: &str, path: &Path, why: &dyn std::fmt::Display) -> ConnectError {
    ConnectError::Files(format!(
        "?{option}={}: {why}; name a PEM file that this user may read in ?{option}= or in \
         store.tls.{option}_file",
        path.display()
    ))
}

/// Accepts every certificate: only behind `#insecure`, which is said loudly.
#[derive(Debug)]
struct TakesAnything(Arc<CryptoProvider>);

impl ServerCertVerifier for TakesAnything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
