//! How a node begins: its file, its port, and what it remembers.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;

use store_cluster::{Cluster, NodeId, Now};
use store_engine::{ClusterState, Config};

use super::{BusPort, ClusterStart, bus_port, open_nodes_file, settings_of};
use crate::clock::{Clock, Running};
use crate::listen::{ListenAddress, listen_tcp};
use crate::persistence::dir;
use crate::server::StartError;
use crate::sockets::Sockets;

/// Locks nodes.conf, opens the bus and brings the node back as it was; a node without a file is a
/// new one. `is_any`: the ports of clients were chosen by the system.
pub(crate) fn prepare(
    config: &Config,
    sockets: &Sockets,
    is_any: bool,
    running: &Running,
) -> Result<(ClusterStart, ClusterState), StartError> {
    let settings = config.settings();
    if settings.replica.primary.is_some() {
        let text = "replicaof directive not allowed in cluster mode: remove it, and use CLUSTER \
                    REPLICATE once the node is in its cluster";
        return Err(StartError::Cluster(text.to_owned()));
    }
    let path = dir(config).join(&settings.cluster.config_file);
    let (file, text) = open_nodes_file(&path).map_err(StartError::Cluster)?;
    let wanted = bus_port(config, sockets.ports(), is_any).map_err(StartError::Cluster)?;
    let (listeners, bus_port) = listen(config, wanted)?;
    let machine_settings = settings_of(config, sockets.ports(), bus_port);
    let now = Now { monotonic_ms: running.millis(), unix_ms: Clock::new().now_us() / 1000 };
    let (id, seed) = random()?;
    let is_new = text.trim().is_empty();
    let machine = match is_new {
        true => Cluster::new(now, id, machine_settings, seed),
        false => Cluster::restore(now, &text, machine_settings, seed)
            .map_err(|error| StartError::Cluster(format!("{}: {error}", path.display())))?,
    };
    let file = file.with_saved(machine.claim());
    let start = ClusterStart { file, listeners, bus_port, is_new };
    Ok((start, ClusterState::new(machine, now)))
}

fn listen(
    config: &Config,
    wanted: BusPort,
) -> Result<(Vec<crate::listen::Listener>, u16), StartError> {
    let port = port_of(wanted);
    let address_at: fn(SocketAddr) -> ListenAddress = match config.settings().tls.encrypts_bus {
        true => ListenAddress::Tls,
        false => ListenAddress::Tcp,
    };
    let (_, listeners) = listen_tcp(config, port, address_at, &[]).map_err(|error| {
        StartError::Cluster(format!(
            "the bus of the cluster: {error}; cluster-port sets its port, which is otherwise that \
             of clients plus 10000"
        ))
    })?;
    let port = listeners.iter().find_map(|listener| match listener.address {
        ListenAddress::Tcp(address) | ListenAddress::Tls(address) => Some(address.port()),
        ListenAddress::Unix(_) => None,
    });
    Ok((listeners, port.unwrap_or(port_of(wanted))))
}

fn port_of(wanted: BusPort) -> u16 {
    match wanted {
        BusPort::At(port) => port,
        BusPort::Any => 0,
    }
}

/// The name of a node that is new, and what decides its delays.
fn random() -> std::io::Result<(NodeId, u64)> {
    let mut urandom = File::open("/dev/urandom")?;
    let (mut id, mut seed) = ([0; 20], [0; 8]);
    urandom.read_exact(&mut id)?;
    urandom.read_exact(&mut seed)?;
    Ok((NodeId::from_bytes(id), u64::from_ne_bytes(seed)))
}
