//! Ending a store that does not answer: by signal, and only the one that holds the lock.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::lock::{Lock, Said, is_held};
use super::place::Place;
use super::{LOOK_EVERY, TURN_TIMEOUT};
use crate::clock;

/// How long it gets to end in order before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Ends the process that the lock names: asks it first, which also lets one that was stopped go on,
/// then kills it. Those who use it do not start another. Fails when it is no store of this folder.
pub(super) fn end_by_signal(place: &Place, pid: u32) -> io::Result<()> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or(io::ErrorKind::InvalidData)?;
    let process = pidfd_open(number, PidfdFlags::empty())?;
    // After it was opened: no other process can take the number from here on.
    if !is_store_of(pid, &place.lock())? {
        return Err(io::Error::other(format!(
            "process {pid} is not the store that has {}",
            place.lock().display()
        )));
    }
    pidfd_send_signal(&process, Signal::TERM)?;
    pidfd_send_signal(&process, Signal::CONT)?;
    if !is_free_within(place, GRACE)? {
        pidfd_send_signal(&process, Signal::KILL)?;
        if !is_free_within(place, TURN_TIMEOUT)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    // It was told to end, as by `SHUTDOWN`: nobody is to miss it.
    if let Some(mut lock) = Lock::try_take(&place.lock())? {
        lock.say(&Said::Nothing)?;
    }
    Ok(())
}

/// Whether this process serves a folder and has that very lock open.
fn is_store_of(pid: u32, lock: &Path) -> io::Result<bool> {
    let words = fs::read(format!("/proc/{pid}/cmdline"))?;
    let mut words = words.split(|byte| *byte == 0).skip(1);
    let serves = words.next() == Some(b"local") && words.next() == Some(b"serve");
    let lock = fs::metadata(lock)?;
    let is_lock = |entry: fs::DirEntry| {
        let found = fs::metadata(entry.path());
        found.is_ok_and(|found| (found.dev(), found.ino()) == (lock.dev(), lock.ino()))
    };
    Ok(serves && fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().any(is_lock))
}

/// Whether nobody holds the lock, at the latest after `limit`.
pub(super) fn is_free_within(place: &Place, limit: Duration) -> io::Result<bool> {
    let given_up_at = clock::steady() + limit;
    while clock::steady() < given_up_at {
        if !is_held(&place.lock())? {
            return Ok(true);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}
