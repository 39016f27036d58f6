//! What services tell systemd: a socket of the test stands in for it, as it is all that they see.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{GENEROUS, Process, RedisServer, TempFolder};

use crate::stage::plain_command;

/// What systemd waits for between two signs of life. It does so for as long as the loop of a
/// service may take on a machine with much to do.
const WATCHDOG: Duration = Duration::from_millis(500);

/// The end at which systemd listens.
struct Listener {
    socket: UnixDatagram,
    /// What it puts into `NOTIFY_SOCKET`.
    place: String,
}

impl Listener {
    fn in_folder(folder: &TempFolder) -> Self {
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self::of(socket, path.display().to_string())
    }

    /// A name that is in no folder, as in systemd's containers.
    fn abstract_one() -> Self {
        let name = format!("tenure-test-{}-notify", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self::of(UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
    }

    fn of(socket: UnixDatagram, place: String) -> Self {
        socket.set_read_timeout(Some(GENEROUS)).unwrap();
        Listener { socket, place }
    }

    fn start(&self, mut command: Command) -> Process {
        command.env("NOTIFY_SOCKET", &self.place);
        command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        Process::spawn(command)
    }

    fn next(&self) -> String {
        let mut words = [0; 500];
        let count = self.socket.recv(&mut words).expect("something is told in time");
        String::from_utf8_lossy(&words[..count]).into_owned()
    }

    /// The next word that is no sign of life.
    fn next_change(&self) -> String {
        loop {
            let words = self.next();
            if words != "WATCHDOG=1\n" {
                return words;
            }
        }
    }

    /// Waits for this many signs of life, and returns how long the longest wait for one was.
    fn longest_wait_of(&self, count: usize) -> Duration {
        let waits = (0..count).map(|_| {
            let waited_from = Instant::now();
            assert_eq!(self.next(), "WATCHDOG=1\n");
            waited_from.elapsed()
        });
        waits.max().unwrap()
    }
}

#[test]
fn a_sidecar_is_ready_alive_and_stopping() {
    let (server, folder) = (RedisServer::start(), TempFolder::create());
    for systemd in [Listener::in_folder(&folder), Listener::abstract_one()] {
        let words = ["sidecar", "report", "--store", &server.url(), "--listen", "127.0.0.1:0"];
        let mut sidecar = systemd.start(plain_command(&words));
        let first = systemd.next();
        assert!(first.starts_with("READY=1\nSTATUS=serving report at http://127"), "{first}");
        systemd.longest_wait_of(3);
        sidecar.terminate();
        assert!(systemd.next_change().starts_with("STOPPING=1\n"));
        assert!(sidecar.wait(GENEROUS).success());
    }
}

/// Nobody says that a service is alive which is not.
#[test]
fn a_sidecar_that_stands_still_gives_no_sign_of_life() {
    let (server, folder) = (RedisServer::start(), TempFolder::create());
    let systemd = Listener::in_folder(&folder);
    let words = ["sidecar", "report", "--store", &server.url(), "--listen", "127.0.0.1:0"];
    let mut sidecar = systemd.start(plain_command(&words));
    assert!(systemd.next().starts_with("READY=1"));
    sidecar.pause();
    // What was told before waits to be read.
    systemd.socket.set_nonblocking(true).unwrap();
    while systemd.socket.recv(&mut [0; 500]).is_ok() {}
    systemd.socket.set_nonblocking(false).unwrap();
    systemd.socket.set_read_timeout(Some(4 * WATCHDOG)).unwrap();
    assert!(systemd.socket.recv(&mut [0; 500]).is_err(), "it stands still");
    sidecar.resume();
    systemd.socket.set_read_timeout(Some(GENEROUS)).unwrap();
    systemd.longest_wait_of(1);
}

/// A store in a folder of its own, which systemd has started.
fn store(systemd: &Listener, folder: &TempFolder, more: &[&str]) -> Process {
    let mut command = plain_command(&["serve", "--port", "0", "--unixsocket", "store.sock"]);
    command.args(["--supervised", "systemd", "--daemonize", "yes"]).args(more);
    command.current_dir(folder.path());
    systemd.start(command)
}

fn ask(folder: &TempFolder, words: &[&str]) -> std::process::Child {
    let mut command = Command::new("redis-cli");
    command.arg("-s").arg(folder.path().join("store.sock")).args(words);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.spawn().expect("redis-cli is there: see CONTRIBUTING.md")
}

#[test]
fn a_store_is_alive_while_a_script_is_busy_and_not_while_a_command_holds_it_up() {
    let folder = TempFolder::create();
    let systemd = Listener::in_folder(&folder);
    let words = ["--busy-reply-threshold", "50", "--enable-debug-command", "yes"];
    let mut store = store(&systemd, &folder, &words);
    assert!(systemd.next().starts_with("READY=1\nSTATUS=Ready to accept connections"));
    systemd.longest_wait_of(3);

    let mut script = ask(&folder, &["EVAL", "while true do end", "0"]);
    // Others are answered with BUSY meanwhile: it is alive, and may be told to end the script.
    systemd.longest_wait_of(12);
    assert!(ask(&folder, &["SCRIPT", "KILL"]).wait().unwrap().success());
    script.wait().unwrap();

    let held_up = Duration::from_secs(3);
    let mut debug = ask(&folder, &["DEBUG", "SLEEP", "3"]);
    let mut longest = Duration::ZERO;
    while longest < held_up / 2 {
        longest = longest.max(systemd.longest_wait_of(1));
        let is_over = debug.try_wait().unwrap().is_some();
        assert!(!is_over || longest >= held_up / 2, "signs of life all the time: {longest:?}");
    }
    debug.wait().unwrap();
    store.terminate();
    assert!(systemd.next_change().starts_with("STOPPING=1\n"));
    assert!(store.wait(GENEROUS).success());
}

#[test]
fn a_sentinel_is_ready_alive_and_stopping() {
    let folder = TempFolder::create();
    let systemd = Listener::in_folder(&folder);
    let primary = RedisServer::start();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, watched) = (format!("port {free}"), primary.port());
    let text = format!("{port}\nsentinel monitor main 127.0.0.1 {watched} 2\n");
    let _ = folder.write("sentinel.conf", &text);
    let mut command = plain_command(&["serve", "--sentinel", "sentinel.conf"]);
    command.args(["--supervised", "systemd"]).current_dir(folder.path());
    let mut sentinel = systemd.start(command);
    assert!(systemd.next().starts_with("READY=1"));
    systemd.longest_wait_of(3);
    sentinel.terminate();
    assert!(systemd.next_change().starts_with("STOPPING=1\n"));
    assert!(sentinel.wait(GENEROUS).success());
}

/// What cannot be told is no reason not to serve.
#[test]
fn a_manager_that_cannot_be_told_is_named_in_the_log() {
    let folder = TempFolder::create();
    let systemd = Listener { place: "vsock:2:1".to_owned(), ..Listener::in_folder(&folder) };
    let store = store(&systemd, &folder, &[]);
    store.next_line_with("Cannot tell systemd: NOTIFY_SOCKET=vsock:2:1: neither", GENEROUS);
}
