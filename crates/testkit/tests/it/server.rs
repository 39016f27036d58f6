//! Starting, faulting and ending real servers.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use testkit::{GENEROUS, RedisServer, ServerProgram, TempFolder, wait_until};

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Sends PING and returns the reply, or `None` when none comes within a moment.
fn ping(port: u16, patience: Duration) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(patience)).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).ok()?;
    Some(String::from_utf8_lossy(&reply).into_owned())
}

#[test]
fn a_server_answers_and_is_gone_when_dropped() {
    let server = RedisServer::start();
    let (pid, port, folder) = (server.pid(), server.port(), server.folder().to_owned());
    assert_eq!(server.cli(&["SET", "key", "value"]), "OK");
    assert_eq!(server.cli(&["GET", "key"]), "value");
    assert_eq!(server.url(), format!("redis://127.0.0.1:{port}"));
    assert_eq!(server.cli(&["CONFIG", "GET", "save"]), "save\n");

    drop(server);

    assert!(!exists(pid));
    assert!(!folder.exists());
    assert_eq!(ping(port, GENEROUS), None);
}

#[test]
fn a_server_ends_when_its_test_panics() {
    let outcome = thread::spawn(|| {
        let server = RedisServer::start();
        let pid = server.pid();
        std::panic::panic_any(pid);
    })
    .join();
    let pid = *outcome.unwrap_err().downcast::<u32>().unwrap();
    assert!(!exists(pid));
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = thread::spawn(RedisServer::start).join().unwrap();
    assert_eq!(server.cli(&["PING"]), "PONG");
}

#[test]
fn servers_started_in_parallel_have_ports_of_their_own() {
    let starts: Vec<_> = (0..8).map(|_| thread::spawn(RedisServer::start)).collect();
    let servers: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
    let ports: HashSet<_> = servers.iter().map(RedisServer::port).collect();
    assert_eq!(ports.len(), servers.len());
    for server in &servers {
        let answered_by = server.cli(&["INFO", "server"]);
        assert!(answered_by.contains(&format!("process_id:{}", server.pid())), "{answered_by}");
    }
}

#[test]
fn a_paused_server_is_silent_until_resumed() {
    let mut server = RedisServer::start();
    server.pause();
    assert_eq!(ping(server.port(), Duration::from_millis(50)), None);
    server.resume();
    assert_eq!(ping(server.port(), GENEROUS).unwrap(), "+PONG\r\n");
}

#[test]
fn a_paused_server_can_be_killed_and_dropped() {
    let mut server = RedisServer::start();
    server.pause();
    server.kill();
    assert_eq!(ping(server.port(), GENEROUS), None);
    server.kill();

    let mut other = RedisServer::start();
    other.pause();
    let pid = other.pid();
    drop(other);
    assert!(!exists(pid));
}

#[test]
fn a_restarted_server_is_empty_and_on_the_same_port() {
    let mut server = RedisServer::start();
    let (port, pid) = (server.port(), server.pid());
    server.cli(&["SET", "key", "value"]);

    server.restart();

    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.cli(&["DBSIZE"]), "0");
}

#[test]
fn a_server_comes_back_while_clients_keep_knocking() {
    let mut server = RedisServer::start();
    let port = server.port();
    server.kill();
    let knocking = thread::spawn(move || {
        wait_until("an answer", GENEROUS, || ping(port, Duration::from_millis(200)).is_some());
    });
    thread::sleep(Duration::from_millis(100));
    server.restart();
    knocking.join().unwrap();
}

#[test]
fn a_password_is_asked_for_and_given() {
    let server = RedisServer::builder().password("s3cret/word").start();
    assert_eq!(server.url(), format!("redis://:s3cret%2Fword@127.0.0.1:{}", server.port()));
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert!(ping(server.port(), GENEROUS).unwrap().starts_with("-NOAUTH"));
    assert!(server.monitor().lines().is_empty());
}

#[test]
fn users_come_from_the_acl_lines() {
    let server = RedisServer::builder()
        .acl("user default off\nuser admin on >secret allkeys allchannels allcommands\n")
        .login("admin", "secret")
        .start();
    assert_eq!(server.cli(&["ACL", "WHOAMI"]), "admin");
    assert_eq!(server.url(), format!("redis://admin:secret@127.0.0.1:{}", server.port()));
}

#[test]
fn a_small_server_runs_out_of_memory() {
    let server = RedisServer::builder().max_memory(1).start();
    assert!(server.cli(&["SET", "key", "value"]).starts_with("OOM"));
}

#[test]
fn a_unix_socket_is_there_when_asked_for() {
    let server = RedisServer::builder().with_unix_socket().start();
    let mut stream = UnixStream::connect(server.unix_socket()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn a_monitor_tells_requests_from_what_scripts_called() {
    let server = RedisServer::start();
    server.cli(&["SET", "before", "1"]);
    let monitor = server.monitor();
    server.cli(&["EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", "inner"]);

    let calls: Vec<_> = monitor.lines().into_iter().filter(|line| line.from_script).collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].words, r#""SET" "inner" "x""#);
    let requests = monitor.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(requests[0].words.starts_with(r#""EVAL""#));

    monitor.clear();
    assert!(monitor.lines().is_empty());
}

#[test]
fn a_server_that_does_not_start_shows_what_it_wrote() {
    let outcome = thread::spawn(|| {
        let _ = RedisServer::builder().args(["--no-such-setting", "1"]).start();
    })
    .join();
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("did not start"), "{message}");
}

#[test]
fn another_program_can_be_started_in_its_place() {
    let folder = TempFolder::create();
    let script = folder.write("wrapper", "echo got $1; shift; exec redis-server \"$@\"");
    let program = ServerProgram::new("sh").arg(script).arg("serve");

    let server = RedisServer::builder().program(program).start();

    assert_eq!(server.log()[0], "got serve");
    assert_eq!(server.cli(&["PING"]), "PONG");
}

/// Our own store says so on standard error, and a node of a cluster has a second port that may be
/// taken.
#[test]
fn a_server_whose_port_was_taken_gets_another_wherever_it_says_so() {
    let folder = TempFolder::create();
    let script = folder.write(
        "server.sh",
        "if mkdir \"$0.tried\" 2> /dev/null; then\n\
         echo 'cannot listen: Address already in use (os error 98)' >&2; exit 1\nfi\n\
         echo Ready to accept connections; exec sleep 600\n",
    );
    let program = ServerProgram::new("sh").arg(&script);
    let server = RedisServer::builder().program(program).start();
    assert!(exists(server.pid()));
    assert!(script.with_extension("sh.tried").exists(), "the first one failed");
}
