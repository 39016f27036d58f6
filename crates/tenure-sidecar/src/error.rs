//! Why a sidecar does not start, and what to do about it.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a sidecar does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// The client or an election failed.
    #[error(transparent)]
    Tenure(#[from] tenure::Error),
    /// There is nothing to serve.
    #[error(
        "no election is configured: write `tenure sidecar NAME`, or name one in [elections.NAME] or \
         sidecar.observe; with --empty, programs join over HTTP"
    )]
    NothingToWatch,
    /// The same election is named twice.
    #[error("{name:?} is named twice, or is both taken part in and observed: keep one")]
    NamedTwice {
        /// Its name.
        name: String,
    },
    /// The address to listen on cannot be parsed.
    #[error(
        "sidecar.listen: {given:?} is not an address: write 127.0.0.1:8420, [::1]:8420, \
         unix:/run/tenure.sock, or an address and a file with a comma between them"
    )]
    Address {
        /// What was given.
        given: String,
    },
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose another with --http of `tenure run`, \
         --listen, or sidecar.listen"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The socket file cannot be listened on.
    #[error("cannot listen on unix:{}: {source}; choose another file in sidecar.listen", file.display())]
    ListenFile {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The address can be reached by others, and no token or client certificate is required.
    #[error(
        "{address} is not loopback, so callers must identify themselves: set sidecar.token_file, \
         or sidecar.tls.client_ca_file with a certificate"
    )]
    OpenToAll {
        /// The address.
        address: SocketAddr,
    },
    /// The token is so short that it could be guessed.
    #[error("sidecar.token has {given} characters: use at least {least}, drawn at random")]
    TokenTooShort {
        /// Its length.
        given: usize,
        /// The least length.
        least: usize,
    },
    /// The certificate settings contradict each other, or a file is unusable.
    #[error("sidecar.tls: {why}")]
    Tls {
        /// What is wrong and what to do.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    File {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A webhook cannot be used.
    #[error("{setting}: {source}")]
    Webhook {
        /// The setting.
        setting: String,
        /// What is wrong with it.
        source: crate::WebhookError,
    },
}
