//! The program `tenure`: one file per subcommand.
//!
//! What comes in: words and the environment. What goes out: results on stdout, talk on stderr, and
//! an exit code of [`exit`]. A subcommand is a module with `Arguments` and `run`, and two lines
//! here: one in [`Command`], one in [`dispatch`].

// First: its macros take the place of the standard ones, which panic.
#[macro_use]
mod output;

mod allocator;
mod author;
mod check_aof;
mod check_rdb;
mod cli;
mod clock;
mod config_check;
mod demo;
mod doctor;
mod exit;
mod file_limit;
mod history;
mod list;
mod local;
mod log_line;
mod log_queue;
mod logging;
mod manual;
mod members;
mod once;
mod own_program;
mod pause;
#[cfg_attr(not(feature = "postgres"), path = "no_postgres.rs")]
mod postgres;
mod probe;
mod run;
mod serve;
mod sidecar;
mod sight;
mod status;
mod store;
mod store_options;
mod systemd;
mod usage;
mod watch;
mod who;
mod wish;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::Failure;

/// One leader among many processes, and the store it needs.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 100, after_help = usage::EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Lock(run::lock::Arguments),
    Once(once::Arguments),
    List(list::Arguments),
    Who(who::Arguments),
    Status(status::Arguments),
    Members(members::Arguments),
    History(history::Arguments),
    Watch(watch::Arguments),
    HandOver(wish::HandOver),
    Resign(wish::Resign),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Clear(pause::Clear),
    Doctor(doctor::Arguments),
    #[command(subcommand)]
    Config(config_check::Command),
    #[command(subcommand)]
    Store(store::Command),
    #[command(subcommand)]
    Local(local::Command),
    Sidecar(sidecar::Arguments),
    Probe(probe::Arguments),
    Demo(demo::Arguments),
    Serve(serve::Arguments),
    Cli(cli::Arguments),
    CheckRdb(check_rdb::Arguments),
    CheckAof(check_aof::Arguments),
    Completions(manual::Completions),
    Man(manual::Man),
}

/// How long the last words may take: whoever starts this program waits for its end.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    run::signals::unblock();
    let code = output::checked(begin());
    log_queue::flush(LAST_WORDS_TIMEOUT);
    code
}

fn begin() -> ExitCode {
    let word = std::env::args_os().nth(1).unwrap_or_default();
    // What stays beside a program is to stay small, from the first allocation on.
    if ["run", "lock", "once", run::guard::SUBCOMMAND].iter().any(|name| word == *name) {
        run::guard::stay_small();
    }
    // Not one of the commands: nobody but `run` starts it.
    if word == run::guard::SUBCOMMAND {
        return run::guard::run();
    }
    run::signals::survive_file_limit();
    if let Some(outcome) = serve::run_sentinel_by_name() {
        return outcome.unwrap_or_else(|failure| failure.tell());
    }
    if local::is_asked_to_serve() {
        return local::serve().unwrap_or_else(|failure| failure.tell());
    }
    if asks_for_json(std::env::args_os().skip(1)) {
        exit::tell_as_json();
    }
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::answer(&error),
    };
    if let Err(failure) = check_descriptors().and_then(|()| check_address_space()) {
        return failure.tell();
    }
    match arguments.command.map_or_else(usage::teach, dispatch) {
        Ok(code) => code,
        Err(failure) => failure.tell(),
    }
}

/// What every command opens at once: a runtime, its signals, a connection.
const DESCRIPTORS_MIN: usize = 10;

/// Refuses to begin with too few descriptors: runtimes panic where they get none.
fn check_descriptors() -> Result<(), Failure> {
    let opened = (0..DESCRIPTORS_MIN).map(|_| std::fs::File::open("/dev/null"));
    match opened.collect::<Result<Vec<_>, _>>() {
        Err(error)
            if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::MFILE) =>
        {
            let why = "too few files may be open: raise the limit to 64 or more (ulimit -n)";
            Err(Failure::new(exit::CONFIGURATION, why))
        }
        _ => Ok(()),
    }
}

/// What the allocator and the threads of any command reserve, most of which is never used.
const ADDRESS_SPACE_MIN: u64 = 512 * 1024 * 1024;

/// Refuses to begin with less: an allocation that fails ends the process without a word of help,
/// and not always at the start.
fn check_address_space() -> Result<(), Failure> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    match limit.filter(|limit| *limit < ADDRESS_SPACE_MIN) {
        None => Ok(()),
        Some(limit) => {
            let why = format!(
                "the limit of {} MB for memory addresses is too little: raise it to 1 GB or more \
                 (ulimit -v 1048576)",
                limit / 1_000_000
            );
            Err(Failure::new(exit::CONFIGURATION, why))
        }
    }
}

/// Whether `--json` is among the words before the program to run. By the words alone: an error in
/// them is told as JSON, too.
fn asks_for_json(words: impl Iterator<Item = OsString>) -> bool {
    let mut words = words.take_while(|word| word != "--").peekable();
    // These two hand their words on to a store.
    let is_ours = words.peek().is_some_and(|word| word != "cli" && word != "serve");
    is_ours && words.any(|word| word == "--json")
}

/// What was asked for. How long a command may wait counts from here on.
fn parse() -> Result<Arguments, clap::Error> {
    let words = Arguments::command().try_get_matches()?;
    if let Some(wait) = words.subcommand().and_then(|(name, words)| patience(name, words)) {
        local::be_patient(wait);
    }
    Arguments::from_arg_matches(&words)
}

/// How long the commands that wait for what may pass do so: `run`, `lock` unless told not to, and
/// `once` if told to.
fn patience(name: &str, words: &clap::ArgMatches) -> Option<local::Wait> {
    let limit = words.try_get_one::<Duration>("wait_timeout").ok().flatten().copied();
    match limit {
        Some(limit) => Some(local::Wait::AtMost(limit)),
        None if name == "run" => Some(local::Wait::Endless),
        None if name == "lock" && !words.get_flag("no_wait") => Some(local::Wait::Endless),
        None if name == "once" && words.get_flag("wait") => Some(local::Wait::Endless),
        None => None,
    }
}

fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    // They may wait for a store, or for settings from a pipe, before they listen to signals.
    run::signals::end_at_once()?;
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Lock(arguments) => run::lock::run(arguments),
        Command::Once(arguments) => once::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Who(arguments) => who::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Members(arguments) => members::run(arguments),
        Command::History(arguments) => history::run(arguments),
        Command::Watch(arguments) => watch::run(arguments),
        Command::HandOver(arguments) => wish::hand_over(arguments),
        Command::Resign(arguments) => wish::resign(arguments),
        Command::Pause(arguments) => pause::pause(arguments),
        Command::Resume(arguments) => pause::resume(arguments),
        Command::Clear(arguments) => pause::clear(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Config(command) => config_check::run(command),
        Command::Store(command) => store::run(command),
        Command::Local(command) => local::run(command),
        Command::Sidecar(arguments) => sidecar::run(arguments),
        Command::Probe(arguments) => probe::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Cli(arguments) => Ok(cli::run(&arguments)),
        Command::CheckRdb(arguments) => check_rdb::run(&arguments),
        Command::CheckAof(arguments) => check_aof::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments, Arguments::command()),
        Command::Man(arguments) => manual::man(&arguments, Arguments::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn json_is_asked_for_before_the_program() {
        let asks = |line: &str| asks_for_json(line.split(' ').map(OsString::from));
        assert!(asks("who job --json") && asks("who --nonsense --json"));
        assert!(!asks("who job") && !asks("run job -- ./worker --json") && !asks("cli GET --json"));
    }

    #[test]
    fn what_waits_for_a_store_that_may_come_back_has_no_other_limit_than_its_own() {
        let of = |line: &str| {
            let matches = Arguments::command().try_get_matches_from(line.split(' ')).unwrap();
            let (name, words) = matches.subcommand().unwrap();
            patience(name, words)
        };
        let minute = Some(local::Wait::AtMost(Duration::from_secs(60)));
        assert_eq!(of("tenure run job -- true"), Some(local::Wait::Endless));
        assert_eq!(of("tenure run job --wait-timeout 1m -- true"), minute);
        assert_eq!(of("tenure once job --tick 1 --wait -- true"), Some(local::Wait::Endless));
        assert_eq!(of("tenure once job --tick 1 --wait --wait-timeout 1m -- true"), minute);
        assert_eq!(of("tenure lock job -- true"), Some(local::Wait::Endless));
        assert_eq!(of("tenure lock job --no-wait -- true"), None);
        assert_eq!(of("tenure once job -- true"), None);
        assert_eq!(of("tenure who job"), None);
    }

    /// The words of a line as a shell would split them, up to what is the shell's own.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
        for c in line.chars() {
            match c {
                '\'' | '"' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                ' ' if !quoted => words.extend(word.take()),
                '#' | '|' | '<' | '>' | '\\' if !quoted && word.is_none() => return words,
                c => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    /// Checks every line of `text` that begins with `tenure`, after blanks; returns how many.
    fn check_examples(place: &str, text: &str) -> usize {
        // Several may stand beside each other.
        let text = text.replace("  tenure ", "\ntenure ");
        let lines = text.lines().map(str::trim_start).filter(|line| line.starts_with("tenure "));
        let examples: Vec<&str> = lines.filter(|line| !line.starts_with("tenure = ")).collect();
        for example in &examples {
            if let Err(error) = Arguments::try_parse_from(words(example)) {
                panic!("{place}: {example:?}: {error}");
            }
        }
        examples.len()
    }

    #[test]
    fn every_command_has_examples_and_they_are_right() {
        fn look_at(path: &str, command: &clap::Command) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name());
                match sub.get_after_long_help() {
                    Some(text) => assert!(check_examples(&path, &text.to_string()) > 0, "{path}"),
                    None => assert!(sub.has_subcommands(), "{path} shows no example"),
                }
                look_at(&path, sub);
            }
        }
        look_at("tenure", &Arguments::command());
    }

    /// The documents for users: their names, and what they say.
    fn papers() -> Vec<(String, String)> {
        let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages = std::fs::read_dir(top.join("docs")).unwrap();
        let pages = pages.map(|entry| entry.unwrap().path());
        let pages = pages.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
        pages
            .chain([top.join("README.md"), top.join("deploy/README.md")])
            .map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap()))
            .collect()
    }

    #[test]
    fn what_the_papers_tell_people_to_type_is_right() {
        let with_examples = ["README.md", "command.md", "sidecar.md", "client.md", "store.md"];
        let mut checked = std::collections::BTreeMap::new();
        for (name, text) in papers() {
            let blocks = text.split("```").skip(1).step_by(2);
            let shell = blocks.filter_map(|block| block.strip_prefix("sh\n"));
            let count: usize = shell.map(|block| check_examples(&name, block)).sum();
            checked.insert(name, count);
        }
        for name in with_examples.into_iter().chain(["faq.md"]) {
            let count = checked.iter().filter(|(path, _)| path.ends_with(name));
            assert!(count.map(|(_, count)| count).sum::<usize>() > 0, "{name} has no example");
        }
        assert!(check_examples("the tour", usage::TOUR) > 5);
    }

    /// A mention leaves out what the sentence is not about, but what it has must be there.
    #[test]
    fn what_the_papers_mention_exists() {
        use clap::error::ErrorKind;
        let mut mentions = 0;
        for (name, text) in papers() {
            let prose = text.split("```").step_by(2).collect::<Vec<_>>().join("\n\n");
            let code = prose.split("\n\n").flat_map(|part| part.split('`').skip(1).step_by(2));
            let code = code.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
            for mention in code.filter(|span| span.starts_with("tenure ")) {
                // A general form, such as `tenure COMMAND --help`, is no command.
                if mention.starts_with("tenure COMMAND") {
                    continue;
                }
                mentions += 1;
                let Err(error) = Arguments::try_parse_from(words(&mention)) else { continue };
                let is_short = matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        | ErrorKind::DisplayHelp
                        | ErrorKind::DisplayVersion
                );
                let lacks_value = error.to_string().contains("none was supplied");
                assert!(is_short || lacks_value, "{name}: `{mention}`: {error}");
            }
        }
        assert!(mentions > 60, "{mentions}");
    }
}
