//! Variables inside the values of a file: `${NAME}`, `${NAME:default}` and `env("NAME")`.

use std::collections::BTreeMap;

/// The environment: names and values. Whoever loads a configuration passes it in.
pub(super) type Environment = BTreeMap<String, String>;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(String),
    Variable { name: String, default: Option<String> },
}

/// A text with its variables filled in. No `Debug`: it may hold a secret.
pub(super) struct Filled {
    pub(super) text: String,
    pub(super) variables: Vec<String>,
}

/// The variable's value. An empty one counts as not set: that is how orchestrators pass on a
/// variable that nobody gave a value.
pub(super) fn value_of<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// Fills in the variables; the error names the one that is not set.
pub(super) fn fill(pieces: &[Piece], environment: &Environment) -> Result<Filled, String> {
    let mut filled = Filled { text: String::new(), variables: Vec::new() };
    for piece in pieces {
        match piece {
            Piece::Literal(text) => filled.text.push_str(text),
            Piece::Variable { name, default } => {
                match value_of(environment, name).or(default.as_deref()) {
                    Some(value) => filled.text.push_str(value),
                    None => return Err(name.clone()),
                }
                filled.variables.push(name.clone());
            }
        }
    }
    Ok(filled)
}

/// Splits a text into its parts; the error says what to write and quotes nothing.
pub(super) fn split(text: &str) -> Result<Vec<Piece>, String> {
    if let Some(arguments) = text.trim().strip_prefix("env(").and_then(|t| t.strip_suffix(')')) {
        return env_call(arguments).map(|piece| vec![piece]);
    }
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            literal.push_str(before);
            literal.push_str("${");
            rest = after;
            continue;
        }
        literal.push_str(before);
        let (inside, after) = after
            .split_once('}')
            .ok_or("${ is not closed by }: close it, or write $${ for the characters themselves")?;
        pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        pieces.push(braced(inside)?);
        rest = after;
    }
    literal.push_str(rest);
    pieces.push(Piece::Literal(literal));
    pieces.retain(|piece| *piece != Piece::Literal(String::new()));
    Ok(pieces)
}

fn braced(inside: &str) -> Result<Piece, String> {
    let (name, default) = match inside.split_once(':') {
        None => (inside, None),
        Some((_, default)) if default.starts_with(['-', '=', '?', '+']) => {
            return Err("${NAME:-…} is the shell's way: write ${NAME:default} \
                        or env(\"NAME\", \"default\")"
                .to_owned());
        }
        Some((name, default)) => (name, Some(default.to_owned())),
    };
    variable(name.trim(), default)
}

/// What stands between the parentheses of `env("NAME")` or `env("NAME", "default")`.
fn env_call(arguments: &str) -> Result<Piece, String> {
    let (name, default) = match arguments.split_once(',') {
        None => (arguments, None),
        Some((name, default)) => (name, Some(unquoted(default)?.to_owned())),
    };
    variable(unquoted(name)?, default)
}

fn unquoted(argument: &str) -> Result<&str, String> {
    let argument = argument.trim();
    let inner = ['"', '\'']
        .into_iter()
        .find_map(|quote| argument.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)));
    inner.ok_or_else(|| "write env(\"NAME\") or env(\"NAME\", \"default\")".to_owned())
}

pub(super) fn variable(name: &str, default: Option<String>) -> Result<Piece, String> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err("a variable's name has letters, digits and _ only: write ${NAME}".to_owned());
    }
    Ok(Piece::Variable { name: name.to_owned(), default })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, String> {
        let pairs = [("HOST", "db"), ("EMPTY", ""), ("TRICKY", "${HOST}")];
        let environment = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        fill(&split(text)?, &environment).map(|filled| filled.text)
    }

    #[test]
    fn variables_are_filled_in_wherever_they_stand() {
        let cases = [
            ("plain", "plain"),
            ("", ""),
            ("${HOST}", "db"),
            ("redis://${HOST}:${PORT:6379}/${EMPTY:0}", "redis://db:6379/0"),
            ("${NONE:}", ""),
            ("${NONE:a:b c}", "a:b c"),
            ("env(\"HOST\")", "db"),
            (" env('NONE', '-1') ", "-1"),
            ("$${HOST} costs 5$", "${HOST} costs 5$"),
            ("${TRICKY}", "${HOST}"),
            ("about env(\"HOST\")", "about env(\"HOST\")"),
        ];
        for (text, expected) in cases {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_or_empty_is_named() {
        for text in ["${NONE}", "x${NONE}y", "env(\"NONE\")"] {
            assert_eq!(filled(text), Err("NONE".to_owned()), "{text}");
        }
        assert_eq!(filled("${EMPTY}"), Err("EMPTY".to_owned()));
    }

    #[test]
    fn what_is_not_a_variable_is_refused_with_what_to_write() {
        let cases = [
            ("${HOST", "not closed"),
            ("${}", "write ${NAME}"),
            ("${a b}", "write ${NAME}"),
            ("${HOST:-5}", "shell"),
            ("env(HOST)", "write env("),
            ("env(\"HOST\", default)", "write env("),
        ];
        for (text, part) in cases {
            let error = filled(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
