//! Requests of a file that cannot be loaded stop the start, and what a server wrote it can load.

use std::path::Path;

use store_engine::parse_file;
use store_resp::Reply;
use store_server::{Config, Server, ServerBuilder};
use testkit::TempFolder;

use super::{connect, ok, persistent};

const INCREMENT: &str = "appendonlydir/appendonly.aof.1.incr.aof";

/// A server with these lines in its configuration, whose data lies in `dir`.
fn configured(dir: &Path, lines: &str) -> ServerBuilder {
    let mut config = Config::default();
    parse_file(&mut config, &format!("save \"\"\n{lines}")).unwrap();
    Server::builder().config(config).persist(dir)
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

/// A folder whose increment has these requests, which another server may have written.
fn written_by_others(requests: &[&[&str]]) -> TempFolder {
    let folder = TempFolder::create();
    drop(persistent(folder.path()).start().unwrap());
    let bytes: Vec<u8> = requests.iter().flat_map(|words| request(words)).collect();
    std::fs::write(folder.path().join(INCREMENT), bytes).unwrap();
    folder
}

fn is_refused(folder: &TempFolder, words: &[&str]) {
    let path = folder.path().join(INCREMENT);
    let before = std::fs::read(&path).unwrap();
    let error = persistent(folder.path()).start().err().expect("it is refused").to_string();
    for word in words.iter().chain([&path.to_str().unwrap(), &"offset", &"left as it is"]) {
        assert!(error.contains(word), "{error}\nlacks {word}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before, "it was left as it is");
}

#[test]
fn a_script_with_more_effects_than_a_client_may_queue_is_loaded_with_what_follows() {
    let folder = TempFolder::create();
    let limit = "client-query-buffer-limit 1mb\n";
    let server = configured(folder.path(), limit).start().unwrap();
    let mut connection = connect(&server);
    let script = "local text = string.rep('x', 1000)
        for i = 1, 3000 do redis.call('set', 'k' .. i, text) end";
    connection.ask(&["EVAL", script, "0"]).unwrap();
    assert_eq!(connection.words("SET after x"), ok());
    drop(server);
    let server = configured(folder.path(), limit).start().unwrap();
    assert_eq!(connect(&server).words("DBSIZE"), Reply::Integer(3001));
}

#[test]
fn a_transaction_of_more_than_a_million_requests_is_loaded_with_what_follows() {
    let folder = TempFolder::create();
    drop(persistent(folder.path()).start().unwrap());
    let count = (1 << 20) + 24;
    let mut bytes = request(&["MULTI"]);
    bytes.extend(request(&["INCR", "n"]).repeat(count));
    bytes.extend(request(&["EXEC"]));
    bytes.extend(request(&["SET", "after", "x"]));
    std::fs::write(folder.path().join(INCREMENT), bytes).unwrap();
    let server = persistent(folder.path()).start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("GET n"), Reply::Bulk(count.to_string().into_bytes()));
    assert_eq!(connection.words("GET after"), Reply::Bulk(b"x".to_vec()));
}

#[test]
fn a_database_that_is_not_there_stops_the_start() {
    let folder = TempFolder::create();
    let server = configured(folder.path(), "databases 32\n").start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET token 1");
    connection.words("SELECT 20");
    connection.words("SET token 2");
    drop(server);
    is_refused(&folder, &["databases", "16"]);
    let server = configured(folder.path(), "databases 32\n").start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("GET token"), Reply::Bulk(b"1".to_vec()));

    let inside = written_by_others(&[&["MULTI"], &["SELECT", "20"], &["SET", "a", "1"], &["EXEC"]]);
    is_refused(&inside, &["databases", "16"]);
}

#[test]
fn what_cannot_be_loaded_stops_the_start() {
    let cases: [(&[&[&str]], &str); 7] = [
        (&[&["SET", "a", "1"], &["LPUSH", "a", "1"]], "WRONGTYPE"),
        (&[&["MULTI"], &["SET", "a", "1"], &["LPUSH", "a", "1"], &["EXEC"]], "WRONGTYPE"),
        (&[&["MULTI"], &["FT.WRITE", "a"], &["EXEC"]], "FT.WRITE"),
        // A browser is closed for this word, which must not end the loading in silence.
        (&[&["POST", "/"], &["SET", "a", "1"]], "POST"),
        (&[&["QUIT"], &["SET", "a", "1"]], "changes data"),
        (&[&["RESET"], &["SET", "a", "1"]], "changes data"),
        (&[&["CLIENT", "REPLY", "OFF"], &["SET", "a", "1"]], "changes data"),
    ];
    for (requests, reason) in cases {
        is_refused(&written_by_others(requests), &[reason]);
    }
}

#[test]
fn the_loader_knows_commands_by_their_own_names() {
    let folder = TempFolder::create();
    // Those that clients may not use, one by another name, and two that have changed names.
    let lines = "rename-command MULTI \"\"\nrename-command SELECT \"\"\nrename-command DEL \"\"\n\
                 rename-command SREM \"\"\nrename-command PEXPIREAT \"\"\nrename-command SET put\n\
                 rename-command GET look\nrename-command XGROUP xg\n";
    let server = configured(folder.path(), lines).start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("put a 1"), ok());
    connection.words("SADD set x y");
    let script =
        "redis.call('put', 'b', 2) redis.call('EXPIRE', 'b', 1000) redis.call('SPOP', 'set')";
    connection.ask(&["EVAL", script, "0"]).unwrap();
    assert_eq!(connection.words("xg CREATE stream g $ MKSTREAM"), ok());
    drop(server);
    for lines in [lines, ""] {
        let server = configured(folder.path(), lines).start().unwrap();
        let mut connection = connect(&server);
        assert_eq!(connection.words("EXISTS a b stream"), Reply::Integer(3), "{lines}");
        assert_eq!(connection.words("SCARD set"), Reply::Integer(1));
    }
    // Files of old have the names that clients used.
    let old = written_by_others(&[&["put", "a", "1"]]);
    let server = configured(old.path(), lines).start().unwrap();
    assert_eq!(connect(&server).words("EXISTS a"), Reply::Integer(1));
}

#[test]
fn a_snapshot_is_loaded_even_if_none_is_to_be_made() {
    let folder = TempFolder::create();
    let lines = format!("save \"\"\ndir {}\n", folder.path().display());
    let start = || {
        let mut config = Config::default();
        parse_file(&mut config, &lines).unwrap();
        Server::builder().config(config).start()
    };
    let server = start().unwrap();
    let mut connection = connect(&server);
    connection.words("SET a 1");
    assert_eq!(connection.words("SAVE"), ok());
    drop(server);
    assert_eq!(connect(&start().unwrap()).words("GET a"), Reply::Bulk(b"1".to_vec()));

    let path = folder.path().join("dump.rdb");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let error = start().err().expect("a damaged one is refused").to_string();
    assert!(error.contains("dump.rdb"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "it was left as it is");
}

#[test]
fn strings_that_a_smaller_limit_would_not_allow_are_loaded() {
    let folder = TempFolder::create();
    let server = persistent(folder.path()).start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("SETRANGE range 3000000 x"), Reply::Integer(3_000_001));
    assert_eq!(connection.words("SETBIT bits 24000000 1"), Reply::Integer(0));
    let field = connection.words("BITFIELD field SET u8 24000000 7");
    assert_eq!(field, Reply::Array(vec![Reply::Integer(0)]));
    assert_eq!(connection.words("APPEND range y"), Reply::Integer(3_000_002));
    drop(server);
    let server = persistent(folder.path()).setting("proto-max-bulk-len", "1mb").start().unwrap();
    let mut connection = connect(&server);
    for (line, len) in [("STRLEN range", 3_000_002), ("STRLEN bits", 3_000_001)] {
        assert_eq!(connection.words(line), Reply::Integer(len));
    }
    assert_eq!(connection.words("GETRANGE field 3000000 -1"), Reply::Bulk(vec![7]));
    // Clients have the limit all the same.
    for line in ["SETRANGE other 3000000 x", "SETBIT other 24000000 1"] {
        assert!(matches!(connection.words(line), Reply::Error(_)), "{line}");
    }
}

#[test]
fn an_offset_that_no_server_allows_is_refused_when_loaded() {
    for line in [["SETBIT", "k", "9223372036854775807", "1"], ["SETRANGE", "k", "4294967295", "x"]]
    {
        is_refused(&written_by_others(&[&line]), &["refused"]);
    }
}
