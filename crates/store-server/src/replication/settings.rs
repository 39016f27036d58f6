//! What an operator can set, as the machine wants it.

use store_engine::Config;
use store_replica::Settings;

/// The settings in force.
pub(crate) fn settings_of(config: &Config) -> Settings {
    config.settings().replication.clone()
}
