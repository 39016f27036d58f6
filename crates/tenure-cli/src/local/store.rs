//! The process of the local store: it serves while it is used, then leaves.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use store_server::{LogLevel, Server, StartError};

use super::account::Machine;
use super::ask::{connections_so_far, other_clients};
use super::lock::{Lock, LockRecord, StoreAddress};
use super::place::{DataFolder, own};
use super::trace::{Name, Trace};
use crate::exit::{self, Failure};
use crate::log_line;
use crate::serve::limits;

/// How many looks at its clients make up the idle time: it may last this much of it longer.
const LOOKS_PER_IDLE: u32 = 10;
/// The longest time between two looks whether socket and folder are still its own: so long others
/// may search for it in vain.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);
/// After how many looks the trace is left again, which counts for two days.
const LOOKS_PER_TRACE: u64 = 3600;
/// A client that has just found the socket gets this long to be counted.
const LAST_CALL: Duration = Duration::from_millis(100);
/// How long the store before this one may take to end.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(20);
/// As many clients as redis-server serves unless told otherwise.
const CLIENTS_MAX: u64 = 10_000;
/// Fewer would make everybody wait who comes later.
const CLIENTS_MIN: u64 = 96;
/// Between two looks whether it has.
const PREDECESSOR_LOOK_EVERY: Duration = Duration::from_millis(200);

/// Serves until nobody has been connected for `idle`, or until told to end.
pub(super) fn serve(place: &DataFolder, idle: Duration) -> Result<(), Failure> {
    let _ = rustix::process::setsid();
    let failed = |error: io::Error| Failure::new(exit::NO, format!("local store: {error}"));
    serve_without_limits()?;
    let clients_max = clients_max()?;
    let mut owner = Owner::of(place, clients_max)?;
    let (end, ends) = channel();
    heed_signals(end.clone()).map_err(failed)?;
    for number in 0_u64.. {
        let session = Session::start(&mut owner, number, &end)?;
        // Whoever started it has heard enough; from here on the log alone is told.
        let _ = rustix::stdio::dup2_stderr(io::stdout());
        let why = session.serve_while_used(&owner, &ends, idle).map_err(failed)?;
        if why == SessionEnd::Replaced {
            // Nothing is written any more: what has the folder's name may belong to another store.
            log(LogLevel::Warning, "The data folder was moved or removed: stopping at once");
            std::process::exit(i32::from(exit::NO));
        }
        session.server.stopper().stop();
        session.server.wait().map_err(failed)?;
        match why {
            SessionEnd::Hidden => {
                log(LogLevel::Warning, "The socket was removed: creating it again")
            }
            // Somebody may need it whom it could not see: one that is about to connect, or stopped.
            SessionEnd::Signal | SessionEnd::Unused => {
                return owner.leave(&LockRecord::Ended).map_err(failed);
            }
            _ => return owner.leave(&LockRecord::Stopped).map_err(failed),
        }
    }
    Ok(())
}

/// The store is everybody's: what the first who came may do binds nobody else.
fn serve_without_limits() -> Result<(), Failure> {
    use rustix::process::Resource;
    // What is left of these would make it fail at some time, each in its own way.
    let all = [
        (Resource::Fsize, "file size", "-f"),
        (Resource::Cpu, "processor time", "-t"),
        (Resource::As, "memory", "-v"),
        (Resource::Data, "memory", "-d"),
    ];
    for (resource, what, flag) in all {
        if let Some(left) = limits::lift(resource) {
            let why = format!(
                "the limit of {left} for {what} is too little for a store that all commands of the \
                 account share: lift it (ulimit -H {flag}), or start the store without it by \
                 `tenure local start`"
            );
            return Err(Failure::new(exit::CONFIGURATION, why));
        }
    }
    Ok(())
}

/// How many clients can be served: everybody's, whatever limits the first who came had.
fn clients_max() -> Result<u64, Failure> {
    let allowed = limits::raise_descriptors(CLIENTS_MAX + limits::DESCRIPTORS_KEPT);
    let served = allowed.saturating_sub(limits::DESCRIPTORS_KEPT).min(CLIENTS_MAX);
    if served < CLIENTS_MIN {
        let least = CLIENTS_MIN + limits::DESCRIPTORS_KEPT;
        let why = format!(
            "{allowed} open files are too few for a store that all commands of the account share: \
             raise the limit to {least} or more (ulimit -n)"
        );
        return Err(Failure::new(exit::CONFIGURATION, why));
    }
    Ok(served)
}

/// A line of the log, if it can be written: a full disk is no reason to end.
pub(super) fn log(level: LogLevel, text: &str) {
    let _ =
        writeln!(io::stdout().lock(), "{}", log_line::format(log_line::Role::Store, level, text));
}

/// The one process that may serve a data folder.
struct Owner<'a> {
    place: &'a DataFolder,
    lock: Lock,
    /// What the lock says.
    said: LockRecord,
    trace: Trace,
    /// Whether nobody can hold a lease that the store does not know of: it is the first one.
    is_first: bool,
    clients_max: u64,
    _name: Name,
}

impl<'a> Owner<'a> {
    /// Waits for the store before, if that is about to end.
    fn of(place: &'a DataFolder, clients_max: u64) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(exit::NO, format!("local store: {}: {error}", place.lock().display()))
        };
        let has_data = place.has_data();
        let mut lock = None;
        let mut holder = "another process".to_owned();
        let looks = PREDECESSOR_TIMEOUT.as_millis() / PREDECESSOR_LOOK_EVERY.as_millis();
        for _ in 0..looks {
            if lock.is_none() {
                lock = Lock::try_take(&place.lock()).map_err(failed)?;
            }
            if lock.is_some() {
                match Name::take(place) {
                    Ok(name) => {
                        let lock = lock.take().expect("it was taken above");
                        let mut owner =
                            Owner::begin(place, lock, name, has_data).map_err(failed)?;
                        owner.clients_max = clients_max;
                        return Ok(owner);
                    }
                    Err(pid) => holder = format!("process {pid}, whose folder is gone,"),
                }
            }
            std::thread::sleep(PREDECESSOR_LOOK_EVERY);
        }
        Err(failed(io::Error::other(format!("{holder} holds it and does not stop"))))
    }

    fn begin(place: &'a DataFolder, lock: Lock, name: Name, has_data: bool) -> io::Result<Self> {
        lock.say(&LockRecord::Nothing)?;
        let trace = Trace::of(place);
        let is_first = trace.is_absent() && !has_data;
        trace.leave()?;
        bar_earlier_versions(place)?;
        let said = LockRecord::Nothing;
        Ok(Owner { place, lock, said, trace, is_first, clients_max: CLIENTS_MIN, _name: name })
    }

    /// Says where it is, once it can be reached there.
    fn tell(&mut self, socket: &Path) -> io::Result<()> {
        let (machine, pid) = (Machine::here(), std::process::id());
        let socket = socket.to_owned();
        self.said = LockRecord::Serves(StoreAddress { machine, pid, socket });
        self.lock.say(&self.said)
    }

    /// Says it again where somebody wrote over it: by a backup that is copied over the folder, say.
    fn tell_again(&self) {
        // What cannot be read or written now is tried at the next look.
        if matches!(self.lock.says(&self.said), Ok(false)) && self.lock.say(&self.said).is_ok() {
            log(LogLevel::Warning, "Somebody wrote over local.lock, writing it again");
        }
    }

    /// Everything is on disk; whoever starts the next store may rely on it.
    fn leave(self, said: &LockRecord) -> io::Result<()> {
        // First of all: whoever finds nothing here takes it for a crash.
        self.lock.say(said)?;
        match fs::remove_dir(self.place.running()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Keeps a store of an earlier version from starting beside this one, and from believing later on
/// that nothing happened meanwhile.
fn bar_earlier_versions(place: &DataFolder) -> io::Result<()> {
    for old in [place.running(), place.unbroken()] {
        if old.is_file() {
            fs::remove_file(&old)?;
        }
    }
    match fs::create_dir(place.running()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Why a server is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    /// A signal.
    Signal,
    /// The server has ended by itself: a client said SHUTDOWN.
    Gone { number: u64 },
    /// Nobody has been here for a while.
    Unused,
    /// Its socket is gone: nobody can find it.
    Hidden,
    /// Its lock is gone, and with it the right to serve this folder.
    Replaced,
}

/// One server of the process.
struct Session {
    server: Server,
    number: u64,
    socket: PathBuf,
    /// What the socket is to the file system.
    socket_id: (u64, u64),
}

impl Session {
    /// Starts a server at the best place for a socket, and says where that is.
    fn start(
        owner: &mut Owner<'_>,
        number: u64,
        end: &Sender<SessionEnd>,
    ) -> Result<Self, Failure> {
        let failed = |why: String| Failure::new(exit::NO, format!("local store: {why}"));
        let mut refused = "no place for a socket: set XDG_STATE_HOME to a shorter path".to_owned();
        for socket in owner.place.sockets() {
            let folder = socket.parent().unwrap_or(&socket);
            if folder != owner.place.state
                && let Err(error) = own(folder)
            {
                refused = format!("{}: {error}", folder.display());
                continue;
            }
            let server = match start(owner, &socket) {
                Ok(server) => server,
                Err(error @ StartError::Listen(_)) => {
                    refused = error.to_string();
                    continue;
                }
                Err(error) => return Err(failed(error.to_string())),
            };
            let mut begin = || -> io::Result<(u64, u64)> {
                watch(&server, number, end.clone())?;
                owner.tell(&socket)?;
                id_of(&socket)
            };
            let socket_id = begin().map_err(|error| failed(error.to_string()))?;
            // The next server of this process is not.
            owner.is_first = false;
            return Ok(Session { server, number, socket, socket_id });
        }
        Err(failed(refused))
    }

    fn serve_while_used(
        &self,
        owner: &Owner<'_>,
        ends: &Receiver<SessionEnd>,
        idle: Duration,
    ) -> io::Result<SessionEnd> {
        let mut ear = self.server.connect()?;
        let mut come = connections_so_far(&mut ear)?;
        let look_every = (idle / LOOKS_PER_IDLE).min(LOOK_EVERY_MAX);
        let mut quiet_for = Duration::ZERO;
        for look in 1_u64.. {
            match ends.recv_timeout(look_every) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(SessionEnd::Signal),
                // The end of a server before this one.
                Ok(SessionEnd::Gone { number }) if number != self.number => {}
                Ok(why) => return Ok(if owner.is_in_place() { why } else { SessionEnd::Replaced }),
            }
            if !owner.is_in_place() {
                return Ok(SessionEnd::Replaced);
            }
            if id_of(&self.socket).ok() != Some(self.socket_id) {
                return Ok(SessionEnd::Hidden);
            }
            owner.tell_again();
            if look.is_multiple_of(LOOKS_PER_TRACE) {
                let _ = owner.trace.leave();
            }
            match is_unused(&mut ear, come) {
                true => quiet_for += look_every,
                false => {
                    quiet_for = Duration::ZERO;
                    come = connections_so_far(&mut ear).unwrap_or(come);
                }
            }
            if quiet_for >= idle && self.may_leave(owner, &mut ear, come) {
                log(LogLevel::Notice, "No connections for a while: stopping");
                return Ok(SessionEnd::Unused);
            }
        }
        Ok(SessionEnd::Unused)
    }

    /// Hides the socket, so that nobody new comes in, and looks once more. Somebody who came at the
    /// last moment gets it back. Whoever wants to start a store waits for its turn meanwhile.
    fn may_leave(&self, owner: &Owner<'_>, ear: &mut UnixStream, come: u64) -> bool {
        let Ok(Some(turn)) = Lock::try_take(&owner.place.turn()) else { return false };
        let hidden = self.socket.with_extension("leaving");
        if fs::rename(&self.socket, &hidden).is_err() {
            return false;
        }
        std::thread::sleep(LAST_CALL);
        if is_unused(ear, come) {
            let _ = fs::remove_file(&hidden);
            // Kept until the process has ended: the next store must not meet the files of this one.
            turn.keep();
            return true;
        }
        let _ = fs::rename(&hidden, &self.socket);
        false
    }
}

impl Owner<'_> {
    fn is_in_place(&self) -> bool {
        self.lock.is_at(&self.place.lock())
    }
}

fn start(owner: &Owner<'_>, socket: &Path) -> Result<Server, StartError> {
    let builder = Server::builder()
        .persist(&owner.place.state)
        .unix_socket(socket)
        .setting("maxclients", &owner.clients_max.to_string())
        .allocator(crate::allocator::Mimalloc)
        .log(log);
    match owner.is_first {
        true => builder.vouch_for_history().start(),
        false => builder.start(),
    }
}

fn id_of(socket: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(socket).map(|found| (found.dev(), found.ino()))
}

fn heed_signals(end: Sender<SessionEnd>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    crate::file_limit::fail_writes_beyond_it()?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let _ = end.send(SessionEnd::Signal);
        }
    });
    Ok(())
}

/// A connection that ends tells that the server has: nobody else ends this one.
fn watch(server: &Server, number: u64, end: Sender<SessionEnd>) -> io::Result<()> {
    let mut watch = server.connect()?;
    std::thread::spawn(move || {
        let _ = io::Read::read(&mut watch, &mut [0]);
        let _ = end.send(SessionEnd::Gone { number });
    });
    Ok(())
}

/// Whether nobody but this process is connected (the ear, and the watch for the end), and nobody
/// came since there were `come` connections: a command looks whether somebody is here, and connects
/// for its work a moment later.
fn is_unused(ear: &mut UnixStream, come: u64) -> bool {
    other_clients(ear).is_ok_and(|others| others <= 1)
        && connections_so_far(ear).is_ok_and(|now| now == come)
}
