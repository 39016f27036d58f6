//! The replacement for encrypted streams in a program that was built without them.

use std::io;

use tenure_backend::ConnectError;
use tenure_core::StoreError;
use tokio::net::TcpStream;

use super::url::TlsFiles;

/// There is none.
#[derive(Clone)]
pub(super) enum Tls {}

impl Tls {
    /// Fails always, and says why.
    pub(super) fn new(_: &str, _: &TlsFiles) -> Result<Self, ConnectError> {
        Err(ConnectError::Address(
            "this program was built without TLS: build it with the feature tls, or write redis://"
                .into(),
        ))
    }

    pub(super) async fn encrypt(&self, _: TcpStream) -> io::Result<TcpStream> {
        match *self {}
    }
}

/// No error is of encryption.
pub(super) fn error_of(_: &io::Error) -> Option<StoreError> {
    None
}
