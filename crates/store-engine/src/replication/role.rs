//! What changes in the engine when the server begins or ends to follow another.

use crate::config::Config;
use crate::effects::ServerRequest;
use crate::engine::{Engine, hex_id};
use crate::keyspace::Freeing;
use crate::session::{Session, SessionId, session_flag};
use crate::state::{ServerState, server_gate};

/// What clients that wait are told when their server becomes a replica.
pub(crate) const UNBLOCKED: &[u8] =
    b"-UNBLOCKED force unblock from blocking operation, instance state \
    changed (master -> replica?)\r\n";

impl Engine {
    /// From now on this server repeats what `host` does: keys end and go when it says so, and
    /// whoever waits for keys is sent away.
    pub fn become_replica(&mut self, host: &str, port: u16) {
        set_primary(&mut self.state, Some((host, port)));
        self.keyspace.set_replica(true);
        self.drop_held();
        self.unblock_all();
        self.follow_replication();
    }

    /// From now on this server takes writes of its own. Writes that its primary acknowledged may
    /// be missing here, so [`begin_incarnation`](Self::begin_incarnation) is to follow.
    pub fn become_primary(&mut self) {
        set_primary(&mut self.state, None);
        self.keyspace.set_replica(false);
        self.state.replication.link = None;
        self.follow_replication();
    }

    /// The data is not what it was, and something that was acknowledged may be missing: elections
    /// must not take it for complete. Returns the new name.
    pub fn begin_incarnation(&mut self) -> &str {
        let identity = &mut self.state.identity;
        identity.incarnation = hex_id(&mut self.keyspace.random);
        identity.history_complete = false;
        identity.incarnation_since_ms = self.keyspace.now_ms();
        &identity.incarnation
    }

    /// How many databases there are.
    pub fn database_count(&self) -> usize {
        self.keyspace.database_count()
    }

    /// Keys in all databases.
    pub fn key_count(&self) -> usize {
        (0..self.keyspace.database_count()).map(|db| self.keyspace.counts(db).0).sum()
    }

    /// All keys and functions go, to make room for the primary's.
    pub fn forget_for_primary(&mut self, now_us: u64) {
        let is_lazy = self.state.config.settings().replica.lazy_flush;
        self.forget_all_freeing(now_us, Freeing::lazily_if(is_lazy));
        // What they wrote goes, too, and is not what replicas confirm later under its offset.
        for session in self.state.sessions.iter_mut().filter(|session| session.wrote_at > 0) {
            session.wrote_at = Session::UNFED;
        }
        // Whoever watches or keeps keys learns that they are not what they were.
        self.keyspace.signal_all_flushed();
        self.deliver(None);
    }

    /// Ends every wait with an error, and closes who waited: a replica may never have what they
    /// wait for. Those who only wait for the end of a pause go on.
    fn unblock_all(&mut self) {
        let is_sent_away = |session: &&Session| {
            session.blocked.as_ref().is_some_and(|blocked| !blocked.waits_for_driver())
        };
        let waiting = self.state.sessions.iter().filter(is_sent_away);
        let waiting: Vec<SessionId> = waiting.map(|session| session.id).collect();
        for id in waiting {
            let Some(mut session) = self.state.sessions.take(id) else { continue };
            if let Some(blocked) = self.forget_wait(&mut session) {
                self.unmeasured.add_unblocked(&blocked);
                session.output.extend_from_slice(UNBLOCKED);
                session.flags |= session_flag::CLOSING;
                self.state.stats.count_error(b"UNBLOCKED");
                self.state.effects.written_sessions.push(id);
                self.state.effects.requests.push(ServerRequest::CloseAfterOutput(id));
            }
            self.state.sessions.put_back(session);
        }
    }
}

/// Keeps whom the server follows where CONFIG REWRITE finds it.
pub(crate) fn set_primary(state: &mut ServerState, primary: Option<(&str, u16)>) {
    let setting = Config::find("replicaof").expect("it is in the table");
    let value = primary.map(|(host, port)| format!("{host} {port}")).unwrap_or_default();
    // A name that makes no line of a file is refused where it comes in.
    let _ = state.config.set(setting, &[&value]);
}

/// Gates that follow from whom the server follows, and from who follows it.
pub(crate) fn gates(state: &ServerState) -> [(u32, bool); 3] {
    let settings = state.config.settings();
    let replication = &state.replication;
    // Until the driver has changed the role, what is written here is in nobody's stream.
    let is_replica = settings.replica.primary.is_some() || replication.link.is_some();
    let is_linked = replication.link.as_ref().is_some_and(|link| link.is_linked());
    let few = !is_replica && settings.keys.replicas_min > replication.good_replicas;
    [
        (server_gate::FEW_REPLICAS, few),
        (server_gate::READ_ONLY, is_replica && settings.replication.read_only),
        (server_gate::STALE, is_replica && !is_linked && !settings.replica.serves_stale),
    ]
}
