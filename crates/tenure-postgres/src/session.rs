//! One open connection: statements go in, rows, warnings and notifications come out.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::StoreError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Row};

use crate::dial::ServerFacts;
use crate::error::{self, QueryError};
use crate::text::cleaned;

/// The most notifications that wait to be read. More are dropped, because they are only hints.
pub(crate) const NOTIFICATIONS_QUEUED_MAX: usize = 1024;

/// Where the payloads of notifications go, if anywhere.
pub(crate) type Notifications = Option<mpsc::Sender<String>>;

/// What the task behind a connection saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// How many warnings the server has sent.
    warnings: AtomicU64,
    last_warning: Mutex<String>,
    /// Why the connection ended, if the server said so.
    ending: Mutex<Option<StoreError>>,
    /// Wakes whoever waits for the end.
    pub(crate) ended: Notify,
}

/// An open connection. Dropping it closes it, whatever is still on its way.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    seen: Arc<Seen>,
    driver: JoinHandle<()>,
    /// Whether the server itself is at the other end, and not a pooler.
    pub(crate) is_direct: bool,
}

const ASK_SERVER: &str = "\
SELECT current_setting('server_version_num')::int4,
       current_setting('server_encoding'),
       pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on',
       inet_client_port(),
       (SELECT sender_host || ':' || sender_port FROM pg_stat_wal_receiver)";

impl Session {
    pub(crate) fn start<S, T>(
        client: Client,
        connection: Connection<S, T>,
        notifications: Notifications,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let seen = Arc::new(Seen::default());
        let driver = tokio::spawn(drive(connection, Arc::clone(&seen), notifications));
        Session { client, seen, driver, is_direct: false }
    }

    /// Runs one statement in a transaction of its own, without a name: it leaves nothing behind
    /// that a pooler would have to keep. When this returns, it is committed.
    pub(crate) async fn query(
        &self,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, QueryError> {
        let rows = self.client.query_typed(statement, parameters).await;
        rows.map_err(|error| match self.ending() {
            Some(ending) if error.as_db_error().is_none() => QueryError::of(ending),
            _ => error::from_query(&error),
        })
    }

    /// Runs several statements as they are.
    pub(crate) async fn run(&self, statements: &str) -> Result<(), QueryError> {
        let done = self.client.batch_execute(statements).await;
        done.map_err(|error| error::from_query(&error))
    }

    /// How many warnings came so far.
    pub(crate) fn warnings(&self) -> u64 {
        self.seen.warnings.load(Ordering::Acquire)
    }

    /// What the last of them said.
    pub(crate) fn last_warning(&self) -> String {
        self.seen.last_warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    fn ending(&self) -> Option<StoreError> {
        self.seen.ending.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn ask_server(&self) -> Result<ServerFacts, QueryError> {
        let rows = self.query(ASK_SERVER, &[]).await?;
        let row = rows.first().ok_or_else(error::no_row)?;
        Ok(ServerFacts {
            version: column(row, 0)?,
            encoding: column(row, 1)?,
            is_standby: column(row, 2)?,
            is_read_only: column(row, 3)?,
            client_port: column(row, 4)?,
            upstream: column(row, 5)?,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// One column of a row. What has another type is not ours.
pub(crate) fn column<'a, T>(row: &'a Row, index: usize) -> Result<T, QueryError>
where
    T: tokio_postgres::types::FromSql<'a>,
{
    row.try_get(index).map_err(|error| {
        QueryError::of(StoreError::unexpected(format!("column {index} of an answer: {error}")))
    })
}

async fn drive<S, T>(
    mut connection: Connection<S, T>,
    seen: Arc<Seen>,
    notifications: Notifications,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ending = loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notice(notice))) if notice.severity() == "WARNING" => {
                let text = cleaned(notice.message());
                *seen.last_warning.lock().unwrap_or_else(PoisonError::into_inner) = text;
                seen.warnings.fetch_add(1, Ordering::AcqRel);
            }
            Some(Ok(AsyncMessage::Notification(notification))) => {
                if let Some(queue) = &notifications {
                    // Full: whoever reads looks at the store anyway.
                    let _ = queue.try_send(notification.payload().to_owned());
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => break error::from_query(&error).error,
            None => break StoreError::unreachable("the connection was closed"),
        }
    };
    *seen.ending.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
    seen.ended.notify_one();
}
