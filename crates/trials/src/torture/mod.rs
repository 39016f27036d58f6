//! Real servers, real instances, real faults, and what became of the promises.
//!
//! ```text
//! rows ─► world: network, store, fleet ─► fault, heal, fault, heal … ─► history ─► verdict
//! ```
//! A row is a store of some topology in some mode, the faults that strike it, and what they may do:
//! nothing where PROTOCOL's table gives a promise; where it says that a promise does not hold, the
//! run must show it, or it would show nothing elsewhere either.

mod fault;
mod fleet;
pub mod history;
mod net;
mod row;
mod run;
mod store;
mod table;
pub mod verdict;
pub mod worker;
mod world;

pub use fault::Fault;
pub use row::{Expected, FleetKind, Group, Mode, Row, Topology, groups};
pub use run::{Budget, TortureOutcome, run_group};
pub use table::table;
