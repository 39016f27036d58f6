//! A master, its replicas and the sentinels that watch over them.

use std::process::Stdio;
use std::time::Duration;

use crate::child::GuardedChild;
use crate::folder::TempFolder;
use crate::lines::Lines;
use crate::port::ReservedPort;
use crate::server::{ServerProgram, redis_cli};
use crate::{GENEROUS, Host, RedisServer, RedisServerBuilder, wait_until};

/// How many sentinels there are: the fewest that can lose one.
const SENTINELS: usize = 3;

/// The same while nobody is to be given up.
const PATIENT_DOWN_AFTER: Duration = Duration::from_secs(60);

/// A group of real servers on loopback. Everything ends when the value is dropped.
#[derive(Debug)]
pub struct SentinelGroup {
    /// The servers; the first one began as the master.
    pub servers: Vec<RedisServer>,
    /// The sentinels.
    pub sentinels: Vec<Sentinel>,
}

impl SentinelGroup {
    /// The name under which the sentinels watch the master.
    pub const MASTER: &str = "main";
    /// How long a master is silent before the sentinels give it up.
    pub const DOWN_AFTER: Duration = Duration::from_millis(1500);

    /// Starts a master, `replicas` replicas and three sentinels, and waits until they know each
    /// other.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start(replicas: usize) -> Self {
        Self::start_with(replicas, None)
    }

    /// The same with a password of the servers and another of the sentinels.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start_with(replicas: usize, passwords: Option<(&str, &str)>) -> Self {
        let builder = builder(passwords.map(|(servers, _)| servers));
        Self::start_each(&vec![builder; replicas + 1], &real(&loopback()), passwords)
    }

    /// The same with a program for each server, the master's first. The sentinels are real ones.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start_of(programs: &[ServerProgram]) -> Self {
        Self::start_mixed(
            programs,
            &std::array::from_fn::<_, SENTINELS, _>(|_| ServerProgram::redis()),
        )
    }

    /// The same with a program for each of the three sentinels, too.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start_mixed(servers: &[ServerProgram], sentinels: &[ServerProgram]) -> Self {
        let server = |program: &ServerProgram| builder(None).program(program.clone());
        let builders: Vec<_> = servers.iter().map(server).collect();
        let sentinels: Vec<_> = loopback().into_iter().zip(sentinels.iter().cloned()).collect();
        Self::start_each(&builders, &sentinels, None)
    }

    /// The same on hosts of a network: a server on each, set up as `settings` says, and a sentinel
    /// beside each of the first three.
    ///
    /// # Panics
    /// When a program is missing or does not start, or there are too few hosts for the sentinels.
    #[must_use]
    pub fn start_on(
        hosts: &[Host],
        settings: impl FnOnce(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        Self::start_mixed_on(hosts, &ServerProgram::redis(), settings)
    }

    /// The same with this program for the sentinels.
    ///
    /// # Panics
    /// When a program is missing or does not start, or there are too few hosts for the sentinels.
    #[must_use]
    pub fn start_mixed_on(
        hosts: &[Host],
        sentinel: &ServerProgram,
        settings: impl FnOnce(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        let builder = settings(builder(None));
        let builders: Vec<_> = hosts.iter().map(|host| builder.clone().on(host)).collect();
        let sentinels = hosts[..SENTINELS].iter().map(|host| (host.clone(), sentinel.clone()));
        Self::start_each(&builders, &sentinels.collect::<Vec<_>>(), None)
    }

    /// The same with a program for each server and each sentinel.
    ///
    /// # Panics
    /// When a program is missing or does not start, or there are too few hosts.
    #[must_use]
    pub fn start_each_on(
        hosts: &[Host],
        servers: &[ServerProgram],
        sentinels: &[ServerProgram],
    ) -> Self {
        let server = |(host, program): (&Host, &ServerProgram)| {
            builder(None).on(host).program(program.clone())
        };
        let builders: Vec<_> = hosts.iter().zip(servers).map(server).collect();
        let sentinels: Vec<_> = hosts.iter().cloned().zip(sentinels.iter().cloned()).collect();
        Self::start_each(&builders, &sentinels, None)
    }

    fn start_each(
        builders: &[RedisServerBuilder],
        sentinels: &[(Host, ServerProgram)],
        passwords: Option<(&str, &str)>,
    ) -> Self {
        let replicas = builders.len() - 1;
        let servers = start_servers(builders);
        let start = |(host, program): &_| Sentinel::start(program, host, &servers[0], passwords);
        let sentinels: Vec<_> = sentinels.iter().map(start).collect();
        let group = SentinelGroup { servers, sentinels };
        wait_until("the sentinels to know each other and every replica", GENEROUS, || {
            group.sentinels.iter().all(|sentinel| {
                sentinel.field("num-other-sentinels") == "2"
                    && sentinel.field("num-slaves") == replicas.to_string()
            })
        });
        group
    }

    /// The address as clients take it, without logins.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{}", self.hosts(), Self::MASTER)
    }

    /// The sentinels as they stand in an address.
    #[must_use]
    pub fn hosts(&self) -> String {
        let hosts = self
            .sentinels
            .iter()
            .map(|one| format!("{}:{}", one.host.address(), one.port.number()));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// The place of the present master in [`servers`](Self::servers), as most sentinels say.
    #[must_use]
    pub fn master(&self) -> Option<usize> {
        let alive = self.sentinels.iter().filter(|one| one.is_alive);
        let named: Vec<String> = alive.map(|one| one.field("port")).collect();
        let most = named.iter().max_by_key(|port| named.iter().filter(|p| p == port).count())?;
        self.servers.iter().position(|server| server.port().to_string() == **most)
    }

    /// Whether the sentinels bear a long silence of the master from now on.
    ///
    /// # Panics
    /// When a sentinel that is alive refuses.
    pub fn set_patient(&self, is_patient: bool) {
        let after = if is_patient { PATIENT_DOWN_AFTER } else { Self::DOWN_AFTER };
        let after = after.as_millis().to_string();
        let words = ["SENTINEL", "SET", Self::MASTER, "down-after-milliseconds", &after];
        for sentinel in self.sentinels.iter().filter(|one| one.is_alive) {
            assert_eq!(sentinel.cli(&words), "OK", "{}", words.join(" "));
        }
    }

    /// Waits until every sentinel that is alive has heard the master lately.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn wait_until_heard(&self) {
        let silence = |sentinel: &Sentinel| sentinel.field("last-ok-ping-reply").parse::<u128>();
        wait_until("the sentinels to hear the master", GENEROUS, || {
            let mut alive = self.sentinels.iter().filter(|one| one.is_alive);
            alive.all(|one| silence(one).is_ok_and(|ms| ms < Self::DOWN_AFTER.as_millis()))
        });
    }

    /// Whether all sentinels that are alive name the same master and none sees trouble with it.
    #[must_use]
    pub fn sentinels_agree(&self) -> bool {
        let alive = || self.sentinels.iter().filter(|one| one.is_alive);
        let mut ports = alive().map(|one| one.field("port"));
        let first = ports.next();
        ports.all(|port| Some(port) == first) && alive().all(|one| one.field("flags") == "master")
    }

    /// Waits until most sentinels name another master than `old` and it says so itself.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn wait_for_another_master(&self, old: usize) -> usize {
        /// Sentinels whose first try came to nothing wait for long before the next.
        const TRIES: u32 = 3;
        crate::wait_for("another master", GENEROUS * TRIES, || {
            let new = self.master().filter(|new| *new != old)?;
            self.servers[new].role()?.starts_with("master").then_some(new)
        })
    }
}

fn builder(password: Option<&str>) -> RedisServerBuilder {
    let builder = RedisServer::builder().replicated();
    match password {
        Some(password) => builder.password(password).args(["--masterauth", password]),
        None => builder,
    }
}

fn loopback() -> [Host; SENTINELS] {
    std::array::from_fn(|_| Host::loopback())
}

/// A redis-server as sentinel on each host.
fn real(hosts: &[Host]) -> Vec<(Host, ServerProgram)> {
    hosts.iter().map(|host| (host.clone(), ServerProgram::redis())).collect()
}

fn start_servers(builders: &[RedisServerBuilder]) -> Vec<RedisServer> {
    let mut servers: Vec<RedisServer> = Vec::new();
    for builder in builders.iter().cloned() {
        let server = match servers.first() {
            None => builder.start(),
            Some(master) => {
                let (address, port) = (master.host(), master.port().to_string());
                builder.args(["--replicaof", &address, &port]).start()
            }
        };
        servers.push(server);
    }
    for replica in &servers[1..] {
        wait_until("a replica to be in step", GENEROUS, || {
            let facts = replica.try_cli(&["INFO", "replication"]);
            facts.is_some_and(|facts| facts.contains("master_link_status:up"))
        });
    }
    servers
}

/// What it saw of a test that fails is a part of the report.
impl Drop for Sentinel {
    fn drop(&mut self) {
        /// The last lines tell why.
        const LINES_MAX: usize = 60;
        if std::thread::panicking() {
            let lines = self.log.snapshot();
            let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
            eprintln!("sentinel at port {}:\n{}", self.port.number(), last.join("\n"));
        }
    }
}

/// The file of a sentinel, in its folder.
const FILE: &str = "sentinel.conf";

fn spawn(program: &ServerProgram, host: &Host, folder: &TempFolder) -> (GuardedChild, Lines) {
    let mut command = program.command();
    host.enter(&mut command);
    command.arg(folder.path().join(FILE)).arg("--sentinel").current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = GuardedChild::spawn(command)
        .unwrap_or_else(|error| panic!("cannot start a sentinel: {error}"));
    let stdout = child.inner().stdout.take().expect("standard output is a pipe");
    let log = Lines::collect(stdout);
    let ready = log.find(GENEROUS, |line| line.contains("+monitor master"));
    assert!(ready.is_some(), "no sentinel:\n{}", log.snapshot().join("\n"));
    (child, log)
}

/// One sentinel.
#[derive(Debug)]
pub struct Sentinel {
    child: GuardedChild,
    /// Whether it still answers: not ended or stopped by the test.
    is_alive: bool,
    host: Host,
    port: ReservedPort,
    password: Option<String>,
    program: ServerProgram,
    /// What its file said at first.
    lines: String,
    log: Lines,
    folder: TempFolder,
}

impl Sentinel {
    fn start(
        program: &ServerProgram,
        host: &Host,
        master: &RedisServer,
        passwords: Option<(&str, &str)>,
    ) -> Self {
        let name = SentinelGroup::MASTER;
        let mut lines = format!(
            "sentinel monitor {name} {} {} 2\nsentinel down-after-milliseconds {name} {}\n\
             sentinel failover-timeout {name} 6000\nsentinel parallel-syncs {name} 5\n",
            master.host(),
            master.port(),
            SentinelGroup::DOWN_AFTER.as_millis(),
        );
        if let Some((of_servers, of_sentinels)) = passwords {
            lines += &format!(
                "requirepass {of_sentinels}\nsentinel sentinel-pass {of_sentinels}\n\
                 sentinel auth-pass {name} {of_servers}\n"
            );
        }
        Self::start_on(program, host, &lines, passwords.map(|(_, password)| password))
    }

    /// Starts one on loopback with these lines in its file, which name a master at least, and
    /// the password that they set.
    ///
    /// # Panics
    /// When a program is missing or does not start.
    #[must_use]
    pub fn start_alone(program: &ServerProgram, lines: &str, password: Option<&str>) -> Self {
        Self::start_on(program, &Host::loopback(), lines, password)
    }

    fn start_on(program: &ServerProgram, host: &Host, lines: &str, password: Option<&str>) -> Self {
        let (folder, port) = (TempFolder::create(), ReservedPort::reserve());
        let addresses: Vec<_> = host.listens_on().iter().map(ToString::to_string).collect();
        let (number, addresses) = (port.number(), addresses.join(" "));
        let lines = format!("port {number}\nbind {addresses}\nprotected-mode no\n{lines}");
        let _ = folder.write(FILE, &lines);
        let (child, log) = spawn(program, host, &folder);
        let password = password.map(str::to_owned);
        let (host, program) = (host.clone(), program.clone());
        Sentinel { child, is_alive: true, host, port, password, program, lines, log, folder }
    }

    /// Ends it as SIGKILL does, and starts it again with the file that it wrote.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill();
        (self.child, self.log) = spawn(&self.program, &self.host, &self.folder);
        self.is_alive = true;
    }

    /// The same with the file that it had at first: whatever it learned is lost.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart_without_memory(&mut self) {
        self.kill();
        let _ = self.folder.write(FILE, &self.lines);
        self.restart();
    }

    /// What its file says.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn file(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(FILE)).expect("a sentinel has a file")
    }

    /// What it wrote to its log since it was last started.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.log.snapshot()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The folder of its file.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// How it ended.
    ///
    /// # Panics
    /// When that takes far too long.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.is_alive = false;
        self.child.wait(GENEROUS)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Runs `redis-cli` with these words on the sentinel and returns what it printed.
    ///
    /// # Panics
    /// When it cannot be reached.
    #[track_caller]
    pub fn cli(&self, words: &[&str]) -> String {
        redis_cli(&self.host, self.port.number(), None, self.password.as_deref(), words)
    }

    /// Ends it as SIGKILL does.
    pub fn kill(&mut self) {
        self.is_alive = false;
        self.child.kill();
    }

    /// Stops it as SIGSTOP does.
    ///
    /// # Panics
    /// When it has ended.
    pub fn pause(&mut self) {
        self.is_alive = false;
        self.child.pause();
    }

    /// Lets a stopped one run on, as SIGCONT does.
    ///
    /// # Panics
    /// When it has ended.
    pub fn resume(&mut self) {
        self.child.resume();
        self.is_alive = true;
    }

    /// A field of what it knows about the master.
    #[must_use]
    pub fn field(&self, name: &str) -> String {
        let known = self.cli(&["SENTINEL", "MASTER", SentinelGroup::MASTER]);
        let mut lines = known.lines();
        lines.find(|line| *line == name);
        lines.next().unwrap_or_default().to_owned()
    }
}
