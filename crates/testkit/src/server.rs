//! A real Redis server of the test's own.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Instant;

use crate::child::GuardedChild;
use crate::folder::TempFolder;
use crate::lines::Lines;
use crate::monitor::Monitor;
use crate::port::ReservedPort;
use crate::{GENEROUS, Host, Process, WallClock, wait_for};

/// A strange program may take the port between our look and the server's start. That this happens
/// so many times in a row is not chance.
const START_TRIES_MAX: usize = 20;

/// How long replicas that are asked whether they are in step may take to say so.
const IN_STEP_WITHIN_MS: &str = "500";

/// A server on loopback that keeps nothing on disk. It ends when the value is dropped.
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisServerBuilder,
    folder: TempFolder,
    port: ReservedPort,
    running: Running,
}

#[derive(Debug)]
struct Running {
    child: GuardedChild,
    log: Lines,
    /// Read for as long as the server runs, so that it never waits for a reader.
    _errors: Lines,
}

impl RedisServer {
    /// Starts a server with nothing special about it.
    ///
    /// # Panics
    /// When the program is missing or does not start; the message shows what it wrote.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// What kind of server to start.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The address as clients take it, with user and password when there are any.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The address with another port, for a proxy in front of this server.
    #[must_use]
    pub fn url_at(&self, port: u16) -> String {
        let login = match &self.settings.login {
            Some(Login { user, password }) => {
                let user = user.as_deref().map(percent_encoded).unwrap_or_default();
                format!("{user}:{}@", percent_encoded(password))
            }
            None => String::new(),
        };
        format!("redis://{login}{}:{port}", self.settings.host.address())
    }

    /// The address of its host, as other servers are told it.
    #[must_use]
    pub fn host(&self) -> String {
        self.settings.host.address().to_string()
    }

    /// Host and port in one word.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host(), self.port())
    }

    /// The TCP port on 127.0.0.1. It stays this server's own through stops and restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port on which it speaks TLS.
    ///
    /// # Panics
    /// When none was asked for.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        let port = self.settings.tls_port.as_ref();
        port.expect("ask for a port that speaks TLS with tls()").number()
    }

    /// The process id; another one after [`restart`](Self::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.child.pid()
    }

    /// The folder in which the server runs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The unix socket.
    ///
    /// # Panics
    /// When none was asked for.
    #[must_use]
    pub fn unix_socket(&self) -> PathBuf {
        assert!(self.settings.unix_socket, "ask for a unix socket with with_unix_socket()");
        unix_socket_in(&self.folder)
    }

    /// What the server wrote since its last start.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.running.log.snapshot()
    }

    /// Stops the server as SIGSTOP does: connections stay open, nothing answers. When this returns,
    /// it no longer runs.
    ///
    /// # Panics
    /// When it has ended.
    pub fn pause(&mut self) {
        self.running.child.pause();
    }

    /// Lets a stopped server run on, as SIGCONT does.
    ///
    /// # Panics
    /// When it has ended.
    pub fn resume(&mut self) {
        self.running.child.resume();
    }

    /// Ends the server as SIGKILL does; connections are reset, its port refuses. When this returns,
    /// it is gone. Harmless when it has ended before.
    pub fn kill(&mut self) {
        self.running.child.kill();
    }

    /// Ends the server as SIGTERM does, and waits for its end.
    ///
    /// # Panics
    /// When it has ended before, or takes far too long.
    pub fn terminate(&mut self) {
        self.running.child.signal(rustix::process::Signal::TERM);
        self.running.child.wait(GENEROUS);
    }

    /// Ends the server, if it runs, and starts it again on the same port, with what it has kept:
    /// nothing, unless its arguments say otherwise.
    ///
    /// # Panics
    /// When it does not start again.
    pub fn restart(&mut self) {
        self.kill();
        // The port is ours among tests, but a connection of the old server may linger on it.
        let port = self.port();
        self.running = wait_for("the server's port to be free again", GENEROUS, || {
            self.settings.try_start(&self.folder, port)
        });
    }

    /// Ends the server, if it runs, and starts it again, empty, with these arguments in addition to
    /// its own, for example `["--replicaof", "127.0.0.1", "7000"]`. They last until the next one.
    ///
    /// # Panics
    /// When it does not start again.
    pub fn restart_with<A: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = A>) {
        let settings = self.settings.clone();
        self.settings = settings.clone().args(arguments);
        self.restart();
        self.settings = settings;
    }

    /// Runs `redis-cli` with these words and returns what it printed, without the last line break.
    /// An error reply is returned as its text.
    ///
    /// # Panics
    /// When the server cannot be reached or does not answer.
    #[track_caller]
    pub fn cli(&self, words: &[&str]) -> String {
        let login = self.settings.login.as_ref();
        let user = login.and_then(|login| login.user.as_deref());
        let password = login.map(|login| login.password.as_str());
        redis_cli(&self.settings.host, self.port(), user, password, words)
    }

    /// What ROLE says. `None` as from [`try_cli`](Self::try_cli).
    #[must_use]
    pub fn role(&self) -> Option<String> {
        self.try_cli(&["ROLE"])
    }

    /// The same as [`cli`](Self::cli). `None` while the server drops its clients, as one does that
    /// a sentinel gives another role.
    #[must_use]
    pub fn try_cli(&self, words: &[&str]) -> Option<String> {
        let mut command = Command::new("redis-cli");
        self.settings.host.enter(&mut command);
        command.args(["-h", "127.0.0.1", "-p", &self.port().to_string()]);
        if let Some(login) = &self.settings.login {
            command.env("REDISCLI_AUTH", &login.password);
            login.user.iter().for_each(|user| _ = command.args(["--user", user]));
        }
        command.arg("--no-auth-warning").args(words).stdin(Stdio::null());
        let (status, output) = run(command);
        status.success().then_some(output)
    }

    /// The same without a login, and with `yes` to whatever `redis-cli` asks.
    #[track_caller]
    pub(crate) fn cli_agreeing(&self, words: &[&str]) -> String {
        redis_cli_agreeing(&self.settings.host, self.port(), words)
    }

    /// Whether so many replicas have everything that this master has sent by now. Waits a little
    /// for them. False, too, while the server drops its clients.
    #[must_use]
    pub fn has_replicas_in_step(&self, count: usize) -> bool {
        // WAIT is about what was sent up to the request before it on the line: here the greeting
        // of RESP3. On a line without any, it counts replicas that lag as well.
        let words = ["-3", "WAIT", &count.to_string(), IN_STEP_WITHIN_MS];
        let in_step = self.try_cli(&words).and_then(|answer| answer.parse::<usize>().ok());
        in_step.is_some_and(|in_step| in_step >= count)
    }

    /// Collects what clients ask this server from now on.
    ///
    /// # Panics
    /// When the server cannot be reached or its user may not monitor.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        let login = self.settings.login.as_ref().map(Login::words);
        Monitor::start(self.port(), login.as_deref())
    }
}

/// Runs `redis-cli` on a host, for a port of its loopback.
#[track_caller]
pub(crate) fn redis_cli(
    host: &Host,
    port: u16,
    user: Option<&str>,
    password: Option<&str>,
    words: &[&str],
) -> String {
    let mut command = Command::new("redis-cli");
    host.enter(&mut command);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    if let Some(password) = password {
        // By environment, so that a password's canary never stands in a process list.
        command.env("REDISCLI_AUTH", password);
    }
    if let Some(user) = user {
        command.args(["--user", user]);
    }
    command.arg("--no-auth-warning").args(words).stdin(Stdio::null());
    output_of(command, words)
}

/// The same without a login, and with `yes` to whatever it asks. How it ended says little: a node
/// that is gone makes a fix fail that succeeded.
#[track_caller]
fn redis_cli_agreeing(host: &Host, port: u16, words: &[&str]) -> String {
    let mut command = Command::new("sh");
    host.enter(&mut command);
    command.args(["-c", "yes yes | redis-cli \"$@\"; true", "redis-cli", "-h", "127.0.0.1"]);
    command.args(["-p", &port.to_string()]).args(words).stdin(Stdio::null());
    output_of(command, words)
}

#[track_caller]
fn output_of(command: Command, words: &[&str]) -> String {
    let (status, output) = run(command);
    assert!(status.success(), "redis-cli {} failed: {status}\n{output}", words.join(" "));
    output
}

/// How a program ended, and what it wrote.
fn run(command: Command) -> (ExitStatus, String) {
    let mut process = Process::spawn(command);
    let mut output = Vec::new();
    let deadline = Instant::now() + GENEROUS;
    while let Some(line) = process.try_next_line(deadline.saturating_duration_since(Instant::now()))
    {
        output.push(line);
    }
    (process.wait(GENEROUS), output.join("\n"))
}

/// What kind of server to start. Each method returns the changed wish; [`start`](Self::start) ends.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RedisServerBuilder {
    program: ServerProgram,
    host: Host,
    environment: Vec<(OsString, OsString)>,
    arguments: Vec<OsString>,
    unix_socket: bool,
    acl: Option<String>,
    login: Option<Login>,
    tls_port: Option<Arc<ReservedPort>>,
}

#[derive(Debug, Clone)]
struct Login {
    user: Option<String>,
    password: String,
}

impl Login {
    fn words(&self) -> Vec<String> {
        let user = self.user.clone().unwrap_or_else(|| "default".into());
        vec!["AUTH".into(), user, self.password.clone()]
    }
}

impl RedisServerBuilder {
    /// Starts this program instead of the one that [`ServerProgram::default`] names.
    pub fn program(mut self, program: ServerProgram) -> Self {
        self.program = program;
        self
    }

    /// Starts it on this host instead of loopback.
    pub fn on(mut self, host: &Host) -> Self {
        self.host = host.clone();
        self
    }

    /// Puts it under this wall clock.
    pub fn under(mut self, clock: &WallClock) -> Self {
        self.environment.extend(clock.environment());
        self
    }

    /// A server that has replicas or is one. One that lost its master looks for it again at once,
    /// and is not kept waiting for others that might come as well.
    pub(crate) fn replicated(self) -> Self {
        self.args([
            "--repl-ping-replica-period",
            "1",
            "--repl-diskless-sync-delay",
            "0",
            // What a replica once got would be there after a restart, and with keys of a slot that
            // has moved since, a cluster's node would import that slot for ever.
            "--rdb-del-sync-files",
            "yes",
        ])
    }

    /// Adds arguments, for example `["--maxclients", "10"]`. They come last, so they win.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Listens on a unix socket, too: see [`RedisServer::unix_socket`].
    pub fn with_unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Asks clients for this password; `url`, `cli` and `monitor` give it.
    pub fn password(self, password: &str) -> Self {
        let login = Login { user: None, password: password.into() };
        Self { login: Some(login), ..self }.args(["--requirepass", password])
    }

    /// Starts with these lines of an ACL file, for example
    /// `user default off` and `user admin on >secret allcommands allkeys allchannels`.
    pub fn acl(mut self, lines: &str) -> Self {
        self.acl = Some(lines.into());
        self
    }

    /// The user as whom `url`, `cli` and `monitor` log in, for servers with an ACL.
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.login = Some(Login { user: Some(user.into()), password: password.into() });
        self
    }

    /// Speaks TLS on a second port, [`RedisServer::tls_port`], with these settings: see
    /// [`Certificates::settings`](crate::Certificates::settings).
    pub fn tls(mut self, settings: [(&'static str, String); 4]) -> Self {
        let port = Arc::new(ReservedPort::reserve());
        let number = port.number().to_string();
        self.tls_port = Some(port);
        let settings = settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
        self.args(["--tls-port".into(), number].into_iter().chain(settings))
    }

    /// Gives the server this much memory for data.
    pub fn max_memory(self, bytes: u64) -> Self {
        self.args(["--maxmemory", &bytes.to_string()])
    }

    /// Starts the server and returns once it accepts connections.
    ///
    /// # Panics
    /// When the program is missing or does not start; the message shows what it wrote.
    #[must_use]
    pub fn start(self) -> RedisServer {
        let folder = TempFolder::create();
        for _ in 0..START_TRIES_MAX {
            let port = ReservedPort::reserve();
            if let Some(running) = self.try_start(&folder, port.number()) {
                return RedisServer { settings: self, folder, port, running };
            }
        }
        panic!("{START_TRIES_MAX} ports in a row were taken by other programs");
    }

    /// `None` when another program has the port.
    fn try_start(&self, folder: &TempFolder, port: u16) -> Option<Running> {
        let program = self.program.path.display();
        let mut child = GuardedChild::spawn(self.command(folder, port)).unwrap_or_else(|error| {
            panic!(
                "cannot start {program}: {error}. Install it (Debian: apt-get install redis-server)"
            )
        });
        let stdout = child.inner().stdout.take().expect("standard output is a pipe");
        let stderr = child.inner().stderr.take().expect("standard error is a pipe");
        let (log, errors) = (Lines::collect(stdout), Lines::collect(Echo(stderr)));
        // The server's own word, rather than an answer on the port: there, another server could
        // answer for one that has just failed to start.
        let ready =
            log.find(GENEROUS, |line| line.to_lowercase().contains("ready to accept connections"));
        if ready.is_some() {
            return Some(Running { child, log, _errors: errors });
        }
        child.kill();
        let is_taken = |line: &str| line.to_lowercase().contains("address already in use");
        // Programs differ in where they say why they do not start.
        let taken = log.snapshot().iter().any(|line| is_taken(line))
            || errors.find(GENEROUS, is_taken).is_some();
        let log = [log.snapshot(), errors.snapshot()].concat();
        assert!(taken, "{program} did not start. It wrote:\n{}", log.join("\n"));
        None
    }

    fn command(&self, folder: &TempFolder, port: u16) -> Command {
        let mut command = self.program.command();
        self.host.enter(&mut command);
        command.envs(self.environment.iter().cloned());
        command.args(["--port", &port.to_string(), "--bind"]);
        let addresses = self.host.listens_on();
        command.args(addresses.iter().map(ToString::to_string));
        if addresses.len() > 1 {
            // Nobody but this test is on its network.
            command.args(["--protected-mode", "no"]);
        }
        command.args(["--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(folder.path());
        if self.unix_socket {
            command.arg("--unixsocket").arg(unix_socket_in(folder));
        }
        if let Some(lines) = &self.acl {
            command.arg("--aclfile").arg(folder.write("users.acl", lines));
        }
        command.args(&self.arguments);
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Shows what passes through on standard error, as if the server wrote there itself.
struct Echo<R>(R);

impl<R: Read> Read for Echo<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(buffer)?;
        // Nobody may be there to see it.
        let _ = io::stderr().write_all(&buffer[..len]);
        Ok(len)
    }
}

fn unix_socket_in(folder: &TempFolder) -> PathBuf {
    folder.path().join("redis.sock")
}

/// The program that is started as a server. It must take `--name value` arguments as `redis-server`
/// does, and write "Ready to accept connections" to its standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerProgram {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl ServerProgram {
    /// The real thing.
    pub(crate) const REDIS: &str = "redis-server";

    /// The environment variable that names the program for all tests that do not choose one: a
    /// path, and arguments if there are any, separated by blanks.
    pub const VARIABLE: &str = "TESTKIT_SERVER";

    /// `redis-server`, whatever [`VARIABLE`](Self::VARIABLE) says.
    #[must_use]
    pub fn redis() -> Self {
        Self::new(Self::REDIS)
    }

    /// Our own store: `tenure serve`, as cargo has built it beside this test.
    ///
    /// # Panics
    /// When it was not built.
    #[must_use]
    pub fn own() -> Self {
        let test = std::env::current_exe().expect("a program knows where it is");
        // Test programs are in a folder of their own below the others.
        let mut folders = test.ancestors().skip(1).take(2).map(|folder| folder.join("tenure"));
        let built = folders.find(|program| program.is_file());
        let built = built.expect("no program `tenure`: run cargo build -p tenure-cli");
        Self::new(built).arg("serve")
    }

    /// The program at `path`, looked for on `PATH` when it is a bare name.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: Vec::new() }
    }

    /// Adds an argument that comes before all others, for example `serve`.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The program with its arguments, for more of them.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let path = words.next()?;
        Some(words.fold(Self::new(path), |program, word| program.arg(word)))
    }
}

/// `redis-server`, unless [`ServerProgram::VARIABLE`] names another.
impl Default for ServerProgram {
    fn default() -> Self {
        let named = std::env::var(Self::VARIABLE).ok();
        named.as_deref().and_then(Self::parse).unwrap_or_else(|| Self::new(Self::REDIS))
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes all text");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_its_path_and_leading_arguments() {
        let program = ServerProgram::parse("target/debug/tenure serve").unwrap();
        assert_eq!(program, ServerProgram::new("target/debug/tenure").arg("serve"));
        assert_eq!(ServerProgram::parse("  "), None);
    }

    #[test]
    fn a_password_stands_in_a_url_in_its_encoded_form() {
        assert_eq!(percent_encoded("p@ss/word-1"), "p%40ss%2Fword-1");
    }
}
