//! The hooks of one election, resolved: its own, else those of `defaults`.
//!
//! An address of a weaker layer, or of `defaults`, may have headers and a secret beside it. They
//! were meant for that address and are not sent to another host that is set elsewhere.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use super::election::Scope;
use super::layers::{Leaf, bad_value};
use super::origin::{Layer, Origin, Path};
use super::problem::Problems;
use super::resolve::Warning;
use super::store::ReadFile;
use super::url::Url;
use super::value::Parsed;
use crate::Secret;

/// Below it a signature can be forged by trying.
const SECRET_LEN_MIN: usize = 16;
const HEADER_LEN_MAX: usize = 4096;
/// Headers that belong to the request itself, or to its signature.
const TAKEN_HEADERS: [&str; 12] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// What a sidecar calls when this instance starts or stops leading one election. `Debug` shows
/// neither commands nor addresses: both may hold secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HooksConfig {
    /// A shell command to run when this instance starts to lead.
    pub on_gain: Option<Secret>,
    /// A shell command to run when it stops leading.
    pub on_loss: Option<Secret>,
    /// Where to post when this instance starts to lead.
    pub on_gain_url: Option<WebhookConfig>,
    /// Where to post when it stops leading.
    pub on_loss_url: Option<WebhookConfig>,
    /// Whether the lease is released only after the hooks on loss have ended.
    pub on_loss_first: bool,
}

/// An address to post to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookConfig {
    /// The address.
    pub url: Secret,
    /// Headers to send, by their names in small letters.
    pub headers: BTreeMap<String, Secret>,
    /// The secret that signs what is sent.
    pub secret: Option<Secret>,
}

/// Reads the hooks of one scope.
pub(super) struct HooksReader<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) read: ReadFile<'a>,
    pub(super) problems: &'a mut Problems,
    pub(super) warnings: &'a mut Vec<Warning>,
}

const ADDRESSES: [&str; 2] = ["on_gain_url", "on_loss_url"];

impl<'a> HooksReader<'a> {
    pub(super) fn read(mut self) -> HooksConfig {
        HooksConfig {
            on_gain: self.command("on_gain"),
            on_loss: self.command("on_loss"),
            on_gain_url: self.webhook("on_gain_url"),
            on_loss_url: self.webhook("on_loss_url"),
            on_loss_first: matches!(
                self.scope.find("hooks.on_loss_first"),
                Some((_, Leaf { parsed: Parsed::Switch(true), .. }))
            ),
        }
    }

    /// An empty one switches that of `defaults` off.
    fn command(&self, name: &str) -> Option<Secret> {
        let (_, leaf) = self.scope.find(&format!("hooks.{name}"))?;
        Some(text(leaf)).filter(|command| !command.reveal().trim().is_empty())
    }

    fn webhook(&mut self, name: &str) -> Option<WebhookConfig> {
        let (_, leaf) = self.scope.find(&format!("hooks.{name}"))?;
        let url = Some(text(leaf)).filter(|url| !url.reveal().trim().is_empty())?;
        let secret = self.secret(leaf);
        Some(WebhookConfig { headers: self.headers(leaf), secret, url })
    }

    /// Those of `defaults`, with those of the election laid over them.
    fn headers(&mut self, url: &Leaf) -> BTreeMap<String, Secret> {
        let mut headers = BTreeMap::new();
        for (index, scope) in self.scope.paths().iter().enumerate().rev() {
            let above = scope.child("hooks").child("headers");
            for (name, leaf) in self.scope.leaves().below(&above) {
                let path = above.child(name);
                if let Err(problem) = check_header(name, text(leaf).reveal()) {
                    self.problems.add(bad_value(path.to_string(), leaf.origin.clone(), &problem));
                } else if self.is_meant_for(url, index, leaf) {
                    headers.insert(header_name(name, &leaf.origin), text(leaf));
                } else {
                    self.warn(path, leaf, url);
                }
            }
        }
        headers
    }

    /// Of the text and the file in one scope the stronger layer counts; in the same one the file,
    /// for it is the better place.
    fn secret(&mut self, url: &Leaf) -> Option<Secret> {
        for (index, scope) in self.scope.paths().iter().enumerate() {
            let given = ["secret", "secret_file"].into_iter().filter_map(|name| {
                let path = scope.child("hooks").child(name);
                Some((self.scope.leaves().get(&path)?, path))
            });
            let Some((leaf, path)) = given.max_by_key(|(leaf, _)| leaf.origin.layer()) else {
                continue;
            };
            if !self.is_meant_for(url, index, leaf) {
                self.warn(path, leaf, url);
                continue;
            }
            return self.checked_secret(&path, leaf);
        }
        None
    }

    fn checked_secret(&mut self, path: &Path, leaf: &Leaf) -> Option<Secret> {
        let text = match &leaf.parsed {
            Parsed::Text(file) => self.problems.take((self.read)(FilePath::new(file)))?,
            _ => text(leaf).reveal().to_owned(),
        };
        let secret = text.trim();
        if secret.len() < SECRET_LEN_MIN {
            let problem = format!(
                "has {} characters: use at least {SECRET_LEN_MIN}, drawn at random",
                secret.len()
            );
            self.problems.add(bad_value(path.to_string(), leaf.origin.clone(), &problem));
            return None;
        }
        Some(Secret::new(secret))
    }

    /// Whether a header or secret, in the scope of this index, was meant for the host of `url`:
    /// no other address was set where it was.
    fn is_meant_for(&self, url: &Leaf, index: usize, leaf: &Leaf) -> bool {
        let scopes = &self.scope.paths()[index..];
        let addresses = scopes.iter().flat_map(|scope| {
            ADDRESSES
                .iter()
                .flat_map(move |name| self.scope.leaves().all_of(&scope.child("hooks").child(name)))
        });
        let beside = addresses.filter(|address| source(address) <= source(leaf));
        let mut hosts = beside.map(|address| host(text(address).reveal())).peekable();
        let wanted = host(text(url).reveal());
        hosts.peek().is_none() || hosts.any(|host| host == wanted)
    }

    fn warn(&mut self, path: Path, leaf: &Leaf, url: &Leaf) {
        let text = format!(
            "not sent to the address from {}: it was set beside another one; set it in the same \
             place as the address",
            url.origin
        );
        let warning = Warning { key: path.to_string(), origin: leaf.origin.clone(), text };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

fn text(leaf: &Leaf) -> Secret {
    match &leaf.parsed {
        Parsed::Secret(text) | Parsed::Hook(text) | Parsed::Command(text) => text.clone(),
        other => unreachable!("{} is no secret", other.shown()),
    }
}

/// A profile is a part of its file.
fn source(leaf: &Leaf) -> Layer {
    match leaf.origin.layer() {
        Layer::Profile => Layer::File,
        layer => layer,
    }
}

/// Scheme, host and port of an address; all of it where it is not understood.
fn host(address: &str) -> String {
    let address = address.trim();
    match Url::parse(address) {
        Some(url) => format!("{}://{}", url.scheme, url.place()).to_ascii_lowercase(),
        None => address.to_owned(),
    }
}

/// A variable cannot spell a hyphen: `…__HEADERS__X_TEAM` is `x-team`.
fn header_name(name: &str, origin: &Origin) -> String {
    let name = name.to_ascii_lowercase();
    match origin {
        Origin::Variable(_) => name.replace('_', "-"),
        _ => name,
    }
}

/// What is wrong with a header, without its value.
fn check_header(name: &str, value: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err("is no name of a header: use letters, digits and hyphens".to_owned());
    }
    let taken = name.to_ascii_lowercase().replace('_', "-");
    if TAKEN_HEADERS.contains(&taken.as_str()) {
        return Err("is set by the sidecar itself: leave it out".to_owned());
    }
    if value.len() > HEADER_LEN_MAX {
        return Err(format!("has {} bytes: at most {HEADER_LEN_MAX} are sent", value.len()));
    }
    match value.chars().all(|c| c == '\t' || (' '..='~').contains(&c)) {
        true => Ok(()),
        false => Err("has a character that a header cannot hold: use plain ASCII".to_owned()),
    }
}
