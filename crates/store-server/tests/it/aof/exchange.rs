//! Files travel both ways: redis-server loads ours, we load theirs.

use std::path::Path;
use std::process::Command;

use testkit::{RedisServer, TempFolder};

use super::{connect, digest, fact, files, fill, persistent, wait_for_fact};
use crate::connection::Connection;
use crate::snapshots::{requests, send_all};

/// With `everysec` it writes up to two seconds late while the disk is busy, and a kill loses that.
fn real(dir: &Path, more: &[&str]) -> RedisServer {
    let dir = dir.to_str().unwrap();
    RedisServer::builder()
        .args(["--appendonly", "yes", "--enable-debug-command", "yes", "--dir", dir])
        .args(["--appendfsync", "no"])
        .args(more)
        .start()
}

/// What redis-check-aof says of the manifest in `dir`.
fn checked_by_redis(dir: &Path) -> String {
    let manifest = dir.join("appendonlydir/appendonly.aof.manifest");
    let output = Command::new("redis-check-aof").arg(manifest).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Values of all sizes that matter: in the base where that is a snapshot, else in requests.
fn fill_and_rewrite(connection: &mut Connection, preamble: &str) {
    fill(connection);
    if preamble == "yes" {
        send_all(connection, &requests());
    }
    connection.words("BGREWRITEAOF");
    wait_for_fact(connection, "aof_rewrite_in_progress", "0");
    if preamble == "no" {
        send_all(connection, &requests());
    }
}

#[test]
fn a_real_server_loads_our_files_and_its_checker_accepts_them() {
    for form in ["yes", "no"] {
        let folder = TempFolder::create();
        let server = persistent(folder.path())
            .setting("aof-use-rdb-preamble", form)
            .setting("aof-timestamp-enabled", "yes")
            .start()
            .unwrap();
        let mut connection = connect(&server);
        fill_and_rewrite(&mut connection, form);
        for line in ["SET late 1", "HSET hash late 1", "XADD stream * late 1"] {
            connection.words(line);
        }
        connection.words("EVAL return{redis.call('INCR','late'),redis.call('SPOP','set')} 0");
        let expected = digest(&mut connection);
        drop(server);
        assert_eq!(files(folder.path()).len(), 3, "{:?}", files(folder.path()));
        assert!(checked_by_redis(folder.path()).contains("All AOF files and manifest are valid"));
        let theirs = real(folder.path(), &[]);
        let mut connection = Connection::tcp(theirs.port());
        assert_eq!(digest(&mut connection), expected, "preamble {form}");
        assert_eq!(connection.words("FCALL f 0"), store_resp::Reply::Integer(7));
    }
}

#[test]
fn we_load_the_files_of_a_real_server() {
    for form in ["yes", "no"] {
        let folder = TempFolder::create();
        let mut theirs = real(folder.path(), &["--aof-use-rdb-preamble", form]);
        let mut connection = Connection::tcp(theirs.port());
        fill_and_rewrite(&mut connection, form);
        connection.words("SET late 1");
        connection.words("SPOP set");
        let expected = digest(&mut connection);
        theirs.kill();
        let server = persistent(folder.path()).start().unwrap();
        let mut connection = connect(&server);
        assert_eq!(digest(&mut connection), expected, "preamble {form}");
        // And on from there, with both kinds of lines in one file.
        connection.words("SET ours 1");
        let expected = digest(&mut connection);
        drop(server);
        let theirs = real(folder.path(), &[]);
        assert_eq!(digest(&mut Connection::tcp(theirs.port())), expected, "preamble {form}");
    }
}

#[test]
fn the_single_file_of_old_is_taken_over() {
    let folder = TempFolder::create();
    let text = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n7\r\n";
    std::fs::write(folder.path().join("appendonly.aof"), text).unwrap();
    let server = persistent(folder.path()).start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("GET a"), store_resp::Reply::Bulk(b"7".to_vec()));
    connection.words("SET b 8");
    drop(server);
    assert!(!folder.path().join("appendonly.aof").exists());
    let expected = ["appendonly.aof", "appendonly.aof.1.incr.aof", "appendonly.aof.manifest"]
        .map(String::from);
    assert_eq!(files(folder.path()), expected);
    let theirs = real(folder.path(), &[]);
    let mut connection = Connection::tcp(theirs.port());
    assert_eq!(connection.words("GET b"), store_resp::Reply::Bulk(b"8".to_vec()));
    assert_eq!(fact(&mut connection, "aof_enabled"), "1");
}

#[test]
fn a_snapshot_is_taken_over_when_the_file_is_turned_on_at_a_start() {
    let folder = TempFolder::create();
    let dir = folder.path().to_str().unwrap();
    let server = store_server::Server::builder().setting("dir", dir).start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET a 1");
    connection.words("SAVE");
    drop(server);
    let server = persistent(folder.path()).start().unwrap();
    assert_eq!(connect(&server).words("GET a"), store_resp::Reply::Bulk(b"1".to_vec()));
    drop(server);
    // From now on the append-only file has it.
    std::fs::remove_file(folder.path().join("dump.rdb")).unwrap();
    let server = persistent(folder.path()).start().unwrap();
    assert_eq!(connect(&server).words("GET a"), store_resp::Reply::Bulk(b"1".to_vec()));
}
