//! What a command is, and how it can fail.

use std::fmt;

/// One of the project's commands.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// One line for the list.
    pub(crate) summary: &'static str,
    /// What `--help` says below the summary.
    pub(crate) details: &'static str,
    /// Gets the words after the name.
    pub(crate) run: fn(&[String]) -> Result<(), Failure>,
}

impl Command {
    pub(crate) fn manual(&self) -> String {
        let Self { name, summary, details, .. } = self;
        format!("cargo xtask {name}: {summary}\n\n{}\n", details.trim())
    }
}

/// Why a command did not succeed. The text names the thing and the next step.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for makes no sense.
    Usage(String),
    /// It makes sense, but something is not as it should be.
    Failed(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 64,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => formatter.write_str(text.trim_end()),
        }
    }
}
