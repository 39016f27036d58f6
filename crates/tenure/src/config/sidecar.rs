//! The settings of the sidecar, resolved. Whoever serves it checks that they fit together.

use std::path::{Path as FilePath, PathBuf};

use super::layers::{Leaf, Leaves, bad_value};
use super::origin::Path;
use super::problem::Problems;
use super::store::ReadFile;
use super::value::Parsed;
use crate::Secret;

/// The settings of the sidecar: where it listens, and who may call it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        }
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
            Parsed::Secret(secret) => Some(secret.reveal().to_owned()),
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
