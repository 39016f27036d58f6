//! One resource: who leads, who takes part, and the state of this instance.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure::backend::Connection;
use tenure::{
    Leadership, Member as SeenMember, ServerTime, Status, Token, Vacancy as SeenVacancy,
    Wish as SeenWish, WishKind,
};

use super::{fine_ms, whole_ms};
use crate::clock;
use crate::follow::{vacancy_text, vacancy_word};
use crate::timestamp::Timestamp;
use crate::watched::{OwnState, Reach, Seen, Watched};

/// A member that was silent for this many of its own leases is taken for gone.
const SILENT_LEASES_MAX: u32 = 3;
/// Why nobody leads between the end of this instance's leadership and that of its lease.
pub(super) const ENDING: &str =
    "the term of this instance is over, and its lease is not released yet";

/// One element of `resources` in `/status`; what `/events` sends as `resource`.
#[derive(Debug, Serialize)]
pub(crate) struct Resource {
    pub(crate) name: String,
    pub(crate) key: String,
    /// Whether this instance takes part or only observes.
    pub(crate) takes_part: bool,
    /// Off: alone, leading, without a store.
    pub(crate) enabled: bool,
    /// This instance's state; `observer` where it only observes.
    pub(crate) role: &'static str,
    pub(crate) reason: Option<Reason>,
    pub(crate) is_leader: bool,
    pub(crate) token: Option<u64>,
    /// What is left of this instance's lease.
    pub(crate) remaining_ms: Option<u64>,
    pub(crate) renewed_ms_ago: Option<u64>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) leader: Option<Leader>,
    pub(crate) vacancy: Option<Vacancy>,
    /// Set once nobody can tell whether anybody leads; then the two above are null.
    pub(crate) unknown: Option<Unknown>,
    pub(crate) members: Vec<Member>,
    pub(crate) wish: Option<Wish>,
    pub(crate) paused_for_ms: Option<u64>,
    pub(crate) store: Store,
    pub(crate) warnings: Vec<String>,
    pub(crate) counts: Option<Counts>,
    pub(crate) leader_changes: u64,
    /// How long the latest renewals took, oldest first.
    pub(crate) renewals_ms: Vec<f64>,
    /// When this was so, in milliseconds since the sidecar started.
    pub(crate) as_of_ms: u64,
}

/// That it is unknown who leads, and what was seen last.
#[derive(Debug, Serialize)]
pub(crate) struct Unknown {
    /// When the lease that was seen last ended.
    pub(crate) since: Option<Timestamp>,
    pub(crate) for_ms: u64,
    pub(crate) last_leader: Option<LastLeader>,
    pub(crate) text: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct LastLeader {
    pub(crate) id: String,
    pub(crate) instance: String,
    pub(crate) token: Option<u64>,
    pub(crate) foreign: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Reason {
    pub(crate) code: &'static str,
    pub(crate) text: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Leader {
    pub(crate) id: String,
    pub(crate) instance: String,
    pub(crate) token: Option<u64>,
    /// A program that does not speak this protocol.
    pub(crate) foreign: bool,
    /// What is left of its lease; `null` for one without an end.
    pub(crate) remaining_ms: Option<u64>,
    /// How long it has led, by the store's clock.
    pub(crate) leads_for_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Vacancy {
    pub(crate) code: &'static str,
    pub(crate) text: String,
    pub(crate) left_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) instance: String,
    /// Whether this is the instance that answers.
    pub(crate) is_self: bool,
    pub(crate) leads: bool,
    pub(crate) priority: i32,
    pub(crate) ready: bool,
    pub(crate) ready_for_ms: Option<u64>,
    pub(crate) departing: bool,
    pub(crate) stalled: bool,
    /// Has sent a heartbeat within three of its leases.
    pub(crate) alive: bool,
    pub(crate) beat_ms_ago: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) version: String,
    pub(crate) metadata: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Wish {
    /// `resign` or `hand-over`.
    pub(crate) kind: &'static str,
    pub(crate) to: Option<String>,
    pub(crate) by: String,
    pub(crate) refused: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Store {
    /// `up`, `connecting` or `down`.
    pub(crate) state: &'static str,
    pub(crate) error: Option<String>,
    /// How long the last look took.
    pub(crate) round_trip_ms: Option<f64>,
    /// How old what is shown is.
    pub(crate) seen_ms_ago: Option<u64>,
    /// Which life of the store.
    pub(crate) incarnation: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Counts {
    pub(crate) terms: u64,
    pub(crate) ends: u64,
    pub(crate) losses: u64,
    pub(crate) renewals: u64,
    pub(crate) renewals_failed: u64,
    pub(crate) attempts_failed: u64,
}

/// The current state of a resource.
pub(crate) fn resource(watched: &Watched, connection: &Connection) -> Resource {
    let (seen, standing) = (watched.seen(), watched.own());
    let own = standing.status.as_ref();
    let is_held = watched.is_held();
    let age = seen.age().unwrap_or_default();
    let current = seen.current();
    Resource {
        name: watched.name().to_owned(),
        key: watched.observer.resource().key().to_owned(),
        takes_part: own.is_some(),
        enabled: is_held,
        role: own.map_or("observer", |status| status.role.as_str()),
        reason: own
            .map(|status| Reason { code: status.reason.code(), text: status.reason.to_string() }),
        is_leader: standing.leads,
        token: own.and_then(|status| Some(status.token?.get())),
        remaining_ms: own.and_then(|status| Some(whole_ms(status.remaining?))),
        renewed_ms_ago: watched.renewal_age().map(whole_ms),
        ttl_ms: lease(own, &seen).map(whole_ms),
        leader: leader(watched, &seen, &standing),
        vacancy: vacancy(&seen, &standing, is_held),
        members: members(watched, &seen, &standing),
        unknown: unknown(watched, &seen),
        wish: current.and_then(|seen| seen.wish.as_ref()).map(wish),
        paused_for_ms: current
            .and_then(|seen| seen.paused_for)
            .map(|left| whole_ms(left.saturating_sub(age))),
        store: store(&seen, watched.reach(connection)),
        warnings: warnings(&seen, own),
        counts: own.map(counts),
        leader_changes: seen.leader_changes,
        renewals_ms: watched.renewals().into_iter().map(fine_ms).collect(),
        as_of_ms: clock::running_ms(),
    }
}

/// That nobody can tell who leads, once that is so.
pub(crate) fn unknown(watched: &Watched, seen: &Seen) -> Option<Unknown> {
    if !watched.is_unknown(seen) {
        return None;
    }
    let since = seen.unknown_since_ms().map(Timestamp);
    let last_leader = seen.leader().map(|leader| LastLeader {
        id: leader.id.to_string(),
        instance: leader.id.name().to_owned(),
        token: leader.token.map(Token::get),
        foreign: leader.foreign,
    });
    let last = match &last_leader {
        Some(leader) => format!("{} led", leader.instance),
        None => "nobody led".to_owned(),
    };
    let since_text = since.map_or("a while".to_owned(), |since| since.to_string());
    Some(Unknown {
        since,
        for_ms: whole_ms(seen.unknown_for().unwrap_or_default()),
        last_leader,
        text: format!("who leads has been unknown since {since_text}; when last seen, {last}"),
    })
}

/// The lease that counts here: this instance's, else the leader's.
fn lease(own: Option<&Status>, seen: &Seen) -> Option<Duration> {
    own.map(|status| status.timing.ttl()).or_else(|| seen.leader_ttl())
}

fn leader(watched: &Watched, seen: &Seen, own: &OwnState) -> Option<Leader> {
    let leader = watched.known_leader(seen, own)?;
    let token = leader.token.map(Token::get);
    let own_remaining = own.status.as_ref().filter(|_| own.leads).map(|own| own.remaining);
    Some(Leader {
        id: leader.id.to_string(),
        instance: leader.id.name().to_owned(),
        token,
        foreign: leader.foreign,
        remaining_ms: own_remaining.unwrap_or_else(|| seen.remaining()).map(whole_ms),
        leads_for_ms: token.and_then(|token| leads_for(seen, token)),
    })
}

fn leads_for(seen: &Seen, token: u64) -> Option<u64> {
    let term = seen.terms.iter().rev().find(|term| term.token == token)?;
    let server_ms = seen.observation.as_ref()?.server_time.as_millis();
    let age = seen.age().unwrap_or_default();
    Some(server_ms.saturating_sub(term.began_at.0) + whole_ms(age))
}

fn vacancy(seen: &Seen, own: &OwnState, is_held: bool) -> Option<Vacancy> {
    if own.leads || !is_held {
        return None;
    }
    let ending = |left| Vacancy {
        code: "ending",
        text: ENDING.to_owned(),
        left_ms: Option::map(left, whole_ms),
    };
    if let Some(status) = own.ending() {
        return Some(ending(status.remaining));
    }
    let vacancy = match &seen.current()?.leadership {
        Leadership::Vacant(vacancy) => vacancy,
        // Its own term has ended since the look, or is over and not given back yet.
        Leadership::Led { leader, .. } if own.is(&leader.id) => {
            return Some(ending(seen.remaining()));
        }
        Leadership::Led { .. } => return None,
    };
    let left = match vacancy {
        SeenVacancy::Quarantine { left, .. }
        | SeenVacancy::Paused { left }
        | SeenVacancy::Reserved { left, .. } => {
            Some(left.saturating_sub(seen.age().unwrap_or_default()))
        }
        _ => None,
    };
    let (code, text) = (vacancy_word(vacancy), vacancy_text(vacancy));
    Some(Vacancy { code, text, left_ms: left.map(whole_ms) })
}

fn members(watched: &Watched, seen: &Seen, own: &OwnState) -> Vec<Member> {
    let Some(observation) = &seen.observation else { return Vec::new() };
    let (age, leader) = (seen.age().unwrap_or_default(), watched.known_leader(seen, own));
    let view = |member: &SeenMember| {
        let beat = observation.server_time.since(member.beat_at) + age;
        let ready_for = |since: ServerTime| whole_ms(observation.server_time.since(since) + age);
        let record = &member.record;
        Member {
            id: member.id.to_string(),
            instance: member.id.name().to_owned(),
            is_self: own.is(&member.id),
            leads: leader.as_ref().is_some_and(|leader| leader.id == member.id),
            priority: record.priority,
            ready: record.ready,
            ready_for_ms: member.ready_since.map(ready_for),
            departing: record.departing,
            stalled: record.stalled,
            alive: beat <= record.ttl.saturating_mul(SILENT_LEASES_MAX),
            beat_ms_ago: whole_ms(beat),
            ttl_ms: whole_ms(record.ttl),
            version: record.version.clone(),
            metadata: record.metadata.clone(),
        }
    };
    let mut members: Vec<Member> = observation.members.iter().map(view).collect();
    members.sort_by(|a, b| (b.priority, &a.id).cmp(&(a.priority, &b.id)));
    members
}

fn wish(wish: &SeenWish) -> Wish {
    let (kind, to) = match &wish.kind {
        WishKind::Resign => ("resign", None),
        WishKind::HandOver { to } => ("hand-over", Some(to.clone())),
    };
    Wish { kind, to, by: wish.by.to_string(), refused: wish.refused.clone() }
}

fn store(seen: &Seen, reach: Reach) -> Store {
    let (state, error) = match reach {
        // What stands at a key of another type is no fault of the store, but has to be said.
        Reach::Up => ("up", seen.error.clone()),
        Reach::Connecting => ("connecting", None),
        Reach::Down(why) => ("down", Some(why)),
    };
    Store {
        state,
        error,
        round_trip_ms: seen.round_trip.filter(|_| seen.error.is_none()).map(fine_ms),
        seen_ms_ago: seen.age().map(whole_ms),
        incarnation: seen.observation.as_ref().map(|seen| seen.incarnation.clone()),
    }
}

fn warnings(seen: &Seen, own: Option<&Status>) -> Vec<String> {
    let own = own.and_then(|status| status.warning.as_deref()).map(str::to_owned);
    let seen = seen.observation.iter().flat_map(|seen| seen.warnings.iter().cloned());
    own.into_iter().chain(seen).collect()
}

fn counts(status: &Status) -> Counts {
    let counts = status.counts;
    Counts {
        terms: counts.terms,
        ends: counts.ends,
        losses: counts.losses,
        renewals: counts.renewals,
        renewals_failed: counts.renewals_failed,
        attempts_failed: counts.attempts_failed,
    }
}
