//! The kinds of worlds, each as the program needs it.

use store_simulator::{cluster, moves, replication, sentinel};

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) rule: String,
    pub(crate) at: u64,
    pub(crate) what: String,
}

/// What one world came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) broken: Option<Broken>,
    /// What happened, and how often.
    pub(crate) counts: Vec<(&'static str, u64)>,
    pub(crate) trace: Vec<String>,
}

/// A flaw, and the rule that must catch it.
#[derive(Clone, Debug)]
pub(crate) struct Flaw {
    pub(crate) name: &'static str,
    pub(crate) breaks: String,
}

/// One kind of world.
pub(crate) struct Worlds {
    pub(crate) name: &'static str,
    pub(crate) flaws: fn() -> Vec<Flaw>,
    /// The world of a seed, with the flaw of this place in the list, and with a trace.
    pub(crate) run: fn(seed: u64, flaw: Option<usize>, is_traced: bool) -> Run,
}

/// The worlds of a module of the library: all have the same words, and types of their own.
macro_rules! worlds {
    ($name:literal, $module:ident, $($what:literal: $count:ident),+) => {
        Worlds {
            name: $name,
            flaws: || {
                let controls = $module::CONTROLS.iter();
                controls.map(|c| Flaw { name: c.name, breaks: c.breaks.to_string() }).collect()
            },
            run: |seed, flaw, is_traced| {
                let world = match flaw.map(|place| &$module::CONTROLS[place]) {
                    Some(control) => $module::World::flawed(seed, control.flaw, control.breaks),
                    None => $module::World::new(seed),
                };
                let outcome = if is_traced { world.traced().run() } else { world.run() };
                let broken = outcome.violation.map(|violation| Broken {
                    rule: violation.rule.to_string(),
                    at: violation.at,
                    what: violation.what,
                });
                Run { broken, counts: vec![$(($what, outcome.$count)),+], trace: outcome.trace }
            },
        }
    };
}

pub(crate) const ALL: &[Worlds] = &[
    worlds!(
        "replication", replication, "writes": writes, "full syncs": full_syncs,
        "partial syncs": partial_syncs, "waits that counted somebody": waits
    ),
    worlds!(
        "sentinel", sentinel, "failovers tried": tries, "leaders elected": elections,
        "replicas promoted": promotions
    ),
    worlds!(
        "cluster", cluster, "messages": messages, "failures found": failures,
        "elections won": elections, "replicas moved": moves, "slots moved": slots_moved
    ),
    worlds!(
        "moves", moves, "writes": writes, "keys moved": keys_moved, "slots moved": slots_moved,
        "requests that waited": postponed, "crashes": crashes
    ),
];
