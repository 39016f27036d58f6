//! The replacement for encrypted streams in a program that was built without them.

use tenure_backend::ConnectError;
use tokio_postgres::NoTls;

use crate::address::{TlsMode, Verify};

/// There is none.
#[derive(Clone)]
pub(crate) struct Tls;

impl Tls {
    /// Fails where encryption is asked for, and says why.
    pub(crate) fn new(mode: &TlsMode) -> Result<Self, ConnectError> {
        match mode.verify {
            Verify::Plain | Verify::Prefer => Ok(Tls),
            _ => Err(ConnectError::Address(
                "this program was built without TLS: build it with the feature tls, or write \
                 sslmode=disable"
                    .into(),
            )),
        }
    }

    pub(crate) fn to(&self, _: &str) -> NoTls {
        NoTls
    }
}
