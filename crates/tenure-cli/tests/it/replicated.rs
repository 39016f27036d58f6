//! Servers that follow each other, as processes that are killed.

use testkit::{GENEROUS, RedisServer, ServerProgram, wait_until};

use crate::stage::TENURE;

fn ours(arguments: &[&str]) -> RedisServer {
    RedisServer::builder()
        .program(ServerProgram::new(TENURE).arg("serve"))
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .args(arguments)
        .start()
}

fn theirs(arguments: &[&str]) -> RedisServer {
    RedisServer::builder()
        .program(ServerProgram::new("redis-server"))
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .args(arguments)
        .start()
}

/// Writes numbers from `from` on; each is confirmed by all replicas.
fn write(primary: &RedisServer, from: usize, replicas: usize) {
    let set = |key: usize| primary.cli(&["SET", &format!("key:{key}"), &key.to_string()]);
    (from..from + 20).for_each(|key| assert_eq!(set(key), "OK"));
    wait_until("all replicas to be in step", GENEROUS, || primary.has_replicas_in_step(replicas));
}

fn assert_equal(primary: &RedisServer, replicas: [&RedisServer; 2]) {
    for replica in replicas {
        wait_until("the same data", GENEROUS, || {
            primary.cli(&["DEBUG", "DIGEST"]) == replica.cli(&["DEBUG", "DIGEST"])
        });
    }
}

/// Kills one server after the other, the primary last, and each is back with everything.
fn survive(mut primary: RedisServer, mut replicas: [RedisServer; 2]) {
    write(&primary, 0, 2);
    for (replica, from) in replicas.iter_mut().zip([20, 40]) {
        replica.kill();
        write(&primary, from, 1);
        replica.restart();
        write(&primary, from, 2);
    }
    primary.kill();
    assert_eq!(replicas[0].cli(&["GET", "key:59"]), "59", "served without the primary");
    primary.restart();
    assert_eq!(primary.cli(&["DBSIZE"]), "60");
    write(&primary, 60, 2);
    let [first, second] = &replicas;
    assert_equal(&primary, [first, second]);
}

#[test]
fn ours_and_redis_that_are_killed_come_back_to_a_primary_of_ours() {
    let primary = ours(&[]);
    let port = primary.port().to_string();
    let replicas = [ours, theirs].map(|start| start(&["--replicaof", "127.0.0.1", &port]));
    survive(primary, replicas);
}

#[test]
fn ours_and_redis_that_are_killed_come_back_to_a_real_primary() {
    let primary = theirs(&[]);
    let port = primary.port().to_string();
    let replicas = [ours, theirs].map(|start| start(&["--replicaof", "127.0.0.1", &port]));
    survive(primary, replicas);
}
