//! Addresses of PostgreSQL stores.

use std::sync::Arc;

use super::{Backend, ConnectError};

pub(super) use tenure_postgres::{SCHEMES, check_address, shown_address};

pub(super) fn open(address: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    Ok(Arc::new(tenure_postgres::PostgresBackend::open(address)?))
}
