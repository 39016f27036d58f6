//! A redis-server and our own store, for clients that are programs.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
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

    /// The name of a folder of its own.
    pub(super) fn folder(self, name: &str) -> String {
        format!("{}-{name}", self.name().replace(' ', "-"))
    }

    fn command(self) -> Result<Command, Failure> {
        if self == Self::Redis {
            return Ok(Command::new("redis-server"));
        }
        build_program()?;
        let mut command = our_program();
        command.arg("serve");
        Ok(command)
    }
}

/// Builds the program `tenure`.
pub(super) fn build_program() -> Result<(), Failure> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "tenure-cli", "--bin", "tenure"]);
    match build.status().is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(Failure::Failed("compat: our program does not build, see above".to_owned())),
    }
}

/// The program `tenure`, built before. On unix, cargo becomes the program that it runs, so that
/// ending one ends the other.
pub(super) fn our_program() -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "tenure-cli", "--bin", "tenure", "--"]);
    command
}

impl Server {
    /// Starts one on a free port of 127.0.0.1.
    pub(super) fn start(side: Side) -> Result<Self, Failure> {
        Self::start_with(side, "data", &[])
    }

    /// The same in a folder of this name, with more settings.
    pub(super) fn start_with(side: Side, name: &str, settings: &[&str]) -> Result<Self, Failure> {
        Self::start_at(side, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), name, settings)
    }

    /// Starts a sentinel with this file on a free port of 127.0.0.1.
    pub(super) fn start_sentinel(side: Side, file: &Path) -> Result<Self, Failure> {
        let address = free_address(side, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let mut command = side.command()?;
        command.arg(file).args(["--sentinel", "--port", &address.port().to_string()]);
        command.args(["--bind", &address.ip().to_string()]);
        Self::launch(side, command, address)
    }

    /// Starts one on the well-known port of a loopback address that nobody else uses.
    pub(super) fn start_on_well_known_port(side: Side) -> Result<Self, Failure> {
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = Ipv4Addr::new(127, 100 + side as u8, high, low.clamp(1, 254));
        Self::start_at(side, SocketAddrV4::new(host, WELL_KNOWN_PORT), "data", &[])
    }

    fn start_at(
        side: Side,
        wanted: SocketAddrV4,
        name: &str,
        settings: &[&str],
    ) -> Result<Self, Failure> {
        let address = free_address(side, wanted)?;
        // Tests save: not here.
        let folder = folder_of("data").join(side.folder(name));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| failed(side, address, &error.to_string()))?;
        let mut command = side.command()?;
        let port = address.port().to_string();
        command.args(["--port", &port, "--bind", &address.ip().to_string()]);
        command.args(["--save", "", "--enable-debug-command", "yes"]);
        command.args(["--enable-module-command", "yes", "--dir"]).arg(folder).args(settings);
        Self::launch(side, command, address)
    }

    fn launch(side: Side, mut command: Command, address: SocketAddrV4) -> Result<Self, Failure> {
        let failed = |text: String| failed(side, address, &text);
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

fn failed(side: Side, address: SocketAddrV4, text: &str) -> Failure {
    Failure::Failed(format!("compat: {} at {address}: {text}", side.name()))
}

/// This address, with a port that nobody has if it has none.
fn free_address(side: Side, wanted: SocketAddrV4) -> Result<SocketAddrV4, Failure> {
    let free = TcpListener::bind(wanted).and_then(|free| free.local_addr());
    let port = free.map_err(|error| failed(side, wanted, &error.to_string()))?.port();
    Ok(SocketAddrV4::new(*wanted.ip(), port))
}

/// What the server at an address says that its process id is.
fn process_id(address: SocketAddrV4) -> Option<u32> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(START_WITHIN)).ok()?;
    stream.write_all(b"INFO server\r\n").ok()?;
    // Sentinels know no QUIT, so nothing ends but the reply. An error has one line.
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut told = lines.take_while(|line| !line.is_empty() && !line.starts_with('-'));
    told.find_map(|line| line.strip_prefix("process_id:")?.parse().ok())
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already when this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
