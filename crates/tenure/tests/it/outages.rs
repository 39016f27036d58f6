//! Stores that do not answer, answers that get lost, hosts that sleep.

use std::time::Duration;

use tenure::backend::Connection;
use tenure::testing::World;
use tenure::{Election, EventKind, Reason, Role};

const NAME: &str = "weathered";

async fn start(world: &World, client: &str) -> Election {
    let election = world.client(client).await.election(NAME).start().await.unwrap();
    world.settle().await;
    election
}

#[tokio::test]
async fn a_cut_off_leader_is_false_before_its_standby_can_lead() {
    let world = World::new();
    let (ada, bob) = (start(&world, "ada").await, start(&world, "bob").await);
    world.advance(Duration::from_secs(5)).await;
    world.cut_off("ada");
    while !bob.is_leader() {
        world.advance(Duration::from_millis(1)).await;
        assert!(!(ada.is_leader() && bob.is_leader()), "two leaders at {:?}", world.elapsed());
    }
    assert!(!ada.is_leader());
    world.heal("ada");
    world.advance(Duration::from_secs(5)).await;
    assert!(bob.is_leader(), "a late release does not touch the new term");
    assert_eq!(ada.status().role, Role::Standby);
}

#[tokio::test]
async fn one_lost_renewal_changes_nothing_but_the_shade_of_the_role() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let token = ada.term().unwrap().token();
    world.cut_off("ada");
    world.run_until(|| ada.status().role == Role::Suspect).await;
    assert!(ada.is_leader(), "late is not lost");
    assert_eq!(ada.status().reason, Reason::RenewalLate);
    world.heal("ada");
    world.run_until(|| ada.status().role == Role::Leader).await;
    assert_eq!(ada.term().unwrap().token(), token);
    assert_eq!(ada.status().counts.losses, 0);
    assert!(ada.status().counts.renewals_failed >= 1);
}

#[tokio::test]
async fn a_lost_answer_to_an_acquire_costs_one_retry() {
    let world = World::new();
    let tenure = world.client("ada").await;
    world.lose_answers("ada");
    let ada = tenure.election(NAME).start().await.unwrap();
    world.advance(Duration::from_millis(100)).await;
    assert!(!ada.is_leader());
    world.heal("ada");
    world.run_until(|| ada.is_leader()).await;
    assert!(world.elapsed() < Duration::from_secs(5), "the same attempt is recognised");
    assert_eq!(ada.status().counts.terms, 1);
}

#[tokio::test]
async fn a_store_that_is_down_at_the_start_is_waited_for() {
    let world = World::new();
    let tenure = world.client("ada").await;
    world.cut_off_everybody();
    let ada = tenure.election(NAME).start().await.unwrap();
    world.advance(Duration::from_secs(30)).await;
    let status = ada.status();
    assert_eq!(status.role, Role::Unknown);
    assert!(matches!(status.connection, Connection::Down(_)), "{:?}", status.connection);
    assert!(matches!(status.reason, Reason::Store(_)), "{}", status.reason);
    world.heal_everybody();
    world.run_until(|| ada.is_leader()).await;
    assert_eq!(ada.status().connection, Connection::Up);
}

#[tokio::test]
async fn the_first_check_after_a_suspended_host_wakes_up_is_false() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let term = ada.term().unwrap();
    assert!(ada.is_leader() && term.is_valid());
    world.suspend(Duration::from_secs(11)).await;
    // Nothing has run in between that could have noticed: the check itself knows.
    assert!(!ada.is_leader() && !term.is_valid() && ada.term().is_none());
    assert!(!ada.status().role.holds_term());
    assert_eq!(term.remaining(), Duration::ZERO);
    drop(term);
    world.settle().await;
    world.run_until(|| ada.is_leader()).await;
}

#[tokio::test]
async fn a_flushed_store_ends_the_term_and_makes_everyone_wait() {
    let world = World::new();
    let (ada, bob) = (start(&world, "ada").await, start(&world, "bob").await);
    let first = ada.term().unwrap().token();
    world.flush_store();
    world.run_until(|| !ada.is_leader()).await;
    let lost_after = world.elapsed();
    world.run_until(|| ada.is_leader() || bob.is_leader()).await;
    assert!(world.elapsed() - lost_after >= Duration::from_secs(10), "the quarantine was kept");
    let next = if ada.is_leader() { &ada } else { &bob };
    assert!(next.term().unwrap().token() > first, "tokens grow even though the store forgot");
}

#[tokio::test]
async fn a_lease_that_comes_back_late_is_not_revived() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let term = ada.term().unwrap();
    let mut events = ada.events();
    world.cut_off("ada");
    world.advance(Duration::from_secs(12)).await;
    world.heal("ada");
    drop(term);
    world.run_until(|| ada.is_leader()).await;
    let mut tokens = Vec::new();
    while let Some(Ok(event)) = events.try_next() {
        match &event.kind {
            EventKind::Lost { token, .. } => tokens.push(*token),
            EventKind::Acquired { token, .. } => tokens.push(*token),
            EventKind::Renewed { .. } => assert!(tokens.len() != 1, "a lost term was renewed"),
            _ => {}
        }
    }
    assert!(tokens[0] < tokens[1], "a new term has a new token: {tokens:?}");
}

#[tokio::test]
async fn stopping_without_a_store_does_not_take_for_ever() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    world.cut_off("ada");
    let before = world.elapsed();
    world.advance_while(ada.stop()).await;
    assert!(world.elapsed() - before < Duration::from_secs(10));
    assert!(!ada.is_leader());
}
