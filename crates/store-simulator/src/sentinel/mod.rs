//! Sentinels that watch a primary and its replicas, and replace it when it is down.
//!
//! ```text
//! seed ─► Climate ─► sentinels ─ network ─► servers (a replication world) ─► Judge: S1 … S6
//!            crashes, cuts, pauses, jumping clocks until the heal; then all must agree
//! ```

mod climate;
mod driver;
mod faults;
mod flaw;
mod flawed;
mod judge;
mod node;
mod servers;
mod verdicts;
mod world;

pub use flaw::{CONTROLS, Control, Flaw};
pub use judge::{Rule, Violation};
pub use world::{SentinelOutcome, World};
