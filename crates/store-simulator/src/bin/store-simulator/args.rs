//! What the command line says.

use store_simulator::replication::CONTROLS;

/// How many seeds a control gets to be caught.
const CONTROL_SEEDS_MAX: u64 = 10_000;

pub(crate) const USAGE: &str = "\
usage: store-simulator [--seeds N] [--control NAME] [--seed S [--trace]] [--jobs N]

  --seeds N       worlds (default 2000); controls get at most 10000
  --control NAME  only this control
  --seed S        only the world of this seed
  --trace         print every event of that world, one per line
  --jobs N        threads (default 2)
";

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) seeds: u64,
    pub(crate) control: Option<&'static str>,
    pub(crate) seed: Option<u64>,
    pub(crate) trace: bool,
    pub(crate) jobs: usize,
    pub(crate) help: bool,
}

impl Args {
    /// Fails with what is wrong.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args =
            Args { seeds: 2_000, control: None, seed: None, trace: false, jobs: 2, help: false };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--seeds" => args.seeds = number(&word, &value()?)?,
                "--seed" => args.seed = Some(number(&word, &value()?)?),
                "--jobs" => args.jobs = number(&word, &value()?)?.clamp(1, 64) as usize,
                "--control" => args.control = Some(control(&value()?)?),
                "--trace" => args.trace = true,
                "--help" | "-h" => args.help = true,
                other => return Err(format!("unknown argument {other:?}")),
            }
        }
        Ok(args)
    }

    pub(crate) fn control_seeds(&self) -> u64 {
        self.seeds.clamp(1, CONTROL_SEEDS_MAX)
    }
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{what} needs a whole number, not {text:?}"))
}

fn control(name: &str) -> Result<&'static str, String> {
    let found = CONTROLS.iter().find(|control| control.name == name);
    let names: Vec<_> = CONTROLS.iter().map(|control| control.name).collect();
    found.map(|control| control.name).ok_or(format!("{name:?} is none of {}", names.join(", ")))
}
