//! What the program says about itself: the tour without arguments, help, and refused words.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::exit::{self, Failure};
use crate::output;

pub(crate) const TOUR: &str = "\
tenure: one leader among many processes, and the store it needs

See it work, with three instances that are killed and hand over:
  tenure demo

Run a program on one instance at a time; the others wait, and take over:
  tenure run nightly -- ./worker                                       on this machine
  tenure run nightly --store redis://redis.internal -- ./worker        on many

Run a program once per hour, on whichever instance comes first:
  tenure once report --every 1h -- ./report

See who leads, who takes part, what happened and what is wrong:
  tenure who nightly       tenure status nightly       tenure watch nightly
  tenure history nightly   tenure doctor nightly     tenure list

Move it, for example before a deployment:
  tenure hand-over nightly --to web-2        tenure resign nightly

Without --store, a store of your own is started on this machine. To name another without showing a
password in the list of processes, use TENURE_STORE or a configuration file (`--config`); `tenure
config check` shows which setting counts, and why.

`tenure --help` lists all commands, `tenure COMMAND --help` explains one.";

pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 the answer is no, or `serve` did not start; 64 usage; 65 damaged file; 66 no
such file; 69 store unreachable; 73 cannot write; 75 timed out; 78 configuration, address or login.
`run` and `once` pass the program's own code on.";

/// What `tenure` alone prints.
pub(crate) fn teach() -> Result<ExitCode, Failure> {
    output::result(TOUR);
    Ok(ExitCode::SUCCESS)
}

/// Help goes to stdout as asked for; words that make no sense get one line on stderr.
pub(crate) fn answer(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::result(&error.to_string());
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::talk("a command is missing: choose one of those below");
            eprintln!("{error}");
            ExitCode::from(exit::USAGE)
        }
        ErrorKind::InvalidSubcommand => {
            Failure::usage(one_line(&error.to_string(), "tenure --help")).tell()
        }
        _ => {
            let command = words().next().filter(|word| !word.starts_with('-'));
            if let Some(hint) = forgotten_dashes(error.kind(), words()) {
                return Failure::usage(hint).tell();
            }
            let help =
                command.map_or("tenure --help".to_owned(), |word| format!("tenure {word} --help"));
            Failure::usage(one_line(&error.to_string(), &help)).tell()
        }
    }
}

/// What was typed, as far as it is text. Words may be any bytes, at which `std::env::args` panics.
fn words() -> impl Iterator<Item = String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned())
}

/// `tenure run nightly ./worker` lacks the `--` before the program: what to write instead.
fn forgotten_dashes(kind: ErrorKind, words: impl Iterator<Item = String>) -> Option<String> {
    const QUOTED_MAX: usize = 200;
    let words: Vec<String> = words.collect();
    let [command, rest @ ..] = words.as_slice() else { return None };
    let is_of_program = matches!(command.as_str(), "run" | "lock" | "once");
    let is_odd = matches!(kind, ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument);
    if !is_of_program || !is_odd || rest.iter().any(|word| word == "--") {
        return None;
    }
    let [name, program, ..] = rest else { return None };
    if name.starts_with('-') || program.starts_with('-') {
        return None;
    }
    let whole = format!("tenure {command} {name} -- {}", rest[1..].join(" "));
    let whole = output::plain_up_to(QUOTED_MAX, &whole);
    Some(format!("the program comes after `--`: {whole} (see tenure {command} --help)"))
}

/// The parser explains over several lines; what is wrong and what to do fit on one. `help` explains
/// more, unless the parser knows better.
fn one_line(text: &str, help: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut help = help.to_owned();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.split_once(':') {
            Some(("Usage", usage)) => help = help_for(usage),
            // The parser takes every word that it does not know for a value that looks like a flag.
            Some(("tip", said)) if said.contains("use '-- ") => {}
            Some(("error" | "tip", said)) => parts.push(said.trim().to_owned()),
            _ if line.starts_with("For more information") => {}
            _ => match parts.last_mut() {
                Some(part) => *part = format!("{part} {line}"),
                None => parts.push(line.to_owned()),
            },
        }
    }
    format!("{} (see {help})", parts.join("; "))
}

/// The command whose help explains more: the words of a usage line before its first placeholder.
fn help_for(usage: &str) -> String {
    let words = usage.split_whitespace();
    let command: Vec<&str> = words.take_while(|w| w.starts_with(char::is_lowercase)).collect();
    format!("{} --help", command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_not_there_is_not_offered_as_a_value() {
        let text = "error: unexpected argument '--json' found\n\n  tip: to pass '--json' as a \
                    value, use '-- --json'\n\nUsage: tenure resume [OPTIONS] <NAME>\n";
        assert_eq!(
            one_line(text, "tenure --help"),
            "unexpected argument '--json' found (see tenure resume --help)"
        );
    }

    #[test]
    fn a_forgotten_pair_of_dashes_is_shown() {
        let hint = |line: &str| {
            let words = line.split(' ').map(str::to_owned);
            forgotten_dashes(ErrorKind::UnknownArgument, words)
        };
        assert_eq!(
            hint("run nightly ./worker --fast").unwrap(),
            "the program comes after `--`: tenure run nightly -- ./worker --fast (see tenure run \
             --help)"
        );
        assert!(hint("once report ./report").is_some());
        assert_eq!(hint("run nightly --tll 3s"), None);
        assert_eq!(hint("run --ttl 3s nightly"), None);
        assert_eq!(hint("run nightly oops -- ./worker"), None);
        assert_eq!(hint("who nightly oops"), None);
    }

    #[test]
    fn a_refusal_of_many_lines_becomes_one() {
        let text = "error: unexpected argument '--tll' found\n\n  tip: a similar argument exists: \
                    '--ttl'\n\nUsage: tenure run [OPTIONS] <NAME>\n\nFor more information, try \
                    '--help'.\n";
        assert_eq!(
            one_line(text, "tenure --help"),
            "unexpected argument '--tll' found; a similar argument exists: '--ttl' \
             (see tenure run --help)"
        );
    }
}
