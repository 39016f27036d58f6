//! What the examples share: how they come to their store, and how they are asked to stop.

use tenure::config::Loader;
use tenure::{Error, Tenure};
use tokio::signal::unix::{SignalKind, signal};

/// A client for the store named by the first argument, else by the configuration of the
/// environment (`TENURE_STORE` and so on), else for a Redis on this machine.
pub async fn connect() -> Result<Tenure, Error> {
    let mut loader = Loader::of_process();
    if let Some(store) = std::env::args().nth(1) {
        loader = loader.set(["store"], store, "the first argument");
    }
    let mut config = loader.clone().load()?;
    if config.store.url().is_none() {
        config = loader.set(["store"], "redis://127.0.0.1", "the example").load()?;
    }
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
    Tenure::from_config(config).await
}

/// Waits until somebody presses Ctrl-C or asks this process to terminate.
pub async fn asked_to_stop() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
