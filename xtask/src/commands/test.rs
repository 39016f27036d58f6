//! `cargo xtask test`: everything that must hold before a change goes in.

mod newer;
mod steps;
pub(crate) mod tools;

use std::time::Instant;

use crate::command::{Command, Failure};
use steps::{STEPS, Step};

pub(crate) const COMMAND: Command = Command {
    name: "test",
    summary: "checks, lints and tests everything; what CI runs",
    details: "\
Runs its steps in order and stops at the first that fails.

  --list         list the steps
  --only NAME    run this step only; may be given again
  --newer-than COMMIT [FILTERSET]
                 run only the tests that COMMIT did not have (and that the filterset of
                 cargo-nextest chooses; the word `election` chooses those of the election's
                 crates), and print the longest, how long they took per crate, and their sum

It needs the Rust toolchain with rustfmt and clippy, redis-server and redis-cli. Where apt-get is
there and may be used (as root, or by sudo without a password), missing programs are installed;
elsewhere it says what to install. It uses cargo-nextest when that is there.",
    run,
};

fn run(words: &[String]) -> Result<(), Failure> {
    let steps = match Wish::parse(words)? {
        Wish::List => {
            for step in STEPS {
                println!("{:<10} {}", step.name, step.what);
            }
            return Ok(());
        }
        Wish::Newer { commit, filterset } => return newer::run(&commit, &filterset),
        Wish::Run(steps) => steps,
    };
    let started_at = Instant::now();
    for (index, step) in steps.iter().enumerate() {
        let place = format!("[{}/{}] {}", index + 1, steps.len(), step.name);
        eprintln!("{place}: {}", step.what);
        let step_started_at = Instant::now();
        let outcome = (step.run)();
        let seconds = step_started_at.elapsed().as_secs_f64();
        outcome.map_err(|failure| {
            Failure::Failed(format!("{place}: FAILED after {seconds:.1} s: {failure}"))
        })?;
        eprintln!("{place}: ok in {seconds:.1} s");
    }
    eprintln!("all steps passed in {:.1} s", started_at.elapsed().as_secs_f64());
    Ok(())
}

enum Wish {
    List,
    Newer { commit: String, filterset: String },
    Run(Vec<&'static Step>),
}

impl Wish {
    fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut chosen = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => return Ok(Self::List),
                "--only" => {
                    let name = words.next().map_or("", String::as_str);
                    chosen.push(step(name)?);
                }
                "--newer-than" => {
                    let mut rest = words.by_ref().cloned();
                    let commit = rest.next().ok_or_else(|| {
                        Failure::Usage("test: --newer-than needs a commit".to_owned())
                    })?;
                    let filterset = rest.next().unwrap_or_else(|| "all()".to_owned());
                    return Ok(Self::Newer { commit, filterset });
                }
                other => return Err(Failure::Usage(format!("test: unknown word {other:?}"))),
            }
        }
        Ok(Self::Run(if chosen.is_empty() { STEPS.iter().collect() } else { chosen }))
    }
}

fn step(name: &str) -> Result<&'static Step, Failure> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        Failure::Usage(format!("there is no step {name:?}; `cargo xtask test --list` lists them"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Wish, Failure> {
        Wish::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn all_steps_are_run_unless_some_are_chosen() {
        let Wish::Run(all) = parse(&[]).unwrap() else { panic!("it lists") };
        assert_eq!(all.len(), STEPS.len());
        let Wish::Run(some) = parse(&["--only", "lint", "--only", "format"]).unwrap() else {
            panic!("it lists")
        };
        let names: Vec<_> = some.iter().map(|step| step.name).collect();
        assert_eq!(names, ["lint", "format"]);
        assert!(matches!(parse(&["--list"]), Ok(Wish::List)));
        let Wish::Newer { commit, filterset } = parse(&["--newer-than", "v1"]).unwrap() else {
            panic!("it runs all")
        };
        assert_eq!((commit.as_str(), filterset.as_str()), ("v1", "all()"));
        assert!(parse(&["--newer-than"]).is_err());
    }

    #[test]
    fn a_step_that_does_not_exist_is_named_in_the_error() {
        for words in [&["--only", "dance"][..], &["--only"]] {
            let Err(failure) = parse(words) else { panic!("{words:?} was accepted") };
            assert_eq!(failure.exit_code(), 64);
            assert!(failure.to_string().contains("there is no step"), "{failure}");
        }
    }
}
