//! Addresses of PostgreSQL stores, in a program that was built without that backend: they are
//! known, and refused with what to do.

use std::sync::Arc;

use super::{Backend, ConnectError};

pub(super) const SCHEMES: [&str; 2] = ["postgres", "postgresql"];

pub(super) fn check_address(_: &str) -> Result<String, ConnectError> {
    Err(missing())
}

pub(super) fn shown_address(_: &str) -> Option<String> {
    None
}

pub(super) fn open(_: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    Err(missing())
}

fn missing() -> ConnectError {
    ConnectError::Address(
        "this program was built without elections on PostgreSQL: build it with the feature postgres"
            .to_owned(),
    )
}
