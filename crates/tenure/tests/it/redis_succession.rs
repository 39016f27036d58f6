//! Asking a leader to give way, on real servers: whoever asked is told who leads since.

use std::time::{Duration, Instant};

use store_server::Server;
use tenure::{AskOutcome, Election, Observer, Tenure};
use testkit::RedisServer;

/// A lease that a busy machine renews in time.
const STEADY: Duration = Duration::from_secs(3);
/// What must come does so within this, on a machine that is busy.
const PATIENT: Duration = Duration::from_secs(30);
/// How often the leadership goes there and back.
const ROUNDS: usize = 20;

async fn contender(url: &str, name: &str) -> (Tenure, Election) {
    let tenure = Tenure::builder().instance(name).store(url).connect().await.unwrap();
    let election = tenure.election("job").ttl(STEADY).fresh_store(true).start().await.unwrap();
    (tenure, election)
}

/// A leader called ada and a standby called bob, who know of each other.
struct Pair {
    _ada: (Tenure, Election),
    _bob: (Tenure, Election),
    operator: Tenure,
}

impl Pair {
    async fn on(url: &str) -> Self {
        let ada = contender(url, "ada").await;
        ada.1.wait_for_leadership_within(PATIENT).await.unwrap();
        let bob = contender(url, "bob").await;
        let operator = Tenure::connect(url).await.unwrap();
        wait_for_members(&operator.observe("job").unwrap(), 2).await;
        Pair { _ada: ada, _bob: bob, operator }
    }

    async fn leader(&self) -> Option<String> {
        let leadership = self.operator.observe("job").unwrap().leader().await.unwrap();
        leadership.leader().map(|leader| leader.id.name().to_owned())
    }
}

async fn wait_for_members(observer: &Observer, count: usize) {
    let begun = Instant::now();
    while observer.members().await.unwrap().len() != count {
        assert!(begun.elapsed() < PATIENT, "there are never {count} members");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn quorum_of(ports: impl Iterator<Item = u16>) -> String {
    let hosts: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+quorum://{}", hosts.join(","))
}

/// What was told, and not what is so by the time that somebody looks.
fn told(asked: &AskOutcome) -> Option<&str> {
    match asked {
        AskOutcome::Done { leader: Some(leader) } => Some(leader.id.name()),
        _ => None,
    }
}

async fn every_hand_over_is_done_when_the_successor_leads(url: &str) {
    let pair = Pair::on(url).await;
    for round in 0..ROUNDS {
        for to in ["bob", "ada"] {
            let asked = pair.operator.observe("job").unwrap().ask_to_hand_over(to).await.unwrap();
            assert_eq!(told(&asked), Some(to), "round {round} on {url}: {asked:?}");
            assert_eq!(pair.leader().await.as_deref(), Some(to), "round {round} on {url}");
        }
    }
}

async fn every_resignation_tells_who_leads_next(url: &str) {
    let pair = Pair::on(url).await;
    for round in 0..ROUNDS {
        let asked = pair.operator.observe("job").unwrap().ask_to_resign().await.unwrap();
        assert!(told(&asked).is_some(), "round {round} on {url}: {asked:?}");
    }
}

#[tokio::test]
async fn a_hand_over_on_one_server_is_done_when_the_successor_leads() {
    every_hand_over_is_done_when_the_successor_leads(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn a_hand_over_on_a_quorum_of_servers_is_done_when_the_successor_leads() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let url = quorum_of(servers.iter().map(RedisServer::port));
    every_hand_over_is_done_when_the_successor_leads(&url).await;
}

#[tokio::test]
async fn a_hand_over_on_a_quorum_of_our_own_stores_is_done_when_the_successor_leads() {
    let stores: Vec<_> = (0..3).map(|_| Server::builder().any_port().start().unwrap()).collect();
    let url = quorum_of(stores.iter().map(|store| store.port().unwrap()));
    every_hand_over_is_done_when_the_successor_leads(&url).await;
}

#[tokio::test]
async fn a_resignation_tells_who_leads_next() {
    every_resignation_tells_who_leads_next(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn a_resignation_on_a_quorum_tells_who_leads_next() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    every_resignation_tells_who_leads_next(&quorum_of(servers.iter().map(RedisServer::port))).await;
}

#[tokio::test]
async fn nobody_is_waited_for_where_nobody_could_lead_next() {
    let server = RedisServer::start();
    let (_ada, election) = contender(&server.url(), "ada").await;
    election.wait_for_leadership_within(PATIENT).await.unwrap();
    let (_bob, standby) = contender(&server.url(), "bob").await;
    let operator = Tenure::connect(&server.url()).await.unwrap();
    wait_for_members(&operator.observe("job").unwrap(), 2).await;
    // A standby that is not ready is nobody to wait for; ada holds back before it leads again.
    standby.set_ready(false);
    let begun = Instant::now();
    while operator
        .observe("job")
        .unwrap()
        .members()
        .await
        .unwrap()
        .iter()
        .any(|member| member.id.name() == "bob" && member.record.ready)
    {
        assert!(begun.elapsed() < PATIENT, "bob is never known as not ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = operator.observe("job").unwrap().ask_to_resign().await.unwrap();
    assert_eq!(asked, AskOutcome::Done { leader: None });
}
