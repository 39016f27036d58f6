//! The `tls-…` settings as rustls takes them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, RootCertStore, ServerConfig, SupportedProtocolVersion};
use store_engine::{ClientAuth, TlsSettings};

use super::TlsError;

/// Names of suites as OpenSSL has them in `tls-ciphers`; those of TLS 1.3 stand in
/// `tls-ciphersuites` under their own.
const SUITES: &[(&str, CipherSuite)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// What the settings ask for. Fails at the first that is not supported.
pub(super) fn server_config(settings: &TlsSettings) -> Result<ServerConfig, TlsError> {
    refuse_unsupported(settings)?;
    let provider = Arc::new(provider(settings)?);
    let versions = versions(settings)?;
    let certificates = certificates(settings)?;
    let key = private_key(settings)?;
    let mut built = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|error| wrong("tls-protocols", error))?
        .with_client_cert_verifier(client_verifier(settings, &provider)?)
        .with_single_cert(certificates, key)
        .map_err(|error| wrong("tls-cert-file", error))?;
    built.ignore_client_order = settings.prefers_own_ciphers;
    built.session_storage = match settings.cached_sessions_max {
        Some(count) => ServerSessionMemoryCache::new(count),
        None => Arc::new(NoServerSessionStorage {}),
    };
    Ok(built)
}

pub(super) fn wrong(setting: &'static str, reason: impl ToString) -> TlsError {
    TlsError { setting, reason: reason.to_string() }
}

fn refuse_unsupported(settings: &TlsSettings) -> Result<(), TlsError> {
    if !settings.key_file_pass.is_empty() {
        let reason = "encrypted keys cannot be read: write the key in plain PEM";
        return Err(wrong("tls-key-file-pass", reason));
    }
    if !settings.dh_params_file.is_empty() {
        let reason = "only elliptic curves are supported: leave it out";
        return Err(wrong("tls-dh-params-file", reason));
    }
    Ok(())
}

pub(super) fn certificates(
    settings: &TlsSettings,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    const SETTING: &str = "tls-cert-file";
    let path = &settings.cert_file;
    if path.is_empty() {
        return Err(wrong(SETTING, "not set: TLS needs a certificate"));
    }
    let found = read_certificates(SETTING, Path::new(path))?;
    if found.is_empty() {
        return Err(wrong(SETTING, format!("{path} has no certificate in PEM form")));
    }
    Ok(found)
}

fn read_certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |reason: String| wrong(setting, format!("{}: {reason}", path.display()));
    let text = fs::read(path).map_err(|error| fail(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    found.map_err(|error| fail(error.to_string()))
}

pub(super) fn private_key(settings: &TlsSettings) -> Result<PrivateKeyDer<'static>, TlsError> {
    const SETTING: &str = "tls-key-file";
    // As in Redis, one file may hold both.
    let path = match settings.key_file.is_empty() {
        true => &settings.cert_file,
        false => &settings.key_file,
    };
    let text = fs::read(path).map_err(|error| wrong(SETTING, format!("{path}: {error}")))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let reason = "has no private key in plain PEM form (encrypted keys cannot be read)";
        wrong(SETTING, format!("{path} {reason}"))
    })
}

fn client_verifier(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    if settings.client_auth == ClientAuth::Off {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let roots = Arc::new(authorities(settings)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let builder = match settings.client_auth {
        ClientAuth::Optional => builder.allow_unauthenticated(),
        _ => builder,
    };
    builder.build().map_err(|error| wrong("tls-ca-cert-file", error))
}

/// Who may vouch for clients.
pub(super) fn authorities(settings: &TlsSettings) -> Result<RootCertStore, TlsError> {
    let (file, folder) = (&settings.ca_cert_file, &settings.ca_cert_folder);
    if file.is_empty() && folder.is_empty() {
        let reason = "not set: give it or tls-ca-cert-dir, or say tls-auth-clients no";
        return Err(wrong("tls-ca-cert-file", reason));
    }
    let mut found = Vec::new();
    if !file.is_empty() {
        found.extend(read_certificates("tls-ca-cert-file", Path::new(file))?);
    }
    if !folder.is_empty() {
        found.extend(read_folder(Path::new(folder))?);
    }
    let mut roots = RootCertStore::empty();
    for certificate in found {
        roots.add(certificate).map_err(|error| wrong("tls-ca-cert-file", error))?;
    }
    if roots.is_empty() {
        return Err(wrong("tls-ca-cert-file", "has no certificate in PEM form"));
    }
    Ok(roots)
}

fn read_folder(folder: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    const SETTING: &str = "tls-ca-cert-dir";
    let fail = |error| wrong(SETTING, format!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_file() {
            found.extend(read_certificates(SETTING, &path)?);
        }
    }
    Ok(found)
}

pub(super) fn versions(
    settings: &TlsSettings,
) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    if settings.protocols.is_empty() {
        return Ok(vec![&TLS13, &TLS12]);
    }
    let version = |word: &String| match word.to_ascii_lowercase().as_str() {
        "tlsv1.3" => Ok(&TLS13),
        "tlsv1.2" => Ok(&TLS12),
        _ => Err(wrong("tls-protocols", format!("{word}: only TLSv1.2 and TLSv1.3 are spoken"))),
    };
    settings.protocols.iter().map(version).collect()
}

/// The suites that the settings name, in their order; all of a version whose setting is empty.
pub(super) fn provider(settings: &TlsSettings) -> Result<CryptoProvider, TlsError> {
    let mut provider = ring::default_provider();
    let all = std::mem::take(&mut provider.cipher_suites);
    for (setting, text, is_13) in [
        ("tls-ciphersuites", &settings.ciphersuites, true),
        ("tls-ciphers", &settings.ciphers, false),
    ] {
        let of_version = all.iter().filter(|suite| suite.tls13().is_some() == is_13);
        if text.is_empty() {
            provider.cipher_suites.extend(of_version.copied());
            continue;
        }
        for name in text.split(':') {
            let wanted = SUITES.iter().find(|(known, _)| *known == name).map(|(_, suite)| *suite);
            let found = of_version.clone().find(|suite| Some(suite.suite()) == wanted);
            let unknown = || wrong(setting, format!("{name} is not supported"));
            provider.cipher_suites.push(*found.ok_or_else(unknown)?);
        }
    }
    Ok(provider)
}
