//! What the command line says.

use std::fmt;

/// How many seeds a control gets to be caught.
const CONTROL_SEEDS_MAX: u64 = 5_000;

pub(crate) const USAGE: &str = "\
usage: simulator [--seeds N] [--case NAME] [--control NAME] [--seed S [--rest] [--trace]] [--jobs N] [--json]

  --seeds N       worlds per case (default 1000); controls get at most 5000
  --case NAME     only this case, and no controls unless --control is given too
  --control NAME  only this control, and no cases unless --seed is given too
  --seed S        only the world of this seed
  --rest          do not look at the promises that its case does not give
  --trace         print every event of that world, one per line
  --jobs N        threads (default 2)
  --json          one JSON object per row instead of a table
";

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) seeds: u64,
    pub(crate) case: Option<String>,
    pub(crate) control: Option<String>,
    pub(crate) seed: Option<u64>,
    pub(crate) rest: bool,
    pub(crate) trace: bool,
    pub(crate) jobs: usize,
    pub(crate) json: bool,
    pub(crate) help: bool,
}

/// Which argument is wrong.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Args {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, UsageError> {
        let mut args = Args {
            seeds: 1_000,
            case: None,
            control: None,
            seed: None,
            rest: false,
            trace: false,
            jobs: 2,
            json: false,
            help: false,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| UsageError(format!("{word} needs a value after it")));
            match word.as_str() {
                "--seeds" => args.seeds = number(&word, &value()?)?,
                "--case" => args.case = Some(value()?),
                "--control" => args.control = Some(value()?),
                "--seed" => args.seed = Some(number(&word, &value()?)?),
                "--jobs" => args.jobs = number(&word, &value()?)?.clamp(1, 64) as usize,
                "--rest" => args.rest = true,
                "--trace" => args.trace = true,
                "--json" => args.json = true,
                "--help" | "-h" => args.help = true,
                other => return Err(UsageError(format!("unknown argument {other:?}"))),
            }
        }
        Ok(args)
    }

    pub(crate) fn control_seeds(&self) -> u64 {
        self.seeds.clamp(1, CONTROL_SEEDS_MAX)
    }
}

fn number(what: &str, text: &str) -> Result<u64, UsageError> {
    text.parse().map_err(|_| UsageError(format!("{what} needs a whole number, not {text:?}")))
}
