//! Which life of the data this is, across restarts.
//!
//! Elections ask whether the store can have forgotten a lease. A small file beside the data
//! answers: at a clean end it says so and how the data files looked; while the server runs it
//! does not. Only a start that finds a clean end and those very files continues the incarnation,
//! and only when no other start did so before: a copy of the folder brings its mark along, and a
//! store that ran in between may have granted what the copy does not know. The [`Witness`] beside
//! the folder tells.
//!
//! How old the mark is was weighed as a sign and left: a script restores a copy within a second,
//! and an ordinary restart may take longer than a lease.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use store_persist::disk::{self, Disk};
use store_types::crc64::crc64;

use super::witness::{Witness, random_id};

pub(super) const NAME: &str = "tenure.life";
const NEW_NAME: &str = "tenure.life.new";
const VERSION_LINE: &str = "tenure-life 2";
/// What was written before there was a proof: nobody can tell a copy of it from the original.
const VERSION_LINE_OLD: &str = "tenure-life 1";
/// A few lines.
const LEN_MAX: u64 = 64 * 1024;
/// An incarnation this old has outlived every lease of what was before it.
const OLD_MS: u64 = 24 * 60 * 60 * 1000;

/// One life of the data: from its beginning, or from a loss, to the next loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) incarnation: String,
    pub(crate) began_at_ms: u64,
    /// Whether nothing can have been before it that is forgotten.
    pub(crate) is_complete: bool,
    /// What the folder has in common with all copies of it, whatever was lost in between. Empty
    /// until the life began.
    pub(crate) family: String,
}

/// Says how the files looked at a clean end, or that there was none.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    life: Life,
    /// `None` while the server runs.
    end: Option<CleanEnd>,
}

#[derive(Debug, PartialEq, Eq)]
struct CleanEnd {
    /// What the witness has, too, if it could keep it.
    proof: Option<String>,
    files: Vec<String>,
}

/// The life to go on with: the last one, when it ended cleanly with these files and no other
/// start went on with it, else `fresh`.
pub(crate) fn resume(
    disk: &dyn Disk,
    dir: &Path,
    files: &[PathBuf],
    now_ms: u64,
    fresh: Life,
) -> io::Result<Life> {
    let mark = read(disk, dir)?;
    let family = match &mark {
        Some(mark) if !mark.life.family.is_empty() => mark.life.family.clone(),
        _ => random_id()?,
    };
    let fresh = Life { family, ..fresh };
    let end = mark.as_ref().and_then(|mark| mark.end.as_ref());
    let proof = end.and_then(|end| end.proof.as_deref());
    // Taken whatever else is found: this start must not be followed by one that believes it.
    let is_proved = Witness::of(disk, dir, &fresh.family).take(proof)?;
    let life = match mark {
        Some(Mark { life, end: Some(end) }) if is_proved && end.files == looks(disk, files)? => {
            let is_old = now_ms.saturating_sub(life.began_at_ms) > OLD_MS;
            Life { is_complete: life.is_complete || is_old, ..life }
        }
        _ => fresh.clone(),
    };
    // From here on only another clean end continues it.
    match write(disk, dir, &Mark { life: life.clone(), end: None }) {
        Ok(()) => Ok(life),
        Err(_) => forget(disk, dir).map(|()| fresh),
    }
}

/// A full disk takes no mark, but the old one must not be believed again.
pub(super) fn forget(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    match disk.remove(&dir.join(NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => disk.sync_folder(dir),
    }
}

/// All data is durable in these files, and nothing follows. Fails when the folder is not the one
/// that this life began in: somebody put another in its place.
pub(crate) fn end_cleanly(
    disk: &dyn Disk,
    dir: &Path,
    files: &[PathBuf],
    life: &Life,
) -> io::Result<()> {
    match read(disk, dir)? {
        Some(Mark { life: found, end: None }) if found == *life => {}
        _ => return Err(io::Error::other(format!("{} was replaced", dir.join(NAME).display()))),
    }
    let files = looks(disk, files)?;
    let proof = Witness::of(disk, dir, &life.family).leave();
    let end = Some(CleanEnd { proof, files });
    write(disk, dir, &Mark { life: life.clone(), end })
}

/// A line per file: its name, its length, and a checksum of its end, so that an older copy does
/// not pass for it.
fn looks(disk: &dyn Disk, files: &[PathBuf]) -> io::Result<Vec<String>> {
    const END_LEN: u64 = 4096;
    let mut lines = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let len = match disk.size(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            len => len?,
        };
        let mut end = Vec::new();
        disk.read_from(path, len.saturating_sub(END_LEN))?.take(END_LEN).read_to_end(&mut end)?;
        lines.push(format!("file {len} {:016x} {name}", crc64(0, &end)));
    }
    Ok(lines)
}

fn write(disk: &dyn Disk, dir: &Path, mark: &Mark) -> io::Result<()> {
    let Life { incarnation, began_at_ms, is_complete, family } = &mark.life;
    let history = if *is_complete { "complete" } else { "unknown" };
    let mut text = format!(
        "{VERSION_LINE}\nincarnation {incarnation}\nbegan_at_ms {began_at_ms}\nhistory {history}\n\
         family {family}\n"
    );
    match &mark.end {
        None => text.push_str("state running\n"),
        Some(CleanEnd { proof, files }) => {
            let proof = proof.as_deref().unwrap_or("none");
            text.push_str(&format!("state clean\nproof {proof}\n"));
            text.extend(files.iter().map(|line| format!("{line}\n")));
        }
    }
    disk::replace(disk, &dir.join(NAME), &dir.join(NEW_NAME), text.as_bytes())
}

/// `None` for a file that is not there, or says nothing that we understand: then nothing is
/// known of the life before.
fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Mark>> {
    match disk::read_small(disk, &dir.join(NAME), LEN_MAX) {
        Ok(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(parse)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse(text: &str) -> Option<Mark> {
    let mut lines = text.lines();
    let is_old = match lines.next()? {
        VERSION_LINE => false,
        VERSION_LINE_OLD => true,
        _ => return None,
    };
    let mut word = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let incarnation = word("incarnation")?.to_owned();
    let began_at_ms = word("began_at_ms")?.parse().ok()?;
    let is_complete = word("history")? == "complete";
    let family = if is_old { String::new() } else { word("family")?.to_owned() };
    let is_clean = word("state")? == "clean" && !is_old;
    let proof = is_clean.then(|| word("proof").map(str::to_owned));
    let end = proof.map(|proof| CleanEnd {
        proof: proof.filter(|proof| is_id(proof)),
        files: lines.map(str::to_owned).collect(),
    });
    let is_sound = is_id(&incarnation) && (is_old || is_id(&family));
    let life = Life { incarnation, began_at_ms, is_complete, family };
    is_sound.then_some(Mark { life, end })
}

/// It is part of a file's name, too.
fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use store_persist::disk::SimulatedDisk;

    use super::*;

    fn fresh(digit: char, is_complete: bool) -> Life {
        let (incarnation, family) = (digit.to_string().repeat(40), String::new());
        Life { incarnation, began_at_ms: 1000, is_complete, family }
    }

    fn put(disk: &SimulatedDisk, bytes: &[u8]) {
        disk::replace(disk, Path::new("d/a"), Path::new("d/b"), bytes).unwrap();
    }

    fn begin(disk: &SimulatedDisk, files: &[PathBuf], digit: char) -> Life {
        resume(disk, Path::new("d"), files, 2000, fresh(digit, false)).unwrap()
    }

    fn is_new(life: &Life, digit: char) -> bool {
        life.incarnation.starts_with(digit)
    }

    #[test]
    fn only_a_clean_end_with_the_same_files_continues_a_life() {
        let (dir, files) = (Path::new("d"), [PathBuf::from("d/a")]);
        let disk = SimulatedDisk::seeded(1);
        put(&disk, b"data");
        assert!(is_new(&begin(&disk, &files, 'a'), 'a'));
        // Nothing was said at the end.
        let second = begin(&disk, &files, 'b');
        assert!(is_new(&second, 'b'));
        end_cleanly(&disk, dir, &files, &second).unwrap();
        let third = begin(&disk, &files, 'c');
        assert_eq!(third, second);
        // An older copy of the same length.
        end_cleanly(&disk, dir, &files, &third).unwrap();
        put(&disk, b"date");
        let fourth = begin(&disk, &files, 'd');
        assert!(is_new(&fourth, 'd'));
        assert_eq!(fourth.family, second.family, "it is the folder that it was");
    }

    /// The mark of a clean end, put back after another life, is what a restored backup brings.
    #[test]
    fn a_clean_end_continues_one_life_and_no_second() {
        let (dir, disk) = (Path::new("d"), SimulatedDisk::seeded(1));
        let first = begin(&disk, &[], 'a');
        end_cleanly(&disk, dir, &[], &first).unwrap();
        let copy = disk::read_small(&disk, &dir.join(NAME), LEN_MAX).unwrap();
        assert_eq!(begin(&disk, &[], 'b'), first);
        disk::replace(&disk, &dir.join(NAME), &dir.join(NEW_NAME), &copy).unwrap();
        assert!(is_new(&begin(&disk, &[], 'c'), 'c'));
    }

    /// It ends without touching what another store may own.
    #[test]
    fn a_folder_that_was_replaced_is_not_ended_cleanly() {
        let (dir, disk) = (Path::new("d"), SimulatedDisk::seeded(1));
        let first = begin(&disk, &[], 'a');
        let second = begin(&disk, &[], 'b');
        assert!(end_cleanly(&disk, dir, &[], &first).is_err());
        disk.remove(&dir.join(NAME)).unwrap();
        assert!(end_cleanly(&disk, dir, &[], &second).is_err());
    }

    #[test]
    fn an_old_incarnation_has_outlived_what_it_does_not_know() {
        let (dir, disk) = (Path::new("d"), SimulatedDisk::seeded(1));
        let life = begin(&disk, &[], 'a');
        end_cleanly(&disk, dir, &[], &life).unwrap();
        let later = resume(&disk, dir, &[], 2000 + OLD_MS, fresh('b', false)).unwrap();
        assert_eq!(later, Life { is_complete: true, ..life });
    }

    #[test]
    fn a_full_disk_starts_a_new_life_and_never_an_old_one() {
        let (dir, disk) = (Path::new("d"), SimulatedDisk::seeded(1));
        let life = begin(&disk, &[], 'a');
        end_cleanly(&disk, dir, &[], &life).unwrap();
        disk.set_fault(Some(store_persist::disk::Fault::FullAfter(0)));
        assert!(is_new(&begin(&disk, &[], 'b'), 'b'));
        let disk = disk.crash();
        assert!(is_new(&begin(&disk, &[], 'c'), 'c'));
    }

    #[test]
    fn a_file_of_nonsense_is_no_life_and_one_of_before_is_no_clean_end() {
        for text in ["", "x", "tenure-life 1\nincarnation zz\n", "tenure-life 3\n"] {
            assert_eq!(parse(text), None);
        }
        let id = "a".repeat(40);
        let head = format!("incarnation {id}\nbegan_at_ms 5\nhistory unknown\n");
        let old = parse(&format!("{VERSION_LINE_OLD}\n{head}state clean\nfile 1 2 a\n")).unwrap();
        assert_eq!((old.life.began_at_ms, old.end), (5, None));
        let path = parse(&format!("{VERSION_LINE}\n{head}family ../../x\nstate running\n"));
        assert_eq!(path, None);
    }
}
