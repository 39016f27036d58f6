//! The local store: what the command uses when nobody names another.
//!
//! One per data folder, and one data folder per account, on a unix socket that only the user may
//! open. What decides is the lock that lies with the data:
//!
//! ```text
//! account's home, or XDG_STATE_HOME ─► data folder ─► local.lock ─┬─ held: names the socket
//!                                                                 └─ free: take a turn, start it
//! ```
//! Whoever finds it missing starts it in the background, one at a time; the store itself holds the
//! lock for life, and leaves when it is no longer that of its folder.

mod account;
mod ask;
mod end;
mod file_system;
mod find;
mod keep;
mod lock;
mod patience;
mod peer;
mod place;
mod store;
mod trace;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode, Stdio};
use std::time::Duration;

use serde_json::json;
use store_resp::Reply;
use store_server::LogLevel;
use tenure::config::{Config, Loader, Origin};

use self::ask::{ANSWER_TIMEOUT, ask, connect, info, other_clients};
use self::end::{end_by_signal, holder, is_free_within};
use self::find::{Found, find, find_settled, find_within, left_by_earlier_versions};
pub(crate) use self::keep::keep;
use self::lock::Lock;
use self::patience::{NEXT, UNTOLD_MAX, reach_store};
pub(crate) use self::patience::{Wait, be_patient, left_to_wait};
use self::peer::has_locked;
use self::place::{DataFolder, LOCK_FILE, check_owner, ignored_variable, unusable};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{OutputOptions, plain, plain_up_to, result, talk};
use crate::own_program::{is_own_program, not_started_again, own_program};
use crate::run::duration;
use crate::run::mark::{MARK, OUTER_MARKS};

/// How long the store stays without anybody, unless told otherwise.
const IDLE_DEFAULT: &str = "10m";
/// How long a store may take to come up, or to end: it may have much to load or to write.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one that is started gets at least: no command that needs it can do with less.
const START_MIN: Duration = Duration::from_secs(5);
/// Between two looks whether it is there.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// When a log is longer than this, a new one is begun beside the old one.
const LOG_LEN_MAX: u64 = 1 << 20;

/// Manage the local store, which is used when no other store is named.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Status(Status),
    Start(Start),
    Stop(Stop),
}

/// Say whether it is running, where, and what it keeps. Exits with 1 when it is not running, and
/// with 69 when it does not answer.
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
    /// How long it keeps running without connections.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = IDLE_DEFAULT)]
    idle: Duration,
    /// How long it may take; exits with 75 after that.
    #[arg(long, value_name = "DURATION", value_parser = duration, hide = true)]
    within: Option<Duration>,
}

/// Stop it. Refuses while it is in use, unless forced. One that does not answer is ended by a
/// signal, if forced.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure local stop")]
pub(crate) struct Stop {
    /// Stop it even if it is in use or does not answer.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    tell_ignored_variable();
    match command {
        Command::Status(arguments) => status(&DataFolder::of_user()?, arguments.output),
        Command::Start(arguments) => {
            let place = DataFolder::prepared()?;
            match find_within(&place, UNTOLD_MAX)? {
                Found::Silent(silence) => talk(&format!("{silence}: waiting for it")),
                Found::Running(_) if duration(IDLE_DEFAULT) != Ok(arguments.idle) => {
                    talk("it runs already, so --idle changes nothing: `tenure local stop` first");
                }
                Found::Running(_) | Found::Absent { .. } => {}
            }
            let limit = arguments.within.unwrap_or(TURN_TIMEOUT);
            let started = ensure(&place, arguments.idle, limit);
            let socket = started.map_err(|failure| match arguments.within {
                // Only who gives a time is told that it is over.
                None if failure.code == exit::TIMED_OUT => {
                    Failure::new(exit::UNREACHABLE, failure.message)
                }
                _ => failure,
            })?;
            result(&socket.display().to_string());
            Ok(ExitCode::SUCCESS)
        }
        Command::Stop(arguments) => stop(&DataFolder::of_user()?, arguments.force),
    }
}

/// The store itself, in the foreground: `tenure local serve --idle DURATION`. Nobody types that, so
/// it is none of the commands that help, manual and completions show.
pub(crate) fn serve() -> Result<ExitCode, Failure> {
    close_inherited();
    let mut words = std::env::args_os().skip_while(|word| word != "--idle").skip(1);
    let idle = words.next().unwrap_or_else(|| IDLE_DEFAULT.into());
    let idle = duration(&idle.to_string_lossy()).map_err(Failure::usage)?;
    let served = DataFolder::prepared().and_then(|place| store::serve(&place, idle));
    // Whoever started it hears this on its stderr, and the log keeps it.
    served.inspect_err(|failure| store::log(LogLevel::Warning, &failure.message))?;
    Ok(ExitCode::SUCCESS)
}

/// Closes what whoever started us had open and left to its children: a lock on a file, say, which
/// `flock FILE tenure once …` expects to be free again when the command ends.
fn close_inherited() {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let name = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let open: Vec<i32> = entries.flatten().filter_map(name).filter(|number| *number > 2).collect();
    for number in open {
        // The folder that was just read is among them, and closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Tells a store that takes the lock of its folder from one of an earlier version, which does not.
const LOCKED: &str = "--locked";

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

/// Room for the longest path of a program, and two words after it.
const NAME_AND_WORDS_LEN_MAX: usize = 4096 + 16;

/// Whether the process of this folder in `/proc` is a local store, which whoever happens to be its
/// parent lets live. It may be of another version.
pub(crate) fn is_store(process: &Path) -> bool {
    // First what can be told without the memory of the process: that is locked while it forks or
    // executes something, for long where it waits for a processor meanwhile.
    let is_own = is_own_program(&process.join("exe"));
    if !is_own && !process.join("cwd").join(LOCK_FILE).exists() {
        return false;
    }
    // One read is enough for the name and two words: this may be asked of thousands.
    let mut buffer = [0; NAME_AND_WORDS_LEN_MAX];
    let read = fs::File::open(process.join("cmdline")).and_then(|mut file| file.read(&mut buffer));
    let mut words = buffer[..read.unwrap_or(0)].split(|byte| *byte == 0).skip(1);
    let is_asked = words.next() == Some(b"local") && words.next() == Some(b"serve");
    is_asked && (is_own || holds_lock(process))
}

/// Whether this process has locked the folder that it works in, and that can be one of a store.
fn holds_lock(process: &Path) -> bool {
    let folder = process.join("cwd");
    let can_be_of_store = fs::metadata(&folder).is_ok_and(|found| check_owner(&found).is_ok());
    can_be_of_store && has_locked(process, &folder.join(LOCK_FILE)).unwrap_or(false)
}

/// Adds the local store to a configuration that names none, starts it if need be, and says whom it
/// coordinates: whoever forgot to name a store must hear of it.
pub(crate) fn lay(loader: Loader) -> Result<Loader, Failure> {
    let place = DataFolder::of_user()?;
    let left = left_by_earlier_versions(&place)?.filter(|_| !place.has_data());
    tell_ignored_variable();
    let socket = reach_store(&place)?;
    talk(&format!(
        "no store is named: {}; for more than that set --store or TENURE_STORE{}",
        place.reach(),
        under_sudo()
    ));
    if let Some(left) = left {
        let (left, state) = (left.display(), place.state.display());
        talk(&format!(
            "an earlier version left data in {left}, which is not used; to go on with it: tenure \
             local stop, then move it to {state}"
        ));
    }
    Ok(loader.set(["store", "socket"], socket.display().to_string(), LABEL))
}

/// Whoever meant another folder must hear that it is not used.
fn tell_ignored_variable() {
    if let Some(text) = ignored_variable() {
        talk(&text);
    }
}

/// The account is another one under sudo, and so is its store.
fn under_sudo() -> String {
    match std::env::var("SUDO_USER") {
        Ok(user) if !user.is_empty() => {
            format!(" (under sudo it is not the store of {})", plain(&user))
        }
        _ => String::new(),
    }
}

/// The socket of the store that runs. Starts none.
pub(crate) fn socket() -> Result<PathBuf, Failure> {
    match find_settled(&DataFolder::of_user()?, ANSWER_TIMEOUT)? {
        Found::Running(socket) => Ok(socket),
        Found::Silent(silence) => {
            Err(Failure::new(exit::UNREACHABLE, format!("{silence}: {NEXT}")))
        }
        Found::Absent { .. } => {
            let why = "the local store is not running: tenure local start";
            Err(Failure::new(exit::UNREACHABLE, why))
        }
    }
}

/// Whom the local store coordinates, for people.
pub(crate) fn reach() -> Option<String> {
    DataFolder::of_user().ok().map(|place| place.reach())
}

/// Starts the store from a process that ends at once: it must not be a child of this one, which
/// may be about to kill whatever it started. Returns its socket, or `None` if it does not answer
/// within `limit`; then it may still be starting. Calls `tell` when it takes more than a moment.
fn start_apart(limit: Duration, tell: impl FnOnce()) -> Result<Option<PathBuf>, Failure> {
    // Told here rather than there: in one line, with the code of its own.
    let place = DataFolder::prepared()?;
    let failed = |error: io::Error| not_started(&place, &error);
    let within = tenure_core::timing::duration_text(limit.max(LOOK_EVERY));
    let mut starter = as_nobodys(&mut Process::new(own_program()))
        .args(["local", "start", "--within", &within])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(not_started_again(error)))?;
    let told_at = clock::steady() + UNTOLD_MAX;
    let mut tell = Some(tell);
    // What it says is a line or two, for which a pipe has room.
    while starter.try_wait().map_err(failed)?.is_none() {
        if clock::steady() >= told_at
            && let Some(tell) = tell.take()
        {
            tell();
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let starter = starter.wait_with_output().map_err(failed)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    match starter.status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => Ok(Some(PathBuf::from(text(starter.stdout)))),
        Some(exit::TIMED_OUT) => Ok(None),
        code => {
            let said = text(starter.stderr);
            let why = said.strip_prefix("tenure: ").unwrap_or(&said);
            Err(Failure::new(code.unwrap_or(exit::UNREACHABLE), why))
        }
    }
}

fn not_started(place: &DataFolder, error: &io::Error) -> Failure {
    if is_full(&place.state) {
        let state = place.state.display();
        let next = format!("free some space on the disk of {state}, or name a store with --store");
        return Failure::new(
            exit::UNREACHABLE,
            format!("the local store does not start: {error}: {next}"),
        );
    }
    // What trying again does not help is no outage.
    if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
        return unusable(&place.state, error);
    }
    let next = format!("see {}, or name a store with --store", place.log().display());
    Failure::new(exit::UNREACHABLE, format!("the local store does not start: {error}: {next}"))
}

/// With less than this, a store cannot begin what it keeps.
const SPACE_MIN: u64 = 64 * 1024;

/// Whether the disk of a folder has no room, as far as the system tells.
fn is_full(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|disk| {
        let has_no_files_left = disk.f_files > 0 && disk.f_favail == 0;
        disk.f_bavail.saturating_mul(disk.f_frsize) < SPACE_MIN || has_no_files_left
    })
}

/// Makes sure that a store listens, and returns where. Waits for `limit`; one that it starts itself
/// gets no less than a start takes.
fn ensure(place: &DataFolder, idle: Duration, limit: Duration) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| not_started(place, &error);
    let mut seen = None;
    // By the clock: a look at a store that is stopped takes seconds.
    let given_up_at = clock::steady() + limit;
    while clock::steady() < given_up_at {
        match find(place)? {
            Found::Running(socket) => return Ok(socket),
            Found::Silent(silence) => seen = Some(silence),
            Found::Absent { .. } => {
                if let Some(turn) = Lock::try_take(&place.turn()).map_err(failed)? {
                    let started = start_in_turn(place, idle, limit.max(START_MIN));
                    drop(turn);
                    return started;
                }
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let why = match seen {
        Some(silence) => format!("{silence}: {NEXT}"),
        None => failed(io::Error::other("another process has its turn to start or end it")).message,
    };
    Err(Failure::new(exit::TIMED_OUT, why))
}

/// Starts it, unless whoever had the turn before has.
fn start_in_turn(place: &DataFolder, idle: Duration, limit: Duration) -> Result<PathBuf, Failure> {
    if let Found::Running(socket) = find(place)? {
        return Ok(socket);
    }
    let failed = |error: io::Error| not_started(place, &error);
    let (mut child, said) = spawn(place, idle).map_err(failed)?;
    let mut seen = "it did not start in time".to_owned();
    let given_up_at = clock::steady() + limit;
    while clock::steady() < given_up_at {
        match find(place)? {
            Found::Running(socket) => return Ok(socket),
            Found::Silent(silence) => seen = silence.to_string(),
            Found::Absent { .. } => {}
        }
        if let Some(status) = child.try_wait().map_err(failed)? {
            seen = last_words(said).unwrap_or_else(|| format!("it exited at once ({status})"));
            if status.code() == Some(i32::from(exit::CONFIGURATION)) {
                return Err(Failure::new(exit::CONFIGURATION, seen));
            }
            return Err(failed(io::Error::other(seen)));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(Failure::new(exit::TIMED_OUT, failed(io::Error::other(seen)).message))
}

/// The store serves everybody: it carries no mark of the program that happened to start it, by
/// which a guard would kill it.
fn as_nobodys(process: &mut Process) -> &mut Process {
    process.env_remove(MARK).env_remove(OUTER_MARKS)
}

/// The process, and what it says while it starts: a full disk takes no log.
fn spawn(place: &DataFolder, idle: Duration) -> io::Result<(std::process::Child, io::PipeReader)> {
    if fs::metadata(place.log()).is_ok_and(|log| log.len() > LOG_LEN_MAX) {
        fs::rename(place.log(), place.old_log())?;
    }
    let log = File::options().create(true).append(true).open(place.log())?;
    let idle = tenure_core::timing::duration_text(idle);
    let (said, stderr) = io::pipe()?;
    let child = as_nobodys(&mut Process::new(own_program()))
        .args(["local", "serve", LOCKED, "--idle", &idle])
        .current_dir(&place.state)
        .stdin(Stdio::null())
        .stderr(stderr)
        .stdout(log)
        .spawn()
        .map_err(not_started_again)?;
    Ok((child, said))
}

/// The most of it that is read.
const LAST_WORDS_LEN_MAX: u64 = 16 * 1024;

/// What a store that has ended while it was starting said last.
fn last_words(said: io::PipeReader) -> Option<String> {
    let mut bytes = Vec::new();
    said.take(LAST_WORDS_LEN_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    let line = line.strip_prefix("tenure: ").unwrap_or(line);
    // What to do comes last.
    Some(plain_up_to(line.len(), line))
}

fn stop(place: &DataFolder, force: bool) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| {
        Failure::new(exit::NO, format!("the local store does not stop: {error}: try again"))
    };
    let patience = if force { UNTOLD_MAX * 2 } else { TURN_TIMEOUT };
    let named = match find_settled(place, patience)? {
        Found::Running(socket) => match ask_to_end(place, &socket, force) {
            Ok(()) if is_free_within(place, TURN_TIMEOUT).map_err(failed)? => {
                return Ok(tell_stopped());
            }
            Ok(()) if !force => {
                let why = "the local store does not stop in time: try again, or add --force";
                return Err(Failure::new(exit::NO, why));
            }
            Err(failure) if !force => return Err(failure),
            Ok(()) | Err(_) => None,
        },
        Found::Silent(silence) if force => silence.pid(place),
        Found::Silent(silence) => {
            let next = "try again, or add --force to end it by signal";
            return Err(Failure::new(exit::UNREACHABLE, format!("{silence}: {next}")));
        }
        Found::Absent { .. } => {
            result("the local store is not running");
            return Ok(ExitCode::SUCCESS);
        }
    };
    end_by_signal(place, named).map_err(failed)?;
    Ok(tell_stopped())
}

fn tell_stopped() -> ExitCode {
    result("the local store has stopped");
    ExitCode::SUCCESS
}

/// Tells the store to end. Fails when it does not, for whatever reason.
fn ask_to_end(place: &DataFolder, socket: &Path, force: bool) -> Result<(), Failure> {
    let failed = |why: String, next: &str| {
        Failure::new(exit::NO, format!("the local store does not stop: {why}: {next}"))
    };
    let again = "try again, or add --force to end it by signal";
    let looked = connect(socket).and_then(|mut stream| {
        // Its own two connections count as well.
        let others = other_clients(&mut stream)?.saturating_sub(2);
        Ok((stream, others))
    });
    let (mut stream, others) = match looked {
        Err(error) if is_gone(&error) => return Ok(()),
        looked => looked.map_err(|error| failed(error.to_string(), again))?,
    };
    if others > 0 && !force {
        let why = format!("{others} clients use the local store: stop them first, or add --force");
        return Err(Failure::new(exit::NO, why));
    }
    match ask(&mut stream, &["SHUTDOWN"]) {
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(failed(error.to_string(), again)),
        Ok(Reply::Error(why)) => {
            let next = format!(
                "see {} for what it cannot write, fix that and try again, or add --force, which \
                 loses what was not written",
                place.log().display()
            );
            Err(failed(plain(why.trim_end_matches('.')), &next))
        }
        Ok(other) => Err(failed(format!("{other:?}"), again)),
    }
}

/// Whether a store that answered a moment ago has closed its connections: somebody else ends it.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    let kinds = [UnexpectedEof, ConnectionReset, ConnectionRefused, BrokenPipe, NotFound];
    kinds.contains(&error.kind())
}

/// `running`, `socket` (null when it does not run), `state`, `persists`, `writes`, `clients`,
/// `pid`, `uptime_s`; of one that does not answer `running`, `answers` (false), `pid` (null
/// where it cannot be seen), `state`.
fn status(place: &DataFolder, output: OutputOptions) -> Result<ExitCode, Failure> {
    let state = place.state.display().to_string();
    let socket = match find_settled(place, ANSWER_TIMEOUT)? {
        Found::Running(socket) => Some(socket),
        Found::Silent(silence) => {
            return Ok(tell_silent(silence.pid(place), &state, output));
        }
        Found::Absent { .. } => None,
    };
    let seen = socket.as_deref().and_then(look);
    // One that answered and does no more is ending, or hangs.
    if socket.is_some() && seen.is_none() && !is_free_within(place, UNTOLD_MAX).unwrap_or(true) {
        return Ok(tell_silent(holder(&place.lock()), &state, output));
    }
    let (Some(seen), Some(socket)) = (seen, socket) else {
        let json = json!({ "running": false, "socket": null, "state": state });
        output.print(&json, || {
            format!(
                "the local store is not running; the next command that needs it starts it\n\
                 data      {state}"
            )
        });
        return Ok(ExitCode::from(exit::NO));
    };
    let socket = socket.display().to_string();
    let json = json!({
        "running": true,
        "socket": socket,
        "state": state,
        "persists": seen.persists,
        "writes": if seen.cannot_write { "refused" } else { "ok" },
        "clients": seen.clients,
        "pid": seen.pid,
        "uptime_s": seen.uptime_s,
    });
    output.print(&json, || {
        let keeps = match seen.persists {
            true if seen.cannot_write => {
                "nothing new: its append-only file cannot be written, so it refuses writes; free \
                 space on its disk (store.log says what failed)"
            }
            true => "append-only file, so tokens and history survive a restart",
            false => "nothing: this build keeps data in memory only",
        };
        format!(
            "the local store runs, process {}, for {} s, with {} clients\n\
             socket    {socket}\ndata      {state}\nkeeps     {keeps}\nfor       {}",
            seen.pid,
            seen.uptime_s,
            seen.clients,
            place.reach()
        )
    });
    Ok(ExitCode::SUCCESS)
}

fn tell_silent(pid: Option<u32>, state: &str, output: OutputOptions) -> ExitCode {
    let json = json!({ "running": true, "answers": false, "pid": pid, "state": state });
    output.print(&json, || {
        let process = pid.map_or_else(String::new, |pid| format!(", process {pid},"));
        format!(
            "the local store runs{process} and does not answer; `tenure local stop --force` \
             ends it\ndata      {state}"
        )
    });
    ExitCode::from(exit::UNREACHABLE)
}

struct Seen {
    persists: bool,
    /// The last write to the append-only file failed.
    cannot_write: bool,
    clients: u64,
    pid: u64,
    uptime_s: u64,
}

fn look(socket: &Path) -> Option<Seen> {
    let mut stream = connect(socket).ok()?;
    let written = info(&mut stream, "persistence", "aof_last_write_status").ok()?;
    let mut number = |section: &str, field: &str| {
        info(&mut stream, section, field).ok()?.trim().parse::<u64>().ok()
    };
    Some(Seen {
        persists: number("persistence", "aof_enabled") == Some(1),
        cannot_write: written.trim() == "err",
        clients: number("clients", "connected_clients")?.saturating_sub(3),
        pid: number("server", "process_id")?,
        uptime_s: number("server", "uptime_in_seconds")?,
    })
}
