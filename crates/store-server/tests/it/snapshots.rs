//! Snapshot files: ours to redis-server, theirs to us, and what clients see of saving.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use store_resp::Reply;
use store_server::{Server, ServerBuilder};
use testkit::{RedisServer, TempFolder, wait_until};

use crate::connection::Connection;

/// Ends a hung test; measures nothing.
const PATIENCE: Duration = Duration::from_secs(30);

fn ours_in(folder: &Path) -> ServerBuilder {
    Server::builder()
        .any_port()
        .seed(7)
        .setting("enable-debug-command", "yes")
        .setting("enable-protected-configs", "yes")
        .setting("dir", folder.to_str().unwrap())
}

fn connect(server: &Server) -> Connection {
    Connection::tcp(server.port().unwrap())
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Simple(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

fn info(connection: &mut Connection, name: &str) -> String {
    let persistence = text(&connection.words("INFO persistence"));
    let prefix = format!("{name}:");
    let line = persistence.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("no {name} in {persistence}")).to_owned()
}

fn is_ok(reply: &Reply) -> bool {
    text(reply) == "OK"
}

const LIBRARY: &str = "#!lua name=mylib\nredis.register_function('answer', function(keys, args) \
                       return 42 end)";

/// Sizes around every threshold at which an encoding gives way to the next.
const SIZES: &[usize] = &[1, 2, 127, 128, 129, 511, 512, 513, 2000];

/// Sends many requests at once and wants no error among the replies.
pub(crate) fn send_all(connection: &mut Connection, requests: &[Vec<Vec<u8>>]) {
    for batch in requests.chunks(200) {
        batch.iter().for_each(|request| connection.send(request));
        for request in batch {
            let reply = connection.receive().expect("the connection stays open");
            let words: Vec<String> = request
                .iter()
                .take(4)
                .map(|word| word[..word.len().min(40)].escape_ascii().to_string())
                .collect();
            assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
        }
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// Every type in every encoding, with and without an end, in several databases.
pub(crate) fn requests() -> Vec<Vec<Vec<u8>>> {
    let mut requests = vec![
        vec![b"FUNCTION".to_vec(), b"LOAD".to_vec(), LIBRARY.as_bytes().to_vec()],
        words("SET number 12345678901234567890"),
        words("SET integer -9223372036854775808"),
        words("SET small 7"),
        words("SET empty x"),
        words("SETRANGE empty 0 y"),
        words("APPEND number 1"),
        vec![b"SET".to_vec(), b"binary".to_vec(), (0..=255).collect()],
        vec![b"SET".to_vec(), b"repeats".to_vec(), vec![b'r'; 100_000]],
        vec![b"SET".to_vec(), vec![b'k'; 70_000], b"long key".to_vec()],
        vec![b"SET".to_vec(), b"none".to_vec(), Vec::new()],
        words("PFADD visitors a b c d e f"),
        words("GEOADD places 13.361389 38.115556 Palermo 15.087269 37.502669 Catania"),
    ];
    for size in [19, 20, 21, 44, 45, 4095, 4096, 4097, 65_535, 65_536, 65_537, 200_000] {
        let value: Vec<u8> = (0..size).map(|at| b"abcdefghijklmnop"[at * at % 16]).collect();
        let key = format!("string:{size}").into_bytes();
        requests.push(vec![b"SET".to_vec(), key, value]);
    }
    SIZES.iter().for_each(|size| collections(*size, &mut requests));
    big_members(&mut requests);
    streams(&mut requests);
    for line in [
        "SELECT 9",
        "SET other database",
        "RPUSH list a b c",
        "EXPIRE list 100000",
        "SELECT 0",
        "SET volatile value PX 100000000",
        "EXPIRE hash:128 100000",
        "PEXPIREAT zset:129 32503680000123",
    ] {
        requests.push(words(line));
    }
    requests
}

fn collections(size: usize, requests: &mut Vec<Vec<Vec<u8>>>) {
    let elements: Vec<usize> = (0..size).collect();
    for (name, command) in [("list", "RPUSH"), ("set", "SADD"), ("textset", "SADD")] {
        let mut request = words(&format!("{command} {name}:{size}"));
        let word = if name == "textset" { "member" } else { "" };
        request.extend(elements.iter().map(|n| format!("{word}{}", n * 37).into_bytes()));
        requests.push(request);
    }
    let mut hash = words(&format!("HSET hash:{size}"));
    let mut zset = words(&format!("ZADD zset:{size}"));
    for n in &elements {
        hash.extend([format!("field{n}").into_bytes(), format!("{}", n * 1000).into_bytes()]);
        zset.extend([format!("{}.5", n % 77).into_bytes(), format!("member{n}").into_bytes()]);
    }
    requests.extend([hash, zset]);
}

/// Elements around the length at which a collection leaves its listpack.
fn big_members(requests: &mut Vec<Vec<Vec<u8>>>) {
    for length in [63, 64, 65, 5000, 9000] {
        let member = vec![b'm'; length];
        for (name, command) in [("list", "RPUSH"), ("set", "SADD")] {
            let key = format!("{name}:long:{length}").into_bytes();
            requests.push(vec![command.into(), key, member.clone(), b"short".to_vec()]);
        }
        let key = format!("hash:long:{length}").into_bytes();
        requests.push(vec![b"HSET".to_vec(), key, b"f".to_vec(), member.clone()]);
        let key = format!("zset:long:{length}").into_bytes();
        requests.push(vec![b"ZADD".to_vec(), key, b"-inf".to_vec(), member]);
    }
    for set in ["32767 -32768", "32768 1", "2147483647 -2147483648", "2147483648 3"] {
        let key = set.replace(' ', ":");
        requests.push(words(&format!("SADD ints:{key} {set}")));
    }
    requests.push(words("ZADD extremes inf a -inf b 0.1 c 1e300 d -1e-300 e"));
}

fn streams(requests: &mut Vec<Vec<Vec<u8>>>) {
    for size in [1, 99, 100, 101, 1000] {
        for n in 1..=size {
            requests.push(words(&format!("XADD stream:{size} {n}-{} name {n} other x", n % 3)));
        }
    }
    for line in [
        "XGROUP CREATE stream:101 readers 0",
        "XGROUP CREATE stream:101 idle $",
        "XREADGROUP GROUP readers ada COUNT 30 STREAMS stream:101 >",
        "XREADGROUP GROUP readers bob COUNT 5 STREAMS stream:101 >",
        "XACK stream:101 readers 3-0 4-1",
        "XDEL stream:100 100-1 50-2",
        "XTRIM stream:1000 MAXLEN 500",
        "XGROUP CREATE lonely group $ MKSTREAM",
        "XADD gone 5-5 a b",
        "XDEL gone 5-5",
    ] {
        requests.push(words(line));
    }
}

fn check_rdb(path: &Path) {
    let output = Command::new("redis-check-rdb").arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("RDB looks OK"), "{said}");
}

/// What must be equal on both sides after a snapshot went from one to the other.
fn assert_same(ours: &mut Connection, theirs: &mut Connection) {
    let digests = (ours.words("DEBUG DIGEST"), theirs.words("DEBUG DIGEST"));
    if digests.0 != digests.1 {
        let differing = differing_keys(ours, theirs);
        panic!("the data differs, in {differing:?}");
    }
    for request in ["FUNCTION LIST WITHCODE", "DBSIZE", "FCALL answer 0", "PEXPIRETIME zset:129"] {
        assert_eq!(ours.words(request), theirs.words(request), "{request}");
    }
    for size in SIZES {
        for kind in ["list", "set", "textset", "hash", "zset"] {
            let request = format!("OBJECT ENCODING {kind}:{size}");
            assert_eq!(ours.words(&request), theirs.words(&request), "{request}");
        }
    }
    for request in [
        "XINFO STREAM stream:101 FULL COUNT 0",
        "XINFO STREAM gone",
        "XINFO GROUPS lonely",
        "XPENDING stream:101 readers",
    ] {
        let (ours, theirs) = (ours.words(request), theirs.words(request));
        // Radix trees are a matter of theirs; idle times move on.
        if !request.starts_with("XINFO STREAM") {
            assert_eq!(ours, theirs, "{request}");
        }
    }
}

fn differing_keys(ours: &mut Connection, theirs: &mut Connection) -> Vec<String> {
    let Reply::Array(keys) = theirs.words("KEYS *") else { panic!("no keys") };
    let mut differing = Vec::new();
    for key in keys {
        let Reply::Bulk(key) = key else { panic!("no key") };
        let request = [b"DEBUG".to_vec(), b"DIGEST-VALUE".to_vec(), key.clone()];
        if ours.ask(&request) != theirs.ask(&request) {
            differing.push(key.escape_ascii().to_string());
        }
    }
    differing
}

fn theirs_in(folder: &Path, more: &[&str]) -> RedisServer {
    let mut args = vec!["--enable-debug-command", "yes", "--dir", folder.to_str().unwrap()];
    args.extend(more);
    RedisServer::builder().args(args).start()
}

#[test]
fn places_that_cannot_be_are_refused_in_the_words_of_redis() {
    let (folder, other) = (TempFolder::create(), TempFolder::create());
    std::fs::create_dir(other.path().join("sub")).unwrap();
    std::fs::write(other.path().join("file"), "").unwrap();
    let other = other.path().canonicalize().unwrap();
    let server = ours_in(folder.path()).start().unwrap();
    let theirs = RedisServer::builder().args(["--enable-protected-configs", "yes"]).start();
    let mut both = [connect(&server), Connection::tcp(theirs.port())];
    let mut same = |words: &[&str]| {
        let [ours, theirs] = both.each_mut().map(|one| one.ask(words).unwrap());
        assert_eq!(ours, theirs, "{words:?}");
        ours
    };
    for dir in ["", "/nowhere", other.join("file").to_str().unwrap()] {
        let refused = same(&["CONFIG", "SET", "dir", dir]);
        assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    }
    for name in ["a/b", "a\\b", "/dump.rdb"] {
        same(&["CONFIG", "SET", "dbfilename", name]);
    }
    for dir in [other.to_str().unwrap(), "sub", "..", "./sub/../sub"] {
        assert!(is_ok(&same(&["CONFIG", "SET", "dir", dir])), "{dir}");
        same(&["CONFIG", "GET", "dir"]);
    }
}

#[test]
fn redis_loads_what_we_save() {
    for compresses in ["yes", "no"] {
        let folder = TempFolder::create();
        let server = ours_in(folder.path()).setting("rdbcompression", compresses).start().unwrap();
        let mut ours = connect(&server);
        send_all(&mut ours, &requests());
        assert!(is_ok(&ours.words("SAVE")));

        check_rdb(&folder.path().join("dump.rdb"));
        let redis = theirs_in(folder.path(), &[]);
        assert_same(&mut ours, &mut Connection::tcp(redis.port()));
    }
}

#[test]
fn we_load_what_redis_saves() {
    for more in [&[][..], &["--rdbcompression", "no", "--rdbchecksum", "no"]] {
        let folder = TempFolder::create();
        let redis = theirs_in(folder.path(), more);
        let mut theirs = Connection::tcp(redis.port());
        send_all(&mut theirs, &requests());
        assert!(is_ok(&theirs.words("SAVE")));

        let server = ours_in(folder.path()).start().unwrap();
        let mut ours = connect(&server);
        let loaded = ours.words("DEBUG RELOAD NOSAVE");
        assert!(is_ok(&loaded), "{loaded:?}");
        assert_same(&mut ours, &mut theirs);
    }
}

#[test]
fn a_snapshot_in_the_background_is_as_good_as_save() {
    let folder = TempFolder::create();
    let server = ours_in(folder.path()).start().unwrap();
    let mut ours = connect(&server);
    send_all(&mut ours, &requests());
    let before = ours.words("LASTSAVE");
    assert_eq!(text(&ours.words("BGSAVE")), "Background saving started");
    wait_until("the snapshot to be there", PATIENCE, || {
        info(&mut ours, "rdb_bgsave_in_progress") == "0"
    });
    assert_eq!(info(&mut ours, "rdb_last_bgsave_status"), "ok");
    assert_eq!(info(&mut ours, "rdb_changes_since_last_save"), "0");
    assert_eq!(info(&mut ours, "rdb_saves"), "1");
    assert!(matches!((before, ours.words("LASTSAVE")),
        (Reply::Integer(before), Reply::Integer(after)) if after >= before));
    check_rdb(&folder.path().join("dump.rdb"));
    let redis = theirs_in(folder.path(), &[]);
    assert_same(&mut ours, &mut Connection::tcp(redis.port()));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(
        left.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("temp-")),
        "{left:?}"
    );
}

#[test]
fn counters_and_idle_times_go_both_ways() {
    for (policy, question) in [("allkeys-lfu", "OBJECT FREQ"), ("allkeys-lru", "OBJECT IDLETIME")] {
        let policy = ["--maxmemory-policy", policy, "--maxmemory", "100mb"];
        let folder = TempFolder::create();
        let redis = theirs_in(folder.path(), &policy);
        let mut theirs = Connection::tcp(redis.port());
        theirs.words("SET often x");
        let payload = theirs.ask(&["DUMP", "often"]).unwrap();
        let Reply::Bulk(payload) = payload else { panic!("no payload") };
        let option = if question == "OBJECT FREQ" { "FREQ" } else { "IDLETIME" };
        for (key, value) in [("rare", "3"), ("common", "200")] {
            let restore: [&[u8]; 6] =
                [b"RESTORE", key.as_bytes(), b"0", &payload, option.as_bytes(), value.as_bytes()];
            assert!(is_ok(&theirs.ask(&restore).unwrap()));
        }
        assert!(is_ok(&theirs.words("SAVE")));
        let server = ours_in(folder.path())
            .setting("maxmemory-policy", policy[1])
            .setting("dbfilename", "dump.rdb")
            .start()
            .unwrap();
        let mut ours = connect(&server);
        // Through our loader and our writer, then back to them.
        assert!(is_ok(&ours.words("DEBUG RELOAD NOSAVE")));
        assert!(is_ok(&ours.words("SAVE")));
        let again = theirs_in(folder.path(), &policy);
        for (key, value) in [("rare", 3), ("common", 200)] {
            let question = format!("{question} {key}");
            for connection in [&mut ours, &mut Connection::tcp(again.port())] {
                let Reply::Integer(found) = connection.words(&question) else { panic!("none") };
                assert!((value..value + 60).contains(&found), "{question}: {found}");
            }
        }
    }
}

#[test]
fn a_save_point_saves_and_a_failure_refuses_writes_until_it_is_mended() {
    let folder = TempFolder::create();
    let server = ours_in(folder.path())
        .setting("save", "1 2")
        .log(|_, line| println!("{line}"))
        .start()
        .unwrap();
    let mut ours = connect(&server);
    ours.words("SET a 1");
    ours.words("SET b 1");
    let file = folder.path().join("dump.rdb");
    wait_until("the save point to save", PATIENCE, || info(&mut ours, "rdb_saves") == "1");
    assert!(file.exists());

    let gone = folder.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    assert!(is_ok(&ours.words(&format!("CONFIG SET dir {}", gone.display()))));
    std::fs::remove_dir_all(&gone).unwrap();
    // Also by the name that it has: whoever asks learns that there is no such folder.
    let refusal = ours.words(&format!("CONFIG SET dir {}", gone.display()));
    assert!(matches!(&refusal, Reply::Error(text) if text.contains("No such")), "{refusal:?}");
    assert!(is_ok(&ours.words("CONFIG SET maxmemory 0")));
    assert_eq!(text(&ours.words("BGSAVE")), "Background saving started");
    wait_until("the failure to be noticed", PATIENCE, || {
        info(&mut ours, "rdb_last_bgsave_status") == "err"
    });
    let refusal = ours.words("SET c 1");
    assert!(matches!(&refusal, Reply::Error(text) if text.starts_with("MISCONF ")), "{refusal:?}");
    assert_eq!(text(&ours.words("GET a")), "1");
    let refusal = ours.ask(&["EVAL", "return redis.call('set', 'c', 1)", "0"]).unwrap();
    assert!(matches!(&refusal, Reply::Error(text) if text.starts_with("MISCONF ")), "{refusal:?}");

    std::fs::create_dir(&gone).unwrap();
    assert_eq!(text(&ours.words("BGSAVE")), "Background saving started");
    wait_until("the next one to be good", PATIENCE, || {
        info(&mut ours, "rdb_last_bgsave_status") == "ok"
    });
    assert!(is_ok(&ours.words("SET c 1")));
}

#[test]
fn a_failure_is_told_in_the_words_of_redis() {
    let [ours, theirs] = [TempFolder::create(), TempFolder::create()];
    let server = ours_in(ours.path()).setting("save", "3600 1").start().unwrap();
    let redis = RedisServer::builder();
    let redis = redis.args(["--dir", theirs.path().to_str().unwrap(), "--save", "3600 1"]).start();
    for folder in [&ours, &theirs] {
        // No file can get this name.
        std::fs::create_dir_all(folder.path().join("dump.rdb/inside")).unwrap();
    }
    let (mut ours, mut theirs) = (connect(&server), Connection::tcp(redis.port()));
    for connection in [&mut ours, &mut theirs] {
        connection.words("BGSAVE");
        wait_until("the failure to be noticed", PATIENCE, || {
            info(connection, "rdb_last_bgsave_status") == "err"
        });
    }
    for request in ["SET a 1", "PING", "GET a", "DEL a", "SAVE x", "EXISTS a"] {
        assert_eq!(ours.words(request), theirs.words(request), "{request}");
    }
}

#[test]
fn a_server_that_saves_leaves_a_snapshot_at_its_end_and_none_with_nosave() {
    let folder = TempFolder::create();
    let file = folder.path().join("dump.rdb");
    let start = || ours_in(folder.path()).setting("save", "3600 1").start().unwrap();

    let server = start();
    connect(&server).words("SET a 1");
    connect(&server).send(&["SHUTDOWN", "NOSAVE"]);
    server.wait().unwrap();
    assert!(!file.exists());

    let server = start();
    connect(&server).words("SET a 1");
    drop(server);
    assert!(file.exists());
    std::fs::remove_file(&file).unwrap();

    let server = start();
    connect(&server).words("SET a 1");
    connect(&server).send(&["SHUTDOWN"]);
    server.wait().unwrap();
    check_rdb(&file);

    // Without save points, only when asked to.
    std::fs::remove_file(&file).unwrap();
    let server = ours_in(folder.path()).start().unwrap();
    connect(&server).send(&["SHUTDOWN", "SAVE"]);
    server.wait().unwrap();
    check_rdb(&file);
}

/// As in Redis: there is nothing to load, and nothing can be saved.
#[test]
fn a_server_without_a_name_for_its_snapshot_starts() {
    let folder = TempFolder::create();
    let dir = folder.path().to_str().unwrap();
    let builder = Server::builder().setting("dir", dir).setting("save", "3600 1");
    let server = builder.setting("dbfilename", "").start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    assert_eq!(connection.words("SET a 1"), Reply::Simple("OK".into()));
    assert!(connection.ask(&["SHUTDOWN", "NOSAVE"]).is_none());
    server.wait().unwrap();
}

#[test]
fn debug_reload_takes_a_wrong_checksum_where_checksums_are_skipped() {
    let folder = TempFolder::create();
    let builder = Server::builder().setting("dir", folder.path().to_str().unwrap());
    let server = builder.setting("enable-debug-command", "yes").start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    let ok = Reply::Simple("OK".into());
    connection.words("SET a 1");
    assert_eq!(connection.words("SAVE"), ok);
    let path = folder.path().join("dump.rdb");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(connection.words("DEBUG RELOAD NOSAVE"), Reply::Error(_)));
    connection.words("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1");
    assert_eq!(connection.words("DEBUG RELOAD NOSAVE"), ok);
    assert_eq!(connection.words("GET a"), Reply::Bulk(b"1".to_vec()));
}

#[test]
fn a_folder_whose_name_cannot_be_kept_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let folder = TempFolder::create();
    let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&odd).unwrap();
    std::os::unix::fs::symlink(&odd, folder.path().join("link")).unwrap();
    let dir = folder.path().to_str().unwrap();
    let builder = Server::builder().setting("dir", dir);
    let server = builder.setting("enable-protected-configs", "yes").start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    let Reply::Error(refusal) = connection.words("CONFIG SET dir link") else { panic!("taken") };
    assert!(refusal.contains("not UTF-8"), "{refusal}");
}

#[test]
fn what_a_dead_predecessor_left_half_written_is_removed() {
    let folder = TempFolder::create();
    let left = folder.write("temp-4194399-bgsave-dump.rdb", "REDIS");
    let living = format!("temp-{}-bgsave-dump.rdb", std::process::id());
    let living = folder.write(&living, "REDIS");
    let server = ours_in(folder.path()).setting("save", "3600 1").start().unwrap();
    assert!(!left.exists() && living.exists());
    drop(server);
}

#[test]
fn a_damaged_file_is_refused_with_the_place_and_stays_as_it_is() {
    let folder = TempFolder::create();
    let server = ours_in(folder.path()).start().unwrap();
    let mut ours = connect(&server);
    ours.words("RPUSH list a b c");
    assert!(is_ok(&ours.words("SAVE")));
    let file = folder.path().join("dump.rdb");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let Reply::Error(refusal) = ours.words("DEBUG RELOAD NOSAVE") else { panic!("it was loaded") };
    assert!(refusal.contains("dump.rdb: byte "), "{refusal}");
    assert!(refusal.contains("checksum") && refusal.contains("backup"), "{refusal}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    // What was in memory is still there, and no half of a file took its place.
    assert_eq!(ours.words("LRANGE list 0 -1"), reply_of(&["a", "b", "c"]));
    assert_eq!(ours.words("DBSIZE"), Reply::Integer(1));
}

fn reply_of(words: &[&str]) -> Reply {
    Reply::Array(words.iter().map(|word| Reply::Bulk(word.as_bytes().to_vec())).collect())
}

#[test]
fn a_reload_that_leaves_a_part_of_a_file_ends_the_server_and_saves_nothing() {
    let folder = TempFolder::create();
    let server = ours_in(folder.path()).setting("save", "3600 1").start().unwrap();
    let mut ours = connect(&server);
    ours.words("MSET a 1 b 2 c 3");
    assert!(is_ok(&ours.words("SAVE")));
    let file = folder.path().join("dump.rdb");
    let bytes = std::fs::read(&file).unwrap();
    ours.words("SET d 4");
    // Every key of the file is there already.
    ours.send(&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"]);
    let error = server.wait().unwrap_err().to_string();
    assert!(error.contains("DEBUG RELOAD") && error.contains("dump.rdb"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "nothing was saved over it");
}

#[test]
fn a_start_with_a_damaged_or_foreign_file_is_refused_and_leaves_it() {
    let folder = TempFolder::create();
    let file = folder.path().join("dump.rdb");
    let whole = {
        let server = ours_in(folder.path()).start().unwrap();
        let mut ours = connect(&server);
        send_all(&mut ours, &requests());
        assert!(is_ok(&ours.words("SAVE")));
        std::fs::read(&file).unwrap()
    };
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes
    };
    let newer = [&b"REDIS0099"[..], &whole[9..]].concat();
    for (damaged, words) in [
        (flipped(whole.len() / 2), &["backup"][..]),
        (flipped(whole.len() - 3), &["checksum", "backup"]),
        (whole[..whole.len() - 9].to_vec(), &["ends in the middle", "backup"]),
        (whole[..1000].to_vec(), &["ends in the middle", "backup"]),
        (newer, &["version 99", "newer"]),
        (b"name,age\nada,36\n".to_vec(), &["no RDB file", "dbfilename"]),
        (Vec::new(), &["no RDB file", "dbfilename"]),
    ] {
        std::fs::write(&file, &damaged).unwrap();
        let Err(error) = ours_in(folder.path()).setting("save", "3600 1").start() else {
            panic!("it was loaded, though it should say {words:?}");
        };
        let error = error.to_string();
        assert!(error.contains("dump.rdb: byte "), "{error}");
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
        assert_eq!(std::fs::read(&file).unwrap(), damaged, "{error}");
    }
}
