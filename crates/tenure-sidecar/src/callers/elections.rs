//! Elections that programs join and leave at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure::{ElectionBuilder, Events, OnLoss};
use tokio::task::JoinHandle;

use super::asked::{Asked, LENGTH_MAX, check_length, check_name, failed, too_many, wait};
use super::owner::{Lifeline, Owner};
use crate::extract::{PathName, QueryWords};
use crate::json::Json;
use crate::routes::{Leading, fresh, leading, refusal, unknown};
use crate::sidecar::{EVENTS_END_MAX, Following, STOP_MAX, Shared};
use crate::view::whole_ms;
use crate::watched::Watched;

/// How many elections may be joined at a time. Each has a few tasks and a place in every answer.
const JOINED_MAX: usize = 64;
/// How long an earlier election of the same name may take to end before a join is refused.
const START_MAX: Duration = Duration::from_secs(5);

type Shares = State<Arc<Shared>>;

/// What a program asks for when it joins.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Join {
    owner: Option<String>,
    within_ms: Option<u64>,
    ttl_ms: Option<u64>,
    priority: Option<i32>,
    ready: Option<bool>,
    version: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    require_beat_ms: Option<u64>,
    lock_delay_ms: Option<u64>,
}

impl Join {
    fn builder(&self, shared: &Shared, name: &str) -> ElectionBuilder {
        let millis = Duration::from_millis;
        // Its loss ends no process: that of the sidecar is not the caller's.
        let mut builder = shared.tenure.election(name).on_loss(OnLoss::Recontend);
        builder = builder.require_beat(self.require_beat_ms.map(millis));
        if let Some(ttl) = self.ttl_ms {
            builder = builder.ttl(millis(ttl));
        }
        if let Some(priority) = self.priority {
            builder = builder.priority(priority);
        }
        if let Some(version) = &self.version {
            builder = builder.version(version);
        }
        if let Some(delay) = self.lock_delay_ms {
            builder = builder.lock_delay(millis(delay));
        }
        for (word, value) in &self.metadata {
            builder = builder.metadata(word, value);
        }
        builder.ready(self.ready.unwrap_or(true))
    }
}

/// An election that a program joined.
#[derive(Debug)]
struct Joined {
    asked: Join,
    owner: Option<Owner>,
    lifeline: Option<Arc<Lifeline>>,
    watched: Arc<Watched>,
    following: Mutex<Option<(Following, JoinHandle<()>)>>,
}

#[derive(Clone, Debug)]
enum Entry {
    /// It begins or ends just now.
    Busy,
    Joined(Arc<Joined>),
}

impl Entry {
    fn is(&self, joined: &Arc<Joined>) -> bool {
        matches!(self, Entry::Joined(known) if Arc::ptr_eq(known, joined))
    }
}

#[derive(Debug)]
pub(super) struct Elections {
    configured: BTreeSet<String>,
    joined: Mutex<BTreeMap<String, Entry>>,
}

impl Elections {
    pub(super) fn new<'a>(configured: impl Iterator<Item = &'a str>) -> Self {
        let configured = configured.map(str::to_owned).collect();
        Elections { configured, joined: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, joined: &Arc<Joined>) -> bool {
        self.lock().get(joined.watched.name()).is_some_and(|entry| entry.is(joined))
    }

    /// The election that `owner` may change.
    fn of(
        &self,
        shared: &Shared,
        name: &str,
        owner: Option<&str>,
    ) -> Result<Arc<Joined>, Response> {
        if self.configured.contains(name) {
            let error = format!("{name:?} is in the configuration: it cannot be joined or left");
            return Err(refusal(StatusCode::CONFLICT, "configured", error));
        }
        let joined = match self.lock().get(name) {
            None => return Err(unknown(shared, name)),
            Some(Entry::Busy) => return Err(busy(name)),
            Some(Entry::Joined(joined)) => Arc::clone(joined),
        };
        let owner = owner.map(Owner::read).transpose()?;
        if joined.owner.is_some() && joined.owner != owner {
            Err(not_yours(name))
        } else {
            Ok(joined)
        }
    }
}

fn busy(name: &str) -> Response {
    let error = format!("{name:?} is being joined or left just now: ask again in a moment");
    refusal(StatusCode::CONFLICT, "busy", error)
}

fn not_yours(name: &str) -> Response {
    let error = format!(
        "{name:?} was joined by another owner: send its word, leave it to that one, or use a \
         sidecar of your own"
    );
    refusal(StatusCode::CONFLICT, "other-owner", error)
}

/// A name that is about to be joined; free again when this is dropped.
struct Slot<'a> {
    elections: &'a Elections,
    name: &'a str,
}

impl Slot<'_> {
    fn fill(self, joined: Arc<Joined>) {
        self.elections.lock().insert(self.name.to_owned(), Entry::Joined(joined));
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut joined = self.elections.lock();
        if matches!(joined.get(self.name), Some(Entry::Busy)) {
            joined.remove(self.name);
        }
    }
}

/// How an election stands, for its owner.
#[derive(Serialize)]
struct Standing {
    #[serde(flatten)]
    leading: Leading,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within_ms: Option<u64>,
}

fn standing(joined: &Joined) -> Json<Standing> {
    Json(Standing {
        leading: leading(&joined.watched),
        owner: joined.owner.as_ref().map(|owner| owner.as_str().to_owned()),
        within_ms: joined.lifeline.as_ref().map(|lifeline| whole_ms(lifeline.within())),
    })
}

// ---------------------------------------------------------------------- join

/// Takes part in an election from now on.
pub(super) async fn join(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Join>,
) -> Response {
    match join_or_refuse(&shared, &name, asked).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn join_or_refuse(
    shared: &Arc<Shared>,
    name: &str,
    asked: Join,
) -> Result<Response, Response> {
    check_name(name)?;
    check_length("lock_delay_ms", asked.lock_delay_ms, LENGTH_MAX)?;
    check_length("require_beat_ms", asked.require_beat_ms, LENGTH_MAX)?;
    let within = Lifeline::read(asked.within_ms)?;
    let owner = match (&asked.owner, within) {
        (None, None) => None,
        (word, _) => Some(Owner::read_or_draw(word.as_deref())?),
    };
    let elections = &shared.callers.elections;
    match elections.of(shared, name, asked.owner.as_deref()) {
        Ok(joined) if joined.asked == asked => {
            joined.lifeline.iter().for_each(|lifeline| lifeline.extend());
            return Ok(fresh(standing(&joined)));
        }
        Ok(_) => {
            let error = format!("{name:?} was joined with other settings: leave it first");
            return Err(refusal(StatusCode::CONFLICT, "other-settings", error));
        }
        Err(refused) if refused.status() != StatusCode::NOT_FOUND => return Err(refused),
        Err(_) => {}
    }
    let place = enter(elections, name)?;
    let mut builder = asked.builder(shared, name);
    let events = builder.events();
    let started = tokio::time::timeout(START_MAX, builder.start()).await.map_err(|_| busy(name))?;
    let election = started.map_err(|error| failed(&error))?;
    let resource = election.resource();
    let observer = shared.tenure.observe_key(resource.name(), resource.key());
    let watched = Watched::new(observer.map_err(|error| failed(&error))?, Some(election));
    let lifeline = within.map(|within| Arc::new(Lifeline::new(within)));
    let joined =
        follow(shared, asked, owner, lifeline, watched, events).ok_or_else(|| busy(name))?;
    place.fill(Arc::clone(&joined));
    tracing::info!(target: "tenure", resource = name, "sidecar: a program joined the election");
    watch_owner(shared, &joined);
    Ok(fresh((StatusCode::CREATED, standing(&joined))))
}

fn enter<'a>(elections: &'a Elections, name: &'a str) -> Result<Slot<'a>, Response> {
    let mut joined = elections.lock();
    if joined.contains_key(name) {
        return Err(busy(name));
    }
    if joined.len() >= JOINED_MAX {
        return Err(too_many("elections that programs joined", JOINED_MAX));
    }
    joined.insert(name.to_owned(), Entry::Busy);
    Ok(Slot { elections, name })
}

fn follow(
    shared: &Arc<Shared>,
    asked: Join,
    owner: Option<Owner>,
    lifeline: Option<Arc<Lifeline>>,
    watched: Watched,
    events: Events,
) -> Option<Arc<Joined>> {
    let watched = Arc::new(watched);
    let following = Mutex::new(Some(shared.watch_more(&watched, events)?));
    Some(Arc::new(Joined { asked, owner, lifeline, watched, following }))
}

/// Leaves the election when its owner falls silent: a dead program must not lead for ever.
fn watch_owner(shared: &Arc<Shared>, joined: &Arc<Joined>) {
    let Some(lifeline) = joined.lifeline.clone() else { return };
    // What was left meanwhile, or ended with the sidecar, is not kept for this.
    let (shared, joined) = (Arc::downgrade(shared), Arc::downgrade(joined));
    tokio::spawn(async move {
        lifeline.ends().await;
        let (Some(shared), Some(joined)) = (shared.upgrade(), joined.upgrade()) else { return };
        if shared.callers.elections.has(&joined) {
            tracing::warn!(target: "tenure", resource = joined.watched.name(),
                "sidecar: the program that joined fell silent: the election is left");
            leave_in_order(shared, joined).await;
        }
    });
}

// ---------------------------------------------------------------------- leave

#[derive(Deserialize)]
pub(super) struct OwnerWord {
    pub(super) owner: Option<String>,
}

/// Leaves an election that was joined here.
pub(super) async fn leave(
    State(shared): Shares,
    PathName(name): PathName,
    QueryWords(words): QueryWords<OwnerWord>,
) -> Response {
    let owner = words.owner.as_deref();
    let joined = match shared.callers.elections.of(&shared, &name, owner) {
        Ok(joined) => joined,
        Err(refused) => return refused,
    };
    // In a task of its own: whoever asked may hang up meanwhile.
    match tokio::spawn(leave_in_order(Arc::clone(&shared), joined)).await {
        Ok(Some(is_released)) => {
            tracing::info!(target: "tenure", resource = name, "sidecar: a program left the election");
            fresh(Json(json!({ "name": name, "left": true, "released": is_released })))
        }
        _ => busy(&name),
    }
}

/// Leaves it, and returns whether the store knows; `None` if somebody else is leaving it. Nobody
/// may lead before the last promise is over, and hooks on loss have ended when this returns.
async fn leave_in_order(shared: Arc<Shared>, joined: Arc<Joined>) -> Option<bool> {
    let name = joined.watched.name().to_owned();
    {
        let mut entries = shared.callers.elections.lock();
        match entries.get_mut(&name) {
            Some(entry) if entry.is(&joined) => *entry = Entry::Busy,
            _ => return None,
        }
    }
    let place = Slot { elections: &shared.callers.elections, name: &name };
    let limit = joined.watched.promised_for() + STOP_MAX;
    let is_released = match &joined.watched.election {
        Some(election) => tokio::time::timeout(limit, election.stop()).await.is_ok(),
        None => true,
    };
    let following = joined.following.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((following, listener)) = following {
        // Its end is in its events; until they are read, no hook knows of it.
        let _ = tokio::time::timeout(EVENTS_END_MAX, listener).await;
        shared.watch_no_more(&joined.watched).await;
        drop(following);
    }
    drop(place);
    Some(is_released)
}

// ---------------------------------------------------------------------- what an owner says

/// What an owner says to keep what it joined.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keep {
    owner: String,
    wait_ms: Option<u64>,
}

/// The owner is alive, and wants to know whether it leads. Where it does not, the answer may wait
/// for that.
pub(super) async fn keep(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Keep>,
) -> Response {
    let wait = match wait(asked.wait_ms) {
        Ok(wait) => wait,
        Err(refused) => return refused,
    };
    let joined = match shared.callers.elections.of(&shared, &name, Some(&asked.owner)) {
        Ok(joined) => joined,
        Err(refused) => return refused,
    };
    let wait = match &joined.lifeline {
        // So that the next sign of life comes in time.
        Some(lifeline) => {
            lifeline.extend();
            wait.min(lifeline.within() / 2)
        }
        None => wait,
    };
    if let Some(election) = &joined.watched.election
        && !election.is_leader()
        && !wait.is_zero()
    {
        let _ = tokio::time::timeout(wait, election.wait_for_leadership()).await;
    }
    fresh(standing(&joined))
}

/// What the work says of itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Beat {
    owner: Option<String>,
}

/// The work made progress; see `require_beat_ms`.
pub(super) async fn beat(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Beat>,
) -> Response {
    let Some(watched) = shared.resource(&name) else { return unknown(&shared, &name) };
    if !shared.callers.elections.configured.contains(&name) {
        match shared.callers.elections.of(&shared, &name, asked.owner.as_deref()) {
            Ok(joined) => joined.lifeline.iter().for_each(|lifeline| lifeline.extend()),
            Err(refused) => return refused,
        }
    }
    let Some(election) = &watched.election else {
        let error = format!("{name:?} is only observed here: ask a sidecar that takes part");
        return refusal(StatusCode::CONFLICT, "observed", error);
    };
    election.beat();
    fresh(Json(leading(&watched)))
}
