//! Putting the schema into a database.

use std::time::Duration;

use tenure_core::StoreError;

use crate::address::PostgresUrl;
use crate::dial::Route;
use crate::error::QueryError;
use crate::session::{Session, column};
use crate::statements::first_mark;
use crate::text::cleaned;

const SCHEMA: &str = include_str!("schema.sql");
const ROLES: &str = include_str!("roles.sql");
/// What the schema says about itself; the statement that puts it there is in `schema.sql`.
const COMMENT: &str = "Tenure, format 1";
/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The schema is there now.
    Now,
    /// It was there before, and nothing was changed.
    Before,
}

/// The statements that put everything there, for those who run them by themselves. They are one
/// transaction: all of it or nothing.
pub fn statements_to_install() -> String {
    format!("BEGIN;\n{SCHEMA}\n{ROLES}\n{}COMMIT;\n", first_mark())
}

/// Puts the schema into the database of an address, unless it is there. Fails, and changes nothing,
/// where the schema's name is taken by something else or the login may not create it.
pub async fn install(url: &PostgresUrl) -> Result<Installed, StoreError> {
    let route =
        Route::to(url.clone()).map_err(|error| StoreError::wrong_address(error.to_string()))?;
    let installing = async {
        let session = route.open(None).await?;
        let outcome = install_on(&session).await;
        outcome.map_err(|failed| advised(failed, url))
    };
    let silence = || Err(StoreError::timed_out(TIMEOUT));
    tokio::time::timeout(TIMEOUT, installing).await.unwrap_or_else(|_| silence())
}

async fn install_on(session: &Session) -> Result<Installed, QueryError> {
    let rows = session
        .query(
            "SELECT obj_description(oid, 'pg_namespace'),
                    EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid)
                 OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = pg_namespace.oid)
               FROM pg_namespace WHERE nspname = 'tenure'",
            &[],
        )
        .await?;
    if let Some(row) = rows.first() {
        let (comment, is_used): (Option<String>, bool) = (column(row, 0)?, column(row, 1)?);
        match (comment.as_deref(), is_used) {
            (Some(COMMENT), true) => return Ok(Installed::Before),
            (_, true) => return Err(QueryError::of(taken(comment.as_deref()))),
            (_, false) => {}
        }
    }
    session.run(&statements_to_install()).await?;
    Ok(Installed::Now)
}

fn taken(comment: Option<&str>) -> StoreError {
    let what = match comment {
        Some(comment) if comment.starts_with("Tenure, format ") => {
            format!("the schema tenure is of another version ({})", cleaned(comment))
        }
        _ => "the schema tenure holds something that is not Tenure's".to_owned(),
    };
    StoreError::unexpected(what).with_next_step("give elections a database of their own")
}

fn advised(failed: QueryError, url: &PostgresUrl) -> StoreError {
    match failed.is_denied() {
        true => {
            let user = crate::text::quoted_name(&url.user);
            let database = crate::text::quoted_name(&url.database);
            failed.error.with_next_step(format!(
                "run, as an owner of the database: GRANT CREATE ON DATABASE {database} TO {user} \
                 and ALTER ROLE {user} CREATEROLE; or have somebody who may run what `tenure store \
                 init --print` shows"
            ))
        }
        false => failed.explained(url),
    }
}
