//! What an operator can set, as the machine wants it.

use store_engine::{Engine, LoadMode};
use store_replica::Settings;

use crate::sockets::Ports;

/// The settings in force.
pub(crate) fn settings_of(engine: &Engine, ports: Ports) -> Settings {
    let mut settings = engine.config().settings().replication.clone();
    if settings.listening_port == 0 {
        // Whoever dials this server next does as it does.
        let is_encrypted = engine.config().settings().tls.encrypts_replication;
        let port = ports.tls.filter(|_| is_encrypted).or(ports.tcp).or(ports.tls);
        settings.listening_port = port.unwrap_or(0);
    }
    settings
}

/// Whether the payload that begins to arrive is loaded as it does (`repl-diskless-load`). It never
/// stands half in place of the old data: it is loaded aside.
pub(crate) fn loads_aside(engine: &Engine) -> bool {
    match engine.config().settings().replica.load {
        LoadMode::FromFile => false,
        LoadMode::WhenEmpty => engine.key_count() == 0,
        LoadMode::Aside => true,
    }
}
