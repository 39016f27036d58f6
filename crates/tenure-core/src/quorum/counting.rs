//! What the answers of the nodes come to.

use crate::{StoreError, StoreErrorKind};
use std::time::Duration;

use crate::protocol::{Answer, LostWhy, Outcome, Request, Token};

use super::round::{Reply, Slot};
use super::{Quorum, merge};

/// How many nodes' errors an error text repeats.
const ERRORS_TOLD_MAX: usize = 3;

/// What a majority says to any request but an acquire; `None` while that is open.
pub(super) fn verdict(quorum: Quorum, request: &Request, replies: &[Slot]) -> Option<Reply> {
    let needed = quorum.majority();
    let pending = replies.iter().filter(|slot| **slot == Slot::Pending).count();
    let answered = replies.iter().filter_map(Slot::answer).count();
    if answered + pending < needed {
        return Some(Err(shortfall(quorum, replies)));
    }
    if answered < needed {
        return None;
    }
    let is_open = pending > 0;
    match request {
        Request::Renew { token, .. } => renewal(quorum, *token, replies, is_open),
        Request::Release { .. } => Some(Ok(farewell(quorum, replies, Outcome::Released))),
        Request::Transfer { token, .. } => {
            Some(Ok(farewell(quorum, replies, Outcome::Transferred { token: *token })))
        }
        Request::Abandon { .. } => {
            let mut conflicts = outcomes(replies).filter(|outcome| is_conflict(outcome));
            if let Some(conflict) = conflicts.nth(quorum.majority() - 1) {
                return Some(Ok(merged(quorum, replies, conflict.clone())));
            }
            let granted = Outcome::Abandoned { was_granted: true };
            let was_granted = outcomes(replies).any(|outcome| *outcome == granted);
            Some(Ok(merged(quorum, replies, Outcome::Abandoned { was_granted })))
        }
        Request::History { count } => {
            Some(Ok(merged(quorum, replies, Outcome::History(merge::history(replies, *count)))))
        }
        _ => common(quorum, replies, is_open),
    }
}

/// A term is extended where a majority holds it, and lost where a majority does not.
fn renewal(quorum: Quorum, token: Token, replies: &[Slot], is_open: bool) -> Option<Reply> {
    let renewed =
        |slot: &&Slot| slot.answer().is_some_and(|answer| answer.outcome == Outcome::Renewed);
    let held = replies.iter().filter(renewed).count();
    if held >= quorum.majority() {
        let counted = replies.iter().filter(renewed).filter_map(Slot::answer);
        let mut answer = merge::answers(counted, quorum, Outcome::Renewed);
        answer.view.partial = held < replies.iter().filter_map(Slot::answer).count();
        // A wish counts wherever it was left: it names the term.
        answer.view.wish =
            merge::wish(replies.iter().filter_map(Slot::answer), Some(token), &answer.view);
        return Some(Ok(answer));
    }
    let lost = outcomes(replies).filter_map(loss);
    if lost.clone().count() >= quorum.majority() {
        let why = lost.max_by_key(weight).unwrap_or(LostWhy::KeyVanished);
        return Some(Ok(merged(quorum, replies, Outcome::Lost(why))));
    }
    // Some of those that do not answer may still hold it: not renewed is not lost.
    (!is_open).then(|| Err(shortfall(quorum, replies)))
}

fn loss(outcome: &Outcome) -> Option<LostWhy> {
    match outcome {
        Outcome::Lost(why) => Some(why.clone()),
        Outcome::Conflict { what } => Some(LostWhy::Overwritten(what.clone())),
        _ => None,
    }
}

/// Which of several reasons tells most.
fn weight(why: &LostWhy) -> u8 {
    match why {
        LostWhy::KeyVanished => 0,
        LostWhy::Overwritten(_) => 1,
        LostWhy::OtherTerm(_) => 2,
        LostWhy::HeldBy(_) => 3,
    }
}

fn farewell(quorum: Quorum, replies: &[Slot], done: Outcome) -> Answer {
    let was_held = outcomes(replies).any(|outcome| *outcome == Outcome::Released);
    let outcome = match outcomes(replies).filter_map(loss).max_by_key(weight) {
        Some(why) if !was_held => Outcome::Lost(why),
        _ => done,
    };
    merged(quorum, replies, outcome)
}

/// The outcome that a majority has in common. Where the answers so far do not show who holds the
/// resource, the others are waited for.
fn common(quorum: Quorum, replies: &[Slot], is_open: bool) -> Option<Reply> {
    let shared = outcomes(replies).find(|outcome| {
        outcomes(replies).filter(|other| is_alike(outcome, other)).count() >= quorum.majority()
    });
    let views = replies.iter().filter_map(Slot::answer).map(|answer| &answer.view);
    if is_open && (shared.is_none() || !merge::is_decided(views, quorum)) {
        return None;
    }
    // Without a common word, what was done on some nodes counts: it is there to be found.
    let done = outcomes(replies).find(|outcome| **outcome == Outcome::Done);
    let outcome = shared.or(done).or(outcomes(replies).next())?.clone();
    Some(Ok(merged(quorum, replies, outcome)))
}

fn is_conflict(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Conflict { .. })
}

fn is_alike(outcome: &Outcome, other: &Outcome) -> bool {
    std::mem::discriminant(outcome) == std::mem::discriminant(other)
}

fn merged(quorum: Quorum, replies: &[Slot], outcome: Outcome) -> Answer {
    merge::answers(replies.iter().filter_map(Slot::answer), quorum, outcome)
}

fn outcomes(replies: &[Slot]) -> impl Iterator<Item = &Outcome> + Clone {
    replies.iter().filter_map(Slot::answer).map(|answer| &answer.outcome)
}

/// What keeps a majority from granting, and for how long: until the last node that is needed for
/// one may grant.
pub(super) fn wait(quorum: Quorum, replies: &[Slot]) -> Reply {
    let answers = replies.iter().filter_map(Slot::answer);
    if answers.clone().count() < quorum.majority() {
        return Err(shortfall(quorum, replies));
    }
    if outcomes(replies).any(|outcome| *outcome == Outcome::AttemptRefused) {
        return Ok(merged(quorum, replies, Outcome::AttemptRefused));
    }
    // Those that would grant are there already: the others make up the majority, soonest first.
    let would_grant = |answer: &&Answer| matches!(answer.outcome, Outcome::Granted { .. });
    let willing = answers.clone().filter(would_grant).count();
    let mut waits: Vec<(Duration, &Answer)> = answers
        .filter(|answer| !would_grant(answer))
        .map(|answer| (wait_of(answer), answer))
        .collect();
    waits.sort_by_key(|(wait, _)| *wait);
    let missing = quorum.majority().saturating_sub(willing + 1);
    let Some((left, decisive)) = waits.get(missing).copied() else {
        return Err(shortfall(quorum, replies));
    };
    let mut answer = merged(quorum, replies, decisive.outcome.clone());
    answer.outcome = match &decisive.outcome {
        Outcome::Held if answer.view.holder.is_none() => {
            Outcome::Contested { why: division(quorum, replies) }
        }
        Outcome::Held => {
            answer.view.pttl = answer.view.pttl.map(|_| left);
            Outcome::Held
        }
        outcome => outcome.clone(),
    };
    Ok(answer)
}

/// How long until this node may grant.
fn wait_of(answer: &Answer) -> Duration {
    match &answer.outcome {
        Outcome::Held => answer.view.pttl.unwrap_or(Duration::MAX),
        Outcome::Quarantine { left, .. }
        | Outcome::Reserved { left }
        | Outcome::Delayed { left }
        | Outcome::Paused { left } => *left,
        _ => Duration::MAX,
    }
}

/// How the nodes are divided, for people.
pub(super) fn division(quorum: Quorum, replies: &[Slot]) -> String {
    let answers = replies.iter().filter_map(Slot::answer);
    let agrees = |a: &&Answer| matches!(a.outcome, Outcome::Granted { .. } | Outcome::Renewed);
    let agreed = answers.clone().filter(agrees).count();
    let silent = quorum.nodes() - answers.clone().count();
    let others = quorum.nodes() - agreed - silent;
    format!(
        "the nodes are divided: of {} nodes {agreed} agreed, {others} did not and {silent} did \
         not answer, {} must agree",
        quorum.nodes(),
        quorum.majority()
    )
}

/// Why no majority answers.
pub(super) fn shortfall(quorum: Quorum, replies: &[Slot]) -> StoreError {
    let answered = replies.iter().filter_map(Slot::answer).count();
    let errors: Vec<&StoreError> = replies.iter().filter_map(Slot::error).collect();
    let (nodes, needed) = (quorum.nodes(), quorum.majority());
    let what = match answered >= needed {
        true => division(quorum, replies),
        false => format!("{answered} of {nodes} nodes answered, {needed} must"),
    };
    let denied = errors.iter().filter(|error| error.kind() == StoreErrorKind::Denied).count();
    let kind = match denied > nodes - needed {
        true => StoreErrorKind::Denied,
        false if answered >= needed => StoreErrorKind::NotNow,
        false => StoreErrorKind::Unreachable,
    };
    of_nodes(kind, &what, &errors)
}

/// The error for several nodes that keep a majority from answering: `what` is wrong with them as a
/// whole, told in so few words that all of them are read. What a person has to do is told once,
/// where it is the same for all.
pub fn of_nodes(kind: StoreErrorKind, what: &str, errors: &[&StoreError]) -> StoreError {
    let is_passing = errors.iter().any(|error| error.is_temporary());
    let one = |error: &&StoreError| match is_passing && !error.is_temporary() {
        true => error.detail(),
        false => error.message().to_owned(),
    };
    let told: Vec<String> = errors.iter().take(ERRORS_TOLD_MAX).map(one).collect();
    let error = StoreError::unreachable(format!("{what}: {}", told.join(" and "))).with_kind(kind);
    match errors.first().and_then(|error| error.next_step()) {
        _ if is_passing => error.with_next_step("start what is down, or correct its address"),
        Some(step) => error.with_next_step(step),
        None => error,
    }
}
