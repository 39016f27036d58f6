//! Keys that move between two nodes while clients use them and either node crashes.
//!
//! ```text
//! seed ─► two nodes (store-cluster: bus, routes, SETSLOT, nodes.conf; Migration; Leaving; a disk)
//!         an operator per slot: IMPORTING, MIGRATING, MIGRATE …, NODE, and back again
//!         a client per key: writes 1, 2, 3 … and reads ─► Judge: K8
//! ```
//! What a node says leaves when what it did before is on disk, as with `appendfsync always`. What
//! was not on disk when it crashed is gone. Keys of a slot that a node gave away may be there again
//! after a restart, as from an old snapshot, and an operator may end a move half-way.

mod bus;
mod client;
mod node;
mod operator;
mod world;

pub use crate::cluster::{Rule, Violation};
pub use world::{MovesOutcome, World};

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A key goes when it is sent.
    DeleteBeforeAnswer,
    /// A key that is on its way may be changed.
    NoLeavingSet,
    /// A rule of the core.
    Core(store_cluster::Flaw),
}

/// A flaw, and what must catch it.
#[derive(Debug)]
pub struct Control {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is broken.
    pub flaw: Planted,
    /// The rule that must notice.
    pub breaks: Rule,
}

/// All flaws that are caught.
pub const CONTROLS: &[Control] = &[
    Control { name: "delete-before-answer", flaw: Planted::DeleteBeforeAnswer, breaks: Rule::K8 },
    Control { name: "no-leaving-set", flaw: Planted::NoLeavingSet, breaks: Rule::K8 },
    Control {
        name: "import-outdated-keys",
        flaw: Planted::Core(store_cluster::Flaw::ImportOutdatedKeys),
        breaks: Rule::K8,
    },
    Control {
        name: "drop-adopted-keys",
        flaw: Planted::Core(store_cluster::Flaw::DropAdoptedKeys),
        breaks: Rule::K8,
    },
    Control {
        name: "no-handover",
        flaw: Planted::Core(store_cluster::Flaw::NoHandover),
        breaks: Rule::K8,
    },
    Control {
        name: "claims-open-slots",
        flaw: Planted::Core(store_cluster::Flaw::ClaimsOpenSlots),
        breaks: Rule::K8,
    },
    Control {
        name: "yields-taken",
        flaw: Planted::Core(store_cluster::Flaw::YieldsTaken),
        breaks: Rule::K8,
    },
];
