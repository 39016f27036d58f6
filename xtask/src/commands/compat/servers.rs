//! A redis-server and our own store, for clients that are programs.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::Failure;
use crate::repository::cargo;

/// Longer than a server takes to start on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running server on loopback; it ends with its value.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

impl Server {
    pub(super) fn redis() -> Result<Self, Failure> {
        Self::start("redis-server", Command::new("redis-server"), &[])
    }

    pub(super) fn ours() -> Result<Self, Failure> {
        let mut build = cargo();
        build.args(["build", "--quiet", "--package", "tenure-cli", "--bin", "tenure"]);
        if !build.status().is_ok_and(|status| status.success()) {
            return Err(Failure::Failed("compat: our store does not build, see above".to_owned()));
        }
        // On unix, cargo becomes the program that it runs, so that ending one ends the other.
        let mut command = cargo();
        command.args(["run", "--quiet", "--package", "tenure-cli", "--bin", "tenure", "--"]);
        Self::start("our store", command, &["serve"])
    }

    fn start(name: &str, mut command: Command, words: &[&str]) -> Result<Self, Failure> {
        let failed = |text: String| Failure::Failed(format!("compat: {name}: {text}"));
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let port =
            free.and_then(|free| free.local_addr()).map_err(|e| failed(e.to_string()))?.port();
        command.args(words).args(["--port", &port.to_string(), "--save", ""]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| failed(format!("cannot start it: {error}")))?;
        let mut server = Self { child, port };
        let begun_at = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(failed(format!("it ended at once: {status}")));
            }
            if begun_at.elapsed() > START_WITHIN {
                return Err(failed("it does not answer".to_owned()));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already when this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
