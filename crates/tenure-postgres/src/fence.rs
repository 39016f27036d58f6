//! Fencing inside a program's own transactions.
//!
//! A lease cannot stop a leader that was paused before its last write. A fence in the same database
//! can: each fenced transaction first raises a row to the token of its term, and fails if a later
//! one was here. PostgreSQL lets one transaction at a time hold that row, so whatever a leader
//! commits, it commits before the first fenced transaction of its successor begins its work.

use std::time::Duration;

use tenure_core::{NameError, Resource, Token};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

/// `tenure.enter` says: a later leader was here.
const FENCED_OFF: &str = "TE001";
/// `tenure.enter` says: there is nothing left of the lease.
const LEASE_OVER: &str = "TE002";
const ENTER: &str = "SELECT tenure.enter($1, $2, $3 * interval '1 millisecond')";

/// The fence of one election, as a row in the database of a program. The election itself may be on
/// any store; `tenure store init` puts the table there.
///
/// ```no_run
/// # use std::time::Duration;
/// # use tenure_core::Token;
/// # use tenure_postgres::{Fence, FenceError};
/// # async fn example(
/// #     client: &mut tokio_postgres::Client,
/// #     token: Token,
/// #     left: Duration,
/// # ) -> Result<(), FenceError> {
/// let fence = Fence::named("nightly-report").expect("a plain name");
/// // With a term of the library: fence.begin(client, term.token(), term.remaining())
/// let transaction = fence.begin(client, token, left).await?;
/// transaction.execute("UPDATE report SET done = true", &[]).await?;
/// transaction.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    key: Box<str>,
}

/// Why a fenced transaction did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A later leader has passed the fence: stop.
    #[error("fenced off: {0}")]
    FencedOff(String),
    /// There is nothing left of the lease. Renew it, or stop.
    #[error("the lease is over: begin a transaction only while this instance leads")]
    LeaseOver,
    /// The database says something else.
    #[error("{}", shown(.0))]
    Database(#[from] tokio_postgres::Error),
}

fn shown(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => crate::text::cleaned(&format!("{} ({})", db.message(), db.code().code())),
        None => crate::text::cleaned(&error.to_string()),
    }
}

impl Fence {
    /// The fence of the election `name`, under the default prefix.
    pub fn named(name: &str) -> Result<Self, NameError> {
        Ok(Self::of(&Resource::named(name)?))
    }

    /// The fence of an election.
    pub fn of(resource: &Resource) -> Self {
        Fence { key: resource.key().into() }
    }

    /// Begins a transaction of the term with this token, of which `left` is left. What it does is
    /// committed only if no later leader has begun one before.
    ///
    /// The server ends the transaction when nothing is asked in it for as long as `left`, so that a
    /// leader that stops inside holds up its successor no longer than that. While another leader's
    /// transaction is open, this waits for its end.
    pub async fn begin<'a>(
        &self,
        client: &'a mut Client,
        token: Token,
        left: Duration,
    ) -> Result<Transaction<'a>, FenceError> {
        let left_ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).min(i64::from(i32::MAX));
        if left_ms == 0 {
            return Err(FenceError::LeaseOver);
        }
        let token = i64::try_from(token.get()).expect("tokens stay below 2^53");
        let transaction = client.transaction().await?;
        let entered = transaction
            .query_typed(
                ENTER,
                &[
                    (&&*self.key, Type::TEXT),
                    (&token, Type::INT8),
                    (&(left_ms as f64), Type::FLOAT8),
                ],
            )
            .await;
        match entered {
            Ok(_) => Ok(transaction),
            Err(error) => Err(of_query(error)),
        }
    }
}

fn of_query(error: tokio_postgres::Error) -> FenceError {
    match error.code().map(SqlState::code) {
        Some(FENCED_OFF) => FenceError::FencedOff(shown(&error)),
        Some(LEASE_OVER) => FenceError::LeaseOver,
        _ => FenceError::Database(error),
    }
}
