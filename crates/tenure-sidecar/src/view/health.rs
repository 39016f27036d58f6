//! `/health`: whether this instance is well, in the shape that health checks of other systems have.

use std::collections::BTreeMap;

use serde::Serialize;
use tenure::backend::Connection;
use tenure::{Reason, Role};

use crate::watched::{Reach, Watched};

/// How well something is, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum HealthStatus {
    Healthy,
    Degraded,
    Unhealthy,
}

/// The whole answer.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    pub(crate) status: HealthStatus,
    pub(crate) results: Results,
}

#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) leader_election: Check,
}

#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) status: HealthStatus,
    pub(crate) description: String,
    pub(crate) data: Data,
}

/// Of the one resource, or of all together.
#[derive(Debug, Serialize)]
pub(crate) struct Data {
    /// Whether this instance leads anything.
    pub(crate) is_leader: bool,
    pub(crate) instance_id: String,
    /// The role in the only election, else the most that it is in any.
    pub(crate) role: &'static str,
    pub(crate) resources: BTreeMap<String, Part>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) status: HealthStatus,
    pub(crate) description: String,
    pub(crate) is_leader: bool,
    pub(crate) role: &'static str,
    pub(crate) reason: &'static str,
}

/// How well this instance is.
pub(crate) fn health(
    resources: &[std::sync::Arc<Watched>],
    instance_id: String,
    connection: &Connection,
    standby_is_degraded: bool,
) -> Health {
    let parts: BTreeMap<String, Part> = resources
        .iter()
        .map(|watched| (watched.name().to_owned(), part(watched, connection, standby_is_degraded)))
        .collect();
    let worst = parts.values().max_by_key(|part| part.status);
    // Without any it waits for programs that join.
    let status = worst.map_or(HealthStatus::Healthy, |part| part.status);
    let description = description(&parts);
    let leader = parts.values().find(|part| part.is_leader);
    let role = leader.or(worst).map_or("unknown", |part| part.role);
    let data = Data { is_leader: leader.is_some(), instance_id, role, resources: parts };
    let leader_election = Check { status, description, data };
    Health { status, results: Results { leader_election } }
}

/// Every election by name, the worst first.
fn description(parts: &BTreeMap<String, Part>) -> String {
    let mut parts: Vec<&Part> = parts.values().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.status));
    let texts: Vec<&str> = parts.iter().map(|part| part.description.as_str()).collect();
    match texts.is_empty() {
        true => "no election yet".to_owned(),
        false => texts.join("; "),
    }
}

fn part(watched: &Watched, connection: &Connection, standby_is_degraded: bool) -> Part {
    let Some(election) = &watched.election else {
        return observer_part(watched, connection, standby_is_degraded);
    };
    let (status, is_leader) = (election.status(), watched.own().leads);
    let down = match watched.reach(connection) {
        Reach::Down(why) => Some(why),
        _ => None,
    };
    let name = watched.name();
    let (health, description) = match (&status.role, down) {
        (Role::Stopped, _) => {
            (HealthStatus::Unhealthy, format!("{name}: the election was stopped"))
        }
        _ if matches!(status.reason, Reason::Conflict(_)) => {
            (HealthStatus::Unhealthy, format!("{name}: {}", status.reason))
        }
        (_, Some(error)) => (without_store(standby_is_degraded), format!("{name}: {error}")),
        _ if watched.is_unknown(&watched.seen()) => {
            (without_store(standby_is_degraded), doubts(watched))
        }
        (Role::Unknown, None) if matches!(status.reason, Reason::Store(_)) => (
            without_store(standby_is_degraded),
            format!("{name}: cannot contend: {}", status.reason),
        ),
        (Role::Unknown, None) => (
            without_store(standby_is_degraded),
            format!("{name}: nothing is known yet ({})", status.reason),
        ),
        (Role::Suspect, None) if is_leader => {
            (HealthStatus::Degraded, format!("{name}: leads, but the last renewal failed"))
        }
        (Role::Suspect, None) => (
            HealthStatus::Degraded,
            format!("{name}: no longer leads: no renewal succeeded in time"),
        ),
        (Role::Leader | Role::Yielding, None) if is_leader => {
            (HealthStatus::Healthy, format!("{name}: leads"))
        }
        (Role::Leader | Role::Yielding, None) => {
            (HealthStatus::Healthy, format!("{name}: stops its work ({})", status.reason))
        }
        (_, None) if standby_is_degraded => {
            (HealthStatus::Degraded, format!("{name}: standby ({})", status.reason))
        }
        (_, None) => (HealthStatus::Healthy, format!("{name}: standby ({})", status.reason)),
    };
    let (role, reason) = (status.role.as_str(), status.reason.code());
    Part { status: health, description, is_leader, role, reason }
}

fn without_store(standby_is_degraded: bool) -> HealthStatus {
    if standby_is_degraded { HealthStatus::Unhealthy } else { HealthStatus::Degraded }
}

/// That nobody can tell who leads, though nothing has failed yet.
fn doubts(watched: &Watched) -> String {
    let unknown = super::unknown(watched, &watched.seen());
    let text = unknown.map_or_else(|| "nothing is known yet".to_owned(), |unknown| unknown.text);
    format!("{}: {text}", watched.name())
}

fn observer_part(watched: &Watched, connection: &Connection, strict: bool) -> Part {
    let (seen, name) = (watched.seen(), watched.name());
    let (status, description) = match (watched.reach(connection), &seen.error) {
        (Reach::Down(error), _) => (without_store(strict), format!("{name}: {error}")),
        (_, Some(error)) => (HealthStatus::Unhealthy, format!("{name}: {error}")),
        _ if watched.is_unknown(&seen) => (without_store(strict), doubts(watched)),
        _ if seen.observation.is_none() => {
            (without_store(strict), format!("{name}: nothing is known yet"))
        }
        _ => (HealthStatus::Healthy, format!("{name}: observer")),
    };
    Part { status, description, is_leader: false, role: "observer", reason: "observes" }
}
