//! Snapshot files on disks that crash, fill up and panic.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store_resp::Reply;
use store_server::{Disk, DiskFile, Fault, Server, SimulatedDisk, SyncFile};
use testkit::Random;

use crate::connection::Connection;

/// Crashes per test; `CRASH_ROUNDS` asks for so many times as many.
fn rounds() -> u64 {
    let times: Option<u64> = std::env::var("CRASH_ROUNDS").ok().and_then(|text| text.parse().ok());
    40 * times.unwrap_or(1)
}

/// Keys of a snapshot. All bear the number of the round in which they were written.
const KEYS: u64 = 300;

fn start(disk: impl Disk + 'static, appends: bool) -> Result<Server, String> {
    Server::builder()
        .disk(disk)
        .setting("dir", "data")
        .setting("save", "100000 100000")
        .setting("appendonly", if appends { "yes" } else { "no" })
        .setting("auto-aof-rewrite-percentage", "0")
        .start()
        .map_err(|error| error.to_string())
}

fn connect(server: &Server) -> Connection {
    Connection::unix(server.connect().unwrap())
}

fn fact(connection: &mut Connection, name: &str) -> String {
    let text = match connection.words("INFO persistence") {
        Reply::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("no facts: {other:?}"),
    };
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("INFO has no {name}")).to_owned()
}

fn wait_for_fact(connection: &mut Connection, name: &str, wanted: &str) {
    testkit::wait_until(&format!("{name}:{wanted}"), testkit::GENEROUS, || {
        fact(connection, name) == wanted
    });
}

fn is(reply: &Reply, text: &str) -> bool {
    matches!(reply, Reply::Simple(found) if found == text)
}

/// Writes `stamp` into every key.
fn write_all(connection: &mut Connection, stamp: u64) {
    let words = ["MSET".to_owned()].into_iter();
    let pairs = (0..KEYS).flat_map(|key| [format!("key:{key}"), stamp.to_string()]);
    let words: Vec<String> = words.chain(pairs).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert!(is(&connection.ask(&words).unwrap(), "OK"));
}

/// The stamp that all keys have, 0 when there is none. Fails when they differ.
fn stamp(connection: &mut Connection) -> Result<u64, String> {
    let words = ["MGET".to_owned()].into_iter();
    let words: Vec<String> = words.chain((0..KEYS).map(|key| format!("key:{key}"))).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(Reply::Array(values)) = connection.ask(&words) else {
        return Err("no values".to_owned());
    };
    if values.iter().any(|value| *value != values[0]) {
        return Err(format!("not one moment: {values:?}"));
    }
    match &values[0] {
        Reply::Bulk(text) => Ok(std::str::from_utf8(text).unwrap().parse().unwrap()),
        _ => Ok(0),
    }
}

/// Lives and crashes of one disk. Returns what was saved and is not there, or why the file
/// cannot be loaded.
fn broken_promise(seed: u64, fault: Option<Fault>) -> Option<String> {
    let mut random = Random::seeded(seed);
    let mut disk = SimulatedDisk::seeded(seed);
    let (mut saved, mut newest) = (0, 0);
    for life in 0..6 {
        let about = |text: String| Some(format!("seed {seed}, life {life}: {text}"));
        let server = match start(disk.clone(), false) {
            Ok(server) => server,
            Err(error) => return about(error),
        };
        disk.set_fault(fault);
        let mut connection = connect(&server);
        let found = match stamp(&mut connection) {
            Ok(found) => found,
            Err(error) => return about(error),
        };
        if found < saved || found > newest {
            return about(format!("{saved} is saved, {newest} was written, {found} is there"));
        }
        (saved, newest) = (found, found);
        for _ in 0..random.in_range(1..4) {
            newest += 1;
            write_all(&mut connection, newest);
            match random.in_range(0..3) {
                0 => {
                    assert!(is(&connection.words("SAVE"), "OK"));
                    saved = newest;
                }
                1 => {
                    connection.words("BGSAVE");
                    wait_for_fact(&mut connection, "rdb_bgsave_in_progress", "0");
                    saved = newest;
                }
                // The crash may come at any moment of it.
                _ => {
                    connection.words("BGSAVE");
                    break;
                }
            }
        }
        disk = disk.crash();
        drop(server);
    }
    None
}

#[test]
fn after_a_crash_the_old_snapshot_loads_or_the_new_one() {
    let seed = testkit::seed();
    for round in 0..rounds() {
        let broken = broken_promise(seed.wrapping_add(round), None);
        assert!(broken.is_none(), "{}", broken.unwrap());
    }
}

#[test]
fn a_server_that_does_not_sync_its_snapshots_is_caught() {
    let seed = testkit::seed();
    let mut seeds = (0..rounds()).map(|round| seed.wrapping_add(round));
    let caught = seeds.any(|seed| broken_promise(seed, Some(Fault::SyncsLie)).is_some());
    assert!(caught, "syncs that do nothing went unnoticed from seed {seed} on");
}

#[test]
fn a_snapshot_that_fails_leaves_the_one_before_and_the_next_one_works() {
    for fault in [Fault::FullAfter(1000), Fault::WritesFail, Fault::SyncsFail] {
        let disk = SimulatedDisk::seeded(1);
        let server = start(disk.clone(), false).unwrap();
        let mut connection = connect(&server);
        write_all(&mut connection, 1);
        assert!(is(&connection.words("SAVE"), "OK"));
        write_all(&mut connection, 2);
        disk.set_fault(Some(fault));
        connection.words("BGSAVE");
        wait_for_fact(&mut connection, "rdb_bgsave_in_progress", "0");
        assert_eq!(fact(&mut connection, "rdb_last_bgsave_status"), "err", "{fault:?}");
        assert!(
            matches!(connection.words("SET a 1"), Reply::Error(text) if text.contains("MISCONF"))
        );
        let found = stamp(&mut connect(&start(disk.crash(), false).unwrap()));
        assert_eq!(found, Ok(1), "{fault:?}");
    }
}

/// A disk on which writing to temporary files of this name panics, while told so.
#[derive(Clone)]
struct Panicking {
    disk: SimulatedDisk,
    name: &'static str,
    panics: Arc<AtomicBool>,
}

struct PanickingFile {
    file: Box<dyn DiskFile>,
    panics: Arc<AtomicBool>,
}

impl Write for PanickingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(!self.panics.load(Ordering::SeqCst), "a panic that the test asked for");
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DiskFile for PanickingFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn syncer(&self) -> io::Result<Arc<dyn SyncFile>> {
        self.file.syncer()
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

impl Disk for Panicking {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        if !path.to_string_lossy().contains(self.name) {
            return Ok(file);
        }
        Ok(Box::new(PanickingFile { file, panics: Arc::clone(&self.panics) }))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.append(path)
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.disk.read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.disk.truncate(path, len)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.disk.size(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.make_folder(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_folder(path)
    }
}

/// Asks for a file twice: its thread panics, then it does not.
fn survives_a_panic(name: &'static str, command: &str, in_progress: &str, status: &str) {
    let panics = Arc::new(AtomicBool::new(false));
    let disk = Panicking { disk: SimulatedDisk::seeded(1), name, panics: Arc::clone(&panics) };
    let server = start(disk.clone(), true).unwrap();
    let mut connection = connect(&server);
    write_all(&mut connection, 1);
    panics.store(true, Ordering::SeqCst);
    connection.words(command);
    wait_for_fact(&mut connection, status, "err");
    assert_eq!(fact(&mut connection, in_progress), "0");
    panics.store(false, Ordering::SeqCst);
    testkit::wait_until("the next one works", testkit::GENEROUS, || {
        connection.words(command);
        wait_for_fact(&mut connection, in_progress, "0");
        fact(&mut connection, status) == "ok"
    });
    write_all(&mut connection, 2);
    drop(server);
    let server = start(disk, true).unwrap();
    assert_eq!(stamp(&mut connect(&server)), Ok(2));
}

#[test]
fn a_panic_of_the_thread_that_saves_ends_the_save() {
    survives_a_panic("-bgsave-", "BGSAVE", "rdb_bgsave_in_progress", "rdb_last_bgsave_status");
}

#[test]
fn a_panic_of_the_thread_that_rewrites_ends_the_rewrite() {
    let (progress, status) = ("aof_rewrite_in_progress", "aof_last_bgrewrite_status");
    survives_a_panic(".base", "BGREWRITEAOF", progress, status);
}

#[test]
fn a_save_and_a_rewrite_wait_for_each_other_and_both_are_whole() {
    let disk = SimulatedDisk::seeded(1);
    let server = start(disk.clone(), true).unwrap();
    let mut connection = connect(&server);
    write_all(&mut connection, 1);
    // In one batch, so that the second finds the first under way.
    let filler = ["EVAL", "for i=1,20000 do redis.call('SET','f'..i,i) end", "0"];
    connection.ask(&filler).unwrap();
    connection.send(&["BGSAVE"]);
    connection.send(&["BGREWRITEAOF"]);
    assert!(is(&connection.receive().unwrap(), "Background saving started"));
    let reply = connection.receive().unwrap();
    assert!(is(&reply, "Background append only file rewriting scheduled"), "{reply:?}");
    write_all(&mut connection, 2);
    wait_for_fact(&mut connection, "rdb_bgsave_in_progress", "0");
    wait_for_fact(&mut connection, "aof_rewrite_scheduled", "0");
    wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
    for status in ["rdb_last_bgsave_status", "aof_last_bgrewrite_status"] {
        assert_eq!(fact(&mut connection, status), "ok", "{status}");
    }
    connection.send(&["BGREWRITEAOF"]);
    connection.send(&["BGSAVE"]);
    connection.send(&["BGSAVE", "SCHEDULE"]);
    let replies: Vec<Reply> = (0..3).map(|_| connection.receive().unwrap()).collect();
    // The rewrite begins at the end of the turn, so a save that comes with it goes first.
    assert!(is(&replies[0], "Background append only file rewriting started"), "{replies:?}");
    write_all(&mut connection, 3);
    testkit::wait_until("both are over", testkit::GENEROUS, || {
        let names = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"];
        names.iter().all(|name| fact(&mut connection, name) == "0")
    });
    for status in ["rdb_last_bgsave_status", "aof_last_bgrewrite_status"] {
        assert_eq!(fact(&mut connection, status), "ok", "{status}");
    }
    drop(server);
    let server = start(disk, true).unwrap();
    assert_eq!(stamp(&mut connect(&server)), Ok(3));
}
