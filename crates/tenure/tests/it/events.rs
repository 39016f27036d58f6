//! What is told: order, reasons, numbers, and the latest state.

use std::time::Duration;

use futures_util::FutureExt;

use tenure::testing::World;
use tenure::{Event, EventKind, Events, Reason, Role};

/// How many events may wait for one reader, as the documentation says.
const EVENTS_QUEUED_MAX: u32 = 1024;
const NAME: &str = "told";

fn read_all(events: &mut Events) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(event) = events.try_next() {
        all.push((*event.unwrap()).clone());
    }
    all
}

#[tokio::test]
async fn a_change_of_state_comes_first_and_then_what_it_means() {
    let world = World::new();
    let mut builder = world.client("ada").await.election(NAME);
    let mut events = builder.events();
    let election = builder.start().await.unwrap();
    world.settle().await;
    let gained = read_all(&mut events);
    assert_eq!(gained[0].number, 1, "from the very first");
    let place = |all: &[Event], wanted: &dyn Fn(&EventKind) -> bool| {
        all.iter().position(|event| wanted(&event.kind)).unwrap()
    };
    let to_leader = |kind: &EventKind| {
        matches!(kind, EventKind::StateChanged { to: Role::Leader, reason: Reason::Granted, .. })
    };
    let acquired = |kind: &EventKind| matches!(kind, EventKind::Acquired { .. });
    assert!(place(&gained, &to_leader) < place(&gained, &acquired));

    world.take_away(NAME);
    world.settle().await;
    world.advance(Duration::from_millis(20)).await;
    let lost = read_all(&mut events);
    let left = |kind: &EventKind| {
        matches!(kind, EventKind::StateChanged { from: Role::Leader, to: Role::Standby, .. })
    };
    let is_lost = |kind: &EventKind| matches!(kind, EventKind::Lost { reason, .. } if reason.code() == "key-vanished");
    assert!(place(&lost, &left) < place(&lost, &is_lost));

    let numbers: Vec<u64> = gained.iter().chain(&lost).map(|event| event.number).collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "numbered without gaps");
    world.advance_while(election.stop()).await;
    let last = read_all(&mut events).pop().unwrap();
    assert!(matches!(last.kind, EventKind::StateChanged { to: Role::Stopped, .. }), "{last:?}");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_failed_attempt_is_told_with_its_reason() {
    let world = World::new();
    let ada = world.client("ada").await.election(NAME).start().await.unwrap();
    world.settle().await;
    let mut builder = world.client("bob").await.election(NAME);
    let mut events = builder.events();
    let bob = builder.start().await.unwrap();
    world.settle().await;
    let failed = read_all(&mut events).into_iter().find_map(|event| match event.kind {
        EventKind::ElectionFailed { reason } => Some(reason),
        _ => None,
    });
    assert_eq!(failed, Some(Reason::HeldBy(ada.id().clone())));
    assert_eq!(bob.status().counts.attempts_failed, 1);
}

#[tokio::test]
async fn gain_and_loss_that_nobody_watched_leave_the_latest_state_and_all_events() {
    let world = World::new();
    let mut builder = world.client("ada").await.election(NAME);
    let mut events = builder.events();
    let election = builder.start().await.unwrap();
    let mut watch = election.watch();
    world.settle().await;
    world.give_to_stranger(NAME, "old-program", Duration::from_secs(30));
    world.advance(Duration::from_millis(100)).await;

    let status = watch.wait_for_change().await.unwrap();
    assert_eq!(status.role, Role::Standby, "the latest state wins");
    assert!(
        status
            .seen_leader
            .is_some_and(|leader| leader.foreign && leader.id.as_str() == "old-program")
    );
    let kinds = read_all(&mut events);
    assert!(kinds.iter().any(|event| matches!(event.kind, EventKind::Acquired { .. })));
    assert!(kinds.iter().any(|event| matches!(event.kind, EventKind::Lost { .. })));

    world.advance_while(election.stop()).await;
    while let Some(status) = watch.wait_for_change().await {
        assert!(status.role != Role::Leader);
    }
    assert_eq!(watch.status().role, Role::Stopped);
}

#[tokio::test]
async fn a_watch_is_silent_while_an_outage_or_a_wait_goes_on() {
    let world = World::new();
    let _ada = world.client("ada").await.election(NAME).start().await.unwrap();
    world.settle().await;
    let bob = world.client("bob").await.election(NAME).start().await.unwrap();
    world.settle().await;
    world.advance(Duration::from_secs(60)).await;
    let mut watch = bob.watch();
    let mut changes = || {
        std::iter::from_fn(|| watch.wait_for_change().now_or_never().flatten()).collect::<Vec<_>>()
    };
    assert_eq!(changes().len(), 0);
    world.advance(Duration::from_secs(60)).await;
    assert_eq!(changes().len(), 0, "heartbeats and renewals are no changes");

    world.cut_off("bob");
    world.advance(Duration::from_secs(5)).await;
    assert_eq!(changes().last().unwrap().role, Role::Unknown);
    let failed_before = bob.status().counts.attempts_failed;
    world.advance(Duration::from_secs(120)).await;
    assert!(bob.status().counts.attempts_failed > failed_before);
    assert_eq!(changes().len(), 0, "the same outage again");
    world.heal("bob");
    world.run_until(|| bob.status().role == Role::Standby).await;
    assert!(!changes().is_empty());
}

#[tokio::test]
async fn a_warning_stands_for_as_long_as_there_is_something_to_warn_of() {
    let world = World::new();
    let ada = world.client("ada").await.election(NAME).start().await.unwrap();
    world.settle().await;
    world.cut_off("ada");
    world.run_until(|| ada.status().role == Role::Suspect).await;
    let warning = ada.status().warning.expect("a renewal failed");
    assert!(warning.contains("the link is cut"), "{warning}");
    world.heal("ada");
    world.run_until(|| ada.status().role == Role::Leader).await;
    assert_eq!(ada.status().warning, None, "renewals come through again");
}

#[tokio::test]
async fn a_reader_that_sleeps_too_long_is_told_so_and_goes_on() {
    let world = World::new();
    let election = world.client("ada").await.election(NAME).start().await.unwrap();
    let mut events = election.events();
    let ttl = Duration::from_secs(10);
    world.advance(ttl * EVENTS_QUEUED_MAX).await;
    let missed = events.next().await.unwrap().unwrap_err().missed;
    let next = events.next().await.unwrap().unwrap();
    assert!(missed > 0 && next.number > missed);
    let mut last = next.number;
    while let Some(Ok(event)) = events.try_next() {
        assert_eq!(event.number, last + 1);
        last = event.number;
    }
    assert_eq!(last, election.status().counts.events);
}
