//! Foreign data in the resource's place: seen, reported, left alone.

use std::time::Duration;

use tenure_core::InstanceId;
use tenure_core::protocol::{Acquire, CloseReason, HistoryKind, LostWhy, Outcome, Request, Token};

use super::player::{LONG, SHORT, Stage, attempt_of};
use super::{Verdict, cases, ensure, shaped};

cases![
    a_foreign_holder_is_held_and_told,
    a_foreign_holder_without_expiry_is_healed_when_it_is_the_one_seen,
    clearing_a_foreign_holder_is_told_in_history,
    what_cannot_be_a_holder_is_a_conflict_and_stays,
    a_vanished_holder_is_told_to_its_owner,
    a_store_that_forgot_everything_makes_everyone_wait,
];

async fn a_foreign_holder_is_held_and_told(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    // It must still be there when it is looked at, on a machine that is busy.
    let lasts = Duration::from_secs(3);
    stage.meddler().take(&stage.resource, "somebody-else", Some(lasts)).await;
    let view = ada.view().await?;
    ensure!(view.foreign && view.token.is_none(), "the view is {view:?}");
    let (_, before) = ada.lead_at_last(&attempt_of(1, LONG)).await?;
    ensure!(before.iter().all(|o| *o == Outcome::Held), "before the grant came {before:?}");
    Ok(())
}

async fn a_foreign_holder_without_expiry_is_healed_when_it_is_the_one_seen(
    stage: Stage,
) -> Verdict {
    let [ada, ..] = stage.players();
    stage.meddler().take(&stage.resource, "for-ever", None).await;
    let heal = |attempt, seen| Acquire { heal: Some(seen), ..attempt_of(attempt, SHORT) };
    let answer = ada.ask(Request::Acquire(attempt_of(1, SHORT))).await?;
    shaped!(answer.outcome, Outcome::Held);
    ensure!(answer.view.pttl.is_none(), "the expiry is {:?}", answer.view.pttl);
    let other = heal(2, InstanceId::seen("another"));
    let answer = ada.ask(Request::Acquire(other)).await?;
    ensure!(answer.view.pttl.is_none(), "healed though another was seen");
    let seen = answer.view.holder.ok_or("no holder")?;
    let answer = ada.ask(Request::Acquire(heal(3, seen))).await?;
    shaped!(answer.outcome, Outcome::Held);
    ensure!(answer.view.pttl.is_some_and(|left| left > SHORT), "not healed: {:?}", answer.view);
    ada.lead_at_last(&attempt_of(4, LONG)).await?;
    Ok(())
}

async fn clearing_a_foreign_holder_is_told_in_history(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    stage.meddler().take(&stage.resource, "for-ever", None).await;
    let clear = Request::Clear { reason: "drill".into(), quarantine: SHORT };
    shaped!(ada.outcome(clear).await?, Outcome::Done);
    let history = ada.outcome(Request::History { count: 9 }).await?;
    let entries = shaped!(history, Outcome::History(entries) => entries);
    let is_told = |what: &HistoryKind| matches!(what, HistoryKind::Quarantined { detail } if detail.contains("drill"));
    ensure!(entries.len() == 1 && is_told(&entries[0].what), "history is {entries:?}");
    Ok(())
}

async fn what_cannot_be_a_holder_is_a_conflict_and_stays(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    stage.meddler().obstruct(&stage.resource).await;
    shaped!(ada.acquire(1, LONG).await?, Outcome::Conflict { .. });
    let token = Token::new(1).expect("not zero");
    shaped!(ada.renew(token, LONG).await?, Outcome::Lost(LostWhy::Overwritten(_)));
    shaped!(ada.release(token).await?, Outcome::Lost(LostWhy::Overwritten(_)));
    shaped!(ada.transfer(token, &bob, LONG).await?, Outcome::Lost(LostWhy::Overwritten(_)));
    shaped!(ada.outcome(Request::Abandon { attempt: 1 }).await?, Outcome::Conflict { .. });
    let clear = Request::Clear { reason: String::new(), quarantine: SHORT };
    shaped!(ada.outcome(clear).await?, Outcome::Conflict { .. });
    ensure!(stage.meddler().is_obstructed(&stage.resource).await, "the foreign data is changed");
    Ok(())
}

async fn a_vanished_holder_is_told_to_its_owner(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    stage.meddler().remove_holder(&stage.resource).await;
    shaped!(ada.renew(token, LONG).await?, Outcome::Lost(LostWhy::KeyVanished));
    let (next, _) = bob.lead_at_last(&attempt_of(1, LONG)).await?;
    ensure!(next > token, "{next:?} follows {token:?}");
    let history = bob.outcome(Request::History { count: 2 }).await?;
    let entries = shaped!(history, Outcome::History(entries) => entries);
    let ended = entries.get(1).map(|entry| &entry.what);
    shaped!(ended, Some(HistoryKind::Closed { reason: CloseReason::Vanished, .. }));
    Ok(())
}

async fn a_store_that_forgot_everything_makes_everyone_wait(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    stage.meddler().forget(&stage.resource).await;
    let knowing = Acquire { floor: Some(token), ..attempt_of(1, SHORT) };
    let asked = bob.outcome(Request::Acquire(knowing.clone())).await?;
    let left = shaped!(asked, Outcome::Quarantine { left, .. } => left);
    ensure!(left > SHORT, "a quarantine of {left:?} is not longer than a lease of {SHORT:?}");
    let (next, before) = bob.lead_at_last(&Acquire { attempt: 2, ..knowing }).await?;
    ensure!(next > token, "{next:?} follows {token:?}");
    let only_quarantine = before.iter().all(|o| matches!(o, Outcome::Quarantine { .. }));
    ensure!(only_quarantine, "before the grant came {before:?}");
    ensure!(left < Duration::from_secs(10), "a quarantine of {left:?} for leases of {SHORT:?}");
    Ok(())
}
