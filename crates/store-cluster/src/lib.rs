//! A node of a Redis cluster, without sockets, clocks and files.
//!
//! In flow order:
//! - [`wire`]: packets of the bus as bytes, [`Message`] as values;
//! - [`Cluster`]: one node. It knows others ([`Nodes`]), pings them and tells what it knows, finds
//!   out who failed, weighs claims for slots by their epochs, elects, moves replicas and takes an
//!   operator's orders;
//! - [`Output`]: what is to be done, in order;
//! - [`Cluster::route`]: where a client's request belongs;
//! - [`Migration`], [`Leaving`]: keys that move to another node;
//! - [`Cluster::config_text`], [`Cluster::restore`]: nodes.conf.
//!
//! ```
//! use store_cluster::{Cluster, NodeId, Now, Output, Settings, SlotSet};
//!
//! let now = Now { monotonic_ms: 1, unix_ms: 1_700_000_000_000 };
//! let mut node = Cluster::new(now, NodeId::from_bytes([7; 20]), Settings::default(), 1);
//! node.add_slots(now, &SlotSet::of(0..16_384)).unwrap();
//! // What must not be lost is written before anything is said about it.
//! assert!(matches!(node.poll_output(), Output::Persist { is_synced: true, .. }));
//! ```

mod admin;
mod adopted;
mod claims;
mod cluster;
mod config;
mod coverage;
mod election;
mod epoch;
mod failure;
mod flaw;
mod gossip;
mod handover;
mod id;
mod leaving;
mod links;
mod message;
mod migration;
mod node;
mod nodes;
mod output;
mod owners;
mod receive;
mod roles;
mod route;
mod settings;
mod slots;
mod unsaved;
pub mod wire;

pub use admin::{AdminError, FailoverMode, SlotChange};
pub use adopted::Adopted;
pub use cluster::{Cluster, DataState, Ends, TICK_MS};
pub use config::ConfigError;
#[cfg(feature = "flaws")]
pub use flaw::Flaw;
pub use id::NodeId;
pub use leaving::Leaving;
pub use message::{Address, Body, Flags, Gossip, Header, Message, Publication, Update};
pub use migration::{Credentials, Loss, Migration, MigrationEnd, MigrationOrder, MigrationOutput};
pub use node::{Dialled, LinkId, Node, NodeIndex};
pub use nodes::{NODES_MAX, Nodes};
pub use output::{Event, Output, Role};
pub use route::{Refusal, RouteRequest, Verdict};
pub use settings::{Now, Settings};
pub use slots::{SLOT_BYTES, SlotSet};
pub use unsaved::SavedClaim;
