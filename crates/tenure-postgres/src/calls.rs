//! A call, carried out: read, decide, write if nothing has changed meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::clock::timer_now;
use tenure_core::protocol::{Answer, Call, Request};
use tenure_core::swap::{Decision, Found, Versioned, Write, decide, needs_members, only_reads};
use tenure_core::{ServerTime, StoreError};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::address::Mode;
use crate::error::{self, QueryError};
use crate::hint;
use crate::pool::{Pool, Taken};
use crate::session::column;
use crate::statements::{MARK, READ, READ_HISTORY, WRITE};
use crate::warnings::Warnings;

/// The format of the tables that this program knows.
const FORMAT: i32 = 1;
/// The wait before what lost a race is read again: grows up to its bound, and is drawn at random.
const RETRY_WAIT: Duration = Duration::from_millis(2);
const RETRY_WAIT_MAX: Duration = Duration::from_millis(50);
/// No wait for a lock is shorter: zero would mean for ever.
const LOCK_WAIT_MIN: Duration = Duration::from_millis(1);

/// What carries out calls.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) pool: Arc<Pool>,
    pub(crate) warnings: Warnings,
    mode: Mode,
    history_seen: AtomicU64,
}

/// What was read, as the statement has it.
struct Look {
    found: Found,
    /// What tells this life from others.
    facts: String,
    mark: Mark,
    /// How far the server's log of writes has come.
    position: u64,
    synchronous: String,
}

/// Whether the data says that it lives this life.
enum Mark {
    Fits {
        nonce: String,
    },
    /// It has none, or came from another life.
    Other {
        nonce: String,
    },
}

impl Caller {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        let mode = pool.route().url().mode;
        let warnings = Warnings::default();
        pool.route().url().warning().into_iter().for_each(|warning| warnings.tell(warning));
        Caller { pool, warnings, mode, history_seen: AtomicU64::new(0) }
    }

    /// Carries out a call; whoever awaits it ends it at the deadline.
    pub(crate) async fn carry_out(
        &self,
        mut call: Call,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        if let (Mode::Strict, Request::Acquire(acquire)) = (self.mode, &mut call.request) {
            // A table without a record may have been emptied.
            acquire.age_counts = false;
        }
        let mut wait = RETRY_WAIT;
        loop {
            match self.try_once(&call, deadline).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(failed) if failed.is_conflict() => {}
                Err(failed) => return Err(failed.explained(self.pool.route().url())),
            }
            tokio::time::sleep(wait.mul_f64(fastrand::f64())).await;
            wait = (wait * 2).min(RETRY_WAIT_MAX);
        }
    }

    /// `None` when somebody else was faster.
    async fn try_once(&self, call: &Call, deadline: Instant) -> Result<Option<Answer>, QueryError> {
        let mut taken = self.pool.take().await.map_err(QueryError::of)?;
        let look = self.look(&mut taken, call).await?;
        let nonce = match &look.mark {
            _ if only_reads(&call.request) => "",
            Mark::Fits { nonce } => nonce,
            Mark::Other { nonce } => {
                self.mark(&mut taken, nonce, deadline).await?;
                return Ok(None);
            }
        };
        if self.mode == Mode::Strict && look.synchronous.trim().is_empty() {
            return Err(QueryError::of(no_synchronous_standby()));
        }
        let decision = decide(call, &look.found).map_err(QueryError::of)?;
        let Decision { write: Some(write), mut answer, hints } = decision else {
            return Ok(Some(self.warned(decision.answer)));
        };
        let hints: Vec<String> = hints.iter().filter_map(hint::text).collect();
        let key = call.resource.key();
        let is_done = self.write(&mut taken, key, (&write, &hints), (&look.facts, nonce), deadline);
        if !is_done.await? {
            return Ok(None);
        }
        answer = self.warned(answer);
        Ok(Some(answer))
    }

    fn warned(&self, mut answer: Answer) -> Answer {
        answer.warnings.extend(self.warnings.take());
        answer
    }

    async fn look(&self, taken: &mut Taken, call: &Call) -> Result<Look, QueryError> {
        let key = call.resource.key();
        let members = needs_members(&call.request);
        let position_before = self.history_seen.load(Ordering::Acquire);
        let rows = taken
            .with(async |session| {
                session.query(&READ, &[(&key, Type::TEXT), (&members, Type::BOOL)]).await
            })
            .await?;
        let mut look = look_of(rows.first().ok_or_else(error::no_row)?)?;
        if look.position < position_before {
            // The server's log goes forward for as long as the server lives: what it had is gone.
            let (Mark::Fits { nonce } | Mark::Other { nonce }) = look.mark;
            look.mark = Mark::Other { nonce };
            self.history_seen.store(look.position, Ordering::Release);
        } else {
            self.history_seen.fetch_max(look.position, Ordering::AcqRel);
        }
        if let Request::History { count } = call.request {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            let rows = taken
                .with(async |session| {
                    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                        [(&key, Type::TEXT), (&count, Type::INT8)];
                    session.query(READ_HISTORY, &parameters).await
                })
                .await?;
            let lines: Result<Vec<String>, _> =
                rows.iter().rev().map(|row| column(row, 0)).collect();
            look.found.history = lines?;
        }
        Ok(look)
    }

    /// Writes down that the data lives a life of its own from now on, unless somebody else does.
    async fn mark(
        &self,
        taken: &mut Taken,
        before: &str,
        deadline: Instant,
    ) -> Result<(), QueryError> {
        let nonce = format!("{:016x}", fastrand::u64(..));
        let (commit, lock_wait) = (self.commit(), lock_wait(deadline));
        let warned = taken
            .with(async |session| {
                let warned = session.warnings();
                let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
                    (&nonce, Type::TEXT),
                    (&before, Type::TEXT),
                    (&commit, Type::TEXT),
                    (&lock_wait, Type::TEXT),
                ];
                session.query(&MARK, &parameters).await.map(|_| session.warnings() != warned)
            })
            .await?;
        match warned && self.mode == Mode::Strict {
            true => Err(QueryError::of(unconfirmed(""))),
            false => Ok(()),
        }
    }

    /// Whether it could be written: nothing had changed since it was read.
    async fn write(
        &self,
        taken: &mut Taken,
        key: &str,
        (write, hints): (&Write, &Vec<String>),
        (facts, nonce): (&str, &str),
        deadline: Instant,
    ) -> Result<bool, QueryError> {
        let part = |part: &Option<Versioned>| match part {
            Some(Versioned { version, text }) => {
                (i64::try_from(*version).unwrap_or(i64::MAX), Some(text.clone()))
            }
            None => (0, None),
        };
        let ((lease_version, lease), (members_version, members)) =
            (part(&write.lease), part(&write.members));
        let (commit, lock_wait) = (self.commit(), lock_wait(deadline));
        let (rows, warning) = taken
            .with(async |session| {
                let warned = session.warnings();
                let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 11] = [
                    (&key, Type::TEXT),
                    (&lease_version, Type::INT8),
                    (&lease, Type::TEXT),
                    (&members_version, Type::INT8),
                    (&members, Type::TEXT),
                    (&write.history, Type::TEXT_ARRAY),
                    (hints, Type::TEXT_ARRAY),
                    (&facts, Type::TEXT),
                    (&nonce, Type::TEXT),
                    (&commit, Type::TEXT),
                    (&lock_wait, Type::TEXT),
                ];
                let rows = session.query(&WRITE, &parameters).await;
                let warning = (session.warnings() != warned).then(|| session.last_warning());
                (rows, warning)
            })
            .await;
        let is_done = column(rows?.first().ok_or_else(error::no_row)?, 0)?;
        match warning {
            // It is on the primary, and a failover may lose it.
            Some(text) if self.mode == Mode::Strict => Err(QueryError::of(unconfirmed(&text))),
            _ => Ok(is_done),
        }
    }

    /// What a commit waits for: the primary's own disk at least, whatever the login is set to.
    fn commit(&self) -> &'static str {
        match self.mode {
            Mode::Available => "local",
            Mode::Strict => "on",
        }
    }
}

/// Whoever waits for a lock on the server ends with the call, so that calls that were abandoned
/// do not pile up there.
fn lock_wait(deadline: Instant) -> String {
    let left = deadline.saturating_duration_since(timer_now()).max(LOCK_WAIT_MIN);
    format!("{}ms", left.as_millis())
}

fn no_synchronous_standby() -> StoreError {
    StoreError::not_now("mode=strict, and synchronous_standby_names is empty on the server")
        .with_next_step(
            "run ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (STANDBY)' and SELECT \
             pg_reload_conf() there, or leave mode=strict out of the address",
        )
}

fn unconfirmed(warning: &str) -> StoreError {
    StoreError::not_now(format!("the standbys did not confirm it: {warning}"))
        .with_next_step("look at pg_stat_replication on the primary")
}

fn look_of(row: &Row) -> Result<Look, QueryError> {
    if column(row, 0)? {
        return Err(QueryError::of(crate::dial::standby(None)));
    }
    let number = |value: Option<i64>| u64::try_from(value.unwrap_or(0)).unwrap_or(0);
    let clock = ServerTime(number(column(row, 1)?));
    let facts: String = column(row, 2)?;
    let format: Option<i32> = column(row, 5)?;
    if let Some(other) = format.filter(|format| *format != FORMAT) {
        let what = format!("the schema tenure has format {other}, this program knows {FORMAT}");
        let step = "use a newer tenure, or give elections a database of their own";
        return Err(QueryError::of(StoreError::unexpected(what).with_next_step(step)));
    }
    let recorded: Option<String> = column(row, 6)?;
    let nonce: Option<String> = column(row, 7)?;
    let is_whole: Option<bool> = column(row, 9)?;
    let nonce = nonce.unwrap_or_default();
    let fits = recorded.as_ref() == Some(&facts) && is_whole == Some(true);
    let since = match fits {
        true => ServerTime(number(column(row, 8)?)),
        false => clock,
    };
    // Written by a transaction that was none of ours: it came back from a copy.
    let stranger: Option<String> = column(row, 12)?;
    let stranger = stranger.map(|xid| format!(".{xid}")).unwrap_or_default();
    let versioned = |at: usize| -> Result<Versioned, QueryError> {
        let text: Option<String> = column(row, at + 1)?;
        Ok(Versioned { version: number(column(row, at)?), text: text.unwrap_or_default() })
    };
    let found = Found {
        lease: versioned(10)?,
        members: versioned(13)?,
        history: Vec::new(),
        clock,
        incarnation: format!("{facts}.{nonce}{stranger}"),
        started_at: since,
    };
    let mark = match fits {
        true => Mark::Fits { nonce },
        false => Mark::Other { nonce },
    };
    let (position, synchronous) = (number(column(row, 3)?), column(row, 4)?);
    Ok(Look { found, facts, mark, position, synchronous })
}
