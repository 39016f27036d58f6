//! What this program knows of stores on PostgreSQL beyond what the library does: their schema,
//! their elections by name, and what may be wrong with a server.

mod doctor;

use tenure_postgres::{Installed, PostgresUrl, SCHEMES};

pub(crate) use self::doctor::examine;
use crate::exit::Failure;
use crate::run::block_on;
use crate::store_options::blame_on;

/// Whether an address is of this kind.
pub(crate) fn is_meant(address: &str) -> bool {
    let scheme = address.trim().split(':').next().unwrap_or_default();
    SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// The statements that prepare a database.
pub(crate) fn statements() -> Result<String, Failure> {
    Ok(tenure_postgres::statements_to_install())
}

/// Prepares a database. Says whether there was something to do.
pub(crate) fn install(address: &str) -> Result<bool, Failure> {
    let url = parse(address)?;
    let installed = block_on(async { Ok(tenure_postgres::install(&url).await) })?;
    let installed = installed.map_err(|error| blame_on(&url.to_string(), error.into()))?;
    Ok(installed == Installed::Now)
}

/// The keys of all elections under a prefix, each with whether it is a job.
pub(crate) fn resources(address: &str, prefix: &str) -> Result<Vec<(String, bool)>, Failure> {
    let url = parse(address)?;
    let found = block_on(async { Ok(tenure_postgres::resources(&url, prefix).await) })?;
    found.map_err(|error| blame_on(&url.to_string(), error.into()))
}

fn parse(address: &str) -> Result<PostgresUrl, Failure> {
    Ok(PostgresUrl::parse(address).map_err(tenure::Error::from)?)
}
