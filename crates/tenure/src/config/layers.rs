//! The layers, from the weakest to the strongest: defaults, file, profile, environment, arguments.
//! Each is laid over the one before, value by value.

use std::collections::{BTreeMap, BTreeSet};
use std::path;

use super::origin::{FilePosition, Origin, Path};
use super::problem::{ConfigError, Fault, Problems};
use super::schema::{Kind, Preset, ROOT, Row, Shape, each_leaf, moved_hook};
use super::value::{Node, Parsed, Value, describe};
use super::variables::{Environment, fill, split};
use tenure_backend::nearest;

/// A value and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) parsed: Parsed,
    pub(super) origin: Origin,
}

/// The values that count so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaves {
    values: BTreeMap<Path, Leaf>,
    /// What stronger layers replaced: at most one value per setting and layer.
    replaced: Vec<(Path, Leaf)>,
    /// Tables that a file names, whether anything is set in them or not.
    named: BTreeMap<Path, Origin>,
}

impl Leaves {
    /// The lowest layer: every default that is a value.
    pub(super) fn presets() -> Self {
        let mut leaves = BTreeMap::new();
        each_leaf(ROOT, &[], &mut |names, row, kind| {
            // What every election inherits stands under `defaults`.
            let Preset::Value(text) = row.default else { return };
            if names.first() != Some(&"elections") {
                let parsed = Parsed::from_text(kind, text).expect("defaults are of their kind");
                let leaf = Leaf { parsed, origin: Origin::Default };
                leaves.insert(Path::of(names.iter().copied()), leaf);
            }
        });
        Leaves { values: leaves, replaced: Vec::new(), named: BTreeMap::new() }
    }

    /// Whether a file names this table.
    pub(super) fn is_named(&self, path: &Path) -> bool {
        self.named.contains_key(path)
    }

    /// Where that table stands.
    pub(super) fn place_of(&self, path: &Path) -> Option<&Origin> {
        self.named.get(path)
    }

    pub(super) fn get(&self, path: &Path) -> Option<&Leaf> {
        self.values.get(path)
    }

    pub(super) fn set(&mut self, path: Path, leaf: Leaf) {
        if let Some(replaced) = self.values.insert(path.clone(), leaf) {
            self.replaced.push((path, replaced));
        }
    }

    /// What any layer says, replaced or not.
    pub(super) fn all_of<'a>(&'a self, path: &Path) -> Vec<&'a Leaf> {
        let replaced = self.replaced.iter().filter(|(other, _)| other == path);
        self.values.get(path).into_iter().chain(replaced.map(|(_, leaf)| leaf)).collect()
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.values.remove(path);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &Leaf)> {
        self.values.iter()
    }

    /// The leaves below `path`.
    pub(super) fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a str, &'a Leaf)> {
        self.values.iter().filter_map(|(other, leaf)| Some((path.next_towards(other)?, leaf)))
    }

    /// The names right below `path`.
    pub(super) fn names_below(&self, path: &Path) -> BTreeSet<String> {
        let named = self.named.keys().filter_map(|other| path.next_towards(other));
        self.below(path).map(|(name, _)| name).chain(named).map(str::to_owned).collect()
    }
}

/// Lays a file, or one profile of it, over what is there.
pub(super) struct FileLayer<'a> {
    pub(super) file: &'a str,
    pub(super) profile: Option<&'a str>,
    /// What relative file names in values are relative to.
    pub(super) folder: &'a path::Path,
    /// `None` checks the names only: a profile that is not chosen may use variables that are not
    /// set here.
    pub(super) environment: Option<&'a Environment>,
    pub(super) leaves: &'a mut Leaves,
    pub(super) problems: &'a mut Problems,
}

impl FileLayer<'_> {
    pub(super) fn lay(&mut self, node: &Node) {
        let members = match &node.value {
            Value::Table(members) => members,
            _ => return self.refuse(&Path::of(["file"]), node, "expects a table of settings"),
        };
        self.table(ROOT, &Path::default(), members);
    }

    fn table(&mut self, rows: &'static [Row], path: &Path, members: &[(String, Node)]) {
        for (name, node) in members {
            match rows.iter().find(|row| row.name == name) {
                Some(row) => self.value(&row.shape, &path.child(name), node),
                None => {
                    let key = self.shown(&path.child(name));
                    let origin = self.origin(node, Vec::new());
                    let suggestion = suggested(rows, path, name);
                    self.problems.add(unknown(key, origin, suggestion, ""));
                }
            }
        }
    }

    fn value(&mut self, shape: &'static Shape, path: &Path, node: &Node) {
        match (shape, &node.value) {
            (Shape::Leaf(kind), _) => self.leaf(*kind, path, node),
            (Shape::Table { rows, .. }, Value::Table(members)) => self.table(rows, path, members),
            (Shape::Table { rows, shorthand: Some(short) }, _) => {
                let row = rows.iter().find(|row| row.name == *short);
                let row = row.expect("a shorthand names a row of its table");
                self.value(&row.shape, &path.child(short), node);
            }
            (Shape::Map { each, .. }, Value::Table(members)) => {
                for (name, node) in members {
                    if self.environment.is_some() {
                        let origin = self.origin(node, Vec::new());
                        self.leaves.named.insert(path.child(name), origin);
                    }
                    self.value(each, &path.child(name), node);
                }
            }
            (Shape::Table { .. } | Shape::Map { .. }, _) => {
                self.refuse(path, node, "expects a table of settings");
            }
        }
    }

    fn leaf(&mut self, kind: Kind, path: &Path, node: &Node) {
        let Some(environment) = self.environment else { return };
        let (parsed, variables) = match self.filled(&node.value, environment) {
            Ok(None) => (Parsed::from_value(kind, &node.value), Vec::new()),
            Ok(Some((text, variables))) => {
                // What came out of a variable is not quoted: it may be a secret gone astray.
                let parsed = Parsed::from_text(kind, &text).map_err(|problem| match () {
                    () if !variables.is_empty() => {
                        format!("with its variables filled in is not: {}", describe(kind))
                    }
                    () if quotes(kind, path) => problem,
                    () => expectation(kind),
                });
                (parsed, variables)
            }
            Err(Unfilled::Malformed(problem)) => return self.refuse(path, node, &problem),
            Err(Unfilled::Unset(variable)) => {
                let (key, origin) = (self.shown(path), self.origin(node, Vec::new()));
                return self.problems.add(Fault::UnsetVariable { key, origin, variable });
            }
        };
        match parsed {
            Ok(Parsed::Text(text)) if kind == Kind::File => {
                let text = self.folder.join(text).to_string_lossy().into_owned();
                self.set(path, Parsed::Text(text), node, variables);
            }
            Ok(parsed) => self.set(path, parsed, node, variables),
            Err(problem) => self.refuse(path, node, &problem),
        }
    }

    fn set(&mut self, path: &Path, parsed: Parsed, node: &Node, variables: Vec<String>) {
        let origin = self.origin(node, variables);
        self.leaves.set(path.clone(), Leaf { parsed, origin });
    }

    /// The text with its variables filled in, and their names; `None` when it is not a text.
    fn filled(
        &self,
        value: &Value,
        environment: &Environment,
    ) -> Result<Option<(String, Vec<String>)>, Unfilled> {
        let split_here;
        let pieces = match value {
            Value::Text(text) => {
                split_here = split(text).map_err(Unfilled::Malformed)?;
                &split_here
            }
            Value::Template(pieces) => pieces,
            _ => return Ok(None),
        };
        let filled = fill(pieces, environment).map_err(Unfilled::Unset)?;
        Ok(Some((filled.text, filled.variables)))
    }

    fn refuse(&mut self, path: &Path, node: &Node, problem: &str) {
        let (key, origin) = (self.shown(path), self.origin(node, Vec::new()));
        self.problems.add(bad_value(key, origin, problem));
    }

    fn shown(&self, path: &Path) -> String {
        match self.profile {
            None => path.to_string(),
            Some(profile) => {
                Path::of(["profile", profile].into_iter().chain(path.names())).to_string()
            }
        }
    }

    fn origin(&self, node: &Node, variables: Vec<String>) -> Origin {
        Origin::File(FilePosition {
            file: self.file.into(),
            line: node.line,
            profile: self.profile.map(Into::into),
            variables,
        })
    }
}

enum Unfilled {
    Malformed(String),
    Unset(String),
}

/// Lays one argument over what is there.
pub(super) fn lay_argument(
    leaves: &mut Leaves,
    names: &[String],
    text: &str,
    label: &str,
) -> Result<(), ConfigError> {
    let origin = Origin::Argument(label.to_owned());
    let exact = |_: &Path, name: &str| Ok::<_, String>(name.to_owned());
    match locate(names, &|row, name| row == name, &exact) {
        Ok((path, kind)) => lay_text(leaves, path, kind, text, origin),
        Err(Lost { path, name, rows, .. }) => {
            let suggestion = suggested(rows, &path, &name);
            Err(unknown(path.child(&name).to_string(), origin, suggestion, ""))
        }
    }
}

/// Lays a value given as text over what is there.
pub(super) fn lay_text(
    leaves: &mut Leaves,
    path: Path,
    kind: Kind,
    text: &str,
    origin: Origin,
) -> Result<(), ConfigError> {
    let parsed = Parsed::from_text(kind, text).map_err(|problem| match quotes(kind, &path) {
        true => problem,
        false => expectation(kind),
    });
    match parsed {
        Ok(parsed) => {
            leaves.set(path, Leaf { parsed, origin });
            Ok(())
        }
        Err(problem) => Err(bad_value(path.to_string(), origin, &problem)),
    }
}

/// Whether what was given may be quoted. Not beside settings that hold secrets, for one of those
/// may have been meant; the name of a file is never quoted anyway.
fn quotes(kind: Kind, path: &Path) -> bool {
    let is_secret = matches!(path.names().next(), Some("store" | "sidecar"))
        || path.names().any(|name| name == "hooks");
    kind == Kind::File || !is_secret
}

/// What a setting expects, for somebody who gave it something else.
fn expectation(kind: Kind) -> String {
    format!("expects {}, and was given something else", describe(kind))
}

/// Where a chain of names leaves the schema.
pub(super) struct Lost {
    pub(super) path: Path,
    /// Which of the names it is.
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) rows: &'static [Row],
    /// Why, when it is not simply unknown.
    pub(super) reason: Option<String>,
}

/// Follows names through the schema to a leaf. `is_row` compares a row's name with a given one;
/// `chosen` gives the name that the user chose where any may stand.
pub(super) fn locate(
    names: &[String],
    is_row: &dyn Fn(&str, &str) -> bool,
    chosen: &dyn Fn(&Path, &str) -> Result<String, String>,
) -> Result<(Path, Kind), Lost> {
    const ROOT_SHAPE: Shape = Shape::Table { rows: ROOT, shorthand: None };
    let mut shape: &'static Shape = &const { ROOT_SHAPE };
    let mut path = Path::default();
    let mut names = names.iter().enumerate();
    loop {
        let next = names.next();
        let lost = |rows, reason| {
            let (index, name) = next.map_or((0, ""), |(index, name)| (index, name.as_str()));
            Lost { path: path.clone(), index, name: name.to_owned(), rows, reason }
        };
        match (shape, next) {
            (Shape::Leaf(kind), None) => return Ok((path, *kind)),
            (Shape::Leaf(_), Some(_)) => return Err(lost(&[], None)),
            (Shape::Table { rows, shorthand }, next) => {
                let found = match (next, shorthand) {
                    (Some((_, name)), _) => rows.iter().find(|row| is_row(row.name, name)),
                    (None, Some(short)) => rows.iter().find(|row| row.name == *short),
                    (None, None) => None,
                };
                let row = found.ok_or_else(|| lost(rows, None))?;
                path = path.child(row.name);
                shape = &row.shape;
            }
            (Shape::Map { .. }, None) => return Err(lost(&[], None)),
            (Shape::Map { each, .. }, Some((_, name))) => {
                let name = chosen(&path, name).map_err(|reason| lost(&[], Some(reason)))?;
                path = path.child(&name);
                shape = each;
            }
        }
    }
}

/// The setting that `name` below `path` was probably meant to be.
fn suggested(rows: &[Row], path: &Path, name: &str) -> Option<String> {
    if let Some(hook) = moved_hook(path, name) {
        return Some(Path::of(["defaults", "hooks", hook]).to_string());
    }
    if let Some(near) = nearest(name, rows.iter().map(|row| row.name)) {
        return Some(path.child(near).to_string());
    }
    // `ttl` at the top of a file is one of these.
    let mut elsewhere = None;
    each_leaf(ROOT, &[], &mut |names, row, _| {
        if row.name == name && elsewhere.is_none() {
            elsewhere = Some(Path::of(names.iter().copied()).to_string());
        }
    });
    elsewhere
}

pub(super) fn unknown(
    key: String,
    origin: Origin,
    suggestion: Option<String>,
    advice: &str,
) -> ConfigError {
    let hint = match &suggestion {
        Some(name) => format!("; did you mean {name}?"),
        None => format!("; docs/configuration.md lists them all{advice}"),
    };
    Fault::UnknownKey { key, origin, suggestion, hint }.into()
}

pub(super) fn bad_value(key: String, origin: Origin, problem: &str) -> ConfigError {
    Fault::BadValue { key, origin, problem: problem.to_owned() }.into()
}
