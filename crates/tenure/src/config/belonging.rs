//! Which logins and TLS settings belong to the address that counts.
//!
//! A stronger layer may name another store than a weaker one does. What the weaker one says about
//! logging in was meant for its own address, and must not be sent to the other one.

use super::layers::{Leaf, Leaves};
use super::origin::{Layer, Origin};
use super::problem::{ConfigError, Fault};
use super::resolve::Warning;
use super::store::key;
use super::url::Url;
use super::value::Parsed;

/// The settings that name a store.
const ADDRESS: [&str; 5] = ["url", "url_file", "host", "port", "socket"];
/// The settings that are sent to it, or decide how they are.
const LOGIN: [&str; 3] = ["user", "password", "password_file"];
const TLS: [&str; 5] =
    ["tls.enabled", "tls.ca_file", "tls.cert_file", "tls.key_file", "tls.insecure"];

/// Takes the parts out that were set for another address, and says so for each.
pub(super) fn drop_foreign_parts(leaves: &mut Leaves) -> Result<Vec<Warning>, ConfigError> {
    let known = Known::gather(leaves);
    let Some(chosen) = known.address_at(Layer::Argument) else { return Ok(Vec::new()) };
    if chosen.place.trim().is_empty() {
        // Refused as such.
        return Ok(Vec::new());
    }
    let mut foreign = Vec::new();
    for name in LOGIN.into_iter().chain(TLS) {
        let Some(leaf) = leaves.get(&key(name)) else { continue };
        let layer = source(leaf);
        if layer == Layer::Default || layer >= chosen.layer {
            continue;
        }
        let meant = known.meant_by(layer, chosen.layer);
        let is_elsewhere = meant.as_ref().is_some_and(|meant| meant.place != chosen.place);
        let is_bared = chosen.is_plain == Some(true) && known.wants_tls_below(chosen.layer);
        if is_elsewhere && chosen.is_plain.is_none() && name.starts_with("tls") {
            return Err(undecided(name, leaf, &chosen.origin));
        }
        if is_elsewhere || is_bared {
            foreign.push((name, warning(name, leaf, is_elsewhere, &chosen.origin)));
        }
    }
    foreign.iter().for_each(|(name, _)| leaves.remove(&key(name)));
    Ok(foreign.into_iter().map(|(_, warning)| warning).collect())
}

fn warning(name: &str, leaf: &Leaf, is_elsewhere: bool, address: &Origin) -> Warning {
    let why = match is_elsewhere {
        true => format!("it was set for another address than the one from {address}"),
        false => format!("it was set together with TLS, and the address from {address} has none"),
    };
    let text = format!("not used: {why}; set it in the same place as the address");
    Warning { key: format!("store.{name}"), origin: leaf.origin.clone(), text }
}

/// A host does not say whether TLS is spoken there, and guessing could send a login in the clear.
fn undecided(name: &str, leaf: &Leaf, address: &Origin) -> ConfigError {
    let problem = Fault::Contradiction {
        key: format!("store.{name}"),
        origin: leaf.origin.clone(),
        other: "store.host".to_owned(),
        other_origin: address.clone(),
        hint: "it was set for another host: say in the same place as the host whether that one \
               speaks TLS, by store.tls.enabled, or name it by a whole URL"
            .to_owned(),
    };
    problem.into()
}

/// A profile is a part of its file: who writes one writes the other, so that it counts as that.
fn source(leaf: &Leaf) -> Layer {
    match leaf.origin.layer() {
        Layer::Profile => Layer::File,
        layer => layer,
    }
}

/// An address as one layer sees it.
struct Address {
    place: String,
    /// `None` where nothing but the TLS settings says so.
    is_plain: Option<bool>,
    layer: Layer,
    origin: Origin,
}

/// What any layer says about the address and about TLS, replaced or not.
struct Known<'a> {
    address: Vec<(&'static str, &'a Leaf)>,
    tls: Vec<(&'static str, &'a Leaf)>,
}

impl<'a> Known<'a> {
    fn gather(leaves: &'a Leaves) -> Self {
        let all = |names: &[&'static str]| {
            let named = names.iter().flat_map(|name| {
                leaves.all_of(&key(name)).into_iter().map(move |leaf| (*name, leaf))
            });
            named.filter(|(_, leaf)| source(leaf) > Layer::Default).collect()
        };
        Known { address: all(&ADDRESS), tls: all(&TLS) }
    }

    /// The address of which a part in `layer` speaks: that of its own layer or of a weaker one,
    /// else the first that is laid over it before the one that counts.
    fn meant_by(&self, layer: Layer, chosen: Layer) -> Option<Address> {
        self.address_at(layer).or_else(|| {
            let layers = self.address.iter().map(|(_, leaf)| source(leaf));
            let next = layers.filter(|other| *other > layer && *other < chosen).min()?;
            self.address_at(next)
        })
    }

    /// What counts as the address if nothing stronger than `layer` is looked at.
    fn address_at(&self, layer: Layer) -> Option<Address> {
        let visible = || self.address.iter().filter(|(_, leaf)| source(leaf) <= layer);
        let strongest = |names: &[&str]| {
            let named = visible().filter(|(name, _)| names.contains(name));
            named.max_by_key(|(_, leaf)| leaf.origin.layer()).copied()
        };
        let (name, leaf) = strongest(&ADDRESS)?;
        let (place, is_plain) = match name {
            "url" => place_of(&text(leaf)),
            "url_file" => (format!("file {}", text(leaf)), None),
            "socket" => (format!("unix {}", text(leaf)), Some(false)),
            _ => {
                let host = strongest(&["host"]).map_or("127.0.0.1".to_owned(), |(_, l)| text(l));
                let port = strongest(&["port"]).map_or("6379".to_owned(), |(_, l)| text(l));
                (format!("{}:{port}", host.to_ascii_lowercase()), None)
            }
        };
        Some(Address { place, is_plain, layer: source(leaf), origin: leaf.origin.clone() })
    }

    /// Whether the strongest word about TLS below `layer` is that it is spoken, and no stronger one
    /// takes it back.
    fn wants_tls_below(&self, layer: Layer) -> bool {
        let switch = self.tls.iter().filter(|(name, _)| *name == "tls.enabled");
        match switch.max_by_key(|(_, leaf)| leaf.origin.layer()) {
            Some((_, leaf)) => source(leaf) < layer && leaf.parsed == Parsed::Switch(true),
            None => self
                .tls
                .iter()
                .any(|(name, leaf)| source(leaf) < layer && (name.ends_with("_file"))),
        }
    }
}

/// Where a URL leads, and whether it says that TLS is not spoken there.
fn place_of(text: &str) -> (String, Option<bool>) {
    let Some(url) = Url::parse(text.trim()) else { return (text.to_owned(), None) };
    let (scheme, kind) = url.scheme.split_at(url.scheme.find('+').unwrap_or(url.scheme.len()));
    match scheme {
        "unix" => (format!("unix {}", url.place()), Some(false)),
        "redis" | "rediss" => {
            let place = url.place().to_ascii_lowercase();
            let place = match kind.is_empty() && !has_port(&place) {
                true => format!("{place}:6379"),
                false => place,
            };
            (format!("{place}{kind}"), Some(scheme == "redis"))
        }
        _ => (format!("{}://{}", url.scheme, url.place()), None),
    }
}

fn has_port(place: &str) -> bool {
    place.rsplit_once(']').map_or(place, |(_, after)| after).contains(':')
}

fn text(leaf: &Leaf) -> String {
    match &leaf.parsed {
        Parsed::Text(text) => text.clone(),
        Parsed::Secret(secret) | Parsed::Address(secret) => secret.reveal().to_owned(),
        Parsed::Whole(number) => number.to_string(),
        other => other.shown(),
    }
}
