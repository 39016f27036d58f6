//! `/monitoring/standby-status`: the fields that dashboards of hot-standby pairs read.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure::backend::Connection;
use tenure::{Leadership, Role, Status};

use super::resource::ENDING;
use crate::follow::vacancy_text;
use crate::timestamp::Timestamp;
use crate::watched::{OwnState, Reach, Seen, Watched};

/// One resource in those words.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Standby {
    pub(crate) standby_enabled: bool,
    pub(crate) instance_id: String,
    /// `PRIMARY` or `STANDBY`.
    pub(crate) role: &'static str,
    pub(crate) redis_available: bool,
    /// The id of whoever leads.
    pub(crate) current_lock_holder: Option<String>,
    /// The last renewal, or without a term the last answer to a look.
    pub(crate) last_successful_refresh: Option<Timestamp>,
    pub(crate) has_warning: bool,
    /// Why, in words.
    pub(crate) warnings: Vec<String>,
    pub(crate) name: String,
    /// The others by name, where there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) resources: BTreeMap<String, Standby>,
}

/// The state of a resource, in those words.
pub(crate) fn standby(watched: &Watched, instance_id: &str, connection: &Connection) -> Standby {
    let (own, seen) = (watched.own(), watched.seen());
    let is_held = watched.is_held();
    let redis_available = watched.reach(connection) == Reach::Up;
    let current_lock_holder = watched.known_leader(&seen, &own).map(|leader| leader.id.to_string());
    let lacks_leader = current_lock_holder.is_none();
    let warnings = warnings(watched, &own, &seen, redis_available, lacks_leader);
    Standby {
        standby_enabled: is_held,
        instance_id: instance_id.to_owned(),
        role: if own.leads { "PRIMARY" } else { "STANDBY" },
        redis_available,
        current_lock_holder,
        last_successful_refresh: watched.refreshed_at_ms().map(Timestamp),
        has_warning: !warnings.is_empty(),
        warnings,
        name: watched.name().to_owned(),
        resources: BTreeMap::new(),
    }
}

/// What a person should look at. Each line raises `hasWarning`.
fn warnings(
    watched: &Watched,
    own: &OwnState,
    seen: &Seen,
    redis_available: bool,
    lacks_leader: bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |text: String| warnings.push(text);
    if !redis_available {
        warn("the store does not answer".to_owned());
    }
    if let Some(unknown) = super::unknown(watched, seen) {
        warn(unknown.text);
    } else if lacks_leader {
        let why = match seen.observation.as_ref().map(|seen| &seen.leadership) {
            _ if own.ending().is_some() => format!(": {ENDING}"),
            Some(Leadership::Vacant(vacancy)) => format!(": {}", vacancy_text(vacancy)),
            _ => String::new(),
        };
        warn(format!("nobody leads{why}"));
    }
    if let Some(status) = &own.status {
        match status.role {
            Role::Suspect => warn("the last renewal failed".to_owned()),
            Role::Stopped => warn("the election was stopped".to_owned()),
            _ => {}
        }
        if let Some(text) = &status.warning {
            warn(text.to_string());
        }
        if watched.renewal_age().is_some_and(|age| is_stale(age, status)) {
            warn("the last renewal is older than it should be".to_owned());
        }
    }
    seen.current().iter().flat_map(|seen| &seen.warnings).for_each(|text| warn(text.clone()));
    warnings
}

/// Two renewals in a row did not come through.
fn is_stale(age: Duration, status: &Status) -> bool {
    age > status.timing.renew_every() * 2 + status.timing.try_timeout()
}
