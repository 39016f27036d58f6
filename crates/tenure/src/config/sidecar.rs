//! The settings of the sidecar, resolved. Whoever serves it checks that they fit together.

use std::fmt;
use std::path::{Path as FilePath, PathBuf};

use super::layers::{Leaf, Leaves, bad_value};
use super::origin::Path;
use super::problem::Problems;
use super::store::ReadFile;
use super::value::{Parsed, shown_command};
use crate::Secret;

/// The settings of the sidecar: where it listens, who may call it, and its hooks.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SidecarConfig {
    /// The address to listen on.
    pub listen: String,
    /// The bearer token that callers must send. Needed beyond loopback unless they show
    /// certificates.
    pub token: Option<Secret>,
    /// Host names under which browsers may reach it, beside `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// Elections that it only observes.
    pub observe: Vec<String>,
    /// Whether `/health` reports a standby as degraded.
    pub standby_is_degraded: bool,
    /// Whether it may start without any election, because programs join over HTTP.
    pub empty: bool,
    /// The server's certificate, as PEM.
    pub cert_file: Option<PathBuf>,
    /// Its key, as PEM.
    pub key_file: Option<PathBuf>,
    /// The authorities that must have signed the certificates of callers, as PEM.
    pub client_ca_file: Option<PathBuf>,
    /// A command to run when this instance starts to lead.
    pub on_gain: Option<String>,
    /// A command to run when it stops leading.
    pub on_loss: Option<String>,
    /// An address to post to when this instance starts to lead.
    pub on_gain_url: Option<Secret>,
    /// An address to post to when it stops leading.
    pub on_loss_url: Option<Secret>,
    /// Whether the lease is released only after the hook for a loss has ended.
    pub on_loss_first: bool,
}

impl SidecarConfig {
    pub(super) fn read(leaves: &Leaves, file: ReadFile<'_>, problems: &mut Problems) -> Self {
        let section = Section { leaves };
        SidecarConfig {
            listen: section.text("listen").expect("listen has a default"),
            token: section.token(file, problems),
            hosts: section.list("hosts"),
            observe: section.list("observe"),
            standby_is_degraded: section.is_on("standby_is_degraded"),
            empty: section.is_on("empty"),
            cert_file: section.text("tls.cert_file").map(PathBuf::from),
            key_file: section.text("tls.key_file").map(PathBuf::from),
            client_ca_file: section.text("tls.client_ca_file").map(PathBuf::from),
            on_gain: section.text("on_gain"),
            on_loss: section.text("on_loss"),
            on_gain_url: section.text("on_gain_url").map(Secret::new),
            on_loss_url: section.text("on_loss_url").map(Secret::new),
            on_loss_first: section.is_on("on_loss_first"),
        }
    }
}

impl fmt::Debug for SidecarConfig {
    /// Of commands the program alone: their arguments may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = |command: &Option<String>| command.as_deref().map(shown_command);
        f.debug_struct("SidecarConfig")
            .field("listen", &self.listen)
            .field("token", &self.token)
            .field("hosts", &self.hosts)
            .field("observe", &self.observe)
            .field("standby_is_degraded", &self.standby_is_degraded)
            .field("empty", &self.empty)
            .field("cert_file", &self.cert_file)
            .field("key_file", &self.key_file)
            .field("client_ca_file", &self.client_ca_file)
            .field("on_gain", &command(&self.on_gain))
            .field("on_loss", &command(&self.on_loss))
            .field("on_gain_url", &self.on_gain_url)
            .field("on_loss_url", &self.on_loss_url)
            .finish()
    }
}

struct Section<'a> {
    leaves: &'a Leaves,
}

impl<'a> Section<'a> {
    fn leaf(&self, name: &str) -> Option<(Path, &'a Leaf)> {
        let path = Path::of(["sidecar"].into_iter().chain(name.split('.')));
        Some((path.clone(), self.leaves.get(&path)?))
    }

    fn text(&self, name: &str) -> Option<String> {
        match &self.leaf(name)?.1.parsed {
            Parsed::Text(text) => Some(text.clone()),
            Parsed::Secret(secret)
            | Parsed::Address(secret)
            | Parsed::Hook(secret)
            | Parsed::Command(secret) => Some(secret.reveal().to_owned()),
            _ => unreachable!("{name} is text"),
        }
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.leaf(name), Some((_, Leaf { parsed: Parsed::Switch(true), .. })))
    }

    fn list(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }

    /// A file outranks a text only in a stronger layer; in the same one the file wins, for it is
    /// the better place.
    fn token(&self, read: ReadFile<'_>, problems: &mut Problems) -> Option<Secret> {
        let (inline, file) = (self.leaf("token"), self.leaf("token_file"));
        let from_file = match (&inline, &file) {
            (Some((_, inline)), Some((_, file))) => inline.origin.layer() <= file.origin.layer(),
            (_, file) => file.is_some(),
        };
        let (path, leaf) = if from_file { file? } else { inline? };
        let text = match from_file {
            true => problems.take(read(FilePath::new(&self.text("token_file")?)))?,
            false => self.text("token")?,
        };
        let text = text.trim();
        if text.is_empty() {
            let problem = "is empty: everybody would know it; write at least 16 random characters";
            problems.add(bad_value(path.to_string(), leaf.origin.clone(), problem));
            return None;
        }
        Some(Secret::new(text))
    }
}
