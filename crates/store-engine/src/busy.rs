//! Serving other clients while a script runs for too long.
//!
//! ```text
//! Engine::execute_with ► script ► tick ► BusyHandler::handle_busy ► Busy::execute
//! ```
//! The script has the engine; the driver has the sockets. Every now and then the script lets
//! the driver serve its clients through [`Busy`], whose gates admit nothing but commands that
//! touch no key: the rest is answered with BUSY.

use store_resp::Request;

use crate::cluster::ClusterState;
use crate::config::Config;
use crate::context::Context;
use crate::effects::ServerRequest;
use crate::engine::{ExecuteOutcome, drop_reply, open_session};
use crate::gate;
use crate::keyspace::Keyspace;
use crate::keyspace::changes::Unit;
use crate::session::{Origin, Session, SessionId, session_flag};
use crate::state::ServerState;

/// The driver, as seen by a script that runs for too long.
pub trait BusyHandler {
    /// Unix microseconds, from a clock that goes on while a request runs. Without one, no script
    /// counts as running for too long.
    fn now_us(&mut self) -> Option<u64>;

    /// Serves the clients that have sent something, without waiting for any.
    fn handle_busy(&mut self, busy: &mut Busy<'_>) -> BusyDecision;

    /// Why exiting now would lose data of the append-only file. `None` if it would not.
    fn loss_on_exit(&mut self) -> Option<String> {
        None
    }
}

/// What to do after serving clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyDecision {
    /// The script may go on.
    Continue,
    /// The server is to stop. If the script has written, it is waited for, because half of its
    /// writes must not be kept; otherwise it ends here.
    Stop,
    /// The server stops at once: the script ends here. If it has written, nothing of it is kept: no
    /// reply is sent and nothing is saved.
    StopNow,
}

/// For engines without a driver: scripts run until they end.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBusyHandler;

impl BusyHandler for NoBusyHandler {
    fn now_us(&mut self) -> Option<u64> {
        None
    }

    fn handle_busy(&mut self, _: &mut Busy<'_>) -> BusyDecision {
        BusyDecision::Continue
    }
}

/// The engine in the middle of a script: sessions can be used, keys cannot.
pub struct Busy<'a> {
    pub(crate) db: &'a mut Keyspace,
    pub(crate) server: &'a mut ServerState,
}

impl Busy<'_> {
    /// The settings in effect.
    pub fn config(&self) -> &Config {
        &self.server.config
    }

    /// Everything but the keys.
    pub fn state(&self) -> &ServerState {
        self.server
    }

    /// A client has connected.
    pub fn open_session(&mut self, now_us: u64, origin: Origin) -> SessionId {
        self.server.stats.connections += 1;
        open_session(self.server, now_us, origin)
    }

    /// A session other than the one whose script runs.
    pub fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.server.sessions.get_mut(id)
    }

    /// Whether a request asked the server to stop.
    pub fn wants_shutdown(&self) -> bool {
        self.server.effects.requests.contains(&ServerRequest::Shutdown)
    }

    /// The node of a cluster that this server is: other nodes must hear of it meanwhile.
    pub fn cluster_mut(&mut self) -> Option<&mut ClusterState> {
        self.server.cluster.as_deref_mut()
    }

    /// Units of requests before the script, which must be durable before their replies leave.
    pub fn take_units(&mut self) -> Vec<Unit> {
        std::mem::take(&mut self.db.changes.units)
    }

    /// Runs one request if it is allowed now, or refuses it. Its time is the time of the script.
    /// What the driver has to answer is answered after the script: the session waits until then.
    pub fn execute(&mut self, id: SessionId, request: Request<'_>) -> ExecuteOutcome {
        let Some(mut session) = self.server.sessions.take(id) else {
            return ExecuteOutcome::Closing;
        };
        let (now_us, selected) = (self.db.now_us(), self.db.selected());
        self.db.begin(now_us, session.db);
        session.asked_at_ms = self.db.now_ms();
        let reply_start = session.output.position();
        let mut nobody = NoBusyHandler;
        let mut cx = Context::new(self.db, self.server, &mut session, &mut nobody);
        gate::handle(&mut cx, request);
        if cx
            .session
            .has(session_flag::REPLY_OFF | session_flag::REPLY_SKIP | session_flag::REPLICA)
        {
            drop_reply(&mut cx, request, reply_start);
        }
        let blocked = cx.blocked.take();
        session.output = cx.reply.into_output();
        self.db.begin(now_us, selected);
        if let Some(blocked) = &blocked {
            let waits_for_driver = blocked.keys.is_empty() && blocked.deadline_ms.is_none();
            assert!(waits_for_driver, "what waits for keys or time is answered with BUSY");
            session.flags |= session_flag::BLOCKED;
        }
        session.blocked = blocked;
        let outcome = match session.flags & (session_flag::CLOSING | session_flag::BLOCKED) {
            0 => ExecuteOutcome::Ready,
            endings if endings & session_flag::CLOSING != 0 => ExecuteOutcome::Closing,
            _ => ExecuteOutcome::Blocked,
        };
        self.server.sessions.put_back(session);
        outcome
    }
}
