//! The project's own commands: `cargo xtask NAME`.
//!
//! Words come in, an exit code goes out: 0 when all is well, 1 when something is not, 64 when the
//! words make no sense. Results go to standard output, talk to standard error.

mod command;
mod commands;
mod older;
mod repository;

use std::process::ExitCode;

use command::{Command, Failure};
use commands::COMMANDS;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(words: &[String]) -> Result<(), Failure> {
    let Some((name, words)) = words.split_first() else {
        return Err(Failure::Usage(help()));
    };
    if ["help", "--help", "-h"].contains(&name.as_str()) {
        match words {
            [] => print!("{}", help()),
            [name, ..] => print!("{}", find(name)?.manual()),
        }
        return Ok(());
    }
    let command = find(name)?;
    if words.iter().any(|word| ["--help", "-h"].contains(&word.as_str())) {
        print!("{}", command.manual());
        return Ok(());
    }
    (command.run)(words)
}

fn find(name: &str) -> Result<&'static Command, Failure> {
    let command = COMMANDS.iter().find(|command| command.name == name);
    command.copied().ok_or_else(|| {
        Failure::Usage(format!("there is no command {name:?}; `cargo xtask --help` lists them"))
    })
}

fn help() -> String {
    let mut text = String::from("The project's own commands.\n\n");
    for command in COMMANDS {
        text.push_str(&format!("  cargo xtask {:<10} {}\n", command.name, command.summary));
    }
    text.push_str("\n`cargo xtask NAME --help` says more about one of them.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(words: &[&str]) -> Result<(), Failure> {
        run(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn help_names_every_command() {
        for command in COMMANDS {
            assert!(help().contains(&format!("cargo xtask {}", command.name)));
            assert!(command.manual().contains(command.summary));
            outcome(&["help", command.name]).unwrap();
            outcome(&[command.name, "--help"]).unwrap();
        }
    }

    #[test]
    fn unknown_words_are_a_usage_error_that_names_them() {
        for words in [&["frobnicate"][..], &["test", "--frobnicate"], &["verify", "frobnicate"]] {
            let failure = outcome(words).unwrap_err();
            assert_eq!(failure.exit_code(), 64, "{words:?}");
            assert!(failure.to_string().contains("frobnicate"), "{failure}");
        }
        assert_eq!(outcome(&[]).unwrap_err().exit_code(), 64);
    }
}
