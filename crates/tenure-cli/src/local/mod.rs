//! The local store: what the command uses when nobody names another.
//!
//! One per user, on a unix socket that only the user may open. Whoever finds it missing starts it
//! in the background; a lock makes sure that two who do so at once end up with one store.

mod ask;
mod keep;
mod lock;
mod place;
mod store;

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::{Command as Process, ExitCode, Stdio};
use std::time::Duration;

use serde_json::json;
use tenure::config::{Config, Loader, Origin};

use self::ask::{ask, info, other_clients};
pub(crate) use self::keep::keep;
use self::lock::Lock;
use self::place::Place;
use crate::exit::{self, Failure};
use crate::output::{OutputOptions, result};
use crate::run::duration;

/// How long the store stays without anybody, unless told otherwise.
const IDLE_DEFAULT: &str = "10m";
/// How long a store may take to come up, or to end: it may have much to load or to write.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks whether it is there.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Look after the local store, which is used when nobody names another.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Status(Status),
    Start(Start),
    Stop(Stop),
}

/// Say whether it runs, where, and what it keeps. Exits with 1 when it does not run.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure local status
  tenure local status --json")]
pub(crate) struct Status {
    #[command(flatten)]
    output: OutputOptions,
}

/// Start it now rather than when it is needed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure local start --idle 8h")]
pub(crate) struct Start {
    /// How long it stays without anybody.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = IDLE_DEFAULT)]
    idle: Duration,
}

/// End it. Refuses while somebody uses it, unless forced.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure local stop")]
pub(crate) struct Stop {
    /// Even though somebody uses it.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    let place = Place::of_user()?;
    match command {
        Command::Status(arguments) => status(&place, arguments.output),
        Command::Start(arguments) => {
            ensure(&place, arguments.idle)?;
            result(&place.socket().display().to_string());
            Ok(ExitCode::SUCCESS)
        }
        Command::Stop(arguments) => stop(&place, arguments.force),
    }
}

/// The store itself, in the foreground: `tenure local serve --idle DURATION`. Nobody types that, so
/// it is none of the commands that help, manual and completions show.
pub(crate) fn serve() -> Result<ExitCode, Failure> {
    let mut words = std::env::args().skip_while(|word| word != "--idle").skip(1);
    let idle = words.next().unwrap_or_else(|| IDLE_DEFAULT.to_owned());
    store::serve(&Place::of_user()?, duration(&idle).map_err(Failure::usage)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the words of this process ask for [`serve`].
pub(crate) fn is_asked_to_serve() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.next().is_some_and(|word| word == "local")
        && words.next().is_some_and(|word| word == "serve")
}

/// Where a value comes from that nobody gave.
const LABEL: &str = "the local store";

/// Whether `config` has the local store because it names none.
pub(crate) fn serves(config: &Config) -> bool {
    config.settings().iter().any(|setting| setting.origin == Origin::Argument(LABEL.to_owned()))
}

/// Whether this process is a local store, which whoever happens to be its parent lets live.
pub(crate) fn is_store(pid: rustix::process::Pid) -> bool {
    let pid = pid.as_raw_nonzero();
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    let is_ours =
        program.is_ok_and(|program| std::env::current_exe().is_ok_and(|own| own == program));
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).skip(1);
    is_ours && words.next() == Some(b"local") && words.next() == Some(b"serve")
}

/// Adds the local store to a configuration that names none, and starts it if need be.
pub(crate) fn lay(loader: Loader) -> Result<Loader, Failure> {
    let place = Place::of_user()?;
    if !greets(&place) {
        start_apart(&place)?;
    }
    let loader = loader.set(["store", "socket"], place.socket().display().to_string(), LABEL);
    Ok(match place.unbroken().exists() {
        true => loader.set(["defaults", "fresh_store"], "true", LABEL),
        false => loader,
    })
}

/// Starts the store from a process that ends at once: it must not be a child of this one, which
/// may be about to kill whatever it started.
fn start_apart(place: &Place) -> Result<(), Failure> {
    let starter = std::env::current_exe().and_then(|program| {
        Process::new(program).args(["local", "start"]).stdout(Stdio::null()).status()
    });
    match starter {
        Ok(status) if status.success() => Ok(()),
        // It has said why.
        Ok(_) => Err(Failure::new(exit::UNREACHABLE, "no store: name one by --store")),
        Err(error) => Err(not_started(place, &error)),
    }
}

fn not_started(place: &Place, error: &io::Error) -> Failure {
    let next = format!("see {}, or name a store by --store", place.log().display());
    Failure::new(exit::UNREACHABLE, format!("the local store does not start: {error}: {next}"))
}

/// Makes sure that a store listens.
fn ensure(place: &Place, idle: Duration) -> Result<(), Failure> {
    let failed = |error: io::Error| not_started(place, &error);
    if greets(place) {
        return Ok(());
    }
    let lock = Lock::take(&place.lock()).map_err(failed)?;
    // Whoever had the lock before has probably started it.
    if greets(place) {
        return Ok(());
    }
    note_life(place).map_err(failed)?;
    start(place, idle).map_err(failed)?;
    drop(lock);
    Ok(())
}

/// Whether a store answers there. One that only accepts may be on its way out.
fn greets(place: &Place) -> bool {
    let greeting =
        UnixStream::connect(place.socket()).and_then(|mut stream| ask(&mut stream, &["PING"]));
    greeting.is_ok()
}

/// Remembers whether anything can have been forgotten since the first start.
fn note_life(place: &Place) -> io::Result<()> {
    if place.running().exists() {
        match std::fs::remove_file(place.unbroken()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    } else if !place.started().exists() {
        File::create(place.unbroken())?;
        File::create(place.started())?;
    }
    File::create(place.running()).map(drop)
}

fn start(place: &Place, idle: Duration) -> io::Result<()> {
    let log = File::options().create(true).append(true).open(place.log())?;
    let idle = tenure::config::format_duration(idle);
    let mut child = Process::new(std::env::current_exe()?)
        .args(["local", "serve", "--idle", &idle])
        .current_dir(&place.state)
        .stdin(Stdio::null())
        .stderr(log.try_clone()?)
        .stdout(log)
        .spawn()?;
    for _ in 0..TURN_TIMEOUT.as_millis() / LOOK_EVERY.as_millis() {
        if greets(place) {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("it ended at once ({status})")));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(io::Error::from(io::ErrorKind::TimedOut))
}

fn stop(place: &Place, force: bool) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| {
        Failure::new(exit::NO, format!("the local store does not end: {error}: try again"))
    };
    let Ok(mut stream) = UnixStream::connect(place.socket()) else {
        result("the local store does not run");
        return Ok(ExitCode::SUCCESS);
    };
    // Its own two connections count as well.
    let others = other_clients(&mut stream).map_err(failed)?.saturating_sub(2);
    if others > 0 && !force {
        let why = format!("{others} clients use the local store: end them first, or add --force");
        return Err(Failure::new(exit::NO, why));
    }
    match ask(&mut stream, &["SHUTDOWN"]) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(failed(error)),
        Ok(refused) => return Err(failed(io::Error::other(format!("{refused:?}")))),
    }
    result("the local store has ended");
    Ok(ExitCode::SUCCESS)
}

/// `running`, `socket`, `state`, `persists`, `clients`, `pid`, `uptime_s`.
fn status(place: &Place, output: OutputOptions) -> Result<ExitCode, Failure> {
    let socket = place.socket().display().to_string();
    let state = place.state.display().to_string();
    let Some(seen) = look(place) else {
        let json = json!({ "running": false, "socket": socket, "state": state });
        output.print(&json, || {
            format!(
                "the local store does not run; the next command that needs it starts it\n\
                     socket    {socket}\ndata      {state}"
            )
        });
        return Ok(ExitCode::from(exit::NO));
    };
    let json = json!({
        "running": true,
        "socket": socket,
        "state": state,
        "persists": seen.persists,
        "clients": seen.clients,
        "pid": seen.pid,
        "uptime_s": seen.uptime_s,
    });
    output.print(&json, || {
        let keeps = match seen.persists {
            true => "append-only file, so tokens and history survive a restart",
            false => "nothing: this build keeps data in memory only",
        };
        format!(
            "the local store runs, process {}, for {} s, with {} clients\n\
             socket    {socket}\ndata      {state}\nkeeps     {keeps}",
            seen.pid, seen.uptime_s, seen.clients
        )
    });
    Ok(ExitCode::SUCCESS)
}

struct Seen {
    persists: bool,
    clients: u64,
    pid: u64,
    uptime_s: u64,
}

fn look(place: &Place) -> Option<Seen> {
    let mut stream = UnixStream::connect(place.socket()).ok()?;
    let mut number = |section: &str, field: &str| {
        info(&mut stream, section, field).ok()?.trim().parse::<u64>().ok()
    };
    Some(Seen {
        persists: number("persistence", "aof_enabled") == Some(1),
        clients: number("clients", "connected_clients")?.saturating_sub(3),
        pid: number("server", "process_id")?,
        uptime_s: number("server", "uptime_in_seconds")?,
    })
}
