//! Disks that fail: never a silent gap.

use std::path::Path;
use std::sync::{Arc, Mutex};

use store_persist::disk::Disk;
use store_resp::Reply;
use store_server::{Fault, Server, SimulatedDisk};

use super::{connect, fact, persistent, wait_for_fact};

fn start(disk: &SimulatedDisk, policy: &str) -> Server {
    let builder = persistent(Path::new("data")).disk(disk.clone());
    builder.setting("appendfsync", policy).start().unwrap()
}

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("MISCONF Errors writing to the AOF file"))
}

/// Writes until one is refused; returns the last that was not.
fn write_until_refused(connection: &mut crate::connection::Connection) -> u64 {
    let mut accepted = 0;
    testkit::wait_until("a write is refused", testkit::GENEROUS, || {
        let reply = connection.words(&format!("SET token {}", accepted + 1));
        accepted += u64::from(!is_refused(&reply));
        is_refused(&reply)
    });
    accepted
}

#[test]
fn with_everysec_writes_are_refused_until_the_disk_works_again_and_nothing_is_missing() {
    for fault in [Fault::WritesFail, Fault::FullAfter(1000), Fault::FullAfter(0)] {
        let disk = SimulatedDisk::seeded(1);
        let server = start(&disk, "everysec");
        let mut connection = connect(&server);
        disk.set_fault(Some(fault));
        let accepted = write_until_refused(&mut connection);
        assert!(is_refused(&connection.words("PING")));
        assert!(is_refused(&connection.words("EVAL return(redis.call('SET','a',1)) 0")));
        assert!(matches!(connection.words("GET token"), Reply::Bulk(_)));
        assert_eq!(fact(&mut connection, "aof_last_write_status"), "err");
        disk.set_fault(None);
        wait_for_fact(&mut connection, "aof_last_write_status", "ok");
        assert_eq!(connection.words("SET after 1"), super::ok());
        drop(server);
        let server = start(&disk, "everysec");
        let token = connect(&server).words("GET token");
        assert_eq!(token, Reply::Bulk(accepted.to_string().into_bytes()), "{fault:?}");
        assert_eq!(connect(&server).words("GET after"), Reply::Bulk(b"1".to_vec()));
    }
}

#[test]
fn a_failed_sync_is_healed_by_writing_all_anew() {
    let disk = SimulatedDisk::seeded(1);
    let server = start(&disk, "everysec");
    let mut connection = connect(&server);
    disk.set_fault(Some(Fault::SyncsFail));
    let accepted = write_until_refused(&mut connection);
    disk.set_fault(None);
    // A sync that works says nothing of the bytes that one before it dropped.
    testkit::wait_until("writes are accepted", testkit::GENEROUS, || {
        connection.words("SET after 1") == super::ok()
    });
    assert_ne!(fact(&mut connection, "aof_rewrites"), "0");
    wait_for_fact(&mut connection, "aof_pending_bio_fsync", "0");
    drop(server);
    let disk = disk.crash();
    let server = start(&disk, "everysec");
    let token = connect(&server).words("GET token");
    assert_eq!(token, Reply::Bulk(accepted.to_string().into_bytes()));
}

#[test]
fn with_always_the_server_ends_rather_than_break_its_word() {
    for fault in [Fault::WritesFail, Fault::FullAfter(3000), Fault::SyncsFail] {
        let disk = SimulatedDisk::seeded(1);
        let log = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&log);
        let server = persistent(Path::new("data"))
            .disk(disk.clone())
            .setting("appendfsync", "always")
            .log(move |_, line| seen.lock().unwrap().push_str(line))
            .start()
            .unwrap();
        let mut connection = connect(&server);
        disk.set_fault(Some(fault));
        let mut acknowledged = 0;
        // The connection ends without a reply to the write that was not kept.
        while connection.ask(&["SET", "token", &(acknowledged + 1).to_string()]).is_some() {
            acknowledged += 1;
        }
        let error = server.wait().unwrap_err().to_string();
        assert!(error.contains("'always'") && error.contains("incr.aof"), "{error}");
        assert!(log.lock().unwrap().contains("Exiting"));
        let disk = disk.crash();
        let server = start(&disk, "always");
        let token = match connect(&server).words("GET token") {
            Reply::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
            _ => 0,
        };
        assert!(token >= acknowledged, "{fault:?}: {acknowledged} was promised, {token} is there");
    }
}

#[test]
fn a_rewrite_that_fails_changes_nothing_and_the_next_one_works() {
    let disk = SimulatedDisk::seeded(1);
    let server = start(&disk, "everysec");
    let mut connection = connect(&server);
    connection.words("DEBUG POPULATE 20000");
    connection.words("SET token 1");
    // Enough for the new increment and the manifest, too little for the base.
    disk.set_fault(Some(Fault::FullAfter(50_000)));
    connection.words("BGREWRITEAOF");
    wait_for_fact(&mut connection, "aof_last_bgrewrite_status", "err");
    disk.set_fault(None);
    connection.words("SET token 2");
    testkit::wait_until("a rewrite that works", testkit::GENEROUS, || {
        connection.words("BGREWRITEAOF");
        wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
        fact(&mut connection, "aof_last_bgrewrite_status") == "ok"
    });
    drop(server);
    let server = start(&disk.crash(), "everysec");
    let mut connection = connect(&server);
    assert_eq!(connection.words("GET token"), Reply::Bulk(b"2".to_vec()));
    assert_eq!(connection.words("EXISTS key:0 key:19999"), Reply::Integer(2));
}

/// Half of a base takes room that the next write needs.
#[test]
fn a_rewrite_that_fails_leaves_nothing_of_its_base() {
    let disk = SimulatedDisk::seeded(1);
    let server = start(&disk, "everysec");
    let mut connection = connect(&server);
    connection.words("DEBUG POPULATE 20000");
    connection.words("CONFIG SET auto-aof-rewrite-percentage 0");
    for count in 1..=3 {
        disk.set_fault(Some(Fault::FullAfter(50_000)));
        connection.words("BGREWRITEAOF");
        wait_for_fact(&mut connection, "aof_rewrites", &count.to_string());
        wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
        assert_eq!(fact(&mut connection, "aof_last_bgrewrite_status"), "err");
        disk.set_fault(None);
        let names = disk.list(Path::new("data/appendonlydir")).unwrap();
        assert!(!names.iter().any(|name| name.ends_with(".base")), "{names:?}");
        let is_increment = |name: &&String| name.contains("incr");
        let increments = names.iter().filter(is_increment).count();
        assert!(increments <= 2, "an empty one is not followed by another: {names:?}");
    }
}

#[test]
fn short_writes_are_continued() {
    let disk = SimulatedDisk::seeded(1);
    let server = start(&disk, "always");
    disk.set_fault(Some(Fault::ShortWrites));
    let mut connection = connect(&server);
    for token in 0..50 {
        assert_eq!(connection.words(&format!("SET token {token}")), super::ok());
    }
    drop(server);
    let server = start(&disk.crash(), "always");
    assert_eq!(connect(&server).words("GET token"), Reply::Bulk(b"49".to_vec()));
}

/// What a start would find if the server were killed now. No rewrite may be under way.
fn found_after_a_kill(folder: &testkit::TempFolder, line: &str) -> Reply {
    let from = folder.path().join("appendonlydir");
    // Files of before may be removed while they are copied: then it is done once more.
    let copy = testkit::wait_for("a copy of files that stay", testkit::GENEROUS, || {
        let copy = testkit::TempFolder::create();
        let to = copy.path().join("appendonlydir");
        std::fs::create_dir(&to).unwrap();
        let names = super::files(folder.path());
        let is_whole =
            names.iter().all(|name| std::fs::copy(from.join(name), to.join(name)).is_ok());
        (is_whole && names == super::files(folder.path())).then_some(copy)
    });
    let server = persistent(copy.path()).start().unwrap();
    connect(&server).words(line)
}

#[test]
fn files_that_somebody_removed_are_written_anew() {
    for policy in ["always", "everysec"] {
        let folder = testkit::TempFolder::create();
        let server = persistent(folder.path()).setting("appendfsync", policy).start().unwrap();
        let mut connection = connect(&server);
        connection.words("SET before 1");
        std::fs::remove_dir_all(folder.path().join("appendonlydir")).unwrap();
        testkit::wait_until("the file is written anew", testkit::GENEROUS, || {
            connection.words("SET meanwhile 1");
            fact(&mut connection, "aof_rewrites") != "0"
                && fact(&mut connection, "aof_last_write_status") == "ok"
        });
        assert_eq!(connection.words("SET after 1"), super::ok());
        wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
        wait_for_fact(&mut connection, "aof_pending_bio_fsync", "0");
        let found = found_after_a_kill(&folder, "EXISTS before after");
        assert_eq!(found, Reply::Integer(2), "{policy}");
    }
}

/// What SHUTDOWN goes by is what is there, not what was there a second ago.
#[test]
fn shutdown_is_refused_while_only_memory_has_the_data() {
    for puts_back in [false, true] {
        let folder = testkit::TempFolder::create();
        let files = folder.path().join("appendonlydir");
        let copy = testkit::TempFolder::create();
        let start = || persistent(folder.path()).setting("appendfsync", "always").start().unwrap();
        let server = start();
        for name in super::files(folder.path()) {
            std::fs::copy(files.join(&name), copy.path().join(&name)).unwrap();
        }
        let mut connection = connect(&server);
        connection.words("SET before 1");
        std::fs::remove_dir_all(&files).unwrap();
        if puts_back {
            std::fs::create_dir(&files).unwrap();
            for entry in std::fs::read_dir(copy.path()).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), files.join(entry.file_name())).unwrap();
            }
        }
        let reply = connection.words("SHUTDOWN");
        assert_eq!(reply, Reply::Error("ERR Errors trying to SHUTDOWN. Check logs.".into()));
        if puts_back {
            // What was put back may be the only copy of something: it is left alone.
            assert!(matches!(connection.words("SHUTDOWN"), Reply::Error(_)));
            std::fs::remove_dir_all(&files).unwrap();
        }
        // All is written anew, and then it ends.
        testkit::wait_until("it ends", testkit::GENEROUS, || {
            connection.ask(&["SHUTDOWN"]).is_none()
        });
        server.wait().unwrap();
        assert_eq!(connect(&start()).words("EXISTS before"), Reply::Integer(1), "{puts_back}");
    }
}

#[test]
fn shutdown_force_and_nosave_give_up_files_that_are_gone() {
    for line in ["SHUTDOWN FORCE", "SHUTDOWN NOSAVE"] {
        let folder = testkit::TempFolder::create();
        let server = persistent(folder.path()).start().unwrap();
        let mut connection = connect(&server);
        connection.words("SET before 1");
        std::fs::remove_dir_all(folder.path().join("appendonlydir")).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        assert!(connection.ask(&words).is_none(), "{line}");
        server.wait().unwrap();
    }
}

#[test]
fn a_rewrite_makes_the_folder_again() {
    let folder = testkit::TempFolder::create();
    let server = persistent(folder.path()).setting("appendfsync", "always").start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET before 1");
    std::fs::remove_dir_all(folder.path().join("appendonlydir")).unwrap();
    connection.words("BGREWRITEAOF");
    testkit::wait_until("writes are accepted", testkit::GENEROUS, || {
        fact(&mut connection, "aof_rewrites") != "0"
            && fact(&mut connection, "aof_rewrite_in_progress") == "0"
            && connection.words("SET after 1") == super::ok()
    });
    assert_eq!(found_after_a_kill(&folder, "EXISTS before after"), Reply::Integer(2));
}

#[test]
fn where_removed_files_cannot_be_written_anew_writes_are_refused_and_the_server_stays() {
    let folder = testkit::TempFolder::create();
    let server = persistent(folder.path()).setting("appendfsync", "always").start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET before 1");
    let files = folder.path().join("appendonlydir");
    std::fs::remove_dir_all(&files).unwrap();
    std::fs::write(&files, "in the way").unwrap();
    write_until_refused(&mut connection);
    let Reply::Error(refusal) = connection.words("SET a 1") else { panic!("it was taken") };
    assert!(refusal.contains("was removed or replaced"), "{refusal}");
    // Nor does it end: all that is left is in memory.
    server.stopper().stop();
    assert!(is_refused(&connection.words("SET a 1")));
    assert_eq!(connection.words("EXISTS before"), Reply::Integer(1));
    std::fs::remove_file(&files).unwrap();
    testkit::wait_until("writes are accepted", testkit::GENEROUS, || {
        let is_accepted = connection.words("SET after 1") == super::ok();
        if !is_accepted {
            connection.words("BGREWRITEAOF");
        }
        is_accepted
    });
    wait_for_fact(&mut connection, "aof_rewrite_scheduled", "0");
    wait_for_fact(&mut connection, "aof_rewrite_in_progress", "0");
    assert_eq!(found_after_a_kill(&folder, "EXISTS before after"), Reply::Integer(2));
}

#[test]
fn a_server_whose_log_fails_does_not_end_before_it_is_written() {
    let disk = SimulatedDisk::seeded(1);
    let log = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&log);
    let server = persistent(Path::new("data"))
        .disk(disk.clone())
        .log(move |_, line| seen.lock().unwrap().push_str(line))
        .start()
        .unwrap();
    let mut connection = connect(&server);
    disk.set_fault(Some(Fault::WritesFail));
    let accepted = write_until_refused(&mut connection);
    server.stopper().stop();
    testkit::wait_until("it says why", testkit::GENEROUS, || {
        log.lock().unwrap().contains("cannot end: the append-only file")
    });
    let Reply::Error(refusal) = connection.words("SHUTDOWN") else { panic!("it ends") };
    assert_eq!(refusal, "ERR Errors trying to SHUTDOWN. Check logs.");
    assert!(log.lock().unwrap().contains("Cannot write the append-only file before the end"));
    disk.set_fault(None);
    wait_for_fact(&mut connection, "aof_last_write_status", "ok");
    server.stopper().stop();
    server.wait().unwrap();
    let server = start(&disk.crash(), "everysec");
    let token = connect(&server).words("GET token");
    assert_eq!(token, Reply::Bulk(accepted.to_string().into_bytes()));
}
