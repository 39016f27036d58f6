//! Several nodes' views of a resource as one.
//!
//! Nodes have clocks of their own. Times are carried over as distances from "now", onto the clock
//! of the first node.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::{
    Answer, CloseReason, HistoryEntry, HistoryKind, MEMBERS_LISTED_MAX, Member, Outcome, Token,
    View, Wish,
};
use crate::{InstanceId, ServerTime};

use super::Quorum;
use super::round::Slot;

/// One answer out of several, with `outcome`.
pub(super) fn answers<'a>(
    answers: impl Iterator<Item = &'a Answer> + Clone,
    quorum: Quorum,
    outcome: Outcome,
) -> Answer {
    let mut warnings: Vec<String> = answers.clone().flat_map(|a| a.warnings.clone()).collect();
    warnings.dedup();
    Answer { outcome, view: views(answers.map(|answer| &answer.view), quorum), warnings }
}

/// The state of the resource: the holder is who holds it under the same token on a majority.
pub(super) fn views<'a>(views: impl Iterator<Item = &'a View> + Clone, quorum: Quorum) -> View {
    let Some(base) = views.clone().next() else { return View::default() };
    let mut merged = View {
        server_time: base.server_time,
        incarnation: base.incarnation.clone(),
        paused_for: paused_for(views.clone(), quorum),
        members: members(views.clone(), base),
        ..View::default()
    };
    let leader = views.clone().find(|view| {
        let alike = views.clone().filter(|other| holds_alike(view, other));
        view.holder.is_some() && alike.count() >= quorum.majority()
    });
    if let Some(leader) = leader {
        let alike = views.clone().filter(|other| holds_alike(leader, other));
        merged.holder.clone_from(&leader.holder);
        merged.token = leader.token;
        merged.foreign = leader.foreign;
        merged.reserved = leader.reserved;
        merged.unconfirmed = leader.unconfirmed;
        merged.quarantine_why.clone_from(&leader.quarantine_why);
        merged.pttl = alike.filter_map(|view| view.pttl).min();
        merged.wish = wish_among(views, leader.token, &merged);
    }
    merged
}

fn holds_alike(view: &View, other: &View) -> bool {
    view.holder == other.holder && view.token == other.token
}

/// Whether these views show who holds the resource, or that nobody does, and whether it is paused.
/// A node that does not know the newest state yet may be among those that answered first.
pub(super) fn is_decided<'a>(
    views: impl Iterator<Item = &'a View> + Clone,
    quorum: Quorum,
) -> bool {
    let agree = |is_alike: fn(&View, &View) -> bool| {
        let mut of_one_mind =
            views.clone().map(|view| views.clone().filter(|other| is_alike(view, other)).count());
        of_one_mind.any(|count| count >= quorum.majority())
    };
    agree(holds_alike) && agree(is_paused_alike)
}

fn is_paused_alike(view: &View, other: &View) -> bool {
    view.paused_for.is_some() == other.paused_for.is_some()
}

/// No new term begins before a majority is not paused any more.
fn paused_for<'a>(views: impl Iterator<Item = &'a View>, quorum: Quorum) -> Option<Duration> {
    let mut left: Vec<Duration> = views.map(|view| view.paused_for.unwrap_or_default()).collect();
    left.sort_unstable();
    let decisive = left.get(quorum.majority() - 1).or(left.last()).copied();
    decisive.filter(|left| !left.is_zero())
}

/// The wish that the holder of `token` finds on any of the nodes.
pub(super) fn wish<'a>(
    answers: impl Iterator<Item = &'a Answer>,
    token: Option<Token>,
    onto: &View,
) -> Option<Wish> {
    wish_among(answers.map(|answer| &answer.view), token, onto)
}

fn wish_among<'a>(
    views: impl Iterator<Item = &'a View>,
    token: Option<Token>,
    onto: &View,
) -> Option<Wish> {
    let stands = |view: &'a View| {
        let wish = view.wish.clone().filter(|wish| wish.token == token)?;
        Some(Wish { until: moved(wish.until, view, onto), ..wish })
    };
    // A wish that was refused on any node was refused.
    let mut wishes: Vec<Wish> = views.filter_map(stands).collect();
    wishes.sort_by_key(|wish| (wish.refused.is_none(), std::cmp::Reverse(wish.until)));
    wishes.into_iter().next()
}

/// Members are written to all nodes: whoever is known to one of them is one, and the node that
/// heard it last knows it best.
fn members<'a>(views: impl Iterator<Item = &'a View>, base: &View) -> Option<Vec<Member>> {
    let mut known: BTreeMap<InstanceId, Member> = BTreeMap::new();
    let mut is_listed = false;
    for view in views {
        let Some(members) = &view.members else { continue };
        is_listed = true;
        for member in members {
            let member = moved_member(member, view, base);
            match known.get_mut(&member.id) {
                Some(other) => join(other, member),
                None => drop(known.insert(member.id.clone(), member)),
            }
        }
    }
    let mut members: Vec<Member> = known.into_values().collect();
    members.sort_by(|a, b| b.beat_at.cmp(&a.beat_at).then_with(|| b.id.cmp(&a.id)));
    members.truncate(MEMBERS_LISTED_MAX);
    is_listed.then_some(members)
}

fn join(known: &mut Member, other: Member) {
    let is_same = known.record == other.record;
    let since = match (known.ready_since, other.ready_since) {
        (Some(a), Some(b)) if is_same => Some(a.min(b)),
        (a, b) if is_same => a.or(b),
        _ => None,
    };
    if other.beat_at > known.beat_at {
        *known = other;
    }
    if is_same {
        known.ready_since = since;
    }
}

/// The members of `from` by the clock of `onto`.
pub(super) fn moved_members(from: &View, onto: &View) -> Option<Vec<Member>> {
    let members = from.members.as_ref()?;
    Some(members.iter().map(|member| moved_member(member, from, onto)).collect())
}

fn moved_member(member: &Member, from: &View, onto: &View) -> Member {
    Member {
        ready_since: member.ready_since.map(|since| moved(since, from, onto)),
        beat_at: moved(member.beat_at, from, onto),
        ..member.clone()
    }
}

/// A time on the clock of `from` as the clock of `onto` shows it.
fn moved(time: ServerTime, from: &View, onto: &View) -> ServerTime {
    let (time, from, onto) = (time.0, from.server_time.0, onto.server_time.0);
    ServerTime(match time >= from {
        true => onto.saturating_add(time - from),
        false => onto.saturating_sub(from - time),
    })
}

/// The histories as one, newest first, without the attempts that no majority granted.
pub(super) fn history(replies: &[Slot], count: usize) -> Vec<HistoryEntry> {
    let histories = replies.iter().filter_map(Slot::answer).filter_map(|a| match &a.outcome {
        Outcome::History(entries) => Some(entries),
        _ => None,
    });
    let mut entries: BTreeMap<(Option<Token>, u8, InstanceId), HistoryEntry> = BTreeMap::new();
    for entry in histories.flatten() {
        let place = (entry.token, stage(&entry.what), entry.id.clone());
        match entries.get_mut(&place) {
            Some(known) if is_told_better(entry, known) => known.clone_from(entry),
            Some(_) => {}
            None => drop(entries.insert(place, entry.clone())),
        }
    }
    let never_led = |entry: &HistoryEntry| {
        matches!(&entry.what, HistoryKind::Closed { reason: CloseReason::TooLate, .. })
    };
    let undone: Vec<(Option<Token>, InstanceId)> =
        entries.values().filter(|e| never_led(e)).map(|e| (e.token, e.id.clone())).collect();
    let led = |entry: &HistoryEntry| !undone.contains(&(entry.token, entry.id.clone()));
    entries.into_values().rev().filter(led).take(count).collect()
}

/// Whether `entry` says of the same event what is nearer to the truth. A node that was cut off
/// knows of no renewal and of no farewell, and takes a term for expired long before it was over.
/// Whatever all were told happened when the first of them heard it: what follows happened later.
fn is_told_better(entry: &HistoryEntry, known: &HistoryEntry) -> bool {
    let is_guess = |entry: &HistoryEntry| {
        let HistoryKind::Closed { reason, .. } = &entry.what else { return false };
        matches!(reason, CloseReason::Expired | CloseReason::Vanished)
    };
    match (is_guess(entry), is_guess(known)) {
        (true, true) => entry.at > known.at,
        (false, false) => entry.at < known.at,
        (is_guess, _) => !is_guess,
    }
}

/// In which order things happen to a term.
fn stage(what: &HistoryKind) -> u8 {
    match what {
        HistoryKind::Granted => 0,
        HistoryKind::Closed { .. } => 1,
        HistoryKind::Quarantined { .. } => 2,
    }
}
