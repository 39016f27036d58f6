//! Addresses that cannot work, and servers that are not what the address says: each is told with
//! the documented code and the next step, and nobody is advised to start what runs.

use testkit::{
    Certificates, GENEROUS, Process, RedisServer, RedisServerBuilder, SentinelGroup, TempFolder,
    wait_until,
};

use crate::stage::{CommandOutput, plain_command};

fn config_check(store: &str) -> CommandOutput {
    let mut command = plain_command(&["config", "check", "--json"]);
    command.env("TENURE_STORE", store);
    CommandOutput::of(command)
}

#[test]
fn config_check_shows_every_node_and_the_mode_but_no_login() {
    for (store, shown) in [
        ("redis+quorum://h1:7000,h2:7001,h3", "redis+quorum://h1:7000,h2:7001,h3:6379/0"),
        (
            "redis+quorum://u:canary@h1,w:canary@h2,h3/2",
            "redis+quorum://***@h1:6379,h2:6379,h3:6379/2",
        ),
        ("redis://h?mode=strict&replicas=2", "redis://h:6379/0?mode=strict&replicas=2"),
        (
            "redis+sentinel://u:canary@h1,h2/main?sentinel_password=canary&mode=strict&replicas=1",
            "redis+sentinel://***@h1:26379,h2:26379/main/0?mode=strict&replicas=1",
        ),
    ] {
        let said = config_check(store);
        assert_eq!(said.code, 0, "{said:?}");
        let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let settings = json["settings"].as_array().unwrap();
        let url = settings.iter().find(|setting| setting["key"] == "store.url").unwrap();
        assert_eq!((&url["value"], &json["store"]), (&shown.into(), &shown.into()));
        assert!(!said.out.contains("canary"), "{said:?}");
    }
}

#[test]
fn an_address_that_cannot_work_is_refused_before_anybody_connects() {
    for (store, named) in [
        ("reddis://h", "did you mean redis://?"),
        ("redis+sentinal://h/main", "did you mean redis+sentinel://?"),
        ("redis+quorum://h1,h2", "2 nodes are too few"),
        ("redis+quorum://h1", "1 node is too few"),
        ("redis+quorum://h1,h2,h3?mode=strict&replicas=1", "mode"),
        ("redis+sentinel://h", "master name is missing"),
        ("rediss://h?ca=/no/such.pem", "?ca=/no/such.pem: "),
        ("rediss://h?cert=/no/such.pem&key=/no/key", "in ?cert= or in store.tls.cert_file"),
        ("redis://127.0.0.1:", "the port after the colon is empty"),
        ("redis+sentinel://h1,h2:/main", "the port after the colon is empty"),
        ("redis://:@127.0.0.1", "the password before the @ is empty"),
        ("redis://ann:@127.0.0.1", "the password before the @ is empty"),
        ("redis://@127.0.0.1", "the login before the @ is empty"),
        ("unix:///run/redis.sock?password=", "\"password\" is empty"),
    ] {
        for words in [&["config", "check"][..], &["who", "job"], &["run", "job", "--", "true"]] {
            let mut command = plain_command(words);
            command.env("TENURE_STORE", store);
            let said = CommandOutput::of(command);
            assert_eq!(said.code, 78, "{store}: {said:?}");
            assert!(said.err.contains(named), "{store}: {said:?}");
        }
        assert!(config_check(store).err.contains("TENURE_STORE"), "{store}");
    }
}

/// A server with a replica, and sentinels of another server.
struct Servers {
    master: RedisServer,
    replica: RedisServer,
    sentinels: SentinelGroup,
}

impl Servers {
    fn start() -> Self {
        let (master, replica) = (RedisServer::start(), RedisServer::start());
        replica.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        wait_until("the replica to follow", GENEROUS, || {
            replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
        });
        Servers { master, replica, sentinels: SentinelGroup::start(0) }
    }

    fn sentinel(&self) -> String {
        self.sentinels.hosts().split(',').next().unwrap().to_owned()
    }

    /// Addresses that lead to the wrong kind of server, and what says so.
    fn wrong(&self) -> [(String, [&'static str; 2]); 3] {
        let (master, sentinel) = (self.master.port(), self.sentinel());
        [
            (format!("redis://{sentinel}"), ["is a sentinel", "write redis+sentinel://"]),
            (
                format!("redis+sentinel://127.0.0.1:{master}/main"),
                ["not a sentinel", "write redis://"],
            ),
            (
                format!("redis+cluster://127.0.0.1:{master}"),
                ["not a node of a cluster", "write redis://"],
            ),
        ]
    }

    /// Addresses that may come to work without anybody changing them.
    fn not_yet(&self) -> [(String, [String; 2]); 2] {
        let named = format!("it is a replica of 127.0.0.1:{}", self.master.port());
        [
            (self.replica.url(), [named, "name the primary".to_owned()]),
            (
                format!("redis+sentinel://{}/nobody", self.sentinels.hosts()),
                ["watches no primary".to_owned(), "check the name".to_owned()],
            ),
        ]
    }
}

#[test]
fn whoever_asks_once_is_told_what_to_write_instead() {
    let servers = Servers::start();
    let wrong = servers.wrong().map(|(store, named)| (store, named.map(str::to_owned)));
    for (store, named) in wrong.into_iter().chain(servers.not_yet()) {
        for words in [
            &["who", "job"][..],
            &["status", "job"],
            &["history", "job"],
            &["pause", "job"],
            &["once", "job", "--tick", "1", "--", "true"],
        ] {
            let mut command = plain_command(words);
            command.env("TENURE_STORE", &store);
            let said = CommandOutput::of(command);
            assert_eq!(said.code, 78, "{store} {words:?}: {said:?}");
            let line = said.err.lines().last().unwrap();
            assert!(named.iter().all(|part| line.contains(part)), "{store} {words:?}: {line}");
            assert!(!line.contains("start it"), "{line}");
        }
    }
}

/// The port of a server that expects TLS: ours answers a plain request with an alert, Redis ends
/// the connection.
#[test]
fn a_tls_port_as_plain_redis_is_told_to_whoever_asks() {
    let certificates = Certificates::issue();
    let with_tls =
        |server: RedisServerBuilder| server.tls(certificates.settings("localhost", "no")).start();
    let servers = [with_tls(RedisServer::builder()), with_tls(crate::cli::our_store())];
    for port in servers.each_ref().map(RedisServer::tls_port) {
        for words in [
            &["who", "job"][..],
            &["once", "job", "--tick", "1", "--", "true"],
            &["doctor"],
            &["cli", "PING"],
        ] {
            let mut command = plain_command(words);
            command.env("TENURE_STORE", format!("redis://127.0.0.1:{port}"));
            let said = CommandOutput::of(command);
            assert!(said.code != 0 && said.err.contains("rediss://"), "{words:?}: {said:?}");
            assert!(!said.err.contains("\\n"), "{words:?}: {said:?}");
        }
    }
}

#[test]
fn run_ends_at_once_where_waiting_cannot_help() {
    let servers = Servers::start();
    for (store, named) in servers.wrong() {
        let mut command = plain_command(&["run", "job", "--", "true"]);
        command.env("TENURE_STORE", &store);
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 78, "{store}: {said:?}");
        let line = said.err.lines().last().unwrap();
        assert!(named.iter().all(|part| line.contains(part)), "{store}: {line}");
    }
}

#[test]
fn run_waits_where_a_fail_over_may_help_and_says_for_what() {
    let servers = Servers::start();
    let folder = TempFolder::create();
    for (store, named) in servers.not_yet() {
        let file = folder.path().join("log");
        let mut command = plain_command(&["run", "job", "--ttl", "2s", "--", "true"]);
        command.env("TENURE_STORE", &store).stderr(std::fs::File::create(&file).unwrap());
        let mut process = Process::spawn(command);
        let written = || std::fs::read_to_string(&file).unwrap();
        wait_until("the next step in the log", GENEROUS, || {
            written().lines().any(|line| named.iter().all(|part| line.contains(part)))
        });
        assert!(process.is_running(), "{store}: {}", written());
        process.terminate();
        process.wait(GENEROUS);
    }
    let mut command = plain_command(&["run", "job", "--ttl", "2s", "--", "true"]);
    command.env("TENURE_STORE", servers.replica.url()).env("TENURE_DEFAULTS__FRESH_STORE", "true");
    let mut process = Process::spawn(command);
    servers.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    assert!(process.wait(GENEROUS).success(), "the replica was promoted");
}

#[test]
fn a_quorum_that_is_not_there_is_unreachable_once() {
    let mut command = plain_command(&["who", "job"]);
    command.env("TENURE_STORE", "redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
    let said = CommandOutput::of(command);
    assert_eq!(said.code, 69, "{said:?}");
    assert_eq!(said.err.matches("unreachable").count(), 1, "{said:?}");
}

#[test]
fn a_tick_on_a_quorum_is_refused_with_what_to_do() {
    let nodes = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let hosts = nodes.each_ref().map(|node| format!("127.0.0.1:{}", node.port())).join(",");
    let mut command = plain_command(&["once", "job", "--every", "1h", "--", "true"]);
    command.env("TENURE_STORE", format!("redis+quorum://{hosts}"));
    let said = CommandOutput::of(command);
    assert_eq!(said.code, 78, "{said:?}");
    let line = said.err.lines().last().unwrap();
    assert!(line.contains("ticks need one store") && line.contains("name one of them"), "{line}");
    assert!(!line.contains("foreign") && !line.contains("choose another key"), "{line}");
}
