//! What a request causes besides its reply and what happens to keys: for the engine to do after it,
//! or for the server to fetch.

use crate::persistence::snapshot::SaveJob;
use crate::replication::ReplicationRequest;
use crate::sentinel::SentinelRequest;
use crate::session::SessionId;

/// Everything that waits to be done. Empty between requests, but for what the server fetches.
#[derive(Debug, Default)]
pub struct Effects {
    /// Sessions whose wait is to end.
    pub unblocks: Vec<(SessionId, Unblock)>,
    /// Whether the session that runs kept keys that changed: it hears of that after its reply.
    pub has_untold: bool,
    /// Whether more keys are tracked than may be.
    pub tracking_is_full: bool,
    /// For the server: how long to rest when asked to, in microseconds.
    pub rest_us: u64,
    /// For the server: sessions that got output from others.
    pub written_sessions: Vec<SessionId>,
    /// For the server: sessions that may go on with their next request.
    pub resumed_sessions: Vec<SessionId>,
    /// For the server: what else is to be done, in order.
    pub requests: Vec<ServerRequest>,
}

impl Effects {
    /// Whether the engine has nothing to do after a request.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.unblocks.is_empty() && !self.has_untold && !self.tracking_is_full
    }

    /// Whether the server has nothing to fetch.
    #[inline]
    pub(crate) fn is_fetched(&self) -> bool {
        self.written_sessions.is_empty()
            && self.resumed_sessions.is_empty()
            && self.requests.is_empty()
    }
}

/// How CLIENT UNBLOCK ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblock {
    /// As if the time were up.
    Timeout,
    /// With an error.
    Error,
}

/// What the engine cannot do itself.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerRequest {
    /// A snapshot began: write its parts to a file, then call
    /// [`finish_save`](crate::Engine::finish_save).
    SaveStarted(Box<SaveJob>),
    /// Nobody wants the file of the running save any more, even if it is nearly there.
    SaveCancelled,
    /// Close the session once its output is written.
    CloseAfterOutput(SessionId),
    /// Close the session now.
    Close(SessionId),
    /// Write a line to the log.
    Log(String),
    /// Stop the server.
    Shutdown,
    /// BGREWRITEAOF: write the append-only file anew.
    RewriteAof,
    /// DEBUG LOADAOF: forget everything, and load the append-only file again.
    LoadAof,
    /// What is in memory is not what was there: end without saving it, for this reason.
    Fail(String),
    /// A session asks something of replication. It waits until
    /// [`resume_session`](crate::Engine::resume_session).
    Replication(SessionId, ReplicationRequest),
    /// A session asks something of the sentinel. It waits as above, or until it is
    /// [asked again](crate::Engine::ask_again).
    Sentinel(SessionId, SentinelRequest),
    /// These settings changed: apply those that concern sockets.
    SettingsChanged,
}
