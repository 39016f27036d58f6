//! A network that really loses packets.

use std::process::Command;

use testkit::{GENEROUS, Host, Network, Process, RedisServer, SentinelGroup};

/// `None`, with the reason, where this system does not permit namespaces.
fn network(hosts: usize) -> Option<Network> {
    Network::create(hosts).map_err(|error| println!("skipped: no network namespaces: {error}")).ok()
}

/// Whether a server answers a ping that comes from `host`.
fn answers(server: &RedisServer, host: &Host) -> bool {
    let mut command = Command::new("timeout");
    command.args(["1", "redis-cli", "-u", &server.url(), "PING"]);
    host.enter(&mut command);
    let process = Process::spawn(command);
    process.try_next_line(GENEROUS).as_deref() == Some("PONG")
}

#[test]
fn a_cut_drops_packets_one_way_and_healing_lets_them_pass() {
    let Some(mut network) = network(3) else { return };
    let server = RedisServer::builder().on(network.host(0)).start();
    assert!(answers(&server, network.host(1)) && answers(&server, network.host(2)));

    network.cut(1, 0);
    assert!(!answers(&server, network.host(1)), "requests pass");
    assert!(answers(&server, network.host(2)), "another host is cut off");
    network.heal();
    assert!(answers(&server, network.host(1)));
    network.cut(0, 1);
    assert!(!answers(&server, network.host(1)), "replies pass");
    assert_eq!(server.cli(&["PING"]), "PONG", "the test itself is never cut off");
}

#[test]
fn a_network_goes_away_with_its_value() {
    let Some(network) = network(1) else { return };
    let mine = format!("tenure-net-{}-", std::process::id());
    let count = || {
        let entries = std::fs::read_dir("/run/netns").unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine)).count()
    };
    let before = count();
    drop(network);
    assert!(before >= 2, "a router and a host");
    assert!(count() < before);
}

#[test]
fn sentinels_on_a_network_replace_a_master_that_is_cut_off() {
    let Some(mut network) = network(3) else { return };
    let hosts: Vec<_> = (0..3).map(|index| network.host(index).clone()).collect();
    let group = SentinelGroup::start_on(&hosts, |builder| builder);
    assert_eq!(group.master(), Some(0));
    for other in [1, 2] {
        network.cut(0, other);
        network.cut(other, 0);
    }
    assert_ne!(group.wait_for_another_master(0), 0);
    assert!(group.servers[0].cli(&["ROLE"]).starts_with("master"), "it cannot know yet");
}
