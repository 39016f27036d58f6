//! Servers that follow each other: full and partial syncs, promotions, FAILOVER, WAIT, expiry.
//!
//! ```text
//! seed ─► Climate ─► servers (store-replica around a small store) ─ network ─► Judge: R1 … R5
//!            clients, an operator and faults until the world is healed; then all must agree
//! ```

mod climate;
mod data;
mod driver;
mod faults;
mod flaw;
mod judge;
mod load;
mod peers;
mod server;
mod workload;
mod world;

pub use flaw::{CONTROLS, Control, Flaw};
pub use judge::{Rule, Violation};
pub use world::{ReplicationOutcome, World};
