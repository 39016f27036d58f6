//! What the examples share: how they come to their store, and how they are asked to stop.

mod cast;

use store_server::Server;
use tenure::config::Loader;
use tenure::{Error, Tenure};
use tokio::signal::unix::{SignalKind, signal};

pub use cast::Cast;

/// The result of an example.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The address of the store named by the first argument or, without one, of a store inside this
/// process, which lives as long as what comes with it.
pub fn address_or_own_store() -> Outcome<(String, Option<Server>)> {
    if let Some(address) = std::env::args().nth(1) {
        return Ok((address, None));
    }
    let server = Server::builder().any_port().start()?;
    let port = server.port().ok_or("the store listens nowhere")?;
    Ok((format!("redis://127.0.0.1:{port}"), Some(server)))
}

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
