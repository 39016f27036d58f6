//! `cargo xtask conform`: the model of the store and the scripts that users run do the same.

use crate::command::{Command, Failure};
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "conform",
    summary: "compares the store that simulations believe in with real ones, by seeded stories",
    details: "\
Plays requests, words of foreign programs, clocks that step, restarts, failovers and older data to
the model, to a redis-server and to our own store. After each event the answers, the hints and
every key, field and expiry must be equal. Scripts with mistakes that we once made must differ.

  --seeds N  stories per server (500 for a release; some minutes). 60 by default
  --seed S   only the story of this seed, with everything that happened in it

A difference is printed with the whole story and the one command that repeats it.",
    run,
};

fn run(words: &[String]) -> Result<(), Failure> {
    let mut command = cargo();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let variable = match word.as_str() {
            "--seeds" => "CONFORM_SEEDS",
            "--seed" => "CONFORM_SEED",
            other => return Err(Failure::Usage(format!("conform: {other} is not known"))),
        };
        let number = words.next().filter(|number| number.parse::<u64>().is_ok());
        let Some(number) = number else {
            return Err(Failure::Usage(format!("conform: {word} needs a number")));
        };
        command.env(variable, number);
    }
    command.args(["test", "--quiet", "--package", "tenure-redis", "--lib", "conform::", "--"]);
    command.args(["--nocapture"]);
    let status = command
        .status()
        .map_err(|error| Failure::Failed(format!("conform: cannot start cargo: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed("conform: a difference, see above".to_owned())),
    }
}
