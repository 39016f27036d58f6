//! Results that cannot be written: leading and ending go on, and the exit code says so.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::{GENEROUS, Process, wait_until};

use crate::stage::{CommandOutput, Kind, NAME, PROMPTLY, Stage, plain_command};
use crate::stderr::{full, stalled};

/// A process that ends with the test, however that ends.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Running(command.spawn().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

#[test]
fn a_sidecar_whose_stdout_nobody_reads_serves_and_ends() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = stage.command(&["sidecar", NAME, "--listen", &address, "--ttl", "1500ms"]);
    let mut sidecar = Running::start(command.stdout(writer).stderr(Stdio::null()));
    wait_until("the sidecar to serve", GENEROUS, || {
        std::net::TcpStream::connect(&address).is_ok()
            && crate::sidecar::get(&address, "/leader").starts_with("HTTP/1.1 200")
    });
    crate::stage::send(sidecar.0.id(), rustix::process::Signal::TERM);
    wait_until("the sidecar to end", GENEROUS, || sidecar.has_ended());
    assert!(!stage.key_exists(), "the term is given back");
}

#[test]
fn a_demo_whose_stdout_nobody_reads_ends() {
    let (_reader, writer) = stalled();
    let mut command = plain_command(&["demo", "--listen", "127.0.0.1:0", "--seconds", "2"]);
    let mut demo = Running::start(command.stdout(writer).stderr(Stdio::null()));
    wait_until("the demo to end", GENEROUS, || demo.has_ended());
}

#[test]
fn a_watcher_whose_stdout_nobody_reads_ends_when_asked_to() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    let mut command = stage.command(&["watch", NAME]);
    let mut watch = Running::start(command.stdout(writer).stderr(Stdio::null()));
    // It has something to say as soon as it is connected.
    wait_until("the watcher to be connected", GENEROUS, || {
        stage.store.cli(&["CLIENT", "LIST"]).lines().count() > 2
    });
    std::thread::sleep(Duration::from_secs(1));
    crate::stage::send(watch.0.id(), rustix::process::Signal::TERM);
    wait_until("the watcher to end", PROMPTLY, || watch.has_ended());
}

#[test]
fn a_watcher_ends_with_its_reader() {
    let stage = Stage::on(Kind::Own);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = stage.command(&["watch", NAME]);
    let mut watch = Running::start(command.stdout(writer));
    wait_until("the watcher to end", GENEROUS, || watch.has_ended());
    assert_eq!(watch.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_store_whose_stdout_nobody_reads_serves_and_ends() {
    let folder = testkit::TempFolder::create();
    let (_reader, writer) = stalled();
    let port = free_port().to_string();
    let mut command = plain_command(&["serve", "--port", &port]);
    command.current_dir(folder.path()).stdout(writer).stderr(Stdio::null());
    let mut store = Running::start(&mut command);
    wait_until("the store to answer", GENEROUS, || {
        let asked = Command::new("redis-cli").args(["-p", &port, "PING"]).output().unwrap();
        asked.stdout.starts_with(b"PONG")
    });
    crate::stage::send(store.0.id(), rustix::process::Signal::TERM);
    wait_until("the store to end", GENEROUS, || store.has_ended());
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let stage = Stage::on(Kind::Own);
    let commands: [&[&str]; 9] = [
        &["status", NAME, "--json"],
        &["members", NAME],
        &["history", NAME],
        &["watch", NAME],
        &["config", "check"],
        &["doctor", NAME],
        &["man"],
        &["completions", "bash"],
        &["--help"],
    ];
    for words in commands {
        let mut command = stage.command(words);
        command.stdout(full());
        let said = with_stderr(command);
        assert_eq!(said.code, 73, "{words:?}: {said:?}");
        assert!(said.err.contains("cannot write to stdout: "), "{words:?}: {said:?}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let stage = Stage::on(Kind::Own);
    for words in [&["config", "check"][..], &["man"], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = stage.command(words);
        command.stdout(writer);
        let said = with_stderr(command);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
    }
}

/// Runs it to its end with its own stdout.
fn with_stderr(mut command: Command) -> CommandOutput {
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap().trim_end().to_owned();
    CommandOutput {
        code: output.status.code().expect("it ends by itself"),
        out: String::new(),
        err,
    }
}

/// More than a pipe holds, into one that nobody is to wait for.
#[test]
fn a_pipe_that_does_not_block_gets_the_whole_result() {
    use std::io::{Read, Write};
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'x'; 32 * 1024]).unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut command = plain_command(&["completions", "bash"]);
    let mut child = Running::start(command.stdout(writer));
    drop(command);
    std::thread::sleep(Duration::from_secs(1));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    let whole = CommandOutput::of(plain_command(&["completions", "bash"])).out;
    assert!(text.len() > 64 * 1024 && text.trim_start_matches('x').trim_end() == whole);
}

/// A process whose result goes into a file is no matter for this module's queue.
#[test]
fn a_result_in_a_file_is_whole() {
    let folder = testkit::TempFolder::create();
    let path = folder.path().join("help");
    let mut command = plain_command(&["--help"]);
    assert!(command.stdout(File::create(&path).unwrap()).status().unwrap().success());
    let direct = Process::spawn(plain_command(&["--help"]));
    let first = direct.next_line(GENEROUS);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with(&first));
}
