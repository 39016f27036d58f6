//! From start to stop: who leads, in which order things end, and that nothing is left behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::testing::World;
use tenure::{Election, Error, EventKind, MemoryBackend, Reason, Role, Tenure};
use tenure_core::protocol::{CloseReason, HistoryKind};

const NAME: &str = "nightly-report";

async fn pair(world: &World) -> (Election, Election) {
    let first = world.client("ada").await.election(NAME).start().await.unwrap();
    world.settle().await;
    let second = world.client("bob").await.election(NAME).start().await.unwrap();
    world.settle().await;
    assert!(first.is_leader() && !second.is_leader());
    (first, second)
}

#[tokio::test]
async fn the_first_leads_and_the_second_stands_by() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    assert_eq!((ada.status().role, bob.status().role), (Role::Leader, Role::Standby));
    assert_eq!(bob.status().seen_leader.unwrap().id, *ada.id());
    assert_eq!(ada.status().seen_leader.unwrap().id, *ada.id());
    assert!(matches!(bob.status().reason, Reason::HeldBy(id) if id == *ada.id()));

    world.advance(Duration::from_secs(3600)).await;
    assert!(ada.is_leader() && !bob.is_leader(), "renewals keep it so");
    assert!(ada.status().counts.renewals > 1000);
    assert_eq!(ada.status().counts.terms, 1);
    assert_eq!(bob.status().seen_members.len(), 2);
}

#[tokio::test]
async fn resigning_ends_the_work_before_the_store_is_told() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let order = Arc::new(Mutex::new(Vec::new()));

    let term = ada.term().unwrap();
    let noted = Arc::clone(&order);
    let work = tokio::spawn(async move {
        term.wait_until_stopping().await;
        assert!(term.is_valid(), "there is time to finish");
        tokio::task::yield_now().await;
        noted.lock().unwrap().push("work ended");
        drop(term);
    });
    let noted = Arc::clone(&order);
    let next = tokio::spawn({
        let bob = bob.clone();
        async move {
            let term = bob.wait_for_leadership().await.unwrap();
            noted.lock().unwrap().push("next leads");
            term
        }
    });
    let resigned = Arc::clone(&order);
    world
        .advance_while(async {
            ada.resign().await;
            resigned.lock().unwrap().push("resigned");
        })
        .await;
    world.run_until(|| bob.is_leader()).await;
    let next_term = next.await.unwrap();
    work.await.unwrap();

    let order = order.lock().unwrap();
    assert_eq!(order[0], "work ended", "{order:?}");
    assert!(!ada.is_leader() && ada.term().is_none());
    assert!(next_term.token().get() > 0);
}

#[tokio::test]
async fn a_guard_that_does_not_let_go_delays_the_release_until_the_lease_is_over() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let term = ada.term().unwrap();
    let stopping = tokio::spawn({
        let ada = ada.clone();
        async move { ada.resign().await }
    });
    world.advance(Duration::from_millis(500)).await;
    assert!(!ada.is_leader(), "no new work begins");
    assert!(term.is_valid() && term.is_stopping(), "the old work has its grace");
    assert!(!bob.is_leader());
    world.advance(Duration::from_secs(11)).await;
    assert!(!term.is_valid(), "the lease is over");
    assert!(bob.is_leader(), "it expired at the store");
    assert!(!ada.is_leader());
    drop(term);
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_resigned_leader_lets_the_rival_go_first_and_stays_a_candidate() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let first = ada.term().unwrap().token();
    world.advance_while(ada.resign()).await;
    world.advance(Duration::from_secs(1)).await;
    assert!(bob.is_leader() && !ada.is_leader());
    let second = bob.term().unwrap().token();
    assert!(second > first, "tokens grow");
    world.advance_while(bob.resign()).await;
    world.advance(Duration::from_secs(1)).await;
    assert!(ada.is_leader());
}

#[tokio::test]
async fn stopping_gives_the_leadership_back_and_never_takes_it_again() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    world.advance_while(ada.stop()).await;
    assert_eq!(ada.status().role, Role::Stopped);
    world.advance(Duration::from_millis(500)).await;
    assert!(bob.is_leader(), "well before the lease would have ended");
    world.advance_while(bob.stop()).await;
    world.advance(Duration::from_secs(60)).await;
    assert!(!ada.is_leader() && !bob.is_leader());
    let error = ada.wait_for_leadership().await.unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert!(ada.events().next().await.is_none(), "a stopped election has no more to tell");
}

#[tokio::test]
async fn a_standby_that_stops_was_never_told_that_it_led() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let mut events = bob.events();
    world.advance_while(bob.stop()).await;
    while let Some(event) = events.next().await {
        let kind = &event.unwrap().kind;
        let about_leading = matches!(
            kind,
            EventKind::Acquired { .. } | EventKind::Lost { .. } | EventKind::StopWork { .. }
        );
        assert!(!about_leading, "{kind:?}");
    }
    assert!(ada.is_leader());
    let observer = world.client("eve").await.observe(NAME).unwrap();
    let members = world.advance_while(observer.members()).await.unwrap();
    assert_eq!(members.len(), 1, "the leaver is off the list");
}

#[tokio::test]
async fn dropping_the_last_handle_stops_the_election() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let second_handle = ada.clone();
    drop(ada);
    world.advance(Duration::from_secs(1)).await;
    assert!(second_handle.is_leader(), "one handle is left");
    let term = second_handle.term().unwrap();
    drop(second_handle);
    world.settle().await;
    assert!(term.is_stopping(), "work is told");
    drop(term);
    world.advance(Duration::from_millis(500)).await;
    assert!(bob.is_leader());
}

#[tokio::test]
async fn shutdown_stops_everything_and_refuses_what_comes_after() {
    let world = World::new();
    let tenure = world.client("ada").await;
    let first = tenure.election("first").start().await.unwrap();
    let second = tenure.election("second").start().await.unwrap();
    world.settle().await;
    assert!(first.is_leader() && second.is_leader());
    world.advance_while(tenure.shutdown()).await;
    assert_eq!((first.status().role, second.status().role), (Role::Stopped, Role::Stopped));
    let error = tenure.election("third").start().await.unwrap_err();
    assert_eq!(error, Error::Closed);
    assert_eq!(tenure.observe("first").unwrap().leader().await.unwrap_err(), Error::Closed);

    let other = world.client("bob").await;
    let leader = world.advance_while(other.observe("first").unwrap().leader()).await.unwrap();
    assert_eq!(leader.leader(), None, "both were given back");
}

#[tokio::test]
async fn one_client_takes_part_once() {
    let world = World::new();
    let tenure = world.client("ada").await;
    let election = tenure.election(NAME).start().await.unwrap();
    let error = tenure.election(NAME).start().await.unwrap_err();
    assert_eq!(error, Error::AlreadyTakingPart { name: NAME.to_owned() });
    let same_key = tenure.election("alias").key("tenure:nightly-report").start().await;
    assert!(matches!(same_key, Err(Error::AlreadyTakingPart { .. })), "the key decides");

    // One that is stopping is waited for, so that an instance never meets itself.
    drop(election);
    let again = world.advance_while(tenure.election(NAME).start()).await.unwrap();
    world.run_until(|| again.is_leader()).await;
}

#[tokio::test]
async fn a_hand_over_names_its_successor_and_leaves_no_overlap() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let cid = world.client("cid").await.election(NAME).start().await.unwrap();
    world.advance(Duration::from_secs(1)).await;
    let first = ada.term().unwrap();
    let first_token = first.token();
    let to = world.advance_while(first.hand_over("cid")).await.unwrap();
    assert_eq!(to, *cid.id());
    world.settle().await;
    assert!(cid.is_leader() && !ada.is_leader() && !bob.is_leader());
    assert!(cid.term().unwrap().token() > first_token);

    let history = world
        .advance_while(world.client("op").await.observe(NAME).unwrap().history(10))
        .await
        .unwrap();
    let closed = history.iter().find(|entry| entry.token == Some(first_token)).unwrap();
    assert!(
        matches!(&closed.what, HistoryKind::Closed { reason: CloseReason::HandedOver, .. }),
        "{closed:?}"
    );
}

#[tokio::test]
async fn a_hand_over_to_nobody_is_refused_and_changes_nothing() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let error = world.advance_while(ada.hand_over("zoe")).await.unwrap_err();
    assert!(error.to_string().contains("not a member"), "{error}");
    bob.set_ready(false);
    world.advance(Duration::from_millis(50)).await;
    let error = world.advance_while(ada.hand_over("bob")).await.unwrap_err();
    assert!(error.to_string().contains("not ready"), "{error}");
    let error = world.advance_while(ada.hand_over_to_best()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(ada.is_leader());
    let error = world.advance_while(bob.hand_over("ada")).await.unwrap_err();
    assert!(error.to_string().contains("not leading"), "{error}");
}

#[tokio::test]
async fn an_instance_that_is_not_ready_or_paused_does_not_lead() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    bob.stand_back();
    ada.set_ready(false);
    world.advance(Duration::from_secs(15)).await;
    assert!(!ada.is_leader() && !bob.is_leader());
    assert_eq!(ada.status().reason, Reason::NotReady);
    assert_eq!(bob.status().reason, Reason::StandsBack);
    bob.contend_again();
    world.advance(Duration::from_secs(1)).await;
    assert!(bob.is_leader());
    ada.set_ready(true);
    world.advance(Duration::from_secs(1)).await;
    assert!(bob.is_leader() && ada.status().role == Role::Standby);
}

#[tokio::test]
async fn work_that_stops_beating_loses_the_leadership_until_it_beats_again() {
    let world = World::new();
    let tenure = world.client("ada").await;
    let ada = tenure.election(NAME).require_beat(Duration::from_secs(5)).start().await.unwrap();
    // She leads before anybody else is there.
    world.settle().await;
    let bob = world.client("bob").await.election(NAME).start().await.unwrap();
    world.settle().await;
    for _ in 0..5 {
        world.advance(Duration::from_secs(4)).await;
        ada.beat();
        world.settle().await;
    }
    assert!(ada.is_leader());
    world.advance(Duration::from_secs(6)).await;
    assert!(!ada.is_leader() && bob.is_leader());
    assert_eq!(ada.status().reason, Reason::WorkStalled);
    assert_eq!(ada.status().counts.losses, 1);
    let seen = world.advance_while(tenure.observe(NAME).unwrap().members()).await.unwrap();
    assert!(seen.iter().any(|member| member.id == *ada.id() && member.record.stalled));
    ada.beat();
    world.advance_while(bob.stop()).await;
    world.advance(Duration::from_secs(1)).await;
    assert!(ada.is_leader(), "it beats again");
}

#[tokio::test]
async fn switched_off_everyone_leads_alone() {
    let world = World::new();
    world.cut_off_everybody();
    let ada = world.builder("ada").enabled(false).connect().await.unwrap();
    let election = ada.election(NAME).start().await.unwrap();
    world.settle().await;
    assert!(election.is_leader() && !election.status().enabled);

    let bob = world.client("bob").await;
    let alone = bob.election(NAME).enabled(false).start().await.unwrap();
    world.settle().await;
    assert!(alone.is_leader(), "per resource, too");
    let term = alone.term().unwrap();
    assert!(term.token().get() > 0 && term.is_valid());
    world.advance(Duration::from_secs(60)).await;
    assert!(term.is_valid() && alone.is_leader(), "renewed like any other");
    drop(term);
    world.advance_while(alone.stop()).await;
}

#[tokio::test]
async fn fifty_gains_and_losses_leave_nothing_behind() {
    let world = World::new();
    let tenure = world.client("ada").await;
    let election = tenure.election(NAME).start().await.unwrap();
    let mut tokens = Vec::new();
    let mut threads = 0;
    for round in 0..50 {
        world.run_until(|| election.is_leader()).await;
        let term = election.term().unwrap();
        tokens.push(term.token());
        world.advance(Duration::from_millis(20)).await;
        world.take_away(NAME);
        world.settle().await;
        assert!(!term.is_valid() && !election.is_leader(), "round {round}");
        // Without its guard it contends again at once, and may lead before anybody looks.
        let counts = election.status().counts;
        assert_eq!((counts.terms, counts.losses), (round + 1, round + 1));
        drop(term);
        match round {
            5 => threads = threads_of_this_process(),
            49 => assert!(threads_of_this_process() <= threads + 8, "threads pile up"),
            _ => {}
        }
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// Other tests run beside this one, so only a rough count is of use.
fn threads_of_this_process() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count())
}

#[tokio::test]
async fn many_single_tries_by_one_client_never_meet_their_own_past() {
    let world = World::new();
    let tenure = world.client("ada").await;
    let mut last = 0;
    for _ in 0..50 {
        let term = world.advance_while(tenure.try_acquire(NAME)).await.unwrap().unwrap();
        assert!(term.token().get() > last);
        last = term.token().get();
        world.advance_while(term.resign()).await;
    }
}

#[tokio::test]
async fn the_thread_of_a_client_ends_after_its_last_handle() {
    let store = Arc::new(MemoryBackend::new());
    let weak = Arc::downgrade(&store);
    let tenure = Tenure::builder().backend(store).connect().await.unwrap();
    let election = tenure.election(NAME).start().await.unwrap();
    drop(election.wait_for_leadership().await.unwrap());
    drop((tenure, election));
    let ended = || weak.strong_count() == 0;
    for _ in 0..1000 {
        if ended() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the driver still holds its backend");
}

#[tokio::test]
async fn a_hand_over_is_done_once_the_successor_leads() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    for (from, to) in [(&ada, &bob), (&bob, &ada)] {
        let led = world.advance_while(from.hand_over(to.id().as_str())).await.unwrap();
        assert_eq!(led, *to.id());
        assert!(to.is_leader() && !from.is_leader());
    }
}

#[tokio::test]
async fn hand_overs_at_once_have_an_outcome_each() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let both = async { tokio::join!(ada.hand_over("bob"), ada.hand_over("nobody-there")) };
    let (right, wrong) = world.advance_while(both).await;
    assert_eq!(right.unwrap(), *bob.id());
    // The other one may be heard when the first is done.
    let wrong = wrong.unwrap_err().to_string();
    assert!(wrong.contains("not a member") || wrong.contains("not leading"), "{wrong}");
    let both = async { tokio::join!(bob.hand_over("nobody-there"), bob.hand_over("ada")) };
    let (wrong, right) = world.advance_while(both).await;
    let wrong = wrong.unwrap_err().to_string();
    assert!(wrong.contains("not a member"), "{wrong}");
    assert_eq!(right.unwrap(), *ada.id());
    let both = async { tokio::join!(ada.hand_over("bob"), ada.hand_over_to_best()) };
    let (first, second) = world.advance_while(both).await;
    assert_eq!(first.unwrap(), *bob.id());
    assert!(matches!(second, Err(Error::Refused { .. })), "{second:?}");
}

#[tokio::test]
async fn a_hand_over_ends_when_its_term_is_lost() {
    let world = World::new();
    let (ada, _bob) = pair(&world).await;
    let term = ada.term().unwrap();
    let handing = tokio::spawn({
        let ada = ada.clone();
        async move { ada.hand_over("bob").await }
    });
    world.settle().await;
    assert!(term.is_stopping(), "its work is waited for");
    world.give_to_stranger(NAME, "stranger", Duration::from_secs(5));
    world.advance(Duration::from_secs(12)).await;
    drop(term);
    let error = world.advance_while(handing).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_hand_over_ends_when_work_does_not() {
    let world = World::new();
    let (ada, bob) = pair(&world).await;
    let term = ada.term().unwrap();
    let error = world.advance_while(ada.hand_over("bob")).await.unwrap_err();
    assert!(error.to_string().contains("did not end before the lease"), "{error}");
    world.run_until(|| bob.is_leader()).await;
    drop(term);
}

#[tokio::test]
async fn a_hand_over_ends_when_the_store_is_gone_or_the_election_stops() {
    let world = World::new();
    let (ada, _bob) = pair(&world).await;
    let term = ada.term().unwrap();
    let handing = tokio::spawn({
        let ada = ada.clone();
        async move { ada.hand_over("bob").await }
    });
    world.settle().await;
    assert!(term.is_stopping());
    world.cut_off_everybody();
    drop(term);
    let error = world.advance_while(handing).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    world.heal_everybody();
    world.advance_while(ada.stop()).await;
    let error = world.advance_while(ada.hand_over("bob")).await.unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
}

#[tokio::test]
async fn a_successor_that_does_not_take_over_is_told() {
    let world = World::new();
    let (ada, _bob) = pair(&world).await;
    world.cut_off("bob");
    let error = world.advance_while(ada.hand_over("bob")).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}
