//! Names chosen by users: resources, keys, instance ids. Parsed once, trusted afterwards.

use std::fmt;
use std::sync::Arc;

use crate::text::is_deceptive;

/// Why a name is refused. The message says what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct NameError(#[from] NameFault);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NameFault {
    /// Nothing was given.
    #[error("{what} is empty: give it at least one character")]
    Empty {
        /// Which name it is.
        what: &'static str,
    },
    /// More bytes than a key may sensibly carry.
    #[error("{what} is {len} bytes long, the limit is {max}: shorten it")]
    TooLong {
        /// Which name it is.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A character that cannot be shown or typed safely.
    #[error("{what} contains {found:?}: use {allowed}")]
    BadCharacter {
        /// Which name it is.
        what: &'static str,
        /// The offending character.
        found: char,
        /// What may be used instead.
        allowed: &'static str,
    },
    /// The side keys would fall into another cluster slot than the key itself.
    #[error(
        "key {key:?} has a `}}` that breaks its hash tag, so its side keys would land in another \
         cluster slot: remove the braces or enclose a part of the key in one `{{…}}` pair"
    )]
    BreaksHashTag {
        /// The whole key.
        key: String,
    },
}

/// The longest resource key, in bytes: long enough for any path, short enough for a log line.
pub const KEY_LEN_MAX: usize = 512;
/// The longest configured instance name, in bytes.
pub const INSTANCE_NAME_LEN_MAX: usize = 128;
/// The prefix of every key unless the user chooses another.
pub const DEFAULT_PREFIX: &str = "tenure:";

/// The resource of one election: its name and its keys in the store, all in one cluster slot.
///
/// ```
/// # use tenure_core::Resource;
/// let resource = Resource::named("nightly-report").unwrap();
/// assert_eq!(resource.key(), "tenure:nightly-report");
/// assert_eq!(resource.side_key("meta"), "{tenure:nightly-report}:meta");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    // Shared: an election and everything that speaks of it carry a copy.
    place: Arc<ResourceNames>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ResourceNames {
    name: Box<str>,
    key: Box<str>,
    heartbeat_prefix: Option<Box<str>>,
}

impl Resource {
    /// The resource `name` under the default prefix.
    pub fn named(name: &str) -> Result<Self, NameError> {
        Self::with_prefix(DEFAULT_PREFIX, name)
    }

    /// The resource `name` whose key is `prefix` followed by `name`.
    pub fn with_prefix(prefix: &str, name: &str) -> Result<Self, NameError> {
        check_text("resource name", name)?;
        Self::build(name, &format!("{prefix}{name}"))
    }

    /// The resource `name` kept at exactly `key`, for example to share the key with other programs.
    pub fn with_key(name: &str, key: &str) -> Result<Self, NameError> {
        check_text("resource name", name)?;
        Self::build(name, key)
    }

    fn build(name: &str, key: &str) -> Result<Self, NameError> {
        check_text("key", key)?;
        if hash_tag(key).is_none() && key.contains('}') {
            return Err(NameFault::BreaksHashTag { key: key.to_owned() }.into());
        }
        let place = ResourceNames { name: name.into(), key: key.into(), heartbeat_prefix: None };
        Ok(Resource { place: Arc::new(place) })
    }

    /// The same resource, whose leader also keeps a heartbeat for other programs, at `prefix`
    /// followed by its id.
    pub fn with_heartbeat_prefix(&self, prefix: &str) -> Result<Self, NameError> {
        check_text("heartbeat_prefix", prefix)?;
        let mut place = ResourceNames::clone(&self.place);
        place.heartbeat_prefix = Some(prefix.into());
        Ok(Resource { place: Arc::new(place) })
    }

    /// The name of the resource.
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// The key that holds the leader's id.
    pub fn key(&self) -> &str {
        &self.place.key
    }

    /// The key at which `id` keeps a heartbeat for other programs while it leads, if one is
    /// configured.
    pub fn heartbeat_key(&self, id: &InstanceId) -> Option<String> {
        let prefix = self.place.heartbeat_prefix.as_ref()?;
        Some(format!("{prefix}{id}"))
    }

    /// The key of a side record (`meta`, `beats`, …), in the cluster slot of [`key`](Self::key).
    pub fn side_key(&self, suffix: &str) -> String {
        let key = self.key();
        match hash_tag(key) {
            Some(_) => format!("{key}:{suffix}"),
            None => format!("{{{key}}}:{suffix}"),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The part of `key` that decides its cluster slot, when braces single one out.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The id of one process: a readable name and a random part that is new at every start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(Arc<str>);

impl InstanceId {
    /// Joins the configured `name` with a `nonce` that the caller drew at random for this start.
    pub fn new(name: &str, nonce: u64) -> Result<Self, NameError> {
        check_instance_name(name)?;
        Ok(InstanceId(format!("{name}_{:010x}", nonce & 0xff_ffff_ffff).into()))
    }

    /// An id read from the store. Nothing is checked, because other programs may write anything.
    pub fn seen(text: &str) -> Self {
        InstanceId(text.into())
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is not an instance but a mark that keeps everybody out, such as `~quarantine`.
    pub fn is_mark(&self) -> bool {
        self.0.starts_with('~')
    }

    /// The configured name, without the random part.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('_').map_or(&*self.0, |(name, _)| name)
    }

    /// Whether `text`, given by a user, names this instance: by the whole id or by its name.
    pub fn answers_to(&self, text: &str) -> bool {
        self.as_str() == text || self.name() == text
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_instance_name(name: &str) -> Result<(), NameError> {
    const WHAT: &str = "instance name";
    check_length(WHAT, name, INSTANCE_NAME_LEN_MAX)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    match name.chars().find(|&c| !allowed(c)) {
        None => Ok(()),
        Some(found) => Err(NameFault::BadCharacter {
            what: WHAT,
            found,
            allowed: "letters, digits and . _ : -",
        }
        .into()),
    }
}

fn check_text(what: &'static str, text: &str) -> Result<(), NameError> {
    check_length(what, text, KEY_LEN_MAX)?;
    match text.chars().find(|c| c.is_whitespace() || is_deceptive(*c)) {
        None => Ok(()),
        Some(found) => Err(NameFault::BadCharacter {
            what,
            found,
            allowed: "printable characters without spaces",
        }
        .into()),
    }
}

fn check_length(what: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    match text.len() {
        0 => Err(NameFault::Empty { what }.into()),
        len if len > max => Err(NameFault::TooLong { what, len, max }.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_keys_share_the_slot_of_their_key() {
        for key in ["tenure:a", "a{b", "{team}:job", "x{team}y", "a{b}c{d}"] {
            let resource = Resource::with_key("name", key).unwrap();
            let side = resource.side_key("meta");
            assert_eq!(hash_tag(&side).unwrap(), hash_tag(key).unwrap_or(key), "{key} and {side}");
        }
    }

    #[test]
    fn a_key_whose_braces_would_split_the_slot_is_refused() {
        for key in ["a}b", "a{}b", "}", "{}x"] {
            let error = Resource::with_key("name", key).unwrap_err();
            assert!(matches!(error, NameError(NameFault::BreaksHashTag { .. })), "{key}: {error}");
        }
    }

    #[test]
    fn a_heartbeat_for_other_programs_is_kept_only_where_one_was_asked_for() {
        let id = InstanceId::new("web", 1).unwrap();
        let resource = Resource::named("job").unwrap();
        assert_eq!(resource.heartbeat_key(&id), None);
        let seen = resource.with_heartbeat_prefix("app:heartbeat:").unwrap();
        assert_eq!(seen.heartbeat_key(&id).unwrap(), "app:heartbeat:web_0000000001");
        assert_eq!(seen.key(), resource.key());
        assert!(matches!(
            resource.with_heartbeat_prefix(""),
            Err(NameError(NameFault::Empty { .. }))
        ));
    }

    #[test]
    fn bad_names_say_what_is_wrong_with_them() {
        assert_eq!(
            Resource::named("").unwrap_err().to_string(),
            "resource name is empty: give it at least one character"
        );
        assert!(matches!(
            Resource::named(&"x".repeat(513)),
            Err(NameError(NameFault::TooLong { .. }))
        ));
        assert!(matches!(Resource::named("a b"), Err(NameError(NameFault::BadCharacter { .. }))));
        for unseen in ['\u{202e}', '\u{61c}', '\u{2060}', '\u{2064}', '\u{ad}', '\u{e0041}'] {
            let named = Resource::named(&format!("a{unseen}b"));
            assert!(matches!(named, Err(NameError(NameFault::BadCharacter { .. }))), "{unseen:?}");
        }
        assert!(matches!(
            InstanceId::new("web 1", 1),
            Err(NameError(NameFault::BadCharacter { .. }))
        ));
        assert!(matches!(InstanceId::new("", 1), Err(NameError(NameFault::Empty { .. }))));
    }

    #[test]
    fn an_instance_answers_to_its_name_and_to_its_whole_id() {
        let id = InstanceId::new("web_2", 0xabc).unwrap();
        assert_eq!(id.as_str(), "web_2_0000000abc");
        assert!(id.answers_to("web_2") && id.answers_to("web_2_0000000abc"));
        assert!(!id.answers_to("web"));
    }
}
