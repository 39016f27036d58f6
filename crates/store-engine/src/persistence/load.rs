//! Bringing back what files have: requests that ran before, run again.

use store_resp::Request;

use crate::engine::{Engine, ExecuteOutcome, open_session};
use crate::keyspace::Freeing;
use crate::persistence::Loading;
use crate::persistence::snapshot;
use crate::session::{Origin, SessionId, session_flag};
use crate::state::server_gate;

/// Why a request from a file cannot be loaded. What changed data once can fail only when the
/// data or the server is not what it was: whoever goes on serves other data than was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadFailure {
    /// Another kind of server wrote it: we do not know this command.
    UnknownCommand(String),
    /// It selects a database that this server does not have.
    Database {
        /// How many there are.
        databases: usize,
    },
    /// It was answered with this error.
    Refused(String),
    /// It does not change data but the connection it runs on.
    NoChange,
}

impl std::fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownCommand(name) => write!(f, "this server has no command '{name}'"),
            Self::Database { databases } => {
                write!(f, "its database does not exist: the setting databases is {databases}")
            }
            Self::Refused(error) => write!(f, "it is refused ({error})"),
            Self::NoChange => f.write_str("it is not a request that changes data"),
        }
    }
}

impl std::error::Error for LoadFailure {}

impl Engine {
    /// Forgets all keys and functions, on behalf of who loads them again. Nobody is told.
    pub fn forget_all(&mut self, now_us: u64) {
        self.forget_all_freeing(now_us, Freeing::Now);
    }

    pub(crate) fn forget_all_freeing(&mut self, now_us: u64, freeing: Freeing) {
        self.keyspace.begin(now_us, 0);
        snapshot::stop_saving(&mut self.keyspace, &mut self.state, "all data is loaded again");
        for db in 0..self.keyspace.database_count() {
            self.keyspace.flush(db, freeing);
        }
        if let Some(interpreter) = self.state.scripting.interpreter.as_mut() {
            interpreter.flush_libraries();
        }
    }

    /// Data is loaded from now on: other requests are answered with LOADING, no key ends, and
    /// nothing is propagated. Requests from files go to the returned session.
    pub fn begin_loading(&mut self, now_us: u64, total_bytes: u64) -> SessionId {
        let started_at_ms = now_us / 1000;
        let loading = Loading { started_at_ms, total_bytes, loaded_bytes: 0, is_aside: false };
        self.refuse_while(now_us, loading)
    }

    /// Data is loaded beside the data in use, which nobody is to see any more: requests are
    /// answered as by [`begin_loading`](Self::begin_loading), until the session is given back.
    pub fn begin_refusing(&mut self, now_us: u64) -> SessionId {
        let started_at_ms = now_us / 1000;
        let loading = Loading { started_at_ms, total_bytes: 0, loaded_bytes: 0, is_aside: true };
        self.refuse_while(now_us, loading)
    }

    fn refuse_while(&mut self, now_us: u64, loading: Loading) -> SessionId {
        let state = self.state_mut();
        state.persistence.loading = Some(loading);
        state.gates |= server_gate::LOADING;
        self.keyspace_mut().set_loading(true);
        let origin = Origin { is_local: true, ..Origin::default() };
        // No client, so it does not count as one that connected.
        let id = open_session(self.state_mut(), now_us, origin);
        if let Some(session) = self.session_mut(id) {
            session.flags = session_flag::LOADER;
        }
        id
    }

    /// Runs one request from a file.
    ///
    /// # Errors
    /// [`LoadFailure`]; what follows in the file must not be loaded then, since it counts on this.
    pub fn load_request(
        &mut self,
        now_us: u64,
        id: SessionId,
        request: Request<'_>,
    ) -> Result<(), LoadFailure> {
        const MUTED: u32 = session_flag::REPLY_OFF | session_flag::REPLY_SKIP;
        let outcome = self.execute(now_us, id, request);
        self.forget_unmeasured();
        let noted = self.state.persistence.load_failure.take();
        self.state.persistence.lacks_write = false;
        let Some(session) = self.session_mut(id) else { return Err(LoadFailure::NoChange) };
        let is_loader = session.has(session_flag::LOADER) && !session.has(MUTED);
        let rejected = session.output.bytes().strip_prefix(b"-").map(|error| {
            LoadFailure::Refused(String::from_utf8_lossy(error.trim_ascii()).into_owned())
        });
        session.output.clear();
        match noted.or(rejected) {
            Some(failure) => Err(failure),
            None if outcome != ExecuteOutcome::Ready || !is_loader => Err(LoadFailure::NoChange),
            None => Ok(()),
        }
    }

    /// Forgets a transaction that the file breaks off.
    pub fn drop_loaded_transaction(&mut self, now_us: u64, id: SessionId) {
        let request = store_resp::OwnedRequest::from_args([&b"DISCARD"[..]]);
        // Without a transaction there is nothing to forget.
        let _ = self.load_request(now_us, id, request.as_request());
    }

    /// Tells how far loading has come.
    pub fn note_loaded(&mut self, loaded_bytes: u64) {
        if let Some(loading) = &mut self.state_mut().persistence.loading {
            loading.loaded_bytes = loaded_bytes;
        }
    }

    /// All is loaded: clients are served, and keys whose end has come go.
    pub fn end_loading(&mut self, id: SessionId) {
        self.end_reloading(id);
        // What was loaded has been counted when it first ran.
        let state = self.state_mut();
        state.registry.reset_stats();
        state.stats = Default::default();
        self.keyspace_mut().stats = Default::default();
        drop(self.take_written());
    }

    /// The same on a server that has served before: what it counted stays.
    pub fn end_reloading(&mut self, id: SessionId) {
        self.end_refusing(id);
        self.keyspace_mut().dirty = 0;
        self.units().clear();
    }

    /// Requests are answered again. The data is what it was, and so is what a file lacks of it.
    pub fn end_refusing(&mut self, id: SessionId) {
        self.close_session(id);
        let state = self.state_mut();
        state.persistence.loading = None;
        state.gates &= !server_gate::LOADING;
        state.eviction.look_again();
        self.keyspace_mut().set_loading(false);
    }

    /// Whether the data is only a part of what is being loaded: of no use to anybody.
    pub fn is_half_loaded(&self) -> bool {
        self.state.persistence.is_half_loaded()
    }

    /// All data came from elsewhere, and no file of this server has it.
    pub fn note_unsaved(&mut self) {
        let keyspace = self.keyspace_mut();
        keyspace.dirty = keyspace.dirty.max(1);
    }

    /// Tells how the append-only file stands; writes are refused while it has trouble.
    pub fn set_aof_facts(&mut self, facts: crate::persistence::AofFacts) {
        let state = self.state_mut();
        let refuses = facts.trouble.is_some();
        state.gates &= !(server_gate::DISK_TROUBLE | server_gate::UNKEPT);
        state.gates |= if facts.breaks_promise { server_gate::UNKEPT } else { 0 };
        state.gates |= if refuses { server_gate::DISK_TROUBLE } else { 0 };
        state.persistence.aof = facts;
    }
}
