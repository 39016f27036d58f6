//! What an operator can set, as the machine wants it.

use store_engine::Engine;
use store_replica::{LoadMode, Settings};

/// The settings in force.
pub(crate) fn settings_of(engine: &Engine) -> Settings {
    let mut settings = engine.config().settings().replication.clone();
    if settings.listening_port == 0 {
        settings.listening_port = engine.state().identity.tcp_port;
    }
    // What arrives is kept in a file, whatever is asked for: the old data is served until the new
    // is whole.
    settings.load = LoadMode::Spool;
    settings
}
