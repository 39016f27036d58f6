//! Clients that are made from a configuration.

use std::time::Duration;

use tenure::config::{Config, Format, Loader};
use tenure::testing::World;
use tenure::{Error, OnceOutcome, Tenure};

fn config(text: &str) -> Config {
    Loader::new().text(Format::Toml, "tenure.toml", text).load().unwrap()
}

const TEXT: &str = "
prefix = 'app:'
instance = 'web-1'
[defaults]
ttl = '5s'
priority = 1
fresh_store = true
[defaults.metadata]
zone = 'eu'
[elections.reports]
ttl = '20s'
priority = 7
key = 'jobs/reports'
version = '1.2'
[elections.alone]
enabled = false
";

#[tokio::test]
async fn each_election_gets_what_the_configuration_says_of_it() {
    let world = World::new();
    let tenure = world.builder("ada").config(config(TEXT)).connect().await.unwrap();
    assert_eq!(tenure.id().name(), "web-1");
    let reports = tenure.election("reports").start().await.unwrap();
    let others = tenure.election("others").start().await.unwrap();
    world.settle().await;
    world.advance(Duration::from_secs(1)).await;

    assert_eq!(reports.resource().key(), "jobs/reports");
    assert_eq!(others.resource().key(), "app:others");
    let records = |members: Vec<tenure_core::protocol::Member>| members[0].record.clone();
    let of_reports = records(tenure.observe("reports").unwrap().members().await.unwrap());
    let of_others = records(tenure.observe("others").unwrap().members().await.unwrap());
    assert_eq!((of_reports.priority, of_reports.ttl), (7, Duration::from_secs(20)));
    assert_eq!((of_others.priority, of_others.ttl), (1, Duration::from_secs(5)));
    assert_eq!(of_reports.version, "1.2");
    assert_eq!(of_reports.metadata["zone"], "eu");
}

#[tokio::test]
async fn what_the_program_sets_outranks_the_configuration() {
    let world = World::new();
    let builder = world.builder("ada").config(config(TEXT)).ttl(Duration::from_secs(7));
    let tenure = builder.connect().await.unwrap();
    let election = tenure.election("reports").priority(9).key("other-key").start().await.unwrap();
    let _others = tenure.election("others").start().await.unwrap();
    world.settle().await;
    world.advance(Duration::from_secs(1)).await;
    assert_eq!(election.resource().key(), "other-key");
    let members = tenure.observe_key("reports", "other-key").unwrap().members().await.unwrap();
    assert_eq!(members[0].record.priority, 9);
    let members = tenure.observe("others").unwrap().members().await.unwrap();
    assert_eq!(members[0].record.ttl, Duration::from_secs(7));
}

#[tokio::test]
async fn a_resource_switched_off_is_led_at_once_and_without_the_store() {
    let world = World::new();
    let tenure = world.builder("ada").config(config(TEXT)).connect().await.unwrap();
    world.cut_off_everybody();
    let alone = tenure.election("alone").start().await.unwrap();
    let others = tenure.election("others").start().await.unwrap();
    world.run_until(|| alone.is_leader()).await;
    assert!(!others.is_leader());
    assert!(!alone.status().enabled && others.status().enabled);
    alone.stop().await;
    let job = tenure.job("alone").run(|_| async { Ok::<_, Error>(5) });
    let ran = world.advance_while(job).await;
    assert_eq!(ran, Ok(OnceOutcome::Ran(Ok(5))), "a job needs no store either");
}

#[tokio::test]
async fn switched_off_as_a_whole_no_store_is_needed() {
    let tenure = Tenure::from_config(config("enabled = false")).await.unwrap();
    let election = tenure.election("any").start().await.unwrap();
    election.wait_for_leadership().await.unwrap();
    tenure.shutdown().await;
}

#[tokio::test]
async fn a_configuration_without_a_store_says_where_to_name_one() {
    let error = Tenure::from_config(Config::default()).await.unwrap_err().to_string();
    assert!(error.contains("TENURE_STORE"), "{error}");
    let error = Tenure::from_file("/nowhere/tenure.toml").await.unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
}

#[tokio::test]
async fn a_real_store_is_reached_by_url_by_parts_and_through_a_file() {
    let server = testkit::RedisServer::builder().password("c4nary").start();
    let folder = testkit::TempFolder::create();
    let _beside_the_configuration = folder.write("password", "c4nary\n");
    let port = server.port();
    let store =
        format!("store = {{ host = '127.0.0.1', port = {port}, password_file = 'password' }}");
    let file = folder.write("tenure.toml", &format!("{store}\ndefaults.fresh_store = true\n"));
    let by_url = format!("store = '{}'\ndefaults.fresh_store = true", server.url());
    let by_url = Tenure::from_config(config(&by_url)).await.unwrap();
    let by_parts = Tenure::from_file(file).await.unwrap();

    let election = by_url.election("reports").start().await.unwrap();
    election.wait_for_leadership_within(testkit::GENEROUS).await.unwrap();
    let leader = by_parts.observe("reports").unwrap().leader().await.unwrap();
    assert_eq!(leader.leader().map(|leader| leader.id.clone()).as_ref(), Some(by_url.id()));
    for shown in [format!("{by_url:?} {}", by_url.store()), format!("{by_parts:?}")] {
        assert!(!shown.contains("c4nary"), "{shown}");
    }
    by_url.shutdown().await;
}
