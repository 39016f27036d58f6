//! Observers and operators: who leads, and asking it for something from outside.

use std::time::Duration;

use tenure::testing::World;
use tenure::{AskOutcome, Election, Error, Leadership, Reason, Vacancy};
use tenure_core::protocol::HistoryKind;

const NAME: &str = "watched";

async fn start(world: &World, client: &str) -> Election {
    let election = world.client(client).await.election(NAME).start().await.unwrap();
    world.settle().await;
    election
}

#[tokio::test]
async fn having_no_leader_is_an_answer_and_having_no_store_is_an_error() {
    let world = World::new();
    let eve = world.client("eve").await;
    let vacant = world.advance_while(eve.observe(NAME).unwrap().leader()).await.unwrap();
    assert_eq!(vacant, Leadership::Vacant(Vacancy::Free));
    let ada = start(&world, "ada").await;
    let led = world.advance_while(eve.observe(NAME).unwrap().leader()).await.unwrap();
    let Leadership::Led { leader, remaining } = led else { panic!("{led:?}") };
    assert_eq!(leader.id, *ada.id());
    assert!(remaining.unwrap() > Duration::from_secs(9));
    world.cut_off("eve");
    let error = world.advance_while(eve.observe(NAME).unwrap().leader()).await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "never taken for \"nobody\": {error}");
}

#[tokio::test]
async fn waiting_for_leadership_ends_with_it_or_with_the_time() {
    let world = World::new();
    let (ada, bob) = (start(&world, "ada").await, start(&world, "bob").await);
    let limit = Duration::from_secs(30);
    let waited = world.advance_while(bob.wait_for_leadership_within(limit)).await;
    let reason = Some(Reason::HeldBy(ada.id().clone()));
    let error = waited.unwrap_err();
    assert_eq!(error, Error::TimedOut { what: "leadership", waited: limit, reason });
    assert!(error.to_string().ends_with(&format!("held by {}", ada.id())), "{error}");
    drop(ada);
    let term = world.advance_while(bob.wait_for_leadership_within(limit)).await.unwrap();
    assert!(term.is_valid());
}

#[tokio::test]
async fn an_observer_sees_changes_without_taking_part() {
    let world = World::new();
    let eve = world.client("eve").await;
    let mut changes = world.advance_while(eve.observe(NAME).unwrap().changes()).await.unwrap();
    let first = world.advance_while(changes.next()).await.unwrap();
    assert!(first.leadership.leader().is_none() && first.members.is_empty());
    let ada = start(&world, "ada").await;
    let second = world.advance_while(changes.next()).await.unwrap();
    assert_eq!(second.leadership.leader().unwrap().id, *ada.id());
    assert_eq!(second.members.len(), 1, "the observer is not on the list");
    let token = ada.term().unwrap().token();
    world.advance_while(ada.stop()).await;
    let third = world.advance_while(changes.next()).await.unwrap();
    assert!(third.leadership.leader().is_none());
    let history = world.advance_while(eve.observe(NAME).unwrap().history(10)).await.unwrap();
    assert_eq!(history.len(), 2);
    assert!(matches!(history[0].what, HistoryKind::Closed { .. }), "newest first");
    assert_eq!((history[1].token, &history[1].what), (Some(token), &HistoryKind::Granted));
}

#[tokio::test]
async fn an_operator_asks_and_the_leader_stops_its_work_first() {
    let world = World::new();
    let (ada, bob) = (start(&world, "ada").await, start(&world, "bob").await);
    let operator = world.client("operator").await;
    world.advance(Duration::from_secs(1)).await;
    let term = ada.term().unwrap();
    let work = tokio::spawn(async move {
        term.wait_until_stopping().await;
        let reason = term.stop_reason();
        assert!(term.is_valid());
        drop(term);
        reason
    });
    let asked = world.advance_while(operator.observe(NAME).unwrap().ask_to_resign()).await.unwrap();
    assert!(asked.is_done(), "{asked:?}");
    assert_eq!(work.await.unwrap(), Some(Reason::AskedToResign(operator.id().clone())));
    world.run_until(|| bob.is_leader()).await;

    let asked =
        world.advance_while(operator.observe(NAME).unwrap().ask_to_hand_over("ada")).await.unwrap();
    let AskOutcome::Done { leader: Some(leader) } = asked else { panic!("{asked:?}") };
    assert_eq!(leader.id, *ada.id());
    world.settle().await;
    assert!(ada.is_leader() && !bob.is_leader());
}

#[tokio::test]
async fn a_successor_is_nobodys_leader_before_it_has_taken_over() {
    let world = World::new();
    let (ada, bob) = (start(&world, "ada").await, start(&world, "bob").await);
    let eve = world.client("eve").await;
    let mut changes = world.advance_while(eve.observe(NAME).unwrap().changes()).await.unwrap();
    world.advance_while(changes.next()).await.unwrap();
    world.cut_off("bob");
    let handing = tokio::spawn({
        let ada = ada.clone();
        async move { ada.hand_over("bob").await }
    });
    world.settle().await;

    let seen = world.advance_while(changes.next()).await.unwrap();
    let Leadership::Vacant(Vacancy::Reserved { to, left }) = seen.leadership else {
        panic!("{seen:?}")
    };
    assert_eq!(to, *bob.id());
    assert!(left <= Duration::from_secs(1), "{left:?}");
    assert_eq!(ada.status().seen_leader, None, "nobody leads for those who take part, either");
    world.run_until(|| ada.is_leader()).await;
    assert_eq!(ada.status().seen_leader.unwrap().id, *ada.id());
    let told = world.advance_while(handing).await.unwrap().unwrap_err().to_string();
    assert!(told.contains("did not take over"), "{told}");
}

#[tokio::test]
async fn a_hand_over_is_done_when_the_successor_leads_and_not_before() {
    let world = World::new();
    let (ada, _bob) = (start(&world, "ada").await, start(&world, "bob").await);
    let operator = world.client("operator").await;
    world.cut_off("bob");
    let asked =
        world.advance_while(operator.observe(NAME).unwrap().ask_to_hand_over("bob")).await.unwrap();
    assert!(matches!(asked, AskOutcome::Refused { .. }), "bob never took over: {asked:?}");
    world.run_until(|| ada.is_leader()).await;
}

#[tokio::test]
async fn a_wish_may_be_refused_unanswered_or_addressed_to_nobody() {
    let world = World::new();
    let operator = world.client("operator").await;
    let nobody =
        world.advance_while(operator.observe(NAME).unwrap().ask_to_resign()).await.unwrap();
    assert_eq!(nobody, AskOutcome::NobodyLeads);
    let ada = start(&world, "ada").await;
    world.advance(Duration::from_secs(1)).await;
    let asked =
        world.advance_while(operator.observe(NAME).unwrap().ask_to_hand_over("zoe")).await.unwrap();
    assert!(
        matches!(&asked, AskOutcome::Refused { why } if why.contains("not a member")),
        "{asked:?}"
    );
    assert!(ada.is_leader());
    world.give_to_stranger(NAME, "old-program", Duration::from_secs(60));
    let asked = world.advance_while(operator.observe(NAME).unwrap().ask_to_resign()).await.unwrap();
    assert!(
        matches!(&asked, AskOutcome::Refused { why } if why.contains("old-program")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_leader_out_of_reach_does_not_answer_a_wish() {
    let world = World::new();
    let tenure = world.client("ada").await;
    let ada = tenure.election(NAME).ttl(Duration::from_secs(60)).start().await.unwrap();
    world.settle().await;
    world.cut_off("ada");
    let operator = world.client("operator").await;
    let begun = world.elapsed();
    let asked = world.advance_while(operator.observe(NAME).unwrap().ask_to_resign()).await.unwrap();
    // Its lease ends before the wish does: the term is over, though nobody answered.
    assert!(matches!(asked, AskOutcome::Done { leader: None }), "{asked:?}");
    assert!(world.elapsed() - begun >= Duration::from_secs(59) && !ada.is_leader());
}

#[tokio::test]
async fn a_paused_election_grants_nothing_until_resumed() {
    let world = World::new();
    let operator = world.client("operator").await;
    let election = operator.observe(NAME).unwrap();
    world.advance_while(election.pause(Duration::from_secs(600))).await.unwrap();
    let ada = start(&world, "ada").await;
    world.advance(Duration::from_secs(60)).await;
    assert!(!ada.is_leader());
    assert_eq!(ada.status().reason, Reason::Paused);
    let vacant = world.advance_while(operator.observe(NAME).unwrap().leader()).await.unwrap();
    assert!(matches!(vacant, Leadership::Vacant(Vacancy::Paused { .. })), "{vacant:?}");
    world.advance_while(operator.observe(NAME).unwrap().resume()).await.unwrap();
    world.advance(Duration::from_secs(1)).await;
    assert!(ada.is_leader());
    let error = operator.observe(NAME).unwrap().pause(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::Setting { setting: "pause", .. }), "{error}");
}

#[tokio::test]
async fn clearing_needs_force_while_the_holder_is_alive() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let operator = world.client("operator").await;
    let refused = world.advance_while(operator.observe(NAME).unwrap().clear("stuck")).await;
    let error = refused.unwrap_err();
    assert!(matches!(&error, Error::HolderAlive { holder, .. } if *holder == ada.id().to_string()));
    assert!(ada.is_leader());
    let first = ada.term().unwrap().token();
    world.advance_while(operator.observe(NAME).unwrap().force_clear("stuck")).await.unwrap();
    world.run_until(|| !ada.is_leader()).await;
    let history = world.advance_while(operator.observe(NAME).unwrap().history(5)).await.unwrap();
    let told = history.iter().any(
        |entry| matches!(&entry.what, HistoryKind::Closed { detail, .. } if detail == "stuck"),
    );
    assert!(told, "{history:?}");
    world.run_until(|| ada.is_leader()).await;
    assert!(ada.term().unwrap().token() > first, "the floor was kept");
}
