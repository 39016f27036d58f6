//! What a caller asks for: bodies and names within limits, and refusals with a word of their own.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure::{Error, Reason};

use super::WAIT_MAX;
use crate::routes::refusal;

/// The longest name, in bytes, of what is held for a caller.
const NAME_LEN_MAX: usize = 256;

/// A body as JSON. None at all is an object without fields, and a whole number may be written as
/// one with a fraction of zero, as some languages do.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Asked<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let bytes = Bytes::from_request(request, state).await.map_err(|refused| {
            let error = format!("{}; send less", refused.body_text());
            refusal(refused.status(), "unreadable", error)
        })?;
        let refused = |status, code, error: serde_json::Error| {
            let text = match bytes.is_empty() {
                true => format!("there is no body: {error}"),
                false => format!("the body: {error}"),
            };
            refusal(status, code, format!("{text}; see /openapi.json"))
        };
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let body = serde_json::from_slice(text)
            .map_err(|error| refused(StatusCode::BAD_REQUEST, "unreadable", error))?;
        serde_json::from_value(with_whole_numbers(body)).map(Asked).map_err(|error| {
            match bytes.is_empty() {
                true => refused(StatusCode::BAD_REQUEST, "unreadable", error),
                false => refused(StatusCode::UNPROCESSABLE_ENTITY, "unfit", error),
            }
        })
    }
}

/// The same value, in which `5.0` is `5`.
fn with_whole_numbers(value: Value) -> Value {
    /// Up to here every whole number is one of its own.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT_MAX => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, with_whole_numbers(value))).collect()
        }
        other => other,
    }
}

/// Refuses a name that is too long to be kept.
pub(super) fn check_name(name: &str) -> Result<(), Response> {
    if name.len() <= NAME_LEN_MAX {
        return Ok(());
    }
    let error = format!("the name is longer than {NAME_LEN_MAX} bytes: shorten it");
    Err(refusal(StatusCode::BAD_REQUEST, "bad-setting", error))
}

/// No lease is longer, and nothing that is counted in leases.
pub(super) const LENGTH_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Refuses a length of time that would keep everybody out for ever.
pub(super) fn check_length(word: &str, ms: Option<u64>, max: Duration) -> Result<(), Response> {
    if ms.is_none_or(|ms| Duration::from_millis(ms) <= max) {
        return Ok(());
    }
    let error = format!("{word} is at most {}: shorten it", max.as_millis());
    Err(refusal(StatusCode::BAD_REQUEST, "bad-setting", error))
}

/// How long a caller wants to wait.
pub(super) fn wait(wait_ms: Option<u64>) -> Result<Duration, Response> {
    let wait = Duration::from_millis(wait_ms.unwrap_or(0));
    if wait <= WAIT_MAX {
        return Ok(wait);
    }
    let error = format!("wait_ms is at most {}: ask again after that", WAIT_MAX.as_millis());
    Err(refusal(StatusCode::BAD_REQUEST, "bad-setting", error))
}

/// What a failure of the library means to a caller.
pub(super) fn failed(error: &Error) -> Response {
    let (status, code) = match error {
        Error::Name(_) | Error::Timing(_) | Error::Config(_) | Error::Setting { .. } => {
            (StatusCode::BAD_REQUEST, "bad-setting")
        }
        Error::AlreadyTakingPart { .. } | Error::AlreadyHeld { .. } => {
            (StatusCode::CONFLICT, "taken")
        }
        // Asking again does not help: an operator has to act, or another store is needed.
        Error::Store(error) if error.needs_person() => {
            (StatusCode::SERVICE_UNAVAILABLE, "store-refuses")
        }
        Error::TimedOut { reason: Some(Reason::Store(_)), .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "store")
        }
        Error::TimedOut { .. } => (StatusCode::CONFLICT, "held"),
        Error::NotHeld { .. } => (StatusCode::CONFLICT, "lost"),
        Error::Conflict { .. } => (StatusCode::CONFLICT, "foreign-data"),
        Error::Refused { .. } => (StatusCode::CONFLICT, "refused"),
        Error::Overloaded { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too-many"),
        Error::Stopped { .. } | Error::Closed | Error::Forked => {
            (StatusCode::SERVICE_UNAVAILABLE, "ending")
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, "store"),
    };
    refusal(status, code, error.to_string())
}

pub(super) fn too_many(what: &str, limit: usize) -> Response {
    let error = format!("this sidecar keeps at most {limit} {what}: release one, or ask later");
    refusal(StatusCode::SERVICE_UNAVAILABLE, "too-many", error)
}
