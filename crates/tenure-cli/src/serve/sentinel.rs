//! `tenure serve --sentinel FILE`, and the same under the name `redis-sentinel`.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use store_engine::Config;
use store_sentinel::Configuration;
use store_server::{LogLevel, Server};

use super::background::PidFile;
use super::log::Logger;
use super::settings::{self, Sources};
use super::supervisor::Supervisor;
use super::{
    begin_process, listen_to_signals, start, stop_on_signals, tell_start, unusable_directory,
};
use crate::allocator::Mimalloc;
use crate::exit::{self, Failure};
use crate::log_line::Role;

/// What says that a sentinel is wanted, wherever it stands.
const FLAG: &str = "--sentinel";
/// The program under which people know it.
const PROGRAM: &str = "redis-sentinel";

/// The words without the flag, if a sentinel is wanted.
pub(super) fn words_of(words: &[String]) -> Option<Vec<String>> {
    let is_wanted = words.iter().any(|word| word == FLAG);
    is_wanted.then(|| words.iter().filter(|word| *word != FLAG).cloned().collect())
}

/// Runs a sentinel when this program was called as `redis-sentinel`.
pub(crate) fn run_by_name() -> Option<Result<ExitCode, Failure>> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    if Path::new(&program).file_name() != Some(OsStr::new(PROGRAM)) {
        return None;
    }
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    if words.first().is_some_and(|word| word == "-v" || word == "--version") {
        super::print_version();
        return Some(Ok(ExitCode::SUCCESS));
    }
    Some(run(words.into_iter().filter(|word| word != FLAG).collect()))
}

pub(super) fn run(words: Vec<String>) -> Result<ExitCode, Failure> {
    let configuration =
        |error: anyhow::Error| Failure::new(exit::CONFIGURATION, exit::with_causes(&error));
    let sources = Sources::of(words);
    let (path, text) = read(&sources).map_err(configuration)?;
    let groups = parse(&path, &text).map_err(configuration)?;
    let mut config = settings_of(&sources, &text).map_err(configuration)?;
    check_writable(&path).map_err(configuration)?;
    let Some((logger, supervisor)) = begin_process(Role::Sentinel, &mut config)? else {
        return Ok(ExitCode::SUCCESS);
    };
    Ok(serve(config, &path, groups, &logger, &supervisor)?)
}

/// The file, by its whole name, and its text.
fn read(sources: &Sources) -> anyhow::Result<(std::path::PathBuf, String)> {
    let Some(path) = &sources.file else {
        bail!(
            "a sentinel needs a file that it may write to: write `sentinel monitor NAME IP PORT \
             QUORUM` to sentinel.conf, then `tenure serve --sentinel sentinel.conf`"
        );
    };
    Ok((std::path::absolute(path)?, settings::read_file(path)?))
}

fn parse(path: &Path, text: &str) -> anyhow::Result<Configuration> {
    let configuration = Configuration::parse(text).with_context(|| path.display().to_string())?;
    let is_number = |host: &str| host.parse::<std::net::IpAddr>().is_ok();
    if !configuration.globals.resolve_hostnames {
        let named = configuration.groups.iter().find(|it| !is_number(&it.primary.host));
        if let Some(group) = named {
            bail!(
                "{}: sentinel monitor {}: '{}' is no IP address; give one, or add the line \
                 `sentinel resolve-hostnames yes`",
                path.display(),
                group.name,
                group.primary.host
            );
        }
    }
    for group in &configuration.groups {
        let settings = &group.settings;
        let scripts = [&settings.notification_script, &settings.reconfig_script];
        for script in scripts.into_iter().flatten() {
            rustix::fs::access(script, rustix::fs::Access::EXEC_OK).with_context(|| {
                format!("{}: the script {script} of {} cannot be run", path.display(), group.name)
            })?;
        }
    }
    Ok(configuration)
}

/// All lines that are not about the sentinel, as a store reads them. What differs unless it is
/// set: the port, and that clients may come from anywhere.
fn settings_of(sources: &Sources, text: &str) -> anyhow::Result<Config> {
    let is_own = |line: &str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        word.eq_ignore_ascii_case("sentinel")
    };
    // Empty lines keep the numbers of those that may be wrong.
    let lines: Vec<&str> = text.lines().map(|line| if is_own(line) { "" } else { line }).collect();
    let mut config = Config::of_sentinel();
    for (name, value) in [("port", "26379"), ("protected-mode", "no")] {
        let setting = Config::find(name).context("it is in the table")?;
        config.set(setting, &[value]).map_err(anyhow::Error::msg)?;
    }
    settings::read_onto(config, sources, Some(&lines.join("\n")))
}

/// A sentinel that forgets what it voted for must not vote.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let is_writable = OpenOptions::new().append(true).open(path).map(drop);
    is_writable
        .and_then(|()| Ok(rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)?))
        .with_context(|| {
            format!(
                "Sentinel config file {} is not writable: it keeps votes there; make the file \
                 and its folder writable",
                path.display()
            )
        })
}

fn serve(
    config: Config,
    path: &Path,
    configuration: Configuration,
    logger: &Logger,
    supervisor: &Supervisor,
) -> anyhow::Result<ExitCode> {
    let directory = config.settings().snapshot.folder.clone();
    let pid_path = config.settings().process.pid_file.clone();
    std::env::set_current_dir(&directory)
        .map_err(|error| unusable_directory(&directory, &error))?;
    tell_start(logger);
    let (sink, teller) = (logger.clone(), logger.clone());
    let builder = Server::builder()
        .sentinel(path, configuration, config)
        .listen_as_configured()
        .on_listening(move |port| {
            let port = port.unwrap_or(0);
            teller.log(LogLevel::Notice, &format!("Running mode=sentinel, port={port}."));
        })
        .allocator(Mimalloc)
        .log(move |level, text| sink.write(level, text));
    let signals = listen_to_signals()?;
    crate::file_limit::fail_writes_beyond_it()?;
    let server = start(builder, logger)?;
    let _pid_file = PidFile::create(&pid_path, logger);
    supervisor.tell_ready(logger);
    supervisor.watch(server.liveness(), logger);
    stop_on_signals(signals, server.stopper(), logger.clone());
    server.wait()?;
    supervisor.tell_stopping(logger);
    logger.log(LogLevel::Notice, "Sentinel is now ready to exit, bye bye...");
    Ok(ExitCode::SUCCESS)
}
