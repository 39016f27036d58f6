//! Addresses of our own backends, in a program that was built without any.

use std::sync::Arc;

use super::{Backend, ConnectError};

pub(super) const SCHEMES: [&str; 0] = [];

pub(super) fn check_address(address: &str) -> Result<String, ConnectError> {
    Err(unknown(address))
}

fn unknown(address: &str) -> ConnectError {
    let scheme = address.trim().split(':').next().unwrap_or_default();
    ConnectError::Address(format!(
        "this program was built without a backend for {scheme}: addresses; build it with the \
         feature redis, or register your own"
    ))
}

pub(super) fn shown_address(_: &str) -> Option<String> {
    None
}

pub(super) async fn open(address: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    open_unnamed(address).await
}

pub(super) async fn open_unnamed(address: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    Err(unknown(address))
}
