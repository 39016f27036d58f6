//! What arrives: the payload, then the stream.

use store_resp::Reply;
use testkit::RedisServer;

use super::{Ours, ok, primary, their_fact};
use crate::connection::Connection;

/// Values of every kind, some with an end, in two databases.
fn fill(theirs: &RedisServer) {
    let mut connection = Connection::tcp(theirs.port());
    for (times, line) in crate::exchange::VALUES {
        for index in 0..*times {
            connection.words(&line.replace("{i}", &index.to_string()));
        }
    }
    for line in ["SET ends-later x PX 100000000", "EXPIRE hash 100000", "SELECT 3", "SET there 1"] {
        connection.words(line);
    }
    let library = "#!lua name=lib\nredis.register_function{function_name='f', \
                   callback=function() return 7 end, flags={'no-writes'}}";
    connection.ask(&["FUNCTION", "LOAD", "REPLACE", library]).unwrap();
}

#[test]
fn ours_gets_everything_that_a_real_primary_has_and_what_follows() {
    let theirs = primary();
    fill(&theirs);
    let mut ours = Ours::start();
    ours.words("SET own 1");
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    ours.wait_until_equal(&theirs);
    assert_eq!(ours.words("EXISTS own"), Reply::Integer(0), "its own data is gone");
    assert_eq!(ours.words("FCALL f 0"), Reply::Integer(7));

    // The stream: each kind of thing that a primary sends.
    let mut client = Connection::tcp(theirs.port());
    for line in [
        "SET a 1 EX 1000",
        "SELECT 5",
        "INCRBY counter 7",
        "SADD drawn 1 2 3 4 5 6 7 8",
        "SPOP drawn 3",
        "MULTI",
        "SET b 2",
        "RPUSH l 1 2 3",
        "EXEC",
        "XADD s * f v",
        "SELECT 0",
        "SWAPDB 0 3",
        "COPY there here",
        "RENAME there gone",
        "EXPIRE gone 100",
        "FUNCTION FLUSH",
        "PUBLISH channel text",
    ] {
        client.words(line);
    }
    let script = "redis.call('INCR','x') redis.call('HSET','h','f',ARGV[1]) return 1";
    assert_eq!(client.ask(&["EVAL", script, "0", "v"]), Some(Reply::Integer(1)));
    ours.wait_until_equal(&theirs);
    assert_eq!(their_fact(&theirs, "sync_full"), "1");
    assert_eq!(ours.fact("master_replid"), their_fact(&theirs, "master_replid"));
    testkit::wait_until("the acknowledgement", testkit::GENEROUS, || {
        let offset = their_fact(&theirs, "master_repl_offset");
        their_fact(&theirs, "slave0").contains(&format!("state=online,offset={offset},"))
    });
    let port = ours.server.port().unwrap();
    assert!(their_fact(&theirs, "slave0").contains(&format!("port={port},")));
    client.words("SET waited 1");
    assert_eq!(client.words("WAIT 1 20000"), Reply::Integer(1), "it answers GETACK");
    for line in [
        "Connecting to MASTER",
        "MASTER <-> REPLICA sync started",
        "MASTER <-> REPLICA sync: Flushing old data",
        "MASTER <-> REPLICA sync: Loading DB in memory",
        "MASTER <-> REPLICA sync: Finished with success",
    ] {
        assert!(ours.has_logged(line), "the log has no line about: {line}");
    }
}

#[test]
fn a_request_of_as_many_words_as_redis_takes_is_taken_from_it() {
    let theirs = primary();
    // What is refused would be asked for again and again, and never with all the rest.
    theirs.cli(&["CONFIG", "SET", "repl-backlog-size", "100mb"]);
    let mut ours = Ours::following(theirs.port());
    let mut words = vec!["SADD", "many"];
    words.resize(1_048_577, "member");
    let mut client = Connection::tcp(theirs.port());
    assert_eq!(client.ask(&words), Some(Reply::Integer(1)));
    ours.wait_until_equal(&theirs);
    assert_eq!(their_fact(&theirs, "sync_full"), "1");
}

#[test]
fn a_primary_in_the_settings_is_followed_from_the_start() {
    let theirs = RedisServer::builder()
        .args(["--repl-diskless-sync", "no", "--enable-debug-command", "yes"])
        .password("secret")
        .start();
    theirs.cli(&["SET", "a", "1"]);
    let port = theirs.port().to_string();
    let mut ours = Ours::start_with(|builder| {
        builder.setting("replicaof", &format!("127.0.0.1 {port}")).setting("masterauth", "secret")
    });
    ours.wait_for("role", "slave");
    ours.wait_for("master_link_status", "up");
    ours.wait_until_equal(&theirs);
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"1".to_vec()));
    let told = ours.words("CONFIG GET replicaof");
    let value = format!("127.0.0.1 {port}").into_bytes();
    assert_eq!(told, Reply::Array(vec![Reply::Bulk(b"replicaof".to_vec()), Reply::Bulk(value)]));
}

#[test]
fn a_user_of_the_primary_logs_in_and_a_wrong_password_is_logged() {
    let theirs = RedisServer::builder()
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        .start();
    theirs.cli(&["ACL", "SETUSER", "follower", "on", ">tulip77", "+psync", "+replconf", "+ping"]);
    theirs.cli(&["ACL", "SETUSER", "default", "on", ">other", "~*", "&*", "+@all"]);
    let mut ours = Ours::start_with(|builder| {
        builder.setting("masteruser", "follower").setting("masterauth", "wrong")
    });
    ours.follow(theirs.port());
    testkit::wait_until("the refusal in the log", testkit::GENEROUS, || {
        ours.has_logged("WRONGPASS")
    });
    assert_eq!(ours.fact("master_link_status"), "down");
    assert_eq!(ours.words("CONFIG SET masterauth tulip77"), ok());
    ours.wait_for("master_link_status", "up");
    assert!(!ours.lines.lock().unwrap().iter().any(|line| line.contains("tulip77")), "a secret");
}

#[test]
fn what_a_primary_writes_under_load_arrives_as_it_was() {
    let theirs = primary();
    theirs.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    theirs.cli(&["DEBUG", "POPULATE", "20000", "key", "100"]);
    theirs.cli(&["CONFIG", "SET", "repl-backlog-size", "50mb"]);
    let used: usize = their_fact(&theirs, "used_memory").parse().unwrap();
    theirs.cli(&["CONFIG", "SET", "maxmemory", &(used + 24_000_000).to_string()]);
    let port = theirs.port();
    let writers: Vec<_> =
        (0..3).map(|number| std::thread::spawn(move || write_much(port, number))).collect();
    let mut ours = Ours::following(port);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    theirs.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    ours.wait_until_equal(&theirs);
    let evicted: u64 = their_fact(&theirs, "evicted_keys").parse().unwrap();
    assert!(evicted > 0, "the primary evicted nothing, so nothing was shown of that");
    testkit::wait_until("some key ends", testkit::GENEROUS, || {
        their_fact(&theirs, "expired_keys") != "0"
    });
    ours.wait_until_equal(&theirs);
    assert_eq!((ours.fact("evicted_keys"), ours.fact("expired_keys")), ("0".into(), "0".into()));
}

fn write_much(port: u16, number: usize) {
    let mut random = testkit::Random::seeded(testkit::seed() ^ number as u64);
    let mut client = Connection::tcp(port);
    let large = "x".repeat(300_000);
    for _ in 0..2500 {
        let key = format!("k{}", random.in_range(0..400));
        let member = random.in_range(0..50).to_string();
        let reply = match random.in_range(0..14) {
            0 => client.ask(&["SET", &key, &large]),
            1 => client.ask(&["SET", &key, &member, "PX", "40"]),
            2 => client.ask(&["RPUSH", &format!("l{key}"), &member, &member]),
            3 => client.ask(&["LPOP", &format!("l{key}")]),
            4 => client.ask(&["SADD", &format!("s{key}"), &member]),
            5 => client.ask(&["SPOP", &format!("s{key}")]),
            6 => client.ask(&["ZADD", &format!("z{key}"), &member, &member]),
            7 => client.ask(&["HINCRBY", &format!("h{key}"), &member, "3"]),
            8 => client.ask(&["XADD", &format!("x{key}"), "MAXLEN", "~", "20", "*", "f", &member]),
            9 => {
                client.words("MULTI");
                client.ask(&["APPEND", &format!("a{key}"), &member]);
                client.ask(&["INCR", "transactions"]);
                client.ask(&["EXEC"])
            }
            10 => client.ask(&[
                "EVAL",
                "local n = redis.call('INCR', KEYS[1]) \
                 if n % 2 == 0 then redis.call('EXPIRE', KEYS[1], 1000) end return n",
                "1",
                &format!("e{key}"),
            ]),
            11 => client.ask(&["GETEX", &key, "PX", "50"]),
            12 => client.ask(&["SELECT", &(random.in_range(0..3)).to_string()]),
            _ => client.ask(&["DEL", &key]),
        };
        drop(reply);
    }
}
