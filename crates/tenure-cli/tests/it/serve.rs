//! `tenure serve` as tools that start redis-server see it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{GENEROUS, Process, TempFolder, WallClock, wait_for, wait_until};

fn serve(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.current_dir(folder).arg("serve");
    command
}

/// Words for a server that listens on a unix socket of the folder only.
fn quietly(folder: &Path) -> [String; 4] {
    let socket = folder.join("store.sock").display().to_string();
    ["--port", "0", "--unixsocket", &socket].map(str::to_owned)
}

fn ask(folder: &Path, line: &str) -> String {
    let mut stream = wait_for("the server listens", GENEROUS, || {
        UnixStream::connect(folder.join("store.sock")).ok()
    });
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.strip_suffix("+OK\r\n").unwrap_or(&answer).trim().to_owned()
}

/// Starts it with these lines as its file, and returns what it says before it gives up.
fn refusal(folder: &TempFolder, lines: &str) -> String {
    let _ = folder.write("redis.conf", lines);
    let output = serve(folder.path()).arg("redis.conf").output().unwrap();
    assert!(!output.status.success(), "{lines} was taken");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_wrong_setting_stops_the_start_with_the_line_and_the_reason() {
    let folder = TempFolder::create();
    let _ = folder.write("other.conf", "# fine\nport 70000\n");
    let _ = folder.write("circle.conf", "include circle.conf\n");
    for (lines, reasons) in [
        ("port 0\nnosuch 1\n", &["redis.conf", "line 2", "'nosuch 1'", "Bad directive"][..]),
        ("port 0\nport x\n", &["line 2", "couldn't be parsed into an integer"]),
        ("port 0\ninclude other.conf\n", &["line 2", "other.conf", "between 0 and 65535"]),
        ("include nosuch.conf\n", &["line 1", "nosuch.conf", "No such file"]),
        ("include circle.conf\n", &["more than 16 files"]),
        ("port 0\nactivedefrag yes\n", &["line 2", "cannot move"]),
        ("cluster-enabled yes\nport 0\n", &["cluster-enabled needs a port"]),
        ("loadmodule x.so\n", &["line 1", "modules"]),
        ("rename-command nosuch x\n", &["line 1", "No such command"]),
        ("port 0\nsupervised upstart\n", &["upstart is not supported"]),
        ("port 0\nlogfile /nosuch/log\n", &["logfile /nosuch/log"]),
        ("port 0\ndir /nosuch\n", &["dir /nosuch"]),
        ("port 0\nserver_cpulist x\n", &["server_cpulist: 'x' is not a processor"]),
        ("port 0\ntls-port 1\ntls-key-file-pass x\n", &["tls-key-file-pass"]),
    ] {
        let text = refusal(&folder, lines);
        for reason in reasons {
            assert!(text.contains(reason), "{lines}\n{text}");
        }
    }
}

/// In the log, too, where somebody keeps one: in the background that is all there is.
#[test]
fn why_it_cannot_start_is_said_once() {
    let folder = TempFolder::create();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let start = |words: &[&str]| {
        let output = serve(folder.path()).args(["--port", &port]).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let said = start(&[]);
    assert_eq!(said.matches("cannot listen on").count(), 1, "{said}");
    assert_eq!(said.matches("Address already in use").count(), 1, "{said}");
    assert!(said.contains("end it, or choose another port"), "{said}");
    let said = start(&["--dir", "/no/such/folder"]);
    assert!(said.contains("make the folder, or name another with --dir"), "{said}");
    let said = start(&["--logfile", "log"]);
    assert_eq!(said.matches("cannot listen on").count(), 1, "{said}");
    let logged = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(logged.matches("cannot listen on").count(), 1, "{logged}");
}

#[test]
fn a_file_includes_others_and_renames_commands() {
    let folder = TempFolder::create();
    let _ = folder.write("a-1.conf", "maxclients 100\n");
    let _ = folder.write("a-2.conf", "maxclients 200\nrename-command CONFIG conf\n");
    let lines = "include a-*.conf\nrename-command FLUSHALL \"\"\n";
    let _ = folder.write("redis.conf", lines);
    let mut command = serve(folder.path());
    command.arg("redis.conf").args(quietly(folder.path()));
    let server = Process::spawn(command);
    let _ = server.next_line_with("Ready to accept connections", GENEROUS);
    assert!(ask(folder.path(), "CONF GET maxclients").ends_with("200"));
    assert!(ask(folder.path(), "CONFIG GET maxclients").starts_with("-ERR unknown command"));
    assert!(ask(folder.path(), "FLUSHALL").starts_with("-ERR unknown command"));
    assert!(ask(folder.path(), "CONF REWRITE").starts_with("+OK"));
    let rewritten = fs::read_to_string(folder.path().join("redis.conf")).unwrap();
    assert!(rewritten.starts_with(lines), "{rewritten}");
}

#[test]
fn settings_come_from_stdin_too() {
    let folder = TempFolder::create();
    let mut command = serve(folder.path());
    command.arg("-").args(quietly(folder.path())).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"maxclients 77\n").unwrap();
    assert!(ask(folder.path(), "CONFIG GET maxclients").ends_with("77"));
    ask(folder.path(), "SHUTDOWN NOSAVE");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_terminal_that_is_closed_does_not_end_it() {
    let folder = TempFolder::create();
    let mut command = serve(folder.path());
    let mut child = command.args(quietly(folder.path())).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(ask(folder.path(), "SET a 1"), "+OK");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    assert!(ask(folder.path(), "GET a").ends_with('1'));
    ask(folder.path(), "SHUTDOWN NOSAVE");
    assert!(child.wait().unwrap().success());
}

#[test]
fn it_runs_in_the_background_with_a_log_and_a_pid_file() {
    let folder = TempFolder::create();
    let mut command = serve(folder.path());
    command.args(quietly(folder.path())).args(["--daemonize", "yes", "--loglevel", "verbose"]);
    command.args(["--logfile", "store.log", "--pidfile", "store.pid"]);
    let status = command.status().unwrap();
    assert!(status.success());
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    wait_until("it is ready", GENEROUS, || {
        read("store.log").contains("Ready to accept connections")
    });
    let pid = read("store.pid");
    assert!(ask(folder.path(), "INFO server").contains(&format!("process_id:{}", pid.trim())));
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap();
    let session = stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap();
    assert_eq!(session, pid.trim(), "it has a session of its own");
    ask(folder.path(), "SHUTDOWN NOSAVE");
    wait_until("its files are gone", GENEROUS, || !folder.path().join("store.pid").exists());
    assert!(read("store.log").contains("Bye bye..."));
}

#[test]
fn less_is_logged_when_only_warnings_are_asked_for() {
    let folder = TempFolder::create();
    let mut command = serve(folder.path());
    command.args(quietly(folder.path())).args(["--loglevel", "warning", "--logfile", "log"]);
    let mut server = Process::spawn(command);
    assert!(ask(folder.path(), "PING").contains("PONG"));
    server.terminate();
    assert!(server.wait(GENEROUS).success());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert!(matches!(lines[..], [line] if line.contains("# Received SIGTERM")), "{lines:?}");
}

#[test]
fn clients_that_came_when_descriptors_ran_out_are_served_when_there_are_some_again() {
    const DESCRIPTORS: usize = 24;
    let folder = TempFolder::create();
    let mut command = serve(folder.path());
    command.args(quietly(folder.path()));
    let server = Process::spawn(command);
    let _ = server.next_line_with("Ready to accept connections", GENEROUS);
    let limit = format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}");
    let pid = server.pid().to_string();
    assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    let connect = || UnixStream::connect(folder.path().join("store.sock")).unwrap();
    let first: Vec<UnixStream> = (0..DESCRIPTORS).map(|_| connect()).collect();
    let mut late = connect();
    late.write_all(b"PING\r\n").unwrap();
    let _ = server.next_line_with("Accepting client:", GENEROUS);
    // Nobody comes meanwhile, so no event makes the server look.
    drop(first);
    late.set_read_timeout(Some(GENEROUS)).unwrap();
    let mut answer = [0; 7];
    late.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn it_serves_as_many_clients_as_there_are_descriptors() {
    let folder = TempFolder::create();
    let words = quietly(folder.path()).join(" ");
    let program = env!("CARGO_BIN_EXE_tenure");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n 100 && ulimit -Hn 100 && exec {program} serve {words}")]);
    shell.current_dir(folder.path());
    let server = Process::spawn(shell);
    let _ = server.next_line_with("Ready to accept connections", GENEROUS);
    // Whoever may raise the limit does so, and others serve fewer.
    let told = ask(folder.path(), "CONFIG GET maxclients");
    let clients_max: u64 = told.rsplit("\r\n").next().unwrap().parse().unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let allowed: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(clients_max >= 60 && clients_max + 32 <= allowed, "{clients_max} of {allowed}");
}

/// Whoever sets the clock of the machine ends no wait early, and none late.
#[test]
fn waits_last_as_long_as_they_were_asked_to_whatever_the_wall_clock_does() {
    let Some(clock) = WallClock::build() else { return };
    let folder = TempFolder::create();
    let mut command = serve(folder.path());
    command.args(quietly(folder.path())).args(["--timeout", "100"]);
    clock.govern(&mut command);
    let _server = Process::spawn(command);
    ask(folder.path(), "PING");
    let wait = |line: &str| {
        let mut stream = UnixStream::connect(folder.path().join("store.sock")).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        stream
    };
    let blocked = |count: usize| {
        let line = format!("blocked_clients:{count}");
        wait_until("so many wait", GENEROUS, || ask(folder.path(), "INFO clients").contains(&line));
    };
    let (mut short, long, mut idle) = (wait("BLPOP q 2"), wait("BLPOP q 3000"), wait("PING"));
    blocked(2);
    clock.move_by(-3600);
    let mut answer = [0; 5];
    short.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"*-1\r\n", "two seconds are over, whatever the clock says");
    clock.move_by(7200);
    for _ in 0..20 {
        // Each is a turn of the loop in which the long wait could end.
        ask(folder.path(), "PING");
    }
    blocked(1);
    idle.write_all(b"PING\r\n").unwrap();
    let mut answers = [0; 14];
    idle.read_exact(&mut answers).unwrap();
    assert_eq!(&answers, b"+PONG\r\n+PONG\r\n", "nobody has idled for long");
    drop(long);
}

/// Past `ulimit -f` a write fails as on a full disk, and the server says so.
#[test]
fn a_limit_for_files_refuses_writes_and_does_not_end_the_server() {
    let folder = TempFolder::create();
    let script = "ulimit -f 64; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.current_dir(folder.path()).args(["-c", script, env!("CARGO_BIN_EXE_tenure"), "serve"]);
    command.args(quietly(folder.path())).args(["--appendonly", "yes", "--save", ""]);
    command.stderr(Stdio::null());
    let mut server = Process::spawn(command);
    let value = "x".repeat(10_000);
    let reply = wait_for("a write is refused", GENEROUS, || {
        let reply = ask(folder.path(), &format!("APPEND k {value}"));
        reply.starts_with('-').then_some(reply)
    });
    assert!(reply.starts_with("-MISCONF") && reply.contains("File too large"), "{reply}");
    assert!(server.is_running());
    assert!(ask(folder.path(), "STRLEN k").starts_with(':'));
}
