//! A store that is a real cluster, while its slots move and its masters die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::backend::redis::RedisBackend;
use tenure::backend::{Backend, Connection, Signal, Subscription};
use tenure::fence::{FencedError, FencedValue, FencedWrite};
use tenure::{Election, Tenure, Tick};
use tenure_core::protocol::{Acquire, Call, Hint, Outcome, Request, Token};
use tenure_core::{InstanceId, Resource, StoreErrorKind};
use testkit::{Certificates, ClusterGroup, GENEROUS, RedisServer, wait_until};

use crate::actor::{Actor, PATIENT, attempt_of, is_granted};

const KEY: &str = "tenure:job";

async fn client(group: &ClusterGroup, name: &str) -> Tenure {
    Tenure::builder().instance(name).store(&group.url()).connect().await.unwrap()
}

async fn contender(tenure: &Tenure, ttl: Duration) -> Election {
    tenure.election("job").ttl(ttl).fresh_store(true).start().await.unwrap()
}

/// How often a node has answered with this error so far.
fn errors(server: &RedisServer, code: &str) -> u64 {
    let counts = server.cli(&["INFO", "errorstats"]);
    let count = counts.lines().find_map(|line| {
        line.strip_prefix("errorstat_")?.strip_prefix(code)?.strip_prefix(":count=")
    });
    count.map_or(0, |count| count.trim().parse().unwrap())
}

/// The token of whoever leads; two at once end the test.
fn leading(elections: [&Election; 2]) -> Option<Token> {
    let terms: Vec<_> = elections.iter().filter_map(|election| election.term()).collect();
    let leaders: Vec<_> = terms.iter().filter(|term| term.is_valid()).collect();
    assert!(leaders.len() < 2, "two leaders at once: {leaders:?}");
    leaders.first().map(|term| term.token())
}

/// Waits for a leader whose token `is_wanted`.
async fn leader(elections: [&Election; 2], is_wanted: impl Fn(Token) -> bool) -> Token {
    let begun = Instant::now();
    loop {
        if let Some(token) = leading(elections).filter(|token| is_wanted(*token)) {
            return token;
        }
        assert!(begun.elapsed() < GENEROUS, "nobody leads");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits on a thread of its own, so that elections on this one go on.
async fn until(what: &'static str, condition: impl FnMut() -> bool + Send + 'static) {
    let waiting = tokio::task::spawn_blocking(move || wait_until(what, GENEROUS, condition));
    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_goes_on_while_its_slot_migrates() {
    let group = Arc::new(ClusterGroup::start().steady());
    let tenure = client(&group, "ada").await;
    let election = contender(&tenure, Duration::from_secs(6)).await;
    let term = election.wait_for_leadership().await.unwrap();
    let (slot, token) = (group.slot_of(KEY), term.token());
    let from = group.owner_of(slot).unwrap();
    let to = (from + 1) % ClusterGroup::MASTERS;

    // The lease's two keys on two nodes: no renewal can be carried out anywhere.
    group.begin_migration(slot, to);
    group.migrate_key(slot, to, KEY);
    let seen = Arc::clone(&group);
    until("TRYAGAIN", move || errors(seen.server(from), "TRYAGAIN") > 0).await;
    // Both there: renewals are sent on for once, each.
    group.migrate_key(slot, to, "{tenure:job}:meta");
    let seen = Arc::clone(&group);
    until("ASK", move || errors(seen.server(from), "ASK") > 1).await;
    assert!(term.is_valid() && election.is_leader(), "the lease was renewed in between");
    let keys = group.keys_in(slot);
    keys.iter().for_each(|key| group.migrate_key(slot, to, key));
    group.finish_migration(slot, to);
    let renewed_there = term.remaining();
    until("a renewal at the new owner", {
        let election = election.clone();
        move || election.term().is_some_and(|term| term.remaining() > renewed_there)
    })
    .await;

    assert_eq!(election.term().unwrap().token(), token, "it is still the same term");
    let holder = group.server(to).cli(&["GET", KEY]);
    assert_eq!(holder, election.id().as_str());
    let moved = errors(group.server(from), "MOVED");
    assert!(term.renew().await);
    assert_eq!(errors(group.server(from), "MOVED"), moved, "it knows the new owner");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_follows_the_owner_of_the_slot() {
    let mut group = ClusterGroup::start();
    let ttl = Duration::from_secs(1);
    let (ada, bob) = (client(&group, "ada").await, client(&group, "bob").await);
    let (ada, bob) = (contender(&ada, ttl).await, contender(&bob, ttl).await);
    let first = leader([&ada, &bob], |_| true).await;
    let slot = group.slot_of(KEY);

    // On command: nothing is lost, and the old owner answers MOVED.
    let old = group.owner_of(slot).unwrap();
    let new = group.fail_over(old);
    let is_here = |token: Token| {
        let expires_in = group.server(new).cli(&["PTTL", KEY]);
        token >= first && expires_in.parse::<i64>().is_ok_and(|ms| ms > 0)
    };
    let second = leader([&ada, &bob], is_here).await;
    group.wait_until_whole();

    // By death: the cluster takes two seconds to notice, longer than the lease.
    let killed_at = Instant::now();
    group.kill(new);
    group.wait_for_another_owner(slot, new);
    let promoted_at = Instant::now();
    let third = leader([&ada, &bob], |token| token > second).await;
    let (gap, waited) = (killed_at.elapsed(), promoted_at.elapsed());
    println!("nobody led for {gap:?}, {waited:?} of it after the promotion");
    assert!(waited < 3 * ttl + Duration::from_secs(10), "{waited:?}");
    assert!(third > second && second >= first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_falls_silent_is_left_and_comes_back_as_a_replica() {
    let mut group = ClusterGroup::start();
    let ttl = Duration::from_secs(1);
    let (ada, bob) = (client(&group, "ada").await, client(&group, "bob").await);
    let (ada, bob) = (contender(&ada, ttl).await, contender(&bob, ttl).await);
    let first = leader([&ada, &bob], |_| true).await;
    let slot = group.slot_of(KEY);
    let owner = group.owner_of(slot).unwrap();

    // The connections to it stay open.
    group.pause(owner);
    let new = group.wait_for_another_owner(slot, owner);
    let second = leader([&ada, &bob], |token| token > first).await;
    group.resume(owner);
    group.wait_until_whole();

    // And takes over, though nobody agreed.
    assert_eq!(group.take_over(new), owner);
    let holds =
        |election: &Election| group.server(owner).cli(&["GET", KEY]) == election.id().as_str();
    leader([&ada, &bob], |token| token >= second && (holds(&ada) || holds(&bob))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_standby_through_the_shard() {
    let group = ClusterGroup::start().steady();
    let ttl = Duration::from_secs(60);
    let (ada, bob) = (client(&group, "ada").await, client(&group, "bob").await);
    let ada = contender(&ada, ttl).await;
    let first = ada.wait_for_leadership().await.unwrap().token();
    let bob = contender(&bob, ttl).await;
    let owner = group.owner_of(group.slot_of(KEY)).unwrap();
    wait_until("two listeners in the shard", GENEROUS, || {
        let count = group.server(owner).cli(&["PUBSUB", "SHARDNUMSUB", "{tenure:job}:events"]);
        count.lines().last() == Some("2")
    });
    assert_eq!(group.server(owner).cli(&["PUBSUB", "CHANNELS"]), "", "all of it is in the shard");

    let released_at = Instant::now();
    ada.resign().await;
    let second = leader([&ada, &bob], |token| token > first).await;
    assert!(bob.is_leader() && second > first);
    assert!(released_at.elapsed() < ttl / 2, "only a hint can have told");
}

async fn next(subscription: &mut Subscription) -> Signal {
    let signal = tokio::time::timeout(PATIENT, subscription.next()).await;
    signal.expect("a signal comes").expect("the subscription goes on")
}

fn look_at(resource: &Resource) -> Call {
    let (resource, id) = (resource.clone(), InstanceId::new("eve", 1).unwrap());
    let request = Request::Observe { members: false };
    Call { resource, id, request, timeout: PATIENT, fleet_max_ttl: Duration::ZERO }
}

async fn hear(subscription: &mut Subscription, wanted: &Signal) {
    while next(subscription).await != *wanted {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_move_with_their_slot_and_others_stay() {
    let group = ClusterGroup::start().steady();
    let backend = RedisBackend::open(&group.url()).unwrap();
    let resource = Resource::named("job").unwrap();
    let slot = group.slot_of(KEY);
    let from = group.owner_of(slot).unwrap();
    // Another channel at the same node.
    let other = (0..).map(|number| format!("other-{number}")).find(|name| {
        let slot_of = group.slot_of(&format!("tenure:{name}"));
        slot_of != slot && group.owner_of(slot_of) == Some(from)
    });
    let other = Resource::named(&other.unwrap()).unwrap();
    let mut ears = backend.subscribe(&resource);
    let mut others = backend.subscribe(&other);
    assert_eq!(next(&mut ears).await, Signal::Listening);
    assert_eq!(next(&mut others).await, Signal::Listening);

    let to = (from + 1) % ClusterGroup::MASTERS;
    group.migrate(slot, to);
    assert_eq!(next(&mut ears).await, Signal::Deaf);
    assert_eq!(next(&mut ears).await, Signal::Listening);
    let channel = "{tenure:job}:events";
    assert_eq!(group.server(to).cli(&["SPUBLISH", channel, "m"]), "1");
    assert_eq!(next(&mut ears).await, Signal::Hint(Hint::Members));
    // Whoever listens to a slot that stays hears nothing of it.
    group.server(from).cli(&["SPUBLISH", &other.side_key("events"), "p"]);
    assert_eq!(next(&mut others).await, Signal::Hint(Hint::PauseChanged));

    // A replica that takes over is where the slot's messages come from then.
    let newest = group.fail_over(to);
    backend.call(look_at(&resource)).await.unwrap();
    wait_until("the listener at the new owner", GENEROUS, || {
        let count = group.server(newest).cli(&["PUBSUB", "SHARDNUMSUB", channel]);
        count.lines().last() == Some("1")
    });
    group.server(newest).cli(&["SPUBLISH", channel, "k"]);
    hear(&mut ears, &Signal::Hint(Hint::TickFinished)).await;

    // A subscription that nobody wants is given up in the store after a while.
    drop((ears, others));
    wait_until("no subscription", GENEROUS, || {
        [from, newest]
            .iter()
            .all(|node| group.server(*node).cli(&["PUBSUB", "SHARDCHANNELS"]).is_empty())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_without_shards_publish_to_all() {
    let group = ClusterGroup::start_with(|node| {
        node.args(["--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", ""])
    });
    let ada = Actor::at(&group.url(), "job");
    let mut ears = ada.backend.subscribe(&ada.resource);
    assert_eq!(next(&mut ears).await, Signal::Listening);
    let answer = ada.acquire(1).await.unwrap();
    assert_eq!(answer.warnings, Vec::<String>::new());
    let Outcome::Granted { token } = answer.outcome else { panic!("{answer:?}") };
    ada.release(token).await.unwrap();
    hear(&mut ears, &Signal::Hint(Hint::Released { token: Some(token) })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_waits_for_the_replicas_of_the_node() {
    let mut group = ClusterGroup::start().steady();
    let url = format!("{}?mode=strict&replicas=1", group.url());
    let ada = Actor::at(&url, "job").within(Duration::from_secs(2));
    let token = ada.lead(1).await;
    let owner = group.owner_of(group.slot_of(KEY)).unwrap();
    let elsewhere = (0..)
        .map(|number| format!("job-{number}"))
        .find(|name| group.owner_of(group.slot_of(&format!("tenure:{name}"))) != Some(owner));
    let bob = Actor { resource: Resource::named(&elsewhere.unwrap()).unwrap(), ..ada.clone() };

    let replica = group.replicas_of(owner)[0];
    group.pause(replica);
    let error = ada.renew(token).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error:?}");
    let text = error.detail();
    assert!(text.contains("0 of 1 replicas"), "{text}");
    bob.lead(1).await;
    group.resume(replica);
    for _ in 0..20 {
        if ada.renew(token).await.is_ok() {
            return;
        }
    }
    panic!("no renewal though the replica is back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_there_is_works_on_a_cluster() {
    let group = ClusterGroup::start().steady();
    let ttl = Duration::from_secs(2);
    let (ada, bob) = (client(&group, "ada").await, client(&group, "bob").await);
    let operator = Tenure::builder().store(&group.url()).ttl(ttl).fresh_store(true);
    let operator = operator.connect().await.unwrap();
    let ada = contender(&ada, ttl).await;
    let first = ada.wait_for_leadership().await.unwrap().token();
    let bob = contender(&bob, ttl).await;
    wait_until("both to be members", GENEROUS, || ada.status().seen_members.len() == 2);
    ada.hand_over("bob").await.unwrap();
    let second = leader([&ada, &bob], |token| token > first).await;
    assert!(bob.is_leader());
    assert!(operator.observe("job").unwrap().ask_to_resign().await.unwrap().is_done());
    let third = leader([&ada, &bob], |token| token > second).await;
    operator.observe("job").unwrap().pause(GENEROUS).await.unwrap();
    operator.observe("job").unwrap().resume().await.unwrap();
    let observer = operator.observe("job").unwrap();
    assert_eq!(observer.look().await.unwrap().warnings, Vec::<String>::new());
    assert!(observer.history(10).await.unwrap().len() > 3);
    ada.stop().await;
    bob.stop().await;
    operator.observe("job").unwrap().force_clear("a test").await.unwrap();
    for tick in [Tick::number(1), Tick::named("migration")] {
        let job = operator.job("ticks").tick(tick).wait_for_outcome(GENEROUS);
        assert!(job.run(|_| async { Ok::<_, String>(()) }).await.unwrap().ran().is_some());
    }

    let backend = RedisBackend::open(&group.url()).unwrap();
    let report = FencedValue::new("report").unwrap();
    let write = FencedWrite::Set { value: b"new", ttl: None };
    report.write_through(&backend, third, write, PATIENT).await.unwrap();
    let late = report.write_through(&backend, first, FencedWrite::Delete, PATIENT).await;
    assert!(matches!(late, Err(FencedError::Stale(_))), "{late:?}");
    assert_eq!(group.server(0).cli(&["-c", "GET", "report"]), "new");
    assert!(backend.pipelines_sent() >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_in_the_address_and_a_dead_replica_change_nothing() {
    let mut group = ClusterGroup::start().steady();
    group.kill(3);
    let url = group.url_of(&[3, 4]).replace("://", "://127.0.0.1:1,");
    let ada = Actor::at(&url, "job");
    for number in 0..20 {
        let resource = Resource::named(&format!("job-{number}")).unwrap();
        Actor { resource, ..ada.clone() }.lead(1).await;
    }
    assert_eq!(*ada.backend.connection().borrow(), Connection::Up);
    assert!(ada.backend.describe().starts_with("redis+cluster://127.0.0.1:1,"));
}

/// What docs/acl.md grants an instance, and what it adds for a cluster.
fn documented() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/acl.md");
    let page = std::fs::read_to_string(page).unwrap();
    let part = |begin: &str| page.lines().find_map(|line| line.strip_prefix(begin)).unwrap();
    let more = part("| `redis+cluster://` | `").split('`').next().unwrap().replace('\\', "");
    format!("{} {more}", part("user app on >PASSWORD "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_may_want_a_login_certificates_and_names() {
    let certificates = Certificates::issue();
    let acl = format!(
        "user default on nopass allcommands allkeys allchannels\nuser app on >c4nary {}",
        documented()
    );
    let group = ClusterGroup::start_with(|node| {
        node.tls(certificates.settings("localhost", "no")).acl(&acl).args([
            "--tls-cluster",
            "yes",
            "--tls-replication",
            "yes",
            "--cluster-announce-hostname",
            "localhost",
            "--cluster-preferred-endpoint-type",
            "hostname",
        ])
    });
    let (port, ca) = (group.server(0).tls_port(), certificates.file("ca.pem"));
    let url = format!("rediss+cluster://app:c4nary@localhost:{port}?ca={ca}");
    let ada = Actor::at(&url, "job");
    let mut ears = ada.backend.subscribe(&ada.resource);
    assert_eq!(next(&mut ears).await, Signal::Listening);
    for number in 0..10 {
        let resource = Resource::named(&format!("job-{number}")).unwrap();
        let ada = Actor { resource, ..ada.clone() };
        let answer = ada.acquire(1).await.unwrap();
        assert_eq!(answer.warnings, Vec::<String>::new());
    }
    assert_eq!(group.server(0).cli(&["ACL", "LOG"]), "", "something was denied");

    let address = format!("rediss+cluster://app:wr0ng@localhost:{port}?ca={ca}");
    let error = Actor::at(&address, "job").acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied, "{error:?}");
    assert!(!error.to_string().contains("wr0ng"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_for_others_must_share_the_slot() {
    let group = ClusterGroup::start().steady();
    let ada = Actor::at(&group.url(), "job");
    let apart = Actor {
        resource: ada.resource.with_heartbeat_prefix("app:heartbeat:").unwrap(),
        ..ada.clone()
    };
    let answer = apart.acquire(1).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Granted { .. }));
    let warning = answer.warnings.join("\n");
    assert!(warning.contains("heartbeat key is not written"), "{warning}");
    assert!(warning.contains("another slot"), "{warning}");

    let beside = Actor {
        id: InstanceId::new("bob", 1).unwrap(),
        resource: Resource::named("other")
            .unwrap()
            .with_heartbeat_prefix("{tenure:other}:")
            .unwrap(),
        ..ada
    };
    assert_eq!(beside.acquire(1).await.unwrap().warnings, Vec::<String>::new());
    let key = format!("{{tenure:other}}:{}", beside.id);
    assert_eq!(group.server(0).cli(&["-c", "EXISTS", &key]), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_age_of_a_node_does_not_speak_for_a_slot_that_came_to_it_without_its_keys() {
    let group = ClusterGroup::start().steady();
    let lease = Duration::from_secs(1);
    let slot = group.slot_of(KEY);
    let owner = group.owner_of(slot).unwrap();
    // Longer than any lease: a single server that has been up for so long would be believed.
    wait_until("nodes that are old enough", GENEROUS, || {
        let told = group.server(owner).cli(&["INFO", "server"]);
        let uptime = told.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        uptime.unwrap().trim().parse::<u64>().unwrap() > 4
    });
    let ada = Actor::at(&group.url(), "job");
    let newcomer = Acquire { fresh_store: false, ..attempt_of(1, lease) };
    let answer = ada.ask(Request::Acquire(newcomer)).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Quarantine { .. }), "{answer:?}");
    let vouched = ada.acquire_until("a grant", attempt_of(2, lease), is_granted);
    vouched.await.unwrap();
}
