//! This server's part when it dials another one (`tls-replication`).

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use store_engine::TlsSettings;

use super::TlsError;
use super::settings::{authorities, certificates, private_key, provider, versions, wrong};

/// What the settings ask for. Fails at the first that is not supported.
pub(super) fn client_config(settings: &TlsSettings) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(provider(settings)?);
    let versions = versions(settings)?;
    let roots = trusted(settings)?;
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let inner = inner.build().map_err(|error| wrong("tls-ca-cert-file", error))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| wrong("tls-protocols", error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyNameVerifier(inner)));
    let own = own_certificate(settings)?;
    if own.cert_file.is_empty() {
        return Ok(builder.with_no_client_auth());
    }
    builder
        .with_client_auth_cert(certificates(&own)?, private_key(&own)?)
        .map_err(|error| wrong("tls-client-cert-file", error))
}

fn trusted(settings: &TlsSettings) -> Result<RootCertStore, TlsError> {
    if settings.ca_cert_file.is_empty() && settings.ca_cert_folder.is_empty() {
        let reason = "not set: give it or tls-ca-cert-dir, so that a primary can be told from \
            somebody else, or say tls-replication no";
        return Err(wrong("tls-ca-cert-file", reason));
    }
    authorities(settings)
}

/// The certificate for other servers takes the place of the one for clients, where there is one.
fn own_certificate(settings: &TlsSettings) -> Result<TlsSettings, TlsError> {
    let mut own = settings.clone();
    if !own.client_cert_file.is_empty() {
        own.cert_file = std::mem::take(&mut own.client_cert_file);
        own.key_file = std::mem::take(&mut own.client_key_file);
        own.key_file_pass = std::mem::take(&mut own.client_key_file_pass);
    }
    if !own.key_file_pass.is_empty() {
        let reason = "encrypted keys cannot be read: write the key in plain PEM";
        return Err(wrong("tls-client-key-file-pass", reason));
    }
    Ok(own)
}

/// Who is vouched for by an authority is believed, whatever name the certificate has: as in
/// Redis, whose certificates often name no address.
#[derive(Debug)]
struct AnyNameVerifier(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyNameVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is looked at last, so all else was right.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
