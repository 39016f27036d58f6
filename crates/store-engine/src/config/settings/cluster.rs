//! How the server is a node of a cluster.

use std::sync::Arc;

use super::super::Texts;

/// Longer than anybody waits: sums of time-outs must fit.
const TIMEOUT_MS_MAX: i64 = 1_000 * 60 * 60 * 24 * 365;

/// What concerns a node of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// `cluster-enabled`.
    pub is_enabled: bool,
    /// `cluster-config-file`, relative to `dir`.
    pub config_file: String,
    /// `cluster-port`; 0 for one that follows from the port of clients.
    pub port: u16,
    /// `cluster-announce-*`.
    pub announced: AnnounceSettings,
    /// `cluster-link-sendbuf-limit`; 0 for none.
    pub link_buffer_max: usize,
    /// `cluster-preferred-endpoint-type`.
    pub endpoint: EndpointType,
    /// What the machine takes, but for its address.
    pub machine: store_cluster::Settings,
}

/// How a node wants to be reached, where that is not how it is seen. Zeros and empty texts are not
/// announced.
#[derive(Clone, Debug, Default)]
pub struct AnnounceSettings {
    /// `cluster-announce-ip`.
    pub ip: String,
    /// `cluster-announce-port`.
    pub port: u16,
    /// `cluster-announce-tls-port`.
    pub tls_port: u16,
    /// `cluster-announce-bus-port`.
    pub bus_port: u16,
}

/// How clients are told where nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointType {
    /// By address.
    Ip,
    /// By name.
    Hostname,
    /// Not at all: they use the endpoint that they know.
    Unknown,
}

impl ClusterSettings {
    pub(super) fn read(texts: &Texts) -> Self {
        let port = |name: &str| texts.number(name) as u16;
        Self {
            is_enabled: texts.is_on("cluster-enabled"),
            config_file: texts.text("cluster-config-file").to_owned(),
            port: port("cluster-port"),
            announced: AnnounceSettings {
                ip: texts.text("cluster-announce-ip").to_owned(),
                port: port("cluster-announce-port"),
                tls_port: port("cluster-announce-tls-port"),
                bus_port: port("cluster-announce-bus-port"),
            },
            link_buffer_max: texts.size("cluster-link-sendbuf-limit"),
            endpoint: match texts.text("cluster-preferred-endpoint-type") {
                "hostname" => EndpointType::Hostname,
                "unknown-endpoint" => EndpointType::Unknown,
                _ => EndpointType::Ip,
            },
            machine: machine_settings(texts),
        }
    }
}

fn machine_settings(texts: &Texts) -> store_cluster::Settings {
    let hostname = texts.text("cluster-announce-hostname");
    store_cluster::Settings {
        node_timeout: texts.number("cluster-node-timeout").clamp(1, TIMEOUT_MS_MAX) as u64,
        requires_full_coverage: texts.is_on("cluster-require-full-coverage"),
        validity_factor: texts.number("cluster-replica-validity-factor") as u64,
        ping_period: texts.number("repl-ping-replica-period") as u64 * 1000,
        migration_barrier: texts.size("cluster-migration-barrier"),
        allows_migration: texts.is_on("cluster-allow-replica-migration"),
        never_stands: texts.is_on("cluster-replica-no-failover"),
        allows_reads_when_down: texts.is_on("cluster-allow-reads-when-down"),
        allows_shard_channels_when_down: texts.is_on("cluster-allow-pubsubshard-when-down"),
        address: store_cluster::Address::default(),
        hostname: Some(hostname).filter(|name| !name.is_empty()).map(Arc::from),
    }
}
