//! What elections are told of the data's history across restarts.

use std::path::Path;

use store_server::{Server, SimulatedDisk};
use testkit::TempFolder;

use super::{connect, fact, ok, persistent};

/// Incarnation and history mark.
fn life(server: &Server) -> (String, String) {
    let mut connection = connect(server);
    (fact(&mut connection, "tenure_incarnation"), fact(&mut connection, "tenure_history"))
}

#[test]
fn a_clean_restart_continues_the_incarnation() {
    let folder = TempFolder::create();
    let start = || persistent(folder.path()).any_port().start().unwrap();
    let first = life(&start());
    assert_eq!(first.1, "unknown", "nobody knows what was before");
    assert_eq!(life(&start()), first);
    assert_eq!(life(&start()), first);
}

#[test]
fn a_clean_end_counts_after_the_file_was_turned_on_while_the_server_ran() {
    let folder = TempFolder::create();
    let start = || persistent(folder.path()).any_port().start().unwrap();
    let first = {
        let server = start();
        let mut connection = connect(&server);
        assert_eq!(connection.words("CONFIG SET appendonly no"), ok());
        assert_eq!(connection.words("CONFIG SET appendonly yes"), ok());
        testkit::wait_until("the base", testkit::GENEROUS, || {
            fact(&mut connection, "aof_rewrite_in_progress") == "0"
                && fact(&mut connection, "aof_rewrite_scheduled") == "0"
        });
        assert_eq!(connection.words("SET a 1"), ok());
        life(&server)
    };
    assert_eq!(life(&start()), first);
}

#[test]
fn a_store_that_nobody_outside_can_reach_has_forgotten_nobody() {
    let folder = TempFolder::create();
    let start = || persistent(folder.path()).start().unwrap();
    let first = life(&start());
    assert_eq!(first.1, "complete");
    assert_eq!(life(&start()), first);
    let in_memory = Server::builder().start().unwrap();
    assert_eq!(life(&in_memory).1, "complete");
    let reachable = Server::builder().any_port().start().unwrap();
    assert_eq!(life(&reachable).1, "unknown");
}

#[test]
fn a_crash_begins_a_new_incarnation() {
    let disk = SimulatedDisk::seeded(testkit::seed());
    let start = |disk: &SimulatedDisk| {
        persistent(Path::new("data")).disk(disk.clone()).any_port().start().unwrap()
    };
    let server = start(&disk);
    let first = life(&server);
    let disk = disk.crash();
    drop(server);
    let second = life(&start(&disk));
    assert_ne!(second.0, first.0);
    assert_eq!(second.1, "unknown");
    // A clean end after that continues the second one.
    assert_eq!(life(&start(&disk)).0, second.0);
}

#[test]
fn an_older_copy_of_the_files_begins_a_new_incarnation() {
    let folder = TempFolder::create();
    let start = || persistent(folder.path()).any_port().start().unwrap();
    let file = folder.path().join("appendonlydir/appendonly.aof.1.incr.aof");
    let server = start();
    connect(&server).words("SET token 1");
    let first = life(&server);
    drop(server);
    let copy = std::fs::read(&file).unwrap();
    let server = start();
    connect(&server).words("SET token 2");
    assert_eq!(life(&server), first);
    drop(server);
    std::fs::write(&file, copy).unwrap();
    assert_ne!(life(&start()).0, first.0);
}

/// All files of a folder, and of those in it.
fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match path.is_dir() {
            true => copy_all(&path, &to.join(name)),
            false => drop(std::fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// A backup of after a clean end knows nothing of what was granted between that and the crash
/// after which it is put back.
#[test]
fn a_backup_that_is_put_back_after_a_crash_begins_a_new_incarnation() {
    let folder = TempFolder::create();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    std::fs::create_dir(&data).unwrap();
    let start = || persistent(&data).any_port().start().unwrap();
    let first = life(&start());
    copy_all(&data, &backup);
    let server = start();
    assert_eq!(life(&server), first, "the folder itself goes on");
    connect(&server).words("SET lease ada PX 30000");
    drop(server);
    std::fs::remove_dir_all(&data).unwrap();
    copy_all(&backup, &data);
    let restored = life(&start());
    assert_ne!(restored.0, first.0);
    assert_eq!(restored.1, "unknown");
}

/// Neither the folder that was moved away nor what took its place may pass for the other.
#[test]
fn a_folder_that_was_moved_away_and_back_begins_a_new_incarnation() {
    let folder = TempFolder::create();
    let (data, aside) = (folder.path().join("data"), folder.path().join("aside"));
    std::fs::create_dir(&data).unwrap();
    let start = || persistent(&data).any_port().start().unwrap();
    let first = life(&start());
    std::fs::rename(&data, &aside).unwrap();
    std::fs::create_dir(&data).unwrap();
    let second = life(&start());
    assert_ne!(second.0, first.0);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&aside, &data).unwrap();
    let third = life(&start());
    assert_ne!(third.0, first.0, "somebody else was asked for leases here meanwhile");
    assert_eq!(life(&start()), third);
}

#[test]
fn a_snapshot_at_the_end_is_a_clean_end_and_none_is_not() {
    let folder = TempFolder::create();
    let dir = folder.path().to_str().unwrap();
    let start = || Server::builder().setting("dir", dir).setting("save", "3600 1").start().unwrap();
    let server = start();
    connect(&server).words("SET a 1");
    let first = life(&server);
    connect(&server).send(&["SHUTDOWN"]);
    server.wait().unwrap();
    let server = start();
    assert_eq!(life(&server), first);
    connect(&server).words("SET a 2");
    connect(&server).send(&["SHUTDOWN", "NOSAVE"]);
    server.wait().unwrap();
    let server = start();
    assert_ne!(life(&server).0, first.0);
}

#[test]
fn a_life_in_between_that_kept_nothing_begins_a_new_incarnation() {
    let folder = TempFolder::create();
    let dir = folder.path().to_str().unwrap();
    let start = |save: &str| {
        let mut config = store_server::Config::default();
        store_engine::parse_file(&mut config, &format!("save {save}\ndir {dir}\n")).unwrap();
        Server::builder().config(config).start().unwrap()
    };
    let server = start("3600 1");
    connect(&server).words("SET a 1");
    let first = life(&server);
    drop(server);
    let between = start("\"\"");
    assert_eq!(connect(&between).words("GET a"), store_resp::Reply::Bulk(b"1".to_vec()));
    connect(&between).words("SET lease 1");
    drop(between);
    assert_ne!(life(&start("3600 1")).0, first.0, "the lease is forgotten");
}
