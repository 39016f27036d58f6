//! Finding the store of a data folder: by the lock that lies with the data.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::getuid;

use super::LOOK_EVERY;
use super::account::Machine;
use super::ask::{ANSWER_TIMEOUT, greet};
use super::end::holder;
use super::lock::{LockRecord, StoreAddress, is_held};
use super::patience::UNTOLD_MAX;
use super::peer::{check_socket_folder, is_of_user, prove};
use super::place::{DataFolder, folder_in};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::talk;

/// What is known of the store of a data folder.
#[derive(Debug)]
pub(super) enum Found {
    /// It answers here.
    Running(PathBuf),
    /// It is starting, ending, stopped, or cannot be reached from here.
    Silent(Silence),
    /// There is none. Whether one should be there: it crashed, or a signal ended it.
    Absent { is_missed: bool },
}

/// A store that has the lock and does not answer.
#[derive(Clone, Debug)]
pub(super) enum Silence {
    /// The lock says where it is, and there it does not answer.
    NoAnswer { pid: u32, why: String },
    /// The lock says where it is, and that is not its place: somebody wrote over the lock, or the
    /// path leads elsewhere from here.
    WrongAddress { why: String },
    /// The lock does not say where it is: it is starting or ending, or somebody wrote over the lock
    /// and it cannot fix that.
    NoAddress,
}

impl Silence {
    /// The process of the store, as far as that can be seen from here.
    pub(super) fn pid(&self, place: &DataFolder) -> Option<u32> {
        match self {
            Silence::NoAnswer { pid, .. } => Some(*pid),
            Silence::WrongAddress { .. } | Silence::NoAddress => holder(&place.lock()),
        }
    }
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Silence::NoAnswer { pid, why } => {
                write!(f, "the local store, process {pid}, does not answer ({why})")
            }
            Silence::WrongAddress { why } => {
                write!(f, "the local store is not where local.lock says ({why})")
            }
            Silence::NoAddress => f.write_str("the local store is starting or ending"),
        }
    }
}

/// Looks for the store. Fails where there may be one on another machine.
pub(super) fn find(place: &DataFolder) -> Result<Found, Failure> {
    find_within(place, ANSWER_TIMEOUT)
}

/// The same; a store that takes longer than `patience` to answer is silent.
pub(super) fn find_within(place: &DataFolder, patience: Duration) -> Result<Found, Failure> {
    look(place, patience).map_err(|error| {
        let lock = place.lock();
        let why = format!("the local store: cannot read {}: {error}", lock.display());
        Failure::new(exit::CONFIGURATION, format!("{why}: {}", super::place::NEXT))
    })?
}

/// The same, where a store that is starting or ending is waited for, at most for `limit`, and one
/// that does not answer for as long as an answer may take. After a second it says so.
pub(super) fn find_settled(place: &DataFolder, limit: Duration) -> Result<Found, Failure> {
    let began_at = clock::steady();
    let mut is_told = false;
    loop {
        let found = find_within(place, limit.clamp(UNTOLD_MAX, ANSWER_TIMEOUT))?;
        let waited = clock::steady().saturating_duration_since(began_at);
        let (silence, limit) = match &found {
            Found::Silent(silence @ Silence::NoAddress) => (silence, limit),
            Found::Silent(silence) => (silence, limit.min(ANSWER_TIMEOUT)),
            Found::Running(_) | Found::Absent { .. } => return Ok(found),
        };
        if waited >= limit {
            return Ok(found);
        }
        if waited >= UNTOLD_MAX && !is_told {
            talk(&format!("{silence}: waiting for it"));
            is_told = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn look(place: &DataFolder, patience: Duration) -> io::Result<Result<Found, Failure>> {
    // In this order: a store says where it is after it took the lock.
    let held = is_held(&place.lock())?;
    let said = LockRecord::read(&place.lock())?;
    let elsewhere = match &said {
        LockRecord::Serves(there) if !Machine::here().shares_locks_with(&there.machine) => {
            Some(is_elsewhere(place, there))
        }
        _ => None,
    };
    Ok(match (held, said, elsewhere) {
        // Whoever holds it is here, whatever is written in it: a backup or the lock of another
        // folder may have been copied over it. The store says again where it is; until then it is
        // looked for.
        (true, said, elsewhere) => {
            let named = match (&said, &elsewhere) {
                (LockRecord::Serves(there), None) => Some(there),
                _ => None,
            };
            match (find_by_socket(place, named, patience), elsewhere) {
                (Ok(socket), _) => Ok(Found::Running(socket)),
                (Err(_), Some(failure)) => Err(failure),
                (Err(silence), None) => Ok(Found::Silent(silence)),
            }
        }
        (false, _, Some(failure)) => Err(failure),
        (false, said @ (LockRecord::Nothing | LockRecord::Stopped), None) => {
            match of_earlier_version(&place.state) {
                Some(earlier) => earlier.found(),
                // A store that was told to end has removed it.
                None => {
                    let is_missed = said == LockRecord::Nothing && place.running().is_dir();
                    Ok(Found::Absent { is_missed })
                }
            }
        }
        (false, LockRecord::Ended | LockRecord::Serves(_), None) => {
            Ok(Found::Absent { is_missed: true })
        }
    })
}

/// The socket at which the store of this folder answers: the one that the lock names, or one of
/// those that it may have, whatever the lock says.
fn find_by_socket(
    place: &DataFolder,
    named: Option<&StoreAddress>,
    patience: Duration,
) -> Result<PathBuf, Silence> {
    let mut silence = Silence::NoAddress;
    let named_socket = named.map(|there| there.socket.clone());
    let others = place.sockets().into_iter().filter(|socket| Some(socket) != named_socket.as_ref());
    for socket in named_socket.iter().cloned().chain(others) {
        let greeted = check_socket_folder(place, &socket)
            .and_then(|()| greet(&socket, patience, |stream| prove(place, &socket, stream)));
        let Err(error) = greeted else { return Ok(socket) };
        let named = named.filter(|there| there.socket == socket);
        let why = format!("{}: {}", socket.display(), in_words(&error));
        silence = match (named, place.has_socket(&socket)) {
            (Some(there), true) => Silence::NoAnswer { pid: there.pid, why },
            (Some(_), false) => Silence::WrongAddress { why },
            (None, _) if !is_timeout(&error) => silence,
            (None, _) => match holder(&place.lock()) {
                Some(pid) => Silence::NoAnswer { pid, why },
                None => silence,
            },
        };
    }
    Err(silence)
}

fn is_elsewhere(place: &DataFolder, there: &StoreAddress) -> Failure {
    let (lock, host, pid) = (place.lock(), &there.machine.host, there.pid);
    let why = format!(
        "the local store of {} was last seen on host {host}, process {pid}, and may be there still",
        place.state.display()
    );
    let next = format!(
        "{}; if that host no longer uses the folder, remove {}",
        super::place::NEXT,
        lock.display()
    );
    Failure::new(exit::CONFIGURATION, format!("{why}: {next}"))
}

/// What a timeout of a socket is called by the system tells nobody anything.
fn in_words(error: &io::Error) -> String {
    match is_timeout(error) {
        true => "no answer in time".to_owned(),
        false => error.to_string(),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A store that an earlier version started: it holds no lock in its data folder.
#[derive(Debug)]
pub(super) struct EarlierStore {
    pid: u32,
    socket: PathBuf,
}

impl EarlierStore {
    fn found(self) -> Result<Found, Failure> {
        match greet(&self.socket, ANSWER_TIMEOUT, is_of_user) {
            Ok(()) => Ok(Found::Running(self.socket)),
            Err(error) => Err(self.in_the_way(&format!("does not answer: {error}"))),
        }
    }

    fn in_the_way(&self, why: &str) -> Failure {
        let pid = self.pid;
        let why = format!("a local store of an earlier version, process {pid}, {why}: kill {pid}");
        Failure::new(exit::CONFIGURATION, format!("{why}, then try again"))
    }
}

/// The process that serves this folder, found by its words and its working folder. Its own
/// environment says where its socket is.
fn of_earlier_version(state: &Path) -> Option<EarlierStore> {
    // Earlier versions left a file here for as long as the store ran.
    if !state.join("running").is_file() {
        return None;
    }
    let state = fs::canonicalize(state).ok()?;
    let user = getuid().as_raw();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let process = entry.path();
        if fs::metadata(&process).ok()?.uid() != user || !serves_without_lock(&process) {
            return None;
        }
        (fs::read_link(process.join("cwd")).ok()? == state)
            .then(|| EarlierStore { pid, socket: earlier_socket(&process, user) })
    })
}

fn serves_without_lock(process: &Path) -> bool {
    let words = fs::read(process.join("cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"local")
        && words.next() == Some(b"serve")
        && words.next() != Some(super::LOCKED.as_bytes())
}

fn earlier_socket(process: &Path, user: u32) -> PathBuf {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let variable = |name: &str| {
        let mut pairs = environment.split(|byte| *byte == 0);
        let value =
            pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(PathBuf::from(String::from_utf8_lossy(value).into_owned()))
    };
    let folder = match variable("XDG_RUNTIME_DIR").filter(|folder| folder.is_absolute()) {
        Some(folder) => folder.join("tenure"),
        None => variable("TMPDIR").unwrap_or_else(|| "/tmp".into()).join(format!("tenure-{user}")),
    };
    folder.join("store.sock")
}

/// Where earlier versions kept data that this one does not look at, because the environment named
/// the folder. Fails while such a store runs: nobody would know of the other's leaders.
pub(super) fn left_by_earlier_versions(place: &DataFolder) -> Result<Option<PathBuf>, Failure> {
    let user = getuid().as_raw();
    let folders = [
        folder_in("HOME").map(|home| home.join(".local/state/tenure")),
        folder_in("XDG_RUNTIME_DIR").map(|folder| folder.join("tenure/state")),
        Some(std::env::temp_dir().join(format!("tenure-{user}/state"))),
    ];
    if folder_in("XDG_STATE_HOME").is_some() {
        return Ok(None);
    }
    let mut left = None;
    for folder in folders.into_iter().flatten() {
        let is_ours = fs::metadata(&folder).is_ok_and(|found| found.uid() == user);
        if !is_ours || fs::canonicalize(&folder).is_ok_and(|folder| folder == place.state) {
            continue;
        }
        if let Some(earlier) = of_earlier_version(&folder) {
            return Err(earlier.in_the_way(&format!("serves {}", folder.display())));
        }
        if left.is_none() && folder.join("started").is_file() {
            left = Some(folder);
        }
    }
    Ok(left)
}
