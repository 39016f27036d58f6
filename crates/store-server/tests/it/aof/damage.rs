//! Files that are cut, changed or foreign: refused with name, place and next step, or cut with a
//! report; and never touched when refused.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use store_resp::Reply;
use store_server::Server;
use testkit::TempFolder;

use super::{connect, persistent};

const INCREMENT: &str = "appendonlydir/appendonly.aof.1.incr.aof";
const BASE: &str = "appendonlydir/appendonly.aof.1.base.rdb";
const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";

/// A folder with data: `SET token 1` to `SET token 5`, one after the other.
fn written() -> TempFolder {
    let folder = TempFolder::create();
    let server = persistent(folder.path()).setting("appendfsync", "always").start().unwrap();
    let mut connection = connect(&server);
    for token in 1..=5 {
        connection.words(&format!("SET token {token}"));
    }
    folder
}

fn refused(dir: &Path) -> String {
    match persistent(dir).start() {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

/// Damages a file, wants the start refused with these words, and the file left as it was.
fn is_refused(name: &str, damage: impl FnOnce(&mut Vec<u8>), words: &[&str]) {
    let folder = written();
    let path = folder.path().join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    damage(&mut bytes);
    std::fs::write(&path, &bytes).unwrap();
    let error = refused(folder.path());
    for word in words.iter().chain([&path.to_str().unwrap()]) {
        assert!(error.contains(word), "{error}\nlacks {word}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "it was left as it is");
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes.windows(from.len()).position(|window| window == from).expect("it is there");
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn a_changed_bit_is_refused_wherever_it_is() {
    let next_step = ["offset", "tenure check-aof --fix"];
    is_refused(INCREMENT, |bytes| replace(bytes, b"$1\r\n3", b"$1\r\n2"), &next_step);
    is_refused(INCREMENT, |bytes| replace(bytes, b"$1\r\n3", b"$2\r\n3"), &next_step);
    is_refused(INCREMENT, |bytes| replace(bytes, b"*3", b"+3"), &next_step);
    is_refused(BASE, |bytes| bytes[20] ^= 4, &["byte"]);
    is_refused(BASE, |bytes| bytes.truncate(20), &["byte"]);
    is_refused(MANIFEST, |bytes| replace(bytes, b"seq 1", b"seq x"), &["line 1"]);
    is_refused(MANIFEST, |bytes| bytes.truncate(30), &["line 1"]);
}

#[test]
fn a_listed_file_that_is_gone_is_named() {
    let folder = written();
    std::fs::remove_file(folder.path().join(INCREMENT)).unwrap();
    let error = refused(folder.path());
    assert!(error.contains(INCREMENT) && error.contains("backup"), "{error}");
}

#[test]
fn a_foreign_file_is_refused() {
    is_refused(INCREMENT, |bytes| *bytes = b"#!/bin/sh\necho hello\n".to_vec(), &["offset"]);
    is_refused(
        INCREMENT,
        |bytes| *bytes = b"*2\r\n$8\r\nFT.WRITE\r\n$1\r\na\r\n".to_vec(),
        &["FT.WRITE", "offset 0"],
    );
    let folder = TempFolder::create();
    std::fs::write(folder.path().join("dump.rdb"), b"PK\x03\x04 something else").unwrap();
    let dir = folder.path().to_str().unwrap();
    let start = Server::builder().setting("dir", dir).setting("save", "60 1").start();
    let error = start.err().expect("refused").to_string();
    assert!(error.contains("dump.rdb"), "{error}");
}

/// Starts with what the log says.
fn started(dir: &Path, settings: &[(&str, &str)]) -> (Result<Server, String>, String) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lines);
    let builder = persistent(dir).log(move |_, line| seen.lock().unwrap().push(line.to_owned()));
    let builder =
        settings.iter().fold(builder, |builder, (name, value)| builder.setting(name, value));
    let server = builder.start().map_err(|error| error.to_string());
    let log = lines.lock().unwrap().join("\n");
    (server, log)
}

fn cut(folder: &TempFolder, bytes_less: usize) -> (PathBuf, Vec<u8>) {
    let path = folder.path().join(INCREMENT);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - bytes_less);
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

#[test]
fn a_cut_end_is_reported_and_cut_off_or_refused_as_the_setting_says() {
    let folder = written();
    // Into the last value: its line end, then the line with the checksum.
    let (path, bytes) = cut(&folder, 26);
    let (refusal, _) = started(folder.path(), &[("aof-load-truncated", "no")]);
    let error = refusal.err().expect("refused");
    assert!(error.contains("offset") && error.contains("check-aof --fix"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "it was left as it is");
    let (server, log) = started(folder.path(), &[]);
    assert!(log.contains("truncating it to"), "{log}");
    assert_eq!(connect(&server.unwrap()).words("GET token"), Reply::Bulk(b"4".to_vec()));
    // What was cut is gone for good, and the rest is whole.
    let (server, log) = started(folder.path(), &[("aof-load-truncated", "no")]);
    assert!(!log.contains("truncating"), "{log}");
    assert_eq!(connect(&server.unwrap()).words("GET token"), Reply::Bulk(b"4".to_vec()));
}

#[test]
fn only_the_last_file_may_be_cut() {
    let folder = written();
    cut(&folder, 26);
    let second = "appendonly.aof.2.incr.aof";
    let path = folder.path().join("appendonlydir").join(second);
    std::fs::write(path, b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n1\r\n").unwrap();
    let manifest = folder.path().join(MANIFEST);
    let text = std::fs::read_to_string(&manifest).unwrap();
    // Whoever edits it by hand removes its checksum.
    let (_, lines) = text.split_once('\n').unwrap();
    std::fs::write(&manifest, format!("{lines}file {second} seq 2 type i\n")).unwrap();
    let error = refused(folder.path());
    assert!(error.contains(INCREMENT) && error.contains("offset"), "{error}");
}

/// An increment that is listed as history would be removed.
#[test]
fn a_changed_letter_of_the_manifest_removes_no_file() {
    let retype = |bytes: &mut Vec<u8>| replace(bytes, b"type i", b"type h");
    is_refused(MANIFEST, retype, &["manifest", "line 1", "remove the line with #SUM"]);
}

#[test]
fn nothing_is_silently_older_whatever_byte_changes() {
    let folder = written();
    let path = folder.path().join(INCREMENT);
    let whole = std::fs::read(&path).unwrap();
    let seed = testkit::seed();
    let mut random = testkit::Random::seeded(seed);
    for _ in 0..60 {
        let at = random.in_range(0..whole.len() as u64) as usize;
        let bit = random.in_range(0..8);
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        std::fs::write(&path, &bytes).unwrap();
        let (server, log) = started(folder.path(), &[]);
        if let Ok(server) = server {
            let token = connect(&server).words("GET token");
            let is_told = log.contains("truncating");
            let is_newest = token == Reply::Bulk(b"5".to_vec());
            assert!(is_newest || is_told, "bit {bit} of byte {at}, seed {seed}: {token:?}\n{log}");
        }
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn a_base_that_lost_its_bytes_is_refused() {
    for base in [&b""[..], b"RED", &[0; 100]] {
        is_refused(BASE, |bytes| *bytes = base.to_vec(), &["1.base.rdb", "no RDB file"]);
        // Nothing follows: it is no file that a crash cut short, either.
        let folder = written();
        std::fs::write(folder.path().join(BASE), base).unwrap();
        std::fs::write(folder.path().join(INCREMENT), b"").unwrap();
        assert!(refused(folder.path()).contains("no RDB file"));
    }
}

#[test]
fn an_increment_that_another_one_continues_lacks_nothing() {
    let folder = TempFolder::create();
    let server = persistent(folder.path()).setting("appendfsync", "always").start().unwrap();
    let mut connection = connect(&server);
    connection.words("DEBUG POPULATE 20000");
    connection.words("CONFIG SET auto-aof-rewrite-percentage 0 rdb-key-save-delay 1000");
    for token in 1..=5 {
        connection.words(&format!("SET token {token}"));
    }
    connection.words("BGREWRITEAOF");
    super::wait_for_fact(&mut connection, "aof_rewrite_in_progress", "1");
    connection.words("SET after 1");
    drop(server);
    let path = folder.path().join(INCREMENT);
    let whole = std::fs::read(&path).unwrap();
    let last = whole.windows(4).rposition(|bytes| bytes == b"*3\r\n").unwrap();
    for len in [0, last] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = refused(folder.path());
        let reason = format!("had {} bytes, and it has {len} now", whole.len());
        assert!(error.contains("2.incr.aof") && error.contains(&reason), "{error}");
        assert!(error.contains("backup"), "{error}");
    }
    std::fs::write(&path, &whole).unwrap();
    let server = persistent(folder.path()).start().unwrap();
    assert_eq!(connect(&server).words("GET token"), Reply::Bulk(b"5".to_vec()));
    assert_eq!(connect(&server).words("GET after"), Reply::Bulk(b"1".to_vec()));
}
