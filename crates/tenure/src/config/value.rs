//! Values: as a format gives them, and as a setting needs them.

use std::time::Duration;

use tenure_core::duration::parse_duration;
use tenure_core::timing::duration_text;

use super::schema::Kind;
use super::store::shown_address;
use super::variables::Piece;
use crate::Secret;
use tenure_backend::nearest;

/// A value as a format gives it, with its line. No `Debug`: it may hold a secret.
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// See [`Node`].
pub(super) enum Value {
    Null,
    Switch(bool),
    Whole(i64),
    /// Something that no setting takes; the words say what.
    Other(&'static str),
    Text(String),
    /// A text whose variables the format has told apart.
    #[cfg_attr(not(feature = "hcl"), expect(dead_code, reason = "only HCL has expressions"))]
    Template(Vec<Piece>),
    Table(Vec<(String, Node)>),
}

impl Value {
    fn describe(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Switch(_) => "true or false",
            Value::Whole(_) => "a whole number",
            Value::Other(what) => what,
            Value::Text(_) | Value::Template(_) => "text",
            Value::Table(_) => "a table",
        }
    }
}

/// A value as its setting needs it. Its `Debug` shows no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Text(String),
    Secret(Secret),
    Address(Secret),
    /// The address of a hook, whose path is often its password.
    Hook(Secret),
    Command(Secret),
    Switch(bool),
    Whole(i64),
    Duration(Duration),
}

impl Parsed {
    /// Reads a value that a format gave; the error says what to write instead.
    pub(super) fn from_value(kind: Kind, value: &Value) -> Result<Self, String> {
        match (kind, value) {
            (_, Value::Text(text)) => Self::from_text(kind, text),
            (Kind::Switch, Value::Switch(on)) => Ok(Parsed::Switch(*on)),
            (Kind::Whole { .. }, Value::Whole(number)) => whole(kind, *number),
            (Kind::Duration, Value::Whole(number)) => Self::from_text(kind, &number.to_string()),
            (_, Value::Null) => Err("null says nothing: leave the setting out".to_owned()),
            _ => Err(format!("expects {}, found {}", describe(kind), value.describe())),
        }
    }

    /// Reads a value that was given as text: a variable, a flag, or a text in a file.
    pub(super) fn from_text(kind: Kind, text: &str) -> Result<Self, String> {
        match kind {
            Kind::Text => Ok(Parsed::Text(text.to_owned())),
            Kind::Secret => Ok(Parsed::Secret(Secret::new(text))),
            Kind::Address => Ok(Parsed::Address(Secret::new(text))),
            Kind::Hook => Ok(Parsed::Hook(Secret::new(text))),
            Kind::Command => Ok(Parsed::Command(Secret::new(text))),
            Kind::File if text.is_empty() => Err("expects the name of a file".to_owned()),
            Kind::File => Ok(Parsed::Text(text.to_owned())),
            Kind::Switch => switch(text),
            Kind::Whole { .. } => match text.trim().parse() {
                Ok(number) => whole(kind, number),
                Err(_) => Err(format!("expects {}, found {text:?}", describe(kind))),
            },
            Kind::Duration => match parse_duration(text) {
                Ok(duration) => Ok(Parsed::Duration(duration)),
                Err(error) => Err(error.to_string()),
            },
            Kind::OneOf(words) => one_of(words, text),
        }
    }

    /// For people; secrets as stars.
    pub(super) fn shown(&self) -> String {
        match self {
            Parsed::Text(text) => text.clone(),
            Parsed::Secret(_) => "***".to_owned(),
            Parsed::Address(address) => shown_address(address.reveal()),
            Parsed::Hook(address) => shown_hook(address.reveal()),
            Parsed::Command(command) => shown_command(command.reveal()),
            Parsed::Switch(on) => on.to_string(),
            Parsed::Whole(number) => number.to_string(),
            Parsed::Duration(duration) => duration_text(*duration),
        }
    }
}

/// Scheme and host. Chat services and the like put the password into the path.
fn shown_hook(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return "***".to_owned() };
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    // An `@` further on means that a password was not encoded: what looks like a host may be it.
    match is_scheme(scheme) && !rest[authority.len()..].contains('@') {
        true if rest.len() == authority.len() && !authority.contains('@') => address.to_owned(),
        true => format!("{scheme}://{host}/***"),
        false => "***".to_owned(),
    }
}

/// The program alone: arguments and variables may be secrets.
pub(super) fn shown_command(command: &str) -> String {
    match command.trim().split_once(char::is_whitespace) {
        _ if command.trim_start().split(char::is_whitespace).next().unwrap_or("").contains('=') => {
            "***".to_owned()
        }
        Some((program, _)) => format!("{program} ***"),
        None => command.trim().to_owned(),
    }
}

/// What a value of this kind is, for people.
pub(super) fn describe(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Secret => "secret text".to_owned(),
        Kind::Address | Kind::Hook => "address".to_owned(),
        Kind::Command => "text".to_owned(),
        Kind::File => "file".to_owned(),
        Kind::Switch => "`true` or `false`".to_owned(),
        Kind::Whole { min: 0, max } if max == i64::from(i32::MAX) => {
            "whole number from 0".to_owned()
        }
        Kind::Whole { min, .. } if min == i64::from(i32::MIN) => "whole number".to_owned(),
        Kind::Whole { min, max } => format!("whole number from {min} to {max}"),
        Kind::Duration => "duration".to_owned(),
        Kind::OneOf(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn switch(text: &str) -> Result<Parsed, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(Parsed::Switch(true)),
        "false" | "no" | "off" | "0" => Ok(Parsed::Switch(false)),
        _ => Err(format!("expects true or false, found {text:?}")),
    }
}

fn whole(kind: Kind, number: i64) -> Result<Parsed, String> {
    match kind {
        Kind::Whole { min, max } if !(min..=max).contains(&number) => {
            Err(format!("expects a whole number from {min} to {max}, found {number}"))
        }
        _ => Ok(Parsed::Whole(number)),
    }
}

fn one_of(words: &[&'static str], text: &str) -> Result<Parsed, String> {
    if words.contains(&text) {
        return Ok(Parsed::Text(text.to_owned()));
    }
    let meant = nearest(text, words.iter().copied());
    let meant = meant.map_or(String::new(), |word| format!("; did you mean {word}?"));
    Err(format!("expects {}, found {text:?}{meant}", words.join(" or ")))
}
