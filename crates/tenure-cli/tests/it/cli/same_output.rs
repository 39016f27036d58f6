//! The same words to `tenure cli` and to the real redis-cli: the same bytes come out.

use std::process::Command;

use testkit::RedisServer;

use super::{both_stores, cli_on, run, stdout};

/// Commands that change nothing and always answer the same, so that both clients may ask.
const QUESTIONS: &[&[&str]] = &[
    &["PING"],
    &["ECHO", "with \"quotes\", a \\, \u{fc}ber and \t tab\n"],
    &["GET", "text"],
    &["GET", "binary"],
    &["GET", "nosuch"],
    &["STRLEN", "text"],
    &["LRANGE", "list", "0", "-1"],
    &["LRANGE", "nosuch", "0", "-1"],
    &["SMEMBERS", "numbers"],
    &["SMEMBERS", "nosuch"],
    &["HGETALL", "hash"],
    &["HGETALL", "nosuch"],
    &["HMGET", "hash", "field", "nosuch"],
    &["ZRANGE", "scores", "0", "-1", "WITHSCORES"],
    &["ZSCORE", "scores", "b"],
    &["ZMSCORE", "scores", "a", "nosuch"],
    &["XRANGE", "stream", "-", "+"],
    &["XINFO", "GROUPS", "stream"],
    &["EVAL", "return {1, 'two', {3, {4}}, false, {}, {err='My error'}}", "0"],
    &["EVAL", "redis.setresp(3); return {map={a=1}, double=1.5}", "0"],
    &["EVAL", "redis.setresp(3); return {true, false, {double=0.1}}", "0"],
    &["EVAL", "return redis.error_reply('ERR spoken')", "0"],
    &["GEOPOS", "places", "here", "nosuch"],
    &["CONFIG", "GET", "maxmemory-policy"],
    &["NOSUCHCOMMAND", "x"],
    &["GET"],
    &["LPUSH", "text", "x"],
    &["TYPE", "list"],
    &["OBJECT", "ENCODING", "hash"],
    &["EXISTS", "text", "hash"],
    &["MEMORY", "DOCTOR"],
    &["CLUSTER", "INFO"],
    &["DEBUG", "PROTOCOL", "verbatim"],
    &["DEBUG", "PROTOCOL", "true"],
    &["DEBUG", "PROTOCOL", "double"],
    &["DEBUG", "PROTOCOL", "set"],
    &["DEBUG", "PROTOCOL", "map"],
    &["DEBUG", "PROTOCOL", "null"],
];

fn fill(server: &RedisServer) {
    let many: Vec<String> = (0..12).map(|number| format!("element {number}")).collect();
    let mut push = vec!["RPUSH", "list"];
    push.extend(many.iter().map(String::as_str));
    for words in [
        &["SET", "text", "plain text"][..],
        &["EVAL", "return redis.call('SET', KEYS[1], '\\0\\255\\n\\\"')", "1", "binary"],
        &push,
        &["SADD", "numbers", "1", "2", "3"],
        &["HSET", "hash", "field", "value", "other", "\n"],
        &["ZADD", "scores", "1", "a", "2.5", "b", "inf", "c"],
        &["XADD", "stream", "1-1", "f", "v"],
        &["XGROUP", "CREATE", "stream", "readers", "0"],
        &["GEOADD", "places", "13.361389", "38.115556", "here"],
    ] {
        server.cli(words);
    }
}

pub(super) fn redis_cli(server: &RedisServer, words: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port().to_string()]).args(words).env_remove("FAKETTY");
    command
}

#[track_caller]
fn compare(server: &RedisServer, words: &[&str], input: &[u8]) {
    let ours = run(cli_on(server, words), input);
    let theirs = run(redis_cli(server, words), input);
    assert_eq!(stdout(&ours), stdout(&theirs), "{words:?}, see {}", super::stderr(&ours));
}

#[test]
fn replies_look_as_in_redis_cli_in_every_form() {
    for server in both_stores() {
        fill(&server);
        for question in QUESTIONS {
            for form in [&["--no-raw"][..], &["--raw"], &[], &["--csv"], &["-3", "--no-raw"]] {
                compare(&server, &[form, question].concat(), b"");
            }
        }
    }
}

#[test]
fn lines_of_standard_input_are_answered_as_by_redis_cli() {
    let input = b"SET a 1\n\nINCR a\nGET \"a\"\nMULTI\nINCR a\nEXEC\nNOSUCH\nPING";
    for server in both_stores() {
        let ours = run(cli_on(&server, &[]), input);
        server.cli(&["FLUSHALL"]);
        let theirs = run(redis_cli(&server, &[]), input);
        assert_eq!(stdout(&ours), stdout(&theirs));
        assert_eq!(ours.status.code(), Some(1), "an error among the replies is told");
    }
}
