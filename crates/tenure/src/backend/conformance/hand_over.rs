//! Hand-overs, and wishes for them.

use std::time::Duration;

use tenure_core::protocol::{Hint, LostWhy, Outcome, Request, Token, WishKind};

use super::player::{LONG, SHORT, Stage, attempt_of, beyond};
use super::{Verdict, cases, ensure, shaped};
use crate::backend::{Signal, Subscription};

cases![
    a_successor_claims_what_was_handed_over,
    a_successor_is_not_shown_as_leading_before_it_claims,
    a_repeated_hand_over_gives_the_first_result,
    an_unclaimed_hand_over_lapses,
    only_the_holder_hands_over,
    a_wish_reaches_the_holder_of_exactly_that_term,
    a_wish_ends_with_its_term,
    a_wish_ends_with_its_time,
    a_refused_wish_says_why,
    hints_tell_what_happens,
];

async fn a_successor_claims_what_was_handed_over(stage: Stage) -> Verdict {
    let [ada, bob, cleo] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let handed = ada.transfer(token, &bob, LONG).await?;
    let drawn = shaped!(handed, Outcome::Transferred { token } => token);
    ensure!(drawn > token, "{drawn:?} follows {token:?}");
    let left = shaped!(cleo.acquire(1, LONG).await?, Outcome::Reserved { left } => left);
    ensure!(left <= LONG, "reserved for {left:?}");
    shaped!(ada.renew(token, LONG).await?, Outcome::Lost(_));
    shaped!(ada.acquire(2, LONG).await?, Outcome::Reserved { .. });

    let claimed = bob.lead(1, LONG).await?;
    ensure!(claimed == drawn, "claimed {claimed:?}, reserved {drawn:?}");
    ensure!(bob.lead(1, LONG).await? == drawn, "the repeated claim got another token");
    shaped!(bob.acquire(2, LONG).await?, Outcome::Held);
    shaped!(bob.renew(drawn, LONG).await?, Outcome::Renewed);
    shaped!(cleo.acquire(2, LONG).await?, Outcome::Held);
    Ok(())
}

async fn a_successor_is_not_shown_as_leading_before_it_claims(stage: Stage) -> Verdict {
    let [ada, bob, cleo] = stage.players();
    let token = ada.lead(1, LONG).await?;
    ensure!(!cleo.view().await?.reserved, "a holder counts as reserved");
    shaped!(ada.transfer(token, &bob, LONG).await?, Outcome::Transferred { .. });
    let view = cleo.view().await?;
    ensure!(view.reserved && view.holder.as_ref() == Some(&bob.id), "before the claim: {view:?}");
    bob.lead(1, LONG).await?;
    let view = cleo.view().await?;
    ensure!(!view.reserved && view.holder.as_ref() == Some(&bob.id), "after the claim: {view:?}");
    Ok(())
}

async fn a_repeated_hand_over_gives_the_first_result(stage: Stage) -> Verdict {
    let [ada, bob, cleo] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let first = ada.transfer(token, &bob, LONG).await?;
    shaped!(first, Outcome::Transferred { .. });
    ensure!(ada.transfer(token, &bob, LONG).await? == first, "before the claim");
    shaped!(ada.transfer(token, &cleo, LONG).await?, Outcome::Lost(_));
    let claimed = bob.lead(1, LONG).await?;
    ensure!(ada.transfer(token, &bob, LONG).await? == first, "after the claim");
    shaped!(bob.renew(claimed, LONG).await?, Outcome::Renewed);
    Ok(())
}

async fn an_unclaimed_hand_over_lapses(stage: Stage) -> Verdict {
    let [ada, bob, cleo] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let handed = ada.transfer(token, &bob, SHORT).await?;
    let drawn = shaped!(handed, Outcome::Transferred { token } => token);
    let (next, _) = cleo.lead_at_last(&attempt_of(1, LONG)).await?;
    ensure!(next > drawn, "{next:?} follows the unclaimed {drawn:?}");
    shaped!(bob.acquire(1, LONG).await?, Outcome::Held);
    shaped!(cleo.renew(next, LONG).await?, Outcome::Renewed);
    Ok(())
}

async fn only_the_holder_hands_over(stage: Stage) -> Verdict {
    let [ada, bob, cleo] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let lost = bob.transfer(token, &cleo, LONG).await?;
    shaped!(lost, Outcome::Lost(LostWhy::HeldBy(holder)) if holder == ada.id);
    let lost = ada.transfer(beyond(token, 1), &bob, LONG).await?;
    shaped!(lost, Outcome::Lost(LostWhy::OtherTerm(found)) if found == Some(token));
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    Ok(())
}

fn wish(token: Token, kind: WishKind, stands_for: Duration) -> Request {
    Request::Ask { token, wish: kind, stands_for }
}

async fn a_wish_reaches_the_holder_of_exactly_that_term(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    shaped!(bob.outcome(wish(Token::MAX, WishKind::Resign, LONG)).await?, Outcome::NoSuchTerm);
    let token = ada.lead(1, LONG).await?;
    let stale = bob.outcome(wish(beyond(token, 1), WishKind::Resign, LONG)).await?;
    shaped!(stale, Outcome::NoSuchTerm);
    let answer = ada.ask(Request::Renew { token, ttl: LONG, fleet_max_ttl: LONG }).await?;
    ensure!(answer.view.wish.is_none(), "a wish for nobody's term: {:?}", answer.view.wish);

    let kind = WishKind::HandOver { to: "bob".into() };
    shaped!(bob.outcome(wish(token, kind.clone(), LONG)).await?, Outcome::Done);
    let answer = ada.ask(Request::Renew { token, ttl: LONG, fleet_max_ttl: LONG }).await?;
    let found = shaped!(answer.view.wish, Some(wish) => wish);
    ensure!(found.kind == kind && found.by == bob.id, "the wish is {found:?}");
    ensure!(found.token == Some(token) && found.refused.is_none(), "the wish is {found:?}");
    ensure!(found.until > answer.view.server_time, "the wish is over: {found:?}");
    Ok(())
}

async fn a_wish_ends_with_its_term(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(bob.outcome(wish(token, WishKind::Resign, LONG)).await?, Outcome::Done);
    shaped!(ada.release(token).await?, Outcome::Released);
    let stale = bob.outcome(wish(token, WishKind::Resign, LONG)).await?;
    shaped!(stale, Outcome::NoSuchTerm);
    let token = ada.lead(2, LONG).await?;
    let answer = ada.ask(Request::Renew { token, ttl: LONG, fleet_max_ttl: LONG }).await?;
    ensure!(answer.view.wish.is_none(), "the new term has {:?}", answer.view.wish);
    Ok(())
}

async fn a_wish_ends_with_its_time(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(bob.outcome(wish(token, WishKind::Resign, SHORT)).await?, Outcome::Done);
    ada.see("the end of the wish", |view| view.wish.is_none()).await?;
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    Ok(())
}

async fn a_refused_wish_says_why(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(bob.outcome(wish(token, WishKind::Resign, LONG)).await?, Outcome::Done);
    let refuse = |token| Request::Refuse { token, reason: "not before lunch".into() };
    shaped!(bob.outcome(refuse(token)).await?, Outcome::Lost(LostWhy::HeldBy(_)));
    shaped!(ada.outcome(refuse(beyond(token, 1))).await?, Outcome::Lost(LostWhy::OtherTerm(_)));
    shaped!(ada.outcome(refuse(token)).await?, Outcome::Done);
    let refused = bob.view().await?.wish.and_then(|wish| wish.refused);
    ensure!(refused.as_deref() == Some("not before lunch"), "refused: {refused:?}");
    Ok(())
}

/// The next hint of which `pick` makes something; others are passed over.
async fn heard<T>(
    subscription: &mut Subscription,
    what: &str,
    pick: impl Fn(Signal) -> Option<T>,
) -> Result<T, String> {
    let hearing = async {
        loop {
            let signal = subscription.next().await.ok_or("the subscription ended")?;
            if let Some(picked) = pick(signal) {
                return Ok(picked);
            }
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(10), hearing).await;
    heard.unwrap_or_else(|_| Err(format!("no hint of {what}")))
}

async fn hints_tell_what_happens(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let mut ears = stage.subscribe();
    let is = |expected: Signal| move |signal: Signal| (signal == expected).then_some(());
    heard(&mut ears, "listening", is(Signal::Listening)).await?;

    let token = ada.lead(1, LONG).await?;
    let granted = Hint::Granted { id: ada.id.clone(), token, ttl: LONG };
    heard(&mut ears, "the grant", is(Signal::Hint(granted))).await?;
    bob.outcome(Request::Leave).await?;
    heard(&mut ears, "members", is(Signal::Hint(Hint::Members))).await?;
    bob.outcome(wish(token, WishKind::Resign, LONG)).await?;
    heard(&mut ears, "the wish", is(Signal::Hint(Hint::Wished { token }))).await?;
    bob.outcome(Request::Pause { lasts: LONG }).await?;
    heard(&mut ears, "the pause", is(Signal::Hint(Hint::PauseChanged))).await?;
    bob.outcome(Request::Resume).await?;
    heard(&mut ears, "the end of the pause", is(Signal::Hint(Hint::PauseChanged))).await?;
    ada.transfer(token, &bob, LONG).await?;
    let handed = Hint::Transferred { token, to: bob.id.clone(), claim_ttl: LONG };
    heard(&mut ears, "the hand-over", is(Signal::Hint(handed))).await?;
    let token = bob.lead(1, LONG).await?;
    bob.release(token).await?;
    heard(&mut ears, "the release", is(Signal::Hint(Hint::Released { token: Some(token) })))
        .await?;
    Ok(())
}
