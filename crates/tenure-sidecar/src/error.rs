//! What keeps a sidecar from starting, and what to do about it.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a sidecar does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// The elections cannot be held.
    #[error(transparent)]
    Tenure(#[from] tenure::Error),
    /// Nothing to serve.
    #[error(
        "no election is configured: write `tenure sidecar NAME`, or name one in [elections.NAME] or \
         sidecar.observe"
    )]
    NothingToWatch,
    /// The same resource twice.
    #[error("{name:?} is named twice, or is both taken part in and observed: keep one")]
    NamedTwice {
        /// Which.
        name: String,
    },
    /// An address that is none.
    #[error("sidecar.listen: {given:?} is not an address: write 127.0.0.1:8420 or [::1]:8420")]
    Address {
        /// What was given.
        given: String,
    },
    /// The address is taken, or not ours.
    #[error(
        "cannot listen on {address}: {source}; choose another with --http of `tenure run`, \
         --listen, or sidecar.listen"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Everybody on the network could end leaderships.
    #[error(
        "{address} is not loopback, so callers must identify themselves: set sidecar.token_file, \
         or sidecar.tls.client_ca_file with a certificate"
    )]
    OpenToAll {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// A token that could be guessed.
    #[error("sidecar.token has {given} characters: use at least {least}, drawn at random")]
    TokenTooShort {
        /// How many.
        given: usize,
        /// How many it must be.
        least: usize,
    },
    /// Certificates that do not fit together.
    #[error("sidecar.tls: {why}")]
    Tls {
        /// What is wrong and what to do.
        why: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {file}: {source}")]
    File {
        /// Which.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A webhook's address.
    #[error("sidecar.{setting}: {source}")]
    Webhook {
        /// Which setting.
        setting: &'static str,
        /// What is wrong with it.
        source: crate::WebhookError,
    },
}
