//! The list of settings for people: help texts, manuals, `docs/configuration.md`.

use super::environment::{PREFIX, variable_form};
use super::schema::{Preset, ROOT, each_leaf};
use super::value::describe;

/// A setting that a configuration may have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownSetting {
    /// The whole name; a part in capitals is a name that the user chooses.
    pub key: String,
    /// The environment variable that sets it.
    pub variable: String,
    /// The kind of value.
    pub kind: String,
    /// The default: a value or a description, in Markdown.
    pub default: String,
    /// What it does.
    pub meaning: &'static str,
}

/// Every setting there is, in the order of the documentation.
pub fn known_settings() -> Vec<KnownSetting> {
    let mut settings = Vec::new();
    each_leaf(ROOT, &[], &mut |names, row, kind| {
        let forms: Vec<String> = names.iter().map(|name| variable_form(name)).collect();
        settings.push(KnownSetting {
            key: names.join("."),
            variable: format!("{PREFIX}{}", forms.join("__")),
            kind: describe(kind),
            default: match row.default {
                Preset::Value(text) => format!("`{text}`"),
                Preset::Unset(words) => words.to_owned(),
                Preset::None => "none".to_owned(),
            },
            meaning: row.meaning,
        });
    });
    settings
}
