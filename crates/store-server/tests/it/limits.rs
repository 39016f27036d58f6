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

/// A value that is copied for each who reads it.
fn copied_value() -> Vec<u8> {
    vec![b'x'; 30_000]
}

/// Asks for three megabytes and reads none of it.
fn greedy(server: &Server, before: &str) -> Connection {
    let mut connection = connect(server);
    if !before.is_empty() {
        assert_eq!(connection.words(before), ok());
    }
    connection.send_raw(&b"GET large\r\n".repeat(100));
    connection
}

#[test]
fn clients_that_hold_too_much_together_are_closed_the_largest_first() {
    let server = Server::builder().setting("maxmemory-clients", "2500000").start().unwrap();
    let mut modest = connect(&server);
    let large = copied_value();
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
    let large = copied_value();
    assert_eq!(modest.ask(&[&b"SET"[..], b"large", &large]).unwrap(), ok());
    assert_eq!(modest.words("CLIENT NO-EVICT on"), ok());
    let mut kept = greedy(&server, "CLIENT NO-EVICT on");
    let _other = greedy(&server, "");
    wait_until("all are there", GENEROUS, || info(&mut modest, "connected_clients") == 3);
    // The limit counts from when it is set, for those who are there already.
    assert_eq!(modest.words("CONFIG SET maxmemory 10mb maxmemory-clients 10%"), ok());
    wait_until("one is closed", GENEROUS, || info(&mut modest, "evicted_clients") == 1);
    assert_eq!(info(&mut modest, "connected_clients"), 2);
    for _ in 0..100 {
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

/// Fields of CLIENT LIST of the client with this id.
fn client_fields(connection: &mut Connection, id: i64) -> impl Fn(&str) -> i64 + use<> {
    let Reply::Bulk(text) = connection.words(&format!("CLIENT LIST ID {id}")) else {
        panic!("no text")
    };
    let text = String::from_utf8(text).unwrap();
    move |name| {
        let value = text.split([' ', '\n']).find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

fn id_of(connection: &mut Connection) -> i64 {
    let Reply::Integer(id) = connection.words("CLIENT ID") else { panic!("no id") };
    id
}

/// A server that closes nobody but for `maxmemory-clients`.
fn server_with_client_limit() -> Server {
    Server::builder()
        .setting("maxmemory-clients", "2500000")
        .setting("client-output-buffer-limit", "pubsub 0 0 0")
        .start()
        .unwrap()
}

#[test]
fn a_subscriber_that_grows_by_what_others_say_is_closed() {
    let server = server_with_client_limit();
    let (mut modest, mut subscriber) = (connect(&server), connect(&server));
    subscriber.words("SUBSCRIBE news");
    let text = vec![b'x'; 20_000];
    for _ in 0..300 {
        modest.ask(&[&b"PUBLISH"[..], b"news", &text]).unwrap();
    }
    wait_until("it is closed", GENEROUS, || info(&mut modest, "evicted_clients") == 1);
    assert_eq!(info(&mut modest, "connected_clients"), 1);
}

#[test]
fn one_that_hears_of_keys_for_another_is_closed_when_it_grows() {
    let server = server_with_client_limit();
    let (mut modest, mut heard) = (connect(&server), connect(&server));
    let id = id_of(&mut heard);
    heard.words("SUBSCRIBE __redis__:invalidate");
    assert_eq!(modest.words(&format!("CLIENT TRACKING on REDIRECT {id} BCAST")), ok());
    let key = vec![b'k'; 20_000];
    for _ in 0..300 {
        assert_eq!(modest.ask(&[&b"SET"[..], &key, b"1"]).unwrap(), ok());
    }
    wait_until("it is closed", GENEROUS, || info(&mut modest, "evicted_clients") == 1);
}

#[test]
fn prefixes_count_for_the_client_that_tracks_them() {
    let server = Server::builder().start().unwrap();
    let mut connection = connect(&server);
    let id = id_of(&mut connection);
    let before = client_fields(&mut connection, id)("tot-mem");
    let prefixes: Vec<Vec<u8>> = (0..10).map(|digit| vec![b'0' + digit; 10_000]).collect();
    let mut words: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"on", b"BCAST"];
    prefixes.iter().for_each(|prefix| words.extend([&b"PREFIX"[..], prefix]));
    assert_eq!(connection.ask(&words).unwrap(), ok());
    let after = client_fields(&mut connection, id)("tot-mem");
    assert!(after >= before + 100_000, "{before}, {after}");
}

#[test]
fn a_request_that_is_half_here_is_told_counted_and_evicts_keys() {
    let server = Server::builder().start().unwrap();
    let (mut modest, mut half) = (connect(&server), connect(&server));
    let id = id_of(&mut half);
    let value = vec![b'x'; 1 << 20];
    for key in 0..10 {
        assert_eq!(modest.ask(&[&b"SET"[..], &[b'0' + key], &value]).unwrap(), ok());
    }
    let before = info(&mut modest, "used_memory");
    half.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$15000000\r\n");
    half.send_raw(&vec![b'x'; 10 << 20]);
    wait_until("it came", GENEROUS, || client_fields(&mut modest, id)("qbuf") >= 10 << 20);
    let field = client_fields(&mut modest, id);
    assert!(field("qbuf") < 11 << 20 && field("qbuf-free") < 5 << 20);
    assert!(field("tot-mem") >= 15_000_000);
    assert!(info(&mut modest, "used_memory") >= before + 15_000_000);
    assert_eq!(modest.words("CONFIG SET maxmemory 20mb maxmemory-policy allkeys-lru"), ok());
    wait_until("keys go", GENEROUS, || info(&mut modest, "evicted_keys") >= 5);
}

#[test]
fn what_a_client_does_not_read_is_told_as_redis_tells_it() {
    let server = Server::builder().start().unwrap();
    let mut modest = connect(&server);
    assert_eq!(modest.ask(&[&b"SET"[..], b"large", &copied_value()]).unwrap(), ok());
    let mut slow = connect(&server);
    let id = id_of(&mut slow);
    slow.send_raw(&b"GET large\r\n".repeat(100));
    wait_until("it waits", GENEROUS, || client_fields(&mut modest, id)("oll") > 0);
    wait_until("all is there", GENEROUS, || client_fields(&mut modest, id)("omem") > 2_000_000);
    let field = client_fields(&mut modest, id);
    let (unread, total) = (field("omem") + field("obl"), field("tot-mem"));
    assert!(total >= unread && total < unread + 200_000, "{unread} in {total}");
    let running = id_of(&mut modest);
    let field = client_fields(&mut modest, running);
    assert!(field("qbuf") > 20 && field("argv-mem") > 10 && field("oll") == 0);
}

/// Ten who wait for one value cost as much as one; when it is removed it is theirs.
#[test]
fn slow_readers_share_a_large_value_and_hold_it_when_it_is_gone() {
    const LEN: i64 = 8 << 20;
    let server = Server::builder().start().unwrap();
    let mut modest = connect(&server);
    let value = vec![b'x'; LEN as usize];
    assert_eq!(modest.ask(&[&b"SET"[..], b"large", &value]).unwrap(), ok());
    let before = info(&mut modest, "used_memory");
    let mut readers: Vec<Connection> = (0..10).map(|_| connect(&server)).collect();
    let ids: Vec<i64> = readers.iter_mut().map(id_of).collect();
    readers.iter_mut().for_each(|reader| reader.send_raw(b"GET large\r\n"));
    wait_until("all wait", GENEROUS, || {
        ids.iter().all(|id| client_fields(&mut modest, *id)("omem") > LEN / 2)
    });
    let grown = info(&mut modest, "used_memory") - before;
    assert!(grown < LEN / 8, "{grown} bytes more");
    assert_eq!(modest.words("DEL large"), Reply::Integer(1));
    wait_until("it counts as theirs", GENEROUS, || {
        let left = info(&mut modest, "used_memory") - before;
        (-LEN / 8..LEN / 8).contains(&left)
    });
    assert_eq!(readers[0].receive(), Some(Reply::Bulk(value.clone())));
    assert_eq!(readers[9].receive(), Some(Reply::Bulk(value)));
    drop(readers);
    wait_until("it is gone", GENEROUS, || info(&mut modest, "used_memory") < before - LEN / 8 * 7);
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

/// A password that is changed on its way in locks its owner out, and lets others in.
#[test]
fn bytes_that_are_no_text_are_no_setting() {
    let server = Server::builder().start().unwrap();
    let mut connection = connect(&server);
    let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"requirepass", b"s\xffcret"];
    let Some(Reply::Error(text)) = connection.ask(&words) else { panic!("it was taken") };
    assert!(text.contains("'requirepass'") && text.contains("UTF-8"), "{text}");
    assert_eq!(connection.words("PING"), Reply::Simple("PONG".into()));
    assert_eq!(connect(&server).words("PING"), Reply::Simple("PONG".into()));
}

/// `bind ""` closes all ports; the settings remember which they were.
#[test]
fn a_server_that_stopped_listening_can_be_told_to_listen_again() {
    let server = Server::builder().any_port().start().unwrap();
    let port = server.port().unwrap();
    let mut inside = connect(&server);
    assert_eq!(inside.ask(&["CONFIG", "SET", "bind", ""]), Some(ok()));
    wait_until("the port is closed", GENEROUS, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_err()
    });
    assert_eq!(inside.words("CONFIG SET bind 127.0.0.1"), ok());
    assert_eq!(Connection::tcp(port).words("PING"), Reply::Simple("PONG".into()));
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

#[test]
fn what_a_client_can_make_large_counts() {
    const LEN: i64 = 1_000_000;
    let large = vec![b'n'; LEN as usize];
    let large = large.as_slice();
    let server = Server::builder().start().unwrap();
    let mut watcher = connect(&server);
    for words in [
        &[&b"CLIENT"[..], b"SETNAME", large][..],
        &[b"HELLO", b"2", b"SETNAME", large],
        &[b"WATCH", large],
        &[b"SUBSCRIBE", large],
        &[b"PSUBSCRIBE", large],
        &[b"SSUBSCRIBE", large],
    ] {
        let mut client = connect(&server);
        client.words("PING");
        let before = info(&mut watcher, "mem_clients_normal");
        client.ask(words).unwrap();
        let grown = info(&mut watcher, "mem_clients_normal") - before;
        assert!(grown >= LEN, "{}: {grown} bytes", words[0].escape_ascii());
    }
}

#[test]
fn a_long_name_is_limited_as_all_that_a_client_holds() {
    let server = Server::builder().setting("maxmemory-clients", "2500000").start().unwrap();
    let mut modest = connect(&server);
    let mut named = connect(&server);
    named.send(&[&b"CLIENT"[..], b"SETNAME", &[b'n'; 3_000_000]]);
    wait_until("it is closed", GENEROUS, || info(&mut modest, "evicted_clients") == 1);
}

#[test]
fn users_and_what_they_were_denied_count() {
    // A slow request is kept with the name of its client.
    let server = Server::builder().setting("slowlog-log-slower-than", "-1").start().unwrap();
    let mut connection = connect(&server);
    let before = info(&mut connection, "used_memory");
    let pattern = [b"~", [b'a'; 100_000].as_slice()].concat();
    for name in [b"u1", b"u2", b"u1"] {
        let words = [&b"ACL"[..], b"SETUSER", name, b"on", b"nopass", b"+get", &pattern];
        assert_eq!(connection.ask(&words).unwrap(), ok());
    }
    let with_users = info(&mut connection, "used_memory");
    assert!((200_000..400_000).contains(&(with_users - before)), "{before} {with_users}");
    let mut denied = connect(&server);
    denied.ask(&[&b"CLIENT"[..], b"SETNAME", &[b'n'; 500_000]]).unwrap();
    assert_eq!(denied.words("AUTH u1 x"), ok());
    assert!(matches!(denied.words("GET k"), Reply::Error(_)));
    drop(denied);
    wait_until("it is gone", GENEROUS, || info(&mut connection, "connected_clients") == 1);
    let denied = info(&mut connection, "used_memory") - with_users;
    assert!(denied >= 300_000, "{denied}");
    assert_eq!(connection.words("ACL LOG RESET"), ok());
    assert_eq!(connection.words("ACL DELUSER u1 u2"), Reply::Integer(2));
    // The session that was closed may be the last to go.
    wait_until("all is given back", GENEROUS, || {
        (info(&mut connection, "used_memory") - before).abs() < 50_000
    });
}

#[test]
fn what_waits_behind_a_request_takes_as_long_as_it_is_long() {
    let server = Server::builder().any_port().start().unwrap();
    let (mut caller, mut other) = (connect(&server), connect(&server));
    other.words("PING");
    // Each of them waits for the driver by itself, before all that follow it.
    let mut one = b"*2\r\n$8\r\nREPLCONF\r\n$1000\r\n".to_vec();
    one.extend([b'x'; 1000]);
    one.extend(b"\r\n");
    caller.send(&["BLPOP", "nothing", "0.5"]);
    caller.send_raw(&one.repeat(30_000));
    assert_eq!(caller.receive(), Some(Reply::NullArray));
    assert_eq!(other.words("PING"), Reply::Simple("PONG".into()));
}
