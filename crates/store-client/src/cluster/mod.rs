//! Clusters: which node has which slot, what nodes say instead of carrying a request out, and a
//! client that follows all that.
//!
//! In flow order: [`Slot`] of a key, its owner in the [`SlotMap`], a [`Redirect`] if another node
//! has it by now, [`Attempts`] as long as it is sent on; [`first_answer`] for what any node can
//! tell. [`ClusterClient`] puts them together. The elections on a cluster use the same parts with
//! deadlines of their own.

mod attempts;
mod client;
mod commands;
mod connection;
mod error;
mod map;
mod node;
mod redirect;
mod request;
mod seeds;
mod slot;
mod state;
mod survey;

pub use attempts::{Attempts, HOPS_MAX};
pub use client::ClusterClient;
pub use error::ClusterError;
pub use map::SlotMap;
pub use node::Node;
pub use redirect::Redirect;
pub use slot::Slot;
pub use survey::{ASK_TIMEOUT, first_answer, nodes_to_ask};
