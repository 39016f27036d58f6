//! From files, variables and arguments to one [`Config`].

use std::fmt;
use std::fs::Metadata;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use super::Config;
use super::environment::{self, FILE_VARIABLE, PROFILE_VARIABLE};
use super::format::Format;
use super::layers::{FileLayer, Leaves, lay_argument};
use super::origin::{FilePosition, Origin};
use super::problem::{ConfigError, Fault, Problem, Problems};
use super::value::{Node, Value};
use super::variables::Environment;

/// The largest configuration file, in bytes.
const CONFIG_LEN_MAX: u64 = 1 << 20;
/// The largest file that holds one secret, in bytes.
const SECRET_LEN_MAX: u64 = 64 << 10;

/// Gathers the layers of a configuration, then [`load`](Self::load)s it.
///
/// Only [`of_process`](Self::of_process) reads the environment of the process.
///
/// ```
/// # use std::time::Duration;
/// # use tenure::config::{Format, Loader};
/// let config = Loader::new()
///     .text(Format::Toml, "tenure.toml", "store = 'redis://${REDIS_HOST:localhost}'")
///     .environment([("TENURE_DEFAULTS__TTL", "5s")])
///     .set(["elections", "nightly", "priority"], "5", "--priority")
///     .load()?;
/// assert_eq!(config.store.to_string(), "redis://localhost:6379/0");
/// assert_eq!(config.election("nightly").ttl, Duration::from_secs(5));
/// assert_eq!(config.election("nightly").priority, 5);
/// # Ok::<(), tenure::config::ConfigError>(())
/// ```
#[derive(Clone, Default)]
pub struct Loader {
    source: Option<Source>,
    profile: Option<(String, String)>,
    environment: Environment,
    arguments: Vec<Argument>,
}

#[derive(Clone)]
enum Source {
    File(PathBuf),
    Text { format: Format, name: String, text: String },
}

#[derive(Clone)]
struct Argument {
    names: Vec<String>,
    text: String,
    label: String,
}

impl Loader {
    /// A loader with defaults only.
    pub fn new() -> Self {
        Loader::default()
    }

    /// A loader with the environment of this process: `TENURE_…` settings, the variables that a
    /// file may use, and `TENURE_CONFIG` and `TENURE_PROFILE`.
    pub fn of_process() -> Self {
        // What is not UTF-8 becomes a text that no setting accepts rather than silence.
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        Loader { environment: variables.collect(), ..Loader::default() }
    }

    /// Reads this file instead of the one in `TENURE_CONFIG`. The extension tells its format.
    #[must_use]
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.source = Some(Source::File(file.into()));
        self
    }

    /// Uses this text as the file; messages call it `name`.
    #[must_use]
    pub fn text(mut self, format: Format, name: &str, text: &str) -> Self {
        self.source = Some(Source::Text { format, name: name.to_owned(), text: text.to_owned() });
        self
    }

    /// Chooses this profile instead of the one in `TENURE_PROFILE`. `label` says what chose it, for
    /// example `--profile`.
    #[must_use]
    pub fn profile(mut self, profile: impl Into<String>, label: &str) -> Self {
        self.profile = Some((profile.into(), label.to_owned()));
        self
    }

    /// Adds variables to the environment, or replaces them.
    #[must_use]
    pub fn environment<N: Into<String>, V: Into<String>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables.into_iter();
        self.environment.extend(variables.map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Sets one value above all layers. `label` says what set it, for example `--ttl`.
    #[must_use]
    pub fn set<'a>(
        mut self,
        names: impl IntoIterator<Item = &'a str>,
        text: impl Into<String>,
        label: &str,
    ) -> Self {
        let names = names.into_iter().map(str::to_owned).collect();
        self.arguments.push(Argument { names, text: text.into(), label: label.to_owned() });
        self
    }

    /// Merges the layers and checks the result. Reads the configuration file and the files that
    /// `…_file` settings name. Fails with all problems found.
    pub fn load(self) -> Result<Config, ConfigError> {
        let mut problems = Problems::default();
        let mut leaves = Leaves::presets();
        let laid = self.lay_file(&mut leaves, &mut problems);
        environment::lay(&self.environment, &mut leaves, &mut problems);
        for Argument { names, text, label } in &self.arguments {
            problems.take(lay_argument(&mut leaves, names, text, label));
        }
        if let Err(unread) = laid {
            // Without the file nobody knows what fits together.
            return Err(problems.preceded_by(unread));
        }
        let secret = |file: &FilePath| read_secret(file);
        let profile = self.chosen_profile().map(|(name, _)| name.to_owned());
        let file = match self.source.clone().or_else(|| self.named_file().ok().flatten()) {
            Some(Source::File(file)) => Some(file),
            _ => None,
        };
        Config::resolve(leaves, profile, file.as_deref(), &secret, problems)
    }

    fn chosen_profile(&self) -> Option<(&str, Origin)> {
        match &self.profile {
            Some((profile, origin)) => Some((profile, Origin::Argument(origin.clone()))),
            None => {
                let profile = self.environment.get(PROFILE_VARIABLE)?;
                Some((profile, Origin::Variable(PROFILE_VARIABLE.to_owned())))
            }
        }
    }

    /// The file that the environment names. One that is named by nothing would be taken for none,
    /// and so would the store that it names.
    fn named_file(&self) -> Result<Option<Source>, ConfigError> {
        match self.environment.get(FILE_VARIABLE).map(|file| file.trim()) {
            None => Ok(None),
            Some("") => {
                let origin = Origin::Variable(FILE_VARIABLE.to_owned());
                let hint = "name the configuration file, or unset the variable".to_owned();
                let key = "the file's name".to_owned();
                Err(Fault::Empty { key, origin, hint }.into())
            }
            Some(file) => Ok(Some(Source::File(file.into()))),
        }
    }

    /// An empty profile was meant to choose one, and nobody filled it in.
    fn check_profile(&self) -> Result<(), ConfigError> {
        match self.chosen_profile() {
            Some((profile, origin)) if profile.trim().is_empty() => {
                let hint = "name a profile of the configuration file, or leave it out".to_owned();
                let key = "the profile's name".to_owned();
                Err(Fault::Empty { key, origin, hint }.into())
            }
            _ => Ok(()),
        }
    }

    fn lay_file(&self, leaves: &mut Leaves, problems: &mut Problems) -> Result<(), ConfigError> {
        self.check_profile()?;
        let Some(source) =
            self.source.clone().map_or_else(|| self.named_file(), |s| Ok(Some(s)))?
        else {
            return match self.chosen_profile() {
                None => Ok(()),
                Some((profile, origin)) => Err(unknown_profile(profile, origin, None).into()),
            };
        };
        let file = source.open().map_err(|error| match &self.source {
            None => named_by_variable(error),
            Some(_) => error,
        })?;
        let mut layer = FileLayer {
            file: &file.name,
            profile: None,
            folder: &file.folder,
            environment: Some(&self.environment),
            leaves,
            problems,
        };
        layer.lay(&file.base);
        let chosen = self.chosen_profile();
        // The chosen profile comes last only for the order of problems: the others set nothing.
        for (name, section) in &file.profiles {
            let is_chosen = chosen.as_ref().is_some_and(|(chosen, _)| chosen == name);
            layer.profile = Some(name);
            layer.environment = is_chosen.then_some(&self.environment);
            layer.lay(section);
        }
        match chosen {
            Some((profile, origin)) if !file.profiles.iter().any(|(name, _)| name == profile) => {
                problems.add(unknown_profile(profile, origin, Some(&file)));
            }
            _ => {}
        }
        Ok(())
    }
}

impl fmt::Debug for Loader {
    /// Without values: any of them may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// A configuration file, parsed but not yet understood.
struct ConfigFile {
    name: String,
    folder: PathBuf,
    base: Node,
    profiles: Vec<(String, Node)>,
}

impl Source {
    fn open(self) -> Result<ConfigFile, ConfigError> {
        let (format, name, folder, text) = match self {
            Source::Text { format, name, text } => (format, name, PathBuf::new(), text),
            Source::File(file) => {
                let format = Format::of_file(&file)?;
                let text = read(&file, CONFIG_LEN_MAX)?;
                let whole = std::path::absolute(&file).unwrap_or_else(|_| file.clone());
                let folder = whole.parent().map(FilePath::to_owned).unwrap_or_default();
                (format, file.display().to_string(), folder, text)
            }
        };
        let syntax = |line, message| {
            let place =
                FilePosition { file: name.as_str().into(), line, profile: None, variables: vec![] };
            ConfigError::from(Fault::Syntax { origin: Origin::File(place), message })
        };
        let mut base = format.parse(&text).map_err(|error| syntax(error.line, error.message))?;
        let mut profiles = Vec::new();
        if let Value::Table(members) = &mut base.value
            && let Some(at) = members.iter().position(|(name, _)| name == "profile")
        {
            let (_, section) = members.remove(at);
            match section.value {
                Value::Table(sections) => profiles = sections,
                _ => {
                    let message = "profile expects tables, for example [profile.production]; \
                                   choose one by TENURE_PROFILE";
                    return Err(syntax(section.line, message.to_owned()));
                }
            }
        }
        Ok(ConfigFile { name, folder, base, profiles })
    }
}

/// Says who named a file that cannot be read.
fn named_by_variable(error: ConfigError) -> ConfigError {
    match error.problems().first().map(Problem::fault) {
        Some(Fault::Unreadable { file, reason }) if error.problems().len() == 1 => {
            let reason = format!("{reason} ({FILE_VARIABLE} names it)");
            Fault::Unreadable { file: file.clone(), reason }.into()
        }
        _ => error,
    }
}

fn unknown_profile(profile: &str, origin: Origin, file: Option<&ConfigFile>) -> Fault {
    let known: Vec<&str> = match file {
        Some(file) => file.profiles.iter().map(|(name, _)| name.as_str()).collect(),
        None => Vec::new(),
    };
    Fault::UnknownProfile {
        profile: profile.to_owned(),
        origin,
        file: file.map_or("a file (TENURE_CONFIG names none)".to_owned(), |file| file.name.clone()),
        known: if known.is_empty() { "no profile".to_owned() } else { known.join(", ") },
    }
}

/// How often a pipe is looked at, and the pause between two looks: together some two seconds, for
/// whoever writes into it.
const PIPE_LOOKS_MAX: u32 = 200;
const PIPE_LOOK_EVERY: Duration = Duration::from_millis(10);

/// The text of a file that holds a secret.
fn read_secret(file: &FilePath) -> Result<String, ConfigError> {
    read(file, SECRET_LEN_MAX)
}

/// Whether anybody may write it: whoever does decides where this process logs in, and as whom, and
/// by a hook which commands it runs. What is written into a device such as `/dev/null` is not read
/// there.
fn is_everybodys(found: &Metadata) -> bool {
    const OTHERS_WRITE: u32 = 0o002;
    !found.file_type().is_char_device() && found.permissions().mode() & OTHERS_WRITE != 0
}

/// The text of a file, up to a limit: a mistyped name may be a device that never ends, or a pipe
/// into which nobody writes.
fn read(file: &FilePath, len_max: u64) -> Result<String, ConfigError> {
    let unreadable =
        |reason: String| ConfigError::from(Fault::Unreadable { file: file.to_owned(), reason });
    // Opening a pipe that nobody writes into would wait for ever otherwise.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(file);
    let opened = opened.map_err(|error| unreadable(error.to_string()))?;
    // Of what was opened: another file may have the name by now.
    let found = opened.metadata().map_err(|error| unreadable(error.to_string()))?;
    if is_everybodys(&found) {
        let reason = "every user of this host may write it: chmod 600 it".to_owned();
        return Err(unreadable(reason));
    }
    let is_plain = found.is_file();
    let mut limited = opened.take(len_max + 1);
    let mut bytes = Vec::new();
    let mut looks = 0;
    loop {
        let reached = bytes.len();
        match limited.read_to_end(&mut bytes) {
            Ok(0) if reached == 0 && !is_plain && looks < PIPE_LOOKS_MAX => {}
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock && looks < PIPE_LOOKS_MAX => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(unreadable("nobody writes into it: name a file".to_owned()));
            }
            Err(error) => return Err(unreadable(error.to_string())),
        }
        // Whoever writes is given time from one piece to the next.
        looks = if bytes.len() > reached { 0 } else { looks + 1 };
        std::thread::sleep(PIPE_LOOK_EVERY);
    }
    if bytes.is_empty() && looks >= PIPE_LOOKS_MAX {
        return Err(unreadable("nobody writes into it: name a file".to_owned()));
    }
    if bytes.len() as u64 > len_max {
        return Err(unreadable(format!("is larger than {len_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| unreadable("is not UTF-8 text".to_owned()))
}
