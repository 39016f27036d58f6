//! `tenure check-aof`: whether an append-only file is whole, and cutting it where it is not.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use store_engine::{EndedKeys, LoadOptions, LoadProgress, check_snapshot};
use store_persist::aof::{
    AofError, Increment, Layout, ListedFile, Manifest, Report, check, is_snapshot,
};

use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{self, OutputOptions};

/// Files longer than this show progress.
const PROGRESS_BYTES: u64 = 64 * 1024 * 1024;
/// A manifest is a few lines.
const MANIFEST_BYTES_MAX: u64 = 1024 * 1024;

/// Check an append-only file: every byte is read, as at the start of a server.
///
/// FILE is a manifest, which stands for all files it lists, or one of them. Prints where a file is
/// damaged. If the last file is cut short or damaged, it can be cut after the last whole request:
/// with --fix at once, on a terminal after a question, otherwise not at all.
///
/// A snapshot at the front is read into memory, as a server that starts with the file does. So this
/// needs as much memory as that server. Requests are read, but not run.
///
/// Exit code: 0 when all files are intact or were repaired, 65 when it is damaged, 66 when it
/// cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure check-aof appendonlydir/appendonly.aof.manifest")]
pub(crate) struct Arguments {
    /// appendonly.aof.manifest, or a file beside it.
    file: PathBuf,
    /// Cut the file after the last whole request, without asking.
    #[arg(long)]
    fix: bool,
    /// How many databases the server that loads it has (its setting `databases`).
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    databases: u32,
    #[command(flatten)]
    output: OutputOptions,
}

/// A file to check.
struct Listed {
    path: PathBuf,
    /// The number of an increment in the manifest.
    sequence: Option<u64>,
}

/// What was found in one file.
#[derive(Debug)]
struct Checked {
    path: PathBuf,
    bytes: u64,
    /// Keys of the snapshot it begins with.
    keys: Option<u64>,
    outcome: CheckOutcome,
    /// Whether everything behind what is whole was cut off.
    was_cut: bool,
}

#[derive(Debug)]
enum CheckOutcome {
    /// Its requests were looked through.
    Requests(Report),
    /// What it begins with, or continues, is damaged: there is nothing to cut to.
    Hopeless(String),
}

impl Checked {
    fn damage(&self) -> Option<String> {
        match &self.outcome {
            CheckOutcome::Requests(report) => report.damage.as_ref().map(|d| d.error.to_string()),
            CheckOutcome::Hopeless(reason) => Some(reason.clone()),
        }
    }

    /// Up to where it is whole, when it is worth cutting.
    fn cut_to(&self) -> Option<u64> {
        match &self.outcome {
            CheckOutcome::Requests(report) if report.damage.is_some() => Some(report.valid_len),
            _ => None,
        }
    }

    fn is_whole(&self) -> bool {
        self.was_cut || self.damage().is_none()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut files = check_all(&listed(&arguments.file)?, arguments.databases as usize)?;
    if let Some(last) = files.last_mut() {
        mend(last, arguments.fix).map_err(|error| unreadable(&last.path, &error))?;
    }
    arguments
        .output
        .print(&to_json(&files), || files.iter().map(describe).collect::<Vec<_>>().join("\n"));
    let is_whole = files.iter().all(Checked::is_whole);
    for file in files.iter().filter(|file| !file.is_whole()) {
        let damage = file.damage().unwrap_or_default();
        let next = next_step(file, &files);
        output::talk(&format!("{}: {damage}. {next}", file.path.display()));
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(exit::DAMAGED) })
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(exit::NO_INPUT, format!("{}: {error}", path.display()))
}

/// The files to check, in order.
fn listed(path: &Path) -> Result<Vec<Listed>, Failure> {
    let Some(layout) = Layout::of_manifest(path) else {
        return Ok(vec![Listed { path: path.to_owned(), sequence: None }]);
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| unreadable(path, &error))?;
    let manifest = Manifest::parse(&bytes).map_err(|error| {
        let text = format!(
            "the manifest {} is damaged, {error}. Restore it from a backup, or correct it by hand",
            path.display()
        );
        Failure::new(exit::DAMAGED, text)
    })?;
    let listed = |file: &ListedFile, sequence: Option<u64>| Listed {
        path: layout.path_of(&file.name),
        sequence,
    };
    let base = manifest.base.iter().map(|file| listed(file, None));
    let increments = manifest.increments.iter().map(|file| listed(file, Some(file.sequence)));
    Ok(base.chain(increments).collect())
}

fn check_all(files: &[Listed], databases: usize) -> Result<Vec<Checked>, Failure> {
    let (mut checked, mut before) = (Vec::new(), Vec::new());
    for Listed { path, sequence } in files {
        let file = check_file(path, databases, &before);
        let file = file.map_err(|error| unreadable(path, &error))?;
        before.extend(sequence.map(|sequence| Increment { sequence, len: file.bytes }));
        checked.push(file);
    }
    Ok(checked)
}

fn check_file(path: &Path, databases: usize, before: &[Increment]) -> io::Result<Checked> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut input = BufReader::with_capacity(1 << 20, file);
    let (mut keys, mut offset) = (None, 0);
    let mut progress = |at: u64| {
        if bytes > PROGRESS_BYTES {
            output::talk(&format!("{}: {} %, offset {at}", path.display(), at * 100 / bytes));
        }
    };
    let rest: Box<dyn Read> = if is_snapshot(path, input.fill_buf()?) {
        match read_snapshot(input, databases, &mut progress) {
            Ok((count, end, rest)) => {
                (keys, offset) = (Some(count), end);
                rest
            }
            Err(reason) => {
                let (path, outcome) = (path.to_owned(), CheckOutcome::Hopeless(reason));
                return Ok(Checked { path, bytes, keys, outcome, was_cut: false });
            }
        }
    } else {
        Box::new(input)
    };
    let outcome = match check(rest, offset, before, &mut progress) {
        Ok(report) => CheckOutcome::Requests(report),
        Err(error @ AofError::Discontinued { .. }) => CheckOutcome::Hopeless(error.to_string()),
        Err(AofError::Read { error, .. }) => return Err(error),
        Err(error) => return Err(io::Error::other(error)),
    };
    let path = path.to_owned();
    Ok(Checked { path, bytes, keys, outcome, was_cut: false })
}

/// Keys of the snapshot at the front, where it ends, and what follows it. It is loaded as at a
/// start: that a key is there twice is not to be seen in any single record.
fn read_snapshot(
    input: impl Read + 'static,
    databases: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<(u64, u64, Box<dyn Read>), String> {
    let mut progress_at = PROGRESS_BYTES;
    let mut told = |loaded: LoadProgress| {
        if loaded.bytes >= progress_at {
            progress_at = loaded.bytes + PROGRESS_BYTES;
            progress(loaded.bytes);
        }
    };
    // What follows may count on keys that are over.
    let options = LoadOptions { ended: EndedKeys::Loaded, merges: false };
    let now_us = clock::unix_ms() * 1000;
    let loaded = check_snapshot(input, databases, now_us, options, &mut told);
    let (report, file) = loaded.map_err(|error| error.to_string())?;
    let end = file.offset();
    let (input, rest) = file.into_rest();
    Ok((report.keys, end, Box::new(io::Cursor::new(rest).chain(input))))
}

/// Cuts the last file behind what is whole, if somebody wants it.
fn mend(file: &mut Checked, is_told_to: bool) -> io::Result<()> {
    let Some(len) = file.cut_to() else { return Ok(()) };
    let lost = file.bytes.saturating_sub(len);
    let path = file.path.display();
    if !is_told_to {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Ok(());
        }
        eprintln!("{path}: {}", file.damage().unwrap_or_default());
        eprint!(
            "This will shrink it from {} to {len} bytes, {lost} less. Continue? [y/N] ",
            file.bytes
        );
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !answer.trim().eq_ignore_ascii_case("y") {
            return Ok(());
        }
    }
    let handle = OpenOptions::new().write(true).open(&file.path)?;
    handle.set_len(len)?;
    handle.sync_all()?;
    eprintln!("{path}: cut from {} to {len} bytes: the last {lost} bytes are gone", file.bytes);
    file.was_cut = true;
    Ok(())
}

fn next_step(file: &Checked, files: &[Checked]) -> &'static str {
    let is_last = files.last().is_some_and(|last| last.path == file.path);
    match (&file.outcome, is_last) {
        (CheckOutcome::Requests(_), true) => "Nothing was changed; --fix cuts it there",
        (CheckOutcome::Requests(_), false) => {
            "Nothing was changed: what follows in other files needs it; restore it from a backup"
        }
        (CheckOutcome::Hopeless(_), _) => "Nothing was changed; restore it from a backup",
    }
}

fn describe(file: &Checked) -> String {
    let state = match (file.damage(), file.was_cut) {
        (None, _) => "whole",
        (Some(_), true) => "cut: now whole",
        (Some(_), false) => "damaged",
    };
    let snapshot = file.keys.map(|keys| format!(", a snapshot of {keys} keys")).unwrap_or_default();
    let requests = match &file.outcome {
        CheckOutcome::Requests(report) => {
            let Report { requests, valid_len, summed_len, .. } = report;
            format!(
                ", {requests} requests, whole up to offset {valid_len}, checksums up to \
                 {summed_len}"
            )
        }
        CheckOutcome::Hopeless(_) => String::new(),
    };
    format!("{}: {} bytes{snapshot}{requests}: {state}", file.path.display(), file.bytes)
}

fn to_json(files: &[Checked]) -> serde_json::Value {
    let files_json: Vec<serde_json::Value> = files
        .iter()
        .map(|file| {
            let report = match &file.outcome {
                CheckOutcome::Requests(report) => Some(report),
                CheckOutcome::Hopeless(_) => None,
            };
            json!({
                "file": file.path.display().to_string(),
                "bytes": file.bytes,
                "keys": file.keys,
                "requests": report.map(|report| report.requests),
                "whole_bytes": report.map(|report| report.valid_len),
                "checksummed_bytes": report.map(|report| report.summed_len),
                "timestamp": report.and_then(|report| report.timestamp),
                "damage": file.damage(),
                "is_cut_short": report.and_then(|r| r.damage.as_ref()).map(|d| d.is_cut),
                "was_cut": file.was_cut,
            })
        })
        .collect();
    json!({ "whole": files.iter().all(Checked::is_whole), "files": files_json })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";

    fn folder(increment: &[u8]) -> testkit::TempFolder {
        let folder = testkit::TempFolder::create();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        };
        write("a.1.base.rdb", b"REDIS0004\xfe\x00\x00\x01s\x05hello\xff");
        write("a.1.incr.aof", increment);
        let manifest = "file a.1.base.rdb seq 1 type b\nfile a.1.incr.aof seq 1 type i\n";
        write("a.manifest", manifest.as_bytes());
        folder
    }

    fn checked(folder: &testkit::TempFolder) -> Vec<Checked> {
        let paths =
            listed(&folder.path().join("a.manifest")).map_err(|failure| failure.message).unwrap();
        check_all(&paths, 16).map_err(|failure| failure.message).unwrap()
    }

    #[test]
    fn a_manifest_stands_for_its_files() {
        let files = checked(&folder(REQUEST));
        assert_eq!(files.len(), 2);
        assert_eq!(files[0].keys, Some(1));
        let json = to_json(&files);
        assert_eq!(json["whole"], true);
        assert_eq!(json["files"][1]["requests"], 1);
    }

    #[test]
    fn a_cut_file_is_cut_back_to_what_is_whole() {
        let folder = folder(&[REQUEST, &REQUEST[..10]].concat());
        let mut files = checked(&folder);
        assert_eq!(files[1].cut_to(), Some(REQUEST.len() as u64));
        assert!(to_json(&files)["files"][1]["is_cut_short"].as_bool().unwrap());
        mend(&mut files[1], true).unwrap();
        assert!(files.iter().all(Checked::is_whole));
        assert_eq!(std::fs::read(folder.path().join("a.1.incr.aof")).unwrap(), REQUEST);
        assert!(checked(&folder).iter().all(|file| file.damage().is_none()));
    }

    #[test]
    fn without_being_told_nothing_is_cut() {
        let folder = folder(b"nonsense");
        let mut files = checked(&folder);
        // Standard input of a test is no terminal.
        mend(&mut files[1], false).unwrap();
        assert!(!files[1].is_whole());
        assert_eq!(std::fs::read(folder.path().join("a.1.incr.aof")).unwrap(), b"nonsense");
        assert!(next_step(&files[1], &files).contains("--fix"));
    }

    #[test]
    fn a_damaged_snapshot_cannot_be_cut() {
        let folder = folder(REQUEST);
        std::fs::write(folder.path().join("a.1.base.rdb"), b"REDIS0004\xfe\x00\x00\x01s\x05he")
            .unwrap();
        let files = checked(&folder);
        assert_eq!(files[0].cut_to(), None);
        assert!(files[0].damage().is_some());
    }

    #[test]
    fn a_file_that_continues_more_than_is_there_is_not_whole() {
        for (first, is_whole) in [(REQUEST, true), (b"", false)] {
            let folder = folder(first);
            let line = format!("#SUM:begin after 1 {}\r\n", REQUEST.len());
            let second = [line.as_bytes(), REQUEST].concat();
            std::fs::write(folder.path().join("a.2.incr.aof"), &second).unwrap();
            let manifest = folder.path().join("a.manifest");
            let text = std::fs::read_to_string(&manifest).unwrap();
            std::fs::write(&manifest, format!("{text}file a.2.incr.aof seq 2 type i\n")).unwrap();
            let mut files = checked(&folder);
            assert_eq!(files[2].is_whole(), is_whole, "{:?}", files[2].damage());
            mend(&mut files[2], true).unwrap();
            let left = std::fs::read(folder.path().join("a.2.incr.aof")).unwrap();
            assert_eq!(left, second);
        }
    }

    #[test]
    fn an_empty_file_in_between_hides_nothing() {
        for (first, is_whole) in [(REQUEST, true), (b"", false)] {
            let folder = folder(first);
            let line = format!("#SUM:begin after 1 {}\r\n", REQUEST.len());
            let third = [line.as_bytes(), REQUEST].concat();
            std::fs::write(folder.path().join("a.2.incr.aof"), b"").unwrap();
            std::fs::write(folder.path().join("a.3.incr.aof"), third).unwrap();
            let manifest = folder.path().join("a.manifest");
            let text = std::fs::read_to_string(&manifest).unwrap();
            let more = "file a.2.incr.aof seq 2 type i\nfile a.3.incr.aof seq 3 type i\n";
            std::fs::write(&manifest, text + more).unwrap();
            let files = checked(&folder);
            assert_eq!(files[3].is_whole(), is_whole, "{:?}", files[3].damage());
        }
    }

    #[test]
    fn a_base_that_lost_its_bytes_is_not_whole() {
        for base in [&b""[..], b"RED", &[0; 100]] {
            for increment in [REQUEST, b""] {
                let folder = folder(increment);
                std::fs::write(folder.path().join("a.1.base.rdb"), base).unwrap();
                let files = checked(&folder);
                assert!(files[0].damage().is_some(), "{base:?}");
                assert_eq!(files[0].cut_to(), None);
                assert!(next_step(&files[0], &files).contains("backup"));
            }
        }
    }

    #[test]
    fn a_snapshot_that_no_server_starts_with_is_not_called_whole() {
        for (base, reason) in [
            (&b"REDIS0004\xfe\x00\x00\x01s\x05hello\x00\x01s\x05hello\xff"[..], "twice"),
            (b"REDIS0004\xfe\x40\x63\x00\x01s\x05hello\xff", "databases is 16"),
        ] {
            let folder = folder(REQUEST);
            std::fs::write(folder.path().join("a.1.base.rdb"), base).unwrap();
            let files = checked(&folder);
            let damage = files[0].damage().expect("no server starts with it");
            assert!(damage.contains(reason), "{damage}");
            assert_eq!(files[0].cut_to(), None);
        }
    }

    #[test]
    fn a_key_that_is_over_counts_since_requests_may_need_it() {
        let folder = folder(REQUEST);
        let over = b"REDIS0004\xfe\x00\xfd\x01\x00\x00\x00\x00\x01s\x05hello\xff";
        std::fs::write(folder.path().join("a.1.base.rdb"), over).unwrap();
        let files = checked(&folder);
        assert_eq!((files[0].keys, files[0].damage()), (Some(1), None));
    }
}
