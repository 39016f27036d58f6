//! What a store adds to be one of several nodes that decide together.

use tenure_core::protocol::{Acquire, Ballot, Hint, LostWhy, Outcome, Request, Token};

use super::player::{LONG, Player, SHORT, Stage, attempt_of, beyond};
use super::{Verdict, cases, ensure, shaped};
use crate::backend::Signal;

cases![
    a_proposal_takes_nothing,
    a_term_is_settled_under_the_number_that_is_given,
    a_number_that_is_known_is_not_settled_again,
    the_same_attempt_moves_on_to_a_higher_number,
    a_vacant_node_adopts_a_later_term,
    an_abandoned_number_keeps_no_earlier_term_out,
    an_abandoned_number_is_adopted_from_a_rival_alone,
    an_abandoned_number_lengthens_no_lock_delay,
    a_term_that_was_closed_is_not_adopted,
    a_term_whose_key_ran_out_is_adopted_again,
    adopting_touches_no_other_term,
    a_node_without_a_past_adopts_nothing_before_its_quarantine,
    passing_on_frees_the_resource_and_names_the_successor,
];

fn ballot(attempt: u64, ballot: Ballot) -> Request {
    Request::Acquire(Acquire { ballot, ..attempt_of(attempt, LONG) })
}

fn adopt(token: Token) -> Request {
    Request::Adopt { token, ttl: LONG, fleet_max_ttl: LONG }
}

async fn proposed(player: &Player, attempt: u64) -> Result<Token, String> {
    match player.outcome(ballot(attempt, Ballot::Propose)).await? {
        Outcome::Granted { token } => Ok(token),
        other => Err(format!("expected a proposal, got {other:?}")),
    }
}

async fn settled(player: &Player, attempt: u64) -> Result<Token, String> {
    let token = proposed(player, attempt).await?;
    match player.outcome(ballot(attempt, Ballot::Settle(token))).await? {
        Outcome::Granted { token: got } if got == token => Ok(token),
        other => Err(format!("expected {token:?} to be settled, got {other:?}")),
    }
}

async fn a_proposal_takes_nothing(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    proposed(&ada, 1).await?;
    let view = ada.view().await?;
    ensure!(view.holder.is_none(), "a proposal took the resource: {view:?}");
    let token = settled(&bob, 1).await?;
    shaped!(ada.outcome(ballot(1, Ballot::Propose)).await?, Outcome::Held);
    ensure!(bob.view().await?.token == Some(token), "it changed the holder's token");
    Ok(())
}

async fn a_term_is_settled_under_the_number_that_is_given(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = beyond(proposed(&ada, 1).await?, 1_000);
    let settle = ballot(1, Ballot::Settle(token));
    shaped!(ada.outcome(settle.clone()).await?, Outcome::Granted { token: got } if got == token);
    shaped!(ada.outcome(settle).await?, Outcome::Granted { token: got } if got == token);
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    shaped!(bob.outcome(ballot(1, Ballot::Settle(beyond(token, 1)))).await?, Outcome::Held);
    shaped!(ada.release(token).await?, Outcome::Released);
    Ok(())
}

async fn a_number_that_is_known_is_not_settled_again(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = settled(&ada, 1).await?;
    ada.release(token).await?;
    let known = LostWhy::OtherTerm(Some(token));
    let again = bob.outcome(ballot(1, Ballot::Settle(token))).await?;
    ensure!(again == Outcome::Lost(known), "{token:?} was settled twice: {again:?}");
    let next = proposed(&bob, 1).await?;
    ensure!(next > token, "{next:?} was proposed after {token:?}");
    Ok(())
}

async fn the_same_attempt_moves_on_to_a_higher_number(stage: Stage) -> Verdict {
    let [ada, _, _] = stage.players();
    let token = settled(&ada, 1).await?;
    let higher = beyond(token, 5);
    let raise = ada.outcome(ballot(1, Ballot::Settle(higher))).await?;
    shaped!(raise, Outcome::Granted { token: got } if got == higher);
    let lower = ada.outcome(ballot(1, Ballot::Settle(token))).await?;
    ensure!(lower == Outcome::Lost(LostWhy::OtherTerm(Some(higher))), "it went back: {lower:?}");
    shaped!(
        ada.outcome(Request::Abandon { attempt: 1 }).await?,
        Outcome::Abandoned { was_granted: true }
    );
    let late = ada.outcome(ballot(1, Ballot::Settle(beyond(token, 9)))).await?;
    ensure!(late == Outcome::AttemptRefused, "an abandoned attempt was settled: {late:?}");
    Ok(())
}

async fn a_vacant_node_adopts_a_later_term(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = settled(&ada, 1).await?;
    ada.release(token).await?;
    let later = beyond(token, 1_000);
    shaped!(bob.outcome(adopt(later)).await?, Outcome::Renewed);
    let view = ada.view().await?;
    ensure!(view.holder == Some(bob.id.clone()) && view.token == Some(later), "{view:?}");
    ensure!(view.pttl.is_some(), "the adopted key has no expiry");
    shaped!(bob.renew(later, LONG).await?, Outcome::Renewed);
    shaped!(bob.release(later).await?, Outcome::Released);
    Ok(())
}

async fn an_abandoned_number_keeps_no_earlier_term_out(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = settled(&ada, 1).await?;
    ada.release(token).await?;
    let (earlier, later) = (beyond(token, 1_000), beyond(token, 2_000));
    let settle = bob.outcome(ballot(1, Ballot::Settle(later))).await?;
    shaped!(settle, Outcome::Granted { token: got } if got == later);
    bob.outcome(Request::Abandon { attempt: 1 }).await?;
    shaped!(ada.outcome(adopt(earlier)).await?, Outcome::Renewed);
    Ok(())
}

async fn an_abandoned_number_is_adopted_from_a_rival_alone(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = settled(&bob, 1).await?;
    bob.outcome(Request::Abandon { attempt: 1 }).await?;
    shaped!(bob.outcome(adopt(token)).await?, Outcome::Lost(_));
    shaped!(ada.outcome(adopt(token)).await?, Outcome::Renewed);
    ensure!(ada.view().await?.token == Some(token), "it came under another number");
    Ok(())
}

async fn an_abandoned_number_lengthens_no_lock_delay(stage: Stage) -> Verdict {
    let [ada, bob, eve] = stage.players();
    let token = proposed(&ada, 1).await?;
    let crash = Acquire { ballot: Ballot::Settle(token), ..attempt_of(1, SHORT) };
    shaped!(ada.outcome(Request::Acquire(crash)).await?, Outcome::Granted { .. });
    ada.see("the end of the lease", |view| view.holder.is_none()).await?;
    let first = proposed(&bob, 1).await?;
    shaped!(bob.outcome(ballot(1, Ballot::Settle(first))).await?, Outcome::Granted { .. });
    let higher = beyond(first, 5);
    shaped!(bob.outcome(ballot(1, Ballot::Settle(higher))).await?, Outcome::Granted { .. });
    bob.outcome(Request::Abandon { attempt: 1 }).await?;
    // Nobody led by it, so what counts is the end of the short lease, which is over.
    let careful = Acquire { lock_delay: LONG, ballot: Ballot::Propose, ..attempt_of(1, LONG) };
    let left =
        shaped!(eve.outcome(Request::Acquire(careful)).await?, Outcome::Delayed { left } => left);
    ensure!(left <= LONG, "delayed for {left:?}, by the lease that was abandoned");
    Ok(())
}

async fn a_term_that_was_closed_is_not_adopted(stage: Stage) -> Verdict {
    let [ada, _, _] = stage.players();
    let token = settled(&ada, 1).await?;
    ada.release(token).await?;
    let again = ada.outcome(adopt(token)).await?;
    ensure!(again == Outcome::Lost(LostWhy::KeyVanished), "a closed term is back: {again:?}");
    ensure!(ada.view().await?.holder.is_none(), "it left a key");
    Ok(())
}

async fn a_term_whose_key_ran_out_is_adopted_again(stage: Stage) -> Verdict {
    let [ada, _, _] = stage.players();
    let token = proposed(&ada, 1).await?;
    let ask = Acquire { ballot: Ballot::Settle(token), ..attempt_of(1, SHORT) };
    shaped!(ada.outcome(Request::Acquire(ask)).await?, Outcome::Granted { .. });
    ada.see("the end of the lease", |view| view.holder.is_none()).await?;
    shaped!(ada.outcome(adopt(token)).await?, Outcome::Renewed);
    ensure!(ada.view().await?.token == Some(token), "it came back under another token");
    Ok(())
}

async fn adopting_touches_no_other_term(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = settled(&ada, 1).await?;
    shaped!(bob.outcome(adopt(beyond(token, 9))).await?, Outcome::Lost(LostWhy::HeldBy(_)));
    let own = ada.outcome(adopt(beyond(token, 9))).await?;
    ensure!(own == Outcome::Lost(LostWhy::OtherTerm(Some(token))), "{own:?}");
    ensure!(ada.view().await?.token == Some(token), "it changed the holder's token");
    Ok(())
}

async fn a_node_without_a_past_adopts_nothing_before_its_quarantine(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = shaped!(Token::new(1_700_000_000_000_000), Some(token) => token);
    let adopt = Request::Adopt { token, ttl: SHORT, fleet_max_ttl: SHORT };
    match ada.outcome(adopt.clone()).await? {
        // A store that never lost anything has no reason to wait.
        Outcome::Renewed => return Ok(()),
        Outcome::Lost(LostWhy::KeyVanished) => {}
        other => return Err(format!("expected a refusal, got {other:?}")),
    }
    let ask = Acquire { fresh_store: false, age_counts: false, ..attempt_of(1, SHORT) };
    let careful = Acquire { ballot: Ballot::Propose, ..ask };
    shaped!(bob.outcome(Request::Acquire(careful)).await?, Outcome::Quarantine { .. });
    ada.see("the end of the quarantine", |view| view.holder.is_none()).await?;
    shaped!(ada.outcome(adopt).await?, Outcome::Renewed);
    Ok(())
}

async fn passing_on_frees_the_resource_and_names_the_successor(stage: Stage) -> Verdict {
    let [ada, bob, cleo] = stage.players();
    let token = settled(&ada, 1).await?;
    let mut heard = stage.subscribe();
    while !matches!(heard.next().await, Some(Signal::Listening) | None) {}
    let (to, claim_ttl) = (bob.id.clone(), SHORT);
    let foreign = Request::PassOn { token, to: bob.id.clone(), claim_ttl };
    shaped!(cleo.outcome(foreign).await?, Outcome::Lost(_));
    let pass_on = Request::PassOn { token, to, claim_ttl };
    shaped!(ada.outcome(pass_on.clone()).await?, Outcome::Released);
    // Its answer was lost on the way, and it is asked again.
    shaped!(ada.outcome(pass_on.clone()).await?, Outcome::Released);
    let other = Request::PassOn { token, to: cleo.id.clone(), claim_ttl };
    shaped!(ada.outcome(other).await?, Outcome::Lost(_));
    loop {
        match heard.next().await {
            Some(Signal::Hint(Hint::Transferred { to, .. })) if to == bob.id => break,
            Some(_) => {}
            None => return Err("the hint did not come".into()),
        }
    }
    let view = bob.view().await?;
    ensure!(view.holder.is_none() && !view.reserved, "something is left behind: {view:?}");
    let next = settled(&bob, 1).await?;
    shaped!(ada.outcome(pass_on.clone()).await?, Outcome::Released);
    shaped!(bob.release(next).await?, Outcome::Released);
    settled(&cleo, 1).await?;
    shaped!(ada.outcome(pass_on).await?, Outcome::Lost(_));
    Ok(())
}
