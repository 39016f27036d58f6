//! Addresses of our own backends.

use std::sync::Arc;

use super::{Backend, ConnectError};

pub(super) use tenure_redis::{SCHEMES, check_address, open, shown_address};

/// An address whose scheme nobody has registered.
pub(super) async fn open_unnamed(address: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    // The Redis parser knows the forms that people bring along, and what to write instead.
    tenure_redis::RedisUrl::parse(address)?;
    open(address).await
}
