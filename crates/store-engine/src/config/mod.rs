//! Settings: from redis.conf, from the command line, and changed by CONFIG SET.
//!
//! Values are kept as their canonical texts, for CONFIG GET and CONFIG REWRITE. Whoever acts on
//! them takes [`Settings`], which is read from the texts at each change.

pub(crate) mod commands;
pub(crate) mod events;
mod file;
mod rewrite;
mod setting;
mod settings;
mod table;

pub use file::{
    ConfigError, Include, argument_lines, name_matches, parse_arguments, parse_arguments_including,
    parse_file, parse_file_including,
};
pub use rewrite::rewrite_file;
pub(crate) use rewrite::rewrite_whole_file;
pub use setting::{Kind, Setting, SettingDifference};
pub(crate) use setting::{is_host, memory as parse_memory};
pub use settings::{
    AnnounceSettings, AppendSettings, ClientAuth, ClientSettings, ClusterSettings, EndpointType,
    ListenSettings, LoadMode, LogSettings, OomMode, OomSettings, OutputLimit, OutputLimits,
    Permission, ProcessSettings, ReplicaSettings, Settings, ShutdownOptions, SnapshotSettings,
    Supervision, SystemLogSettings, TlsSettings,
};
pub use table::SETTINGS;

use crate::acl::{self, RuleContext};
use crate::registry::Registry;

/// Requests are shorter than this, whatever the settings say, so that spans are 32 bits.
pub(crate) const REQUEST_MAX: i64 = u32::MAX as i64 - 1024 * 1024;

/// The canonical texts of all settings.
#[derive(Clone, Debug)]
struct Texts {
    /// One per row of [`SETTINGS`].
    values: Vec<String>,
    /// `notify-keyspace-events` as it was set: like Redis we do not tell all of it again.
    event_mask: u32,
}

impl Texts {
    /// The text of a setting. Panics for a name not in the table.
    fn text(&self, name: &str) -> &str {
        &self.values[index_of(name)]
    }

    /// A setting that is a number. Panics for any other.
    fn number(&self, name: &str) -> i64 {
        self.text(name).parse().expect("settings asked for as numbers are numbers")
    }

    /// A setting that is a number and not negative.
    fn size(&self, name: &str) -> usize {
        self.number(name) as usize
    }

    /// A setting that is yes or no.
    fn is_on(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }
}

/// All settings with their values.
#[derive(Clone, Debug)]
pub struct Config {
    texts: Texts,
    settings: Settings,
    /// `user` lines: a name and its rules.
    users: Vec<Vec<String>>,
    /// `rename-command` lines: a command and its new name.
    renamed: Vec<(String, String)>,
    /// Whether a `save` line was read: the first replaces the default, further ones add to it.
    has_save_line: bool,
    /// Whether it is for a sentinel, which has other commands.
    is_sentinel: bool,
}

impl Default for Config {
    fn default() -> Self {
        let values = SETTINGS.iter().map(|setting| setting.default.to_owned()).collect();
        let texts = Texts { values, event_mask: 0 };
        let settings = Settings::read(&texts);
        let (users, renamed) = (Vec::new(), Vec::new());
        Self { texts, settings, users, renamed, has_save_line: false, is_sentinel: false }
    }
}

impl Config {
    /// The defaults of a sentinel: its users have rights to the commands of sentinels.
    pub fn of_sentinel() -> Self {
        Self { is_sentinel: true, ..Self::default() }
    }

    /// All settings as values.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Finds a setting by name or alias.
    pub fn find(name: &str) -> Option<&'static Setting> {
        let lower = name.to_ascii_lowercase();
        SETTINGS.iter().find(|setting| setting.name == lower || setting.alias == Some(&lower))
    }

    /// The canonical text of a setting, as CONFIG GET tells it.
    pub fn text_of(&self, setting: &Setting) -> &str {
        self.texts.text(setting.name)
    }

    /// Sets a value given as words. Fails with the reason in the words of Redis.
    pub fn set(&mut self, setting: &Setting, words: &[&str]) -> Result<(), String> {
        let mut value = setting.parse(words)?;
        if setting.name == "hz" {
            // Out of bounds is brought within them rather than refused.
            value = value.parse::<i64>().map_or(value, |hz| hz.clamp(1, 500).to_string());
        }
        if setting.name == "notify-keyspace-events" {
            self.texts.event_mask = words.iter().find_map(|word| events::parse(word)).unwrap_or(0);
        }
        if setting.kind == Kind::OutputLimits {
            value = self.merged_output_limits(&value);
        }
        self.texts.values[index_of(setting.name)] = value;
        self.settings = Settings::read(&self.texts);
        Ok(())
    }

    /// Takes over what `other` has for a setting.
    pub(crate) fn copy(&mut self, other: &Config, setting: &Setting) {
        self.texts.values[index_of(setting.name)] = other.text_of(setting).to_owned();
        self.settings = Settings::read(&self.texts);
    }

    /// A `save` line. Further lines add to the first; an empty one takes all points away.
    pub(crate) fn add_save_points(
        &mut self,
        setting: &Setting,
        words: &[&str],
    ) -> Result<(), String> {
        let added = setting.parse(words)?;
        let known = if self.has_save_line { self.text_of(setting) } else { "" };
        let value = match added.is_empty() {
            true => String::new(),
            false => format!("{known} {added}").trim_start().to_owned(),
        };
        self.has_save_line = true;
        self.set(setting, &[&value])
    }

    /// The next `save` line replaces all save points, as the first of a file does.
    pub fn forget_save_lines(&mut self) {
        self.has_save_line = false;
    }

    /// Users by name with their rules, from lines that begin with `user`.
    pub fn users(&self) -> &[Vec<String>] {
        &self.users
    }

    /// Commands with the names that clients call them by, empty where they may not.
    pub(crate) fn renamed(&self) -> &[(String, String)] {
        &self.renamed
    }

    /// `rename-command`. Fails when there is no such command, or the name is taken.
    pub(crate) fn rename_command(&mut self, words: &[&str]) -> Result<(), String> {
        let [name, new_name] = words else { return Err("wrong number of arguments".to_owned()) };
        let mut registry = Registry::new();
        let known = self.renamed.iter().map(|(name, new_name)| (name.as_str(), new_name.as_str()));
        for (name, new_name) in known.chain([(*name, *new_name)]) {
            registry.rename(name, new_name)?;
        }
        self.renamed.push(((*name).to_owned(), (*new_name).to_owned()));
        Ok(())
    }

    /// Adds a user. Fails when a rule makes no sense, or the name was there before.
    pub(crate) fn add_user(&mut self, words: &[&str]) -> Result<(), String> {
        let [name, rules @ ..] = words else { return Err("wrong number of arguments".to_owned()) };
        if self.users.iter().any(|user| user[0] == *name) {
            let text = "Duplicate user found. A user can only be defined once in config files";
            return Err(text.to_owned());
        }
        if name.is_empty() {
            return Err("the name of the user is empty".to_owned());
        }
        if acl::has_space(name.as_bytes()) {
            return Err("Spaces not allowed in ACL usernames".to_owned());
        }
        let registry = if self.is_sentinel { Registry::of_sentinel() } else { Registry::new() };
        let rule_context = RuleContext { registry: &registry, all_channels: false };
        let rules: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
        acl::user_from_words(rule_context, &rules)
            .map_err(|(rule, reason)| format!("Error in rule '{rule}': {reason}"))?;
        self.users.push(words.iter().map(|word| (*word).to_owned()).collect());
        Ok(())
    }

    /// Replaces the users by those of these lines, for a file that keeps them; none where an
    /// ACL file does, or where nobody but the default user is there.
    pub(crate) fn set_user_lines(&mut self, lines: &[Vec<u8>]) {
        let is_plain = lines == [b"user default on nopass ~* &* +@all"];
        self.users.clear();
        if is_plain || !self.settings.clients.acl_file.is_empty() {
            return;
        }
        let words = |line: &Vec<u8>| {
            let text = String::from_utf8_lossy(line);
            text.split(' ').skip(1).map(str::to_owned).collect()
        };
        self.users = lines.iter().map(words).collect();
    }

    /// Names with their values, aliases too, sorted; without settings that are asked for by name.
    pub fn pairs(&self) -> Vec<(&'static str, &str)> {
        let mut pairs = Vec::new();
        let told =
            SETTINGS.iter().zip(&self.texts.values).filter(|(setting, _)| !setting.is_hidden);
        for (setting, value) in told {
            pairs.push((setting.name, value.as_str()));
            pairs.extend(setting.alias.map(|alias| (alias, value.as_str())));
        }
        pairs.sort_unstable();
        pairs
    }

    /// Classes that were not named keep their limits.
    fn merged_output_limits(&self, changed: &str) -> String {
        let mut limits: Vec<(String, String)> = Vec::new();
        let before = self.texts.text("client-output-buffer-limit").to_owned();
        for text in [before.as_str(), changed] {
            let words: Vec<&str> = text.split(' ').collect();
            for limit in words.chunks(4) {
                let (class, rest) = (limit[0].to_owned(), limit[1..].join(" "));
                match limits.iter_mut().find(|(known, _)| *known == class) {
                    Some((_, value)) => *value = rest,
                    None => limits.push((class, rest)),
                }
            }
        }
        let words: Vec<String> =
            limits.iter().map(|(class, rest)| format!("{class} {rest}")).collect();
        words.join(" ")
    }
}

fn index_of(name: &str) -> usize {
    SETTINGS
        .binary_search_by(|setting| setting.name.cmp(name))
        .unwrap_or_else(|_| panic!("no setting is called {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_default_is_a_value() {
        assert!(SETTINGS.is_sorted_by_key(|setting| setting.name));
        for setting in SETTINGS {
            let words: Vec<&str> = match setting.kind {
                Kind::Words
                | Kind::Save
                | Kind::OutputLimits
                | Kind::Percentiles
                | Kind::OomScores
                | Kind::Primary => setting.default.split_whitespace().collect(),
                _ => vec![setting.default],
            };
            assert_eq!(setting.parse(&words).as_deref(), Ok(setting.default), "{}", setting.name);
        }
    }

    #[test]
    fn classes_that_are_not_named_keep_their_output_limits() {
        let mut config = Config::default();
        let setting = Config::find("client-output-buffer-limit").unwrap();
        config.set(setting, &["replica", "1kb", "2", "3"]).unwrap();
        assert_eq!(
            config.text_of(setting),
            "normal 0 0 0 slave 1024 2 3 pubsub 33554432 8388608 60"
        );
        assert_eq!(config.settings().clients.output_limits.replica.soft_seconds, 3);
    }
}
