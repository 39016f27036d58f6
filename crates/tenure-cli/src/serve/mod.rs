//! `tenure serve`: the store as a server of its own.
//!
//! ```text
//! words ─► settings ─► background (daemonize) ─► the process: directory, log, limits ─► Server
//! ```
//! What concerns the whole process is decided here; the server is a library and leaves it alone.

mod background;
pub(crate) mod limits;
mod log;
mod logo;
mod sentinel;
mod settings;
mod supervisor;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use store_engine::{Config, REDIS_VERSION};
use store_server::{LogLevel, Server, ServerBuilder, StartError, StopSignal, Stopper};

use background::PidFile;
use log::Logger;
use settings::Sources;
use supervisor::Supervisor;

use crate::allocator::Mimalloc;
use crate::exit::{self, Failure};
use crate::log_line::Role;
use crate::run::signals::somebody_listens;

pub(crate) use sentinel::run_by_name as run_sentinel_by_name;

/// Run the Redis-compatible store as a server.
///
/// Takes what redis-server takes: a configuration file, `-` as first or last word for more settings
/// from stdin, and settings as `--name value`, which win over both. Without `bind` it listens on
/// this machine alone. `tenure serve -v` prints the version.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure serve
  tenure serve --port 7000 --requirepass secret --appendonly yes
  tenure serve redis.conf --unixsocket /run/tenure.sock
  tenure serve --port 7001 --dir copy --replicaof 127.0.0.1 7000 --masterauth secret
  tenure serve --port 7001 --dir node-7001 --cluster-enabled yes --appendonly yes
  tenure serve --sentinel sentinel.conf

Servers on one machine need a folder each (--dir, which must exist). docs/store.md is about servers
and replicas, docs/cluster.md about clusters.

With --sentinel it watches Redis servers or stores, as redis-sentinel does, and keeps no data: see
docs/sentinel.md. It writes what it must not forget into its file.")]
pub(crate) struct Arguments {
    /// [redis.conf] [--port 6379] [--bind 127.0.0.1] [--unixsocket PATH] [--name value]…
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SETTINGS")]
    settings: Vec<String>,
}

impl Arguments {
    /// As if somebody had typed these words.
    pub(crate) fn of(settings: Vec<String>) -> Self {
        Self { settings }
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let words = arguments.settings;
    if words.first().is_some_and(|word| word == "-v" || word == "--version") {
        print_version();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(words) = sentinel::words_of(&words) {
        return sentinel::run(words);
    }
    let sources = Sources::of(words);
    let mut config = settings::read(&sources)
        .map_err(|error| Failure::new(exit::CONFIGURATION, exit::with_causes(&error)))?;
    let Some((logger, supervisor)) = begin_process(Role::Store, &mut config)? else {
        return Ok(ExitCode::SUCCESS);
    };
    Ok(serve(config, sources.file.as_deref(), logger, &supervisor)?)
}

/// Goes to the background if it is to, opens the log and asks for limits. `None` where another
/// process goes on.
fn begin_process(role: Role, config: &mut Config) -> anyhow::Result<Option<(Logger, Supervisor)>> {
    let supervisor = Supervisor::of(config)?;
    if config.settings().process.is_daemon && supervisor.is_absent() && !background::is_background()
    {
        background::start_again().context("cannot go on in the background")?;
        return Ok(None);
    }
    if background::is_background() {
        background::leave_terminal().context("cannot leave the terminal")?;
    }
    let logger = Logger::of(role, config)?;
    limits::apply(config, &logger)?;
    Ok(Some((logger, supervisor)))
}

fn serve(
    mut config: Config,
    file: Option<&Path>,
    logger: Logger,
    supervisor: &Supervisor,
) -> anyhow::Result<ExitCode> {
    let directory = config.settings().snapshot.folder.clone();
    let pid_path = config.settings().process.pid_file.clone();
    // Before the working directory changes: what is relative is relative to where we are.
    let file = file.map(std::path::absolute).transpose()?;
    std::env::set_current_dir(&directory)
        .map_err(|error| unusable_directory(&directory, &error))?;
    name_directory(&mut config)?;
    tell_start(&logger);
    let (sink, teller) = (logger.clone(), logger.clone());
    let unix_socket = config.settings().listen.unix_socket.clone();
    let shows_logo = config.settings().process.shows_logo;
    let mode = if config.settings().cluster.is_enabled { "cluster" } else { "standalone" };
    let place = unix_socket.clone();
    let folder = std::env::current_dir()?;
    let mut builder = Server::builder()
        .config(config)
        .setting("dir", &folder.to_string_lossy())
        .listen_as_configured()
        .on_listening(move |port| {
            tell_listening(&teller, port, place.as_deref(), shows_logo, mode);
        })
        .allocator(Mimalloc)
        .log(move |level, text| sink.write(level, text));
    if let Some(path) = &file {
        builder = builder.config_file(path);
    }
    // Before anybody can be served: whoever ends the server right after that ends it in order.
    let signals = listen_to_signals()?;
    crate::file_limit::fail_writes_beyond_it()?;
    let server = start(builder, &logger)?;
    let _pid_file = PidFile::create(&pid_path, &logger);
    logger.log(LogLevel::Notice, "Ready to accept connections");
    if let Some(path) = &unix_socket {
        let path = path.display();
        let text = format!("The server is now ready to accept connections at {path}");
        logger.log(LogLevel::Notice, &text);
    }
    supervisor.tell_ready(&logger);
    supervisor.watch(server.liveness(), &logger);
    stop_on_signals(signals, server.stopper(), logger.clone());
    server.wait()?;
    supervisor.tell_stopping(&logger);
    logger.log(LogLevel::Notice, "Bye bye...");
    Ok(ExitCode::SUCCESS)
}

fn start(builder: ServerBuilder, logger: &Logger) -> Result<Server, StartError> {
    builder.start().inspect_err(|error| {
        // In the background nobody reads what goes to stderr; in front of somebody, once is enough.
        if !logger.is_stdout() {
            logger.log(LogLevel::Warning, &format!("Cannot start: {error}"));
        }
    })
}

fn unusable_directory(directory: &Path, error: &io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "make the folder, or name another with --dir",
        io::ErrorKind::PermissionDenied => {
            "give this user access to it, or name another with --dir"
        }
        _ => "name another folder with --dir",
    };
    anyhow::anyhow!("cannot use dir {}: {error}; {advice}", directory.display())
}

/// From here on `dir` is the working directory, by its whole name, as redis-server tells it.
fn name_directory(config: &mut Config) -> anyhow::Result<()> {
    let directory = std::env::current_dir()?.display().to_string();
    let setting = Config::find("dir").expect("it is in the table");
    config.set(setting, &[&directory]).map_err(anyhow::Error::msg)
}

fn print_version() {
    println!(
        "Redis server v={REDIS_VERSION} sha=00000000:0 malloc=mimalloc bits=64 build=tenure-{}",
        env!("CARGO_PKG_VERSION")
    );
}

/// Tools look for these lines in the words of redis-server.
fn tell_start(logger: &Logger) {
    let pid = std::process::id();
    logger.log(LogLevel::Notice, &format!("Tenure is starting, pid={pid}"));
    let text = format!(
        "Redis version={REDIS_VERSION}, bits=64, commit=00000000, modified=0, pid={pid}, just \
         started"
    );
    logger.log(LogLevel::Notice, &text);
}

/// Clients can connect; data has yet to be loaded.
fn tell_listening(
    logger: &Logger,
    port: Option<u16>,
    unix_socket: Option<&Path>,
    shows_logo: bool,
    mode: &str,
) {
    let place = match (port, unix_socket) {
        (Some(port), _) => format!("port={port}"),
        (None, Some(path)) => format!("unixsocket={}", path.display()),
        (None, None) => "nothing".to_owned(),
    };
    match shows_logo {
        true => logger.log_raw(LogLevel::Notice, &logo::text(port.unwrap_or(0), mode)),
        false => logger.log(LogLevel::Notice, &format!("Running mode={mode}, {place}.")),
    }
    logger.log(LogLevel::Notice, "Server initialized");
}

fn listen_to_signals() -> std::io::Result<Signals> {
    let signals = Signals::new([SIGTERM, SIGINT])?;
    // A terminal that is closed, or whoever turns logs over, does not end it: as in Redis.
    signal_hook::flag::register(SIGHUP, Default::default())?;
    somebody_listens();
    Ok(signals)
}

fn stop_on_signals(mut signals: Signals, stopper: Stopper, logger: Logger) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let (name, signal) = match signal {
                SIGTERM => ("SIGTERM", StopSignal::Terminate),
                _ => ("SIGINT", StopSignal::Interrupt),
            };
            logger.log(LogLevel::Warning, &format!("Received {name} scheduling shutdown..."));
            stopper.stop_on(signal);
        }
    });
}
