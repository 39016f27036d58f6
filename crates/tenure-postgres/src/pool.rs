//! The connections of one backend, kept alive.
//!
//! A call takes a connection for one statement at a time. Few are open: most of the time one. A
//! statement that is overdue keeps its connection, and its place among the few, until it is
//! answered or the connection is suspect for too long; the others are replaced at once, as they may
//! be dead as well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_backend::Connection;
use tenure_backend::clock::timer_now;
use tenure_core::{StoreError, StoreErrorKind};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::dial::Route;
use crate::session::Session;

/// The most connections of one backend for calls: a server has a hundred for everybody.
const CONNECTIONS_MAX: usize = 4;
/// How many are kept while nothing is asked.
const IDLE_MAX: usize = 2;
/// How long a connection whose answer is overdue is kept: a busy server is not asked twice.
const OVERDUE_MAX: Duration = Duration::from_secs(5);
/// No connection is suspected before an answer took this long, however impatient the caller.
const SUSPECT_AFTER: Duration = Duration::from_millis(100);
/// How often an idle connection is tried.
const TRY_EVERY: Duration = Duration::from_secs(5);
/// How long such a try, or a dial for nobody in particular, may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(20);
/// The wait between tries while the server refuses the login: a person has to act first.
const DENIED_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Pool {
    route: Route,
    runtime: Handle,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Session>>,
    gate: tokio::sync::Mutex<Gate>,
    state: watch::Sender<Connection>,
    /// Wakes the task that keeps a connection.
    lost: Arc<Notify>,
}

/// Who holds it dials.
#[derive(Debug, Default)]
struct Gate {
    backoff: Backoff,
    next_at: Option<Instant>,
}

impl Pool {
    /// Starts to connect.
    pub(crate) fn start(route: Route, runtime: Handle) -> Arc<Self> {
        let (state, _) = watch::channel(Connection::Connecting);
        let lost = Arc::new(Notify::new());
        let pool = Arc::new(Pool {
            route,
            runtime,
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            idle: Mutex::default(),
            gate: tokio::sync::Mutex::default(),
            state,
            lost: Arc::clone(&lost),
        });
        pool.runtime.spawn(keep(Arc::downgrade(&pool), lost));
        pool
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    pub(crate) fn state(&self) -> watch::Receiver<Connection> {
        self.state.subscribe()
    }

    /// A connection for one statement after the other. Waits for one; whoever calls sets a limit.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<Taken, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| StoreError::unreachable("the pool has ended"))?;
        let session = loop {
            if let Some(session) = self.take_idle() {
                break session;
            }
            let mut gate = self.gate.lock().await;
            // Whoever dialled before may have left one.
            if let Some(session) = self.take_idle() {
                break session;
            }
            if let Some(session) = self.dial(&mut gate).await? {
                break session;
            }
        };
        Ok(Taken {
            pool: Arc::clone(self),
            session: Some(session),
            permit: Some(permit),
            busy: None,
        })
    }

    /// One try after the wait that is due. `None` when another one is worth it.
    async fn dial(&self, gate: &mut Gate) -> Result<Option<Session>, StoreError> {
        if let Some(next_at) = gate.next_at.filter(|next_at| *next_at > timer_now()) {
            if let Connection::Down(error) = &*self.state.borrow()
                && error.needs_person()
            {
                return Err(error.clone());
            }
            tokio::time::sleep_until(next_at).await;
        }
        match self.route.open(None).await {
            Ok(session) => {
                gate.backoff.reset();
                gate.next_at = None;
                self.tell(Connection::Up);
                Ok(Some(session))
            }
            Err(error) => {
                let wait = match error.needs_person() {
                    true => DENIED_WAIT,
                    false => gate.backoff.next(),
                };
                gate.next_at = Some(timer_now() + wait);
                self.tell(Connection::Down(error.clone()));
                if error.needs_person() { Err(error) } else { Ok(None) }
            }
        }
    }

    pub(crate) fn tell(&self, state: Connection) {
        self.state.send_if_modified(|known| {
            let is_new = *known != state;
            *known = state;
            is_new
        });
    }

    /// What is wrong when nothing was answered within `waited`.
    pub(crate) fn silence(&self, waited: Duration) -> StoreError {
        match &*self.state.borrow() {
            Connection::Down(why) if why.kind() != StoreErrorKind::TimedOut => why.clone(),
            _ => StoreError::timed_out(waited),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Option<Session> {
        let mut idle = self.idle();
        idle.retain(|session| !session.is_closed());
        idle.pop()
    }

    fn put_back(&self, session: Session) {
        let mut idle = self.idle();
        if !session.is_closed() && idle.len() < IDLE_MAX {
            idle.push(session);
        }
    }

    /// Closes what may be dead.
    fn drop_idle(&self) {
        let suspects = std::mem::take(&mut *self.idle());
        drop(suspects);
        self.lost.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.lost.notify_one();
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Route").field(&self.url().to_string()).finish()
    }
}

/// A connection in use. It goes back when it is dropped with nothing on its way.
pub(crate) struct Taken {
    pool: Arc<Pool>,
    session: Option<Session>,
    permit: Option<OwnedSemaphorePermit>,
    /// Since when a statement is on its way.
    busy: Option<Instant>,
}

impl Taken {
    /// Uses the connection. A statement that is not waited for to its end makes it suspect.
    pub(crate) async fn with<T>(&mut self, work: impl AsyncFnOnce(&Session) -> T) -> T {
        self.busy = Some(timer_now());
        let session = self.session.as_ref().expect("it is there until the drop");
        let outcome = work(session).await;
        self.busy = None;
        outcome
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let (Some(session), permit) = (self.session.take(), self.permit.take()) else { return };
        let Some(since) = self.busy else {
            if session.is_closed() {
                self.pool.lost.notify_one();
            }
            return self.pool.put_back(session);
        };
        if timer_now().saturating_duration_since(since) >= SUSPECT_AFTER {
            self.pool.drop_idle();
        }
        let pool = Arc::downgrade(&self.pool);
        self.pool.runtime.spawn(async move {
            let _permit = permit;
            // Answered after what is on its way.
            let answered = tokio::time::timeout(OVERDUE_MAX, session.run("")).await;
            if let (Ok(Ok(())), Some(pool)) = (answered, pool.upgrade()) {
                pool.put_back(session);
            }
        });
    }
}

/// Keeps a connection for whoever calls next, and the state true, for as long as there is a pool.
async fn keep(pool: Weak<Pool>, lost: Arc<Notify>) {
    loop {
        let seen = {
            let Some(pool) = pool.upgrade() else { return };
            tokio::time::timeout(TRY_TIMEOUT, try_one(&pool)).await.ok().flatten()
        };
        let Some(seen) = seen else {
            tokio::time::sleep(SUSPECT_AFTER).await;
            continue;
        };
        // Ends within moments when the connection does.
        tokio::select! {
            () = seen.ended.notified() => {}
            () = tokio::time::sleep(TRY_EVERY) => {}
            () = lost.notified() => {}
        }
    }
}

/// Whether a connection answers, and what it saw.
async fn try_one(pool: &Arc<Pool>) -> Option<Arc<crate::session::Seen>> {
    let mut taken = pool.take().await.ok()?;
    let (answered, seen) =
        taken.with(async |session| (session.run("").await, session.seen())).await;
    match answered {
        Ok(()) => {
            pool.tell(Connection::Up);
            Some(seen)
        }
        Err(failed) => {
            pool.tell(Connection::Down(failed.error));
            None
        }
    }
}
