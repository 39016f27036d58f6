//! A real PostgreSQL server of the test's own, and a pooler in front of it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::child::GuardedChild;
use crate::folder::TempFolder;
use crate::lines::Lines;
use crate::port::ReservedPort;
use crate::{Certificates, GENEROUS, wait_for, wait_until};

/// The role and the database that every server begins with.
const SUPERUSER: &str = "postgres";
/// The account under which servers run where the tests are root: they refuse to be.
const ACCOUNT: &str = "postgres";

/// A server on loopback and on a unix socket, with the superuser `postgres`, whom it trusts. It
/// ends when the value is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    folder: TempFolder,
    port: ReservedPort,
    settings: Vec<(String, String)>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: GuardedChild,
    log: Lines,
}

/// The data of a server as it was at one moment.
#[derive(Debug)]
pub struct PostgresCopy {
    folder: TempFolder,
}

impl PostgresServer {
    /// Starts an empty server.
    ///
    /// # Panics
    /// When the program is missing or does not start; the message shows what it wrote.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings, such as `("max_connections", "10")`.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_in(initialized(), settings)
    }

    /// One that speaks TLS as well, with the certificate `name`.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with_tls(certificates: &Certificates, name: &str) -> Self {
        let folder = initialized();
        // It takes a key only from files of its own account.
        let own = |ending: &str| {
            let file = folder.path().join(format!("server.{ending}"));
            fs::copy(certificates.file(&format!("{name}.{ending}")), &file)
                .expect("both are files");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
            hand_over(&file);
            file.display().to_string()
        };
        let (cert, key) = (own("pem"), own("key"));
        Self::start_in(folder, &[("ssl", "on"), ("ssl_cert_file", &cert), ("ssl_key_file", &key)])
    }

    fn start_in(folder: TempFolder, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let mut server = PostgresServer {
            folder,
            port: ReservedPort::reserve(),
            settings: settings.collect(),
            running: None,
        };
        server.run();
        server
    }

    /// The address as clients take it, for the superuser.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(SUPERUSER)
    }

    /// The address for another role.
    #[must_use]
    pub fn url_of(&self, role: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{SUPERUSER}", self.port())
    }

    /// The address with another port, for something in front of this server.
    #[must_use]
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{port}/{SUPERUSER}")
    }

    /// The address of its unix socket.
    #[must_use]
    pub fn socket_url(&self) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://{SUPERUSER}@{folder}:{}/{SUPERUSER}", self.port())
    }

    /// The TCP port on 127.0.0.1. It stays this server's own through stops and restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// What the server wrote since its last start.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.running.as_ref().map(|running| running.log.snapshot()).unwrap_or_default()
    }

    /// Runs statements with `psql` as the superuser, and returns what they print, without headings.
    ///
    /// # Panics
    /// When one of them fails.
    #[track_caller]
    pub fn psql(&self, statements: &str) -> String {
        let output = self.try_psql(SUPERUSER, statements);
        assert!(
            output.status.success(),
            "psql: {statements}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The same for any role, whatever comes of it.
    ///
    /// # Panics
    /// When `psql` is missing.
    #[must_use]
    pub fn try_psql(&self, role: &str, statements: &str) -> Output {
        let mut psql = self.psql_command(role);
        psql.args(["-c", statements]);
        psql.output().expect("psql starts: install it (Debian: apt-get install postgresql)")
    }

    /// `psql` as this role, ready for more words or for statements on its standard input.
    #[must_use]
    pub fn psql_command(&self, role: &str) -> Command {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p"]);
        psql.arg(self.port().to_string()).args(["-U", role, "-d", SUPERUSER]);
        psql
    }

    /// Dumps the database as SQL.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn dump(&self, words: &[&str]) -> String {
        let mut dump = program("pg_dump");
        dump.args(["-h", "127.0.0.1", "-p", &self.port().to_string(), "-U", SUPERUSER]);
        dump.args(words).arg(SUPERUSER);
        String::from_utf8(succeed(dump).stdout).expect("a dump is UTF-8")
    }

    /// A standby of this server that follows it.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn standby(&self, name: &str) -> Self {
        let folder = TempFolder::create();
        let mut backup = program("pg_basebackup");
        let place =
            format!("host=127.0.0.1 port={} user={SUPERUSER} application_name={name}", self.port());
        backup.args(["-R", "-c", "fast", "--no-sync", "-d", &place, "-D"]).arg(data_in(&folder));
        hand_over(folder.path());
        succeed(backup);
        Self::start_in(folder, &[])
    }

    /// Makes this standby a primary.
    ///
    /// # Panics
    /// When it is none, or takes far too long.
    pub fn promote(&self) {
        self.psql("SELECT pg_promote(true, 30)");
    }

    /// Ends the server as SIGKILL does, with all its processes.
    pub fn kill(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let processes = backends(running.child.pid());
        running.child.kill();
        for process in &processes {
            // It may have ended by itself.
            let _ = kill_process(*process, Signal::KILL);
        }
        wait_until("the server's processes to end", GENEROUS, || {
            processes.iter().all(|process| !is_alive(*process))
        });
    }

    /// Ends the server in order: clients are disconnected.
    ///
    /// # Panics
    /// When it takes far too long.
    pub fn stop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        running.child.signal(Signal::INT);
        running.child.wait(GENEROUS);
    }

    /// Starts it again on the same port, with what it has kept. Ends it first, if it runs.
    ///
    /// # Panics
    /// When it does not start again.
    pub fn restart(&mut self) {
        self.stop();
        self.run();
    }

    /// Stops all of its processes as SIGSTOP does.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&mut self) {
        let running = self.running.as_mut().expect("it runs");
        running.child.pause();
        for process in backends(running.child.pid()) {
            // It may have ended by itself.
            let _ = kill_process(process, Signal::STOP);
        }
    }

    /// Lets them run on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&mut self) {
        let running = self.running.as_mut().expect("it runs");
        for process in backends(running.child.pid()) {
            // It may have ended by itself.
            let _ = kill_process(process, Signal::CONT);
        }
        running.child.resume();
    }

    /// Stops the server, copies the folder of its data, and starts it again.
    ///
    /// # Panics
    /// When something of that fails.
    #[must_use]
    pub fn copy(&mut self) -> PostgresCopy {
        self.stop();
        let folder = TempFolder::create();
        copy_folder(&data_in(&self.folder), &data_in(&folder));
        self.run();
        PostgresCopy { folder }
    }

    /// Stops the server, puts the copy in the place of its data, and starts it again.
    ///
    /// # Panics
    /// When something of that fails.
    pub fn bring_back(&mut self, copy: &PostgresCopy) {
        self.stop();
        let data = data_in(&self.folder);
        fs::remove_dir_all(&data).expect("the data of a stopped server can be removed");
        copy_folder(&data_in(&copy.folder), &data);
        self.run();
    }

    fn run(&mut self) {
        // Shared memory of a server that was killed may remain for a moment.
        let running = wait_for("the server to start", GENEROUS, || self.try_run());
        self.running = Some(running);
        wait_until("the server to answer", GENEROUS, || {
            self.try_psql(SUPERUSER, "SELECT 1").status.success()
        });
    }

    fn try_run(&self) -> Option<Running> {
        let mut command = program("postgres");
        let sockets = self.folder.path().display().to_string();
        command.arg("-D").arg(data_in(&self.folder)).args(["-h", "127.0.0.1", "-k", &sockets]);
        command.args(["-p", &self.port().to_string()]);
        // What a test kills keeps its files, as only the machine's end would lose them.
        let usual = ["fsync=off", "shared_buffers=16MB", "max_connections=60"];
        usual.iter().for_each(|setting| _ = command.args(["-c", setting]));
        for (name, value) in &self.settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = GuardedChild::spawn(command)
            .unwrap_or_else(|error| panic!("cannot start postgres: {error}. {INSTALL}"));
        let log = Lines::collect(child.inner().stderr.take().expect("standard error is a pipe"));
        let ready = log.find(GENEROUS, |line| line.contains("ready to accept"));
        if ready.is_some() {
            return Some(Running { child, log });
        }
        child.kill();
        let lines = log.snapshot();
        let passes = ["shared memory block", "lock file", "could not bind"];
        let may_pass = lines.iter().any(|line| passes.iter().any(|reason| line.contains(reason)));
        assert!(may_pass, "postgres did not start. It wrote:\n{}", lines.join("\n"));
        None
    }
}

/// A folder with the data of an empty server.
fn initialized() -> TempFolder {
    let folder = TempFolder::create();
    let words = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-U"];
    let mut initdb = program("initdb");
    initdb.args(words).arg(SUPERUSER).arg("-D").arg(data_in(&folder));
    hand_over(folder.path());
    succeed(initdb);
    folder
}

const INSTALL: &str = "Install it (Debian: apt-get install postgresql)";

fn data_in(folder: &TempFolder) -> PathBuf {
    folder.path().join("data")
}

/// A program of the server's, run under an account that it accepts.
fn program(name: &str) -> Command {
    let mut command = Command::new(binaries().join(name));
    command.stdin(Stdio::null());
    if let Some((user, group)) = account() {
        command.uid(user).gid(group).env("HOME", "/tmp");
    }
    command
}

/// The newest of the installed versions; Debian keeps them out of the way of `PATH`.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .max_by_key(|entry| entry.file_name().to_string_lossy().parse::<u32>().unwrap_or_default());
    newest.map(|entry| entry.path().join("bin")).unwrap_or_default()
}

/// The account to change to: none where the tests are not root.
fn account() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").expect("a system has accounts");
    let of = |name: &str| {
        let line = accounts.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2).map(str::parse::<u32>);
        Some((fields.next()?.ok()?, fields.next()?.ok()?))
    };
    Some(of(ACCOUNT).or_else(|| of("nobody")).expect("postgres refuses to run as root"))
}

/// Lets the account of the servers write here, and nobody else read.
fn hand_over(path: &Path) {
    if let Some((user, group)) = account() {
        chown(path, Some(user), Some(group)).expect("root may give a folder away");
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(from).arg(to);
    succeed(copy);
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).expect("it was just made");
}

#[track_caller]
fn succeed(mut command: Command) -> Output {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().unwrap_or_else(|error| panic!("cannot start {name}: {error}. {INSTALL}"));
    assert!(
        output.status.success(),
        "{name} failed ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The processes that a server has started.
fn backends(server: u32) -> Vec<Pid> {
    let children = format!("/proc/{server}/task/{server}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let numbers = children.split_whitespace().filter_map(|number| number.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    // One that has ended and was not collected yet does nothing any more.
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// PgBouncer in front of a server: it hands connections out per transaction.
#[derive(Debug)]
pub struct PgBouncer {
    _folder: TempFolder,
    port: ReservedPort,
    _child: GuardedChild,
    _log: Lines,
}

impl PgBouncer {
    /// Starts one.
    ///
    /// # Panics
    /// When the program is missing or does not start; the message shows what it wrote.
    #[must_use]
    pub fn before(server: &PostgresServer) -> Self {
        let (folder, port) = (TempFolder::create(), ReservedPort::reserve());
        let users = folder.write("users.txt", &format!("\"{SUPERUSER}\" \"\"\n"));
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = 3\n",
            server.port(),
            port.number(),
            users.display()
        );
        let settings = folder.write("pgbouncer.ini", &settings);
        let mut command = Command::new("pgbouncer");
        if let Some((user, group)) = account() {
            command.uid(user).gid(group);
        }
        command.arg(settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = GuardedChild::spawn(command).unwrap_or_else(|error| {
            panic!(
                "cannot start pgbouncer: {error}. Install it (Debian: apt-get install pgbouncer)"
            )
        });
        let log = Lines::collect(child.inner().stderr.take().expect("standard error is a pipe"));
        let is_up = log.find(GENEROUS, |line| line.contains("process up")).is_some();
        assert!(is_up, "pgbouncer did not start. It wrote:\n{}", log.snapshot().join("\n"));
        PgBouncer { _folder: folder, port, _child: child, _log: log }
    }

    /// The TCP port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}
