//! A world by seed that tries to break the election.
//!
//! In: a [`Case`], a [`Subject`] and a seed. Out: whether a promise was broken, which, and when.
//! Instances run the unchanged core on clocks of their own, over wires that lose, delay, double
//! and reorder, against a store in memory that pauses, restarts and fails over; after every event
//! the promises P1 to P7 are checked. The same worlds must catch the controls.
//!
//! ```
//! use simulator::{Case, Mode, Subject, World};
//!
//! let case = Case::named("pauses").unwrap();
//! let outcome = World::new(case, Subject::Ours, 7, Mode::Safety).run();
//! assert!(outcome.violation.is_none() && outcome.terms > 0);
//! ```

mod algorithm;
mod birth;
mod case;
mod clock;
mod cluster;
mod control;
mod driver;
mod fault;
mod flaw;
mod healing;
mod jobs;
mod mixtures;
mod network;
mod nodes;
mod ours;
mod party;
mod pauses;
mod people;
mod promise;
mod random;
mod rival;
mod rounds;
mod rows;
mod runner;
mod store_fault;
mod store_flaw;
mod swaps;
mod tick_judge;
mod world;

pub use case::{Case, Mode};
pub use control::{CONTROLS, Control, Subject};
pub use flaw::Flaw;
pub use promise::{Promise, Violation};
pub use rival::RivalKind;
pub use rows::CASES;
pub use world::{World, WorldOutcome};
