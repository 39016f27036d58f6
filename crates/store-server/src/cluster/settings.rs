//! What an operator can set, as the machine wants it.

use std::sync::Arc;

use store_cluster::{Address, Settings};
use store_engine::Config;

use crate::sockets::Ports;

/// From the port of clients to that of nodes.
const BUS_PORT_OFFSET: u16 = 10_000;

/// Where nodes reach this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BusPort {
    At(u16),
    /// One that the system chooses.
    Any,
}

/// The port of the bus. `is_any`: the ports of clients were chosen by the system. Fails with the
/// reason and the next step.
pub(crate) fn bus_port(config: &Config, ports: Ports, is_any: bool) -> Result<BusPort, String> {
    let settings = config.settings();
    if settings.cluster.port != 0 {
        return Ok(BusPort::At(settings.cluster.port));
    }
    let port = client_port(config, ports);
    match port.checked_add(BUS_PORT_OFFSET) {
        // Nobody knows that one either before the node tells it.
        Some(_) if is_any && port != 0 => Ok(BusPort::Any),
        _ if port == 0 => Err("cluster-enabled needs a port that clients reach this node at: set \
                               port, or tls-port with tls-cluster yes"
            .to_owned()),
        Some(bus_port) => Ok(BusPort::At(bus_port)),
        None if is_any => Ok(BusPort::Any),
        None => Err(format!(
            "the bus of the cluster would listen on port {}, which there is not: choose a port of \
             55535 or less, or set cluster-port",
            u32::from(port) + u32::from(BUS_PORT_OFFSET)
        )),
    }
}

/// The port that other nodes tell clients first.
fn client_port(config: &Config, ports: Ports) -> u16 {
    let port = match config.settings().tls.encrypts_bus {
        true => ports.tls,
        false => ports.tcp,
    };
    port.unwrap_or(0)
}

/// The settings in force.
pub(crate) fn settings_of(config: &Config, ports: Ports, bus_port: u16) -> Settings {
    let cluster = &config.settings().cluster;
    let announced = &cluster.announced;
    let or = |announced: u16, own: Option<u16>| match announced {
        0 => own.unwrap_or(0),
        port => port,
    };
    let plain = or(announced.port, ports.tcp);
    let encrypted = or(announced.tls_port, ports.tls);
    let (port, plain_port) = match config.settings().tls.encrypts_bus {
        true => (encrypted, plain),
        false => (plain, 0),
    };
    let address = Address {
        ip: Arc::from(announced.ip.as_str()),
        port,
        plain_port,
        bus_port: or(announced.bus_port, Some(bus_port)),
    };
    Settings { address, ..cluster.machine.clone() }
}
