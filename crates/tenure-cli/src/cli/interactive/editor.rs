//! The line that is typed: completion, hints, history.

use std::borrow::Cow;
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Helper};

use super::super::command_docs::CommandDocs;
use super::history::{self, LINES_MAX};
use super::secrecy::is_secret;

/// Reads lines from the terminal.
pub(super) struct Editor {
    lines: rustyline::Editor<Assistant, FileHistory>,
    file: Option<PathBuf>,
}

impl Editor {
    /// With the history of former sessions.
    pub(super) fn new(docs: CommandDocs) -> Result<Self, ReadlineError> {
        let config = Config::builder()
            .max_history_size(LINES_MAX)?
            .history_ignore_dups(true)?
            .completion_type(CompletionType::List)
            .build();
        let mut lines = rustyline::Editor::with_config(config)?;
        let is_coloured = std::env::var_os("NO_COLOR").is_none();
        lines.set_helper(Some(Assistant { docs, is_coloured }));
        let file = history::file();
        if let Some(file) = &file {
            // There is none the first time, and one that cannot be read is no reason to stop.
            let _ = lines.load_history(file);
        }
        Ok(Self { lines, file })
    }

    pub(super) fn read(&mut self, prompt: &str) -> Result<String, ReadlineError> {
        self.lines.readline(prompt)
    }

    pub(super) fn docs(&self) -> &CommandDocs {
        &self.lines.helper().expect("it was set at the start").docs
    }

    /// Keeps a line for the arrow keys and the next session, unless it may carry a password.
    pub(super) fn remember(&mut self, line: &str, words: Option<&[Vec<u8>]>) {
        if is_secret(line, words) {
            return;
        }
        let is_new = self.lines.add_history_entry(line).unwrap_or(false);
        if let Some(file) = self.file.as_ref().filter(|_| is_new) {
            // A full disk must not end a dialogue.
            let _ = self.lines.append_history(file);
        }
    }
}

/// What the editor asks while a line is typed.
struct Assistant {
    docs: CommandDocs,
    is_coloured: bool,
}

impl Helper for Assistant {}
impl Validator for Assistant {}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(&self.docs, &line[..position]))
    }
}

/// Where the word at the end of `line` begins, and what it may become.
fn complete(docs: &CommandDocs, line: &str) -> (usize, Vec<String>) {
    let start = line.rfind(' ').map_or(0, |at| at + 1);
    let (before, word) = line.split_at(start);
    let before: Vec<&str> = before.split_whitespace().collect();
    let names: Vec<&str> = match before.as_slice() {
        [] => docs.commands(word).collect(),
        [help] if help.eq_ignore_ascii_case("help") => match word.strip_prefix('@') {
            Some(group) => return (start, groups(docs, group)),
            None => docs.commands(word).collect(),
        },
        [help, command] if help.eq_ignore_ascii_case("help") => {
            docs.subcommands(command, word).collect()
        }
        [command] => docs.subcommands(command, word).collect(),
        _ => Vec::new(),
    };
    // In the case that was begun.
    let is_lower = word.chars().any(|letter| letter.is_ascii_lowercase())
        || (word.is_empty() && before.iter().any(|word| word.contains(char::is_lowercase)));
    let cased =
        |name: &str| if is_lower { name.to_ascii_lowercase() } else { name.to_ascii_uppercase() };
    (start, names.into_iter().map(|name| format!("{} ", cased(name))).collect())
}

fn groups(docs: &CommandDocs, prefix: &str) -> Vec<String> {
    let groups = docs.groups().into_iter().filter(|group| group.starts_with(prefix));
    groups.map(|group| format!("@{group} ")).collect()
}

impl Hinter for Assistant {
    type Hint = Syntax;

    fn hint(&self, line: &str, position: usize, _: &Context<'_>) -> Option<Syntax> {
        (position == line.len()).then(|| hint(&self.docs, line)).flatten()
    }
}

/// The arguments that may follow; shown, never inserted.
#[derive(Debug, PartialEq, Eq)]
struct Syntax(String);

impl Hint for Syntax {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

/// What may still follow the words typed so far.
fn hint(docs: &CommandDocs, line: &str) -> Option<Syntax> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (entry, named_by) = docs.find_words(&words)?;
    let given = words.len() - named_by;
    let mut rest = parts(&entry.syntax);
    let required = rest.iter().take_while(|part| !part.starts_with('[')).count();
    rest.drain(..given.min(required));
    let space = if line.ends_with(' ') { "" } else { " " };
    // The word at the end may still grow; nothing is shown in its way.
    let is_open = !line.ends_with(' ') && given > 0;
    (!rest.is_empty() && !is_open).then(|| Syntax(format!("{space}{}", rest.join(" "))))
}

/// Cuts at the spaces that stand in no brackets.
fn parts(syntax: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, letter) in syntax.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ' ' if depth == 0 => {
                parts.push(&syntax[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&syntax[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if self.is_coloured { format!("\x1b[90m{hint}\x1b[0m").into() } else { hint.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_in_the_case_that_was_begun() {
        let docs = CommandDocs::built_in();
        assert_eq!(complete(&docs, "zscor"), (0, vec!["zscore ".to_owned()]));
        assert_eq!(complete(&docs, "ZSCOR"), (0, vec!["ZSCORE ".to_owned()]));
        assert_eq!(complete(&docs, "config se"), (7, vec!["set ".to_owned()]));
        assert_eq!(complete(&docs, "CONFIG "), {
            let all = ["GET ", "HELP ", "RESETSTAT ", "REWRITE ", "SET "];
            (7, all.map(str::to_owned).to_vec())
        });
        assert_eq!(complete(&docs, "help @hyper"), (5, vec!["@hyperloglog ".to_owned()]));
        assert_eq!(complete(&docs, "get a"), (4, Vec::new()));
    }

    #[test]
    fn a_hint_shows_what_may_follow() {
        let docs = CommandDocs::built_in();
        let shown = |line: &str| hint(&docs, line).map(|syntax| syntax.0);
        assert_eq!(shown("get").unwrap(), " key");
        assert_eq!(shown("get ").unwrap(), "key");
        assert_eq!(shown("get a"), None);
        assert_eq!(shown("get a "), None);
        assert!(shown("set k ").unwrap().starts_with("value [NX|XX]"));
        assert!(shown("set k v ").unwrap().starts_with("[NX|XX]"));
        assert!(shown("config set ").unwrap().starts_with("parameter value"));
        assert_eq!(shown("nosuch "), None);
    }
}
