//! `tenure serve`: the store as a server of its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use store_engine::{Config, REDIS_VERSION, parse_arguments, parse_file};
use store_server::{LogLevel, Server, Stopper};

use crate::log_line;

/// Run the Redis-compatible store as a server.
///
/// Takes what redis-server takes: a configuration file, and settings as `--name value`, which
/// win over the file. `tenure serve -v` prints the version.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// [redis.conf] [--port 6379] [--bind 127.0.0.1] [--unixsocket PATH] [--name value]…
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SETTINGS")]
    settings: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut settings = arguments.settings;
    if settings.iter().any(|word| word == "-v" || word == "--version") {
        print_version();
        return Ok(ExitCode::SUCCESS);
    }
    let file = match settings.first() {
        Some(first) if !first.starts_with("--") => Some(PathBuf::from(settings.remove(0))),
        _ => None,
    };
    let config = read_config(file.as_deref(), &settings)?;
    let directory = config.text("dir").to_owned();
    std::env::set_current_dir(&directory).with_context(|| format!("cannot use dir {directory}"))?;
    keep_pages_small(&config);
    log(LogLevel::Notice, &format!("Tenure is starting, pid={}", std::process::id()));
    let mut builder = Server::builder().config(config).listen_as_configured().log(log);
    if let Some(path) = &file {
        builder = builder.config_file(path);
    }
    let server = builder.start()?;
    announce(&server);
    stop_on_signals(server.stopper())?;
    server.wait()?;
    log(LogLevel::Notice, "Bye bye...");
    Ok(ExitCode::SUCCESS)
}

fn read_config(file: Option<&Path>, settings: &[String]) -> anyhow::Result<Config> {
    let mut config = Config::default();
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
        parse_file(&mut config, &text).with_context(|| path.display().to_string())?;
    }
    parse_arguments(&mut config, settings)?;
    Ok(config)
}

/// Filling a page of two megabytes with zeros stalls the loop for milliseconds, so the setting
/// `disable-thp` keeps the system from using such pages. Only the program may decide this.
fn keep_pages_small(config: &Config) {
    if config.is_on("disable-thp")
        && let Err(error) = rustix::thread::disable_transparent_huge_pages(true)
    {
        log(LogLevel::Warning, &format!("Cannot disable huge pages: {error}"));
    }
}

fn print_version() {
    println!(
        "Redis server v={REDIS_VERSION} sha=00000000:0 malloc=mimalloc bits=64 build=tenure-{}",
        env!("CARGO_PKG_VERSION")
    );
}

fn announce(server: &Server) {
    let place = match (server.port(), server.unix_socket()) {
        (Some(port), _) => format!("port={port}"),
        (None, Some(path)) => format!("unixsocket={}", path.display()),
        (None, None) => "nothing".to_owned(),
    };
    log(LogLevel::Notice, &format!("Running mode=standalone, {place}."));
    log(LogLevel::Notice, "Ready to accept connections");
}

fn stop_on_signals(stopper: Stopper) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let name = if signal == SIGTERM { "SIGTERM" } else { "SIGINT" };
            log(LogLevel::Warning, &format!("Received {name} scheduling shutdown..."));
            stopper.stop();
        }
    });
    Ok(())
}

fn log(level: LogLevel, text: &str) {
    println!("{}", log_line::format(level, text));
}
