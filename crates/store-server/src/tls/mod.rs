//! TLS by rustls: encrypted streams inside the loop, and the settings they follow.
//!
//! A client that has not finished its handshake holds one connection of rustls, which keeps at
//! most a handshake message of 64 KiB; the loop gives it a deadline (`event_loop/accept.rs`).

mod settings;
mod stream;

use std::sync::{Arc, Mutex, PoisonError};

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};
use store_engine::Config;

pub(crate) use stream::TlsStream;

/// Why TLS is not available: which setting, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct TlsError {
    /// The setting to look at.
    pub setting: &'static str,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// How TLS clients are received. CONFIG SET replaces it while the server runs, for clients that
/// come later.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSlot(Arc<Mutex<Option<Arc<ServerConfig>>>>);

impl TlsSlot {
    /// Reads certificates and keys anew. When that fails, what was there stays.
    pub(crate) fn load(&self, config: &Config) -> Result<(), TlsError> {
        let loaded = Arc::new(settings::server_config(&config.settings().tls)?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        Ok(())
    }

    /// The server's side of a connection that just came.
    pub(crate) fn receive(&self, socket: TcpStream) -> std::io::Result<TlsStream> {
        let config = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let config = config.ok_or_else(|| std::io::Error::other("TLS is not set up"))?;
        let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
        Ok(TlsStream::new(socket, connection))
    }
}
