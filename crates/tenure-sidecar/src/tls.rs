//! Certificates: the one we show, and those that callers must show.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tenure::config::SidecarConfig;
use tokio_rustls::TlsAcceptor;

use crate::error::SidecarError;

/// The files that were named.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

impl Files {
    /// `None` for plain HTTP. Fails when only a part of what is needed is named.
    pub(crate) fn from_config(config: &SidecarConfig) -> Result<Option<Self>, SidecarError> {
        match (&config.cert_file, &config.key_file, &config.client_ca_file) {
            (Some(cert), Some(key), client_ca) => Ok(Some(Files {
                cert: cert.clone(),
                key: key.clone(),
                client_ca: client_ca.clone(),
            })),
            (None, None, None) => Ok(None),
            (None, None, Some(_)) => Err(broken(
                "client_ca_file needs a certificate of its own: set cert_file and key_file",
            )),
            _ => Err(broken("cert_file and key_file belong together: set both")),
        }
    }

    fn stamps(&self) -> Stamps {
        let files = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()];
        let stamp = |file: &PathBuf| {
            let about = std::fs::metadata(file).ok()?;
            Some((about.modified().ok()?, about.len()))
        };
        files.into_iter().flatten().map(stamp).collect()
    }

    /// Whether callers must show a certificate.
    pub(crate) fn asks_for_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    fn acceptor(&self) -> Result<TlsAcceptor, SidecarError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(broken)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = rustls::RootCertStore::empty();
                for certificate in certificates(file)? {
                    roots.add(certificate).map_err(|error| in_file(file, error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| in_file(file, e))?)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?);
        let key = key.map_err(|error| in_file(&self.key, error))?;
        let mut config =
            builder.with_single_cert(certificates(&self.cert)?, key).map_err(broken)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// The certificates in use. Their files may be replaced at any time.
#[derive(Debug)]
pub struct Certificates {
    files: Files,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    acceptor: TlsAcceptor,
    /// The files as they were when they were last tried, whatever came of it.
    tried: Stamps,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("tried", &self.tried).finish_non_exhaustive()
    }
}

/// What tells one state of the files from another.
type Stamps = Vec<Option<(SystemTime, u64)>>;

impl Certificates {
    pub(crate) fn load(files: Files) -> Result<Self, SidecarError> {
        // Looked at before they are read: a change in between is found later.
        let tried = files.stamps();
        let acceptor = files.acceptor()?;
        Ok(Certificates { files, loaded: Mutex::new(Loaded { acceptor, tried }) })
    }

    /// Reads the files again. Open connections keep the old certificates. If the files cannot be
    /// used, this fails and the old certificates stay in use.
    pub fn reload(&self) -> Result<(), SidecarError> {
        let tried = self.files.stamps();
        let acceptor = self.files.acceptor();
        let mut loaded = self.lock();
        loaded.tried = tried;
        loaded.acceptor = acceptor?;
        Ok(())
    }

    /// Reads the files again if they have changed.
    pub(crate) fn follow_files(&self) {
        if self.files.stamps() == self.lock().tried {
            return;
        }
        match self.reload() {
            Ok(()) => tracing::info!(target: "tenure", "sidecar: certificates were read again"),
            Err(error) => tracing::warn!(target: "tenure", %error,
                "sidecar: the renewed certificates cannot be used, the previous ones stay in use"),
        }
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.lock().acceptor.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, SidecarError> {
    let text = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found.map_err(|error| in_file(file, error))? {
        none if none.is_empty() => Err(in_file(file, "there is no certificate in it")),
        certificates => Ok(certificates),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, SidecarError> {
    std::fs::read(file).map_err(|source| SidecarError::File { file: file.to_owned(), source })
}

fn in_file(file: &Path, why: impl std::fmt::Display) -> SidecarError {
    broken(format!("{}: {why}", file.display()))
}

fn broken(why: impl std::fmt::Display) -> SidecarError {
    SidecarError::Tls { why: why.to_string() }
}
