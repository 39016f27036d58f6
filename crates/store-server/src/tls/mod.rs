//! TLS by rustls: encrypted streams inside the loop, and the settings they follow.
//!
//! A client that has not finished its handshake holds one connection of rustls, which keeps at
//! most a handshake message of 64 KiB; the loop gives it a deadline (`event_loop/accept.rs`).

mod client;
mod settings;
mod stream;

use std::sync::{Arc, Mutex, PoisonError};

use mio::net::TcpStream;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
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

/// How other servers are dialled by TLS, as [`TlsSlot`] for clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsDialer(Arc<Mutex<Option<Arc<ClientConfig>>>>);

impl TlsDialer {
    /// Reads certificates and keys anew, if links to other servers are encrypted. When that fails,
    /// what was there stays.
    pub(crate) fn load(&self, config: &Config) -> Result<(), TlsError> {
        let settings = &config.settings().tls;
        let loaded = match settings.encrypts_replication || settings.encrypts_bus {
            true => Some(Arc::new(client::client_config(settings)?)),
            false => None,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    /// This server's side of a connection that it has just opened.
    pub(crate) fn dial(&self, socket: TcpStream) -> std::io::Result<TlsStream> {
        let config = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let config = config.ok_or_else(|| std::io::Error::other("TLS is not set up"))?;
        // No certificate is asked to name its host, so none is told either.
        let name = ServerName::from(socket.peer_addr()?.ip());
        let connection = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
        Ok(TlsStream::new(socket, connection.into()))
    }
}

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
        Ok(TlsStream::new(socket, connection.into()))
    }
}
