//! `tenure check-rdb` on files that redis-server wrote, whole and damaged.

use testkit::RedisServer;

use crate::stage::{CommandOutput, plain_command};

fn check(words: &[&str]) -> CommandOutput {
    CommandOutput::of(plain_command(&[&["check-rdb"], words].concat()))
}

#[test]
fn a_file_is_counted_when_whole_and_told_with_its_place_when_damaged() {
    let redis = RedisServer::start();
    redis.cli(&["RPUSH", "list", "a", "b"]);
    redis.cli(&["SET", "text", "x", "EX", "1000"]);
    redis.cli(&["SAVE"]);
    let file = redis.folder().join("dump.rdb");
    let name = file.to_str().unwrap();

    let said = check(&[name]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("whole"), "{}", said.out);
    let said = check(&[name, "--json"]);
    let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(found["types"], serde_json::json!({ "list": 1, "string": 1 }));
    assert_eq!((&found["volatile"], &found["whole"]), (&1.into(), &true.into()));

    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    let said = check(&[name, "--json"]);
    let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said.code, 65);
    assert_eq!(found["damage"]["offset"], bytes.len() as u64 - 9);
    assert!(said.err.contains("backup"), "{}", said.err);

    assert_eq!(check(&["/nonexistent/dump.rdb"]).code, 66);
    let said = check(&["/etc/passwd"]);
    assert_eq!(said.code, 65);
    assert!(!said.out.contains("version 0"), "it has none: {}", said.out);
    assert!(said.err.contains("no RDB file"), "{}", said.err);
}
