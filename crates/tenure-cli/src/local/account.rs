//! Who runs this, and on which machine: what the environment cannot change.

use std::fs;
use std::path::PathBuf;

use nix::unistd::{Uid, User};

use super::place::NEXT;
use crate::exit::{self, Failure};

/// An entry of the system's list of accounts.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) name: String,
    /// As the list has it, whatever HOME says: cron, sudo and a login shell agree on it.
    pub(super) home: PathBuf,
}

impl Account {
    /// The account of this process. Fails when there is none, or none can be looked up: to guess
    /// would be to have another store in another environment.
    pub(super) fn of_process() -> Result<Self, Failure> {
        let user = Uid::current();
        let refuse = |why: String| {
            Failure::new(
                exit::CONFIGURATION,
                format!("the local store has no place: {why}: {NEXT}"),
            )
        };
        let found = User::from_uid(user).map_err(|error| {
            refuse(format!("cannot look up the account of uid {user}: {error}"))
        })?;
        let account = found.ok_or_else(|| refuse(format!("uid {user} has no account")))?;
        if !account.dir.is_absolute() {
            return Err(refuse(format!("the account {} has no home", account.name)));
        }
        // One that is made here would be another one as soon as the real one is mounted.
        if !account.dir.is_dir() {
            let home = account.dir.display();
            let why = format!("the home {home} of the account {} is not there", account.name);
            return Err(refuse(why));
        }
        Ok(Account { name: account.name, home: account.dir })
    }
}

/// This machine, in the life it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) host: String,
    /// Of the installation; empty where it has none.
    pub(super) id: String,
    /// Another one after each start of the kernel, and the same in all of its containers.
    pub(super) boot: String,
}

impl Machine {
    pub(super) fn here() -> Self {
        let line = |path: &str| match fs::read_to_string(path) {
            Ok(text) => text.split_whitespace().next().unwrap_or_default().to_owned(),
            Err(_) => String::new(),
        };
        Machine {
            host: line("/proc/sys/kernel/hostname"),
            id: line("/etc/machine-id"),
            boot: line("/proc/sys/kernel/random/boot_id"),
        }
    }

    /// Whether locks that `other` held can be seen from here, or are gone with an earlier start of
    /// this very machine.
    pub(super) fn shares_locks_with(&self, other: &Machine) -> bool {
        let same = |a: &str, b: &str| !a.is_empty() && a == b;
        same(&self.boot, &other.boot) || same(&self.id, &other.id) || same(&self.host, &other.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_knows_itself_and_no_other() {
        let machine = |host: &str, id: &str, boot: &str| Machine {
            host: host.to_owned(),
            id: id.to_owned(),
            boot: boot.to_owned(),
        };
        let here = machine("a", "1", "x");
        assert!(here.shares_locks_with(&machine("b", "", "x")), "a container of this kernel");
        assert!(here.shares_locks_with(&machine("a", "", "y")), "before it was started anew");
        assert!(!here.shares_locks_with(&machine("b", "2", "y")));
        assert!(!machine("", "", "").shares_locks_with(&machine("", "", "")));
        assert!(!Machine::here().boot.is_empty());
    }
}
