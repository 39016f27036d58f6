//! The heartbeat that Sovereign's instances look for beside the leader key, kept when asked for.

use std::time::{Duration, SystemTime};

use tenure::Tenure;
use tenure::config::{Format, Loader};
use testkit::{GENEROUS, RedisServer, wait_until};

use crate::player::{Player, start};

const TTL: Duration = Duration::from_secs(2);
const KEY: &str = "app:leader";
const PREFIX: &str = "app:heartbeat:";

async fn join(server: &RedisServer, name: &str) -> Player {
    let tenure = Tenure::builder().instance(name).store(&server.url()).connect().await.unwrap();
    let election = tenure.election("job").key(KEY).ttl(TTL).fresh_store(true);
    start(election.heartbeat_prefix(PREFIX)).await
}

/// The keys of all heartbeats there are.
fn heartbeats(server: &RedisServer) -> String {
    server.cli(&["KEYS", &format!("{PREFIX}*")])
}

fn key_of(player: &Player) -> String {
    format!("{PREFIX}{}", player.election.id())
}

/// How a Sovereign instance with this lease judges the leader: by the age of its heartbeat, on its
/// own wall clock. `None` when it would try to take over.
fn judged_alive(server: &RedisServer, ttl: Duration) -> Option<String> {
    let leader = Some(server.cli(&["GET", KEY])).filter(|id| !id.is_empty())?;
    let beaten_at: u128 = server.cli(&["GET", &format!("{PREFIX}{leader}")]).parse().ok()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let is_fresh = now.saturating_sub(beaten_at) <= (ttl + Duration::from_secs(5)).as_millis();
    is_fresh.then_some(leader)
}

#[tokio::test]
async fn a_leader_and_nobody_else_keeps_the_heartbeat_that_older_instances_look_for() {
    let server = RedisServer::start();
    let mut leader = join(&server, "leader").await;
    leader.leads().await;
    let mut standby = join(&server, "standby").await;
    standby.fails("held").await;
    wait_until("the first heartbeat", GENEROUS, || heartbeats(&server) == key_of(&leader));
    assert_eq!(judged_alive(&server, TTL), Some(leader.election.id().to_string()));
    let lives: u128 = server.cli(&["PTTL", &key_of(&leader)]).parse().unwrap();
    assert!(lives > TTL.as_millis(), "it ends with the lease already: {lives} ms");

    let before = server.cli(&["GET", &key_of(&leader)]);
    leader.renews().await;
    leader.renews().await;
    wait_until("a later heartbeat", GENEROUS, || server.cli(&["GET", &key_of(&leader)]) > before);

    leader.election.hand_over("standby").await.unwrap();
    standby.leads().await;
    wait_until("the successor's alone", GENEROUS, || heartbeats(&server) == key_of(&standby));
    assert_eq!(judged_alive(&server, TTL), Some(standby.election.id().to_string()));

    leader.election.stop().await;
    standby.election.stop().await;
    assert_eq!(heartbeats(&server), "", "nobody leads, nobody beats");
}

#[tokio::test]
async fn whoever_lost_its_key_to_another_program_beats_no_more() {
    let server = RedisServer::start();
    let mut leader = join(&server, "leader").await;
    leader.leads().await;
    wait_until("the first heartbeat", GENEROUS, || heartbeats(&server) == key_of(&leader));

    server.cli(&["SET", KEY, "sovereign-7", "EX", "30"]);
    assert_eq!(leader.loses().await.code(), "taken-by-other");
    wait_until("the heartbeat to be taken back", GENEROUS, || heartbeats(&server).is_empty());
    assert_eq!(server.cli(&["GET", KEY]), "sovereign-7");
}

#[tokio::test]
async fn a_heartbeat_that_may_not_be_written_costs_a_warning_and_nothing_else() {
    let acl =
        "user default on nopass ~* &* +@all\nuser app on >secret ~app:leader* ~{app:* &* +@all";
    let server = RedisServer::builder().acl(acl).start();
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let tenure = Tenure::connect(&url).await.unwrap();
    let election = tenure.election("job").key(KEY).ttl(TTL).fresh_store(true);
    let mut leader = start(election.heartbeat_prefix(PREFIX)).await;
    let warning = leader.warned().await;
    assert!(warning.starts_with("heartbeat key:") && warning.contains("NOPERM"), "{warning}");
    leader.renews().await;
    assert!(leader.election.is_leader());
    assert_eq!(heartbeats(&server), "");
}

#[tokio::test]
async fn the_configuration_switches_it_on_and_without_it_there_is_no_such_key() {
    let server = RedisServer::start();
    let text = format!(
        "store = '{}'\n[defaults]\nfresh_store = true\n\
         [elections.old]\nkey = '{KEY}'\nheartbeat_prefix = '{PREFIX}'",
        server.url()
    );
    let config = Loader::new().text(Format::Toml, "tenure.toml", &text).load().unwrap();
    let tenure = Tenure::from_config(config).await.unwrap();
    let mut plain = start(tenure.election("plain").ttl(TTL)).await;
    plain.leads().await;
    plain.renews().await;
    assert_eq!(server.cli(&["KEYS", "*heartbeat*"]), "");

    let mut old = start(tenure.election("old")).await;
    old.leads().await;
    wait_until("the heartbeat", GENEROUS, || heartbeats(&server) == key_of(&old));

    let empty = "[elections.old]\nheartbeat_prefix = ''";
    let error = Loader::new().text(Format::Toml, "tenure.toml", empty).load().unwrap_err();
    assert!(error.to_string().contains("elections.old.heartbeat_prefix"), "{error}");
}
