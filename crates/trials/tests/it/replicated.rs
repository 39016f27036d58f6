//! A primary, a replica that is promoted by hand, and the terms on either. These run on our own
//! store as well: `cargo xtask test --only own-store`.

use std::time::Duration;

use tenure::Tenure;
use testkit::proxy::{Direction, Proxy, Rule};
use testkit::{GENEROUS, RedisServer, SentinelGroup, ServerProgram, wait_until};
use trials::clock;
use trials::record::Record;

use crate::instance::Instance;
use crate::player::start;

const TTL: Duration = Duration::from_secs(2);

/// Longer than any lease that may still be believed in.
fn quarantine() -> Duration {
    TTL.mul_f64(1.01) + Duration::from_millis(2)
}

/// A replica that follows its primary through a proxy.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
    proxy: Proxy,
}

impl Pair {
    fn start() -> Self {
        let primary = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
        let proxy = Proxy::in_front_of(&primary);
        let port = proxy.port().to_string();
        let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start();
        wait_until("the replica to be in step", GENEROUS, || {
            replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
        });
        Pair { primary, replica, proxy }
    }

    /// Nothing of the primary's reaches the replica any more.
    fn lag(&self) {
        self.proxy.set_rule(Direction::ToClient, Rule::Swallow);
    }

    fn promote(&self) {
        assert_eq!(self.replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    }
}

/// Old enough that a server's age would speak for it.
fn await_age(server: &RedisServer) {
    let wanted = (quarantine() + Duration::from_secs(2)).as_secs();
    wait_until("the server to be old", GENEROUS, || {
        let info = server.cli(&["INFO", "server"]);
        let age = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        age.and_then(|age| age.trim().parse::<u64>().ok()).is_some_and(|age| age >= wanted)
    });
}

/// The leader of a primary that dies goes on until its lease ends; a newcomer asks the promoted
/// replica for a term at once.
fn die_and_promote(is_lagging: bool) {
    let mut pair = Pair::start();
    await_age(&pair.replica);
    if is_lagging {
        pair.lag();
    }
    let mut instances = vec![Instance::start(&pair.primary.url(), "old", TTL)];
    instances[0].wait_for_work();
    if !is_lagging {
        wait_until("the replica to know", GENEROUS, || pair.primary.has_replicas_in_step(1));
    }

    pair.primary.kill();
    pair.promote();
    let promoted_at = clock::now();
    let words = ["--fresh-store", "no"];
    let mut newcomer = Instance::start_with(&pair.replica.url(), "new", TTL, &words);
    let led_at = newcomer.wait_for_work().at;
    instances.push(newcomer);

    let gap = led_at.since(promoted_at);
    assert!(gap >= quarantine(), "granted {gap:?} after the promotion, a lease lasts {TTL:?}");
    let mut record = Record::default();
    instances.iter_mut().for_each(|one| one.record_work(&mut record, clock::now()));
    assert_eq!(record.len(), 2, "{record:?}");
    assert_eq!(record.overlaps(), []);
    assert_eq!(record.token_disorder(), []);
}

#[test]
fn a_term_that_the_promoted_replica_knows_is_over_before_the_next() {
    die_and_promote(false);
}

#[test]
fn a_term_that_the_promoted_replica_never_heard_of_is_over_before_the_next() {
    die_and_promote(true);
}

/// Somebody promotes a server that was told to follow and never could: it has no history to tell
/// of, and its process is old.
#[test]
fn a_promoted_server_that_never_reached_its_primary_lets_nobody_in_early() {
    let server = RedisServer::builder().start();
    await_age(&server);
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    let promoted_at = clock::now();
    let words = ["--fresh-store", "no"];
    let mut newcomer = Instance::start_with(&server.url(), "new", TTL, &words);
    let gap = newcomer.wait_for_work().at.since(promoted_at);
    assert!(gap >= quarantine(), "granted {gap:?} after the promotion, a lease lasts {TTL:?}");
}

#[tokio::test]
async fn a_strict_term_ends_without_its_replica_and_the_promoted_one_knows_the_token() {
    let pair = Pair::start();
    let strict = |server: &RedisServer| format!("{}/0?mode=strict&replicas=1", server.url());
    let tenure = Tenure::builder().instance("old").store(&strict(&pair.primary)).connect().await;
    let builder = tenure.unwrap();
    let builder = builder.election("job").ttl(TTL).fresh_store(true);
    let mut old = start(builder).await;
    let token = old.leads().await;
    pair.lag();
    old.loses().await;
    // The old primary goes on without its replica: nobody leads there.
    pair.promote();
    assert_eq!(pair.replica.cli(&["HGET", "{tenure:job}:meta", "token"]), token.to_string());
    assert!(!old.election.is_leader());

    let next =
        RedisServer::builder().args(["--replicaof", "127.0.0.1", &pair.replica.port().to_string()]);
    let next = next.start();
    wait_until("the new replica to be in step", GENEROUS, || {
        next.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let tenure = Tenure::builder().instance("new").store(&strict(&pair.replica)).connect().await;
    let mut new = start(tenure.unwrap().election("job").ttl(TTL)).await;
    let later = new.leads().await;
    assert!(later > token, "{later} after {token}");
    assert!(!old.election.is_leader(), "two leaders at once");
}

#[test]
fn sentinels_move_the_leadership_between_ours_and_redis() {
    let programs = [ServerProgram::own(), ServerProgram::redis(), ServerProgram::own()];
    leadership_moves_over(SentinelGroup::start_of(&programs));
}

#[test]
fn our_sentinels_move_the_leadership_between_our_stores() {
    let own = vec![ServerProgram::own(); 3];
    leadership_moves_over(SentinelGroup::start_mixed(&own, &own));
}

/// Two primaries die, one after the other, and nobody leads beside another.
fn leadership_moves_over(mut group: SentinelGroup) {
    let mut instances: Vec<_> =
        ["ada", "bob"].map(|name| Instance::start(&group.url(), name, TTL)).into();
    let mut record = Record::default();
    let mut holders = Vec::new();
    for _ in 0..2 {
        let master = group.master().unwrap();
        wait_until("somebody to lead", GENEROUS, || {
            let holder = group.servers[master].cli(&["GET", "tenure:job"]);
            instances.iter().any(|one| one.id == holder)
        });
        holders.push(group.servers[master].cli(&["HGET", "{tenure:job}:meta", "token"]));
        group.servers[master].kill();
        group.wait_for_another_master(master);
    }
    instances.iter_mut().for_each(|one| one.record_work(&mut record, clock::now()));
    assert_eq!(record.overlaps(), []);
    assert_eq!(record.token_disorder(), []);
    assert_ne!(holders[0], holders[1], "a term went on over a failover");
}
