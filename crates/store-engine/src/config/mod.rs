//! Settings: from redis.conf, from the command line, and changed by CONFIG SET.
//!
//! Values are kept as their canonical texts; what is asked on hot paths is kept beside them in
//! [`Tuned`], renewed at each change.

pub(crate) mod events;
mod file;
mod rewrite;
mod setting;
mod table;

pub use file::{
    ConfigError, Include, argument_lines, name_matches, parse_arguments, parse_arguments_including,
    parse_file, parse_file_including,
};
pub use rewrite::rewrite_file;
pub(crate) use rewrite::rewrite_whole_file;
pub(crate) use setting::memory as parse_memory;
pub use setting::{Kind, Remark, Setting};
pub use table::SETTINGS;

use crate::acl::{self, Rulebook};
use crate::registry::Registry;

/// Settings in the form in which hot paths ask for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuned {
    /// `maxmemory`, 0 for no limit.
    pub memory_max: usize,
    /// `proto-max-bulk-len`, under 4 GiB.
    pub bulk_max: i64,
    /// `client-query-buffer-limit`, under 4 GiB.
    pub query_buffer_max: usize,
    /// `notify-keyspace-events`.
    pub event_mask: u32,
    /// `slowlog-log-slower-than` in microseconds, negative for never.
    pub slowlog_over_us: i64,
    /// Hard limit, soft limit and seconds of it, per class of clients.
    pub output_limits: [OutputLimit; 3],
    /// `timeout` in seconds, 0 for never.
    pub idle_seconds_max: u64,
    /// `maxclients`.
    pub clients_max: usize,
    /// `maxmemory-clients` in bytes, 0 for no limit.
    pub clients_memory_max: usize,
    /// Between looks for keys that ended, when none is overdue: `hz` times a second.
    pub expiry_period_ms: u64,
    /// Whether `requirepass` is set.
    pub needs_password: bool,
}

/// When a client's unread output closes it; zero means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Closed at once beyond this.
    pub hard: usize,
    /// Closed when beyond this for long.
    pub soft: usize,
    /// How long.
    pub soft_seconds: u64,
}

/// Requests are shorter than this, whatever the settings say, so that spans are 32 bits.
pub(crate) const REQUEST_MAX: i64 = u32::MAX as i64 - 1024 * 1024;

/// All settings with their values.
#[derive(Clone, Debug)]
pub struct Config {
    /// One per row of [`SETTINGS`].
    values: Vec<String>,
    /// `user` lines: a name and its rules.
    users: Vec<Vec<String>>,
    /// `rename-command` lines: a command and its new name.
    renamed: Vec<(String, String)>,
    /// Whether a `save` line was read: the first replaces the default, further ones add to it.
    has_save_line: bool,
    /// `notify-keyspace-events` as it was set: like Redis we do not tell all of it again.
    event_mask: u32,
    tuned: Tuned,
}

impl Default for Config {
    fn default() -> Self {
        let values = SETTINGS.iter().map(|setting| setting.default.to_owned()).collect();
        let (users, renamed) = (Vec::new(), Vec::new());
        let tuned = Tuned::default();
        let mut config =
            Self { values, users, renamed, has_save_line: false, event_mask: 0, tuned };
        config.tune();
        config
    }
}

impl Config {
    /// Settings in the form in which hot paths ask for them.
    #[inline]
    pub fn tuned(&self) -> &Tuned {
        &self.tuned
    }

    /// Finds a setting by name or alias.
    pub fn find(name: &str) -> Option<&'static Setting> {
        let lower = name.to_ascii_lowercase();
        SETTINGS.iter().find(|setting| setting.name == lower || setting.alias == Some(&lower))
    }

    /// The canonical text of a setting. Panics for a name not in the table.
    pub fn text(&self, name: &str) -> &str {
        &self.values[index_of(name)]
    }

    /// A setting that is a number. Panics for any other.
    pub fn number(&self, name: &str) -> i64 {
        self.text(name).parse().expect("settings asked for as numbers are numbers")
    }

    /// A setting that is yes or no.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// Sets a value given as words. Fails with the reason in the words of Redis.
    pub fn set(&mut self, setting: &Setting, words: &[&str]) -> Result<(), String> {
        let mut value = setting.parse(words)?;
        if setting.name == "hz" {
            // Out of bounds is brought within them rather than refused.
            value = value.parse::<i64>().map_or(value, |hz| hz.clamp(1, 500).to_string());
        }
        if setting.name == "notify-keyspace-events" {
            self.event_mask = words.iter().find_map(|word| events::parse(word)).unwrap_or(0);
        }
        if setting.kind == Kind::OutputLimits {
            value = self.merged_output_limits(&value);
        }
        self.values[index_of(setting.name)] = value;
        self.tune();
        Ok(())
    }

    /// A `save` line. Further lines add to the first; an empty one takes all points away.
    pub(crate) fn add_save_points(
        &mut self,
        setting: &Setting,
        words: &[&str],
    ) -> Result<(), String> {
        let added = setting.parse(words)?;
        let known = if self.has_save_line { self.text(setting.name) } else { "" };
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
        let registry = Registry::new();
        let book = Rulebook { registry: &registry, all_channels: false };
        let rules: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
        acl::user_from_words(book, &rules)
            .map_err(|(rule, reason)| format!("Error in rule '{rule}': {reason}"))?;
        self.users.push(words.iter().map(|word| (*word).to_owned()).collect());
        Ok(())
    }

    /// Replaces the users by those of these lines, for a file that keeps them; none where an
    /// ACL file does, or where nobody but the default user is there.
    pub(crate) fn set_user_lines(&mut self, lines: &[Vec<u8>]) {
        let is_plain = lines == [b"user default on nopass ~* &* +@all"];
        self.users.clear();
        if is_plain || !self.text("aclfile").is_empty() {
            return;
        }
        let words = |line: &Vec<u8>| {
            let text = String::from_utf8_lossy(line);
            text.split(' ').skip(1).map(str::to_owned).collect()
        };
        self.users = lines.iter().map(words).collect();
    }

    /// The limits of `client-query-buffer-limit`.
    #[inline]
    pub fn query_buffer_max(&self) -> usize {
        self.tuned.query_buffer_max
    }

    /// Names with their values, aliases too, sorted; without settings that are asked for by name.
    pub fn pairs(&self) -> Vec<(&'static str, &str)> {
        let mut pairs = Vec::new();
        let told = SETTINGS.iter().zip(&self.values).filter(|(setting, _)| !setting.is_hidden);
        for (setting, value) in told {
            pairs.push((setting.name, value.as_str()));
            pairs.extend(setting.alias.map(|alias| (alias, value.as_str())));
        }
        pairs.sort_unstable();
        pairs
    }

    /// Whether a setting whose name begins with `prefix` differs in `other`.
    pub fn differs_in(&self, prefix: &str, other: &Config) -> bool {
        let mut settings = SETTINGS.iter().filter(|setting| setting.name.starts_with(prefix));
        settings.any(|setting| self.text(setting.name) != other.text(setting.name))
    }

    /// Classes that were not named keep their limits.
    fn merged_output_limits(&self, changed: &str) -> String {
        let mut limits: Vec<(String, String)> = Vec::new();
        let before = self.text("client-output-buffer-limit").to_owned();
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

    fn tune(&mut self) {
        self.tuned = Tuned {
            memory_max: self.number("maxmemory") as usize,
            bulk_max: self.number("proto-max-bulk-len").min(REQUEST_MAX),
            query_buffer_max: self.number("client-query-buffer-limit").min(REQUEST_MAX) as usize,
            event_mask: self.event_mask,
            slowlog_over_us: self.number("slowlog-log-slower-than"),
            output_limits: self.output_limits(),
            idle_seconds_max: self.number("timeout") as u64,
            clients_memory_max: self.clients_memory_max(),
            expiry_period_ms: 1000 / self.number("hz").clamp(1, 500) as u64,
            clients_max: self.number("maxclients") as usize,
            needs_password: !self.text("requirepass").is_empty(),
        };
    }

    fn clients_memory_max(&self) -> usize {
        let text = self.text("maxmemory-clients");
        let number = |text: &str| text.parse::<u128>().expect("memory is kept as a number");
        match text.strip_suffix('%') {
            Some(percent) => (number(percent) * self.number("maxmemory") as u128 / 100) as usize,
            None => number(text) as usize,
        }
    }

    fn output_limits(&self) -> [OutputLimit; 3] {
        let words: Vec<&str> = self.text("client-output-buffer-limit").split(' ').collect();
        let number = |word: &str| word.parse().expect("limits are kept as numbers");
        let mut limits = words.chunks(4).map(|limit| OutputLimit {
            hard: number(limit[1]),
            soft: number(limit[2]),
            soft_seconds: number(limit[3]) as u64,
        });
        std::array::from_fn(|_| limits.next().unwrap_or_default())
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
                | Kind::OomScores => setting.default.split_whitespace().collect(),
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
            config.text(setting.name),
            "normal 0 0 0 slave 1024 2 3 pubsub 33554432 8388608 60"
        );
        assert_eq!(config.tuned().output_limits[1].soft_seconds, 3);
    }
}
