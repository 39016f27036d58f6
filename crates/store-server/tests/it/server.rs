//! The server as a part of a program, and against clients that do harm.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use store_resp::Reply;
use store_server::Server;

use crate::connection::Connection;

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

#[test]
fn several_servers_live_in_one_process_and_share_nothing() {
    let servers = [(); 3].map(|()| Server::builder().start().unwrap());
    for (number, server) in servers.iter().enumerate() {
        let mut connection = Connection::unix(server.connect().unwrap());
        assert_eq!(connection.words(&format!("SET who {number}")), ok());
    }
    for (number, server) in servers.iter().enumerate() {
        let mut connection = Connection::unix(server.connect().unwrap());
        assert_eq!(connection.words("GET who"), Reply::Bulk(number.to_string().into_bytes()));
    }
}

#[test]
fn dropping_a_server_closes_its_clients_and_its_socket() {
    let folder = testkit::TempFolder::create();
    let path = folder.path().join("store.sock");
    let server = Server::builder().any_port().unix_socket(&path).start().unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let mut over_tcp = Connection::tcp(server.port().unwrap());
    let unix = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut over_unix = Connection::unix(unix);
    assert_eq!(over_tcp.words("PING"), Reply::Simple("PONG".into()));
    assert_eq!(over_unix.words("PING"), Reply::Simple("PONG".into()));
    drop(server);
    assert_eq!(over_tcp.receive(), None);
    assert_eq!(over_unix.receive(), None);
    assert!(!path.exists());
}

#[test]
fn a_wrong_setting_refuses_to_start() {
    let error = Server::builder().setting("port", "x").start().err().unwrap();
    assert!(error.to_string().contains("couldn't be parsed into an integer"), "{error}");
    let error = Server::builder().setting("nosuch", "x").start().err().unwrap();
    assert!(error.to_string().contains("--nosuch"), "{error}");
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let server = Server::builder().start().unwrap();
    let mut stream = server.connect().unwrap();
    let requests: Vec<u8> = (0..500)
        .flat_map(|number| {
            let text = number.to_string();
            format!("*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len()).into_bytes()
        })
        .collect();
    for piece in requests.chunks(7) {
        stream.write_all(piece).unwrap();
    }
    let mut connection = Connection::unix(stream);
    for number in 0..500 {
        let reply = connection.receive().unwrap();
        assert_eq!(reply, Reply::Bulk(number.to_string().into_bytes()));
    }
}

#[test]
fn large_values_come_back_whole() {
    let server = Server::builder().start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    for len in [0, 44, 4096, 4097, 65_536, 3_000_000] {
        let value: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let stored = connection.ask(&[&b"SET"[..], b"key", &value]).unwrap();
        assert_eq!(stored, ok());
        assert_eq!(connection.words("GET key"), Reply::Bulk(value));
    }
}

#[test]
fn many_large_replies_reach_clients_that_read_late_whole_and_in_order() {
    const LEN: usize = 5000;
    let server = Server::builder().any_port().start().unwrap();
    let mut clients = [(); 4].map(|()| Connection::tcp(server.port().unwrap()));
    let value = |number: usize| vec![b'a' + number as u8; LEN];
    for number in 0..10 {
        let stored = clients[0].ask(&[&b"SET"[..], &[b'0' + number as u8], &value(number)]);
        assert_eq!(stored, Some(ok()));
    }
    // More than the sockets between them hold, so that the server has to wait for each.
    for (first, client) in clients.iter_mut().enumerate() {
        for number in (first..10).cycle().take(2000) {
            client.send(&["GET".to_owned(), number.to_string()]);
        }
    }
    for (first, client) in clients.iter_mut().enumerate() {
        for number in (first..10).cycle().take(2000) {
            assert_eq!(client.receive(), Some(Reply::Bulk(value(number))));
        }
    }
}

fn closed_after(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect().unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn browsers_and_broken_frames_are_closed_on() {
    let server = Server::builder().start().unwrap();
    assert_eq!(closed_after(&server, b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"), "");
    assert_eq!(closed_after(&server, b"Host: x\r\n"), "");
    let text = closed_after(&server, b"*1\r\n:1\r\n");
    assert_eq!(text, "-ERR Protocol error: expected '$', got ':'\r\n");
    let text = closed_after(&server, &vec![b'x'; 70_000]);
    assert_eq!(text, "-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn without_the_password_limits_are_small() {
    let server = Server::builder().setting("requirepass", "secret").start().unwrap();
    let text = closed_after(&server, b"*11\r\n");
    assert_eq!(text, "-ERR Protocol error: unauthenticated multibulk length\r\n");
    let text = closed_after(&server, b"*2\r\n$4\r\nAUTH\r\n$16385\r\n");
    assert_eq!(text, "-ERR Protocol error: unauthenticated bulk length\r\n");

    let mut connection = Connection::unix(server.connect().unwrap());
    assert!(matches!(connection.words("GET a"), Reply::Error(text) if text.starts_with("NOAUTH")));
    assert!(
        matches!(connection.words("AUTH x"), Reply::Error(text) if text.starts_with("WRONGPASS"))
    );
    assert_eq!(connection.words("AUTH secret"), ok());
    assert_eq!(connection.words("GET a"), Reply::Null);
}

#[test]
fn a_client_that_never_reads_is_closed_at_its_limit() {
    let server =
        Server::builder().setting("client-output-buffer-limit", "normal 1mb 0 0").start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    let value = vec![b'x'; 100_000];
    connection.ask(&[&b"SET"[..], b"key", &value]).unwrap();
    let mut greedy = server.connect().unwrap();
    let request = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".repeat(100);
    greedy.write_all(&request).unwrap();
    testkit::wait_until("the greedy client is closed", testkit::GENEROUS, || {
        greedy.write_all(b"PING\r\n").is_err()
    });
    assert_eq!(connection.words("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn too_many_clients_are_told_so() {
    let server = Server::builder().any_port().setting("maxclients", "2").start().unwrap();
    let mut clients = [(); 2].map(|()| Connection::tcp(server.port().unwrap()));
    for client in &mut clients {
        assert_eq!(client.words("PING"), Reply::Simple("PONG".into()));
    }
    let mut third = Connection::tcp(server.port().unwrap());
    let refusal = Reply::Error("ERR max number of clients reached".into());
    assert_eq!(third.receive(), Some(refusal));
    assert_eq!(third.receive(), None);
}

#[test]
fn the_kernel_hears_of_oom_score_adj() {
    let score = || -> i32 {
        std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap()
    };
    let before = score();
    let server = Server::builder().start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    let mut set = |words: &[&str]| {
        let reply = connection.ask(&[&["CONFIG", "SET"], words].concat());
        assert_eq!(reply, Some(Reply::Simple("OK".into())), "{words:?}");
    };
    set(&["oom-score-adj-values", "7 200 800"]);
    assert_eq!(score(), before, "nothing is asked for yet");
    set(&["oom-score-adj", "yes"]);
    assert_eq!(score(), (before + 7).min(1000));
    set(&["oom-score-adj", "absolute", "oom-score-adj-values", "1000 1000 1000"]);
    assert_eq!(score(), 1000);
    set(&["oom-score-adj", "no"]);
    assert_eq!(score(), before);
}

#[test]
fn a_port_that_is_taken_is_refused_in_the_words_of_redis_and_explained_in_the_log() {
    let (lines, log) = std::sync::mpsc::channel();
    let server = Server::builder()
        .any_port()
        .log(move |_, line: &str| drop(lines.send(line.to_owned())))
        .start()
        .unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut connection = Connection::unix(server.connect().unwrap());
    let reply = connection.words(&format!("CONFIG SET port {port}"));
    let text = "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on \
                this port. Check server logs.";
    assert_eq!(reply, Reply::Error(text.into()));
    drop((connection, server));
    let log: Vec<String> = log.iter().collect();
    assert!(log.iter().any(|line| line.contains(&port.to_string())), "{log:?}");
}
