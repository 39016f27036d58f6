//! Ending a store that does not answer: by signal, and only the one that holds the lock.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, getuid, pidfd_open, pidfd_send_signal};

use super::lock::{Lock, LockRecord, is_held};
use super::peer::{has_locked, has_open};
use super::place::DataFolder;
use super::{LOOK_EVERY, TURN_TIMEOUT};
use crate::clock;
use crate::own_program::is_own_program;

/// How long it gets to end in order before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Ends the process that holds the lock, which may be the one that is `named`: asks it first, which
/// also lets one that was stopped go on, then kills it. Those who use it do not start another.
/// Fails when no store of this folder can be seen.
pub(super) fn end_by_signal(place: &DataFolder, named: Option<u32>) -> io::Result<()> {
    let lock = place.lock();
    let named_store = named.filter(|pid| is_store_of(*pid, &lock).unwrap_or(false));
    let Some(pid) = named_store.or_else(|| holder(&lock)) else {
        return Err(io::Error::other(format!(
            "no process that has {} can be seen",
            lock.display()
        )));
    };
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or(io::ErrorKind::InvalidData)?;
    let process = pidfd_open(number, PidfdFlags::empty())?;
    // After it was opened: no other process can take the number from here on.
    if !is_store_of(pid, &lock)? {
        let why = format!("process {pid} is not the store that has {}", lock.display());
        return Err(io::Error::other(why));
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
    if let Some(lock) = Lock::try_take(&lock)? {
        lock.say(&LockRecord::Stopped)?;
        let _ = fs::remove_dir(place.running());
    }
    Ok(())
}

/// The store that has this very lock open, if it can be seen from here: whatever the lock says.
pub(super) fn holder(lock: &Path) -> Option<u32> {
    let user = getuid().as_raw();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let is_ours = entry.metadata().is_ok_and(|found| found.uid() == user);
        (is_ours && is_store_of(pid, lock).unwrap_or(false)).then_some(pid)
    })
}

/// Whether this process serves a folder and has that very lock.
fn is_store_of(pid: u32, lock: &Path) -> io::Result<bool> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let words = fs::read(process.join("cmdline"))?;
    let mut words = words.split(|byte| *byte == 0).skip(1);
    if words.next() != Some(b"local") || words.next() != Some(b"serve") {
        return Ok(false);
    }
    // Not every system tells who has locked a file.
    let is_own = is_own_program(&process.join("exe")) && has_open(&process, lock)?;
    Ok(is_own || has_locked(&process, lock)?)
}

/// Whether nobody holds the lock, at the latest after `limit`.
pub(super) fn is_free_within(place: &DataFolder, limit: Duration) -> io::Result<bool> {
    let given_up_at = clock::steady() + limit;
    while clock::steady() < given_up_at {
        if !is_held(&place.lock())? {
            return Ok(true);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}
