//! Grants, renewals, releases, lost answers and the end of leases.

use std::time::Duration;

use tenure_core::protocol::{Acquire, LostWhy, Outcome, Request, Token};

use super::player::{LONG, SHORT, Stage, attempt_of, beyond};
use super::{Verdict, cases, ensure, shaped};
use crate::clock::timer_now;

cases![
    a_free_resource_is_granted_to_one,
    looking_on_takes_nothing,
    the_same_attempt_gets_the_same_term_again,
    another_attempt_of_the_holder_is_held,
    an_abandoned_attempt_gives_the_resource_back,
    an_attempt_abandoned_before_it_arrives_is_refused,
    abandoning_an_old_attempt_leaves_the_running_term,
    a_late_copy_of_a_released_attempt_takes_nothing,
    a_renewal_outlives_the_first_lease,
    a_renewal_under_another_token_touches_nothing,
    a_renewal_by_another_instance_touches_nothing,
    a_renewal_of_a_released_term_revives_nothing,
    a_release_under_another_token_touches_nothing,
    a_release_by_another_instance_touches_nothing,
    a_released_resource_is_free_at_once,
    a_lease_ends_by_itself_and_not_before,
    tokens_grow_from_term_to_term,
    a_store_that_forgot_tokens_makes_everyone_wait,
    calls_take_effect_in_the_order_they_were_made,
    answers_come_or_fail_in_time,
    the_clock_of_the_store_goes_forward,
];

async fn a_free_resource_is_granted_to_one(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let answer = bob.ask(Request::Acquire(attempt_of(1, LONG))).await?;
    shaped!(answer.outcome, Outcome::Held);
    let view = answer.view;
    ensure!(view.holder == Some(ada.id.clone()), "the holder is {:?}", view.holder);
    ensure!(view.token == Some(token) && !view.foreign, "the view is {view:?}");
    ensure!(view.pttl.is_some_and(|left| left <= LONG), "the lease is {:?}", view.pttl);
    ensure!(!view.incarnation.is_empty(), "the store does not tell which life this is");
    Ok(())
}

async fn looking_on_takes_nothing(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let view = bob.view().await?;
    ensure!(view.holder.is_none() && view.pttl.is_none(), "a fresh resource has {view:?}");
    ensure!(view.token.is_none() && view.wish.is_none(), "a fresh resource has {view:?}");
    let token = ada.lead(1, LONG).await?;
    let view = bob.view().await?;
    ensure!(view.token == Some(token) && view.holder == Some(ada.id), "looking on saw {view:?}");
    Ok(())
}

async fn the_same_attempt_gets_the_same_term_again(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(7, LONG).await?;
    for _ in 0..2 {
        let again = ada.lead(7, LONG).await?;
        ensure!(again == token, "the retry got {again:?} instead of {token:?}");
    }
    shaped!(bob.acquire(7, LONG).await?, Outcome::Held);
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    Ok(())
}

async fn another_attempt_of_the_holder_is_held(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(ada.acquire(2, LONG).await?, Outcome::Held);
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    Ok(())
}

async fn an_abandoned_attempt_gives_the_resource_back(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let abandoned = ada.outcome(Request::Abandon { attempt: 1 }).await?;
    shaped!(abandoned, Outcome::Abandoned { was_granted: true });
    shaped!(ada.renew(token, LONG).await?, Outcome::Lost(_));
    let next = bob.lead(1, LONG).await?;
    ensure!(next > token, "{next:?} follows {token:?}");
    Ok(())
}

async fn an_attempt_abandoned_before_it_arrives_is_refused(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let abandoned = ada.outcome(Request::Abandon { attempt: 3 }).await?;
    shaped!(abandoned, Outcome::Abandoned { was_granted: false });
    for _ in 0..2 {
        shaped!(ada.acquire(3, LONG).await?, Outcome::AttemptRefused);
    }
    ensure!(ada.view().await?.holder.is_none(), "the refused attempt holds the resource");
    ada.lead(4, LONG).await?;
    Ok(())
}

async fn abandoning_an_old_attempt_leaves_the_running_term(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let token = ada.lead(5, LONG).await?;
    let abandoned = ada.outcome(Request::Abandon { attempt: 4 }).await?;
    shaped!(abandoned, Outcome::Abandoned { was_granted: false });
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    Ok(())
}

async fn a_late_copy_of_a_released_attempt_takes_nothing(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(ada.release(token).await?, Outcome::Released);
    shaped!(ada.acquire(1, LONG).await?, Outcome::AttemptRefused);
    let token = bob.lead(1, LONG).await?;
    shaped!(bob.release(token).await?, Outcome::Released);
    shaped!(ada.acquire(1, LONG).await?, Outcome::AttemptRefused);
    ensure!(bob.view().await?.holder.is_none(), "the late copy holds the resource");
    Ok(())
}

async fn a_renewal_outlives_the_first_lease(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let first = Duration::from_secs(3);
    let token = ada.lead(1, first).await?;
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    tokio::time::sleep(first + SHORT / 5).await;
    let answer = bob.ask(Request::Acquire(attempt_of(1, LONG))).await?;
    shaped!(answer.outcome, Outcome::Held);
    ensure!(answer.view.pttl.is_some_and(|left| left > first), "lease {:?}", answer.view.pttl);
    Ok(())
}

async fn a_renewal_under_another_token_touches_nothing(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let token = ada.lead(1, LONG).await?;
    for wrong in [beyond(token, 1), Token::new(1).expect("not zero")] {
        let lost = ada.renew(wrong, LONG * 10).await?;
        shaped!(lost, Outcome::Lost(LostWhy::OtherTerm(found)) if found == Some(token));
    }
    let view = ada.view().await?;
    ensure!(view.token == Some(token), "the token is {:?}", view.token);
    ensure!(view.pttl.is_some_and(|left| left <= LONG), "the lease is {:?}", view.pttl);
    Ok(())
}

async fn a_renewal_by_another_instance_touches_nothing(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let lost = bob.renew(token, LONG * 10).await?;
    shaped!(lost, Outcome::Lost(LostWhy::HeldBy(holder)) if holder == ada.id);
    let view = ada.view().await?;
    ensure!(view.holder == Some(ada.id), "the holder is {:?}", view.holder);
    ensure!(view.pttl.is_some_and(|left| left <= LONG), "the lease is {:?}", view.pttl);
    Ok(())
}

async fn a_renewal_of_a_released_term_revives_nothing(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(ada.release(token).await?, Outcome::Released);
    shaped!(ada.renew(token, LONG).await?, Outcome::Lost(LostWhy::KeyVanished));
    ensure!(ada.view().await?.holder.is_none(), "the renewal revived the term");
    bob.lead(1, LONG).await?;
    let lost = ada.renew(token, LONG).await?;
    shaped!(lost, Outcome::Lost(LostWhy::HeldBy(holder)) if holder == bob.id);
    Ok(())
}

async fn a_release_under_another_token_touches_nothing(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let lost = ada.release(beyond(token, 1)).await?;
    shaped!(lost, Outcome::Lost(LostWhy::OtherTerm(found)) if found == Some(token));
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    Ok(())
}

async fn a_release_by_another_instance_touches_nothing(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let lost = bob.release(token).await?;
    shaped!(lost, Outcome::Lost(LostWhy::HeldBy(holder)) if holder == ada.id);
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    Ok(())
}

async fn a_released_resource_is_free_at_once(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let answer =
        ada.ask(Request::Release { token, reason: tenure_core::protocol::CloseReason::Released });
    let answer = answer.await?;
    shaped!(answer.outcome, Outcome::Released);
    ensure!(answer.view.holder.is_none(), "the view is {:?}", answer.view);
    let next = bob.lead(1, LONG).await?;
    ensure!(next > token, "{next:?} follows {token:?}");
    Ok(())
}

async fn a_lease_ends_by_itself_and_not_before(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let asked_at = timer_now();
    let token = ada.lead(1, SHORT).await?;
    let (next, _) = bob.lead_at_last(&attempt_of(1, LONG)).await?;
    let waited = timer_now() - asked_at;
    ensure!(waited >= SHORT * 98 / 100, "a lease of {SHORT:?} ended after {waited:?}");
    ensure!(next > token, "{next:?} follows {token:?}");
    let lost = ada.renew(token, LONG).await?;
    shaped!(lost, Outcome::Lost(LostWhy::HeldBy(holder)) if holder == bob.id);
    Ok(())
}

async fn tokens_grow_from_term_to_term(stage: Stage) -> Verdict {
    let players = stage.players();
    let mut last = None;
    for round in 0..30_usize {
        let player = &players[round % players.len()];
        let token = player.lead(round as u64 + 1, LONG).await?;
        ensure!(Some(token) > last, "term {round} has {token:?} after {last:?}");
        last = Some(token);
        if round % 2 == 0 {
            shaped!(player.release(token).await?, Outcome::Released);
        } else {
            let undone = player.outcome(Request::Abandon { attempt: round as u64 + 1 }).await?;
            shaped!(undone, Outcome::Abandoned { was_granted: true });
        }
    }
    Ok(())
}

async fn a_store_that_forgot_tokens_makes_everyone_wait(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(ada.release(token).await?, Outcome::Released);
    // Somebody saw a term that this store knows nothing of.
    let floor = beyond(token, 60_000_000);
    let acquire = Acquire { floor: Some(floor), ..attempt_of(1, SHORT) };
    let answer = bob.ask(Request::Acquire(acquire.clone())).await?;
    let left = shaped!(answer.outcome, Outcome::Quarantine { left, .. } => left);
    ensure!(left >= SHORT, "a quarantine of {left:?} is shorter than a lease");
    shaped!(ada.acquire(2, SHORT).await?, Outcome::Quarantine { .. });
    ensure!(!answer.view.foreign, "the quarantine counts as a foreign holder");
    Ok(())
}

async fn calls_take_effect_in_the_order_they_were_made(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    for attempt in 1..20 {
        let acquiring = ada.begin(Request::Acquire(attempt_of(attempt, LONG)));
        let abandoning = ada.begin(Request::Abandon { attempt });
        let (acquired, abandoned) = tokio::join!(acquiring, abandoning);
        shaped!(acquired?.outcome, Outcome::Granted { .. });
        shaped!(abandoned?.outcome, Outcome::Abandoned { was_granted: true });
    }
    bob.lead(1, LONG).await?;
    Ok(())
}

async fn answers_come_or_fail_in_time(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let calling = ada.begin_within(Request::Observe { members: false }, Duration::from_millis(1));
    // Either way is right; to hang is not.
    let ended = tokio::time::timeout(Duration::from_secs(10), calling).await;
    ensure!(ended.is_ok(), "a call with a time-out of 1 ms took over 10 s");
    Ok(())
}

async fn the_clock_of_the_store_goes_forward(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let before = ada.view().await?.server_time;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let after = bob.view().await?.server_time;
    let passed = after.since(before);
    ensure!(passed >= Duration::from_millis(10), "in 20 ms the clock went on by {passed:?}");
    Ok(())
}
