//! The store's address: from one URL or from its parts, always resolved into one URL.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::Path as FilePath;

use super::belonging::drop_foreign_parts;
use super::layers::{Leaf, Leaves, bad_value};
use super::origin::{Origin, Path};
use super::problem::{ConfigError, Fault};
use super::resolve::Warning;
use super::url::{Url, encoded};
use super::value::Parsed;
use crate::Secret;

/// Where the store is and how to log in. Neither `Debug` nor `Display` shows the password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreConfig {
    url: Option<Secret>,
    insecure: bool,
}

impl StoreConfig {
    /// The whole address, including the password; `None` if no store is configured.
    pub fn url(&self) -> Option<&Secret> {
        self.url.as_ref()
    }

    /// Whether any TLS certificate is accepted.
    pub fn is_insecure(&self) -> bool {
        self.insecure
    }
}

impl fmt::Display for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url {
            Some(url) => f.write_str(&shown_address(url.reveal())),
            None => f.write_str("none"),
        }
    }
}

/// An address without what may be secret in it. Where it is not understood, everything before the
/// last `@` goes, for a password may contain any character when somebody forgot to encode it, and
/// so do the options; and what is no URL at all may be a password.
pub(super) fn shown_address(address: &str) -> String {
    // What is understood has its parts where they belong, so all but logins can be shown.
    if let Some(shown) = crate::backend::shown_address(address)
        && let Some((scheme, place)) = shown.split_once("://")
    {
        let login = if address.contains('@') { "***@" } else { "" };
        return format!("{scheme}://{login}{place}");
    }
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    let Some((scheme, rest)) = address.split_once("://").filter(|(text, _)| is_scheme(text)) else {
        return "***".to_owned();
    };
    let (login, place) = match rest.rsplit_once('@') {
        Some((_, place)) => ("***@", place),
        None => ("", rest),
    };
    // Sentinels and nodes are several; elsewhere options stand behind a comma, maybe a password.
    let is_several = ["+sentinel", "+cluster", "+quorum"].iter().any(|end| scheme.ends_with(end));
    let is_end = |c: char| "?#=".contains(c) || c == ',' && !is_several;
    let place = place.split(is_end).next().unwrap_or_default();
    format!("{scheme}://{login}{place}")
}

/// Reads the text of a file that a setting names.
pub(super) type ReadFile<'a> = &'a dyn Fn(&FilePath) -> Result<String, ConfigError>;

/// Resolves the settings below `store`. What a stronger layer replaced is taken out of `leaves`.
pub(super) fn resolve(
    leaves: &mut Leaves,
    read: ReadFile<'_>,
) -> Result<(StoreConfig, Vec<Warning>), ConfigError> {
    let warnings = drop_foreign_parts(leaves)?;
    resolve_address(leaves, read).map(|store| (store, warnings))
}

fn resolve_address(leaves: &mut Leaves, read: ReadFile<'_>) -> Result<StoreConfig, ConfigError> {
    choose_address(leaves)?;
    choose(leaves, &["password", "password_file"], "keep one of them")?;
    let store = Store { leaves, read };
    let Some((mut url, origin)) = store.address()? else {
        return store.refuse_parts_without_address();
    };
    if store.has_any_part() {
        let parsed = Url::parse(&url).ok_or_else(|| {
            let problem = "is not a URL, so nothing can be added: write redis://host:port";
            bad_value("store.url".to_owned(), origin.clone(), problem)
        })?;
        url = store.with_parts(parsed, &origin)?.to_string();
    }
    let insecure = url.starts_with("rediss") && url.ends_with("#insecure");
    Ok(StoreConfig { url: Some(Secret::new(url)), insecure })
}

/// Keeps the way of naming the store that the strongest layer uses.
fn choose_address(leaves: &mut Leaves) -> Result<(), ConfigError> {
    let chosen = choose(leaves, &["url", "url_file", "host", "socket"], "keep one of them")?;
    let Some(chosen) = chosen.filter(|name| *name != "host") else { return Ok(()) };
    let (Some(port), Some(address)) = (leaves.get(&key("port")), leaves.get(&key(chosen))) else {
        return Ok(());
    };
    if port.origin.layer() >= address.origin.layer() {
        let hint = "a port belongs to store.host: set the whole address in one place";
        return Err(contradiction("port", port, &format!("store.{chosen}"), &address.origin, hint));
    }
    leaves.remove(&key("port"));
    Ok(())
}

/// Of settings that say the same thing, keeps the one of the strongest layer.
fn choose(
    leaves: &mut Leaves,
    names: &[&'static str],
    hint: &str,
) -> Result<Option<&'static str>, ConfigError> {
    let mut given: Vec<(&'static str, &Leaf)> =
        names.iter().filter_map(|name| Some((*name, leaves.get(&key(name))?))).collect();
    given.sort_by_key(|(_, leaf)| std::cmp::Reverse(leaf.origin.layer()));
    let chosen = match given.as_slice() {
        [] => return Ok(None),
        [(one, a), (other, b), ..] if a.origin.layer() == b.origin.layer() => {
            return Err(contradiction(one, a, &format!("store.{other}"), &b.origin, hint));
        }
        [(chosen, _), ..] => *chosen,
    };
    let replaced: Vec<&str> = given.iter().skip(1).map(|(name, _)| *name).collect();
    replaced.iter().for_each(|name| leaves.remove(&key(name)));
    Ok(Some(chosen))
}

struct Store<'a> {
    leaves: &'a Leaves,
    read: ReadFile<'a>,
}

impl<'a> Store<'a> {
    fn leaf(&self, name: &str) -> Option<&'a Leaf> {
        self.leaves.get(&key(name))
    }

    fn text(&self, name: &str) -> Option<(String, &'a Leaf)> {
        let leaf = self.leaf(name)?;
        let text = match &leaf.parsed {
            Parsed::Text(text) => text.clone(),
            Parsed::Secret(secret) | Parsed::Address(secret) => secret.reveal().to_owned(),
            Parsed::Whole(number) => number.to_string(),
            _ => unreachable!("{name} is read as text"),
        };
        Some((text, leaf))
    }

    fn switch(&self, name: &str) -> Option<(bool, &'a Leaf)> {
        match self.leaf(name)? {
            leaf @ Leaf { parsed: Parsed::Switch(on), .. } => Some((*on, leaf)),
            _ => unreachable!("{name} is read as a switch"),
        }
    }

    /// The address by whichever way it was given, and where that stands.
    fn address(&self) -> Result<Option<(String, Origin)>, ConfigError> {
        if let Some((url, leaf)) = self.text("url") {
            return Ok(Some((given(&url, "store.url", leaf)?, leaf.origin.clone())));
        }
        if let Some((file, leaf)) = self.text("url_file") {
            let url = (self.read)(FilePath::new(&file))?;
            let key = format!("store.url_file: the file {file}");
            return Ok(Some((given(&url, &key, leaf)?, leaf.origin.clone())));
        }
        if let Some((socket, leaf)) = self.text("socket") {
            return Ok(Some((format!("unix://{}", encoded(&socket, "/")), leaf.origin.clone())));
        }
        let (host, port) = (self.text("host"), self.text("port"));
        let Some(origin) =
            [&host, &port].into_iter().flatten().map(|(_, leaf)| &leaf.origin).next()
        else {
            return Ok(None);
        };
        let host = match &host {
            Some((host, leaf)) => checked_host(host, &leaf.origin)?,
            None => "127.0.0.1".to_owned(),
        };
        let port = port.map_or_else(|| "6379".to_owned(), |(port, _)| port);
        Ok(Some((format!("redis://{host}:{port}"), origin.clone())))
    }

    fn has_any_part(&self) -> bool {
        let names = ["user", "password", "password_file", "database"];
        names.iter().any(|name| self.leaf(name).is_some()) || self.tls().is_some()
    }

    fn refuse_parts_without_address(&self) -> Result<StoreConfig, ConfigError> {
        let names = ["password", "password_file", "user", "database"];
        let part = names.iter().find_map(|name| Some((*name, &self.leaf(name)?.origin)));
        match part.or_else(|| self.tls().map(|(_, name, leaf)| (name, &leaf.origin))) {
            None => Ok(StoreConfig::default()),
            Some((name, origin)) => {
                let problem = "is set but no address: set store.url or store.host as well";
                Err(bad_value(format!("store.{name}"), origin.clone(), problem))
            }
        }
    }

    fn with_parts(&self, mut url: Url, origin: &Origin) -> Result<Url, ConfigError> {
        self.add_tls(&mut url, origin)?;
        if let Some((user, leaf)) = self.text("user") {
            not_empty("user", &user, leaf)?;
            self.put("user", leaf, origin, &mut url.user, encoded(&user, ""))?;
        }
        let password = match self.text("password_file") {
            Some((file, leaf)) => {
                let text = (self.read)(FilePath::new(&file))?;
                let text = text
                    .strip_suffix('\n')
                    .map_or(text.as_str(), |t| t.strip_suffix('\r').unwrap_or(t));
                if text.trim().is_empty() {
                    let problem = "names an empty file: write the password into it, or leave the \
                                   setting out";
                    let key = "store.password_file".to_owned();
                    return Err(bad_value(key, leaf.origin.clone(), problem));
                }
                Some(("password_file", text.to_owned(), leaf))
            }
            None => match self.text("password") {
                Some((text, leaf)) => {
                    not_empty("password", &text, leaf)?;
                    Some(("password", text, leaf))
                }
                None => None,
            },
        };
        if let Some((name, text, leaf)) = password {
            self.put(name, leaf, origin, &mut url.password, encoded(&text, ""))?;
        }
        if let Some((database, leaf)) = self.text("database") {
            self.put("database", leaf, origin, &mut url.database, database)?;
        }
        match (&url.user, &url.password, self.leaf("user")) {
            (Some(_), None, Some(leaf)) => {
                let problem = "needs a password: set store.password or store.password_file";
                Err(bad_value("store.user".to_owned(), leaf.origin.clone(), problem))
            }
            _ => Ok(url),
        }
    }

    /// Fills a part of the URL, unless the URL has it from a stronger layer.
    fn put(
        &self,
        name: &str,
        leaf: &Leaf,
        url_origin: &Origin,
        slot: &mut Option<String>,
        value: String,
    ) -> Result<(), ConfigError> {
        if slot.as_ref().is_none_or(|known| *known == value) {
            *slot = Some(value);
            return Ok(());
        }
        match leaf.origin.layer().cmp(&url_origin.layer()) {
            std::cmp::Ordering::Greater => *slot = Some(value),
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                let hint = "the URL has one, too: keep one of them";
                return Err(contradiction(name, leaf, "store.url", url_origin, hint));
            }
        }
        Ok(())
    }

    /// Whether to speak TLS, if any setting but the URL says so, and which.
    fn tls(&self) -> Option<(bool, &'static str, &'a Leaf)> {
        if let Some((on, leaf)) = self.switch("tls.enabled") {
            return Some((on, "tls.enabled", leaf));
        }
        let files = ["tls.ca_file", "tls.cert_file", "tls.key_file"];
        let implied = files.into_iter().find_map(|name| Some((true, name, self.leaf(name)?)));
        implied.or_else(|| match self.switch("tls.insecure") {
            Some((true, leaf)) => Some((true, "tls.insecure", leaf)),
            _ => None,
        })
    }

    fn add_tls(&self, url: &mut Url, origin: &Origin) -> Result<(), ConfigError> {
        let Some((on, name, leaf)) = self.tls() else { return Ok(()) };
        // `+sentinel` and `+cluster` stay as they are.
        let (plain, kind) = url.scheme.split_at(url.scheme.find('+').unwrap_or(url.scheme.len()));
        if !matches!(plain, "redis" | "rediss") {
            let problem = "is for redis:// and rediss:// addresses only";
            return match on {
                true => Err(bad_value(format!("store.{name}"), leaf.origin.clone(), problem)),
                false => Ok(()),
            };
        }
        let from_url = self.leaf("url").or(self.leaf("url_file")).is_some();
        let mut scheme = from_url.then(|| url.scheme.clone());
        let wanted = format!("{}{kind}", if on { "rediss" } else { "redis" });
        self.put(name, leaf, origin, &mut scheme, wanted)?;
        url.scheme = scheme.expect("put leaves a value");
        if !url.scheme.starts_with("rediss") {
            return Ok(());
        }
        for (name, option) in [("ca_file", "ca"), ("cert_file", "cert"), ("key_file", "key")] {
            if let Some((file, leaf)) = self.text(&format!("tls.{name}")) {
                let mut slot = url.take_option(option);
                self.put(&format!("tls.{name}"), leaf, origin, &mut slot, encoded(&file, "/"))?;
                url.options.push((option.to_owned(), slot.expect("put leaves a value")));
            }
        }
        if let Some((true, _)) = self.switch("tls.insecure") {
            url.fragment = Some("insecure".to_owned());
        }
        Ok(())
    }
}

/// The address without blanks around it. Nothing is no address.
fn given(url: &str, key: &str, leaf: &Leaf) -> Result<String, ConfigError> {
    match url.trim() {
        "" => Err(empty(key, leaf.origin.clone())),
        url => Ok(url.to_owned()),
    }
}

/// Refuses a part of the login that says nothing: a variable that nobody filled in.
fn not_empty(name: &str, text: &str, leaf: &Leaf) -> Result<(), ConfigError> {
    if !text.trim().is_empty() {
        return Ok(());
    }
    let (key, hint) =
        (format!("store.{name}"), format!("write the {name}, or take the setting away"));
    Err(Fault::Empty { key, origin: leaf.origin.clone(), hint }.into())
}

/// Refuses an address that says nothing.
fn empty(key: &str, origin: Origin) -> ConfigError {
    let hint = "write the store's address, such as redis://host, or take the setting away";
    Fault::Empty { key: key.to_owned(), origin, hint: hint.to_owned() }.into()
}

fn checked_host(host: &str, origin: &Origin) -> Result<String, ConfigError> {
    let refuse = |problem: &str| Err(bad_value("store.host".to_owned(), origin.clone(), problem));
    if host.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{host}]"));
    }
    match host {
        "" => refuse("is empty: write a host name or an IP address"),
        _ if host.contains("://") => refuse("is a whole address: call it store.url"),
        _ if host.contains(':') => refuse("has a colon: give the port as store.port"),
        _ if host.contains(|c: char| c.is_control() || " /?#@,".contains(c)) => {
            refuse("is not a host name or an IP address")
        }
        _ => Ok(host.to_owned()),
    }
}

fn contradiction(
    name: &str,
    leaf: &Leaf,
    other: &str,
    other_origin: &Origin,
    hint: &str,
) -> ConfigError {
    let problem = Fault::Contradiction {
        key: format!("store.{name}"),
        origin: leaf.origin.clone(),
        other: other.to_owned(),
        other_origin: other_origin.clone(),
        hint: hint.to_owned(),
    };
    problem.into()
}

/// The path of a setting below `store`; `name` may have a dot.
pub(super) fn key(name: &str) -> Path {
    Path::of(["store"].into_iter().chain(name.split('.')))
}
