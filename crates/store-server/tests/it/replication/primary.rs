//! A real redis-server follows ours: the data and the offsets are equal at the end, whatever
//! happened to the link.

use std::time::Duration;

use testkit::{GENEROUS, wait_until};

use super::support::{
    LogLines, assert_equal, connect, follow, follower, info, primary, text, wait_for_link,
};
use crate::connection::Connection;
use crate::exchange::VALUES;

fn fill(connection: &mut Connection) {
    for (times, line) in VALUES {
        for index in 0..*times {
            connection.words(&line.replace("{i}", &index.to_string()));
        }
    }
}

#[test]
fn a_replica_gets_all_types_and_follows_what_is_written_then() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    fill(&mut ours);
    ours.words("SELECT 3");
    ours.words("SET other-database 1 PX 1000000");
    ours.words("SELECT 0");
    let replica = follower(server.port().unwrap(), &[]);
    let mut theirs = Connection::tcp(replica.port());
    wait_for_link(&mut theirs);
    assert_equal(&mut ours, &mut theirs);

    for line in [
        "SET key value EX 1000",
        "INCR counter",
        "SADD members a b c d",
        "SPOP members",
        "EXPIRE counter 500",
        "MULTI",
        "SET in-transaction 1",
        "LPUSH list-in-transaction 2 3",
        "EXEC",
        "EVAL redis.call('SET','by-script','1');redis.call('INCR','by-script') 0",
        "SELECT 5",
        "SET in-five 1",
        "SELECT 0",
        "DEL text",
    ] {
        ours.words(line);
    }
    assert_equal(&mut ours, &mut theirs);
    assert_eq!(text(&theirs.words("GET by-script")), "2");
    assert_eq!(info(&mut ours, "stats", "sync_full"), "1");
    assert_eq!(info(&mut ours, "replication", "connected_slaves"), "1");
    let line = info(&mut ours, "replication", "slave0");
    let port = replica.port();
    assert!(line.starts_with(&format!("ip=127.0.0.1,port={port},state=online")), "{line}");
}

#[test]
fn a_replica_that_cannot_take_a_mark_gets_a_payload_from_disk() {
    let server = primary().setting("repl-diskless-sync", "no").start().unwrap();
    let mut ours = connect(&server);
    fill(&mut ours);
    let replica = follower(server.port().unwrap(), &[]);
    let mut theirs = Connection::tcp(replica.port());
    wait_for_link(&mut theirs);
    ours.words("SET later 1");
    assert_equal(&mut ours, &mut theirs);
}

#[test]
fn replicas_that_come_together_share_one_payload() {
    let log = LogLines::default();
    let server = log.of(primary().setting("repl-diskless-sync-delay", "2")).start().unwrap();
    let mut ours = connect(&server);
    ours.words("DEBUG POPULATE 20000 key 100");
    let replicas = [(); 3].map(|()| follower(server.port().unwrap(), &[]));
    for replica in &replicas {
        let mut theirs = Connection::tcp(replica.port());
        wait_for_link(&mut theirs);
        ours.words("INCR n");
        assert_equal(&mut ours, &mut theirs);
    }
    assert_eq!(log.count("Starting BGSAVE for SYNC with target: replicas sockets"), 1);
    assert_eq!(info(&mut ours, "stats", "sync_full"), "3");
    assert_eq!(text(&ours.words("WAIT 3 30000")), "3");
}

/// The payload is of one moment, whatever is written, flushed or moved while it travels.
#[test]
fn what_is_written_during_a_full_sync_follows_it() {
    for target in ["yes", "no"] {
        let server = primary()
            .setting("repl-diskless-sync", target)
            .setting("rdb-key-save-delay", "150")
            .start()
            .unwrap();
        let mut ours = connect(&server);
        ours.words("DEBUG POPULATE 20000 key 100");
        let replica = follower(server.port().unwrap(), &["--repl-diskless-load", "swapdb"]);
        let mut theirs = Connection::tcp(replica.port());
        wait_until("the payload to begin", GENEROUS, || {
            info(&mut ours, "persistence", "rdb_bgsave_in_progress") == "1"
        });
        assert!(info(&mut ours, "replication", "slave0").contains("state=wait_bgsave"));
        let mut lines = String::new();
        for index in 0..3000 {
            lines += &format!("APPEND key:{} more\r\nRPUSH list {index}\r\n", index * 7);
            match index {
                1000 => lines += "SWAPDB 0 1\r\n",
                1500 => lines += "FLUSHDB\r\n",
                _ => {}
            }
        }
        ours.send_raw(lines.as_bytes());
        lines.lines().for_each(|_| _ = ours.receive().unwrap());
        assert_eq!(info(&mut ours, "persistence", "rdb_bgsave_in_progress"), "1", "{target}");
        wait_for_link(&mut theirs);
        assert_equal(&mut ours, &mut theirs);
    }
}

#[test]
fn what_is_kept_for_replicas_is_memory_in_use() {
    const BACKLOG: usize = 100_000;
    let server = primary().setting("repl-backlog-size", &BACKLOG.to_string()).start().unwrap();
    let mut ours = connect(&server);
    let mut replica = Connection::tcp(server.port().unwrap());
    replica.send(&["SYNC"]);
    wait_until("the payload to be sent", GENEROUS, || {
        info(&mut ours, "replication", "slave0").contains("state=online")
    });
    // The replica reads nothing, and the system takes a few megabytes for it.
    let value = "x".repeat(100_000);
    for _ in 0..200 {
        ours.words(&format!("SET key {value}"));
    }
    let mut fact = |name: &str| info(&mut ours, "memory", name).parse::<usize>().unwrap();
    assert_eq!(fact("mem_replication_backlog"), BACKLOG);
    let unread = fact("mem_clients_slaves");
    assert!(unread > BACKLOG, "{unread}");
    // A ping may have been added meanwhile.
    assert!(fact("mem_total_replication_buffers") >= BACKLOG + unread);
    assert!(fact("used_memory") > BACKLOG + unread);
    assert!(fact("mem_not_counted_for_evict") >= unread);
}

#[test]
fn keys_that_end_or_are_evicted_go_at_the_replica_by_the_primarys_word() {
    let server = primary().setting("maxmemory-policy", "allkeys-lru").start().unwrap();
    let mut ours = connect(&server);
    let replica = follower(server.port().unwrap(), &["--replica-ignore-maxmemory", "yes"]);
    let mut theirs = Connection::tcp(replica.port());
    wait_for_link(&mut theirs);
    for index in 0..500 {
        ours.words(&format!("SET short:{index} x PX {}", 1 + index % 50));
        ours.words(&format!("SET long:{index} x"));
        if index % 10 == 0 {
            ours.words(&format!("GET short:{}", index / 2));
        }
    }
    wait_until("the keys to end", GENEROUS, || text(&ours.words("DBSIZE")) == "500");
    assert_equal(&mut ours, &mut theirs);
    assert_eq!(text(&theirs.words("DBSIZE")), "500");

    ours.words("CONFIG SET maxmemory 3mb");
    for index in 0..4000 {
        ours.words(&format!("SET filler:{index} {}", "x".repeat(1000)));
    }
    assert_ne!(info(&mut ours, "stats", "evicted_keys"), "0");
    assert_equal(&mut ours, &mut theirs);
}

#[test]
fn redis_cli_takes_a_payload_and_the_stream() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    fill(&mut ours);
    let folder = testkit::TempFolder::create();
    let file = folder.path().join("dump.rdb");
    let port = server.port().unwrap().to_string();
    let mut command = std::process::Command::new("redis-cli");
    command.args(["-p", &port, "--rdb", file.to_str().unwrap()]);
    assert!(command.output().unwrap().status.success());
    let check = std::process::Command::new("redis-check-rdb").arg(&file).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    wait_until("it to be forgotten", Duration::from_secs(20), || {
        info(&mut ours, "replication", "connected_slaves") == "0"
    });
}

/// Messages have listeners at replicas; no file has them. A script may leave either out.
#[test]
fn messages_reach_the_listeners_of_a_replica_and_no_file() {
    let folder = testkit::TempFolder::create();
    let server = primary()
        .setting("dir", folder.path().to_str().unwrap())
        .setting("appendonly", "yes")
        .start()
        .unwrap();
    let mut ours = connect(&server);
    let replica = follower(server.port().unwrap(), &[]);
    let mut theirs = Connection::tcp(replica.port());
    wait_for_link(&mut theirs);
    let mut listener = Connection::tcp(replica.port());
    listener.words("SUBSCRIBE news");
    ours.words("PUBLISH news first");
    assert!(text(&listener.receive().unwrap()).contains("first"));
    for line in ["MULTI", "SET key 1", "PUBLISH news second", "EXEC"] {
        ours.words(line);
    }
    assert!(text(&listener.receive().unwrap()).contains("second"));
    let script = "redis.set_repl(redis.REPL_AOF); redis.call('SET','in-file','1'); \
                  redis.set_repl(redis.REPL_REPLICA); redis.call('SET','at-replica','1'); \
                  redis.set_repl(redis.REPL_NONE); redis.call('SET','nowhere','1')";
    ours.ask(&["EVAL", script, "0"]);
    assert_eq!(text(&ours.words("WAIT 1 30000")), "1");
    let keys = |connection: &mut Connection| {
        ["in-file", "at-replica", "nowhere"]
            .map(|key| text(&connection.words(&format!("GET {key}"))))
    };
    assert_eq!(keys(&mut theirs), ["null", "1", "null"]);
    ours.words("DEBUG LOADAOF");
    assert_eq!(keys(&mut ours), ["1", "null", "null"]);
}

/// Replicas copy what there is, be it nothing.
#[test]
fn a_primary_that_lost_its_data_says_loudly_what_its_replicas_are_about_to_do() {
    let folder = testkit::TempFolder::create();
    let start = |lines: &LogLines| {
        let builder = primary().setting("dir", folder.path().to_str().unwrap());
        lines.of(builder).start().unwrap()
    };
    let lines = LogLines::default();
    let server = start(&lines);
    let replica = follower(server.port().unwrap(), &[]);
    let mut theirs = Connection::tcp(replica.port());
    wait_for_link(&mut theirs);
    assert_eq!(lines.count("!!!"), 0, "nothing is lost where there was nothing");
    let mut ours = connect(&server);
    ours.words("SET a 1");
    assert_equal(&mut ours, &mut theirs);
    drop((ours, server));

    let lines = LogLines::default();
    let server = start(&lines);
    theirs.words(&format!("REPLICAOF 127.0.0.1 {}", server.port().unwrap()));
    let part = "!!! This server has no keys, and replica 127.0.0.1:";
    wait_until("a loud line", GENEROUS, || lines.count(part) == 1);
}

#[test]
fn debug_changes_the_id_and_speaks_to_replicas_alone() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    let replica = follower(server.port().unwrap(), &[]);
    let mut theirs = Connection::tcp(replica.port());
    wait_for_link(&mut theirs);
    assert_eq!(text(&ours.words("DEBUG REPLICATE SET there 1")), "OK");
    wait_until("the write", GENEROUS, || text(&theirs.words("GET there")) == "1");
    assert_eq!(text(&ours.words("EXISTS there")), "0");
    let id = info(&mut ours, "replication", "master_replid");
    assert_eq!(text(&ours.words("DEBUG CHANGE-REPL-ID")), "OK");
    assert_ne!(info(&mut ours, "replication", "master_replid"), id);
    assert_eq!(text(&theirs.words("CLIENT KILL TYPE master")), "1");
    wait_until("another full sync", GENEROUS, || info(&mut ours, "stats", "sync_full") == "2");
}

#[test]
fn what_replication_moves_per_second_is_told_on_both_sides() {
    let (server, below) = (primary().start().unwrap(), primary().start().unwrap());
    let (mut ours, mut replica) = (connect(&server), connect(&below));
    follow(&mut replica, server.port().unwrap());
    wait_for_link(&mut replica);
    let value = "x".repeat(50_000);
    wait_until("a rate on both", GENEROUS, || {
        ours.ask(&["SET", "large", &value]);
        info(&mut ours, "stats", "instantaneous_output_repl_kbps") != "0.00"
            && info(&mut replica, "stats", "instantaneous_input_repl_kbps") != "0.00"
    });
}

/// With `repl-timeout` as it is here, one that does not read would hold up everybody for an hour.
#[test]
fn who_does_not_read_its_file_makes_nobody_wait() {
    let log = LogLines::default();
    let builder = primary().setting("repl-diskless-sync", "no").setting("repl-timeout", "3600");
    let server = log.of(builder).setting("rdbcompression", "no").start().unwrap();
    let mut ours = connect(&server);
    // More than sockets take of what nobody reads.
    ours.words("DEBUG POPULATE 3000 key 10000");
    let mut stuck = Connection::tcp(server.port().unwrap());
    stuck.send(&["SYNC"]);
    wait_until("the payload of the first", GENEROUS, || {
        info(&mut ours, "replication", "slave0").contains("state=send_bulk")
    });
    for number in 1..=2 {
        let replica = follower(server.port().unwrap(), &[]);
        let mut theirs = Connection::tcp(replica.port());
        wait_for_link(&mut theirs);
        ours.words("INCR later");
        assert_equal(&mut ours, &mut theirs);
        let line = info(&mut ours, "replication", "slave0");
        assert!(line.contains("state=send_bulk"), "{number}: the first has not read yet: {line}");
    }
}
