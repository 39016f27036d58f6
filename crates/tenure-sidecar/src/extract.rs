//! What a request names, refused in the form of all other answers where it cannot be read.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;

use crate::routes::problem;

/// The name in the path of a request.
pub(crate) struct PathName(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(PathName(name)),
            Err(refused) => {
                let error = format!("{}; write the name as UTF-8", refused.body_text());
                Err(problem(refused.status(), error))
            }
        }
    }
}

/// The words behind the question mark.
pub(crate) struct QueryWords<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryWords<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(words)) => Ok(QueryWords(words)),
            Err(refused) => {
                let error = format!("{}; see /openapi.json", refused.body_text());
                Err(problem(refused.status(), error))
            }
        }
    }
}
