//! The nodes of a quorum one by one: encrypted ones, and those that cannot count.

use std::time::Duration;
use tenure_core::StoreErrorKind;

use tenure::backend::{Connection, QuorumBackend};
use tenure::{Election, Error, EventKind, Tenure};
use testkit::{Certificates, RedisServer, SentinelGroup};

const TTL: Duration = Duration::from_secs(3);
/// What must come does so within this, on a machine that is busy.
const PATIENT: Duration = Duration::from_secs(30);

/// Encrypted nodes, each with a certificate of one of the authorities.
struct Encrypted<'a> {
    nodes: Vec<RedisServer>,
    trusted: &'a Certificates,
}

impl<'a> Encrypted<'a> {
    fn start(authorities: [&Certificates; 3], trusted: &'a Certificates) -> Self {
        let node = |authority: &Certificates| {
            RedisServer::builder().tls(authority.settings("localhost", "no")).start()
        };
        Encrypted { nodes: authorities.map(node).into(), trusted }
    }

    fn place(&self, node: usize) -> String {
        format!("localhost:{}", self.nodes[node].tls_port())
    }

    fn url(&self) -> String {
        let places: Vec<_> = (0..3).map(|node| self.place(node)).collect();
        format!("rediss+quorum://{}?ca={}", places.join(","), self.trusted.file("ca.pem"))
    }

    async fn contender(&self, name: &str) -> (Tenure, Election) {
        let tenure = Tenure::builder().instance(name).store(&self.url()).connect().await.unwrap();
        let election = tenure.election("job").ttl(TTL).fresh_store(true).start().await.unwrap();
        (tenure, election)
    }

    /// Who holds the lease on a node, as its plain port tells.
    fn holder_at(&self, node: usize) -> String {
        self.nodes[node].cli(&["GET", "tenure:job"])
    }
}

#[tokio::test]
async fn a_whole_term_passes_over_encrypted_nodes() {
    let authority = Certificates::issue();
    let nodes = Encrypted::start([&authority; 3], &authority);
    let (client, ada) = nodes.contender("ada").await;
    assert!(client.store().starts_with("rediss+quorum://localhost:"), "{}", client.store());
    let term = ada.wait_for_leadership_within(PATIENT).await.unwrap();
    let (_bob, bob) = nodes.contender("bob").await;
    let ends_at = term.ends_at();
    assert!(term.renew().await, "{:?}", ada.status().reason);
    assert!(term.ends_at() > ends_at, "the renewal extends the lease");
    for node in 0..3 {
        testkit::wait_until(&format!("node {node} to have the term"), PATIENT, || {
            nodes.holder_at(node) == ada.id().as_str()
        });
    }
    let seen = client.observe("job").unwrap().look().await.unwrap();
    assert_eq!(seen.warnings, Vec::<String>::new());

    let token = term.token();
    term.resign().await;
    let next = bob.wait_for_leadership_within(PATIENT).await.unwrap();
    assert!(next.token() > token && !ada.is_leader());
    // A majority is enough for a term: the third node may hear of it later.
    testkit::wait_until("the second node to have the term", PATIENT, || {
        nodes.holder_at(1) == bob.id().as_str()
    });
}

#[tokio::test]
async fn a_node_of_another_authority_is_told_as_one_that_is_missing() {
    let (authority, stranger) = (Certificates::issue(), Certificates::issue());
    let nodes = Encrypted::start([&authority, &stranger, &authority], &authority);
    let tenure = Tenure::connect(&nodes.url()).await.unwrap();
    let mut builder = tenure.election("job").ttl(TTL).fresh_store(true);
    let mut events = builder.events();
    let election = builder.start().await.unwrap();
    let term = election.wait_for_leadership_within(PATIENT).await.unwrap();
    assert!(term.renew().await);
    let warned = async {
        loop {
            let event = events.next().await.unwrap().unwrap();
            if let EventKind::Warning(text) = &event.kind {
                return text.clone();
            }
        }
    };
    let text = tokio::time::timeout(PATIENT, warned).await.expect("a warning comes");
    let parts = [
        &format!("node rediss://{}/0 cannot be used", nodes.place(1)),
        "one more would leave no leader",
        "not accepted",
        "?ca=FILE",
    ];
    for part in parts {
        assert!(text.contains(part), "{text:?} should say {part:?}");
    }
    let looked = tenure.observe("job").unwrap().look().await.unwrap();
    assert!(looked.warnings.contains(&text), "{:?}", looked.warnings);
    assert_eq!(nodes.holder_at(1), "", "it holds nothing");
}

#[tokio::test]
async fn two_nodes_of_another_authority_are_an_error_that_names_them() {
    let (authority, stranger) = (Certificates::issue(), Certificates::issue());
    let nodes = Encrypted::start([&stranger, &authority, &stranger], &authority);
    let builder = Tenure::builder().store(&nodes.url()).ttl(TTL).fresh_store(true);
    let tenure = builder.connect().await.unwrap();
    let error = tenure.try_acquire("job").await.unwrap_err();
    assert!(
        matches!(&error, Error::Store(why) if why.kind() == StoreErrorKind::Denied),
        "{error:?}"
    );
    let text = error.to_string();
    for part in [&nodes.place(0), &nodes.place(2), "2 must", "not accepted", "?ca=FILE"] {
        assert!(text.contains(part), "{text:?} should say {part:?}");
    }
    assert!(!text.contains(&nodes.place(1)), "{text}");
    let Connection::Down(down) = tenure.connection() else { panic!("it is down") };
    assert_eq!(down.kind(), StoreErrorKind::Denied, "{down:?}");
}

async fn refusal(hosts: &str) -> String {
    let error = Tenure::connect(&format!("redis+quorum://{hosts}")).await.unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{hosts}: {error:?}");
    error.to_string()
}

#[tokio::test]
async fn what_cannot_be_a_node_is_refused_by_name_and_with_what_to_do() {
    let servers: Vec<_> = (0..4).map(|_| RedisServer::start()).collect();
    let at = |node: usize| format!("127.0.0.1:{}", servers[node].port());
    let (a, b, c, d) = (at(0), at(1), at(2), at(3));
    let again = format!("localhost:{}", servers[0].port());
    let replica = RedisServer::start();
    replica.cli(&["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]);
    let replica = format!("127.0.0.1:{}", replica.port());
    let cluster = RedisServer::builder().args(["--cluster-enabled", "yes"]).start();
    let cluster = format!("127.0.0.1:{}", cluster.port());
    let group = SentinelGroup::start(1);
    let sentinel = group.hosts().split(',').next().unwrap().to_owned();
    let cases: [(String, [&str; 3]); 7] = [
        (format!("{a},{b},{sentinel}"), [&sentinel, "is a sentinel", "name the port of a server"]),
        (format!("{a},{b},{replica}"), [&replica, "is a replica", "name its primary"]),
        (format!("{a},{cluster},{b}"), [&cluster, "part of a cluster", "stand alone"]),
        (format!("{a},{b},{again}"), [&a, &again, "the same server under two names"]),
        (format!("{a},{b},{a}"), [&a, "is given twice", "name each node once"]),
        (format!("{a},{b},{c},{d}"), ["4 nodes", "an even number", "one more or one fewer"]),
        (a.clone(), ["1 node is too few", "three or more", "a machine of its own"]),
    ];
    for (hosts, parts) in cases {
        let text = refusal(&hosts).await;
        for part in parts {
            assert!(text.contains(part), "{hosts}: {text:?} should say {part:?}");
        }
    }
}

#[tokio::test]
async fn a_node_that_comes_back_as_a_replica_does_not_count() {
    let mut servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let places: Vec<_> =
        servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    servers[2].kill();
    let url = format!("redis+quorum://{}", places.join(","));
    let tenure = Tenure::connect(&url).await.unwrap();
    let election = tenure.election("job").ttl(TTL).fresh_store(true).start().await.unwrap();
    let term = election.wait_for_leadership_within(PATIENT).await.unwrap();
    let master = servers[0].port().to_string();
    servers[2].restart_with(["--replicaof", "127.0.0.1", &master]);

    let look = async {
        loop {
            let seen = tenure.observe("job").unwrap().look().await.unwrap();
            let is_told = |text: &&String| text.contains("cannot count");
            if let Some(warning) = seen.warnings.iter().find(is_told) {
                return warning.clone();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let warning = tokio::time::timeout(PATIENT, look).await.expect("it is told");
    assert!(warning.contains(&places[2]), "{warning}");
    assert!(term.is_valid() && term.renew().await);
    // Whoever starts now is told at once.
    let error = QuorumBackend::open(&url).await.unwrap_err().to_string();
    assert!(error.contains(&format!("{}/0 is a replica", places[2])), "{error}");
}
