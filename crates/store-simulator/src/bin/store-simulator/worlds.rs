//! The kinds of worlds, each as the program needs it.

use store_simulator::{replication, sentinel};

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

pub(crate) const ALL: &[Worlds] = &[
    Worlds {
        name: "replication",
        flaws: || {
            let controls = replication::CONTROLS.iter();
            controls.map(|c| Flaw { name: c.name, breaks: c.breaks.to_string() }).collect()
        },
        run: run_replication,
    },
    Worlds {
        name: "sentinel",
        flaws: || {
            let controls = sentinel::CONTROLS.iter();
            controls.map(|c| Flaw { name: c.name, breaks: c.breaks.to_string() }).collect()
        },
        run: run_sentinel,
    },
];

fn run_replication(seed: u64, flaw: Option<usize>, is_traced: bool) -> Run {
    use replication::{CONTROLS, World};
    let mut world = match flaw.map(|place| &CONTROLS[place]) {
        Some(control) => World::flawed(seed, control.flaw, control.breaks),
        None => World::new(seed),
    };
    if is_traced {
        world = world.traced();
    }
    let outcome = world.run();
    let broken =
        outcome.violation.map(|v| Broken { rule: v.rule.to_string(), at: v.at, what: v.what });
    let counts = vec![
        ("writes", outcome.writes),
        ("full syncs", outcome.full_syncs),
        ("partial syncs", outcome.partial_syncs),
        ("waits that counted somebody", outcome.waits),
    ];
    Run { broken, counts, trace: outcome.trace }
}

fn run_sentinel(seed: u64, flaw: Option<usize>, is_traced: bool) -> Run {
    use sentinel::{CONTROLS, World};
    let mut world = match flaw.map(|place| &CONTROLS[place]) {
        Some(control) => World::flawed(seed, control.flaw, control.breaks),
        None => World::new(seed),
    };
    if is_traced {
        world = world.traced();
    }
    let outcome = world.run();
    let broken =
        outcome.violation.map(|v| Broken { rule: v.rule.to_string(), at: v.at, what: v.what });
    let counts = vec![
        ("failovers tried", outcome.tries),
        ("leaders elected", outcome.elections),
        ("replicas promoted", outcome.promotions),
    ];
    Run { broken, counts, trace: outcome.trace }
}
