//! The election state machine of Tenure.
//!
//! What comes in: readings of a local clock, answers and hints from a store, and the wishes of the
//! application. What goes out: one ordered stream of requests to the store, events for the
//! application, and the moment at which to come back. No clock, no I/O, no threads, no randomness
//! beyond a seed that the caller gives.

pub mod calendar;
pub mod duration;
mod election;
pub mod event;
pub mod job_run;
pub mod memory_store;
mod moment;
mod name;
pub mod protocol;
pub mod quorum;
mod random;
pub mod record_text;
mod settings;
mod store_error;
pub mod swap;
pub mod text;
pub mod timing;

pub use election::{AskId, Election, HandOver, HandOverOutcome, Output};
pub use event::{Event, EventKind, Reason, Role, SeenLeader};
pub use moment::Moment;
pub use name::{
    DEFAULT_PREFIX, INSTANCE_NAME_LEN_MAX, InstanceId, KEY_LEN_MAX, NameError, Resource,
};
pub use protocol::{ServerTime, Token};
pub use settings::{Contest, Failback, Settings};
pub use store_error::{StoreError, StoreErrorKind};
pub use timing::{Timing, TimingError, TimingSettings};
