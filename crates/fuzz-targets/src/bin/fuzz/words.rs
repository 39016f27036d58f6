//! What the words on the command line mean.

use std::path::PathBuf;

use fuzz_targets::{TARGETS, Target, find};

use crate::worker::Order;

const SECONDS: u64 = 10;
const SEED: u64 = 7;

pub(crate) enum Wish {
    List,
    Fuzz {
        targets: Vec<&'static Target>,
        seconds: u64,
        seed: u64,
    },
    Replay {
        target: &'static Target,
        file: String,
    },
    /// Only we ourselves wish this: the process that runs the inputs.
    Work(Order),
}

impl Wish {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let (mut targets, mut seconds, mut seed) = (Vec::new(), SECONDS, SEED);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--list" => return Ok(Self::List),
                "--target" => targets.push(target(value()?)?),
                "--seconds" => seconds = number(word, value()?)?,
                "--seed" => seed = number(word, value()?)?,
                "--replay" => {
                    let (name, file) =
                        value()?.split_once('/').ok_or("--replay needs TARGET/NAME")?;
                    return Ok(Self::Replay { target: target(name)?, file: file.to_owned() });
                }
                "--work" => {
                    let (target, seconds) = (target(value()?)?, number(word, value()?)?);
                    let (seed, progress) = (number(word, value()?)?, PathBuf::from(value()?));
                    return Ok(Self::Work(Order { target, seconds, seed, progress }));
                }
                other => return Err(format!("there is no option {other:?}")),
            }
        }
        if targets.is_empty() {
            targets = TARGETS.iter().collect();
        }
        Ok(Self::Fuzz { targets, seconds, seed })
    }
}

fn target(name: &str) -> Result<&'static Target, String> {
    find(name).ok_or_else(|| format!("there is no target {name:?}; --list lists them"))
}

fn number(word: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{word} needs a number, not {value:?}"))
}
