//! The locks of a data folder: one for whoever starts or ends the store, one that the store holds
//! for life and in which it says where it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::account::Machine;

/// A few lines.
const LEN_MAX: u64 = 16 * 1024;
const VERSION_LINE: &str = "tenure-local 1";

/// A held lock. The system gives it up when the file is closed, and when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock, if nobody has it.
    pub(super) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let options = OpenOptions::new().create(true).read(true).write(true).mode(0o600).clone();
        let file = options.open(path)?;
        if !try_flock(&file, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(None);
        }
        let lock = Lock { file };
        // Somebody may have put another file there before we had the lock.
        Ok(lock.is_at(path).then_some(lock))
    }

    /// Whether the file of that name is the one that is locked.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let (Ok(ours), Ok(there)) = (self.file.metadata(), fs::symlink_metadata(path)) else {
            return false;
        };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }

    /// Writes what others find. Short enough to be written at once, and written over what is there:
    /// on a full disk that still succeeds.
    pub(super) fn say(&self, said: &LockRecord) -> io::Result<()> {
        let text = said.to_text();
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// Whether others find exactly this.
    pub(super) fn says(&self, said: &LockRecord) -> io::Result<bool> {
        let text = said.to_text();
        let mut found = vec![0; text.len()];
        if self.file.metadata()?.len() != text.len() as u64 {
            return Ok(false);
        }
        self.file.read_exact_at(&mut found, 0)?;
        Ok(found == text.as_bytes())
    }

    /// Holds it for as long as this process lives.
    pub(super) fn keep(self) {
        std::mem::forget(self.file);
    }
}

/// Whether somebody holds the lock. Nobody who asks keeps the store from taking it for long.
pub(super) fn is_held(path: &Path) -> io::Result<bool> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        file => Ok(!try_flock(&file?, FlockOperation::NonBlockingLockShared)?),
    }
}

fn try_flock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What the file of a store's lock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LockRecord {
    /// Nothing: no store, or one that is only starting, or one of an earlier version that was told
    /// to end.
    Nothing,
    /// It was told to end: nobody who uses it starts it again. Earlier versions read nothing here.
    Stopped,
    /// A signal ended it, or it left because nobody used it: whoever does may start it again.
    Ended,
    /// It serves here, or did so until it crashed.
    Serves(StoreAddress),
}

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreAddress {
    pub(super) machine: Machine,
    pub(super) pid: u32,
    pub(super) socket: PathBuf,
}

impl LockRecord {
    /// Reads what is said. What makes no sense says nothing.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut text = String::new();
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(LockRecord::Nothing);
            }
            file => drop(file?.take(LEN_MAX).read_to_string(&mut text)),
        }
        Ok(LockRecord::parse(&text).unwrap_or(LockRecord::Nothing))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != VERSION_LINE {
            return None;
        }
        let mut word = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        match word("state")? {
            "ended" => return Some(LockRecord::Ended),
            "stopped" => return Some(LockRecord::Stopped),
            _ => {}
        }
        let (host, id, boot) = (word("host")?, word("machine")?, word("boot")?);
        let machine = Machine { host: host.into(), id: id.into(), boot: boot.into() };
        let pid = word("pid")?.parse().ok()?;
        let socket = PathBuf::from(word("socket")?);
        Some(LockRecord::Serves(StoreAddress { machine, pid, socket }))
    }

    fn to_text(&self) -> String {
        match self {
            LockRecord::Nothing => String::new(),
            LockRecord::Ended => format!("{VERSION_LINE}\nstate ended\n"),
            LockRecord::Stopped => format!("{VERSION_LINE}\nstate stopped\n"),
            LockRecord::Serves(StoreAddress {
                machine: Machine { host, id, boot },
                pid,
                socket,
            }) => {
                let socket = socket.display();
                format!(
                    "{VERSION_LINE}\nstate serves\nhost {host}\nmachine {id}\nboot {boot}\n\
                     pid {pid}\nsocket {socket}\n"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_and_half_of_it_is_not() {
        let machine = Machine::here();
        let socket = PathBuf::from("/home/ada/.local/state/tenure/store.sock");
        let said = LockRecord::Serves(StoreAddress { machine, pid: 7, socket });
        let text = said.to_text();
        assert_eq!(LockRecord::parse(&text), Some(said));
        for said in [LockRecord::Ended, LockRecord::Stopped] {
            assert_eq!(LockRecord::parse(&said.to_text()), Some(said));
        }
        for len in 0..text.len() {
            assert_eq!(LockRecord::parse(&text[..len]), None, "{len}");
        }
        assert_eq!(LockRecord::parse("tenure-local 2\nstate ended\n"), None);
    }
}
