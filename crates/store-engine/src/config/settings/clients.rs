//! What clients may do, and how much.

use std::time::Duration;

use super::super::{REQUEST_MAX, Texts};

/// What clients may do, and how much.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// `maxclients`.
    pub count_max: usize,
    /// `proto-max-bulk-len`, under 4 GiB.
    pub bulk_max: i64,
    /// `client-query-buffer-limit`, under 4 GiB.
    pub query_buffer_max: usize,
    /// `client-output-buffer-limit`.
    pub output_limits: OutputLimits,
    /// `maxmemory-clients` in bytes, 0 for no limit.
    pub memory_max: usize,
    /// `timeout` in seconds, 0 for never.
    pub idle_seconds_max: u64,
    /// `tcp-keepalive`, zero for never.
    pub keepalive: Duration,
    /// `tracking-table-max-keys`, 0 for no limit.
    pub tracked_keys_max: usize,
    /// `protected-mode`.
    pub protected_mode: bool,
    /// `requirepass`; empty for none.
    pub password: String,
    /// `aclfile`; empty for none.
    pub acl_file: String,
    /// `acl-pubsub-default`: whether new users hear all channels.
    pub has_all_channels: bool,
    /// `enable-debug-command`.
    pub debug_command: Permission,
    /// `enable-module-command`.
    pub module_command: Permission,
    /// `enable-protected-configs`.
    pub protected_configs: Permission,
}

/// To whom something is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// To everybody.
    Everybody,
    /// To whoever connects from this machine.
    Local,
    /// To nobody.
    Nobody,
}

/// When the unread output of a client closes it, per class of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimits {
    /// Of those who ask and read.
    pub normal: OutputLimit,
    /// Of replicas.
    pub replica: OutputLimit,
    /// Of those who listen to messages.
    pub pubsub: OutputLimit,
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

impl ClientSettings {
    pub(super) fn read(texts: &Texts) -> Self {
        Self {
            count_max: texts.size("maxclients"),
            bulk_max: texts.number("proto-max-bulk-len").min(REQUEST_MAX),
            query_buffer_max: texts.number("client-query-buffer-limit").min(REQUEST_MAX) as usize,
            output_limits: OutputLimits::parse(texts.text("client-output-buffer-limit")),
            memory_max: memory_max(texts),
            idle_seconds_max: texts.number("timeout") as u64,
            keepalive: Duration::from_secs(texts.number("tcp-keepalive") as u64),
            tracked_keys_max: texts.size("tracking-table-max-keys"),
            protected_mode: texts.is_on("protected-mode"),
            password: texts.text("requirepass").to_owned(),
            acl_file: texts.text("aclfile").to_owned(),
            has_all_channels: texts.text("acl-pubsub-default") == "allchannels",
            debug_command: Permission::parse(texts.text("enable-debug-command")),
            module_command: Permission::parse(texts.text("enable-module-command")),
            protected_configs: Permission::parse(texts.text("enable-protected-configs")),
        }
    }
}

impl Permission {
    fn parse(text: &str) -> Self {
        match text {
            "yes" => Permission::Everybody,
            "local" => Permission::Local,
            _ => Permission::Nobody,
        }
    }
}

impl OutputLimits {
    /// From its canonical text: all three classes.
    pub(super) fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse().expect("limits are kept as numbers");
        let of = |class: &str| {
            let limit = words.chunks(4).find(|limit| limit[0] == class);
            limit.map_or_else(OutputLimit::default, |limit| OutputLimit {
                hard: number(limit[1]),
                soft: number(limit[2]),
                soft_seconds: number(limit[3]) as u64,
            })
        };
        Self { normal: of("normal"), replica: of("slave"), pubsub: of("pubsub") }
    }
}

fn memory_max(texts: &Texts) -> usize {
    let text = texts.text("maxmemory-clients");
    let number = |text: &str| text.parse::<u128>().expect("memory is kept as a number");
    match text.strip_suffix('%') {
        Some(percent) => (number(percent) * texts.number("maxmemory") as u128 / 100) as usize,
        None => number(text) as usize,
    }
}
