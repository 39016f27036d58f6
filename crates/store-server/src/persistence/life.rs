//! Which life of the data this is, across restarts.
//!
//! Elections ask whether the store can have forgotten a lease. A small file beside the data
//! answers: at a clean end it says so and how the data files looked; while the server runs it
//! does not. Only a start that finds a clean end and those very files continues the incarnation.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use store_persist::disk::{self, Disk};
use store_types::crc64::crc64;

const NAME: &str = "tenure.life";
const NEW_NAME: &str = "tenure.life.new";
const VERSION_LINE: &str = "tenure-life 1";
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
}

/// Says how the files looked at a clean end, or that there was none.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    life: Life,
    /// `None` while the server runs.
    files: Option<Vec<String>>,
}

/// The life to go on with: the last one, when it ended cleanly with these files, else `fresh`.
pub(crate) fn resume(
    disk: &dyn Disk,
    dir: &Path,
    files: &[PathBuf],
    now_ms: u64,
    fresh: Life,
) -> io::Result<Life> {
    let life = match read(disk, dir)? {
        Some(Mark { life, files: Some(seen) }) if seen == looks(disk, files)? => {
            let is_old = now_ms.saturating_sub(life.began_at_ms) > OLD_MS;
            Life { is_complete: life.is_complete || is_old, ..life }
        }
        _ => fresh.clone(),
    };
    // From here on only another clean end continues it.
    match write(disk, dir, &Mark { life: life.clone(), files: None }) {
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

/// All data is durable in these files, and nothing follows.
pub(crate) fn end_cleanly(
    disk: &dyn Disk,
    dir: &Path,
    files: &[PathBuf],
    life: &Life,
) -> io::Result<()> {
    let files = Some(looks(disk, files)?);
    write(disk, dir, &Mark { life: life.clone(), files })
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
        let end = end_of(disk, path, len.saturating_sub(END_LEN))?;
        lines.push(format!("file {len} {:016x} {name}", crc64(0, &end)));
    }
    Ok(lines)
}

fn end_of(disk: &dyn Disk, path: &Path, skipped: u64) -> io::Result<Vec<u8>> {
    let mut source = disk.read(path)?;
    io::copy(&mut source.by_ref().take(skipped), &mut io::sink())?;
    let mut end = Vec::new();
    source.read_to_end(&mut end)?;
    Ok(end)
}

fn write(disk: &dyn Disk, dir: &Path, mark: &Mark) -> io::Result<()> {
    let Life { incarnation, began_at_ms, is_complete } = &mark.life;
    let history = if *is_complete { "complete" } else { "unknown" };
    let state = if mark.files.is_some() { "clean" } else { "running" };
    let mut text = format!(
        "{VERSION_LINE}\nincarnation {incarnation}\nbegan_at_ms {began_at_ms}\nhistory {history}\n\
         state {state}\n"
    );
    for line in mark.files.iter().flatten() {
        text.push_str(&format!("{line}\n"));
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
    if lines.next()? != VERSION_LINE {
        return None;
    }
    let mut word = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let incarnation = word("incarnation")?.to_owned();
    let began_at_ms = word("began_at_ms")?.parse().ok()?;
    let is_complete = word("history")? == "complete";
    let is_clean = word("state")? == "clean";
    let is_hex = incarnation.len() == 40 && incarnation.bytes().all(|b| b.is_ascii_hexdigit());
    let life = Life { incarnation, began_at_ms, is_complete };
    let files = is_clean.then(|| lines.map(str::to_owned).collect());
    is_hex.then_some(Mark { life, files })
}

#[cfg(test)]
mod tests {
    use store_persist::disk::SimulatedDisk;

    use super::*;

    fn life(digit: char, is_complete: bool) -> Life {
        Life { incarnation: digit.to_string().repeat(40), began_at_ms: 1000, is_complete }
    }

    fn put(disk: &SimulatedDisk, bytes: &[u8]) {
        disk::replace(disk, Path::new("d/a"), Path::new("d/b"), bytes).unwrap();
    }

    #[test]
    fn only_a_clean_end_with_the_same_files_continues_a_life() {
        let (dir, files) = (Path::new("d"), [PathBuf::from("d/a")]);
        let disk = SimulatedDisk::seeded(1);
        put(&disk, b"data");
        let first = resume(&disk, dir, &files, 2000, life('a', true)).unwrap();
        assert_eq!(first, life('a', true));
        // Nothing was said at the end.
        let second = resume(&disk, dir, &files, 2000, life('b', false)).unwrap();
        assert_eq!(second, life('b', false));
        end_cleanly(&disk, dir, &files, &second).unwrap();
        let third = resume(&disk, dir, &files, 2000, life('c', true)).unwrap();
        assert_eq!(third, life('b', false));
        // An older copy of the same length.
        end_cleanly(&disk, dir, &files, &third).unwrap();
        put(&disk, b"date");
        let fourth = resume(&disk, dir, &files, 2000, life('d', false)).unwrap();
        assert_eq!(fourth, life('d', false));
    }

    #[test]
    fn an_old_incarnation_has_outlived_what_it_does_not_know() {
        let disk = SimulatedDisk::seeded(1);
        let dir = Path::new("d");
        end_cleanly(&disk, dir, &[], &life('a', false)).unwrap();
        let later = resume(&disk, dir, &[], 2000 + OLD_MS, life('b', false)).unwrap();
        assert_eq!(later, life('a', true));
    }

    #[test]
    fn a_full_disk_starts_a_new_life_and_never_an_old_one() {
        let (dir, disk) = (Path::new("d"), SimulatedDisk::seeded(1));
        end_cleanly(&disk, dir, &[], &life('a', true)).unwrap();
        disk.set_fault(Some(store_persist::disk::Fault::FullAfter(0)));
        assert_eq!(resume(&disk, dir, &[], 0, life('b', false)).unwrap(), life('b', false));
        let disk = disk.crash();
        assert_eq!(resume(&disk, dir, &[], 0, life('c', false)).unwrap(), life('c', false));
    }

    #[test]
    fn a_file_of_nonsense_is_no_life() {
        for text in ["", "x", "tenure-life 1\nincarnation zz\n"] {
            assert_eq!(parse(text), None);
        }
    }
}
