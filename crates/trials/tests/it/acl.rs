//! The user of docs/acl.md: enough for everything, and nothing that is not needed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tenure::fence::FencedValue;
use tenure::{Error, EventKind, StoreErrorKind, Tenure, Tick};
use testkit::{GENEROUS, RedisServer, SentinelGroup, wait_until};

use crate::player::{Player, start};

const PASSWORD: &str = "a-password";
const TTL: Duration = Duration::from_secs(1);

fn repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// The rules of the user on the page, without its name.
fn documented() -> String {
    let page = std::fs::read_to_string(repository("docs/acl.md")).unwrap();
    let line = page.lines().find(|line| line.starts_with("user app ")).unwrap();
    line.strip_prefix("user app on >PASSWORD ").unwrap().to_owned()
}

fn server_with(rules: &str) -> (RedisServer, String) {
    let acl = format!(
        "user default off\nuser admin on >admin allcommands allkeys allchannels\n\
         user app on >{PASSWORD} {rules}"
    );
    let server = RedisServer::builder().acl(&acl).login("admin", "admin").start();
    let url = format!("redis://app:{PASSWORD}@127.0.0.1:{}", server.port());
    (server, url)
}

async fn join(url: &str, name: &str) -> Player {
    let tenure = Tenure::builder().instance(name).store(url).connect().await.unwrap();
    start(tenure.election("job").ttl(TTL).fresh_store(true)).await
}

#[tokio::test]
async fn the_user_of_the_page_may_do_all_that_there_is() {
    let (server, url) = server_with(&format!("{} ~report ~{{report}}:fence", documented()));
    let mut ada = join(&url, "ada").await;
    ada.leads().await;
    let mut bob = join(&url, "bob").await;
    bob.fails("held").await;
    let operator =
        Tenure::builder().store(&url).ttl(TTL).fresh_store(true).connect().await.unwrap();
    ada.election.hand_over("bob").await.unwrap();
    let token = bob.leads().await;
    assert!(operator.observe("job").unwrap().ask_to_resign().await.unwrap().is_done());
    ada.leads().await;
    operator.observe("job").unwrap().pause(GENEROUS).await.unwrap();
    operator.observe("job").unwrap().resume().await.unwrap();
    let observer = operator.observe("job").unwrap();
    assert_eq!(observer.look().await.unwrap().warnings, Vec::<String>::new());
    assert!(!observer.history(10).await.unwrap().is_empty());
    observer.changes().await.unwrap().next().await.unwrap();
    ada.election.stop().await;
    bob.election.stop().await;
    operator.observe("job").unwrap().force_clear("a test").await.unwrap();
    for tick in [Tick::number(1), Tick::number(2), Tick::named("migration"), Tick::every(TTL)] {
        let job = operator.job("ticks").tick(tick).wait_for_outcome(GENEROUS);
        assert!(job.run(|_| async { Ok::<_, String>(()) }).await.unwrap().ran().is_some());
    }
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let token = tenure::Token::new(token).unwrap();
    FencedValue::new("report").unwrap().set(&mut connection, token, b"x", None).await.unwrap();

    assert_eq!(server.cli(&["ACL", "LOG"]), "", "something was denied");
    for player in [&mut ada, &mut bob] {
        while let Some(event) = player.events.try_next() {
            let kind = &event.unwrap().kind;
            assert!(!matches!(kind, EventKind::Warning(_)), "{kind:?}");
        }
    }
}

#[test]
fn the_page_lists_what_the_scripts_call_and_nothing_else() {
    let commands = RedisServer::start().cli(&["COMMAND", "LIST"]);
    let commands: BTreeSet<&str> = commands.lines().collect();
    let mut called: BTreeSet<String> =
        ["eval", "evalsha", "subscribe", "unsubscribe"].map(str::to_owned).into();
    for script in std::fs::read_dir(repository("crates/tenure-redis/src/scripts")).unwrap() {
        let script = std::fs::read_to_string(script.unwrap().path()).unwrap();
        // Commands stand there in quotes and capitals; so do some of their options.
        let lines = script.lines().map(|line| line.split("--").next().unwrap_or_default());
        let script = lines.collect::<Vec<_>>().join("\n");
        let words = script.split('\'').skip(1).step_by(2);
        let words =
            words.filter(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()));
        called.extend(words.map(str::to_lowercase).filter(|word| commands.contains(word.as_str())));
    }
    // Called in a cluster only, and granted in the page's row for clusters.
    assert!(called.remove("spublish"));
    let rules = documented();
    let granted: BTreeSet<String> =
        rules.split(' ').filter_map(|rule| rule.strip_prefix('+')).map(str::to_owned).collect();
    assert_eq!(granted, called);
    let reference = repository("crates/tenure-redis/src/lib.rs");
    let reference = std::fs::read_to_string(reference).unwrap().replace("\n//!", "");
    assert!(reference.contains(&rules), "the reference of the backend differs from the page");
}

#[tokio::test]
async fn a_database_needs_select_as_the_page_says() {
    let (_server, url) = server_with(&documented());
    let five = format!("{url}/5");
    let builder = Tenure::builder().store(&five).ttl(TTL).fresh_store(true);
    let error = builder.connect().await.unwrap().try_acquire("job").await.unwrap_err();
    assert!(
        matches!(&error, Error::Store(why) if why.kind() == StoreErrorKind::Denied),
        "{error:?}"
    );
    assert!(error.to_string().contains("docs/acl.md"), "{error} does not say where to look");
    let (server, url) = server_with(&format!("{} +select", documented()));
    let builder = Tenure::builder().store(&format!("{url}/5")).ttl(TTL).fresh_store(true);
    let term = builder.connect().await.unwrap().try_acquire("job").await.unwrap().unwrap();
    assert_eq!(server.cli(&["-n", "5", "EXISTS", "tenure:job"]), "1");
    drop(term);
}

#[tokio::test]
async fn strict_needs_wait_as_the_page_says() {
    let page = std::fs::read_to_string(repository("docs/acl.md")).unwrap();
    let more = page.lines().find_map(|line| line.strip_prefix("| `mode=strict` | `")).unwrap();
    let more = more.split('`').next().unwrap();
    for (rules, is_enough) in [(format!("{} {more}", documented()), true), (documented(), false)] {
        let (server, url) = server_with(&rules);
        let port = server.port().to_string();
        let replica = RedisServer::builder()
            .args(["--replicaof", "127.0.0.1", &port, "--masteruser", "admin"])
            .args(["--masterauth", "admin"])
            .start();
        wait_until("the replica to be in step", GENEROUS, || {
            replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
        });
        let url = format!("{url}/0?mode=strict&replicas=1");
        let builder = Tenure::builder().store(&url).ttl(TTL).fresh_store(true);
        let held = builder.connect().await.unwrap().try_acquire("job").await;
        match held {
            Ok(term) => assert!(is_enough && term.is_some(), "granted without WAIT"),
            Err(error) => {
                assert!(
                    !is_enough
                        && matches!(&error, Error::Store(why) if why.kind() == StoreErrorKind::Denied)
                );
                assert!(error.to_string().contains("docs/acl.md"), "{error} gives no next step");
            }
        }
    }
}

#[tokio::test]
async fn the_sentinel_user_of_the_page_is_enough() {
    let page = std::fs::read_to_string(repository("docs/acl.md")).unwrap();
    let rules = page.lines().find_map(|line| line.strip_prefix("user app on >PASSWORD reset"));
    let rules: Vec<String> = rules.unwrap().split(' ').map(str::to_owned).collect();
    let group = SentinelGroup::start(1);
    for sentinel in &group.sentinels {
        let mut words = vec!["ACL", "SETUSER", "app", "reset", "on", ">a-password"];
        words.extend(rules.iter().skip(1).map(String::as_str));
        assert_eq!(sentinel.cli(&words), "OK");
    }
    let url = format!("{}?sentinel_user=app&sentinel_password={PASSWORD}", group.url());
    let mut ada = join(&url, "ada").await;
    let before = ada.leads().await;
    assert_eq!(group.sentinels[0].cli(&["SENTINEL", "FAILOVER", SentinelGroup::MASTER]), "OK");
    group.wait_for_another_master(0);
    let after = ada.leads().await;
    assert!(after > before, "{after} is not above {before}");
    for sentinel in &group.sentinels {
        assert_eq!(sentinel.cli(&["ACL", "LOG"]), "", "something was denied");
    }
}

#[tokio::test]
async fn without_the_lease_commands_or_the_keys_every_call_says_so() {
    let rules = documented();
    for missing in [rules.replace(" +set ", " "), rules.replace("~tenure:*", "~other:*")] {
        let (server, url) = server_with(&missing);
        let builder = Tenure::builder().store(&url).ttl(TTL).fresh_store(true);
        let tenure = builder.connect().await.unwrap();
        let error = tenure.try_acquire("job").await.unwrap_err();
        assert!(
            matches!(&error, Error::Store(why) if why.kind() == StoreErrorKind::Denied),
            "{error:?}"
        );
        assert!(error.to_string().contains("docs/acl.md"), "{error} does not say where to look");
        assert_eq!(server.cli(&["EXISTS", "tenure:job"]), "0");
    }
}

#[tokio::test]
async fn without_messages_standbys_wake_by_their_timers() {
    let rules = documented().replace(" +subscribe", "").replace(" +publish", "");
    let (server, url) = server_with(&rules);
    let mut leader = join(&url, "leader").await;
    leader.leads().await;
    let mut standby = join(&url, "standby").await;
    standby.fails("held").await;
    leader.election.stop().await;
    standby.leads().await;
    // And after a death as well: nobody says anything then.
    server.cli(&["SET", "tenure:job", "dead", "PX", "500"]);
    standby.loses().await;
    standby.leads().await;
    assert!(server.cli(&["ACL", "LOG"]).contains("subscribe"), "it was meant to be denied");
}

#[tokio::test]
async fn other_prefixes_and_whole_keys_need_the_patterns_of_the_page() {
    let page = std::fs::read_to_string(repository("docs/acl.md")).unwrap();
    let cases = [
        ("app:job", "~app:* ~{app:* &{app:*"),
        ("leader:nightly", "~leader:nightly ~{leader:nightly}:* &{leader:nightly}:*"),
        ("{team}:nightly", "~{team}:nightly ~{team}:nightly:* &{team}:nightly:*"),
    ];
    let rules = documented();
    let commands = rules.split_once(" +").unwrap().1;
    for (key, patterns) in cases {
        assert!(page.contains(patterns), "the page does not list {patterns}");
        let (server, url) = server_with(&format!("{patterns} +{commands}"));
        let tenure = Tenure::connect(&url).await.unwrap();
        let mut player = start(tenure.election("job").key(key).ttl(TTL).fresh_store(true)).await;
        player.leads().await;
        player.renews().await;
        player.election.stop().await;
        assert_eq!(server.cli(&["ACL", "LOG"]), "", "{key}: something was denied");
    }
}
