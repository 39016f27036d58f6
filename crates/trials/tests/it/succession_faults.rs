//! Hand-overs and failbacks while something breaks: the store in the middle, the successor again
//! and again. What a successor does that dies or is stopped on the way is told in `succession`.

use std::time::Duration;

use tenure::{Failback, HistoryKind, Tenure};
use tenure_core::Moment;
use testkit::{GENEROUS, RedisServer, SentinelGroup, wait_for, wait_until};
use trials::clock;
use trials::record::Record;

use crate::instance::Instance;
use crate::player::{Player, start};

const TTL: Duration = Duration::from_secs(2);
/// What a shared machine may add to anything.
const SLACK: Duration = Duration::from_secs(2);

/// Longer than any lease that may still be believed in.
fn quarantine(ttl: Duration) -> Duration {
    ttl.mul_f64(1.01) + Duration::from_millis(2)
}

/// When any of them began to work after `since`.
fn work_after(instances: &mut [Instance], since: Moment) -> Moment {
    wait_for("somebody to work", GENEROUS, || {
        let mut begun = Vec::new();
        for instance in &mut *instances {
            let lines = instance.all_lines().iter();
            begun.extend(lines.filter(|line| line.text.starts_with("work-begin")).map(|l| l.at));
        }
        begun.into_iter().filter(|at| *at > since).min()
    })
}

#[test]
fn a_store_that_fails_over_in_the_middle_of_a_hand_over_ends_with_one_leader() {
    let mut group = SentinelGroup::start(1);
    let mut instances = vec![Instance::start(&group.url(), "from", TTL)];
    instances[0].wait_for_work();
    instances.push(Instance::start(&group.url(), "to", TTL));
    wait_until("both to be members", GENEROUS, || {
        group.servers[0].cli(&["HLEN", "{tenure:job}:members"]) == "2"
    });

    // The successor does not hear of it before the store is gone.
    instances[1].process.pause();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let operator = runtime.block_on(Tenure::connect(&group.url())).unwrap();
    let asking =
        runtime.spawn(async move { operator.observe("job").unwrap().ask_to_hand_over("to").await });
    let successor = instances[1].id.clone();
    wait_until("the reservation", GENEROUS, || {
        group.servers[0].cli(&["GET", "tenure:job"]) == successor
    });
    let killed_at = clock::now();
    group.servers[0].kill();
    instances[1].process.resume();

    group.wait_for_another_master(0);
    let promoted_at = clock::now();
    let led_at = work_after(&mut instances, killed_at);
    let gap = led_at.since(promoted_at);
    println!("a leader {gap:?} after the promotion, in the middle of a hand-over");
    assert!(gap < quarantine(TTL) + TTL + SLACK, "{gap:?}");
    let asked = runtime.block_on(asking).unwrap();
    println!("whoever asked was told {asked:?}");

    let mut record = Record::default();
    instances.iter_mut().for_each(|one| one.record_work(&mut record, clock::now()));
    assert!(record.len() >= 2, "{record:?}");
    assert_eq!(record.overlaps(), []);
    assert_eq!(record.token_disorder(), []);
}

async fn polite(server: &RedisServer, failback: Failback, ttl: Duration) -> Player {
    let tenure = Tenure::builder().instance("polite").store(&server.url()).connect().await.unwrap();
    let builder = tenure.election("job").ttl(ttl).fresh_store(true).priority(1);
    start(builder.failback(failback)).await
}

/// How often a term was granted so far.
async fn terms(server: &RedisServer) -> usize {
    let onlooker = Tenure::connect(&server.url()).await.unwrap();
    let history = onlooker.observe("job").unwrap().history(1000).await.unwrap();
    history.iter().filter(|entry| entry.what == HistoryKind::Granted).count()
}

#[tokio::test]
async fn a_preferred_node_that_keeps_dying_moves_the_leadership_ever_more_rarely() {
    const FLAPS: usize = 6;
    /// The delay doubles with each: by the third, no visit is long enough.
    const FAILBACKS_MAX: usize = 3;
    let server = RedisServer::start();
    let ttl = Duration::from_secs(1);
    let failback =
        Failback { delay: Duration::from_millis(500), min_tenure: Duration::from_millis(100) };
    let mut polite = polite(&server, failback, ttl).await;
    polite.leads().await;
    for flap in 0..FLAPS {
        let arguments = ["--priority", "9"];
        let mut preferred = Instance::start_with(&server.url(), "preferred", ttl, &arguments);
        match flap {
            0 => drop(preferred.wait_for_work()),
            _ => tokio::time::sleep(Duration::from_millis(1200)).await,
        }
        preferred.process.kill();
        wait_until("the polite one to lead again", GENEROUS, || polite.election.is_leader());
    }
    let terms = terms(&server).await;
    println!("{terms} terms while the preferred node died {FLAPS} times");
    assert!(terms >= 3, "the preferred node never led: {terms}");
    assert!(terms <= 1 + 2 * FAILBACKS_MAX, "to and fro: {terms} terms in {FLAPS} deaths");
}

#[tokio::test]
async fn nodes_that_come_and_go_faster_than_the_delay_move_nothing() {
    let server = RedisServer::start();
    let ttl = Duration::from_secs(1);
    let failback = Failback { delay: Duration::from_secs(20), min_tenure: Duration::ZERO };
    let mut polite = polite(&server, failback, ttl).await;
    polite.leads().await;
    let mut others: Vec<Instance> = Vec::new();
    for flap in 0..6 {
        let name = format!("preferred-{}", flap % 3);
        let arguments = ["--priority", "9"];
        others.push(Instance::start_with(&server.url(), &name, ttl, &arguments));
        tokio::time::sleep(Duration::from_millis(200)).await;
        if others.len() == 3 {
            others.remove(0).process.kill();
        }
    }
    assert!(polite.election.is_leader());
    assert_eq!(terms(&server).await, 1, "one of them took over");
}
