//! Replaces `tls` if the feature is off: settings that ask for TLS are refused.

use std::io::{self, Read, Write};

use mio::net::TcpStream;
use store_engine::Config;

/// Why TLS is not available.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct TlsError {
    /// The setting to look at.
    pub setting: &'static str,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// Never holds anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSlot;

impl TlsSlot {
    pub(crate) fn load(&self, _: &Config) -> Result<(), TlsError> {
        let reason = "this program was built without TLS: build store-server with feature tls";
        Err(TlsError { setting: "tls-port", reason: reason.to_owned() })
    }

    pub(crate) fn receive(&self, _: TcpStream) -> io::Result<TlsStream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Dials nobody.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsDialer;

impl TlsDialer {
    pub(crate) fn load(&self, config: &Config) -> Result<(), TlsError> {
        let reason = "this program was built without TLS: build store-server with feature tls";
        let tls = &config.settings().tls;
        let setting = match (tls.encrypts_replication, tls.encrypts_bus) {
            (true, _) => "tls-replication",
            (false, true) => "tls-cluster",
            (false, false) => return Ok(()),
        };
        Err(TlsError { setting, reason: reason.to_owned() })
    }

    pub(crate) fn dial(&self, _: TcpStream) -> io::Result<TlsStream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// There is none.
#[derive(Debug)]
pub(crate) enum TlsStream {}

impl TlsStream {
    pub(crate) fn socket(&self) -> &TcpStream {
        match *self {}
    }

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        match *self {}
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(crate) fn has_unsent(&self) -> bool {
        match *self {}
    }

    pub(crate) fn has_ended(&self) -> bool {
        match *self {}
    }

    pub(crate) fn send(&mut self) -> io::Result<()> {
        match *self {}
    }
}

impl Read for TlsStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for TlsStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}
