//! The stream of the primary, applied by a session of its own.

use store_resp::Request;

use crate::engine::{Engine, ExecuteOutcome, open_session};
use crate::persistence::load::LoadFailure;
use crate::session::{Origin, SessionId, session_flag};

/// What became of a request of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The database that the stream has selected now.
    pub db: usize,
    /// Whether EXEC is still to come.
    pub in_transaction: bool,
    /// The error that it was answered with: the data may not be what the primary has.
    pub error: Option<String>,
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
        self.keyspace.set_loading(true);
        let outcome = self.execute(now_us, id, request);
        self.keyspace.set_loading(false);
        let lacks_database = match self.state.persistence.load_failure.take() {
            Some(LoadFailure::Database { databases }) => Some(databases),
            _ => None,
        };
        let Some(session) = self.session_mut(id) else {
            return Applied {
                db: 0,
                in_transaction: false,
                error: None,
                is_open: false,
                lacks_database,
            };
        };
        let error = session.output.bytes().strip_prefix(b"-");
        let error = error.map(|text| String::from_utf8_lossy(text.trim_ascii_end()).into_owned());
        session.output.clear();
        const ALONE: u32 = session_flag::SUBSCRIBED | session_flag::MONITOR;
        let is_link = session.has(session_flag::PRIMARY_LINK) && !session.has(ALONE);
        let applied = Applied {
            db: session.db,
            in_transaction: session.has(session_flag::IN_MULTI),
            error,
            is_open: is_link && outcome == ExecuteOutcome::Ready && lacks_database.is_none(),
            lacks_database,
        };
        self.state.stats.unexpected_errors += u64::from(applied.error.is_some());
        applied
    }
}
