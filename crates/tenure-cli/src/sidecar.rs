//! `tenure sidecar`: elections over HTTP, for programs in any language and for people.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tenure::config::{Config, Loader};
use tenure_sidecar::{Certificates, ServerSettings, Sidecar, SidecarError};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{self, Failure};
use crate::local;
use crate::log_queue::STDOUT;
use crate::logging::LogOptions;
use crate::output::{plain, result, talk};
use crate::run::signals::somebody_listens;
use crate::store_options::{self, StoreOptions};
use crate::systemd;

/// Take part in elections and serve their health, status, metrics, events and a page over HTTP.
///
/// Without names it takes part in every election of the configuration. docs/sidecar.md lists the
/// routes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure sidecar nightly
  tenure sidecar nightly --id web-1 --ttl 5s
  tenure sidecar --config tenure.toml
  tenure sidecar nightly --observe report --listen 127.0.0.1:9000
  tenure sidecar --empty --listen unix:/run/tenure/sidecar.sock")]
pub(crate) struct Arguments {
    /// The elections to take part in.
    names: Vec<String>,
    /// An election to observe without taking part; may be given several times.
    #[arg(long, value_name = "NAME")]
    observe: Vec<String>,
    /// Start without any election: programs join and leave over HTTP.
    #[arg(long)]
    empty: bool,
    /// The address to listen on, unix:FILE, or both with a comma between them; 127.0.0.1:8420 by
    /// default. Beyond loopback it needs a token or client certificates, set in the configuration.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The name of this instance; host and process id by default.
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// How long a lease lasts without renewal; 10s by default.
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    runtime()?.block_on(serve(arguments))
}

/// Renewals have a thread of their own in the library; this one only answers.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(exit::NO, format!("cannot start the runtime: {error}")))
}

async fn serve(arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = store_options::load(loader(&arguments)?)?;
    let is_local = local::serves(&config);
    for warning in config.warnings() {
        talk(&warning.to_string());
    }
    tell_unheard_beats(&config, &arguments.names);
    // Whoever cannot serve takes no part: it would hold a lease for a moment, or lengthen a
    // quarantine.
    let listener = ServerSettings::from_config(&config.sidecar)?.bind().await?;
    // From before it takes part: a signal that comes early must not cost a lease.
    let mut signals = EndSignals::listen()?;
    let hang_ups = HangUps::listen()?;
    let names = arguments.names.as_slice();
    let starting = async {
        match names {
            [] => Sidecar::from_config(config).await,
            names => Sidecar::taking_part(config, names).await,
        }
    };
    let sidecar = tokio::select! {
        sidecar = starting => sidecar?,
        () = signals.next() => return Ok(ExitCode::SUCCESS),
    };
    if is_local {
        local::keep(sidecar.tenure());
    }
    let server = listener.show(&sidecar);
    // Not before: what keeps it from starting is told in one line.
    arguments.log.start();
    // It may lead already: nobody waits for whoever reads the next line.
    STDOUT.start();
    let url = server.url().map_err(|error| Failure::new(exit::NO, error.to_string()))?;
    let names = match sidecar.names() {
        names if names.is_empty() => "no election yet".to_owned(),
        names => names.join(", "),
    };
    let status = format!("serving {names} at {url}");
    result(&status);
    let systemd = systemd::introduce(&status);
    let certificates = server.certificates();
    let ends = async {
        tokio::select! {
            () = signals.next() => {}
            () = hang_ups.obey(certificates) => {}
        }
    };
    server.serve(ends).await;
    // When it cannot be told, it notices the end itself.
    let _ = systemd.map(|systemd| systemd.stopping());
    let asked_again = async {
        tokio::time::sleep(SAME_SIGNAL_WITHIN).await;
        signals.forget();
        signals.next().await;
    };
    tokio::select! {
        () = sidecar.shutdown() => return Ok(ExitCode::SUCCESS),
        () = asked_again => {}
    }
    sidecar.kill_hooks().await;
    let why =
        "asked to end again: hooks were killed, and a lease that was not released ends by itself";
    Err(Failure::new(exit::NO, why.to_owned()))
}

/// The configuration with the flags laid over it.
fn loader(arguments: &Arguments) -> Result<Loader, Failure> {
    let mut loader = arguments.store.loader()?;
    if let Some(listen) = &arguments.listen {
        loader = loader.set(["sidecar", "listen"], listen, "--listen");
    }
    if let Some(id) = &arguments.id {
        loader = loader.set(["instance"], id, "--id");
    }
    if arguments.empty {
        loader = loader.set(["sidecar", "empty"], "true", "--empty");
    }
    arguments.names.iter().try_for_each(|name| store_options::check_name(name))?;
    if let Some(ttl) = &arguments.ttl {
        loader = with_ttl(loader, &arguments.names, ttl);
    }
    if !arguments.observe.is_empty() {
        loader = loader.set(["sidecar", "observe"], arguments.observe.join(","), "--observe");
    }
    Ok(loader)
}

/// Signals that come this soon after another are the same request: some supervisors send one to the
/// process and to its group.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_millis(500);

/// Whoever wants the work to beat must hear that a sidecar cannot know whether it does.
fn tell_unheard_beats(config: &Config, names: &[String]) {
    let names = match names {
        [] => config.elections.keys().cloned().collect(),
        names => names.to_vec(),
    };
    for name in names.iter().filter(|name| config.election(name).require_beat.is_some()) {
        talk(&format!(
            "{}: require_beat is ignored: only a program that joins over HTTP can ask for beats",
            plain(name)
        ));
    }
}

/// SIGHUP. From a terminal that was closed it asks the program to end; a daemon reads its
/// certificates again.
struct HangUps {
    signals: tokio::signal::unix::Signal,
    is_daemon: bool,
}

impl HangUps {
    fn listen() -> Result<Self, Failure> {
        let signals = signal(SignalKind::hangup()).map_err(|error| {
            Failure::new(exit::NO, format!("cannot listen to signals: {error}"))
        })?;
        let is_daemon = !std::io::stdin().is_terminal() && !std::io::stderr().is_terminal();
        Ok(HangUps { signals, is_daemon })
    }

    /// Ends when the program has to.
    async fn obey(mut self, certificates: Option<Arc<Certificates>>) {
        while self.signals.recv().await.is_some() && self.is_daemon {
            match certificates.as_ref().map(|certificates| certificates.reload()) {
                None => tracing::info!(target: "tenure",
                    "SIGHUP: there are no certificates to read again; SIGTERM ends the sidecar"),
                Some(Ok(())) => {
                    tracing::info!(target: "tenure", "SIGHUP: certificates were read again");
                }
                Some(Err(error)) => tracing::warn!(target: "tenure", %error,
                    "SIGHUP: the certificates cannot be used, the previous ones stay in use"),
            }
        }
    }
}

/// Lays the flag over the elections that this instance takes part in: those that are named, else
/// all of the configuration. Where that is wrong, the final load says so.
fn with_ttl(loader: Loader, names: &[String], ttl: &str) -> Loader {
    let names = match names {
        [] => {
            let config = loader.clone().load();
            config.map_or_else(|_| Vec::new(), |config| config.elections.into_keys().collect())
        }
        names => names.to_vec(),
    };
    let lay = |loader: Loader, name: &String| loader.set(["elections", name, "ttl"], ttl, "--ttl");
    names.iter().fold(loader.set(["defaults", "ttl"], ttl, "--ttl"), lay)
}

/// The signals that ask a program to end.
struct EndSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl EndSignals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(exit::NO, format!("cannot listen to signals: {error}"))
            })
        };
        let (terminate, interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        somebody_listens();
        Ok(EndSignals { terminate, interrupt })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// What has come so far does not count.
    fn forget(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for signals in [&mut self.terminate, &mut self.interrupt] {
            // Several that came together are kept as one.
            let _ = signals.poll_recv(&mut context);
        }
    }
}

/// Resolves on the first of the signals that ask a program to end.
pub(crate) fn asked_to_end() -> Result<impl Future<Output = ()>, Failure> {
    let mut signals = EndSignals::listen()?;
    Ok(async move { signals.next().await })
}

impl From<SidecarError> for Failure {
    fn from(error: SidecarError) -> Self {
        match error {
            SidecarError::Tenure(error) => error.into(),
            other => Failure::new(exit::CONFIGURATION, other.to_string()),
        }
    }
}
