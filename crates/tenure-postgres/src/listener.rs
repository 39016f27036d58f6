//! Hints on their way in: notifications where the server itself is at the other end, and a look at
//! the table otherwise. A pooler that hands connections out per transaction passes no
//! notifications.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::clock::timer_now;
use tokio::sync::mpsc;
use tokio_postgres::types::Type;

use crate::audience::{Audience, Latest};
use crate::backoff::Backoff;
use crate::error::QueryError;
use crate::pool::Pool;
use crate::session::{NOTIFICATIONS_QUEUED_MAX, Session, column};
use crate::statements::{CHANNEL, READ_HINTS};

/// How often the table is looked at where no notifications come.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// And where they do: one may be lost on the way.
const LOOK_EVERY_BESIDE: Duration = Duration::from_secs(5);
/// For how long nothing but the table is looked at before a direct connection is tried again.
const LOOK_FOR: Duration = Duration::from_secs(60);
/// How long one look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// How many elections one look is about.
const KEYS_AT_ONCE: usize = 500;

/// Brings hints to the audience until it is closed.
pub(crate) async fn run(audience: Arc<Audience>, pool: Arc<Pool>) {
    let mut backoff = Backoff::default();
    while !audience.is_closed() {
        if audience.is_idle() {
            audience.changed.notified().await;
            continue;
        }
        if listen(&audience, &pool).await.is_ok() {
            backoff.reset();
        }
        audience.deafen();
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Listens until the connection breaks or nobody is left.
async fn listen(audience: &Audience, pool: &Arc<Pool>) -> Result<(), QueryError> {
    let (sender, payloads) = mpsc::channel(NOTIFICATIONS_QUEUED_MAX);
    let session = pool.route().open(Some(sender)).await.map_err(QueryError::of)?;
    if session.is_direct {
        session.run(&format!("LISTEN {CHANNEL}")).await?;
        hear(audience, &session, payloads).await
    } else {
        drop(session);
        look_only(audience, pool).await
    }
}

async fn hear(
    audience: &Audience,
    session: &Session,
    mut payloads: mpsc::Receiver<String>,
) -> Result<(), QueryError> {
    loop {
        in_time(look(audience, session)).await?;
        let next_at = timer_now() + LOOK_EVERY_BESIDE;
        loop {
            tokio::select! {
                payload = payloads.recv() => match payload {
                    Some(payload) => audience.hear(&payload),
                    None => return Ok(()),
                },
                () = audience.changed.notified() => break,
                () = tokio::time::sleep_until(next_at) => break,
            }
        }
        if audience.is_closed() || audience.is_idle() {
            return Ok(());
        }
    }
}

async fn look_only(audience: &Audience, pool: &Arc<Pool>) -> Result<(), QueryError> {
    let ends_at = timer_now() + LOOK_FOR;
    while timer_now() < ends_at && !audience.is_closed() && !audience.is_idle() {
        in_time(async {
            let mut taken = pool.take().await.map_err(QueryError::of)?;
            taken.with(async |session| look(audience, session).await).await
        })
        .await?;
        tokio::select! {
            () = audience.changed.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
    Ok(())
}

async fn in_time(looking: impl Future<Output = Result<(), QueryError>>) -> Result<(), QueryError> {
    let silence = || QueryError::of(tenure_core::StoreError::timed_out(LOOK_TIMEOUT));
    tokio::time::timeout(LOOK_TIMEOUT, looking).await.unwrap_or_else(|_| Err(silence()))
}

async fn look(audience: &Audience, session: &Session) -> Result<(), QueryError> {
    for keys in audience.keys().chunks(KEYS_AT_ONCE) {
        let rows = session.query(READ_HINTS, &[(&keys, Type::TEXT_ARRAY)]).await?;
        let latest = rows.iter().map(|row| {
            Ok(Latest { key: column(row, 0)?, number: column(row, 1)?, told: column(row, 2)? })
        });
        audience.saw(keys, &latest.collect::<Result<Vec<_>, QueryError>>()?);
    }
    Ok(())
}
