//! Limits that settings put on clients, and what happens beyond them.

use std::io::Write;

use store_resp::Reply;
use store_server::Server;
use testkit::{GENEROUS, wait_until};

use crate::connection::Connection;

fn connect(server: &Server) -> Connection {
    Connection::unix(server.connect().unwrap())
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn info(connection: &mut Connection, name: &str) -> i64 {
    let Reply::Bulk(text) = connection.words("INFO") else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO has no {name}")).trim().parse().unwrap()
}

/// Asks for three times a megabyte and reads none of it.
fn greedy(server: &Server, before: &str) -> Connection {
    let mut connection = connect(server);
    if !before.is_empty() {
        assert_eq!(connection.words(before), ok());
    }
    connection.send_raw(&b"GET large\r\n".repeat(3));
    connection
}

#[test]
fn clients_that_hold_too_much_together_are_closed_the_largest_first() {
    let server = Server::builder().setting("maxmemory-clients", "2500000").start().unwrap();
    let mut modest = connect(&server);
    let large = vec![b'x'; 1 << 20];
    assert_eq!(modest.ask(&[&b"SET"[..], b"large", &large]).unwrap(), ok());
    let _greedy = greedy(&server, "");
    wait_until("the greedy one is closed", GENEROUS, || {
        info(&mut modest, "evicted_clients") == 1 && info(&mut modest, "connected_clients") == 1
    });

    // A request that never ends counts as well as replies that nobody reads.
    let mut endless = server.connect().unwrap();
    endless.write_all(b"*2\r\n$3\r\nGET\r\n$100000000\r\n").unwrap();
    while endless.write_all(&[b'x'; 65_536]).is_ok() {}
    wait_until("the endless one is closed", GENEROUS, || {
        info(&mut modest, "evicted_clients") == 2 && info(&mut modest, "connected_clients") == 1
    });
}

#[test]
fn a_client_that_must_not_be_evicted_stays_and_others_go_for_it() {
    let server = Server::builder().start().unwrap();
    let mut modest = connect(&server);
    let large = vec![b'x'; 1 << 20];
    assert_eq!(modest.ask(&[&b"SET"[..], b"large", &large]).unwrap(), ok());
    assert_eq!(modest.words("CLIENT NO-EVICT on"), ok());
    let mut kept = greedy(&server, "CLIENT NO-EVICT on");
    let _other = greedy(&server, "");
    wait_until("all are there", GENEROUS, || info(&mut modest, "connected_clients") == 3);
    // The limit counts from when it is set, for those who are there already.
    assert_eq!(modest.words("CONFIG SET maxmemory 10mb maxmemory-clients 10%"), ok());
    wait_until("one is closed", GENEROUS, || info(&mut modest, "evicted_clients") == 1);
    assert_eq!(info(&mut modest, "connected_clients"), 2);
    for _ in 0..3 {
        assert_eq!(kept.receive(), Some(Reply::Bulk(large.clone())));
    }
}

#[test]
fn too_much_unread_output_for_too_long_closes_a_client_that_does_nothing() {
    let limit = "normal 0 100kb 1";
    let server = Server::builder().setting("client-output-buffer-limit", limit).start().unwrap();
    let mut modest = connect(&server);
    let large = vec![b'x'; 1 << 20];
    assert_eq!(modest.ask(&[&b"SET"[..], b"large", &large]).unwrap(), ok());
    let _greedy = greedy(&server, "");
    wait_until("it is there", GENEROUS, || info(&mut modest, "connected_clients") == 2);
    wait_until("it is closed", GENEROUS, || info(&mut modest, "connected_clients") == 1);
}

#[test]
fn an_idle_client_is_closed_and_one_that_waits_is_not() {
    let server = Server::builder().setting("timeout", "1").start().unwrap();
    let (mut idle, mut waiting, mut subscribed) =
        (connect(&server), connect(&server), connect(&server));
    assert_eq!(idle.words("PING"), Reply::Simple("PONG".into()));
    waiting.send(&["BLPOP", "list", "0"]);
    subscribed.words("SUBSCRIBE channel");
    assert_eq!(idle.receive(), None);
    let mut modest = connect(&server);
    assert_eq!(info(&mut modest, "connected_clients"), 3);
}

#[test]
fn more_clients_than_descriptors_cannot_be_asked_for() {
    let server = Server::builder().start().unwrap();
    let mut connection = connect(&server);
    let reply = connection.words("CONFIG SET maxclients 4000000000");
    let Reply::Error(text) = reply else { panic!("{reply:?}") };
    assert!(text.contains("'maxclients'") && text.contains("try with"), "{text}");
}

#[test]
fn ports_change_while_the_server_runs() {
    let server = Server::builder().any_port().start().unwrap();
    let mut connection = Connection::tcp(server.port().unwrap());
    let other = Server::builder().any_port().start().unwrap();
    let taken = other.port().unwrap();
    let Reply::Error(text) = connection.words(&format!("CONFIG SET port {taken}")) else {
        panic!("a port that is taken was taken");
    };
    assert!(text.contains("'port'") && text.contains("Unable to listen"), "{text}");
    drop(other);
    assert_eq!(connection.words(&format!("CONFIG SET port {taken}")), ok());
    assert_eq!(Connection::tcp(taken).words("PING"), Reply::Simple("PONG".into()));
    assert_eq!(info(&mut connection, "tcp_port"), i64::from(taken));
    wait_until("the old port is closed", GENEROUS, || {
        std::net::TcpStream::connect(("127.0.0.1", server.port().unwrap())).is_err()
    });
    let Reply::Error(text) = connection.words("CONFIG SET bind 192.0.2.1") else {
        panic!("an address of somebody else was taken");
    };
    assert!(text.contains("'bind'"), "{text}");
    assert_eq!(Connection::tcp(taken).words("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn a_server_that_listens_nowhere_cannot_be_told_to_listen() {
    let server = Server::builder().start().unwrap();
    let reply = connect(&server).words("CONFIG SET port 7777");
    assert!(matches!(&reply, Reply::Error(text) if text.contains("listens nowhere")), "{reply:?}");
}

/// Nobody who can log in is kept out by others who never say a word.
#[test]
fn silent_connections_make_room_for_those_who_log_in() {
    // Both ends of all connections are in this process.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    for maxclients in ["4000", "300"] {
        let server = Server::builder()
            .setting("requirepass", "secret")
            .setting("maxclients", maxclients)
            .any_port()
            .start()
            .unwrap();
        let address = ("127.0.0.1", server.port().unwrap());
        let mut silent = Vec::new();
        for _ in 0..1100 {
            silent.push(std::net::TcpStream::connect(address).unwrap());
        }
        let mut honest = Connection::tcp(address.1);
        assert_eq!(honest.words("AUTH secret"), ok(), "maxclients {maxclients}");
        // Once in, nobody pushes it out.
        for _ in 0..1100 {
            silent.push(std::net::TcpStream::connect(address).unwrap());
        }
        assert_eq!(honest.words("PING"), Reply::Simple("PONG".into()));
    }
}
