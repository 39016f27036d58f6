//! Bringing back what files have: requests that ran before, run again.

use store_resp::Request;

use crate::engine::Engine;
use crate::keyspace::Freeing;
use crate::persistence::Loading;
use crate::session::{Origin, SessionId, session_flag};
use crate::snapshot;
use crate::state::server_gate;

/// What became of a request from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// It ran.
    Ran,
    /// It was answered with this error. What changed data once can fail only when the data is
    /// not what it was.
    Failed(String),
}

impl Engine {
    /// Forgets all keys and functions, on behalf of who loads them again. Nobody is told.
    pub fn forget_all(&mut self, now_us: u64) {
        self.keyspace.begin(now_us, 0);
        snapshot::stop_saving(&mut self.keyspace, &mut self.state, "all data is loaded again");
        for db in 0..self.keyspace.database_count() {
            self.keyspace.flush(db, Freeing::Now);
        }
        if let Some(interpreter) = self.state.scripting.interpreter.as_mut() {
            interpreter.flush_libraries();
        }
    }

    /// Data is loaded from now on: other requests are answered with LOADING, no key ends, and
    /// nothing is propagated. Requests from files go to the returned session.
    pub fn begin_loading(&mut self, now_us: u64, total_bytes: u64) -> SessionId {
        let started_at_ms = now_us / 1000;
        let loading = Loading { started_at_ms, total_bytes, loaded_bytes: 0 };
        let state = self.state_mut();
        state.persistence.loading = Some(loading);
        state.gates |= server_gate::LOADING;
        self.keyspace_mut().set_loading(true);
        let id = self.open_session(now_us, Origin { is_local: true, ..Origin::default() });
        if let Some(session) = self.session_mut(id) {
            session.flags = session_flag::LOADER;
        }
        id
    }

    /// Runs one request from a file.
    pub fn load_request(&mut self, now_us: u64, id: SessionId, request: Request<'_>) -> Loaded {
        self.execute(now_us, id, request);
        self.forget_unmeasured();
        let Some(session) = self.session_mut(id) else { return Loaded::Ran };
        let reply = session.output.as_slice();
        let loaded = match reply.strip_prefix(b"-") {
            Some(error) => Loaded::Failed(String::from_utf8_lossy(error.trim_ascii()).into_owned()),
            None => Loaded::Ran,
        };
        session.output.clear();
        loaded
    }

    /// Forgets a transaction that the file breaks off.
    pub fn drop_loaded_transaction(&mut self, now_us: u64, id: SessionId) {
        let request = store_resp::OwnedRequest::from_args([&b"DISCARD"[..]]);
        self.load_request(now_us, id, request.as_request());
    }

    /// Tells how far loading has come.
    pub fn note_loaded(&mut self, loaded_bytes: u64) {
        if let Some(loading) = &mut self.state_mut().persistence.loading {
            loading.loaded_bytes = loaded_bytes;
        }
    }

    /// All is loaded: clients are served, and keys whose end has come go.
    pub fn end_loading(&mut self, id: SessionId) {
        self.close_session(id);
        let state = self.state_mut();
        state.persistence.loading = None;
        state.gates &= !server_gate::LOADING;
        // What was loaded has been counted when it first ran.
        state.registry.reset_stats();
        state.stats = Default::default();
        state.eviction.look_again();
        let keyspace = self.keyspace_mut();
        keyspace.set_loading(false);
        keyspace.stats = Default::default();
        keyspace.dirty = 0;
        let effects = self.effects();
        effects.written_sessions.clear();
        effects.units.clear();
    }

    /// Tells how the append-only file stands; writes are refused while it has trouble.
    pub fn set_aof_facts(&mut self, facts: crate::persistence::AofFacts) {
        let state = self.state_mut();
        let refuses = facts.trouble.is_some();
        state.gates &= !server_gate::DISK_TROUBLE;
        state.gates |= if refuses { server_gate::DISK_TROUBLE } else { 0 };
        state.persistence.aof = facts;
    }
}
