//! Answers as JSON that is also fit to be shown: what others wrote cannot act on a terminal.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tenure_core::text::escaped_json;

/// A value as the body of an answer.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match text(&self.0) {
            Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// A value as JSON, with escapes for what could deceive whoever reads it.
pub(crate) fn text(value: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string(value).map(|text| escaped_json(&text))
}
