//! The routes. Handlers copy what is known into answers; only `/status`, `/history` and what an
//! operator asks for wait for the store.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use serde::{Deserialize, Serialize};
use tenure::{AskOutcome, SeenLeader, Token};

use crate::callers::Asked;
use crate::extract::{PathName, QueryWords};
use crate::json::Json;
use crate::sidecar::Shared;
use crate::terms::{TermRecord, terms};
use crate::timestamp::Timestamp;
use crate::view::{HealthStatus, Overview, Standby, health, resource, standby, whole_ms};
use crate::watched::{HISTORY_READ_MAX, OwnState, Watched};
use crate::{callers, clock, events, metrics, operate, page, plain_metrics};

/// The largest body that a request may have, in bytes: a name fits many times.
pub(crate) const BODY_LEN_MAX: usize = 16 * 1024;
/// How long `/status` waits for a fresh look before it shows the last one.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// How many entries of the history can be asked for: a store keeps about so many.
const HISTORY_KEPT_MAX: usize = 1000;
/// A look this young is fresh: many callers at once share it.
const FRESH: Duration = Duration::from_millis(50);

type Shares = State<Arc<Shared>>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let described = callers::routes(own_routes());
    described
        .router
        .merge(page::router())
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "no such route: see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            let why = "this route takes another method: see /openapi.json";
            problem(StatusCode::METHOD_NOT_ALLOWED, why)
        })
        .layer(DefaultBodyLimit::max(BODY_LEN_MAX))
        .with_state(shared)
}

fn own_routes() -> Routes {
    Routes::default()
        .get("/health", health_route)
        .get("/monitoring/standby-status", standby_route)
        .get("/livez", livez)
        .get("/readyz", readyz)
        .get("/leader", leader_of_all)
        .get("/leader/{name}", leader)
        .get("/status", status)
        .get("/history/{name}", history)
        .get("/metrics", metrics_route)
        .get("/events", events::events)
        .post("/resign/{name}", resign)
        .post("/hand-over/{name}", hand_over)
        .post("/pause/{name}", operate::pause)
        .post("/resume/{name}", operate::resume)
        .post("/ready/{name}", operate::ready)
        .get("/openapi.json", openapi)
}

/// Routes, and a list of them: every one has to be in the description.
#[derive(Default)]
pub(crate) struct Routes {
    router: Router<Arc<Shared>>,
    listed: Vec<(&'static str, &'static str)>,
}

impl Routes {
    pub(crate) fn get<H, T>(self, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<Shared>>,
        T: 'static,
    {
        self.route("get", path, get(handler))
    }

    pub(crate) fn post<H, T>(self, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<Shared>>,
        T: 'static,
    {
        self.route("post", path, post(handler))
    }

    pub(crate) fn delete<H, T>(self, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<Shared>>,
        T: 'static,
    {
        self.route("delete", path, delete(handler))
    }

    fn route(
        mut self,
        method: &'static str,
        path: &'static str,
        handler: MethodRouter<Arc<Shared>>,
    ) -> Self {
        self.listed.push((path, method));
        self.router = self.router.route(path, handler);
        self
    }
}

/// An answer that says what is wrong and what to do.
pub(crate) fn problem(status: StatusCode, error: impl Into<String>) -> Response {
    refusal(status, general_code(status), error)
}

/// The same with a word of its own, by which programs tell it from others of this status.
pub(crate) fn refusal(
    status: StatusCode,
    code: &'static str,
    error: impl Into<String>,
) -> Response {
    #[derive(Serialize)]
    struct Problem {
        code: &'static str,
        error: String,
    }
    fresh((status, Json(Problem { code, error: error.into() })))
}

/// The word for what is wrong where the status says it all.
fn general_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "unreadable",
        StatusCode::UNAUTHORIZED => "no-token",
        StatusCode::FORBIDDEN => "foreign-site",
        StatusCode::NOT_FOUND => "not-found",
        StatusCode::METHOD_NOT_ALLOWED => "wrong-method",
        StatusCode::REQUEST_TIMEOUT => "too-slow",
        StatusCode::CONFLICT => "conflict",
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "too-long",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "not-json",
        StatusCode::MISDIRECTED_REQUEST => "unknown-host",
        StatusCode::UNPROCESSABLE_ENTITY => "unfit",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ => "failed",
    }
}

pub(crate) fn unknown(shared: &Shared, name: &str) -> Response {
    let known = shared.resources();
    let known: Vec<&str> = known.iter().map(|watched| watched.name()).collect();
    let known = known.join(", ");
    problem(
        StatusCode::NOT_FOUND,
        format!("{name:?} is not an election of this sidecar; known: {known}"),
    )
}

/// Answers about a moment must not be kept.
pub(crate) fn fresh(response: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], response).into_response()
}

// ---------------------------------------------------------------------- probes

async fn health_route(State(shared): Shares) -> Response {
    let (id, connection) = (shared.tenure.id().to_string(), shared.tenure.connection());
    let health = health(&shared.resources(), id, &connection, shared.standby_is_degraded);
    let status = match health.status {
        HealthStatus::Unhealthy => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::OK,
    };
    fresh((status, Json(health)))
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
}

async fn standby_route(State(shared): Shares, QueryWords(query): QueryWords<Named>) -> Response {
    let (id, connection) = (shared.tenure.id().to_string(), shared.tenure.connection());
    let view = |watched: &Arc<Watched>| standby(watched, &id, &connection);
    if let Some(name) = query.name {
        return match shared.resource(&name) {
            Some(watched) => fresh(Json(view(&watched))),
            None => unknown(&shared, &name),
        };
    }
    let resources = shared.resources();
    let mut views = resources.iter().map(view);
    let Some(mut first) = views.next() else { return unknown(&shared, "") };
    first.resources = views.map(|view: Standby| (view.name.clone(), view)).collect();
    fresh(Json(first))
}

/// Whether the process turns over at all. The store has no say in this.
///
/// Says when that was, too: a page can tell by it how late other answers came.
async fn livez() -> Response {
    fresh(([("tenure-as-of-ms", clock::running_ms().to_string())], "ok\n"))
}

/// Whether it knows enough to be asked: a standby is ready, and stays so when the store goes.
async fn readyz(State(shared): Shares) -> Response {
    let resources = shared.resources();
    let stranger = resources.iter().find(|watched| !watched.is_acquainted());
    match stranger {
        None => fresh("ok\n"),
        Some(watched) => {
            let text = format!("{}: the store has not answered yet\n", watched.name());
            fresh((StatusCode::SERVICE_UNAVAILABLE, text))
        }
    }
}

// ---------------------------------------------------------------------- who leads

#[derive(Serialize)]
pub(crate) struct Leading {
    name: String,
    pub(crate) is_leader: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_for_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
    /// Who leads instead, as last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
}

/// Decided at this very moment: no task and no timer has a part in it.
pub(crate) fn leading(watched: &Watched) -> Leading {
    let name = watched.name().to_owned();
    match watched.promise() {
        Some(promised) => Leading {
            name,
            is_leader: true,
            token: Some(promised.token.get()),
            valid_for_ms: Some(whole_ms(promised.valid_for)),
            remaining_ms: Some(whole_ms(promised.remaining)),
            leader: None,
        },
        None => {
            // Nor is it this instance that leads instead, should its term begin just now.
            let own = OwnState { leads: false, ..watched.own() };
            let leader = watched.known_leader(&watched.seen(), &own);
            let leader = leader.map(|leader| leader.id.to_string());
            let (token, valid_for_ms, remaining_ms) = (None, None, None);
            Leading { name, is_leader: false, token, valid_for_ms, remaining_ms, leader }
        }
    }
}

fn code(is_leader: bool) -> StatusCode {
    if is_leader { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn leader(State(shared): Shares, PathName(name): PathName) -> Response {
    match shared.resource(&name) {
        Some(watched) => {
            let leading = leading(&watched);
            fresh((code(leading.is_leader), Json(leading)))
        }
        None => unknown(&shared, &name),
    }
}

/// Of the only resource; of several, whether this instance leads all that it takes part in. What it
/// only observes has no say: it can never lead there.
async fn leader_of_all(State(shared): Shares) -> Response {
    let resources = shared.resources();
    if let [watched] = &*resources {
        let leading = leading(watched);
        return fresh((code(leading.is_leader), Json(leading)));
    }
    let all: Vec<Leading> = resources.iter().map(|watched| leading(watched)).collect();
    let takes_part = |watched: &&Arc<Watched>| watched.election.is_some();
    let mut own = resources.iter().zip(&all).filter(|(watched, _)| takes_part(watched));
    let is_leader = own.clone().next().is_some() && own.all(|(_, leading)| leading.is_leader);
    fresh((code(is_leader), Json(serde_json::json!({ "is_leader": is_leader, "resources": all }))))
}

// ---------------------------------------------------------------------- status and history

async fn refresh(watched: &Watched) {
    let is_fresh = watched.seen().age().is_some_and(|age| age < FRESH);
    if watched.is_held() && !is_fresh {
        // Past this the last look is shown, with its age.
        let _ = tokio::time::timeout(LOOK_PATIENCE, watched.look()).await;
    }
}

async fn status(State(shared): Shares) -> Response {
    let resources = shared.resources();
    let looks = resources.iter().map(|watched| refresh(watched));
    futures_util::future::join_all(looks).await;
    fresh(Json(overview(&shared)))
}

pub(crate) fn overview(shared: &Shared) -> Overview {
    let connection = shared.tenure.connection();
    let watched = shared.resources();
    let resources = watched.iter().map(|watched| resource(watched, &connection));
    Overview {
        instance: shared.tenure.id().to_string(),
        store: shared.tenure.store(),
        version: env!("CARGO_PKG_VERSION"),
        started_at: Timestamp(shared.started_at_ms),
        now: Timestamp(clock::unix_ms()),
        resources: resources.collect(),
    }
}

#[derive(Deserialize)]
struct HistoryPage {
    /// How many entries; a term has two.
    count: Option<usize>,
    /// Only terms with a lower token than this.
    before: Option<u64>,
}

/// Greater numbers are not exact in every language; no token is one.
const NUMBER_MAX: u64 = (1 << 53) - 1;

impl HistoryPage {
    /// Why the page cannot be shown.
    fn wrong_number(&self) -> Option<String> {
        let count = self.count.unwrap_or(1) as u64;
        if !(1..=NUMBER_MAX).contains(&count) {
            return Some(format!("count is {count}: write a number from 1 to {NUMBER_MAX}"));
        }
        let before = self.before.filter(|before| *before > NUMBER_MAX)?;
        Some(format!("before is {before}: write the token of a term"))
    }
}

#[derive(Serialize)]
struct History {
    name: String,
    /// Whether the last term still runs.
    running: bool,
    /// The store's clock, with which all moments here compare.
    server_time: Option<Timestamp>,
    /// Whether the store remembers terms from before these.
    earlier: bool,
    terms: Vec<TermRecord>,
}

async fn history(
    State(shared): Shares,
    PathName(name): PathName,
    QueryWords(query): QueryWords<HistoryPage>,
) -> Response {
    let Some(watched) = shared.resource(&name) else { return unknown(&shared, &name) };
    if let Some(wrong) = query.wrong_number() {
        return problem(StatusCode::BAD_REQUEST, wrong);
    }
    refresh(&watched).await;
    let (earlier, terms) = match read_page(&watched, &query).await {
        Ok(page) => page,
        Err(error) => return problem(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    };
    let seen = watched.seen();
    let own = watched.own();
    // A term runs until its lease is given back, whether or not work may still begin.
    let token = match watched.known_leader(&seen, &own) {
        Some(leader) => leader.token,
        None => own.ending().and_then(|status| status.token),
    };
    let token = token.map(Token::get);
    let running = terms.last().is_some_and(|term| Some(term.token) == token);
    let age = seen.age().unwrap_or_default();
    let server_time = seen.observation.as_ref().map(|o| o.server_time.as_millis() + whole_ms(age));
    let server_time = server_time.map(Timestamp);
    fresh(Json(History { name, running, server_time, earlier, terms }))
}

/// The terms of one page, oldest first, and whether there are earlier ones.
async fn read_page(
    watched: &Watched,
    page: &HistoryPage,
) -> Result<(bool, Vec<TermRecord>), tenure::Error> {
    let count = page.count.unwrap_or(HISTORY_READ_MAX).clamp(1, HISTORY_KEPT_MAX);
    // Where a page begins is known only from all of it; the store has no index by token. One more
    // than asked for tells whether there is more.
    let read =
        if page.before.is_some() { HISTORY_KEPT_MAX } else { HISTORY_KEPT_MAX.min(count + 1) };
    let mut entries = watched.observer.history(read).await?;
    if page.before.is_none() {
        let earlier = entries.len() > count;
        entries.truncate(count);
        return Ok((earlier, terms(&entries)));
    }
    let mut terms = terms(&entries);
    terms.retain(|term| page.before.is_none_or(|before| term.token < before));
    let cut_off = terms.len().saturating_sub(count.div_ceil(2));
    Ok((cut_off > 0, terms.split_off(cut_off)))
}

async fn metrics_route(State(shared): Shares, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let varies = [(header::VARY, "Accept")];
    match metrics::render(&shared) {
        Ok(text) if plain_metrics::wants_open_metrics(accept) => {
            fresh((varies, [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text))
        }
        Ok(text) => {
            let text = plain_metrics::from_open_metrics(&text);
            fresh((varies, [(header::CONTENT_TYPE, plain_metrics::CONTENT_TYPE)], text))
        }
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json")).into_response()
}

// ---------------------------------------------------------------------- what an operator asks for

#[derive(Deserialize)]
struct Resign {
    /// The term that is meant: by now another may have begun.
    token: Option<u64>,
}

async fn resign(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Resign>,
) -> Response {
    let Some(watched) = shared.resource(&name) else { return unknown(&shared, &name) };
    tracing::info!(target: "tenure", resource = name, "sidecar: asked to resign");
    if let Err(refused) = check_term(&watched, asked.token).await {
        return refused;
    }
    answer(&watched, watched.observer.ask_to_resign().await)
}

/// Refuses what was meant for a term that is over: whoever leads since was not meant.
async fn check_term(watched: &Watched, token: Option<u64>) -> Result<(), Response> {
    let Some(token) = token else { return Ok(()) };
    let seen = watched.observer.look().await;
    let seen = seen.map_err(|error| problem(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let leader = seen.leadership.leader();
    if leader.is_some_and(|leader| leader.token.is_some_and(|running| running.get() == token)) {
        return Ok(());
    }
    let why = format!("the term with the token {token} is over: nothing was asked for");
    let leader = leader.map(|leader| leader.id.to_string());
    let answer = AskAnswer { outcome: "over", why, leader };
    Err(fresh((StatusCode::CONFLICT, Json(answer))))
}

#[derive(Deserialize)]
struct HandOver {
    /// The name or the whole id of the successor.
    to: String,
    /// The term that is meant: by now another may have begun.
    token: Option<u64>,
}

async fn hand_over(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(HandOver { to, token }): Asked<HandOver>,
) -> Response {
    let Some(watched) = shared.resource(&name) else { return unknown(&shared, &name) };
    if to.is_empty() {
        return problem(StatusCode::BAD_REQUEST, "to is empty: name the successor");
    }
    tracing::info!(target: "tenure", resource = name, "sidecar: asked to hand over");
    if let Err(refused) = check_term(&watched, token).await {
        return refused;
    }
    answer(&watched, watched.observer.ask_to_hand_over(&to).await)
}

#[derive(Serialize)]
struct AskAnswer {
    outcome: &'static str,
    /// In words.
    why: String,
    leader: Option<String>,
}

/// What came of asking a leader.
fn answer(watched: &Watched, asked: Result<AskOutcome, tenure::Error>) -> Response {
    let id = |leader: &SeenLeader| leader.id.to_string();
    let (status, outcome, why, leader) = match asked {
        Ok(AskOutcome::Done { leader }) => {
            let text = match &leader {
                Some(leader) => format!("{} leads now", leader.id.name()),
                None => "it stepped down; nobody leads yet".to_owned(),
            };
            (StatusCode::OK, "done", text, leader.as_ref().map(id))
        }
        Ok(AskOutcome::Refused { why }) => {
            // Whoever refused goes on, as was just seen.
            let leader = watched.known_leader(&watched.seen(), &watched.own());
            (StatusCode::CONFLICT, "refused", why, leader.as_ref().map(id))
        }
        Ok(AskOutcome::NotAnswered { leader }) => {
            let text = format!("{} did not answer: it may be stuck", leader.id.name());
            (StatusCode::GATEWAY_TIMEOUT, "not-answered", text, Some(id(&leader)))
        }
        Ok(_) => (StatusCode::CONFLICT, "nobody-leads", "there is nobody to ask".to_owned(), None),
        Err(error) => return problem(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    };
    fresh((status, Json(AskAnswer { outcome, why, leader })))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn described() -> Value {
        serde_json::from_str(include_str!("openapi.json")).unwrap()
    }

    /// What only one of the two has.
    fn differences(description: &Value) -> Vec<String> {
        let mut described = BTreeSet::new();
        for (path, methods) in description["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                described.insert(format!("{method} {path}"));
            }
        }
        let routes = callers::routes(own_routes()).listed.into_iter();
        let registered = routes.map(|(path, method)| format!("{method} {path}")).collect();
        described.symmetric_difference(&registered).cloned().collect()
    }

    #[test]
    fn the_description_has_exactly_the_routes_that_there_are() {
        assert_eq!(differences(&described()), Vec::<String>::new());
    }

    #[test]
    fn a_difference_is_noticed_either_way() {
        let mut lacking = described();
        lacking["paths"]["/locks/{name}"].as_object_mut().unwrap().remove("delete");
        assert_eq!(differences(&lacking), ["delete /locks/{name}"]);
        let mut beyond = described();
        beyond["paths"]["/nowhere"] = serde_json::json!({ "get": {} });
        assert_eq!(differences(&beyond), ["get /nowhere"]);
    }
}
