//! Pause, clear, lock delay and history.

use std::time::Duration;

use tenure_core::protocol::{
    Acquire, CloseReason, HistoryEntry, HistoryKind, Outcome, Request, Token,
};

use super::player::{LONG, Player, SHORT, Stage, attempt_of};
use super::{Verdict, cases, ensure, shaped};
use crate::clock::timer_now;

cases![
    a_pause_grants_no_new_term,
    a_pause_leaves_the_running_term,
    a_pause_ends_by_itself,
    clear_ends_the_term_and_quarantines,
    clear_keeps_the_tokens,
    a_crash_delays_the_next_grant_and_a_release_does_not,
    history_tells_terms_newest_first,
    history_tells_how_a_crashed_term_ended,
    history_is_as_short_as_asked_for,
];

async fn a_pause_grants_no_new_term(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    shaped!(bob.outcome(Request::Pause { lasts: LONG }).await?, Outcome::Done);
    let answer = ada.ask(Request::Acquire(attempt_of(1, LONG))).await?;
    let left = shaped!(answer.outcome, Outcome::Paused { left } => left);
    ensure!(left <= LONG && left > LONG / 2, "paused for {left:?}");
    ensure!(answer.view.paused_for.is_some(), "the view does not tell of the pause");
    ensure!(answer.view.holder.is_none(), "the pause left {:?}", answer.view.holder);
    shaped!(bob.outcome(Request::Resume).await?, Outcome::Done);
    ensure!(ada.view().await?.paused_for.is_none(), "paused after the pause");
    ada.lead(2, LONG).await?;
    Ok(())
}

async fn a_pause_leaves_the_running_term(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(bob.outcome(Request::Pause { lasts: LONG }).await?, Outcome::Done);
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    shaped!(bob.acquire(1, LONG).await?, Outcome::Held);
    shaped!(ada.release(token).await?, Outcome::Released);
    shaped!(bob.acquire(2, LONG).await?, Outcome::Paused { .. });
    Ok(())
}

async fn a_pause_ends_by_itself(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    shaped!(bob.outcome(Request::Pause { lasts: SHORT }).await?, Outcome::Done);
    let (_, before) = ada.lead_at_last(&attempt_of(1, LONG)).await?;
    let only_paused = before.iter().all(|outcome| matches!(outcome, Outcome::Paused { .. }));
    ensure!(only_paused, "before the grant came {before:?}");
    Ok(())
}

fn clear(quarantine: Duration) -> Request {
    Request::Clear { reason: "the glass was broken".into(), quarantine }
}

async fn clear_ends_the_term_and_quarantines(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    // Long enough that somebody looks before it is over.
    let lease = SHORT * 4;
    let token = ada.lead(1, lease).await?;
    let cleared_at = timer_now();
    shaped!(bob.outcome(clear(lease)).await?, Outcome::Done);
    shaped!(ada.renew(token, lease).await?, Outcome::Lost(_));
    let seen = bob.ask(Request::Observe { members: false }).await?.view;
    let is_told = seen.quarantine_why.as_ref().is_some_and(|why| why.contains("glass was broken"));
    // A busy machine may take longer to look than the quarantine lasts.
    let is_over = timer_now() - cleared_at >= lease;
    ensure!(
        is_told || is_over,
        "who looks is told {:?} instead of why it was cleared",
        seen.quarantine_why
    );
    let (next, before) = bob.lead_at_last(&attempt_of(1, lease)).await?;
    let waited = timer_now() - cleared_at;
    ensure!(waited >= lease * 98 / 100, "a quarantine of {lease:?} ended after {waited:?}");
    let only_quarantine = before.iter().all(|o| matches!(o, Outcome::Quarantine { .. }));
    ensure!(only_quarantine, "before the grant came {before:?}");
    ensure!(next > token, "{next:?} follows {token:?}");
    Ok(())
}

async fn clear_keeps_the_tokens(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, SHORT).await?;
    // However short it is asked to be, it lasts as long as leases do.
    let cleared_at = timer_now();
    shaped!(bob.outcome(clear(Duration::ZERO)).await?, Outcome::Done);
    // The floor proves that the store still knows the token: otherwise that would be the reason.
    let acquire = Acquire { floor: Some(token), ..attempt_of(1, SHORT) };
    let (next, before) = bob.lead_at_last(&acquire).await?;
    let waited = timer_now() - cleared_at;
    ensure!(waited >= SHORT * 98 / 100, "leases of {SHORT:?} were cleared for {waited:?}");
    let is_cleared = |o: &Outcome| match o {
        Outcome::Quarantine { reason, .. } => reason.contains("glass was broken"),
        _ => false,
    };
    ensure!(before.iter().all(is_cleared), "before the grant came {before:?}");
    ensure!(next > token, "{next:?} follows {token:?}");
    Ok(())
}

async fn a_crash_delays_the_next_grant_and_a_release_does_not(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let careful = Acquire { lock_delay: SHORT, ..attempt_of(1, LONG) };
    let token = ada.lead(1, LONG).await?;
    shaped!(ada.release(token).await?, Outcome::Released);
    let granted = bob.outcome(Request::Acquire(careful.clone())).await?;
    let token = shaped!(granted, Outcome::Granted { token } => token);
    shaped!(bob.release(token).await?, Outcome::Released);

    let asked_at = timer_now();
    ada.lead(2, SHORT).await?;
    let (_, before) = bob.lead_at_last(&Acquire { attempt: 2, ..careful }).await?;
    let waited = timer_now() - asked_at;
    ensure!(waited >= SHORT * 2 * 98 / 100, "lease and delay of {SHORT:?} took {waited:?}");
    // Several nodes see the lease end one after the other, and are divided in between.
    let expected = |o: &Outcome| {
        matches!(o, Outcome::Held | Outcome::Delayed { .. } | Outcome::Contested { .. })
    };
    ensure!(before.iter().all(expected), "before the grant came {before:?}");
    let was_delayed = before.iter().any(|o| matches!(o, Outcome::Delayed { .. }));
    ensure!(was_delayed, "never delayed: {before:?}");
    Ok(())
}

async fn history(player: &Player, count: usize) -> Result<Vec<HistoryEntry>, String> {
    match player.outcome(Request::History { count }).await? {
        Outcome::History(entries) => Ok(entries),
        other => Err(format!("expected history, got {other:?}")),
    }
}

fn told(entry: &HistoryEntry) -> (Option<Token>, String) {
    let what = match &entry.what {
        HistoryKind::Granted => "granted".to_owned(),
        HistoryKind::Closed { reason, .. } => reason.as_str().to_owned(),
        other => format!("{other:?}"),
    };
    (entry.token, what)
}

async fn history_tells_terms_newest_first(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    ensure!(history(&ada, 10).await?.is_empty(), "a fresh resource has a history");
    let first = ada.lead(1, LONG).await?;
    let reason = CloseReason::WorkStalled;
    shaped!(ada.outcome(Request::Release { token: first, reason }).await?, Outcome::Released);
    let second = ada.lead(2, LONG).await?;
    shaped!(ada.transfer(second, &bob, LONG).await?, Outcome::Transferred { .. });
    let third = bob.lead(1, LONG).await?;
    bob.outcome(clear(SHORT)).await?;

    let entries = history(&ada, 20).await?;
    let found: Vec<_> = entries.iter().map(told).collect();
    let expected = [
        (third, "cleared"),
        (third, "granted"),
        (second, "handed-over"),
        (second, "granted"),
        (first, "work-stalled"),
        (first, "granted"),
    ];
    let expected: Vec<_> = expected.map(|(token, what)| (Some(token), what.to_owned())).into();
    ensure!(found == expected, "history tells {found:?}");
    ensure!(entries.is_sorted_by(|a, b| a.at >= b.at), "times out of order: {entries:?}");
    ensure!(entries[2].id == ada.id && entries[1].id == bob.id, "whose: {entries:?}");
    let details = entries.iter().filter_map(|entry| match &entry.what {
        HistoryKind::Closed { detail, .. } => Some(detail.as_str()),
        _ => None,
    });
    let details: Vec<_> = details.collect();
    ensure!(details[0] == "the glass was broken", "details: {details:?}");
    ensure!(details[1] == bob.id.as_str(), "details: {details:?}");
    Ok(())
}

async fn history_tells_how_a_crashed_term_ended(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, SHORT).await?;
    let (next, _) = bob.lead_at_last(&attempt_of(1, LONG)).await?;
    let found: Vec<_> = history(&ada, 10).await?.iter().map(told).collect();
    let expected = [(next, "granted"), (token, "expired"), (token, "granted")];
    let expected: Vec<_> = expected.map(|(token, what)| (Some(token), what.to_owned())).into();
    ensure!(found == expected, "history tells {found:?}");
    Ok(())
}

async fn history_is_as_short_as_asked_for(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let mut last = None;
    for attempt in 1..=4 {
        let token = ada.lead(attempt, LONG).await?;
        ada.release(token).await?;
        last = Some(token);
    }
    let entries = history(&ada, 3).await?;
    ensure!(entries.len() == 3, "asked for 3 entries, got {}", entries.len());
    ensure!(entries[0].token == last, "the newest is {:?}", entries[0]);
    Ok(())
}
