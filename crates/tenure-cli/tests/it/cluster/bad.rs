//! What a node refuses, with the reason and the next step.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};

use testkit::{GENEROUS, RedisServer, ServerProgram, TempFolder, wait_until};

use super::node;

/// Starts a node that is not expected to start.
fn refused(server: &RedisServer, more: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["serve", "--cluster-enabled", "yes", "--save", "", "--dir"])
        .arg(server.folder())
        .args(more)
        .output()
        .unwrap();
    assert!(!status.success());
    [String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)].concat()
}

#[test]
fn a_damaged_or_locked_file_is_refused_with_the_next_step() {
    let mut server = node(ServerProgram::own()).start();
    assert_eq!(server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "OK");
    let path = server.folder().join("nodes.conf");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("0-16383"), "it is on disk when OK is answered: {text}");
    let port = (server.port() - 1).to_string();
    let said = refused(&server, &["--port", &port]);
    assert!(said.contains("in use by another node") && said.contains("each node needs"), "{said}");

    let id = server.cli(&["CLUSTER", "MYID"]);
    server.terminate();
    for damaged in [&text[..text.len() / 2], &text.replace("master", "mister"), "nonsense\n"] {
        fs::write(&path, damaged).unwrap();
        let said = refused(&server, &["--port", &server.port().to_string()]);
        assert!(said.contains("nodes.conf line") && said.contains("restore the file"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), damaged, "it is left as it was");
    }
    fs::write(&path, &text).unwrap();
    server.restart();
    assert_eq!(server.cli(&["CLUSTER", "MYID"]), id);
    wait_until("the slots to be served again", GENEROUS, || {
        server.cli(&["SET", "key", "value"]) == "OK"
    });
}

#[test]
fn a_port_of_the_bus_that_is_in_use_or_is_none_is_refused() {
    let folder = TempFolder::create();
    let _ = folder.write("empty", "");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let server = node(ServerProgram::own()).start();
    let dir = folder.path().to_str().unwrap();
    let own = (server.port() - 1).to_string();
    let said = refused(&server, &["--dir", dir, "--port", &own, "--cluster-port", &port]);
    assert!(said.contains("the bus of the cluster") && said.contains("cluster-port"), "{said}");
    let is_free = |port: &u32| TcpListener::bind(("127.0.0.1", *port as u16)).is_ok();
    let high = (55_536..65_536).find(is_free).unwrap();
    let said = refused(&server, &["--dir", dir, "--port", &high.to_string()]);
    let bus_port = (high + 10_000).to_string();
    assert!(said.contains(&bus_port) && said.contains("55535"), "{said}");
}

#[test]
fn data_outside_database_0_is_refused() {
    let mut server = RedisServer::builder().program(ServerProgram::own()).start();
    assert_eq!(server.cli(&["-n", "3", "SET", "key", "value"]), "OK");
    assert_eq!(server.cli(&["SAVE"]), "OK");
    server.terminate();
    let said = refused(&server, &["--port", &server.port().to_string()]);
    assert!(said.contains("keys in database 3") && said.contains("cluster-enabled no"), "{said}");
}

#[test]
fn a_node_with_keys_takes_their_slots_when_nobody_serves_them() {
    let mut server = RedisServer::builder().program(ServerProgram::own()).start();
    assert_eq!(server.cli(&["SET", "foo", "value"]), "OK");
    assert_eq!(server.cli(&["SAVE"]), "OK");
    server.restart_with(["--cluster-enabled", "yes"]);
    let nodes = server.cli(&["CLUSTER", "NODES"]);
    assert!(nodes.ends_with("connected 12182"), "{nodes}");
    assert_eq!(server.cli(&["CLUSTER", "COUNTKEYSINSLOT", "12182"]), "1");
    assert_eq!(server.cli(&["CLUSTER", "GETKEYSINSLOT", "12182", "9"]), "foo");
}

#[test]
fn a_node_forgets_neither_itself_nor_its_master() {
    let server = node(ServerProgram::own()).start();
    let id = server.cli(&["CLUSTER", "MYID"]);
    let said = server.cli(&["CLUSTER", "FORGET", &id]);
    assert!(said.contains("I tried hard but I can't forget myself"), "{said}");
    let said = server.cli(&["CLUSTER", "REPLICATE", &id]);
    assert!(said.contains("Can't replicate myself"), "{said}");
}
