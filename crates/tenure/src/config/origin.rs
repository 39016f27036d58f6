//! Where a value comes from, and which of two values counts.

use std::fmt;
use std::sync::Arc;

/// Where a value comes from. It is displayed so that you can find it: `tenure.toml:7`,
/// `TENURE_STORE`, `--ttl`, `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The value is the default.
    Default,
    /// A configuration file.
    File(FilePosition),
    /// This environment variable.
    Variable(String),
    /// The program itself: a command-line flag or a call, with this label.
    Argument(String),
}

/// A place in a configuration file, displayed as `tenure.toml:7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// The file as it was named.
    pub(super) file: Arc<str>,
    /// The line, counted from 1.
    pub(super) line: usize,
    /// The profile whose section it is in.
    pub(super) profile: Option<Arc<str>>,
    /// The variables that were put into the value.
    pub(super) variables: Vec<String>,
}

/// Which layer a value belongs to. A later one outranks an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Default,
    File,
    Profile,
    Environment,
    Argument,
}

impl Origin {
    pub(super) fn layer(&self) -> Layer {
        match self {
            Origin::Default => Layer::Default,
            Origin::File(FilePosition { profile: None, .. }) => Layer::File,
            Origin::File(FilePosition { profile: Some(_), .. }) => Layer::Profile,
            Origin::Variable(_) => Layer::Environment,
            Origin::Argument(_) => Layer::Argument,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(place) => place.fmt(f),
            Origin::Variable(name) | Origin::Argument(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        for variable in &self.variables {
            write!(f, " ${{{variable}}}")?;
        }
        Ok(())
    }
}

/// The names that lead to a value, outermost first: `elections`, `nightly`, `ttl`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path(Vec<String>);

impl Path {
    pub(super) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Path(names.into_iter().map(str::to_owned).collect())
    }

    pub(super) fn child(&self, name: &str) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_owned());
        Path(names)
    }

    /// The name right below `self` on the way to `other`, when `other` lies below.
    pub(super) fn next_towards<'a>(&self, other: &'a Path) -> Option<&'a str> {
        let below = other.0.strip_prefix(self.0.as_slice())?;
        below.first().map(String::as_str)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for Path {
    /// Joined by dots; a name that would be ambiguous is quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            let bare = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
            match !name.is_empty() && name.chars().all(bare) {
                true => write!(f, "{dot}{name}")?,
                false => write!(f, "{dot}{name:?}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_prints_as_a_person_would_look_it_up() {
        let mut place = FilePosition {
            file: "tenure.toml".into(),
            line: 7,
            profile: None,
            variables: Vec::new(),
        };
        assert_eq!(Origin::File(place.clone()).to_string(), "tenure.toml:7");
        place.variables = vec!["HOME".to_owned()];
        assert_eq!(Origin::File(place).to_string(), "tenure.toml:7 ${HOME}");
        assert_eq!(Origin::Argument("--ttl".to_owned()).to_string(), "--ttl");
    }

    #[test]
    fn a_name_with_a_dot_is_quoted_in_a_path() {
        assert_eq!(Path::of(["elections", "a.b", "ttl"]).to_string(), "elections.\"a.b\".ttl");
        assert_eq!(Path::of(["elections", "x\u{1b}[2J"]).to_string(), "elections.\"x\\u{1b}[2J\"");
    }
}
