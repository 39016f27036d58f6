//! A primary restarts with a new history while one of its replicas stands still.

use testkit::{GENEROUS, RedisServer, Sentinel, ServerProgram, wait_until};

fn field(server: &RedisServer, name: &str) -> String {
    let info = server.cli(&["INFO"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim_end().to_owned()
}

#[test]
fn a_replica_that_stood_still_while_the_primary_began_a_new_history_is_not_preferred() {
    let mut primary = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
    let port = primary.port().to_string();
    let follow = || RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]);
    let (replica, mut stale) =
        (follow().start(), follow().args(["--replica-priority", "10"]).start());
    wait_until("two replicas", GENEROUS, || primary.has_replicas_in_step(2));
    primary.cli(&["SET", "big", &"x".repeat(60_000)]);
    wait_until("all data to be there", GENEROUS, || primary.has_replicas_in_step(2));
    // It is slow to miss a server until the primary is gone for good.
    let lines = format!(
        "sentinel monitor main 127.0.0.1 {port} 1\nsentinel down-after-milliseconds main 60000\n"
    );
    let sentinel = Sentinel::start_alone(&ServerProgram::own(), &lines, None);
    assert_eq!(sentinel.cli(&["SENTINEL", "DEBUG", "info-period", "300"]), "OK");
    let master = |name: &str| {
        let text = sentinel.cli(&["SENTINEL", "MASTER", "main"]);
        let mut lines = text.lines();
        lines.find(|line| *line == name).and(lines.next()).unwrap_or_default().to_owned()
    };
    wait_until("both replicas to be known", GENEROUS, || master("num-slaves") == "2");

    stale.pause();
    primary.restart();
    wait_until("one replica to have the new history", GENEROUS, || {
        field(&replica, "master_link_status") == "up"
            && field(&replica, "master_replid") == field(&primary, "master_replid")
    });
    wait_until("the restart to be seen", GENEROUS, || master("runid") == field(&primary, "run_id"));
    primary.cli(&["SET", "precious", "42"]);
    wait_until("it to be there", GENEROUS, || replica.cli(&["GET", "precious"]) == "42");
    assert_eq!(sentinel.cli(&["SENTINEL", "SET", "main", "down-after-milliseconds", "4000"]), "OK");
    primary.kill();
    stale.resume();
    wait_until("another master", GENEROUS, || master("port") != port);
    assert_eq!(master("port"), replica.port().to_string());
    assert_eq!(replica.cli(&["GET", "precious"]), "42");
}
