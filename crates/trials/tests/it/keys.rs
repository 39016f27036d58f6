//! Where an election lies in the store, and how to read it there with redis-cli.

use std::sync::Arc;
use std::time::Duration;

use tenure::backend::Backend;
use tenure::backend::redis::RedisBackend;
use tenure::config::{Config, Format, Loader};
use tenure::{OnceOutcome, Tenure, Tick};
use testkit::{GENEROUS, RedisServer, wait_until};

use crate::player::{join, start};

const TTL: Duration = Duration::from_secs(20);

fn config(text: &str) -> Config {
    Loader::new().text(Format::Toml, "tenure.toml", text).load().unwrap()
}

#[tokio::test]
async fn who_leads_and_for_how_long_is_readable_as_the_guarantees_page_says() {
    let server = RedisServer::start();
    let mut leader = join(&server.url(), "web-1", TTL).await;
    let token = leader.leads().await.to_string();
    let mut standby = join(&server.url(), "web-2", TTL).await;
    standby.fails("held").await;
    let id = leader.election.id().as_str();

    assert_eq!(server.cli(&["GET", "tenure:job"]), id);
    let left: u128 = server.cli(&["PTTL", "tenure:job"]).parse().unwrap();
    assert!(left > 0 && left <= TTL.as_millis(), "{left}");
    let meta = server.cli(&["HGETALL", "{tenure:job}:meta"]);
    let lines: Vec<&str> = meta.lines().collect();
    let field = |name: &str| lines[lines.iter().position(|line| *line == name).unwrap() + 1];
    assert_eq!((field("holder"), field("token"), field("v")), (id, token.as_str(), "1"));
    for moment in ["granted_at", "expires_at"] {
        assert_eq!(field(moment).len(), 16, "{moment} is in µs: {meta}");
    }
    let beat: u64 = server.cli(&["ZSCORE", "{tenure:job}:beats", id]).parse().unwrap();
    let server_seconds: u64 = server.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    assert!(beat / 1000 <= server_seconds && beat / 1000 + 60 > server_seconds, "{beat}");
    let history = server.cli(&["XREVRANGE", "{tenure:job}:history", "+", "-", "COUNT", "1"]);
    assert!(history.contains("granted") && history.contains(&token), "{history}");
    assert_eq!(server.cli(&["PUBSUB", "CHANNELS"]), "{tenure:job}:events");
}

#[tokio::test]
async fn the_keys_of_the_guarantees_page_are_those_in_the_store() {
    let server = RedisServer::start();
    let tenure = Tenure::builder().store(&server.url()).fresh_store(true).connect().await.unwrap();
    for tick in [Tick::number(1), Tick::named("ID")] {
        let once = tenure.once("nightly", tick, |_| async { Ok::<_, String>(()) }).await;
        assert_eq!(once.unwrap(), OnceOutcome::Ran(Ok(())));
    }
    let mut leader = start(tenure.election("nightly").fresh_store(true)).await;
    leader.leads().await;

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guarantees.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.starts_with('|') && line.contains("tenure:nightly"));
    let mut documented: Vec<(String, String)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
        })
        .filter(|(_, kind)| kind != "channel")
        .collect();
    assert!(documented.len() >= 5, "{documented:?}");
    for (key, kind) in &documented {
        let found = server.cli(&["TYPE", key]).replace("zset", "sorted set");
        assert_eq!(kind.split(" with").next(), Some(found.as_str()), "{key}");
    }
    let mut present: Vec<String> = server.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
    present.sort();
    documented.sort();
    assert_eq!(present, documented.into_iter().map(|(key, _)| key).collect::<Vec<_>>());
}

#[tokio::test]
async fn prefix_and_whole_key_are_settable_in_the_program_and_in_the_configuration() {
    let server = RedisServer::start();
    let builder = Tenure::builder().store(&server.url()).prefix("team-a:").fresh_store(true);
    let tenure = builder.connect().await.unwrap();
    let configured = Tenure::from_config(config(&format!(
        "store = '{}'\nprefix = 'team-b:'\n[defaults]\nfresh_store = true\n\
         [elections.reports]\nkey = 'leader:{{reports}}'",
        server.url()
    )));
    let configured = configured.await.unwrap();
    let elections = [
        (tenure.election("job"), "team-a:job", "{team-a:job}:meta"),
        (tenure.election("old").key("leader:old"), "leader:old", "{leader:old}:meta"),
        (configured.election("job"), "team-b:job", "{team-b:job}:meta"),
        (configured.election("reports"), "leader:{reports}", "leader:{reports}:meta"),
    ];
    let mut players = Vec::new();
    for (builder, key, meta) in elections {
        let mut player = start(builder).await;
        let token = player.leads().await.to_string();
        assert_eq!(server.cli(&["GET", key]), player.election.id().as_str());
        assert_eq!(server.cli(&["HGET", meta, "token"]), token);
        players.push(player);
    }
    let seen = configured.observe("reports").unwrap().leader().await.unwrap();
    assert!(seen.leader().is_some(), "who looks on knows the key from the configuration, too");
    let foreign = server.cli(&["--scan", "--pattern", "tenure:*"]);
    assert_eq!(foreign, "", "nothing under the default prefix");
}

/// A backend of somebody else: here it is a Redis one in disguise, so that the rest is real.
fn twin(address: String) -> tenure::backend::Connecting {
    Box::pin(async move {
        let inner = address.replacen("twin:", "redis:", 1);
        let backend: Arc<dyn Backend> = Arc::new(RedisBackend::open(&inner)?);
        Ok(backend)
    })
}

#[tokio::test]
async fn a_third_partys_backend_is_chosen_by_the_configuration_alone() {
    let server = RedisServer::start();
    let text = |store: &str| format!("store = '{store}'\n[defaults]\nfresh_store = true");
    let connect = async |store: &str| {
        Tenure::builder().scheme("twin", twin).config(config(&text(store))).connect().await
    };
    let ours = connect(&server.url()).await.unwrap();
    let theirs = connect(&server.url().replacen("redis:", "twin:", 1)).await.unwrap();
    let mut leader = start(ours.election("job")).await;
    leader.leads().await;
    let mut standby = start(theirs.election("job")).await;
    standby.fails("held").await;
    leader.election.stop().await;
    standby.leads().await;

    let error = connect("carrier-pigeon://roof").await.unwrap_err();
    assert!(error.to_string().contains("carrier-pigeon"), "{error}");
}

#[tokio::test]
async fn five_hundred_elections_share_two_connections() {
    let server = RedisServer::start();
    let builder = Tenure::builder().store(&server.url()).ttl(TTL).fresh_store(true);
    let tenure = builder.connect().await.unwrap();
    let mut elections = Vec::new();
    for index in 0..500 {
        elections.push(tenure.election(&format!("job-{index}")).start().await.unwrap());
    }
    wait_until("all to lead", GENEROUS, || elections.iter().all(|election| election.is_leader()));
    let clients = server.cli(&["CLIENT", "LIST"]);
    // The third is the one that asks.
    assert_eq!(clients.lines().count(), 3, "{clients}");

    tenure.shutdown().await;
    assert_eq!(server.cli(&["--scan", "--pattern", "tenure:job-*"]), "", "all were given back");
}
