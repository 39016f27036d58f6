//! Elections on a majority of three independent nodes: real servers, and our own stores in their
//! place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use store_server::Server;
use tenure::backend::conformance::{self, Meddler};
use tenure::backend::{Backend, Connection, QuorumBackend};
use tenure::{Election, Error, Leadership, Tenure, Tick};
use tenure_core::protocol::{HistoryKind, Outcome, Request, Token, View};
use testkit::RedisServer;

use crate::actor::Actor;
use crate::conformance::{Commands, Everywhere, Stranger};

const TTL: Duration = Duration::from_secs(1);
/// A lease that a busy machine renews in time.
const STEADY: Duration = Duration::from_secs(3);
/// What must come does so within this, on a machine that is busy.
const PATIENT: Duration = Duration::from_secs(30);

/// A node that a test ends and starts again, empty.
trait Node: Send {
    fn port(&self) -> u16;
    fn kill(&mut self);
    fn restart(&mut self);
}

impl Node for RedisServer {
    fn port(&self) -> u16 {
        RedisServer::port(self)
    }
    fn kill(&mut self) {
        RedisServer::kill(self);
    }
    fn restart(&mut self) {
        RedisServer::restart(self);
    }
}

/// Our own store, in memory, on a thread of this process.
struct OwnStore {
    server: Option<Server>,
    port: u16,
}

impl OwnStore {
    fn start() -> Self {
        let server = Server::builder().any_port().start().unwrap();
        let port = server.port().unwrap();
        OwnStore { server: Some(server), port }
    }
}

impl Node for OwnStore {
    fn port(&self) -> u16 {
        self.port
    }
    fn kill(&mut self) {
        self.server = None;
    }
    fn restart(&mut self) {
        self.server = None;
        let port = self.port.to_string();
        let server = Server::builder().setting("port", &port).listen_as_configured().start();
        self.server = Some(server.unwrap());
    }
}

struct Nodes(Vec<Box<dyn Node>>);

impl Nodes {
    fn servers() -> Self {
        Nodes((0..3).map(|_| Box::new(RedisServer::start()) as Box<dyn Node>).collect())
    }

    fn own_stores() -> Self {
        Nodes((0..3).map(|_| Box::new(OwnStore::start()) as Box<dyn Node>).collect())
    }

    fn ports(&self) -> Vec<u16> {
        self.0.iter().map(|node| node.port()).collect()
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+quorum://{}", hosts.join(","))
    }

    async fn contender(&self, name: &str, ttl: Duration) -> (Tenure, Election) {
        let tenure = Tenure::builder().instance(name).store(&self.url()).connect().await.unwrap();
        let election = tenure.election("job").ttl(ttl).fresh_store(true).start().await.unwrap();
        (tenure, election)
    }

    /// One who leads, and one who waits. Only the first may vouch that nobody led before: a node
    /// that restarts empty would take the second one's word for it.
    async fn pair(&self, ttl: Duration) -> Pair {
        let (first, ada) = self.contender("ada", ttl).await;
        let token = ada.wait_for_leadership_within(PATIENT).await.unwrap().token();
        let second = Tenure::builder().instance("bob").store(&self.url()).connect().await.unwrap();
        let bob = second.election("job").ttl(ttl).start().await.unwrap();
        Pair { _clients: [first, second], ada, bob, token }
    }
}

struct Pair {
    _clients: [Tenure; 2],
    ada: Election,
    bob: Election,
    /// The term of the one who leads.
    token: Token,
}

impl Pair {
    fn both(&self) -> [&Election; 2] {
        [&self.ada, &self.bob]
    }
}

/// Waits for a leader with a higher token than `after`; two at once end the test.
async fn next_token(elections: [&Election; 2], after: Token) -> Token {
    let begun = Instant::now();
    loop {
        if let Some(token) = only_leader(elections).filter(|token| *token > after) {
            return token;
        }
        let reasons = elections.map(|election| election.status().reason.to_string());
        assert!(begun.elapsed() < PATIENT, "no leader after token {after}: {reasons:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn only_leader(elections: [&Election; 2]) -> Option<Token> {
    let terms: Vec<_> = elections.iter().filter_map(|election| election.term()).collect();
    let valid: Vec<_> = terms.iter().filter(|term| term.is_valid()).collect();
    assert!(valid.len() < 2, "two leaders at once: {valid:?}");
    valid.first().map(|term| term.token())
}

/// Looks on for a while: never two leaders, and with `token` never none and no other.
async fn stays_so(elections: [&Election; 2], token: Option<Token>, lasts: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < lasts {
        let leads = only_leader(elections);
        if token.is_some() {
            let reasons = elections.map(|election| election.status().reason.to_string());
            assert_eq!(leads, token, "the leader changed: {reasons:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Looks on until a node that came back empty holds the term again, so that another one may go.
/// That takes its connection, its quarantine, and the next renewal: as long as they need.
async fn stays_so_until_adopted(
    elections: [&Election; 2],
    token: Token,
    nodes: &Nodes,
    node: usize,
) {
    let leader = elections.iter().find(|election| election.is_leader()).expect("somebody leads");
    let port = Everywhere(vec![nodes.0[node].port()]);
    let begun = Instant::now();
    while port.give(&["GET", "tenure:job"]).await != leader.id().as_str() {
        stays_so(elections, Some(token), Duration::from_millis(50)).await;
        assert!(begun.elapsed() < PATIENT, "node {node} was not adopted");
    }
    println!("node {node} was adopted after {:?}", begun.elapsed());
}

async fn leader_survives_the_end_of_one_node(mut nodes: Nodes) {
    let pair = nodes.pair(STEADY).await;
    let (both, token) = (pair.both(), pair.token);
    nodes.0[1].kill();
    stays_so(both, Some(token), STEADY + TTL).await;

    nodes.0[1].restart();
    stays_so_until_adopted(both, token, &nodes, 1).await;
    nodes.0[0].kill();
    stays_so(both, Some(token), STEADY + TTL).await;
}

#[tokio::test]
async fn a_leader_survives_the_end_of_one_server() {
    leader_survives_the_end_of_one_node(Nodes::servers()).await;
}

#[tokio::test]
async fn a_leader_survives_the_end_of_one_of_our_own_stores() {
    leader_survives_the_end_of_one_node(Nodes::own_stores()).await;
}

async fn rolling_restart_keeps_the_leader(mut nodes: Nodes) {
    let pair = nodes.pair(STEADY).await;
    let (both, token) = (pair.both(), pair.token);
    for node in 0..3 {
        nodes.0[node].kill();
        stays_so(both, Some(token), TTL / 2).await;
        nodes.0[node].restart();
        stays_so_until_adopted(both, token, &nodes, node).await;
    }
}

#[tokio::test]
async fn a_rolling_restart_of_all_servers_keeps_the_leader() {
    rolling_restart_keeps_the_leader(Nodes::servers()).await;
}

#[tokio::test]
async fn a_rolling_restart_of_all_our_own_stores_keeps_the_leader() {
    rolling_restart_keeps_the_leader(Nodes::own_stores()).await;
}

#[tokio::test]
async fn restarts_in_a_hurry_cost_the_leader_but_never_make_two() {
    let mut nodes = Nodes::servers();
    let pair = nodes.pair(TTL).await;
    let (both, token) = (pair.both(), pair.token);
    for node in 0..3 {
        nodes.0[node].kill();
        nodes.0[node].restart();
        stays_so(both, None, Duration::from_millis(100)).await;
    }
    let next = next_token(both, token).await;
    assert!(next > token);
}

#[tokio::test]
async fn without_a_majority_nobody_leads_and_everyone_is_told_why() {
    let mut nodes = Nodes::servers();
    let (ada, election) = nodes.contender("ada", TTL).await;
    let term = election.wait_for_leadership_within(PATIENT).await.unwrap();
    nodes.0[0].kill();
    nodes.0[2].kill();
    tokio::time::timeout(PATIENT, term.wait_until_over()).await.expect("the lease ends");
    let token = term.token();
    drop(term);
    let begun = Instant::now();
    while begun.elapsed() < TTL * 2 {
        assert!(!election.is_leader());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let reason = election.status().reason.to_string();
    assert!(reason.contains("1 of 3 nodes"), "{reason}");
    let Connection::Down(error) = ada.connection() else { panic!("it is down") };
    let dead = format!("127.0.0.1:{}", nodes.0[2].port());
    assert!(error.to_string().contains(&dead), "{error}");

    // One more is enough.
    nodes.0[2].restart();
    let next = election.wait_for_leadership_within(PATIENT).await.unwrap();
    assert!(next.token() > token);
}

async fn release_and_hand_over_wake_the_standby(nodes: Nodes) {
    // With a lease of this length, whoever waits for its end comes too late.
    let contender = |name: &'static str| {
        let url = nodes.url();
        async move {
            let tenure = Tenure::builder().instance(name).store(&url).connect().await.unwrap();
            let election = tenure.election("job").ttl(PATIENT * 2).fresh_store(true);
            (tenure, election.start().await.unwrap())
        }
    };
    let (_ada, ada) = contender("ada").await;
    let term = ada.wait_for_leadership_within(PATIENT).await.unwrap();
    let (client, bob) = contender("bob").await;
    let (_cleo, cleo) = contender("cleo").await;
    let observer = client.observe("job").unwrap();
    while observer.members().await.unwrap().len() < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let to = term.hand_over("cleo").await.unwrap();
    assert_eq!(to, *cleo.id());
    let second = cleo.wait_for_leadership_within(PATIENT).await.unwrap().token();
    let seen = observer.leader().await.unwrap();
    assert!(
        matches!(&seen, Leadership::Led { leader, .. } if leader.token == Some(second)),
        "{seen:?}"
    );

    cleo.stop().await;
    let third = tokio::select! {
        term = ada.wait_for_leadership_within(PATIENT) => term.unwrap(),
        term = bob.wait_for_leadership_within(PATIENT) => term.unwrap(),
    };
    assert!(third.token() > second);
    let history = observer.history(10).await.unwrap();
    let granted: Vec<_> =
        history.iter().filter(|e| e.what == HistoryKind::Granted).map(|e| e.token).collect();
    assert_eq!(granted.len(), 3, "{history:?}");
}

#[tokio::test]
async fn a_release_and_a_hand_over_wake_the_standby_early() {
    release_and_hand_over_wake_the_standby(Nodes::servers()).await;
    release_and_hand_over_wake_the_standby(Nodes::own_stores()).await;
}

/// The cases whose premise does not exist in a quorum, and why.
const OTHERWISE: &[&str] = &[
    // No grant gets lost on its way back: whoever counts the nodes is the caller's own process, and
    // an attempt that it does not count as granted is undone on all of them. So nobody asks for the
    // same term again; a repeated attempt moves on to a higher number.
    "the_same_attempt_gets_the_same_term_again",
    // A number above all that the nodes know is no sign of a loss: nodes miss terms, and forget on
    // purpose the number of an attempt that no majority granted. Each node tells its own losses
    // (`a_store_that_forgot_everything_makes_everyone_wait` is not left out).
    "a_store_that_forgot_tokens_makes_everyone_wait",
    // An attempt takes two steps, and a call that is made meanwhile falls between them. The core
    // makes one call about its lease at a time; `an_attempt_abandoned_on_its_way…` shows the rest.
    "calls_take_effect_in_the_order_they_were_made",
    // A hand-over lets the successor go first: nothing is reserved, so nobody claims anything.
    "a_successor_claims_what_was_handed_over",
    "a_successor_is_not_shown_as_leading_before_it_claims",
    // A renewal puts the lease back where it was deleted: `a_deleted_key_is_put_back…` shows it.
    "a_vanished_holder_is_told_to_its_owner",
    // Ticks are refused: `a_tick_is_refused…` shows it.
    "a_finished_tick_does_not_run_again",
    "numbers_up_to_the_highest_finished_are_done",
    "a_tick_that_was_begun_and_not_finished_is_told",
    "a_failed_tick_tells_its_words",
    "ticks_run_inside_the_own_term_only",
    "the_outcome_of_a_named_tick_is_kept_for_a_while",
    "each_length_of_a_period_has_a_record_of_its_own",
    "a_period_beyond_the_present_says_nothing_about_those_before_it",
    "a_tick_that_never_started_is_open_again",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_keeps_the_contract_of_backends() {
    for nodes in [Nodes::servers(), Nodes::own_stores()] {
        let mut backends = Vec::new();
        for _ in 0..2 {
            backends.push(Arc::new(QuorumBackend::open(&nodes.url()).await.unwrap()));
        }
        let made = std::sync::Mutex::new(backends);
        let make = || made.lock().unwrap().pop().unwrap() as Arc<dyn Backend>;
        let meddler = Stranger(Everywhere(nodes.ports()));
        let report = conformance::check_with(make, meddler, OTHERWISE).await;
        report.assert_passed();
        assert!(report.skipped().is_empty() && report.passed().len() > 40, "{report}");
    }
}

/// An instance in a process of its own.
async fn actor(nodes: &Nodes, name: &str) -> Actor {
    Actor::new(name, "job", Arc::new(QuorumBackend::open(&nodes.url()).await.unwrap()))
}

async fn view(actor: &Actor) -> View {
    actor.ask(Request::Observe { members: false }).await.unwrap().view
}

#[tokio::test]
async fn an_attempt_abandoned_on_its_way_leaves_nothing_behind() {
    let nodes = Nodes::servers();
    let (ada, bob) = (actor(&nodes, "ada").await, actor(&nodes, "bob").await);
    for attempt in 1..20 {
        let abandoning = ada.ask(Request::Abandon { attempt });
        let (acquired, abandoned) = tokio::join!(ada.acquire(attempt), abandoning);
        let (acquired, abandoned) = (acquired.unwrap().outcome, abandoned.unwrap().outcome);
        assert!(matches!(abandoned, Outcome::Abandoned { .. }), "{abandoned:?}");
        // Granted only if all of it was over before.
        if let Outcome::Granted { .. } = acquired {
            assert_eq!(abandoned, Outcome::Abandoned { was_granted: true });
        }
        let holder = view(&bob).await.holder;
        assert_eq!(holder, None, "attempt {attempt} was {acquired:?}");
    }
    bob.lead(1).await;
}

#[tokio::test]
async fn a_deleted_key_is_put_back_by_the_next_renewal() {
    let nodes = Nodes::servers();
    let (ada, bob) = (actor(&nodes, "ada").await, actor(&nodes, "bob").await);
    let token = ada.lead(1).await;
    Stranger(Everywhere(nodes.ports())).remove_holder(&ada.resource).await;
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    let view = view(&bob).await;
    assert_eq!((view.holder, view.token), (Some(ada.id.clone()), Some(token)));
}

#[tokio::test]
async fn a_tick_is_refused_with_what_to_do() {
    let nodes = Nodes::servers();
    let tenure = Tenure::connect(&nodes.url()).await.unwrap();
    let ran = tenure.once("job", Tick::number(1), |_| async { Ok::<_, String>(()) }).await;
    let error = ran.unwrap_err();
    let Error::Store(error) = error else { panic!("{error:?}") };
    assert_eq!(error.kind(), tenure_core::StoreErrorKind::WrongAddress, "{error:?}");
    assert!(error.to_string().contains("ticks need one store"), "{error}");
}

#[tokio::test]
async fn each_node_may_ask_for_a_password_of_its_own() {
    let servers = ["first", "second"].map(|p| RedisServer::builder().password(p).start());
    let open = RedisServer::start();
    let (a, b, c) = (servers[0].port(), servers[1].port(), open.port());
    let url = format!("redis+quorum://:first@127.0.0.1:{a},:second@127.0.0.1:{b},127.0.0.1:{c}");
    let tenure = Tenure::connect(&url).await.unwrap();
    assert!(!tenure.store().contains("first") && !tenure.store().contains("second"));
    let election = tenure.election("job").fresh_store(true).start().await.unwrap();
    election.wait_for_leadership_within(PATIENT).await.unwrap();
    assert_eq!(servers[1].cli(&["GET", "tenure:job"]), election.id().as_str());
}
