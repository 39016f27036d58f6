//! A redis-server and our own store, for clients that are programs.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::install::folder_of;
use crate::command::Failure;
use crate::repository::cargo;

/// Longer than a server takes to start on a busy machine, where cargo may wait for another build.
const START_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Where clients look who can be told the host but not the port.
const WELL_KNOWN_PORT: u16 = 6379;

/// A running server on loopback; it ends with its value.
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddrV4,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Redis,
    Ours,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Ours => "our store",
        }
    }

    fn command(self) -> Result<Command, Failure> {
        if self == Self::Redis {
            return Ok(Command::new("redis-server"));
        }
        let mut build = cargo();
        build.args(["build", "--quiet", "--package", "tenure-cli", "--bin", "tenure"]);
        if !build.status().is_ok_and(|status| status.success()) {
            return Err(Failure::Failed("compat: our store does not build, see above".to_owned()));
        }
        // On unix, cargo becomes the program that it runs, so that ending one ends the other.
        let mut command = cargo();
        command.args(["run", "--quiet", "--package", "tenure-cli", "--bin", "tenure", "--"]);
        command.arg("serve");
        Ok(command)
    }
}

impl Server {
    pub(super) fn redis() -> Result<Self, Failure> {
        Self::start(Side::Redis)
    }

    pub(super) fn ours() -> Result<Self, Failure> {
        Self::start(Side::Ours)
    }

    /// Starts one on a free port of 127.0.0.1.
    pub(super) fn start(side: Side) -> Result<Self, Failure> {
        Self::start_at(side, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
    }

    /// Starts one on the well-known port of a loopback address that nobody else uses.
    pub(super) fn start_on_well_known_port(side: Side) -> Result<Self, Failure> {
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = Ipv4Addr::new(127, 100 + side as u8, high, low.clamp(1, 254));
        Self::start_at(side, SocketAddrV4::new(host, WELL_KNOWN_PORT))
    }

    fn start_at(side: Side, wanted: SocketAddrV4) -> Result<Self, Failure> {
        let failed =
            |text: String| Failure::Failed(format!("compat: {} at {wanted}: {text}", side.name()));
        let free = TcpListener::bind(wanted).and_then(|free| free.local_addr());
        let port = free.map_err(|error| failed(error.to_string()))?.port();
        let address = SocketAddrV4::new(*wanted.ip(), port);
        // Tests save: not here.
        let folder = folder_of("data").join(side.name().replace(' ', "-"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| failed(error.to_string()))?;
        let mut command = side.command()?;
        command.args(["--port", &port.to_string(), "--bind", &address.ip().to_string()]);
        command.args(["--save", "", "--enable-debug-command", "yes"]);
        command.args(["--enable-module-command", "yes", "--dir"]).arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| failed(format!("cannot start it: {error}")))?;
        let mut server = Self { child, address };
        server.wait_until_ready().map_err(failed)?;
        Ok(server)
    }

    /// Its port.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Until the process that was started answers there. Another one may have taken the port, and
    /// tests empty whatever they reach.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let begun_at = Instant::now();
        loop {
            if let Some(pid) = process_id(self.address) {
                return match pid == self.child.id() {
                    true => Ok(()),
                    false => Err(format!("process {pid} answers there, which is not ours")),
                };
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended at once: {status}"));
            }
            if begun_at.elapsed() > START_WITHIN {
                return Err("it does not answer".to_owned());
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// What the server at an address says that its process id is.
fn process_id(address: SocketAddrV4) -> Option<u32> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(START_WITHIN)).ok()?;
    stream.write_all(b"INFO server\r\nQUIT\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("process_id:"))?;
    line.trim().parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already when this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
