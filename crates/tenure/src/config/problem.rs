//! What can be wrong with a configuration, each with the setting, the place and the next step.

use std::fmt;
use std::path::PathBuf;

use tenure_core::{NameError, TimingError};

use super::Origin;

/// How many problems are told at once: a file of another program would fill the screen.
pub(super) const PROBLEMS_MAX: usize = 20;

/// A configuration that cannot be used, with all problems found, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    /// The problems; never empty, at most 20.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Fault> for ConfigError {
    fn from(fault: Fault) -> Self {
        ConfigError { problems: vec![Problem(fault)] }
    }
}

impl fmt::Display for ConfigError {
    /// One line per problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// One problem of a configuration. Its text names the setting, the place and the next step, and
/// never contains the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Problem(Fault);

impl Problem {
    /// Where the wrong value or name is; `None` if the problem is about a whole file or about
    /// several settings together.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.0 {
            Fault::Syntax { origin, .. }
            | Fault::UnknownKey { origin, .. }
            | Fault::BadValue { origin, .. }
            | Fault::Name { origin, .. } => Some(origin),
            _ => None,
        }
    }

    pub(super) fn fault(&self) -> &Fault {
        &self.0
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// A file cannot be read.
    #[error("{file}: {reason}", file = file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says, or which limit it breaks.
        reason: String,
    },
    /// The end of the file's name tells no format that is built in.
    #[error("{file}: {hint}", file = file.display())]
    UnknownFormat {
        /// The file.
        file: PathBuf,
        /// What to do.
        hint: String,
    },
    /// The text is not of its format.
    #[error("{origin}: {message}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// What the parser expected.
        message: String,
    },
    /// No setting has this name.
    #[error("{place}unknown setting {key}{hint}", place = place(origin, key))]
    UnknownKey {
        /// The whole name as given.
        key: String,
        /// Where it stands.
        origin: Origin,
        /// The nearest known name, when one is near.
        suggestion: Option<String>,
        /// The same for people: `; did you mean …?`.
        hint: String,
    },
    /// The value cannot be what the setting needs.
    #[error("{origin}: {key}: {problem}")]
    BadValue {
        /// The setting.
        key: String,
        /// Where it was given.
        origin: Origin,
        /// What is wrong and what to write.
        problem: String,
    },
    /// What says where the store is says nothing. Whoever gave it meant a store, and none is not
    /// what to use instead.
    #[error("{origin}: {key} is empty: {hint}")]
    Empty {
        /// The setting, or what it is.
        key: String,
        /// Where it was given.
        origin: Origin,
        /// What to do.
        hint: String,
    },
    /// A variable inside a file is not set and has no default.
    #[error(
        "{origin}: {key}: ${{{variable}}} is not set: set it, or write ${{{variable}:default}}"
    )]
    UnsetVariable {
        /// The setting.
        key: String,
        /// Where it was given.
        origin: Origin,
        /// The variable.
        variable: String,
    },
    /// Two settings say the same thing in two ways.
    #[error("{key} ({origin}) and {other} ({other_origin}) contradict each other: {hint}")]
    Contradiction {
        /// One setting.
        key: String,
        /// Where it was given.
        origin: Origin,
        /// The other setting.
        other: String,
        /// Where that was given.
        other_origin: Origin,
        /// What to do.
        hint: String,
    },
    /// The chosen profile has no section.
    #[error("{origin}: profile {profile:?} is not in {file}, which has {known}")]
    UnknownProfile {
        /// The profile.
        profile: String,
        /// Who chose it.
        origin: Origin,
        /// The configuration file, or `no file`.
        file: String,
        /// The profiles there are, for people.
        known: String,
    },
    /// The time settings of an election break a rule of the time budget.
    #[error("{scope}: {rule} ({settings})")]
    Timing {
        /// `defaults` or `elections.NAME`.
        scope: String,
        /// Which rule.
        rule: TimingError,
        /// Each setting that takes part, with its origin.
        settings: String,
    },
    /// A name or key that a store could not hold.
    #[error("{origin}: {key}: {rule}")]
    Name {
        /// The setting.
        key: String,
        /// Where it was given.
        origin: Origin,
        /// Which rule.
        rule: NameError,
    },
}

/// Where a setting stands, unless its name says so already.
fn place(origin: &Origin, key: &str) -> String {
    match origin {
        Origin::Variable(name) if name == key => String::new(),
        _ => format!("{origin}: "),
    }
}

/// Gathers problems so that one run tells them all.
#[derive(Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, error: impl Into<ConfigError>) {
        for problem in error.into().problems {
            if self.0.len() < PROBLEMS_MAX && !self.0.contains(&problem) {
                self.0.push(problem);
            }
        }
    }

    /// Keeps the value, or notes the problem.
    pub(super) fn take<T>(&mut self, result: Result<T, ConfigError>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Whether any of them is about a setting, or a name near to one, that `is_meant`. Problems of
    /// times that do not fit together are about no single one.
    pub(super) fn concern(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|problem| match &problem.0 {
            Fault::BadValue { key, .. } | Fault::UnsetVariable { key, .. } => is_meant(key),
            Fault::UnknownKey { key, suggestion, .. } => {
                is_meant(key) || suggestion.as_deref().is_some_and(&is_meant)
            }
            _ => false,
        })
    }

    /// All of them as one error, after another one.
    pub(super) fn preceded_by(self, mut first: ConfigError) -> ConfigError {
        let left = PROBLEMS_MAX - first.problems.len().min(PROBLEMS_MAX);
        first.problems.extend(self.0.into_iter().take(left));
        first
    }

    pub(super) fn into_result(self) -> Result<(), ConfigError> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(ConfigError { problems: self.0 }),
        }
    }
}
