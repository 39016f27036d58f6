//! The real `redis-cli --cluster` makes a cluster of both kinds, through either of them.

use std::process::Command;

use testkit::{GENEROUS, RedisServer, ServerProgram, wait_until};

use super::{address, mixed, node};

fn create(servers: &[RedisServer]) {
    let addresses: Vec<String> = servers.iter().map(address).collect();
    let mut words = vec!["--cluster", "create"];
    words.extend(addresses.iter().map(String::as_str));
    words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    let said = servers[0].cli(&words);
    assert!(said.contains("All 16384 slots covered"), "{said}");
}

fn is_whole(server: &RedisServer) -> bool {
    let info = server.cli(&["CLUSTER", "INFO"]);
    let role = server.cli(&["INFO", "replication"]);
    let is_in_step = role.contains("role:master") || role.contains("master_link_status:up");
    info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6") && is_in_step
}

fn checks_out(servers: &[RedisServer]) {
    wait_until("every node to be content", GENEROUS, || servers.iter().all(is_whole));
    for server in &servers[..2] {
        let said = server.cli(&["--cluster", "check", &address(server)]);
        assert!(said.contains("All nodes agree about slots configuration"), "{said}");
        assert!(said.contains("All 16384 slots covered"), "{said}");
        let said = server.cli(&["--cluster", "info", &address(server)]);
        assert!(said.contains("0 keys in 3 masters") && said.contains("1 slaves"), "{said}");
    }
}

#[test]
fn redis_cli_creates_a_mixed_cluster_through_one_of_ours() {
    let servers: Vec<RedisServer> = mixed().into_iter().map(|it| node(it).start()).collect();
    create(&servers);
    checks_out(&servers);
    // A client that follows redirections finds every key through any node.
    for (index, server) in servers.iter().enumerate() {
        let key = format!("key:{index}");
        assert_eq!(server.cli(&["-c", "SET", &key, "value"]), "OK");
    }
    for server in &servers {
        for index in 0..servers.len() {
            assert_eq!(server.cli(&["-c", "GET", &format!("key:{index}")]), "value");
        }
    }
    let said = servers[0].cli(&["--cluster", "call", &address(&servers[1]), "DBSIZE"]);
    assert_eq!(said.matches("127.0.0.1:").count(), 6, "{said}");
}

#[test]
fn redis_cli_creates_a_mixed_cluster_through_a_real_node_and_refuses_a_member() {
    let mut programs = mixed();
    programs.rotate_left(1);
    let servers: Vec<RedisServer> = programs.into_iter().map(|it| node(it).start()).collect();
    create(&servers);
    checks_out(&servers);

    // A node that belongs to a cluster is not taken into another one.
    let stranger = node(ServerProgram::own()).start();
    let (own, new) = (address(&servers[1]), address(&stranger));
    let words = ["--cluster", "create", &new, &own, &own, "--cluster-yes"];
    let refused = Command::new("redis-cli").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.status.success() && said.contains("is not empty"), "{said}");
    assert!(stranger.cli(&["CLUSTER", "INFO"]).contains("cluster_known_nodes:1"));

    // A new one is added, and leaves again.
    let said = stranger.cli(&["--cluster", "add-node", &new, &own]);
    assert!(said.contains("New node added correctly"), "{said}");
    wait_until("all to know the new node", GENEROUS, || {
        let knows = |it: &RedisServer| it.cli(&["CLUSTER", "INFO"]).contains("known_nodes:7");
        servers.iter().all(knows) && knows(&stranger)
    });
    let id = stranger.cli(&["CLUSTER", "MYID"]);
    let said = servers[0].cli(&["--cluster", "del-node", &own, &id]);
    assert!(said.contains("Sending CLUSTER RESET SOFT"), "{said}");
    wait_until("it to be forgotten", GENEROUS, || {
        servers.iter().all(|it| it.cli(&["CLUSTER", "INFO"]).contains("known_nodes:6"))
    });
    assert!(stranger.cli(&["CLUSTER", "INFO"]).contains("cluster_known_nodes:1"));
}
