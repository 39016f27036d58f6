//! Text of some format in, a tree of values with line numbers out.
//!
//! A format adds one file with one function. Parsers here never quote the text in an error: the
//! line that fails to parse may be the one with the password.

#[cfg(feature = "hcl")]
mod hcl;
mod json;
mod toml;
#[cfg(feature = "yaml")]
mod yaml;

use std::path::Path;

use super::problem::{ConfigError, Fault};
use super::value::Node;

/// How deep tables and lists may nest: far deeper than any setting, far from the stack's end.
const DEPTH_MAX: usize = 32;

/// A format of configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `*.toml`
    Toml,
    /// `*.json`
    Json,
    /// `*.yaml`, `*.yml`
    #[cfg(feature = "yaml")]
    Yaml,
    /// `*.hcl`
    #[cfg(feature = "hcl")]
    Hcl,
}

/// Why a text is not of its format, and on which line.
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) message: String,
}

impl Format {
    /// The format that the end of the file's name tells.
    pub fn of_file(file: &Path) -> Result<Self, ConfigError> {
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let unknown = |hint: &str| {
            Err(Fault::UnknownFormat { file: file.to_owned(), hint: hint.to_owned() }.into())
        };
        match ending.to_ascii_lowercase().as_str() {
            "toml" => Ok(Format::Toml),
            "json" => Ok(Format::Json),
            #[cfg(feature = "yaml")]
            "yaml" | "yml" => Ok(Format::Yaml),
            #[cfg(not(feature = "yaml"))]
            "yaml" | "yml" => unknown(
                "this program was built without YAML: use TOML or JSON, or build it with the \
                 feature `yaml` of tenure",
            ),
            #[cfg(feature = "hcl")]
            "hcl" => Ok(Format::Hcl),
            #[cfg(not(feature = "hcl"))]
            "hcl" => unknown(
                "this program was built without HCL: use TOML or JSON, or build it with the \
                 feature `hcl` of tenure",
            ),
            _ => unknown("unknown format: end its name in .toml, .json, .yaml or .hcl"),
        }
    }

    pub(super) fn parse(self, text: &str) -> Result<Node, SyntaxError> {
        match self {
            Format::Toml => toml::parse(text),
            Format::Json => json::parse(text),
            #[cfg(feature = "yaml")]
            Format::Yaml => yaml::parse(text),
            #[cfg(feature = "hcl")]
            Format::Hcl => hcl::parse(text),
        }
    }
}

/// The line on which the byte at `offset` stands, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
