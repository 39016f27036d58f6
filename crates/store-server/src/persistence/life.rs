//! Which life of the data this is, across restarts.
//!
//! Elections ask whether the store can have forgotten a lease. A small file beside the data
//! answers: at a clean end it says so and how the data files looked; while the server runs it
//! does not. Only a start that finds a clean end and those very files continues the incarnation,
//! and only when no other start did so before: a copy of the folder brings its mark along, and a
//! store that ran in between may have granted what the copy does not know. The [`Witness`] beside
//! the folder tells: it has the identities of the files, which no copy of them shares.
//!
//! How old the mark is was weighed as a sign and left: a script restores a copy within a second,
//! and an ordinary restart may take longer than a lease. How long a life lasted is counted while
//! the server runs, by a clock that nobody sets.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use store_persist::disk::{self, Disk, FileIdentity, exists};
use store_types::crc64::crc64;

use super::witness::{Witness, random_id};

pub(super) const NAME: &str = "tenure.life";
const NEW_NAME: &str = "tenure.life.new";
const VERSION_LINE: &str = "tenure-life 3";
/// What was written before files had identities: nobody can tell a copy of it from the original.
const VERSION_LINES_OLD: [&str; 2] = ["tenure-life 1", "tenure-life 2"];
/// A few lines.
const LEN_MAX: u64 = 64 * 1024;
/// An incarnation this old has outlived every lease of what was before it.
const OLD_MS: u64 = 24 * 60 * 60 * 1000;

/// One life of the data: from its beginning, or from a loss, to the next loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) incarnation: String,
    /// How long servers ran in it, until the last clean end.
    pub(crate) served_ms: u64,
    pub(crate) history: History,
    /// What the folder has in common with all copies of it, whatever was lost in between. Empty
    /// until the life began.
    pub(crate) family: String,
}

/// Whether something can have been before a life that is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    Unknown,
    /// Not by anybody in this process, and nobody else could ask the server.
    Unheard,
    /// Nothing, whoever asks.
    Complete,
}

impl History {
    const WORDS: [(History, &'static str); 3] = [
        (History::Unknown, "unknown"),
        (History::Unheard, "unheard"),
        (History::Complete, "complete"),
    ];

    pub(crate) fn is_complete(self) -> bool {
        self != History::Unknown
    }

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(history, _)| *history == self).map_or("unknown", |found| found.1)
    }

    fn parse(word: &str) -> Self {
        let found = Self::WORDS.iter().find(|(_, known)| *known == word);
        found.map_or(History::Unknown, |found| found.0)
    }
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
    proof: String,
    files: Vec<String>,
}

/// The life to go on with: the last one, when it ended cleanly with these files and no other
/// start went on with it, else `fresh`. Listening nowhere counts for a new folder only.
pub(crate) fn resume(
    disk: &dyn Disk,
    dir: &Path,
    files: &[PathBuf],
    (fresh, has_data): (Life, bool),
) -> io::Result<Life> {
    let mark = read(disk, dir)?;
    let is_first = !has_data && mark.is_none() && !exists(disk, &dir.join(NAME));
    let heard_by_nobody = fresh.history == History::Unheard;
    let history = match fresh.history {
        History::Unheard if !is_first => History::Unknown,
        history => history,
    };
    let family = match &mark {
        Some(mark) if !mark.life.family.is_empty() => mark.life.family.clone(),
        _ => random_id()?,
    };
    let fresh = Life { family, history, ..fresh };
    let end = mark.as_ref().and_then(|mark| mark.end.as_ref());
    let witnessed = end.map(|end| witnessed(disk, dir, files, &end.proof)).transpose()?;
    // Taken whatever else is found: this start must not be followed by one that believes it.
    let is_proved = Witness::of(disk, dir, &fresh.family).take(witnessed.as_deref())?;
    let life = match mark {
        Some(Mark { life, end: Some(end) }) if is_proved && end.files == looks(disk, files)? => {
            let history = match life.history {
                _ if life.served_ms > OLD_MS => History::Complete,
                History::Unheard if !heard_by_nobody => History::Unknown,
                history => history,
            };
            Life { history, ..life }
        }
        _ => fresh.clone(),
    };
    // From here on only another clean end continues it.
    match write(disk, dir, &Mark { life: life.clone(), end: None }) {
        Ok(()) => Ok(life),
        Err(_) => forget(disk, dir).map(|()| fresh),
    }
}

/// A life begins while the server runs.
pub(super) fn begin(disk: &dyn Disk, dir: &Path, life: &Life) -> io::Result<()> {
    write(disk, dir, &Mark { life: life.clone(), end: None })
}

/// A full disk takes no mark, but the old one must not be believed again.
pub(super) fn forget(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    match disk.remove(&dir.join(NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => disk.sync_folder(dir),
    }
}

/// All data is durable in these files, and nothing follows; the server ran for so long. Fails when
/// the folder is not the one that this life began in: somebody put another in its place.
pub(crate) fn end_cleanly(
    disk: &dyn Disk,
    dir: &Path,
    files: &[PathBuf],
    (life, ran_ms): (&Life, u64),
) -> io::Result<()> {
    match read(disk, dir)? {
        Some(Mark { life: found, end: None }) if found == *life => {}
        _ => return Err(io::Error::other(format!("{} was replaced", dir.join(NAME).display()))),
    }
    let proof = random_id()?;
    let end = Some(CleanEnd { proof: proof.clone(), files: looks(disk, files)? });
    let life = Life { served_ms: life.served_ms.saturating_add(ran_ms), ..life.clone() };
    write(disk, dir, &Mark { life: life.clone(), end })?;
    // Where it cannot be kept, nothing is proved.
    let witnessed = witnessed(disk, dir, files, &proof)?;
    let _ = Witness::of(disk, dir, &life.family).leave(&witnessed);
    Ok(())
}

/// What the witness keeps: the proof, and which files stood there, the mark among them.
fn witnessed(disk: &dyn Disk, dir: &Path, files: &[PathBuf], proof: &str) -> io::Result<String> {
    let mut text = format!("{proof}\n");
    for path in files.iter().chain([&dir.join(NAME)]) {
        let found = match disk.identity(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        let FileIdentity { device, inode, changed_at_ns, len } = found;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        text.push_str(&format!("{device} {inode} {changed_at_ns} {len} {name}\n"));
    }
    Ok(text)
}

/// A line per file: its name, its length, and a checksum of its end, so that an older copy does
/// not pass for it. The last bytes of a snapshot are the checksum of all before them, and the
/// checksum of a whole that ends so is the same for every such file: they are told apart.
fn looks(disk: &dyn Disk, files: &[PathBuf]) -> io::Result<Vec<String>> {
    const END_LEN: u64 = 4096;
    const SUM_LEN: usize = 8;
    let mut lines = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let len = match disk.size(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            len => len?,
        };
        let mut end = Vec::new();
        disk.read_from(path, len.saturating_sub(END_LEN))?.take(END_LEN).read_to_end(&mut end)?;
        let (end, sum) = end.split_at(end.len().saturating_sub(SUM_LEN));
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        lines.push(format!("file {len} {:016x}{sum} {name}", crc64(0, end)));
    }
    Ok(lines)
}

fn write(disk: &dyn Disk, dir: &Path, mark: &Mark) -> io::Result<()> {
    let Life { incarnation, served_ms, history, family } = &mark.life;
    let mut text = format!(
        "{VERSION_LINE}\nincarnation {incarnation}\nserved_ms {served_ms}\nhistory {}\n\
         family {family}\n",
        history.word()
    );
    match &mark.end {
        None => text.push_str("state running\n"),
        Some(CleanEnd { proof, files }) => {
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
    match lines.next()? {
        VERSION_LINE => {}
        old if VERSION_LINES_OLD.contains(&old) => return parse_old(lines),
        _ => return None,
    }
    let mut word = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let incarnation = word("incarnation")?.to_owned();
    let served_ms = word("served_ms")?.parse().ok()?;
    let history = History::parse(word("history")?);
    let family = word("family")?.to_owned();
    let proof = match word("state")? {
        "clean" => Some(word("proof")?.to_owned()).filter(|proof| is_id(proof)),
        _ => None,
    };
    let end = proof.map(|proof| CleanEnd { proof, files: lines.map(str::to_owned).collect() });
    let is_sound = is_id(&incarnation) && is_id(&family);
    is_sound.then_some(Mark { life: Life { incarnation, served_ms, history, family }, end })
}

/// Of what was written before, only the family counts.
fn parse_old(lines: std::str::Lines<'_>) -> Option<Mark> {
    let word = |name: &str| {
        let mut words = lines.clone().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        words.next().filter(|word| is_id(word)).map(str::to_owned)
    };
    let (incarnation, family) = (word("incarnation")?, word("family").unwrap_or_default());
    let life = Life { incarnation, served_ms: 0, history: History::Unknown, family };
    Some(Mark { life, end: None })
}

/// It is part of a file's name, too.
fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use store_persist::disk::SimulatedDisk;

    use super::*;

    fn fresh(digit: char, history: History) -> Life {
        let (incarnation, family) = (digit.to_string().repeat(40), String::new());
        Life { incarnation, served_ms: 0, history, family }
    }

    fn put(disk: &SimulatedDisk, bytes: &[u8]) {
        disk::replace(disk, Path::new("d/a"), Path::new("d/b"), bytes).unwrap();
    }

    fn begin(disk: &SimulatedDisk, files: &[PathBuf], digit: char) -> Life {
        resume(disk, Path::new("d"), files, (fresh(digit, History::Unknown), true)).unwrap()
    }

    fn end(disk: &SimulatedDisk, files: &[PathBuf], life: &Life) {
        end_cleanly(disk, Path::new("d"), files, (life, 1000)).unwrap();
    }

    fn is_new(life: &Life, digit: char) -> bool {
        life.incarnation.starts_with(digit)
    }

    #[test]
    fn only_a_clean_end_with_the_same_files_continues_a_life() {
        let files = [PathBuf::from("d/a")];
        let disk = SimulatedDisk::seeded(1);
        put(&disk, b"data");
        assert!(is_new(&begin(&disk, &files, 'a'), 'a'));
        // Nothing was said at the end.
        let second = begin(&disk, &files, 'b');
        assert!(is_new(&second, 'b'));
        end(&disk, &files, &second);
        let third = begin(&disk, &files, 'c');
        assert_eq!(third, Life { served_ms: 1000, ..second.clone() });
        // An older copy of the same length.
        end(&disk, &files, &third);
        put(&disk, b"date");
        let fourth = begin(&disk, &files, 'd');
        assert!(is_new(&fourth, 'd'));
        assert_eq!(fourth.family, second.family, "it is the folder that it was");
    }

    /// A snapshot ends with the checksum of what is before it.
    #[test]
    fn snapshots_of_one_length_are_told_apart() {
        let (disk, files) = (SimulatedDisk::seeded(1), [PathBuf::from("d/a")]);
        let snapshot =
            |text: &str| [text.as_bytes(), &crc64(0, text.as_bytes()).to_le_bytes()].concat();
        put(&disk, &snapshot("token 42"));
        let newer = looks(&disk, &files).unwrap();
        put(&disk, &snapshot("token 41"));
        assert_ne!(looks(&disk, &files).unwrap(), newer);
    }

    /// The mark of a clean end, put back after another life, is what a restored backup brings.
    #[test]
    fn a_clean_end_continues_one_life_and_no_second() {
        let (dir, disk) = (Path::new("d"), SimulatedDisk::seeded(1));
        let first = begin(&disk, &[], 'a');
        end(&disk, &[], &first);
        let copy = disk::read_small(&disk, &dir.join(NAME), LEN_MAX).unwrap();
        assert_eq!(begin(&disk, &[], 'b').incarnation, first.incarnation);
        disk::replace(&disk, &dir.join(NAME), &dir.join(NEW_NAME), &copy).unwrap();
        assert!(is_new(&begin(&disk, &[], 'c'), 'c'));
    }

    /// It ends without touching what another store may own.
    #[test]
    fn a_folder_that_was_replaced_is_not_ended_cleanly() {
        let (dir, disk) = (Path::new("d"), SimulatedDisk::seeded(1));
        let first = begin(&disk, &[], 'a');
        let second = begin(&disk, &[], 'b');
        assert!(end_cleanly(&disk, dir, &[], (&first, 0)).is_err());
        disk.remove(&dir.join(NAME)).unwrap();
        assert!(end_cleanly(&disk, dir, &[], (&second, 0)).is_err());
    }

    #[test]
    fn an_incarnation_that_was_served_for_long_has_outlived_what_it_does_not_know() {
        let (dir, disk) = (Path::new("d"), SimulatedDisk::seeded(1));
        let life = begin(&disk, &[], 'a');
        end_cleanly(&disk, dir, &[], (&life, OLD_MS)).unwrap();
        let later = begin(&disk, &[], 'b');
        assert_eq!((later.served_ms, later.history), (OLD_MS, History::Unknown));
        end(&disk, &[], &later);
        assert_eq!(begin(&disk, &[], 'c').history, History::Complete);
    }

    /// Who listens nowhere knows everybody who could have been told of a lease, unless somebody
    /// else had the folder before.
    #[test]
    fn listening_nowhere_speaks_for_an_empty_folder_and_for_as_long_as_nobody_listens() {
        let (dir, files) = (Path::new("d"), [PathBuf::from("d/a")]);
        let unheard = |disk: &SimulatedDisk, digit| {
            resume(disk, dir, &files, (fresh(digit, History::Unheard), false)).unwrap()
        };
        let disk = SimulatedDisk::seeded(1);
        let first = unheard(&disk, 'a');
        assert_eq!(first.history, History::Unheard);
        end(&disk, &files, &first);
        let second = unheard(&disk, 'b');
        assert_eq!((second.history, second.incarnation), (History::Unheard, first.incarnation));
        assert_eq!(unheard(&disk, 'c').history, History::Unknown, "somebody crashed");

        let disk = SimulatedDisk::seeded(1);
        let first = unheard(&disk, 'a');
        end(&disk, &files, &first);
        assert_eq!(begin(&disk, &files, 'b').history, History::Unknown, "now others ask");

        let disk = SimulatedDisk::seeded(1);
        let life = resume(&disk, dir, &files, (fresh('a', History::Unheard), true)).unwrap();
        assert_eq!(life.history, History::Unknown, "there was data");
    }

    #[test]
    fn a_full_disk_starts_a_new_life_and_never_an_old_one() {
        let disk = SimulatedDisk::seeded(1);
        let life = begin(&disk, &[], 'a');
        end(&disk, &[], &life);
        disk.set_fault(Some(store_persist::disk::Fault::FullAfter(0)));
        assert!(is_new(&begin(&disk, &[], 'b'), 'b'));
        let disk = disk.crash();
        assert!(is_new(&begin(&disk, &[], 'c'), 'c'));
    }

    #[test]
    fn a_file_of_nonsense_is_no_life_and_one_of_before_is_no_clean_end() {
        for text in ["", "x", "tenure-life 1\nincarnation zz\n", "tenure-life 4\n"] {
            assert_eq!(parse(text), None);
        }
        let (id, family) = ("a".repeat(40), "b".repeat(40));
        let head = format!("incarnation {id}\nbegan_at_ms 5\nhistory complete\n");
        for (version, more) in [(1, String::new()), (2, format!("family {family}\n"))] {
            let text = format!("tenure-life {version}\n{head}{more}state clean\nfile 1 2 a\n");
            let old = parse(&text).unwrap();
            assert_eq!((old.life.history, old.end), (History::Unknown, None));
            assert_eq!(old.life.family.is_empty(), version == 1);
        }
        let head = format!("incarnation {id}\nserved_ms 5\nhistory unknown\n");
        let path = parse(&format!("{VERSION_LINE}\n{head}family ../../x\nstate running\n"));
        assert_eq!(path, None);
    }
}
