//! What an operator can set, as the machine wants it.

use store_engine::Engine;
use store_replica::{LoadMode, Settings};

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

/// What becomes of the payload that begins to arrive (`repl-diskless-load`). Data that is loaded
/// as it arrives never stands half in place of the old: it is loaded aside.
pub(crate) fn load_mode(engine: &Engine) -> LoadMode {
    match engine.config().settings().replication.load {
        LoadMode::Direct if engine.key_count() > 0 => LoadMode::Spool,
        LoadMode::Direct | LoadMode::Swap => LoadMode::Swap,
        LoadMode::Spool => LoadMode::Spool,
    }
}
