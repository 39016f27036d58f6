//! What a request causes besides its reply and its changes of keys: for the engine to do after it,
//! or for the server to fetch.

use crate::migration::{DecodeRequest, MigrateRequest};
use crate::persistence::snapshot::SaveJob;
use crate::replication::ReplicationRequest;
use crate::sentinel::SentinelRequest;
use crate::session::SessionId;

/// Everything that is still to be done. Empty between requests, except for what the server fetches.
#[derive(Debug, Default)]
pub struct Effects {
    /// Sessions that no longer wait.
    pub unblocks: Vec<(SessionId, Unblock)>,
    /// Whether the running session has invalidations of its own keys, which are sent after its
    /// reply.
    pub has_untold: bool,
    /// Whether more keys are tracked than allowed.
    pub tracking_is_full: bool,
    /// For the server: how long to pause when asked to, in microseconds.
    pub rest_us: u64,
    /// For the server: sessions that got output from others.
    pub written_sessions: Vec<SessionId>,
    /// For the server: sessions whose next request may run.
    pub resumed_sessions: Vec<SessionId>,
    /// For the server: other requests, in order.
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
    /// As if the timeout were over.
    Timeout,
    /// With an error.
    Error,
}

/// What the engine asks the server to do.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerRequest {
    /// A snapshot began: write its parts to a file, then call
    /// [`finish_save`](crate::Engine::finish_save).
    SaveStarted(Box<SaveJob>),
    /// The file of the running save is not wanted any more, even if it is nearly complete.
    SaveCancelled,
    /// Close the session once its output is written.
    CloseAfterOutput(SessionId),
    /// Close the session now.
    Close(SessionId),
    /// Write a line to the log.
    Log(String),
    /// Stop the server.
    Shutdown,
    /// BGREWRITEAOF: rewrite the append-only file.
    RewriteAof,
    /// DEBUG LOADAOF: drop all data and load the append-only file again.
    LoadAof,
    /// The data in memory is wrong: end without saving it, for this reason.
    Fail(String),
    /// A session asks something of replication. It waits until
    /// [`resume_session`](crate::Engine::resume_session).
    Replication(SessionId, ReplicationRequest),
    /// A session asks something of the sentinel. It waits as above, or until it is
    /// [asked again](crate::Engine::ask_again).
    Sentinel(SessionId, SentinelRequest),
    /// MIGRATE. The session waits until
    /// [`finish_migration`](crate::Engine::finish_migration).
    Migrate(SessionId, Box<MigrateRequest>),
    /// RESTORE of a large payload. The session waits until
    /// [`finish_restore`](crate::Engine::finish_restore).
    Decode(SessionId, Box<DecodeRequest>),
    /// A session changed what nodes of a cluster must not forget. It waits until nodes.conf has it.
    ClusterChanged(SessionId),
    /// These settings changed: apply those that concern sockets.
    SettingsChanged,
}
