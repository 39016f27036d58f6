//! Members, their records and heartbeats.

use std::time::Duration;

use tenure_core::protocol::{Acquire, Member, MemberRecord, Outcome, Request};

use super::player::{LONG, Player, SHORT, Stage, attempt_of, record};
use super::{Verdict, cases, ensure, shaped};
use crate::clock::timer_now;

cases![
    members_are_listed_as_they_told_of_themselves,
    whoever_leaves_is_gone,
    an_attempt_counts_as_a_heartbeat,
    a_renewal_counts_as_a_heartbeat,
    ready_since_lasts_until_a_break,
];

async fn beat(player: &Player, record: MemberRecord) -> Result<Vec<Member>, String> {
    let answer = player.ask(Request::Beat { record, members: true }).await?;
    match answer.outcome {
        Outcome::Done => answer.view.members.ok_or_else(|| "no list of members".into()),
        other => Err(format!("expected a list of members, got {other:?}")),
    }
}

fn find<'a>(members: &'a [Member], player: &Player) -> Result<&'a Member, String> {
    let found = members.iter().find(|member| member.id == player.id);
    found.ok_or_else(|| format!("{} is not among {members:?}", player.id))
}

async fn members_are_listed_as_they_told_of_themselves(stage: Stage) -> Verdict {
    let [ada, bob, cleo] = stage.players();
    let mut told = record(-5, LONG);
    told.departing = true;
    told.stalled = true;
    told.metadata.insert("address".into(), "[::1]:80; a=b %41 ü".into());
    told.metadata.insert("zone".into(), String::new());
    beat(&ada, told.clone()).await?;
    let members = beat(&bob, record(7, LONG)).await?;
    ensure!(members.len() == 2, "there are {members:?}");
    ensure!(find(&members, &ada)?.record == told, "ada told {:?}", find(&members, &ada)?.record);
    ensure!(find(&members, &bob)?.record == record(7, LONG), "bob told something else");

    let view = cleo.ask(Request::Observe { members: true }).await?.view;
    let members = shaped!(view.members, Some(members) => members);
    ensure!(members.len() == 2, "looking on made {members:?}");
    ensure!(cleo.view().await?.members.is_none(), "members nobody asked for");
    let changed = beat(&ada, record(1, LONG)).await?;
    ensure!(find(&changed, &ada)?.record == record(1, LONG), "the record did not change");
    Ok(())
}

async fn whoever_leaves_is_gone(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    beat(&ada, record(0, LONG)).await?;
    shaped!(ada.outcome(Request::Leave).await?, Outcome::Done);
    shaped!(ada.outcome(Request::Leave).await?, Outcome::Done);
    let members = beat(&bob, record(0, LONG)).await?;
    ensure!(find(&members, &ada).is_err(), "still there: {members:?}");
    Ok(())
}

async fn an_attempt_counts_as_a_heartbeat(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    ada.lead(1, LONG).await?;
    let acquire = Acquire { members: true, record: record(9, LONG), ..attempt_of(1, LONG) };
    let answer = bob.ask(Request::Acquire(acquire)).await?;
    shaped!(answer.outcome, Outcome::Held);
    let members = shaped!(answer.view.members, Some(members) => members);
    ensure!(members.len() == 2, "there are {members:?}");
    ensure!(find(&members, &bob)?.record.priority == 9, "bob is {:?}", find(&members, &bob)?);
    let beat_at = find(&members, &bob)?.beat_at;
    let age = answer.view.server_time.since(beat_at);
    ensure!(age < LONG / 10, "the heartbeat is {age:?} old");
    Ok(())
}

async fn a_renewal_counts_as_a_heartbeat(stage: Stage) -> Verdict {
    let [ada, bob, _] = stage.players();
    let token = ada.lead(1, LONG).await?;
    let before = find(&beat(&bob, record(0, LONG)).await?, &ada)?.beat_at;
    tokio::time::sleep(Duration::from_millis(20)).await;
    shaped!(ada.renew(token, LONG).await?, Outcome::Renewed);
    let after = find(&beat(&bob, record(0, LONG)).await?, &ada)?.beat_at;
    ensure!(after > before, "{after:?} after a renewal, {before:?} before");
    Ok(())
}

/// How coarse the clock of a store may be.
const CLOCK_GRAIN: Duration = Duration::from_millis(5);

/// For how long a player has been ready by the clock of the store, as it is told with a heartbeat.
async fn ready_for(player: &Player, record: MemberRecord) -> Result<Option<Duration>, String> {
    let answer = player.ask(Request::Beat { record, members: true }).await?;
    let members = answer.view.members.ok_or("no list of members")?;
    let since = find(&members, player)?.ready_since;
    Ok(since.map(|since| answer.view.server_time.since(since)))
}

async fn ready_since_lasts_until_a_break(stage: Stage) -> Verdict {
    let [ada, ..] = stage.players();
    let not_ready = MemberRecord { ready: false, ..record(0, LONG) };
    ensure!(ready_for(&ada, not_ready.clone()).await?.is_none(), "ready before it is");
    ensure!(ready_for(&ada, record(0, LONG)).await?.is_some(), "never ready");
    let was_ready_at = timer_now();
    tokio::time::sleep(SHORT / 2).await;
    let passed = timer_now() - was_ready_at;
    let lasted = ready_for(&ada, record(3, LONG)).await?.unwrap_or_default();
    // Told as ages: several nodes have clocks of their own, and hear of a heartbeat one by one.
    ensure!(lasted >= passed * 98 / 100, "after {passed:?} ready for {lasted:?}");

    let breaks_at = timer_now();
    ensure!(ready_for(&ada, not_ready).await?.is_none(), "ready though it is not");
    let again = ready_for(&ada, record(0, LONG)).await?.ok_or("never ready again")?;
    let since_break = timer_now() - breaks_at;
    let most = since_break * 102 / 100 + CLOCK_GRAIN;
    ensure!(again <= most, "ready for {again:?}, but there was a break {since_break:?} ago");
    Ok(())
}
