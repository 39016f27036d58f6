//! Which files count, in what order.
//!
//! ```text
//! #SUM:0123456789abcdef                           checksum of all that follows
//! file appendonly.aof.2.base.rdb seq 2 type b     at most one base
//! file appendonly.aof.1.incr.aof seq 1 type h     history: to be removed
//! file appendonly.aof.2.incr.aof seq 2 type i     increments, in ascending order
//! ```
//! One changed bit would make an increment history, which is removed: hence the checksum. It is the
//! first line, so that a manifest that is cut between two lines is noticed as well. Redis ignores
//! the line, and writes manifests without it.

use store_resp::split_quoted;
use store_types::crc64::crc64;

use super::encode::SUM_MARK;
use super::layout::Layout;

/// Numbers grow by one per rewrite; a higher one is no number of ours, and leaves none above it.
pub(super) const SEQUENCE_MAX: u64 = 1 << 53;
/// A manifest is a few lines; Redis takes no longer ones either.
const LINE_MAX: usize = 1024;

/// What a listed file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// All keys at one moment.
    Base,
    /// Superseded; to be removed.
    History,
    /// What changed since the base or the increment before.
    Increment,
}

impl FileKind {
    fn letter(self) -> char {
        match self {
            Self::Base => 'b',
            Self::History => 'h',
            Self::Increment => 'i',
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Name within the folder.
    pub name: String,
    /// Bases and increments are each numbered from 1.
    pub sequence: u64,
    /// What it is.
    pub kind: FileKind,
}

/// Why a manifest makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ManifestError {
    /// From 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The highest numbers that were given to files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) base: u64,
    pub(super) increment: u64,
}

/// The files that count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// All keys at one moment; absent in a manifest of nothing.
    pub base: Option<ListedFile>,
    /// To be removed.
    pub history: Vec<ListedFile>,
    /// What changed since the base, in order.
    pub increments: Vec<ListedFile>,
    /// The highest number of a base so far.
    pub base_sequence: u64,
    /// The highest number of an increment so far.
    pub increment_sequence: u64,
}

impl Manifest {
    /// Reads what [`to_text`](Self::to_text) wrote, or Redis. Keys that a newer version may have
    /// added to a line are passed over.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let mut manifest = Self::default();
        let wrong = |line: usize, why| ManifestError { line, why };
        if bytes.is_empty() {
            return Err(wrong(1, "the manifest is empty"));
        }
        let mut rest = bytes;
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let number = index + 1;
            rest = &rest[line.len()..];
            let Some(text) = line.strip_suffix(b"\n") else {
                return Err(wrong(number, "the line does not end: the manifest is cut short"));
            };
            if line.len() > LINE_MAX {
                return Err(wrong(number, "the line is too long"));
            }
            let text = text.trim_ascii();
            if text.first() == Some(&b'#') {
                check_sum(text, rest).map_err(|why| wrong(number, why))?;
                continue;
            }
            if text.is_empty() {
                return Err(wrong(number, "the line is empty"));
            }
            let file = parse_line(text).map_err(|why| wrong(number, why))?;
            manifest.add(file).map_err(|why| wrong(number, why))?;
        }
        // A file that is to be removed has its name until then.
        let used = manifest.history.iter().map(|file| file.sequence).max().unwrap_or(0);
        manifest.base_sequence = manifest.base_sequence.max(used);
        manifest.increment_sequence = manifest.increment_sequence.max(used);
        Ok(manifest)
    }

    fn add(&mut self, file: ListedFile) -> Result<(), &'static str> {
        match file.kind {
            FileKind::Base if self.base.is_some() => return Err("there is a second base"),
            FileKind::Base => {
                self.base_sequence = file.sequence;
                self.base = Some(file);
            }
            FileKind::History => self.history.push(file),
            FileKind::Increment => {
                if file.sequence <= self.increment_sequence {
                    return Err("the numbers of increments do not ascend");
                }
                self.increment_sequence = file.sequence;
                self.increments.push(file);
            }
        }
        Ok(())
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let files = self.base.iter().chain(&self.history).chain(&self.increments);
        let line = |file: &ListedFile| {
            let (name, letter) = (quoted(&file.name), file.kind.letter());
            format!("file {name} seq {} type {letter}\n", file.sequence)
        };
        let lines: String = files.map(line).collect();
        format!("#SUM:{:016x}\n{lines}", crc64(0, lines.as_bytes()))
    }

    /// Makes sure that files that are there, listed or not, keep their names.
    pub fn pass_over(&mut self, layout: &Layout, names: &[String]) {
        for (kind, number) in names.iter().filter_map(|name| layout.parse_name(name)) {
            match kind {
                FileKind::Base => self.base_sequence = self.base_sequence.max(number),
                _ => self.increment_sequence = self.increment_sequence.max(number),
            }
        }
    }

    /// Makes sure that no file gets a number that `earlier` has given to one.
    pub(super) fn continue_numbers(&mut self, earlier: Numbers) {
        self.base_sequence = self.base_sequence.max(earlier.base);
        self.increment_sequence = self.increment_sequence.max(earlier.increment);
    }

    /// The highest numbers so far.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers { base: self.base_sequence, increment: self.increment_sequence }
    }

    /// Whether a file is listed, whatever as.
    pub fn lists(&self, name: &str) -> bool {
        let mut files = self.base.iter().chain(&self.history).chain(&self.increments);
        files.any(|file| file.name == name)
    }

    /// Whether no file counts.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.increments.is_empty()
    }

    /// Adds the next increment and returns its name.
    pub fn add_increment(&mut self, layout: &Layout) -> String {
        self.increment_sequence += 1;
        let sequence = self.increment_sequence;
        let name = layout.increment_name(sequence);
        self.increments.push(ListedFile {
            name: name.clone(),
            sequence,
            kind: FileKind::Increment,
        });
        name
    }

    /// Puts the next base in place of the present one, which becomes history, and returns its
    /// name.
    pub fn replace_base(&mut self, layout: &Layout, is_rdb: bool) -> String {
        self.base_sequence += 1;
        let sequence = self.base_sequence;
        let name = layout.base_name(sequence, is_rdb);
        let base = ListedFile { name: name.clone(), sequence, kind: FileKind::Base };
        let old = self.base.replace(base);
        self.history.extend(old.map(|old| ListedFile { kind: FileKind::History, ..old }));
        name
    }

    /// Makes all increments history but the last `kept`.
    pub fn retire_increments(&mut self, kept: usize) {
        let retired = self.increments.len().saturating_sub(kept);
        let retired = self.increments.drain(..retired);
        self.history.extend(retired.map(|old| ListedFile { kind: FileKind::History, ..old }));
    }
}

/// Fails when a comment is a checksum, and not that of the lines behind it.
fn check_sum(comment: &[u8], rest: &[u8]) -> Result<(), &'static str> {
    let Some(sum) = comment.strip_prefix(SUM_MARK) else { return Ok(()) };
    match sum == format!("{:016x}", crc64(0, rest)).as_bytes() {
        true => Ok(()),
        false => Err("the checksum is not that of the lines behind it: they have changed. If you \
                      changed them yourself, remove the line with #SUM"),
    }
}

fn parse_line(text: &[u8]) -> Result<ListedFile, &'static str> {
    let words = split_quoted(text).ok_or("the quotes do not match")?;
    if words.len() < 6 || words.len() % 2 == 1 {
        return Err("a line is `file NAME seq NUMBER type LETTER`");
    }
    let (mut name, mut sequence, mut kind) = (None, None, None);
    for pair in words.chunks(2) {
        let value = std::str::from_utf8(&pair[1]).map_err(|_| "a word is not UTF-8")?;
        match pair[0].to_ascii_lowercase().as_slice() {
            b"file" if name.is_some() => return Err("a line has two files"),
            b"seq" if sequence.is_some() => return Err("a line has two numbers"),
            b"type" if kind.is_some() => return Err("a line has two types"),
            b"file" => name = Some(value.to_owned()),
            b"seq" => sequence = Some(value.parse().map_err(|_| "seq is no number")?),
            b"type" => {
                kind = Some(match value {
                    "b" => FileKind::Base,
                    "h" => FileKind::History,
                    "i" => FileKind::Increment,
                    _ => return Err("type is none of b, h and i"),
                });
            }
            _ => {}
        }
    }
    let (Some(name), Some(sequence), Some(kind)) = (name, sequence, kind) else {
        return Err("one of file, seq and type is missing");
    };
    if name.is_empty() || name.contains('/') {
        return Err("the name is empty or leads out of the folder");
    }
    if sequence == 0 || sequence > SEQUENCE_MAX {
        return Err("seq begins at 1 and ends at 2^53");
    }
    Ok(ListedFile { name, sequence, kind })
}

/// The name as it is, or in quotes when a blank or something stranger is in it.
fn quoted(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if name.bytes().all(is_plain) {
        return name.to_owned();
    }
    let mut text = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x20..=0x7e => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            dir: "/data".into(),
            folder_name: "appendonlydir".into(),
            file_name: "appendonly.aof".into(),
        }
    }

    /// The text without its checksum.
    fn lines(manifest: &Manifest) -> String {
        manifest.to_text().split_once('\n').unwrap().1.to_owned()
    }

    #[test]
    fn a_rewrite_passes_through_the_manifest() {
        let mut manifest = Manifest::default();
        assert_eq!(manifest.replace_base(&layout(), true), "appendonly.aof.1.base.rdb");
        manifest.add_increment(&layout());
        assert_eq!(manifest.add_increment(&layout()), "appendonly.aof.2.incr.aof");
        manifest.replace_base(&layout(), false);
        manifest.retire_increments(1);
        let text = "file appendonly.aof.2.base.aof seq 2 type b\n\
                    file appendonly.aof.1.base.rdb seq 1 type h\n\
                    file appendonly.aof.1.incr.aof seq 1 type h\n\
                    file appendonly.aof.2.incr.aof seq 2 type i\n";
        assert_eq!(lines(&manifest), text);
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), manifest);
        assert_eq!(Manifest::parse(manifest.to_text().as_bytes()).unwrap(), manifest);
    }

    #[test]
    fn no_changed_bit_and_no_cut_passes_for_other_files() {
        let mut manifest = Manifest::default();
        manifest.replace_base(&layout(), true);
        manifest.add_increment(&layout());
        let good = manifest.to_text().into_bytes();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                let parsed = Manifest::parse(&bytes);
                let is_other = parsed.is_ok_and(|parsed| parsed != manifest);
                assert!(!is_other, "{:?}", String::from_utf8_lossy(&bytes));
            }
            let is_listed = at > 0 && Manifest::parse(&good[..at]).is_ok();
            assert!(!is_listed, "cut at {at}");
        }
    }

    #[test]
    fn comments_quotes_and_unknown_keys_are_read() {
        let text = b"# written by hand\nfile \"a b.aof\" seq 3 type i later 7\n";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.increments[0].name, "a b.aof");
        assert_eq!(lines(&manifest), "file \"a b.aof\" seq 3 type i\n");
    }

    #[test]
    fn a_line_end_in_a_name_is_written_as_redis_does() {
        let layout = Layout { file_name: "a\nb".into(), ..layout() };
        let mut manifest = Manifest::default();
        manifest.add_increment(&layout);
        let text = manifest.to_text();
        assert_eq!(lines(&manifest), "file \"a\\nb.1.incr.aof\" seq 1 type i\n");
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), manifest);
    }

    #[test]
    fn a_number_is_used_once_listed_or_not() {
        let text = b"file appendonly.aof.2.base.rdb seq 2 type b\n\
                     file appendonly.aof.4.incr.aof seq 4 type h\n";
        let mut manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.add_increment(&layout()), "appendonly.aof.5.incr.aof");
        let there = ["appendonly.aof.9.base.aof", "appendonly.aof.7.incr.aof", "other.99.incr.aof"];
        manifest.pass_over(&layout(), &there.map(str::to_owned));
        assert_eq!(manifest.add_increment(&layout()), "appendonly.aof.8.incr.aof");
        assert_eq!(manifest.replace_base(&layout(), true), "appendonly.aof.10.base.rdb");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        let good = "file a seq 1 type i\n";
        for (line, why) in [
            ("file b seq 1 type i\n", "do not ascend"),
            ("file b seq 2\n", "a line is"),
            ("file b seq x type i\n", "no number"),
            ("file b seq 2 type z\n", "none of b, h and i"),
            ("file ../b seq 2 type i\n", "leads out"),
            ("seq 2 type i key v\n", "missing"),
            ("\n", "empty"),
            ("file b seq 2 type i", "cut short"),
            ("file b seq 0 type b\n", "begins at 1"),
            ("file b seq 2 type h\x0bfile c seq 3 type i\n", "two files"),
            ("file b seq 2 seq 3 type i\n", "two numbers"),
            ("file b seq 2 type h type i\n", "two types"),
            ("#SUM:0000000000000001\nfile b seq 2 type i\n", "remove the line with #SUM"),
            ("file b seq 18446744073709551615 type i\n", "ends at 2^53"),
        ] {
            let error = Manifest::parse((good.to_owned() + line).as_bytes()).unwrap_err();
            assert!(error.line == 2 && error.why.contains(why), "{line:?}: {error}");
        }
        assert!(Manifest::parse(b"").is_err());
        let bases = Manifest::parse(b"file a seq 1 type b\nfile b seq 2 type b\n");
        assert!(bases.unwrap_err().why.contains("second base"));
    }
}
