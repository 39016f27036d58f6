//! `sentinel.conf`: text ↔ state.
//!
//! Lines of the user that say nothing about state are kept as they are. All others are written anew
//! behind them, whenever something changes that a sentinel must not forget.

use std::fmt::Write;
use std::time::Duration;

use store_replica::{Address, Login};
use store_resp::split_quoted;

use crate::epoch;
use crate::hello::address;
use crate::settings::{Globals, GroupSettings, RunId};

/// Groups of one file, at most.
const GROUPS_MAX: usize = 1_000;

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// `sentinel myid`
    pub id: Option<RunId>,
    /// `port`
    pub port: u16,
    /// Settings of the sentinel itself.
    pub globals: Globals,
    /// `sentinel current-epoch`
    pub current_epoch: u64,
    /// `sentinel monitor` and whatever else names a group.
    pub groups: Vec<GroupConfiguration>,
    /// All other lines.
    pub kept_lines: Vec<String>,
}

/// What a file says about one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfiguration {
    /// Its name.
    pub name: String,
    /// Where its primary is.
    pub primary: Address,
    /// How it is watched.
    pub settings: GroupSettings,
    /// Since which epoch the primary is there.
    pub config_epoch: u64,
    /// In which epoch this sentinel last voted.
    pub leader_epoch: u64,
    /// Replicas that were seen.
    pub replicas: Vec<Address>,
    /// Other sentinels that were seen.
    pub peers: Vec<KnownPeer>,
}

/// Another sentinel that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPeer {
    /// Where.
    pub address: Address,
    /// Who.
    pub id: RunId,
}

/// A line that cannot be used. It repeats no values: one may be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {setting}: {problem}")]
pub struct ConfigError {
    /// Counted from one.
    pub line: usize,
    /// Which setting.
    pub setting: String,
    /// What is wrong, and what would be right.
    pub problem: &'static str,
}

impl Configuration {
    /// Reads a file. The order of lines does not matter.
    ///
    /// Fails with the first line that cannot be used.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut configuration = Self::empty();
        let mut later = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let fail = |setting: &str, problem| ConfigError {
                line: line_number,
                setting: setting.to_owned(),
                problem,
            };
            let words = split_words(line).ok_or_else(|| fail("quotes", "are not balanced"))?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words.split_first() {
                Some((first, ["monitor", rest @ ..])) if is_sentinel(first) => {
                    configuration.monitor(rest).map_err(|problem| fail("monitor", problem))?;
                }
                Some((first, rest)) if is_sentinel(first) => {
                    let owned: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
                    later.push((line_number, owned));
                }
                Some((&"port", [port])) => {
                    let problem = "needs a port from 1 to 65535";
                    let port = port.parse().ok().filter(|port| *port > 0);
                    configuration.port = port.ok_or_else(|| fail("port", problem))?;
                    configuration.kept_lines.push(line.to_owned());
                }
                _ => configuration.kept_lines.push(line.to_owned()),
            }
        }
        for (line_number, words) in later {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let setting = words.first().copied().unwrap_or("sentinel").to_owned();
            let fail = |problem| ConfigError { line: line_number, setting, problem };
            configuration.apply(&words).map_err(fail)?;
        }
        Ok(configuration)
    }

    fn empty() -> Self {
        Self {
            id: None,
            port: 26_379,
            globals: Globals::default(),
            current_epoch: 0,
            groups: Vec::new(),
            kept_lines: Vec::new(),
        }
    }

    fn monitor(&mut self, words: &[&str]) -> Result<(), &'static str> {
        let [name, host, port, quorum] = words else {
            return Err("needs a name, a host, a port and a quorum");
        };
        if self.groups.iter().any(|group| group.name == *name) {
            return Err("this name is monitored twice; remove one of the lines");
        }
        check_name(name, self.groups.len())?;
        let primary = address(host, port).ok_or("needs a host and a port from 1 to 65535")?;
        let quorum = quorum.parse().ok().filter(|quorum| *quorum > 0);
        let quorum = quorum.ok_or("needs a quorum of 1 or more")?;
        let settings = GroupSettings { quorum, ..GroupSettings::default() };
        self.groups.push(GroupConfiguration::new(name, primary, settings));
        Ok(())
    }

    fn apply(&mut self, words: &[&str]) -> Result<(), &'static str> {
        match words {
            ["myid", id] => self.id = Some(RunId::parse(id.as_bytes()).ok_or("is no id")?),
            ["current-epoch", epoch] => self.current_epoch = epoch::parse(epoch)?,
            [setting, value] if Globals::has(setting) => self.globals.apply(setting, value)?,
            [setting, name, values @ ..] => {
                let group = self.groups.iter_mut().find(|group| group.name == *name);
                let known = is_group_setting(setting);
                match group.filter(|_| known) {
                    Some(group) => group.apply(setting, values)?,
                    None if known => return Err("no such primary; add a line `sentinel monitor`"),
                    None => return Err("unknown setting; remove the line"),
                }
            }
            _ => return Err("unknown setting; remove the line"),
        }
        Ok(())
    }

    /// The file as it is to be written.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for line in &self.kept_lines {
            text.push_str(line);
            text.push('\n');
        }
        if let Some(id) = &self.id {
            put(&mut text, format_args!("myid {id}"));
        }
        self.globals.write(&mut text);
        for group in &self.groups {
            group.write(&mut text);
        }
        put(&mut text, format_args!("current-epoch {}", self.current_epoch));
        text
    }
}

/// Whether one more group may have this name.
pub(crate) fn check_name(name: &str, groups: usize) -> Result<(), &'static str> {
    let is_usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || !name.chars().all(is_usable) {
        return Err("needs a name of letters, digits, '.', '-' and '_'");
    }
    if groups >= GROUPS_MAX {
        return Err("more than 1000 primaries; use another sentinel for the rest");
    }
    Ok(())
}

impl Globals {
    const NAMES: [&str; 7] = [
        "announce-ip",
        "announce-port",
        "resolve-hostnames",
        "announce-hostnames",
        "deny-scripts-reconfig",
        "sentinel-user",
        "sentinel-pass",
    ];

    pub(crate) fn has(setting: &str) -> bool {
        Self::NAMES.contains(&setting)
    }

    /// Sets one by its name. Fails with what would be right.
    pub(crate) fn apply(&mut self, setting: &str, value: &str) -> Result<(), &'static str> {
        let login = || Login { user: None, password: Vec::new() };
        match setting {
            "announce-ip" => {
                let ip = Some(value.to_owned()).filter(|ip| !ip.is_empty());
                let is_usable = ip.as_ref().is_none_or(|ip| address(ip, "1").is_some());
                self.announce_ip = ip.filter(|_| is_usable);
                return is_usable.then_some(()).ok_or("needs an address");
            }
            "announce-port" => {
                let port = value.parse().ok().ok_or("needs a port")?;
                self.announce_port = Some(port).filter(|port| *port > 0);
            }
            "resolve-hostnames" => self.resolve_hostnames = yes_or_no(value)?,
            "announce-hostnames" => self.announce_hostnames = yes_or_no(value)?,
            "deny-scripts-reconfig" => self.deny_scripts_reconfig = yes_or_no(value)?,
            "sentinel-user" => {
                let user = Some(value.to_owned()).filter(|user| !user.is_empty());
                self.login.get_or_insert_with(login).user = user;
            }
            "sentinel-pass" => {
                self.login.get_or_insert_with(login).password = value.as_bytes().to_vec();
            }
            _ => return Err("unknown setting; remove the line"),
        }
        self.login.take_if(|login| login.user.is_none() && login.password.is_empty());
        Ok(())
    }

    fn write(&self, text: &mut String) {
        let usual = Self::default();
        if let Some(ip) = &self.announce_ip {
            put(text, format_args!("announce-ip {}", quoted(ip.as_bytes())));
        }
        if let Some(port) = self.announce_port {
            put(text, format_args!("announce-port {port}"));
        }
        let switches = [
            ("resolve-hostnames", self.resolve_hostnames, usual.resolve_hostnames),
            ("announce-hostnames", self.announce_hostnames, usual.announce_hostnames),
            ("deny-scripts-reconfig", self.deny_scripts_reconfig, usual.deny_scripts_reconfig),
        ];
        for (setting, is_on, _) in switches.into_iter().filter(|(_, is_on, usual)| is_on != usual) {
            put(text, format_args!("{setting} {}", if is_on { "yes" } else { "no" }));
        }
        if let Some(login) = &self.login {
            if let Some(user) = &login.user {
                put(text, format_args!("sentinel-user {}", quoted(user.as_bytes())));
            }
            if !login.password.is_empty() {
                put(text, format_args!("sentinel-pass {}", quoted(&login.password)));
            }
        }
    }
}

fn yes_or_no(value: &str) -> Result<bool, &'static str> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("needs yes or no"),
    }
}

const GROUP_SETTINGS: &[&str] = &[
    "down-after-milliseconds",
    "failover-timeout",
    "parallel-syncs",
    "master-reboot-down-after-period",
    "auth-pass",
    "auth-user",
    "rename-command",
    "notification-script",
    "client-reconfig-script",
    "config-epoch",
    "leader-epoch",
    "known-replica",
    "known-slave",
    "known-sentinel",
];

fn is_group_setting(setting: &str) -> bool {
    GROUP_SETTINGS.contains(&setting)
}

impl GroupConfiguration {
    /// A group of which nothing else is known.
    pub(crate) fn new(name: &str, primary: Address, settings: GroupSettings) -> Self {
        Self {
            name: name.to_owned(),
            primary,
            settings,
            config_epoch: 0,
            leader_epoch: 0,
            replicas: Vec::new(),
            peers: Vec::new(),
        }
    }

    /// Sets one of the settings that are spans of time.
    pub(crate) fn set_time(
        settings: &mut GroupSettings,
        setting: &str,
        value: &str,
    ) -> Result<(), &'static str> {
        match setting {
            "down-after-milliseconds" => settings.down_after = positive_ms(value)?,
            "failover-timeout" => settings.failover_timeout = positive_ms(value)?,
            _ => settings.reboot_down_after = Duration::from_millis(number(value)?),
        }
        Ok(())
    }

    fn apply(&mut self, setting: &str, values: &[&str]) -> Result<(), &'static str> {
        let settings = &mut self.settings;
        match (setting, values) {
            (
                "down-after-milliseconds" | "failover-timeout" | "master-reboot-down-after-period",
                [value],
            ) => Self::set_time(settings, setting, value)?,
            ("parallel-syncs", [value]) => {
                settings.parallel_syncs = number(value)?.clamp(1, 1 << 20) as usize;
            }
            ("auth-pass", [value]) => {
                let login = settings.login.get_or_insert_with(no_login);
                login.password = value.as_bytes().to_vec();
            }
            ("auth-user", [value]) => {
                let login = settings.login.get_or_insert_with(no_login);
                login.user = Some((*value).to_owned());
            }
            ("rename-command", [name, new_name]) => {
                settings.renamed.insert(name.to_ascii_uppercase(), (*new_name).to_owned());
            }
            ("notification-script", [path]) => settings.notification_script = script(path),
            ("client-reconfig-script", [path]) => settings.reconfig_script = script(path),
            ("config-epoch", [value]) => self.config_epoch = epoch::parse(value)?,
            ("leader-epoch", [value]) => self.leader_epoch = epoch::parse(value)?,
            ("known-replica" | "known-slave", [host, port]) => {
                self.replicas.push(address(host, port).ok_or("needs a host and a port")?);
            }
            ("known-sentinel", [host, port, id]) => {
                let address = address(host, port).ok_or("needs a host and a port")?;
                let id = RunId::parse(id.as_bytes()).ok_or("needs an id")?;
                self.peers.retain(|peer| peer.id != id);
                self.peers.push(KnownPeer { address, id });
            }
            // Written by old sentinels about others that they had not met yet.
            ("known-sentinel", [_, _]) => {}
            _ => return Err("has too few or too many values"),
        }
        Ok(())
    }

    fn write(&self, text: &mut String) {
        let Self { name, primary, settings, .. } = self;
        let usual = GroupSettings::default();
        let quorum = settings.quorum;
        put(text, format_args!("monitor {name} {} {} {quorum}", primary.host, primary.port));
        let times = [
            ("down-after-milliseconds", settings.down_after, usual.down_after),
            ("failover-timeout", settings.failover_timeout, usual.failover_timeout),
            ("master-reboot-down-after-period", settings.reboot_down_after, Duration::ZERO),
        ];
        for (setting, value, _) in times.into_iter().filter(|(_, value, usual)| value != usual) {
            put(text, format_args!("{setting} {name} {}", value.as_millis()));
        }
        if settings.parallel_syncs != usual.parallel_syncs {
            put(text, format_args!("parallel-syncs {name} {}", settings.parallel_syncs));
        }
        if let Some(login) = &settings.login {
            put(text, format_args!("auth-pass {name} {}", quoted(&login.password)));
            if let Some(user) = &login.user {
                put(text, format_args!("auth-user {name} {}", quoted(user.as_bytes())));
            }
        }
        let scripts = [
            ("notification-script", &settings.notification_script),
            ("client-reconfig-script", &settings.reconfig_script),
        ];
        for (setting, path) in scripts {
            if let Some(path) = path {
                put(text, format_args!("{setting} {name} {}", quoted(path.as_bytes())));
            }
        }
        for (command, called) in &settings.renamed {
            let (command, called) = (quoted(command.as_bytes()), quoted(called.as_bytes()));
            put(text, format_args!("rename-command {name} {command} {called}"));
        }
        put(text, format_args!("config-epoch {name} {}", self.config_epoch));
        put(text, format_args!("leader-epoch {name} {}", self.leader_epoch));
        for Address { host, port } in &self.replicas {
            put(text, format_args!("known-replica {name} {host} {port}"));
        }
        for KnownPeer { address: Address { host, port }, id } in &self.peers {
            put(text, format_args!("known-sentinel {name} {host} {port} {id}"));
        }
    }
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "sentinel {line}").expect("a string takes everything");
}

/// None where the path is empty.
pub(crate) fn script(path: &str) -> Option<String> {
    Some(path.to_owned()).filter(|path| !path.is_empty())
}

fn no_login() -> Login {
    Login { user: None, password: Vec::new() }
}

fn number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "needs a whole number")
}

fn positive_ms(text: &str) -> Result<Duration, &'static str> {
    /// A hundred years; what is longer is a mistake.
    const MS_MAX: u64 = 100 * 365 * 24 * 3_600 * 1_000;
    let ms = text.parse().ok().filter(|ms| (1..=MS_MAX).contains(ms));
    ms.map(Duration::from_millis).ok_or("needs a positive number of milliseconds")
}

fn is_sentinel(word: &str) -> bool {
    word.eq_ignore_ascii_case("sentinel")
}

/// The words of a line; none in comments. `None` when its quotes are not balanced.
fn split_words(line: &str) -> Option<Vec<String>> {
    let line = line.trim_ascii();
    if line.starts_with('#') {
        return Some(Vec::new());
    }
    let words = split_quoted(line.as_bytes())?;
    let words = words.into_iter().map(|word| String::from_utf8_lossy(&word).into_owned());
    let mut words: Vec<String> = words.collect();
    for word in words.iter_mut().take(2) {
        word.make_ascii_lowercase();
    }
    Some(words)
}

/// In quotes where a word would not read back as one.
fn quoted(bytes: &[u8]) -> String {
    let is_plain = |c: &u8| c.is_ascii_graphic() && !matches!(c, b'"' | b'\'' | b'\\' | b'#');
    let text = String::from_utf8_lossy(bytes);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return text.into_owned();
    }
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => write!(out, "\\x{byte:02x}").expect("a string takes everything"),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# what people write
port 5000
dir \"/tmp\"
sentinel down-after-milliseconds mymaster 60000
sentinel monitor mymaster 127.0.0.1 6379 2
SENTINEL notification-script mymaster /bin/true
sentinel auth-pass mymaster \"a b\\\"c\"
sentinel known-replica mymaster 127.0.0.1 6380
sentinel known-sentinel mymaster 127.0.0.1 5001 abcdef
sentinel leader-epoch mymaster 3
sentinel current-epoch 4
sentinel resolve-hostnames yes
sentinel sentinel-pass s3cret
sentinel rename-command mymaster CONFIG \"\"
";

    #[test]
    fn a_file_is_read_in_any_order_and_written_so_that_it_reads_back() {
        let configuration = Configuration::parse(FILE).unwrap();
        let group = &configuration.groups[0];
        assert_eq!(group.settings.down_after, Duration::from_secs(60));
        assert_eq!(group.settings.login.as_ref().unwrap().password, b"a b\"c");
        assert_eq!((group.leader_epoch, configuration.current_epoch), (3, 4));
        assert_eq!((group.replicas.len(), group.peers.len()), (1, 1));
        assert_eq!(configuration.port, 5_000);

        let text = configuration.to_text();
        assert!(text.starts_with("# what people write\nport 5000\ndir \"/tmp\"\n"), "{text}");
        assert_eq!(Configuration::parse(&text).unwrap(), configuration, "{text}");
        assert_eq!(Configuration::parse(&text).unwrap().to_text(), text);
    }

    #[test]
    fn a_renamed_command_cannot_write_lines_of_its_own() {
        let mut configuration = Configuration::parse(FILE).unwrap();
        let renamed = &mut configuration.groups[0].settings.renamed;
        renamed.insert("A B\nSENTINEL MYID X".to_owned(), "c d".to_owned());
        let text = configuration.to_text();
        assert_eq!(Configuration::parse(&text).unwrap(), configuration, "{text}");
    }

    #[test]
    fn bad_lines_are_refused_by_number_and_name() {
        let lines = [
            ("sentinel monitor m 127.0.0.1 6379 0", "monitor"),
            ("sentinel monitor m 127.0.0.1 0 1", "monitor"),
            ("sentinel monitor a/b 127.0.0.1 1 1", "monitor"),
            ("sentinel monitor mymaster 127.0.0.1 1 1", "monitor"),
            ("sentinel parallel-syncs nobody 1", "parallel-syncs"),
            ("sentinel down-after-milliseconds mymaster 0", "down-after-milliseconds"),
            ("sentinel frobnicate mymaster 1", "frobnicate"),
            ("sentinel known-sentinel mymaster 127.0.0.1 1 a,b", "known-sentinel"),
            ("sentinel", "sentinel"),
            ("port 70000", "port"),
            ("sentinel deny-scripts-reconfig perhaps", "deny-scripts-reconfig"),
            ("sentinel notification-script nobody /bin/true", "notification-script"),
            ("sentinel announce-ip a,b", "announce-ip"),
        ];
        for (line, setting) in lines {
            let error = Configuration::parse(&format!("{FILE}{line}\n")).unwrap_err();
            assert_eq!((error.line, error.setting.as_str()), (15, setting), "{line}");
        }
    }

    #[test]
    fn an_error_repeats_no_password() {
        let text = format!("{FILE}sentinel auth-pass mymaster hunter2 x\n");
        let error = Configuration::parse(&text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
