//! Clients from a configuration.

use std::path::PathBuf;

use super::Config;
use crate::{Error, Tenure};

impl Tenure {
    /// A client with the settings of a configuration file and of the environment variables of this
    /// process, which win.
    ///
    /// Fails with all problems of the configuration, or as [`connect`](Self::connect) does.
    pub async fn from_file(file: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::from_config(Config::from_file(file)?).await
    }

    /// A client with the settings of this process's environment variables (`TENURE_STORE`,
    /// `TENURE_DEFAULTS__TTL`, …) and of the file that `TENURE_CONFIG` names.
    ///
    /// Fails with all problems of the configuration, or as [`connect`](Self::connect) does.
    pub async fn from_env() -> Result<Self, Error> {
        Self::from_config(Config::from_env()?).await
    }

    /// A client with the settings of `config`. Its warnings go to the log.
    ///
    /// Fails if it names no store, or as [`connect`](Self::connect) does.
    pub async fn from_config(config: Config) -> Result<Self, Error> {
        for warning in config.warnings() {
            let (key, origin) = (&warning.key, warning.origin.to_string());
            tracing::warn!(target: "tenure", key, origin, detail = warning.text, "configuration");
        }
        if config.store.url().is_none() && config.enabled {
            let why = "none is configured: set TENURE_STORE, or store in the file, to an address \
                       such as redis://127.0.0.1";
            return Err(Error::Setting { setting: "store", why: why.to_owned() });
        }
        Self::builder().config(config).connect().await
    }
}
