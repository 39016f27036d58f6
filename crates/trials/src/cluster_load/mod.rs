//! Clusters under load: what clients wrote, what an operator did meanwhile, and what became of it.
//!
//! ```text
//! writers ─► each key with its count ─► a server alone: the model ─► DIGEST ─┐
//! operator: failovers, reshards, restarts ─► ClusterGroup ─► DIGEST of all masters ─► equal?
//! ```

mod loss;
mod model;
mod operator;
mod program;
mod writers;

use testkit::{ClusterGroup, Host, ServerProgram};

pub use loss::{How, Loss, lose_a_master};
pub use model::{Tally, Written, judge};
pub use operator::{Operator, orphan_a_master, roll};
pub use program::ProgramWriters;
pub use writers::Writers;

/// How many nodes there are: three masters with a replica each.
const NODES: usize = 2 * ClusterGroup::MASTERS;

/// A cluster of both kinds: ours, real, ours, …, so that each master has a replica of the other
/// kind.
///
/// # Panics
/// When a program is missing or does not start.
pub fn mixed(own: &ServerProgram) -> ClusterGroup {
    let kinds = [own.clone(), ServerProgram::redis()];
    start(&kinds.into_iter().cycle().take(NODES).collect::<Vec<_>>())
}

/// A cluster of one kind.
///
/// # Panics
/// When the program is missing or does not start.
pub fn all_of(program: &ServerProgram) -> ClusterGroup {
    start(&vec![program.clone(); NODES])
}

fn start(programs: &[ServerProgram]) -> ClusterGroup {
    let group = ClusterGroup::start_mixed_on(&vec![Host::loopback(); NODES], programs, |builder| {
        builder.args(["--enable-debug-command", "yes"])
    });
    model::fill(&group).expect("a new cluster takes keys");
    group
}
