//! Nodes of a cluster: gossip, failures, elections, slots that move, operators in a hurry.
//!
//! ```text
//! seed ─► Climate ─► hosts (store-cluster, a disk, a clock) ─ links ─► Judge: K1 … K11
//!            faults and operators until the world is healed; then all must agree
//! ```
//! Nodes pass values, not bytes; one world in sixteen passes every message through the codec.

mod by_hand;
mod climate;
mod driver;
mod end;
mod faults;
mod flaw;
mod host;
mod judge;
pub(crate) mod links;
mod operator;
mod scale;
mod world;

pub use flaw::{CONTROLS, Control, Planted};
pub use judge::{Rule, Violation};
pub use scale::Scale;
pub use world::{ClusterOutcome, World};
