//! `supervised`: telling systemd that we are ready, that we end, and that the server is alive.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use store_engine::{Config, Supervision};
use store_server::{Liveness, LogLevel};

use super::log::Logger;
use crate::clock;
use crate::systemd::Systemd;

/// Who started us and waits to hear of us.
#[derive(Clone, Debug, Default)]
pub(super) struct Supervisor {
    systemd: Option<Arc<Systemd>>,
    /// Why somebody who waits cannot be told.
    trouble: Option<String>,
}

impl Supervisor {
    /// As `supervised` says. Fails for a kind that is not supported.
    pub(super) fn of(config: &Config) -> anyhow::Result<Self> {
        match config.settings().process.supervised {
            Supervision::Upstart => {
                bail!("supervised upstart is not supported: use systemd, auto or no")
            }
            Supervision::Systemd | Supervision::Auto if Systemd::is_there() => {
                Ok(match Systemd::of_environment() {
                    Ok(systemd) => Supervisor { systemd: systemd.map(Arc::new), trouble: None },
                    Err(error) => Supervisor { systemd: None, trouble: Some(error.to_string()) },
                })
            }
            _ => Ok(Supervisor::default()),
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.systemd.is_none() && self.trouble.is_none()
    }

    pub(super) fn tell_ready(&self, logger: &Logger) {
        if let Some(trouble) = &self.trouble {
            logger.log(LogLevel::Warning, &format!("Cannot tell systemd: {trouble}"));
        }
        self.tell(logger, |systemd| systemd.ready("Ready to accept connections"));
    }

    /// Not at the signal: a server that cannot save goes on.
    pub(super) fn tell_stopping(&self, logger: &Logger) {
        self.tell(logger, Systemd::stopping);
    }

    fn tell(&self, logger: &Logger, word: impl FnOnce(&Systemd) -> io::Result<()>) {
        if let Some(Err(error)) = self.systemd.as_deref().map(word) {
            logger.log(LogLevel::Warning, &format!("Cannot tell systemd: {error}"));
        }
    }

    /// Tells systemd again and again that the server is alive, where it wants to know: for as long
    /// as the server's loop answers, and no longer.
    pub(super) fn watch(&self, liveness: Liveness, logger: &Logger) {
        let Some(systemd) = self.systemd.clone() else { return };
        let Some(every) = systemd.alive_every() else { return };
        let watch = move || tell_alive(&systemd, every, liveness);
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch);
        if let Err(error) = thread {
            let text = format!("Cannot start the watchdog, systemd will end the server: {error}");
            logger.log(LogLevel::Warning, &text);
        }
    }
}

fn tell_alive(systemd: &Systemd, every: Duration, mut liveness: Liveness) {
    loop {
        let asked_at = clock::steady();
        if liveness.answers_within(every) {
            // When it could not be told, the next one may be.
            let _ = systemd.alive();
        }
        std::thread::sleep(every.saturating_sub(clock::steady().duration_since(asked_at)));
    }
}
