//! Which kind an error is: waiting helps, another server helps, or an operator has to act.

use std::error::Error as _;
use std::io;

use tenure_core::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::address::PostgresUrl;
use crate::text::{cleaned, quoted_name};

/// What to do where the schema is missing.
const INSTALL: &str = "install it with `tenure store init --store ADDRESS`, or run the statements \
                       that `tenure store init --print` shows";

/// Why a statement failed.
#[derive(Debug)]
pub(crate) struct QueryError {
    pub(crate) error: StoreError,
    kind: Kind,
}

/// What a statement's failure says beyond its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing more.
    Plain,
    /// It was not carried out, and another try may be.
    Again,
    /// A right is missing.
    Rights,
    /// The database lacks the schema or a table of it.
    Missing,
    /// A table is there, and it is not as ours is.
    Foreign,
}

impl QueryError {
    pub(crate) fn of(error: StoreError) -> Self {
        QueryError { error, kind: Kind::Plain }
    }

    /// Whether the statement was not carried out and is worth another try at once.
    pub(crate) fn is_conflict(&self) -> bool {
        self.kind == Kind::Again
    }

    /// Whether the login lacks a right.
    pub(crate) fn is_denied(&self) -> bool {
        self.kind == Kind::Rights
    }

    /// With what an operator can do about it, for the login of this address.
    pub(crate) fn explained(self, url: &PostgresUrl) -> StoreError {
        let user = quoted_name(&url.user);
        match self.kind {
            Kind::Plain | Kind::Again => self.error,
            Kind::Rights => self.error.with_next_step(format!(
                "run, as the owner of the schema tenure: GRANT tenure_member TO {user}"
            )),
            Kind::Missing => {
                let database = cleaned(&url.database);
                let what = format!("the database {database}: {}", self.error.message());
                StoreError::wrong_address(what).with_next_step(INSTALL)
            }
            Kind::Foreign => self.error.with_next_step(
                "the schema tenure of this database belongs to something else, or to another \
                 version of Tenure: give elections a database of their own",
            ),
        }
    }
}

/// An answer without its row.
pub(crate) fn no_row() -> QueryError {
    QueryError::of(StoreError::unexpected("a statement answered without a row"))
}

/// The error for a statement.
pub(crate) fn from_query(error: &Error) -> QueryError {
    let Some(db) = error.as_db_error() else {
        return QueryError::of(from_transport(error));
    };
    let kind = match *db.code() {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => Kind::Again,
        SqlState::INSUFFICIENT_PRIVILEGE => Kind::Rights,
        SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME => Kind::Missing,
        SqlState::UNDEFINED_COLUMN
        | SqlState::UNDEFINED_FUNCTION
        | SqlState::DATATYPE_MISMATCH
        | SqlState::WRONG_OBJECT_TYPE
        | SqlState::INVALID_COLUMN_REFERENCE
        | SqlState::CANNOT_COERCE
        | SqlState::NOT_NULL_VIOLATION
        | SqlState::CHECK_VIOLATION => Kind::Foreign,
        _ => Kind::Plain,
    };
    QueryError { error: from_db(db), kind }
}

/// The error for a connection that could not be opened.
pub(crate) fn from_connection(error: &Error, url: &PostgresUrl) -> StoreError {
    let Some(db) = error.as_db_error() else { return from_transport(error) };
    let (user, database) = (quoted_name(&url.user), quoted_name(&url.database));
    let step = match *db.code() {
        SqlState::INVALID_PASSWORD => Some("check user and password".to_owned()),
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => Some(format!(
            "check the user {user}, and that pg_hba.conf on the server lets it in from here with \
             this sslmode"
        )),
        SqlState::UNDEFINED_DATABASE => Some(format!(
            "correct the database in the address, or run CREATE DATABASE {database} ENCODING \
             'UTF8' TEMPLATE template0"
        )),
        _ => None,
    };
    let error = from_db(db);
    match step {
        Some(step) => error.with_next_step(step),
        None => error,
    }
}

fn from_db(db: &DbError) -> StoreError {
    let code = db.code();
    let message = format!("{} ({})", cleaned(db.message()), code.code());
    // The class says what to do where the code is not one of those that need a word of their own.
    match (code.code().get(..2).unwrap_or_default(), code) {
        (_, &SqlState::LOCK_NOT_AVAILABLE) => StoreError::not_now(format!(
            "another session has locked the row of this election: {message}"
        ))
        .with_next_step("find it in pg_stat_activity, and end its transaction"),
        (_, &SqlState::READ_ONLY_SQL_TRANSACTION) => StoreError::wrong_node(message)
            .with_next_step("name the primary in the store's address"),
        (_, &SqlState::INSUFFICIENT_PRIVILEGE) | ("28", _) => StoreError::denied(message),
        (_, &SqlState::UNDEFINED_DATABASE) => StoreError::wrong_address(message),
        (_, &SqlState::TOO_MANY_CONNECTIONS) => StoreError::not_now(message)
            .with_next_step("raise max_connections, or put a pooler in front of the server"),
        // Shutting down, starting, or cancelled.
        ("57", _) => StoreError::not_now(message),
        ("53" | "55" | "58" | "40" | "25", _) => StoreError::not_now(message),
        ("08", _) => StoreError::unreachable(message),
        _ => StoreError::unexpected(message),
    }
}

/// The error for a connection that broke.
fn from_transport(error: &Error) -> StoreError {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(error) = inner.downcast_ref::<StoreError>() {
            return error.clone();
        }
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return from_io(error);
        }
        source = inner.source();
    }
    match error.is_closed() {
        true => StoreError::unreachable("the connection was closed")
            .with_next_step("is this the port of PostgreSQL, and does the server's log say why?"),
        false => StoreError::unreachable(cleaned(&error.to_string())),
    }
}

/// The error for a stream.
pub(crate) fn from_io(error: &io::Error) -> StoreError {
    if let Some(known) = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>()) {
        return known.clone();
    }
    let step = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: start PostgreSQL, or correct host and port"
        }
        io::ErrorKind::NotFound => {
            "there is no such socket: start PostgreSQL, or correct the folder"
        }
        io::ErrorKind::PermissionDenied => "this user may not open the socket",
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "the other end closed the connection: look at the server's log"
        }
        _ => return StoreError::unreachable(cleaned(&error.to_string())),
    };
    StoreError::unreachable(cleaned(&error.to_string())).with_next_step(step)
}
