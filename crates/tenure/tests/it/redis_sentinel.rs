//! A store whose master real sentinels name, and move.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use tenure::backend::redis::RedisBackend;
use tenure::backend::{Backend, Connection};
use tenure::{Election, Tenure};
use tenure_core::protocol::Token;
use testkit::{Certificates, Process, RedisServer, SentinelGroup, TempFolder, wait_until};

const TTL: Duration = Duration::from_secs(1);
/// Finding a master, waiting out the quarantine and leading, on a machine that is busy.
const PATIENT: Duration = Duration::from_secs(30);

async fn contender(group: &SentinelGroup, name: &str) -> (Tenure, Election) {
    let tenure = Tenure::builder().instance(name).store(&group.url()).connect().await.unwrap();
    let election = tenure.election("job").ttl(TTL).start().await.unwrap();
    (tenure, election)
}

/// Waits for a leader with a higher token than `after`; two at once end the test.
async fn next_token(elections: [&Election; 2], after: Option<Token>) -> Option<Token> {
    let begun = Instant::now();
    loop {
        let leaders: Vec<_> = elections.iter().filter_map(|election| election.term()).collect();
        let leaders: Vec<_> = leaders.iter().filter(|term| term.is_valid()).collect();
        assert!(leaders.len() < 2, "two leaders at once: {leaders:?}");
        let tokens = leaders.iter().map(|term| term.token());
        let token = tokens.max();
        if token > after {
            return token;
        }
        assert!(begun.elapsed() < PATIENT, "no leader after {after:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn leadership_follows_the_master() {
    let mut group = SentinelGroup::start(2);
    let (_ada, ada) = contender(&group, "ada").await;
    let (_bob, bob) = contender(&group, "bob").await;
    let first = next_token([&ada, &bob], None).await;

    // On command: the old master becomes a replica and answers READONLY.
    let old = group.master().unwrap();
    assert_eq!(group.sentinels[0].cli(&["SENTINEL", "FAILOVER", SentinelGroup::MASTER]), "OK");
    let new = group.wait_for_another_master(old);
    let second = next_token([&ada, &bob], first).await;

    // By death, with a sentinel dead as well.
    group.sentinels[2].kill();
    group.servers[new].kill();
    let newest = group.wait_for_another_master(new);
    let third = next_token([&ada, &bob], second).await;
    let holder = group.servers[newest].cli(&["GET", "tenure:job"]);
    let leader = [&ada, &bob].into_iter().find(|one| one.is_leader()).expect("one leads");
    assert_eq!(holder, leader.id().as_str());
    assert!(third > second && second > first);
}

/// Stopped and let run on, as a machine that hangs: it comes back as a replica.
#[tokio::test]
async fn leadership_leaves_a_master_that_has_stopped() {
    let mut group = SentinelGroup::start(1);
    let (_ada, ada) = contender(&group, "ada").await;
    let (_bob, bob) = contender(&group, "bob").await;
    let first = next_token([&ada, &bob], None).await;

    group.servers[0].pause();
    assert_eq!(group.wait_for_another_master(0), 1);
    let second = next_token([&ada, &bob], first).await;
    group.servers[0].resume();
    wait_until("the old master to follow the new one", PATIENT, || {
        // It drops its clients when it becomes a replica.
        let holders = [0, 1].map(|server| group.servers[server].try_cli(&["GET", "tenure:job"]));
        let link = group.servers[0].try_cli(&["INFO", "replication"]).unwrap_or_default();
        let is_up = link.contains("master_link_status:up");
        is_up && holders[0].is_some() && holders[0] == holders[1]
    });
    let token = group.servers[1].cli(&["HGET", "{tenure:job}:meta", "token"]);
    assert!(Some(token.parse().unwrap()) >= second.map(Token::get), "{token} after {second:?}");
}

async fn trouble(address: &str) -> String {
    let backend = RedisBackend::open(address).unwrap();
    let mut state = backend.connection();
    let down = state.wait_for(|state| matches!(state, Connection::Down(_)));
    let down = tokio::time::timeout(PATIENT, down).await.expect("an answer").unwrap().clone();
    let Connection::Down(error) = down else { unreachable!() };
    error.to_string()
}

#[tokio::test]
async fn both_layers_may_ask_for_a_password() {
    let group = SentinelGroup::start_with(0, Some(("of-servers", "of-sentinels")));
    let (hosts, master) = (group.hosts(), SentinelGroup::MASTER);
    let right =
        format!("redis+sentinel://:of-servers@{hosts}/{master}/2?sentinel_password=of-sentinels");
    let backend = RedisBackend::open(&right).unwrap();
    let mut state = backend.connection();
    let up = state.wait_for(|state| *state == Connection::Up);
    tokio::time::timeout(PATIENT, up).await.expect("in time").unwrap();
    assert_eq!(backend.describe(), format!("redis+sentinel://{hosts}/{master}/2"));

    let cases = [
        (format!(":of-servers@{hosts}/{master}"), "NOAUTH"),
        (format!(":of-servers@{hosts}/{master}?sentinel_password=c4nary"), "login is refused"),
        (format!(":c4nary@{hosts}/{master}?sentinel_password=of-sentinels"), "login is refused"),
        (
            format!(":of-servers@{hosts}/nobody?sentinel_password=of-sentinels"),
            "watches no primary \"nobody\"",
        ),
        ("127.0.0.1:1,127.0.0.1:2/main".to_owned(), "none of 2 sentinels answers"),
    ];
    for (rest, expected) in cases {
        let text = trouble(&format!("redis+sentinel://{rest}")).await;
        assert!(text.contains(expected), "{rest}: {text}");
        assert!(!text.contains("c4nary") && !text.contains("of-"), "a password shows: {text}");
    }
}

#[tokio::test]
async fn a_replica_that_sentinels_name_is_not_used() {
    // Sentinels that were set up with the address of a replica, and cannot move anything.
    let group = SentinelGroup::start(0);
    group.servers[0].cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let text = trouble(&group.url()).await;
    assert!(text.contains("it is a replica"), "{text}");
}

/// A sentinel that speaks TLS only and names the master by its host name, with its port.
fn encrypted_sentinel(folder: &TempFolder, tls: &[(&str, String)], master: u16) -> (Process, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut lines = format!(
        "port 0\ntls-port {port}\ntls-replication yes\nsentinel resolve-hostnames yes\n\
         sentinel announce-hostnames yes\nsentinel monitor main localhost {master} 1\n"
    );
    for (name, value) in tls {
        lines += &format!("{name} {value}\n");
    }
    let mut command = Command::new("redis-server");
    command.arg(folder.write("sentinel.conf", &lines)).arg("--sentinel");
    command.current_dir(folder.path());
    (Process::spawn(command), port)
}

#[tokio::test]
async fn both_layers_may_be_encrypted() {
    let (certificates, folder) = (Certificates::issue(), TempFolder::create());
    let tls = certificates.settings("localhost", "no");
    let master = RedisServer::builder().tls(tls.clone()).start();
    let (_sentinel, port) = encrypted_sentinel(&folder, &tls, master.tls_port());
    let address = |ca: String| format!("rediss+sentinel://localhost:{port}/main?ca={ca}");

    let backend = RedisBackend::open(&address(certificates.file("ca.pem"))).unwrap();
    let mut state = backend.connection();
    let up = state.wait_for(|state| *state == Connection::Up);
    tokio::time::timeout(PATIENT, up).await.expect("in time").unwrap();
    assert_eq!(backend.describe(), format!("rediss+sentinel://localhost:{port}/main/0"));
    let strangers = Certificates::issue();
    let text = trouble(&address(strangers.file("ca.pem"))).await;
    assert!(text.contains("certificate") && text.contains("?ca=FILE"), "{text}");
    let plain = format!("redis+sentinel://localhost:{port}/main");
    let text = trouble(&plain).await;
    assert!(text.contains(&format!("the sentinel at localhost:{port}")), "{text}");
}
