//! Seeded worlds of stores on many machines.
//!
//! The parts that every world needs: [`Queue`] (what happens next), [`Network`] (connections that
//! are late, cut and reset), [`Clock`], [`Random`]. And the worlds:
//! - [`replication`]: servers that follow each other, run by the unchanged `store-replica`;
//! - [`sentinel`]: sentinels that watch such servers, run by the unchanged `store-sentinel`;
//! - [`cluster`]: nodes that share slots, run by the unchanged `store-cluster`;
//! - [`moves`]: keys that move between two such nodes.
//!
//! ```
//! use store_simulator::replication::World;
//!
//! let outcome = World::new(7).run();
//! assert!(outcome.violation.is_none() && outcome.writes > 0);
//! ```

mod clock;
pub mod cluster;
pub mod moves;
mod network;
mod queue;
mod random;
pub mod replication;
pub mod sentinel;

pub use clock::Clock;
pub use network::{ConnectionId, Delivery, Host, Network, Side, Weather};
pub use queue::{Queue, Real};
pub use random::Random;
