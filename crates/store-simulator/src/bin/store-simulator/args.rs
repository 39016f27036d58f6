//! What the command line says.

use crate::worlds::{ALL, Worlds};

/// How many seeds a control gets to be caught.
const CONTROL_SEEDS_MAX: u64 = 10_000;

pub(crate) const USAGE: &str = "\
usage: store-simulator [--worlds NAME] [--seeds N [--from S]] [--control NAME] [--seed S [--trace]]
                       [--jobs N]
       store-simulator --nodes N [--seed S]

  --worlds NAME   only these: replication, sentinel, cluster or moves
  --seeds N       worlds of each kind (default 2000); controls get at most 10000
  --from S        worlds from this seed on, without controls: a long run in pieces
  --control NAME  only this control
  --seed S        only the world of this seed
  --trace         print what happens in that world, a line each
  --jobs N        threads (default 2)
  --nodes N       one cluster of so many nodes, half of them masters: what gossip costs, and how long
                  it takes to heal when a master dies
";

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) worlds: Option<&'static str>,
    pub(crate) seeds: u64,
    pub(crate) from: Option<u64>,
    pub(crate) control: Option<&'static str>,
    pub(crate) seed: Option<u64>,
    pub(crate) trace: bool,
    pub(crate) jobs: usize,
    pub(crate) nodes: Option<usize>,
    pub(crate) help: bool,
}

impl Args {
    /// Fails with what is wrong.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Args {
            worlds: None,
            seeds: 2_000,
            from: None,
            control: None,
            seed: None,
            trace: false,
            jobs: 2,
            nodes: None,
            help: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--worlds" => args.worlds = Some(worlds(&value()?)?),
                "--seeds" => args.seeds = number(&word, &value()?)?,
                "--seed" => args.seed = Some(number(&word, &value()?)?),
                "--from" => args.from = Some(number(&word, &value()?)?),
                "--jobs" => args.jobs = number(&word, &value()?)?.clamp(1, 64) as usize,
                "--control" => args.control = Some(control(&value()?)?),
                "--nodes" => args.nodes = Some(number(&word, &value()?)?.clamp(6, 2_000) as usize),
                "--trace" => args.trace = true,
                "--help" | "-h" => args.help = true,
                other => return Err(format!("unknown argument {other:?}")),
            }
        }
        let has_any = args.chosen().next().is_some();
        has_any.then_some(args).ok_or_else(|| "these worlds have no such control".to_owned())
    }

    /// The worlds that are asked for: those of the control, if there is one.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = &'static Worlds> {
        let (name, control) = (self.worlds, self.control);
        let has = move |worlds: &&Worlds, name| (worlds.flaws)().iter().any(|f| f.name == name);
        ALL.iter()
            .filter(move |worlds| name.is_none_or(|name| name == worlds.name))
            .filter(move |worlds| control.is_none_or(|control| has(worlds, control)))
    }

    pub(crate) fn control_seeds(&self) -> u64 {
        self.seeds.clamp(1, CONTROL_SEEDS_MAX)
    }
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{what} needs a whole number, not {text:?}"))
}

fn worlds(name: &str) -> Result<&'static str, String> {
    pick(name, ALL.iter().map(|worlds| worlds.name).collect())
}

fn control(name: &str) -> Result<&'static str, String> {
    pick(name, ALL.iter().flat_map(|worlds| (worlds.flaws)()).map(|flaw| flaw.name).collect())
}

fn pick(name: &str, names: Vec<&'static str>) -> Result<&'static str, String> {
    let found = names.iter().find(|known| **known == name).copied();
    found.ok_or_else(|| format!("{name:?} is none of {}", names.join(", ")))
}
