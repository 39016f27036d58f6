//! Failback over hours, on a clock that the test moves: patient, and never to and fro.

use std::time::Duration;

use tenure::testing::World;
use tenure::{Election, Failback};
use tenure_core::protocol::HistoryKind;

const HOUR: Duration = Duration::from_secs(60 * 60);
const MINUTE: Duration = Duration::from_secs(60);

async fn start(world: &World, name: &str, priority: i32) -> Election {
    let client = world.client(name).await;
    let election = client.election("job").priority(priority).failback(Failback::default());
    election.start().await.unwrap()
}

/// How often the leadership changed hands so far.
async fn terms(world: &World) -> usize {
    let onlooker = world.client("onlooker").await;
    let history =
        world.advance_while(onlooker.observe("job").unwrap().history(1000)).await.unwrap();
    history.iter().filter(|entry| entry.what == HistoryKind::Granted).count()
}

#[tokio::test]
async fn the_preferred_one_leads_again_after_the_delay_and_then_nothing_moves() {
    let world = World::new();
    let spare = start(&world, "spare", 1).await;
    world.settle().await;
    assert!(spare.is_leader());
    let preferred = start(&world, "preferred", 9).await;

    world.advance(Duration::from_secs(290)).await;
    assert!(spare.is_leader(), "it gave way before the other was ready for long");
    let waited = world.run_until(|| preferred.is_leader()).await;
    assert!(waited < MINUTE, "{waited:?} beyond the delay");

    let before = terms(&world).await;
    world.advance(5 * HOUR).await;
    assert!(preferred.is_leader() && !spare.is_leader());
    assert_eq!(terms(&world).await, before, "nothing may change without a cause");
}

#[tokio::test]
async fn a_preferred_one_that_keeps_failing_is_given_up_on() {
    let world = World::new();
    let spare = start(&world, "spare", 1).await;
    world.settle().await;
    let preferred = start(&world, "preferred", 9).await;
    let began_at = world.elapsed();
    let mut failures = 0;
    let mut waits: Vec<Duration> = Vec::new();
    while world.elapsed() - began_at < 5 * HOUR {
        let ready_at = world.elapsed();
        // It looks well while it stands by, and breaks a minute after it leads.
        world.advance(MINUTE / 2).await;
        let mut looked = 0;
        while !preferred.is_leader() && looked < 240 {
            world.advance(MINUTE / 2).await;
            looked += 1;
        }
        waits.push(world.elapsed() - ready_at);
        world.advance(MINUTE).await;
        preferred.set_ready(false);
        world.run_until(|| spare.is_leader()).await;
        preferred.set_ready(true);
        failures += 1;
    }
    println!("{failures} tries in five hours, waits {waits:?}");
    // At a constant delay of five minutes there would be over forty.
    assert!(failures <= 10, "to and fro {failures} times in five hours: {waits:?}");
    assert!(waits[2] > waits[0] * 2, "the delay must grow: {waits:?}");
}
