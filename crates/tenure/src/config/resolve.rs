//! The last step: from the values that count to a checked [`Config`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use tenure_core::timing::duration_text;
use tenure_core::{InstanceId, NameError, Resource};

use super::election::{ElectionConfig, Scope};
use super::environment::variable_form;
use super::layers::{Leaf, Leaves};
use super::loader::Loader;
use super::origin::{Origin, Path};
use super::problem::{ConfigError, Fault, Problems};
use super::sidecar::SidecarConfig;
use super::store::{self, ReadFile, StoreConfig};
use super::value::Parsed;

/// A configuration, complete and checked as a whole.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where the store is.
    pub store: StoreConfig,
    /// The prefix of every key in the store.
    pub prefix: String,
    /// The name of this process; `None` for host and process id.
    pub instance: Option<String>,
    /// If `false`, there are no elections: this instance leads at once and needs no store.
    pub enabled: bool,
    /// Settings for every election that does not set its own.
    pub defaults: ElectionConfig,
    /// The elections that the configuration names, with defaults filled in.
    pub elections: BTreeMap<String, ElectionConfig>,
    /// The settings of the sidecar.
    pub sidecar: SidecarConfig,
    /// The profile that was chosen.
    pub profile: Option<String>,
    settings: Vec<Setting>,
    warnings: Vec<Warning>,
    /// Elections that only variables name, so that their spelling is a guess.
    guessed_names: BTreeSet<String>,
}

/// A setting that is in effect, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// The whole name, for example `elections.nightly.ttl`.
    pub key: String,
    /// The value as text; secrets are shown as stars.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// A setting that works but is probably a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The setting.
    pub key: String,
    /// Where it comes from.
    pub origin: Origin,
    /// What may go wrong, and what to do.
    pub text: String,
}

impl Config {
    /// Loads a file and the environment variables of this process, which win.
    pub fn from_file(file: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        Loader::of_process().file(file).load()
    }

    /// Loads the environment variables of this process, and the file that `TENURE_CONFIG` names.
    pub fn from_env() -> Result<Self, ConfigError> {
        Loader::of_process().load()
    }

    /// The settings of the election `name`, whether the configuration names it or not.
    ///
    /// A variable cannot spell every name: an election that is only named by
    /// `TENURE_ELECTIONS__NIGHTLY_REPORT__…` is also found as `nightly-report`.
    pub fn election(&self, name: &str) -> &ElectionConfig {
        self.named(name).unwrap_or(&self.defaults)
    }

    /// The settings of the election `name`, if the configuration names it; see
    /// [`election`](Self::election).
    pub fn named(&self, name: &str) -> Option<&ElectionConfig> {
        let guessed = || {
            let form = variable_form(name);
            let guess = self.guessed_names.iter().find(|known| variable_form(known) == form)?;
            self.elections.get(guess)
        };
        self.elections.get(name).or_else(guessed)
    }

    /// Whether the election `name` is held at all. If not, this instance leads at once.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.enabled && self.election(name).enabled
    }

    /// Every setting in effect and where it comes from, sorted by name.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Settings that work but are probably a mistake.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Checks the values that count as a whole, beside the `problems` found before. `file` is the
    /// configuration file, if there is one.
    pub(super) fn resolve(
        mut leaves: Leaves,
        profile: Option<String>,
        file: Option<&FilePath>,
        read: ReadFile<'_>,
        mut problems: Problems,
    ) -> Result<Self, ConfigError> {
        // What follows from a value that is missing because it was wrong is no second problem.
        let store = match problems.concern(|key| key.starts_with("store")) {
            true => None,
            false => problems.take(store::resolve(&mut leaves, read)),
        };
        let (store, foreign) = store.unwrap_or_default();
        let mut warnings = foreign;
        let files = RefCell::default();
        let read = &|file: &FilePath| read_once(&files, read, file);
        let defaults = Scope::defaults(&leaves).read(read, &mut problems, &mut warnings);
        let names = leaves.names_below(&Path::of(["elections"]));
        let mut elections = BTreeMap::new();
        for name in &names {
            let scope = Scope::election(&leaves, name);
            let election = scope.read(read, &mut problems, &mut warnings);
            elections.insert(name.clone(), election);
        }
        let sidecar = SidecarConfig::read(&leaves, read, &mut problems);
        let mut config = Config {
            store,
            prefix: text(&leaves, "prefix").unwrap_or_default(),
            instance: text(&leaves, "instance"),
            enabled: !matches!(
                leaves.get(&Path::of(["enabled"])),
                Some(Leaf { parsed: Parsed::Switch(false), .. })
            ),
            defaults,
            elections,
            sidecar,
            profile,
            settings: Vec::new(),
            warnings: Vec::new(),
            guessed_names: names.into_iter().filter(|name| is_guessed(&leaves, name)).collect(),
        };
        config.check_names(&leaves, &mut problems);
        problems.into_result()?;
        config.settings = settings(&leaves);
        config.warnings = warnings;
        config.warnings.extend(config.find_warnings(&leaves));
        config.warnings.extend(exposed_files(&leaves));
        config.warnings.extend(file.and_then(|file| exposed_secret(&leaves, file)));
        Ok(config)
    }

    fn check_names(&self, leaves: &Leaves, problems: &mut Problems) {
        let mut check = |names: &[&str], rule: Result<(), NameError>| {
            if let Err(rule) = rule {
                let path = Path::of(names.iter().copied());
                let given =
                    leaves.get(&path).or_else(|| leaves.below(&path).map(|(_, l)| l).next());
                let origin = given.map(|leaf| &leaf.origin).or_else(|| leaves.place_of(&path));
                let origin = origin.cloned().unwrap_or(Origin::Default);
                problems.add(Fault::Name { key: path.to_string(), origin, rule });
            }
        };
        check(&["prefix"], Resource::with_prefix(&self.prefix, "x").map(drop));
        if let Some(instance) = &self.instance {
            check(&["instance"], InstanceId::new(instance, 0).map(drop));
        }
        let heartbeat_rule = |prefix: &str| {
            let any = Resource::named("any").expect("a plain name");
            any.with_heartbeat_prefix(prefix).map(drop)
        };
        if let Some(prefix) = &self.defaults.heartbeat_prefix {
            check(&["defaults", "heartbeat_prefix"], heartbeat_rule(prefix));
        }
        for (name, election) in &self.elections {
            let inherited = &self.defaults.heartbeat_prefix;
            if let Some(prefix) = election
                .heartbeat_prefix
                .as_ref()
                .filter(|_| inherited != &election.heartbeat_prefix)
            {
                check(&["elections", name, "heartbeat_prefix"], heartbeat_rule(prefix));
            }
            match &election.key {
                Some(key) => {
                    check(&["elections", name, "key"], Resource::with_key(name, key).map(drop));
                }
                None => {
                    let resource = Resource::with_prefix(&self.prefix, name);
                    check(&["elections", name], resource.map(drop));
                }
            }
        }
    }

    fn find_warnings(&self, leaves: &Leaves) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |path: Path, leaf: &Leaf, text: String| {
            let warning = Warning { key: path.to_string(), origin: leaf.origin.clone(), text };
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        };
        if self.store.is_insecure() {
            let names =
                [vec!["store", "tls", "insecure"], vec!["store", "url"], vec!["store", "url_file"]];
            let given = names.into_iter().map(Path::of).filter_map(|path| {
                let leaf = leaves.get(&path).filter(|leaf| leaf.origin != Origin::Default)?;
                Some((path, leaf))
            });
            for (path, leaf) in given.take(1) {
                let text = "INSECURE: any certificate is accepted, so anybody on the network path \
                            can pose as the store; name the authority with store.tls.ca_file \
                            instead";
                warn(path, leaf, text.to_owned());
            }
        }
        let scopes = self.elections.keys().map(|name| Scope::election(leaves, name));
        for scope in scopes.chain([Scope::defaults(leaves)]) {
            let Some((path, leaf)) = scope.find("ttl") else { continue };
            let Parsed::Duration(ttl) = leaf.parsed else { continue };
            if let Some(text) = ttl_warning(ttl) {
                warn(path, leaf, text);
            }
        }
        warnings
    }
}

/// The text of a file that several elections may name: what is read from a pipe is gone afterwards.
fn read_once(
    files: &RefCell<BTreeMap<PathBuf, String>>,
    read: ReadFile<'_>,
    file: &FilePath,
) -> Result<String, ConfigError> {
    if let Some(text) = files.borrow().get(file) {
        return Ok(text.clone());
    }
    let text = read(file)?;
    files.borrow_mut().insert(file.to_owned(), text.clone());
    Ok(text)
}

/// Whether every user of the host may read the file.
fn is_readable_by_all(file: impl AsRef<FilePath>) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS_READ: u32 = 0o004;
    std::fs::metadata(file).is_ok_and(|found| found.permissions().mode() & OTHERS_READ != 0)
}

/// The first secret in the configuration file itself, where every user of the host may read that.
fn exposed_secret(leaves: &Leaves, file: &FilePath) -> Option<Warning> {
    let is_secret = |leaf: &Leaf| match &leaf.parsed {
        Parsed::Secret(_) => true,
        Parsed::Address(url) | Parsed::Hook(url) => {
            url.reveal().contains('@') || url.reveal().contains("password=")
        }
        _ => false,
    };
    // What a variable puts in is not in the file.
    let is_in_file = |leaf: &Leaf| match &leaf.origin {
        Origin::File(place) => place.variables.is_empty(),
        _ => false,
    };
    let (path, leaf) = leaves.iter().find(|(_, leaf)| is_in_file(leaf) && is_secret(leaf))?;
    let text = format!(
        "every user of this host may read {}, which holds this secret: chmod 600 it",
        file.display()
    );
    let warning = Warning { key: path.to_string(), origin: leaf.origin.clone(), text };
    is_readable_by_all(file).then_some(warning)
}

/// Files with a secret that every user of the host may read.
fn exposed_files(leaves: &Leaves) -> Vec<Warning> {
    let names = ["password_file", "url_file", "token_file", "secret_file"];
    let is_meant = |path: &Path| path.names().last().is_some_and(|name| names.contains(&name));
    let files = leaves.iter().filter(|(path, _)| is_meant(path));
    let exposed = files.filter_map(|(path, leaf)| {
        let Parsed::Text(file) = &leaf.parsed else { return None };
        let text = format!("every user of this host may read {file}: chmod 600 it");
        let warning = Warning { key: path.to_string(), origin: leaf.origin.clone(), text };
        is_readable_by_all(file).then_some(warning)
    });
    exposed.collect()
}

impl Default for Config {
    /// The defaults alone.
    fn default() -> Self {
        Loader::new().load().expect("the defaults fit together")
    }
}

fn ttl_warning(ttl: Duration) -> Option<String> {
    const SHORT: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(3600);
    let shown = duration_text(ttl);
    if ttl < SHORT {
        return Some(format!(
            "{shown} is short: a slow network or a busy host ends terms; use ≥ 1s"
        ));
    }
    let stuck = format!("{shown} is long: after a crash nobody leads for as long; use ≤ 1h");
    (ttl > LONG).then_some(stuck)
}

fn text(leaves: &Leaves, name: &str) -> Option<String> {
    match &leaves.get(&Path::of([name]))?.parsed {
        Parsed::Text(text) => Some(text.clone()),
        _ => unreachable!("{name} is text"),
    }
}

fn is_guessed(leaves: &Leaves, name: &str) -> bool {
    let path = Path::of(["elections", name]);
    !leaves.is_named(&path)
        && leaves.below(&path).all(|(_, leaf)| matches!(leaf.origin, Origin::Variable(_)))
}

fn settings(leaves: &Leaves) -> Vec<Setting> {
    let setting = |(path, leaf): (&Path, &Leaf)| Setting {
        key: path.to_string(),
        value: leaf.parsed.shown(),
        origin: leaf.origin.clone(),
    };
    leaves.iter().map(setting).collect()
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.key, self.value, self.origin)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.origin, self.key, self.text)
    }
}
