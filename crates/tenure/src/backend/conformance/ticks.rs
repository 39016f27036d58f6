//! Ticks: each runs once across the fleet.

use std::time::Duration;

use tenure_core::protocol::{LostWhy, Outcome, Request, TickId, TickOutcome, Token};

use super::player::{LONG, Player, SHORT, Stage, beyond};
use super::{Verdict, cases, ensure, shaped};

cases![
    a_finished_tick_does_not_run_again,
    numbers_up_to_the_highest_finished_are_done,
    a_tick_that_was_begun_and_not_finished_is_told,
    a_failed_tick_tells_its_words,
    ticks_run_inside_the_own_term_only,
    the_outcome_of_a_named_tick_is_kept_for_a_while,
    each_length_of_a_period_has_a_record_of_its_own,
    a_period_beyond_the_present_says_nothing_about_those_before_it,
    a_tick_that_never_started_is_open_again,
];

const HOUR: Duration = Duration::from_secs(60 * 60);

fn ticks() -> [TickId; 3] {
    let period = TickId::Period { number: 41, period: HOUR };
    [TickId::Number(41), TickId::Named("report of {today}; 100 %".into()), period]
}

/// The current period of this length by the store's clock, or one that lies `ahead` of it.
async fn current(player: &Player, period: Duration, ahead: u64) -> Result<TickId, String> {
    let now = player.view().await?.server_time;
    let number = now.0 / period.as_micros() as u64 + ahead;
    Ok(TickId::Period { number, period })
}

async fn run(player: &Player, token: Token, tick: &TickId) -> Verdict {
    shaped!(begin(player, token, tick).await?, Outcome::TickRuns);
    shaped!(finish(player, token, tick).await?, Outcome::Done);
    Ok(())
}

async fn each_length_of_a_period_has_a_record_of_its_own(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let token = ada.lead(1, LONG).await?;
    run(&ada, token, &TickId::Number(u64::from(u32::MAX))).await?;
    for seconds in [1, 60, 60 * 60, 24 * 60 * 60, 24 * 60 * 60 + 1, 2] {
        let tick = current(&ada, Duration::from_secs(seconds), 0).await?;
        shaped!(look(&ada, &tick).await?, Outcome::TickUnknown);
        run(&ada, token, &tick).await?;
        shaped!(begin(&ada, token, &tick).await?, Outcome::TickDone(TickOutcome::Succeeded));
    }
    Ok(())
}

async fn a_period_beyond_the_present_says_nothing_about_those_before_it(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let token = ada.lead(1, LONG).await?;
    // Finished while the store's clock was a few hours ahead.
    let ahead = current(&ada, HOUR, 5).await?;
    run(&ada, token, &ahead).await?;
    let present = current(&ada, HOUR, 0).await?;
    run(&ada, token, &present).await?;
    shaped!(look(&ada, &present).await?, Outcome::TickDone(TickOutcome::Succeeded));
    shaped!(look(&ada, &ahead).await?, Outcome::TickDone(TickOutcome::Succeeded));
    let TickId::Period { number, period } = present else { return Err("no period".into()) };
    let earlier = TickId::Period { number: number - 1, period };
    shaped!(look(&ada, &earlier).await?, Outcome::TickDone(TickOutcome::Succeeded));
    Ok(())
}

async fn a_tick_that_never_started_is_open_again(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let first = ada.lead(1, LONG).await?;
    for tick in &ticks() {
        let reopen = |token| Request::TickReopen { token, tick: tick.clone() };
        shaped!(begin(&ada, first, tick).await?, Outcome::TickRuns);
        shaped!(bob.outcome(reopen(first)).await?, Outcome::Lost(LostWhy::HeldBy(_)));
        shaped!(ada.outcome(reopen(first)).await?, Outcome::Done);
        shaped!(look(&bob, tick).await?, Outcome::TickUnknown);
        shaped!(ada.outcome(reopen(first)).await?, Outcome::Done);
    }
    shaped!(ada.release(first).await?, Outcome::Released);
    let second = bob.lead(1, LONG).await?;
    for tick in &ticks() {
        run(&bob, second, tick).await?;
        let reopen = Request::TickReopen { token: second, tick: tick.clone() };
        shaped!(bob.outcome(reopen).await?, Outcome::Done);
        shaped!(look(&ada, tick).await?, Outcome::TickDone(TickOutcome::Succeeded));
    }
    Ok(())
}

async fn begin(player: &Player, token: Token, tick: &TickId) -> Result<Outcome, String> {
    let tick = tick.clone();
    player.outcome(Request::TickBegin { token, tick, rerun_crashed: false }).await
}

async fn finish(player: &Player, token: Token, tick: &TickId) -> Result<Outcome, String> {
    finish_with(player, token, tick, TickOutcome::Succeeded, LONG).await
}

async fn finish_with(
    player: &Player,
    token: Token,
    tick: &TickId,
    outcome: TickOutcome,
    keep: Duration,
) -> Result<Outcome, String> {
    player.outcome(Request::TickFinish { token, tick: tick.clone(), outcome, keep }).await
}

async fn look(player: &Player, tick: &TickId) -> Result<Outcome, String> {
    player.outcome(Request::TickLook { tick: tick.clone() }).await
}

async fn a_finished_tick_does_not_run_again(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    for tick in &ticks() {
        shaped!(look(&bob, tick).await?, Outcome::TickUnknown);
        shaped!(begin(&ada, token, tick).await?, Outcome::TickRuns);
        shaped!(finish(&ada, token, tick).await?, Outcome::Done);
        shaped!(look(&bob, tick).await?, Outcome::TickDone(TickOutcome::Succeeded));
        shaped!(begin(&ada, token, tick).await?, Outcome::TickDone(TickOutcome::Succeeded));
    }
    shaped!(ada.release(token).await?, Outcome::Released);
    let token = bob.lead(1, LONG).await?;
    for tick in &ticks() {
        shaped!(begin(&bob, token, tick).await?, Outcome::TickDone(TickOutcome::Succeeded));
    }
    Ok(())
}

async fn numbers_up_to_the_highest_finished_are_done(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let token = ada.lead(1, LONG).await?;
    shaped!(begin(&ada, token, &TickId::Number(7)).await?, Outcome::TickRuns);
    shaped!(finish(&ada, token, &TickId::Number(7)).await?, Outcome::Done);
    for number in [0, 3, 7] {
        shaped!(begin(&ada, token, &TickId::Number(number)).await?, Outcome::TickDone(_));
    }
    shaped!(begin(&ada, token, &TickId::Number(8)).await?, Outcome::TickRuns);
    shaped!(finish(&ada, token, &TickId::Number(2)).await?, Outcome::Done);
    shaped!(look(&ada, &TickId::Number(7)).await?, Outcome::TickDone(_));
    shaped!(look(&ada, &TickId::Number(8)).await?, Outcome::TickUnfinished { .. });
    Ok(())
}

async fn a_tick_that_was_begun_and_not_finished_is_told(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let first = ada.lead(1, LONG).await?;
    for tick in &ticks() {
        shaped!(begin(&ada, first, tick).await?, Outcome::TickRuns);
        // The answer was lost on the way: the same term asks again.
        shaped!(begin(&ada, first, tick).await?, Outcome::TickRuns);
    }
    shaped!(ada.release(first).await?, Outcome::Released);
    let second = bob.lead(1, LONG).await?;
    for tick in &ticks() {
        let told = begin(&bob, second, tick).await?;
        shaped!(told, Outcome::TickUnfinished { by, token } if by == ada.id && token == Some(first));
        let tick = tick.clone();
        let again = Request::TickBegin { token: second, tick: tick.clone(), rerun_crashed: true };
        shaped!(bob.outcome(again).await?, Outcome::TickRuns);
        let told = look(&ada, &tick).await?;
        shaped!(told, Outcome::TickUnfinished { by, token } if by == bob.id && token == Some(second));
        shaped!(finish(&bob, second, &tick).await?, Outcome::Done);
        shaped!(look(&ada, &tick).await?, Outcome::TickDone(TickOutcome::Succeeded));
    }
    Ok(())
}

async fn a_failed_tick_tells_its_words(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    for tick in &ticks() {
        let words = TickOutcome::Failed("no paper: tray 2".into());
        shaped!(begin(&ada, token, tick).await?, Outcome::TickRuns);
        shaped!(finish_with(&ada, token, tick, words.clone(), LONG).await?, Outcome::Done);
        let found = look(&bob, tick).await?;
        ensure!(found == Outcome::TickDone(words), "told {found:?}");
        shaped!(begin(&ada, token, tick).await?, Outcome::TickDone(TickOutcome::Failed(_)));
    }
    Ok(())
}

async fn ticks_run_inside_the_own_term_only(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    for tick in &ticks() {
        shaped!(begin(&bob, token, tick).await?, Outcome::Lost(LostWhy::HeldBy(_)));
        shaped!(begin(&ada, beyond(token, 1), tick).await?, Outcome::Lost(LostWhy::OtherTerm(_)));
        shaped!(finish(&bob, token, tick).await?, Outcome::Lost(LostWhy::HeldBy(_)));
        shaped!(look(&ada, tick).await?, Outcome::TickUnknown);
    }
    Ok(())
}

async fn the_outcome_of_a_named_tick_is_kept_for_a_while(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let tick = TickId::Named("short".into());
    shaped!(begin(&ada, token, &tick).await?, Outcome::TickRuns);
    finish_with(&ada, token, &tick, TickOutcome::Succeeded, SHORT).await?;
    for _ in 0..1000 {
        match look(&ada, &tick).await? {
            Outcome::TickDone(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Outcome::TickUnknown => return Ok(()),
            other => return Err(format!("after the outcome came {other:?}")),
        }
    }
    Err("the outcome of a named tick is kept for ever".into())
}
