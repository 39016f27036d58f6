//! A memory beside the data folder, which no copy of the folder brings back.
//!
//! A clean end leaves a random text, the *proof*, in the folder and here, and here also which
//! files stood in the folder; a start takes it from here. So a proof counts once, and for those
//! files. The second start from one clean end, which is what a restored backup is, finds none. It
//! is kept under two names, and both must have it: that of the *family*, which a folder shares with
//! all of its copies, and that of the folder's place, where another family may have been in
//! between.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use store_persist::disk::{self, Disk};
use store_types::crc64::crc64;

/// A proof with its files is shorter.
const LEN_MAX: u64 = 64 * 1024;
/// Proofs kept. Stores that never start again leave theirs behind; beyond this all of them go,
/// which costs the others one wait.
const PROOFS_MAX: usize = 512;

/// What is remembered of one data folder.
pub(super) struct Witness<'a> {
    disk: &'a dyn Disk,
    /// `None` where the machine has no such memory: then nothing is ever proved.
    folder: Option<PathBuf>,
    names: [String; 2],
}

impl<'a> Witness<'a> {
    pub(super) fn of(disk: &'a dyn Disk, dir: &Path, family: &str) -> Self {
        let place = std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir));
        let place = place.unwrap_or_else(|_| dir.to_owned());
        let place = crc64(0, place.as_os_str().as_encoded_bytes());
        let names = [format!("proof-family-{family}"), format!("proof-place-{place:016x}")];
        Witness { disk, folder: disk.volatile_folder(), names }
    }

    /// Takes what was left here, and says whether all of it was `proof`. Fails when something
    /// stays behind: it could be taken for a proof once more.
    pub(super) fn take(&self, proof: Option<&str>) -> io::Result<bool> {
        let Some(folder) = &self.folder else { return Ok(false) };
        let mut is_proved = proof.is_some();
        for name in &self.names {
            let path = folder.join(name);
            let found = disk::read_small(self.disk, &path, LEN_MAX).ok();
            is_proved &= found.as_deref() == proof.map(str::as_bytes);
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(is_proved)
    }

    /// Leaves this for the next start.
    pub(super) fn leave(&self, proof: &str) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        self.make_room(folder)?;
        for name in &self.names {
            self.disk.create(&folder.join(name))?.write_all(proof.as_bytes())?;
        }
        Ok(())
    }

    fn make_room(&self, folder: &Path) -> io::Result<()> {
        let mut names = self.disk.list(folder)?;
        names.retain(|name| name.starts_with("proof-"));
        if names.len() < PROOFS_MAX {
            return Ok(());
        }
        for name in names {
            // Another store may have taken it meanwhile.
            let _ = self.disk.remove(&folder.join(name));
        }
        Ok(())
    }
}

/// Forty hexadecimal digits that nobody can guess.
pub(super) fn random_id() -> io::Result<String> {
    let mut bytes = [0; 20];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use store_persist::disk::SimulatedDisk;

    use super::*;

    #[test]
    fn a_proof_counts_once_and_for_its_family_and_place_only() {
        let disk = SimulatedDisk::seeded(1);
        let of = |dir: &str, family: &str| Witness::of(&disk, Path::new(dir), family);
        let leave = || of("/nosuch/d", "a").leave("proof").unwrap();
        let is_proved = || of("/nosuch/d", "a").take(Some("proof")).unwrap();
        leave();
        assert!(is_proved());
        assert!(!is_proved(), "taken before");
        for (dir, family) in [("/nosuch/d", "b"), ("/nosuch/e", "a")] {
            leave();
            assert!(!of(dir, family).take(Some("proof")).unwrap());
            assert!(!is_proved(), "another was in between");
        }
        leave();
        assert!(!of("/nosuch/d", "a").take(Some("another")).unwrap());
        leave();
        let disk = disk.crash();
        assert!(!Witness::of(&disk, Path::new("/nosuch/d"), "a").take(Some("proof")).unwrap());
    }

    #[test]
    fn what_was_never_taken_does_not_pile_up() {
        let disk = SimulatedDisk::seeded(1);
        let folder = disk.volatile_folder().unwrap();
        for family in 0..2 * PROOFS_MAX {
            Witness::of(&disk, Path::new("/nosuch/d"), &family.to_string()).leave("proof").unwrap();
        }
        assert!(disk.list(&folder).unwrap().len() <= PROOFS_MAX + 1);
    }
}
