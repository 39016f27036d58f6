//! Elections over HTTP: health, status, metrics, events, hooks, and a web page.
//!
//! A [`Sidecar`] watches the elections that a [`Tenure`](tenure::Tenure) client takes part in, and
//! others that it only observes. Its [`router`](Sidecar::router) can be mounted into an axum
//! application; a [`Server`] serves it alone, with limits and access checks. `docs/sidecar.md`
//! lists every route and field.
//!
//! ```no_run
//! use tenure::Tenure;
//! use tenure_sidecar::Sidecar;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::connect("redis://127.0.0.1").await?;
//! let election = tenure.election("nightly-report").start().await?;
//! let sidecar = Sidecar::builder(tenure).election(election).observe("mailer").start()?;
//! let application = axum::Router::new().nest("/tenure", sidecar.router());
//! # let _ = application;
//! # Ok(()) }
//! ```
//! The flow: `follow` fills what `watched` and `journal` know, `view` and `metrics` turn it into
//! answers, `routes` gives them out, `access` decides to whom. `callers` is what programs hold
//! through the sidecar: elections that they joined, locks, ticks of jobs.

mod access;
mod callers;
mod clock;
mod connections;
mod endpoint;
mod error;
mod events;
mod extract;
mod follow;
mod hooks;
mod journal;
mod json;
mod metrics;
mod operate;
mod paced;
mod page;
mod plain_metrics;
mod routes;
mod server;
mod sidecar;
mod streams;
mod terms;
mod timestamp;
mod tls;
mod view;
mod watched;

pub use access::Access;
pub use connections::{CONNECTIONS_MAX, PEER_CONNECTIONS_MAX};
pub use error::SidecarError;
pub use hooks::{HOOK_TRIES_MAX, Hook, Webhook, WebhookError, check_hooks};
pub use server::{Listener, Server, ServerSettings};
pub use sidecar::{Sidecar, SidecarBuilder};
pub use tls::Certificates;
