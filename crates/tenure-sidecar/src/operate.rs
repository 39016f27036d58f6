//! What an operator, or the work beside the sidecar, changes: pause, resume, ready.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use crate::callers::Asked;
use crate::extract::PathName;
use crate::json::Json;
use crate::routes::{fresh, problem, unknown};
use crate::sidecar::Shared;

type Shares = State<Arc<Shared>>;

#[derive(Deserialize)]
pub(crate) struct Pause {
    /// How long the pause lasts, in milliseconds.
    for_ms: u64,
}

/// Lets no instance begin a new term for a while. A running term goes on.
pub(crate) async fn pause(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(Pause { for_ms }): Asked<Pause>,
) -> Response {
    let Some(watched) = shared.resource(&name) else { return unknown(&shared, &name) };
    match watched.observer.pause(Duration::from_millis(for_ms)).await {
        Ok(()) => {
            tracing::info!(target: "tenure", resource = name, for_ms, "sidecar: paused");
            watched.look_soon.notify_one();
            fresh(Json(json!({ "name": name, "paused_for_ms": for_ms })))
        }
        Err(error) => failed(&error),
    }
}

/// Ends a pause; without one nothing changes.
pub(crate) async fn resume(State(shared): Shares, PathName(name): PathName) -> Response {
    let Some(watched) = shared.resource(&name) else { return unknown(&shared, &name) };
    match watched.observer.resume().await {
        Ok(()) => {
            tracing::info!(target: "tenure", resource = name, "sidecar: resumed");
            watched.look_soon.notify_one();
            fresh(Json(json!({ "name": name, "paused_for_ms": null })))
        }
        Err(error) => failed(&error),
    }
}

#[derive(Deserialize)]
pub(crate) struct Ready {
    /// Whether this instance may lead.
    ready: bool,
}

/// Sets whether this instance may lead. A leader that is no longer ready resigns.
pub(crate) async fn ready(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(Ready { ready }): Asked<Ready>,
) -> Response {
    let Some(watched) = shared.resource(&name) else { return unknown(&shared, &name) };
    let Some(election) = &watched.election else {
        let error = format!("{name:?} is only observed here: ask a sidecar that takes part");
        return problem(StatusCode::CONFLICT, error);
    };
    election.set_ready(ready);
    tracing::info!(target: "tenure", resource = name, ready, "sidecar: readiness was set");
    fresh(Json(json!({ "name": name, "ready": ready })))
}

/// A wrong length is the caller's; anything else is the store's.
fn failed(error: &tenure::Error) -> Response {
    let status = match error {
        tenure::Error::Setting { .. } => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    problem(status, error.to_string())
}
