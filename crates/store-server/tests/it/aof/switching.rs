//! The file turned on, off and written anew while other things happen.

use std::path::Path;

use store_resp::Reply;
use store_server::{Fault, Server, SimulatedDisk};
use testkit::TempFolder;

use super::{connect, fact, files, ok, persistent, wait_for_fact};

/// A server on a simulated disk that appends nothing yet, with some data.
fn off(disk: &SimulatedDisk) -> Server {
    let builder = Server::builder().disk(disk.clone()).setting("dir", "data");
    let server = builder.setting("enable-debug-command", "yes").start().unwrap();
    connect(&server).words("DEBUG POPULATE 20000");
    server
}

fn start(disk: &SimulatedDisk) -> Server {
    persistent(Path::new("data")).disk(disk.clone()).start().unwrap()
}

#[test]
fn a_file_that_is_turned_on_during_a_rewrite_has_all_that_was_acknowledged() {
    for seed in 0..5 {
        let disk = SimulatedDisk::seeded(seed);
        let server = off(&disk);
        let mut connection = connect(&server);
        // All in one packet, so that the rewrite is still under way.
        connection.send(&["BGREWRITEAOF"]);
        connection.send(&["CONFIG", "SET", "appendfsync", "always", "appendonly", "yes"]);
        connection.send(&["SET", "a", "1"]);
        for _ in 0..3 {
            connection.receive().unwrap();
        }
        wait_for_fact(&mut connection, "aof_rewrite_scheduled", "0");
        wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
        assert_eq!(fact(&mut connection, "aof_last_bgrewrite_status"), "ok");
        assert_eq!(connection.words("SET b 1"), ok());
        let disk = disk.crash();
        drop(server);
        let server = start(&disk);
        assert_eq!(connect(&server).words("EXISTS a b key:19999"), Reply::Integer(3));
    }
}

#[test]
fn on_off_and_on_again_at_once_ends_with_a_file_that_loads() {
    let disk = SimulatedDisk::seeded(1);
    let server = off(&disk);
    let mut connection = connect(&server);
    for round in 0..20 {
        for value in ["yes", "no", "yes"] {
            connection.send(&["CONFIG", "SET", "appendonly", value]);
        }
        connection.send(&["SET", "round", &round.to_string()]);
        for _ in 0..4 {
            connection.receive().unwrap();
        }
        if round % 2 == 0 {
            connection.words("CONFIG SET appendonly no");
        }
    }
    wait_for_fact(&mut connection, "aof_rewrite_scheduled", "0");
    wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
    assert_eq!(connection.words("CONFIG SET appendfsync always"), ok());
    assert_eq!(connection.words("SET after 1"), ok());
    // Snapshots and rewrites work as before.
    for command in ["BGSAVE", "BGREWRITEAOF"] {
        testkit::wait_until(command, testkit::GENEROUS, || {
            !matches!(connection.words(command), Reply::Error(_))
        });
        wait_for_fact(&mut connection, "rdb_bgsave_in_progress", "0");
        wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
    }
    assert_eq!(fact(&mut connection, "rdb_last_bgsave_status"), "ok");
    assert_eq!(fact(&mut connection, "aof_last_bgrewrite_status"), "ok");
    let disk = disk.crash();
    drop(server);
    let server = start(&disk);
    let mut connection = connect(&server);
    assert_eq!(connection.words("GET round"), Reply::Bulk(b"19".to_vec()));
    assert_eq!(connection.words("EXISTS after key:0 key:19999"), Reply::Integer(3));
}

#[test]
fn a_snapshot_right_after_a_dropped_rewrite_has_every_key() {
    let disk = SimulatedDisk::seeded(1);
    let server = off(&disk);
    let mut connection = connect(&server);
    for _ in 0..10 {
        for words in ["CONFIG SET appendonly yes", "CONFIG SET appendonly no", "BGSAVE SCHEDULE"] {
            connection.words(words);
        }
        wait_for_fact(&mut connection, "rdb_bgsave_in_progress", "0");
    }
    // One that is scheduled may begin in between.
    testkit::wait_until("a snapshot", testkit::GENEROUS, || {
        !matches!(connection.words("BGSAVE"), Reply::Error(_))
    });
    wait_for_fact(&mut connection, "rdb_bgsave_in_progress", "0");
    assert_eq!(fact(&mut connection, "rdb_last_bgsave_status"), "ok");
    drop(server);
    let builder = Server::builder().disk(disk.clone()).setting("dir", "data");
    let server = builder.setting("save", "3600 1").start().unwrap();
    assert_eq!(connect(&server).words("DBSIZE"), Reply::Integer(20_000));
}

#[test]
fn a_manifest_that_cannot_be_written_is_tried_again() {
    let disk = SimulatedDisk::seeded(1);
    let server = off(&disk);
    let mut connection = connect(&server);
    // Enough for the base, too little for the manifest: whatever the base needs, in steps.
    for bytes in (100_000..2_000_000).step_by(100_000) {
        disk.set_fault(Some(Fault::FullAfter(bytes)));
        connection.words("CONFIG SET appendonly yes");
        testkit::wait_until("it came to something", testkit::GENEROUS, || {
            fact(&mut connection, "aof_last_bgrewrite_status") == "err"
                || fact(&mut connection, "aof_base_size") != "0"
        });
        connection.words("CONFIG SET appendonly no");
        disk.set_fault(None);
    }
    connection.words("CONFIG SET appendonly yes");
    wait_for_fact(&mut connection, "aof_rewrite_scheduled", "0");
    wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
    connection.words("CONFIG SET appendfsync always");
    assert_eq!(connection.words("SET a 1"), ok());
    let disk = disk.crash();
    drop(server);
    let server = start(&disk);
    assert_eq!(connect(&server).words("DBSIZE"), Reply::Integer(20_001));
}

#[test]
fn a_rewrite_while_the_file_is_off_leaves_a_base_alone() {
    let folder = TempFolder::create();
    let dir = folder.path().to_str().unwrap();
    let server = Server::builder().setting("dir", dir).start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET a 1");
    connection.words("BGREWRITEAOF");
    testkit::wait_until("the base is there", testkit::GENEROUS, || {
        fact(&mut connection, "aof_rewrites") == "1"
            && fact(&mut connection, "aof_rewrite_in_progress") == "0"
    });
    let expected = ["appendonly.aof.1.base.rdb", "appendonly.aof.manifest"];
    assert_eq!(files(folder.path()), expected);
    let manifest = folder.path().join("appendonlydir/appendonly.aof.manifest");
    let text = std::fs::read_to_string(manifest).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["file appendonly.aof.1.base.rdb seq 1 type b"]);
    drop(server);
    let server = persistent(folder.path()).start().unwrap();
    assert_eq!(connect(&server).words("GET a"), Reply::Bulk(b"1".to_vec()));
}

#[test]
fn files_without_a_manifest_are_not_overwritten() {
    let folder = TempFolder::create();
    let server = persistent(folder.path()).start().unwrap();
    connect(&server).words("SET a 1");
    drop(server);
    let inside = folder.path().join("appendonlydir");
    std::fs::remove_file(inside.join("appendonly.aof.manifest")).unwrap();
    let increment = inside.join("appendonly.aof.1.incr.aof");
    let before = std::fs::read(&increment).unwrap();
    let error = persistent(folder.path()).start().err().expect("it is refused").to_string();
    assert!(error.contains("incr.aof") && error.contains("manifest"), "{error}");
    assert_eq!(std::fs::read(&increment).unwrap(), before);
}

#[test]
fn checksums_can_be_turned_off_and_timestamps_come_first() {
    let folder = TempFolder::create();
    let start = |sums: &str| {
        let builder = persistent(folder.path()).setting("aof-timestamp-enabled", "yes");
        builder.setting("aof-checksum", sums).start().unwrap()
    };
    let increment = folder.path().join("appendonlydir/appendonly.aof.1.incr.aof");
    let server = start("no");
    connect(&server).words("SET a 1");
    drop(server);
    let text = std::fs::read_to_string(&increment).unwrap();
    assert!(text.starts_with("#TS:") && !text.contains("#SUM:"), "{text}");
    let server = start("yes");
    let mut connection = connect(&server);
    connection.words("SET b 1");
    // Turned off and on in the middle of the file.
    connection.words("CONFIG SET aof-checksum no");
    connection.words("SET c 1");
    connection.words("CONFIG SET aof-checksum yes");
    connection.words("SET d 1");
    drop(server);
    let text = std::fs::read_to_string(&increment).unwrap();
    assert!(text.contains("#SUM:begin"), "{text}");
    assert_eq!(connect(&start("yes")).words("EXISTS a b c d"), Reply::Integer(4));
}

/// A server that appends to `dir`, and may be told of another one.
fn movable(dir: &Path) -> Server {
    let builder = persistent(dir).setting("enable-protected-configs", "yes");
    builder.setting("appendfsync", "always").start().unwrap()
}

fn wait_for_rewrites(connection: &mut crate::connection::Connection, count: &str) {
    wait_for_fact(connection, "aof_rewrites", count);
    wait_for_fact(connection, "aof_rewrite_in_progress", "0");
}

#[test]
fn a_rewrite_brings_the_file_to_the_folder_that_dir_names_by_then() {
    let (old, new) = (TempFolder::create(), TempFolder::create());
    let server = movable(old.path());
    let mut connection = connect(&server);
    connection.words("SET before 1");
    let dir = new.path().to_str().unwrap();
    assert_eq!(connection.ask(&["CONFIG", "SET", "dir", dir]).unwrap(), ok());
    connection.words("SET between 1");
    connection.send(&["BGREWRITEAOF"]);
    connection.send(&["SET", "meanwhile", "1"]);
    (0..2).for_each(|_| _ = connection.receive().unwrap());
    wait_for_rewrites(&mut connection, "1");
    assert_eq!(fact(&mut connection, "aof_last_bgrewrite_status"), "ok");
    assert_eq!(connection.words("SET after 1"), ok());
    // DEBUG LOADAOF reads where the file is.
    assert_eq!(connection.words("DEBUG LOADAOF"), ok());
    assert_eq!(connection.words("DBSIZE"), Reply::Integer(4));
    drop(server);
    let server = movable(new.path());
    let found = connect(&server).words("EXISTS before between meanwhile after");
    assert_eq!(found, Reply::Integer(4));
}

#[test]
fn without_a_rewrite_the_file_stays_where_it_is_and_the_log_says_so() {
    let (old, new) = (TempFolder::create(), TempFolder::create());
    let log = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let seen = std::sync::Arc::clone(&log);
    let server = persistent(old.path())
        .setting("enable-protected-configs", "yes")
        .log(move |_, line| seen.lock().unwrap().push_str(line))
        .start()
        .unwrap();
    let mut connection = connect(&server);
    let dir = new.path().to_str().unwrap();
    assert_eq!(connection.ask(&["CONFIG", "SET", "dir", dir]).unwrap(), ok());
    assert_eq!(connection.words("SET after 1"), ok());
    assert_eq!(connection.words("DEBUG LOADAOF"), ok());
    assert_eq!(connection.words("EXISTS after"), Reply::Integer(1));
    drop(server);
    let lines = log.lock().unwrap().matches("run BGREWRITEAOF").count();
    assert_eq!(lines, 2, "when dir changes, and at the end");
    let server = movable(old.path());
    assert_eq!(connect(&server).words("EXISTS after"), Reply::Integer(1));
}

#[test]
fn a_file_does_not_move_into_the_folder_of_another_server() {
    let (own, theirs) = (TempFolder::create(), TempFolder::create());
    let other = movable(theirs.path());
    connect(&other).words("SET other 1");
    let before = files(theirs.path());
    let server = movable(own.path());
    let mut connection = connect(&server);
    let dir = theirs.path().to_str().unwrap();
    connection.ask(&["CONFIG", "SET", "dir", dir]).unwrap();
    connection.words("BGREWRITEAOF");
    wait_for_fact(&mut connection, "aof_last_bgrewrite_status", "err");
    // It never began, so it took no time.
    assert_eq!(fact(&mut connection, "aof_last_rewrite_time_sec"), "-1");
    assert_eq!(connection.words("SET own 1"), ok());
    assert_eq!(files(theirs.path()), before);
    drop((server, other));
    assert_eq!(connect(&movable(own.path())).words("EXISTS own"), Reply::Integer(1));
    assert_eq!(connect(&movable(theirs.path())).words("EXISTS other"), Reply::Integer(1));
}

/// Turns the file on, with a first base that takes its time.
fn turn_on_slowly(connection: &mut crate::connection::Connection) {
    assert_eq!(connection.words("CONFIG SET rdb-key-save-delay 100"), ok());
    assert_eq!(connection.words("CONFIG SET appendfsync always appendonly yes"), ok());
    assert_eq!(connection.words("SET last 1"), ok());
}

const CANNOT_END: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

#[test]
fn a_stop_waits_for_the_first_base() {
    for setting in ["default", "nosave"] {
        let disk = SimulatedDisk::seeded(1);
        let server = off(&disk);
        let mut connection = connect(&server);
        connection.words(&format!("CONFIG SET shutdown-on-sigterm {setting}"));
        turn_on_slowly(&mut connection);
        server.stopper().stop_on(store_server::StopSignal::Terminate);
        server.wait().unwrap();
        let server = start(&disk.crash());
        let found = connect(&server).words("EXISTS last key:0 key:19999");
        assert_eq!(found, Reply::Integer(3), "{setting}");
    }
}

#[test]
fn shutdown_is_refused_until_the_first_base_is_written() {
    let disk = SimulatedDisk::seeded(1);
    let server = off(&disk);
    let mut connection = connect(&server);
    // In one packet: nothing may have been begun when the second is run.
    connection.send(&["CONFIG", "SET", "rdb-key-save-delay", "100", "appendonly", "yes"]);
    connection.send(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(connection.receive().unwrap(), ok());
    assert_eq!(connection.receive().unwrap(), Reply::Error(CANNOT_END.into()));
    for words in ["SHUTDOWN", "SHUTDOWN NOW", "SHUTDOWN SAVE", "SHUTDOWN NOSAVE"] {
        assert_eq!(connection.words(words), Reply::Error(CANNOT_END.into()), "{words}");
    }
    assert_eq!(connection.words("SET last 1"), ok());
    wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
    connection.send(&["SHUTDOWN"]);
    server.wait().unwrap();
    let server = start(&disk);
    assert_eq!(connect(&server).words("EXISTS last key:0 key:19999"), Reply::Integer(3));
}

#[test]
fn shutdown_force_gives_up_the_first_base() {
    let disk = SimulatedDisk::seeded(1);
    let server = off(&disk);
    let mut connection = connect(&server);
    turn_on_slowly(&mut connection);
    connection.send(&["SHUTDOWN", "FORCE"]);
    server.wait().unwrap();
}

#[test]
fn a_server_whose_first_base_cannot_be_written_does_not_end() {
    let disk = SimulatedDisk::seeded(1);
    let log = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let seen = std::sync::Arc::clone(&log);
    let server = Server::builder()
        .disk(disk.clone())
        .setting("dir", "data")
        .setting("enable-debug-command", "yes")
        .log(move |_, line| seen.lock().unwrap().push_str(line))
        .start()
        .unwrap();
    let mut connection = connect(&server);
    connection.words("DEBUG POPULATE 20000");
    disk.set_fault(Some(Fault::FullAfter(50_000)));
    assert_eq!(connection.words("CONFIG SET appendfsync always appendonly yes"), ok());
    wait_for_fact(&mut connection, "aof_last_bgrewrite_status", "err");
    assert_eq!(connection.words("SET last 1"), ok());
    for words in ["SHUTDOWN", "SHUTDOWN SAVE"] {
        assert_eq!(connection.words(words), Reply::Error(CANNOT_END.into()), "{words}");
    }
    server.stopper().stop();
    testkit::wait_until("it says why", testkit::GENEROUS, || {
        log.lock().unwrap().contains("cannot end: the append-only file: its first base cannot be")
    });
    assert_eq!(connection.words("EXISTS last"), Reply::Integer(1));
    // With room again an end waits for no retry of its own, which may be an hour away.
    disk.set_fault(None);
    server.stopper().stop();
    server.wait().unwrap();
    let server = start(&disk.crash());
    assert_eq!(connect(&server).words("EXISTS last key:0 key:19999"), Reply::Integer(3));
}

#[test]
fn what_cannot_be_written_is_given_up_by_shutdown_nosave() {
    let disk = SimulatedDisk::seeded(1);
    let server = off(&disk);
    let mut connection = connect(&server);
    disk.set_fault(Some(Fault::WritesFail));
    assert_eq!(connection.words("CONFIG SET appendonly yes"), ok());
    wait_for_fact(&mut connection, "aof_last_bgrewrite_status", "err");
    testkit::wait_until("it ends", testkit::GENEROUS, || {
        connection.ask(&["SHUTDOWN", "NOSAVE"]).is_none()
    });
    server.wait().unwrap();
}

#[test]
fn bgsave_is_refused_until_a_rewrite_is_over() {
    let disk = SimulatedDisk::seeded(1);
    let server = off(&disk);
    let mut connection = connect(&server);
    turn_on_slowly(&mut connection);
    // For as long as INFO says so, not only while keys are walked through.
    while fact(&mut connection, "aof_rewrite_in_progress") == "1" {
        let reply = connection.words("BGSAVE");
        if fact(&mut connection, "aof_rewrite_in_progress") == "1" {
            let refused = "ERR Another child process is active (AOF?): can't BGSAVE right now.";
            assert!(matches!(&reply, Reply::Error(text) if text.starts_with(refused)), "{reply:?}");
        }
    }
}

#[test]
fn names_of_files_that_the_server_keeps_are_refused() {
    let builder = || Server::builder().setting("enable-protected-configs", "yes");
    let server = builder().start().unwrap();
    let mut connection = connect(&server);
    for name in ["tenure.lock", "tenure.life", "tenure.life.new"] {
        let Reply::Error(refusal) = connection.words(&format!("CONFIG SET dbfilename {name}"))
        else {
            panic!("{name} was taken")
        };
        assert!(refusal.contains("keeps for itself: choose another dbfilename"), "{refusal}");
        for setting in ["dbfilename", "appendfilename", "appenddirname"] {
            assert!(builder().setting(setting, name).start().is_err(), "{setting} {name}");
        }
    }
}
