//! How the server follows and is followed.

use std::time::Duration;

use store_replica::{Address, BlockSize, Login, OutputLimit, Settings};

use super::super::Texts;
use super::OutputLimits;

/// `repl-diskless-load`: when a primary's payload is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadMode {
    /// `disabled`: it is kept in a file until it is whole.
    FromFile,
    /// `on-empty-db`: as it arrives, on a server without keys.
    WhenEmpty,
    /// `swapdb`: as it arrives, beside the old data.
    Aside,
}

/// What concerns a replica, beside what its machine takes.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// `replicaof`: whom the server follows.
    pub primary: Option<Address>,
    /// `replica-serve-stale-data`.
    pub(crate) serves_stale: bool,
    /// `replica-lazy-flush`.
    pub(crate) lazy_flush: bool,
    /// `replica-priority`.
    pub(crate) priority: u32,
    /// `replica-announced`.
    pub(crate) is_announced: bool,
    /// `repl-disable-tcp-nodelay`: whether small writes to replicas are gathered.
    pub gathers_writes: bool,
    /// `repl-diskless-load`.
    pub load: LoadMode,
}

impl ReplicaSettings {
    pub(super) fn read(texts: &Texts) -> Self {
        let primary = texts.text("replicaof").split_once(' ').map(|(host, port)| Address {
            host: host.to_owned(),
            port: port.parse().expect("a port is kept as a number"),
        });
        Self {
            primary,
            serves_stale: texts.is_on("replica-serve-stale-data"),
            lazy_flush: texts.is_on("replica-lazy-flush"),
            priority: texts.number("replica-priority") as u32,
            is_announced: texts.is_on("replica-announced"),
            gathers_writes: texts.is_on("repl-disable-tcp-nodelay"),
            load: match texts.text("repl-diskless-load") {
                "on-empty-db" => LoadMode::WhenEmpty,
                "swapdb" => LoadMode::Aside,
                _ => LoadMode::FromFile,
            },
        }
    }
}

/// All settings of replication, as its machine takes them.
pub(super) fn read(texts: &Texts) -> Settings {
    let seconds = |name: &str| Duration::from_secs(texts.number(name) as u64);
    let text = |name: &str| Some(texts.text(name).to_owned()).filter(|text| !text.is_empty());
    let backlog_size = texts.size("repl-backlog-size");
    let limit = OutputLimits::parse(texts.text("client-output-buffer-limit")).replica;
    let password = text("masterauth");
    Settings {
        backlog_size,
        block_size: BlockSize::for_backlog(backlog_size),
        backlog_ttl: seconds("repl-backlog-ttl"),
        timeout: seconds("repl-timeout"),
        ping_every: seconds("repl-ping-replica-period"),
        diskless: texts.is_on("repl-diskless-sync"),
        diskless_delay: seconds("repl-diskless-sync-delay"),
        diskless_max_replicas: texts.size("repl-diskless-sync-max-replicas"),
        output_limit: OutputLimit {
            hard_max: limit.hard as u64,
            soft_max: limit.soft as u64,
            soft_for: Duration::from_secs(limit.soft_seconds),
        },
        min_replicas: texts.size("min-replicas-to-write"),
        min_replicas_lag: seconds("min-replicas-max-lag"),
        // Zero is the port that the server listens on.
        listening_port: texts.number("replica-announce-port") as u16,
        announce_ip: text("replica-announce-ip"),
        login: password
            .map(|password| Login { user: text("masteruser"), password: password.into_bytes() }),
        read_only: texts.is_on("replica-read-only"),
        ..Settings::default()
    }
}
