//! What the store decides about a command stands on the command's row, as a flag or a field. A
//! decision by name is a second list, which a new command or `rename-command` does not reach.

use super::rust::{Line, lines_outside_tests};
use super::tree::{File, Tree};
use super::{Check, Finding};

/// Where the table is read.
const CRATES: &[&str] = &["crates/store-engine/src/", "crates/store-server/src/"];
/// Finds rows by name.
const EXEMPT: &str = "crates/store-engine/src/registry.rs";
/// What the name of a command is read from.
const SOURCES: &[&str] = &[".full_name", "command.name", "row.name", "request.arg(0)"];

pub(super) const MATCHED: Check = Check {
    name: "commands by name",
    run: |tree| {
        let names = table_names(tree);
        tree.with_extension("rs")
            .filter(|file| CRATES.iter().any(|place| file.path.starts_with(place)))
            .filter(|file| file.path != EXEMPT)
            .flat_map(|file| matches(file, &names))
            .collect()
    },
};

/// The names in all rows.
fn table_names(tree: &Tree) -> Vec<&str> {
    let files = tree.with_extension("rs").filter(|file| file.path.starts_with(CRATES[0]));
    let rows = files.flat_map(|file| {
        let after = |mark| file.text.split(mark).skip(1);
        after("Command::new(").chain(after("Command::container("))
    });
    rows.filter_map(|row| row.trim_start().strip_prefix('"')?.split('"').next()).collect()
}

fn matches(file: &File, names: &[&str]) -> Vec<Finding> {
    let lines: Vec<Line<'_>> = lines_outside_tests(file).collect();
    let mut held = Vec::new();
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.code.trim();
        if code.contains("fn ") {
            held.clear();
        }
        let by_source = SOURCES.iter().any(|source| compares(code, source));
        let by_variable = held.iter().any(|held| decides(held, &lines[index..], names));
        if by_source || by_variable {
            let what = "a command is matched by its name";
            let next_step = "put what is decided on its row: a flag or field in command.rs";
            findings.push(Finding::new(&file.path, line.number, what, next_step));
        }
        held.extend(variable_with_name(code));
    }
    findings
}

/// A variable that holds the name of a command.
struct Variable<'a> {
    word: &'a str,
    /// It was read from a row or request. A parameter may be the name of something else.
    is_read: bool,
}

/// The variable that this line makes, if it holds the name of a command.
fn variable_with_name(code: &str) -> Option<Variable<'_>> {
    let has_source = SOURCES.iter().any(|source| code.contains(source));
    if let Some(rest) = code.strip_prefix("let ").filter(|_| has_source) {
        let word = rest.trim_start_matches("mut ").split([' ', ':']).next()?;
        return Some(Variable { word, is_read: true });
    }
    let is_parameter = |word: &&str| {
        let types = ["&str", "&[u8]", "&'static str"];
        types.iter().any(|kind| code.contains(&format!("{word}: {kind}")))
    };
    let word = ["name", "command"].into_iter().find(is_parameter)?;
    Some(Variable { word, is_read: false })
}

/// Whether this line compares what it reads from `source` with a literal, or looks at a letter.
fn compares(code: &str, source: &str) -> bool {
    let Some((before, after)) = code.split_once(source) else { return false };
    let after = [".as_str()", ".as_bytes()"]
        .iter()
        .fold(after, |after, call| after.strip_prefix(call).unwrap_or(after));
    let is_matched =
        after == " {" && before.rsplit_once("match ").is_some_and(|(_, what)| !what.contains('('));
    let is_given = ["matches!(", "is_word(", ".contains("].iter().any(|how| before.contains(how));
    let looks_at_letter = after.starts_with(".first()") || after.starts_with('[');
    let looks = ["==", "!=", ".starts_with(", ".ends_with(", ".eq_ignore_ascii_case("];
    let is_compared = looks.iter().any(|how| after.trim_start().starts_with(how));
    is_matched || is_given || looks_at_letter || (is_compared && code.contains('"'))
}

/// Whether the first of these lines compares a variable with a name of the table.
fn decides(variable: &Variable<'_>, lines: &[Line<'_>], names: &[&str]) -> bool {
    let [line, rest @ ..] = lines else { return false };
    let (code, word) = (line.code, variable.word);
    let has_name = |code: &str| code.split('"').skip(1).step_by(2).any(|it| names.contains(&it));
    if code.contains(&format!("match {word} {{")) {
        let end = " ".repeat(code.len() - code.trim_start().len()) + "}";
        let inside = rest.iter().map(|line| line.code).take_while(|code| !code.starts_with(&end));
        let mut arms = inside.map(|code| code.trim_start().trim_start_matches('b'));
        return arms.any(|arm| arm.starts_with('"') && has_name(arm));
    }
    if variable.is_read && code.contains(&format!(".contains(&{word}")) {
        return true;
    }
    let marks = [
        format!("{word} == "),
        format!("{word} != "),
        format!("matches!({word},"),
        format!("is_word({word},"),
        format!("{word}.eq_ignore_ascii_case("),
        format!("{word}.starts_with("),
    ];
    has_name(code) && marks.iter().any(|mark| code.contains(mark))
}
