//! The stream of the primary, applied by a session of its own.

use store_resp::Request;

use crate::busy::{BusyHandler, NoBusyHandler};
use crate::engine::{Engine, ExecuteOutcome, open_session};
use crate::persistence::load::LoadFailure;
use crate::session::{Origin, SessionId, session_flag};

/// What became of a request of the primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The database that the stream has selected now.
    pub db: usize,
    /// Memory behind what waits for EXEC; `None` outside of a transaction.
    pub queued_memory: Option<usize>,
    /// The error that it was answered with, alone or inside of EXEC: the data may not be what the
    /// primary has.
    pub error: Option<String>,
    /// It was to change keys, and did not, or not all of them: the data is not what the primary
    /// has.
    pub lacks_write: bool,
    /// Whether the session can go on.
    pub is_open: bool,
    /// It is about a database that this server does not have, which has so many: whatever follows
    /// would go to another one.
    pub lacks_database: Option<usize>,
}

impl Engine {
    /// Opens the session that applies the stream of a primary, which has `db` selected.
    pub fn open_link(&mut self, now_us: u64, origin: Origin, db: usize) -> SessionId {
        // No client, so it does not count as one that connected.
        let id = open_session(&mut self.state, now_us, origin);
        let databases = self.keyspace.database_count();
        if let Some(session) = self.session_mut(id) {
            session.flags = session_flag::PRIMARY_LINK;
            session.db = db.min(databases - 1);
        }
        id
    }

    /// Runs one request of the primary. Keys have not ended, whatever the clock says: the primary
    /// decided that before it sent the request. Nobody reads the reply.
    pub fn apply_request(&mut self, now_us: u64, id: SessionId, request: Request<'_>) -> Applied {
        self.apply_request_with(now_us, id, request, &mut NoBusyHandler)
    }

    /// The same; while a script of the primary runs for too long, `busy_handler` serves clients.
    pub fn apply_request_with(
        &mut self,
        now_us: u64,
        id: SessionId,
        request: Request<'_>,
        busy_handler: &mut dyn BusyHandler,
    ) -> Applied {
        self.keyspace.set_loading(true);
        let outcome = self.execute_with(now_us, id, request, busy_handler);
        self.keyspace.set_loading(false);
        let lacks_write = std::mem::take(&mut self.state.persistence.lacks_write);
        let (lacks_database, noted) = match self.state.persistence.load_failure.take() {
            Some(LoadFailure::Database { databases }) => (Some(databases), None),
            Some(LoadFailure::Refused(error)) => (None, Some(error)),
            _ => (None, None),
        };
        let Some(session) = self.session_mut(id) else {
            return Applied { lacks_database, ..Applied::default() };
        };
        let error = session.output.bytes().strip_prefix(b"-");
        let error = error.map(|text| String::from_utf8_lossy(text.trim_ascii_end()).into_owned());
        session.output.clear();
        // Whatever is refused before EXEC makes the whole transaction fail, which the primary ran.
        const ALONE: u32 =
            session_flag::SUBSCRIBED | session_flag::MONITOR | session_flag::MULTI_BROKEN;
        let is_link = session.has(session_flag::PRIMARY_LINK) && !session.has(ALONE);
        let applied = Applied {
            db: session.db,
            queued_memory: session.queued_memory(),
            error: error.or(noted),
            lacks_write,
            is_open: is_link && outcome == ExecuteOutcome::Ready && lacks_database.is_none(),
            lacks_database,
        };
        self.state.stats.unexpected_errors += u64::from(applied.error.is_some());
        applied
    }
}
