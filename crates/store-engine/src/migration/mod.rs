//! Keys that move to another server, and large values that come from one.
//!
//! ```text
//! MIGRATE ─► keys are leaving ─► ServerRequest::Migrate ─► the driver's machine ─► for each key:
//!     leaving_value ─► sent ─► the other server has it: finish_moved ─► DEL is propagated
//!                                └─ has not, or nobody knows: keep_key
//! RESTORE of a large payload ─► ServerRequest::Decode ─► a thread ─► finish_restore
//! ```
//! A key that is leaving is read as ever. Requests that would change it are postponed, as under
//! CLIENT PAUSE, until it is gone or stays: Redis answers nobody meanwhile. A script that changes
//! such a key without having declared it gets an error, since it cannot be held back half-way:
//! TRYAGAIN if it has written nothing yet.

pub(crate) mod commands;
mod held;

use store_cluster::MigrationOrder;
use store_persist::rdb::SavedValue;
use store_resp::slot::slot_of;
use store_resp::{OwnedRequest, Request};
use store_types::dump::{self, RestoreError};
use store_types::lzf::Compressor;

use crate::command::{Command, flag};
use crate::commands::resume_postponed;
use crate::context::Context;
use crate::engine::Engine;
use crate::error::CommandError;
use crate::key_finder;
use crate::keyspace::{Freeing, ValueRef, saved, shared};
use crate::replication::UNBLOCKED;
use crate::session::{Blocked, SessionId, TimeoutReply};
use crate::state::{ServerState, server_gate};
pub(crate) use held::Held;

/// Values with more memory than this are encoded by the driver's thread.
const ENCODED_HERE_MAX: usize = 64 * 1024;
/// Payloads longer than this are decoded by the driver's thread.
pub(crate) const DECODED_HERE_MAX: usize = 1024 * 1024;

/// What a session asks for by MIGRATE. It waits until [`Engine::finish_migration`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrateRequest {
    /// The number of this migration: no other one has it.
    pub number: u64,
    /// Where the keys go.
    pub host: String,
    /// See above.
    pub port: u16,
    /// The database that they come from.
    pub db: usize,
    /// Which keys, and how.
    pub order: MigrationOrder,
    /// Whether they replace keys of the same name.
    pub replaces: bool,
}

/// A value to be sent, as RESTORE takes it.
#[derive(Debug)]
pub struct LeavingValue {
    /// How long the key has, in milliseconds; 0 for ever.
    pub ttl_ms: u64,
    /// The value.
    pub payload: LeavingPayload,
}

/// A value that is encoded, or large.
#[derive(Debug)]
pub enum LeavingPayload {
    /// What RESTORE takes.
    Encoded(Vec<u8>),
    /// To be encoded where that delays nobody.
    Shared {
        /// The value.
        value: SavedValue,
        /// Whether strings are compressed.
        is_compressed: bool,
    },
}

impl LeavingPayload {
    /// What RESTORE takes. Takes as long as the value is large.
    pub fn encode(self) -> Vec<u8> {
        match self {
            LeavingPayload::Encoded(payload) => payload,
            LeavingPayload::Shared { value, is_compressed } => {
                let mut compressor = is_compressed.then(Compressor::new);
                dump::dump(value.as_ref(), compressor.as_mut())
            }
        }
    }
}

/// RESTORE of a payload that is decoded elsewhere. The session waits until
/// [`Engine::finish_restore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeRequest {
    /// The request with the payload.
    pub(crate) request: OwnedRequest,
    pub(crate) skips_checksum: bool,
    pub(crate) limits: store_types::Limits,
    /// The number of this wait: no other one has it.
    pub number: u64,
}

impl DecodeRequest {
    /// Decodes the payload. Takes as long as it is large.
    pub fn decode(&self) -> DecodedValue {
        let payload = self.request.as_request().arg(3);
        DecodedValue(commands::decode(payload, &self.limits, self.skips_checksum))
    }

    /// Whether somebody else holds the payload still. Giving back its memory takes milliseconds,
    /// which whoever lets it go last has to spend.
    pub fn is_shared(&self) -> bool {
        self.request.is_shared()
    }

    /// The payload's buffer, unless somebody else holds it.
    pub fn into_payload(self) -> Vec<Vec<u8>> {
        self.request.into_large()
    }
}

/// A value that was decoded elsewhere, or why it cannot be.
#[derive(Debug)]
pub struct DecodedValue(pub(crate) Result<dump::Value, RestoreError>);

/// What the engine keeps of migrations.
#[derive(Debug, Default)]
pub struct Migrations {
    /// Keys that may not be changed.
    pub(crate) leaving: store_cluster::Leaving,
    /// Numbers of migrations and restores given so far.
    begun: u64,
    /// Whether somebody who waits for a key could not be served because of one that leaves.
    holds_waiting: bool,
    /// What waits until writes are not held back any more.
    pub(crate) held: Vec<Held>,
    /// Whether somebody who waits for a key could not be served because writes are held back.
    pub(crate) was_woken_in_pause: bool,
    /// What RESTORE is to take, when it runs again.
    pub(crate) decoded: Option<DecodedValue>,
    /// Made for the first value, and kept while keys are on their way: it is larger than most of
    /// them.
    compressor: Option<Compressor>,
}

impl Migrations {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Notes that a session that waits was not served because of a key that leaves.
    pub(crate) fn hold_waiting(&mut self) {
        self.holds_waiting = true;
    }
}

impl Engine {
    /// The value of a key that is leaving. `None` when it ended: it is not leaving any more.
    pub fn leaving_value(&mut self, now_us: u64, db: usize, key: &[u8]) -> Option<LeavingValue> {
        self.keyspace.begin(now_us, db);
        let is_compressed = self.state.config.settings().snapshot.compresses;
        let now_ms = self.keyspace.now_ms();
        let compressor = &mut self.state.migrations.compressor;
        let value = self.keyspace.entry(key).map(|entry| {
            let memory = match entry.value() {
                ValueRef::Object(value) => value.memory(),
                ValueRef::Integer(_) => 0,
                ValueRef::Bytes(bytes) => bytes.len(),
            };
            let payload = match memory > ENCODED_HERE_MAX {
                true => LeavingPayload::Shared { value: shared(entry), is_compressed },
                false => {
                    let compressor =
                        is_compressed.then(|| compressor.get_or_insert_with(Compressor::new));
                    let mut scratch = [0; 20];
                    let value = saved(entry.value(), &mut scratch);
                    LeavingPayload::Encoded(dump::dump(value, compressor))
                }
            };
            let ttl_ms = entry.expires_at().map_or(0, |at| at.saturating_sub(now_ms).max(1));
            LeavingValue { ttl_ms, payload }
        });
        self.deliver_if_any(None);
        value
    }

    /// The other server has these keys: they go from here, and that is propagated. `asker` is the
    /// session that asked, and the number of its migration.
    pub fn finish_moved(
        &mut self,
        now_us: u64,
        asker: (SessionId, u64),
        db: usize,
        keys: &[Vec<u8>],
    ) {
        let (id, number) = asker;
        if self.state.is_paused() {
            let keys = keys.to_vec();
            return self.state.migrations.held.push(Held::Moved { id, number, db, keys });
        }
        self.keyspace.begin(now_us, db);
        let mut removed: Vec<&[u8]> = Vec::new();
        for key in keys {
            self.state.migrations.leaving.remove(db, key);
            if self.keyspace.delete_freeing(key, Freeing::Lazily) {
                removed.push(key);
            }
        }
        if self.keyspace.changes.propagating && !removed.is_empty() {
            let command = self.keyspace.freeing.server_del.command();
            let args = std::iter::once(command).chain(removed);
            let request = OwnedRequest::from_args(args);
            self.keyspace.changes.unit.requests.push((db, request));
        }
        self.deliver_if_any(Some(id));
        self.follow_leaving();
    }

    /// Whether keys are another server's to move, as this one repeats what that does.
    pub fn follows_another(&self) -> bool {
        let is_replica = self.keyspace.is_replica() && self.state.cluster.is_some();
        is_replica || self.state.gates & server_gate::READ_ONLY != 0
    }

    /// A key stays after all.
    pub fn keep_key(&mut self, db: usize, key: &[u8]) {
        self.state.migrations.leaving.remove(db, key);
        self.follow_leaving();
    }

    /// Answers the session that asked for a migration, if it still waits for it.
    pub fn finish_migration(&mut self, id: SessionId, number: u64, reply: &[u8]) {
        if self.holds_keys_of(number) {
            let reply = reply.to_vec();
            return self.state.migrations.held.push(Held::Ended { id, number, reply });
        }
        if self.state.migrations.leaving.is_empty() {
            self.state.migrations.compressor = None;
        }
        if reply.starts_with(b"-") && self.waits_for(id, number) {
            let code = reply[1..].split(|byte| *byte == b' ').next().unwrap_or_default();
            self.state.stats.count_error(code);
        }
        if self.waits_for(id, number) {
            self.answer_waiting(id, reply);
        }
    }

    /// Goes on with a RESTORE whose payload was decoded, if the session still waits for it. Returns
    /// a value that nobody wants, to be freed where that delays nobody.
    pub fn finish_restore(
        &mut self,
        now_us: u64,
        id: SessionId,
        number: u64,
        value: DecodedValue,
    ) -> Option<DecodedValue> {
        if !self.waits_for(id, number) {
            return Some(value);
        }
        if self.state.is_paused() {
            self.state.migrations.held.push(Held::Restored { id, number, value });
            return None;
        }
        let session = self.state.sessions.get(id);
        let blocked = session.and_then(|session| session.blocked.as_ref());
        if blocked.is_some_and(|blocked| self.must_stay_blocked(blocked)) {
            // The key began to leave meanwhile.
            self.refuse_waiting(id, &LEAVING);
            return Some(value);
        }
        if blocked.is_some_and(|blocked| self.has_lost_slot(blocked)) {
            self.refuse_waiting(id, &LOST_SLOT);
            return Some(value);
        }
        if self.follows_another() {
            // It did not when it was asked.
            self.finish_migration(id, number, UNBLOCKED);
            return Some(value);
        }
        self.state.migrations.decoded = Some(value);
        self.ask_again(now_us, id);
        self.state.migrations.decoded.take()
    }

    /// Whether the slot of what is restored went to another node meanwhile.
    fn has_lost_slot(&self, blocked: &Blocked) -> bool {
        let slot = slot_of(blocked.request.as_request().arg(1));
        let cluster = self.state.cluster.as_ref();
        let lost = cluster.and_then(|cluster| cluster.machine.refuse_waiting(slot, false));
        lost.is_some() || self.keyspace.is_emptied(slot)
    }

    fn waits_for(&self, id: SessionId, number: u64) -> bool {
        let blocked = self.state.sessions.get(id).and_then(|session| session.blocked.as_ref());
        blocked.is_some_and(|blocked| blocked.on_timeout == TimeoutReply::Driver(number))
    }

    /// Whoever waited for keys that are not leaving any more goes on.
    fn follow_leaving(&mut self) {
        let migrations = &mut self.state.migrations;
        if migrations.leaving.is_empty() {
            self.state.gates &= !server_gate::LEAVING;
            migrations.compressor = None;
        }
        let holds_waiting = std::mem::take(&mut migrations.holds_waiting);
        if !self.state.is_paused() {
            resume_postponed(&mut self.state);
        }
        if holds_waiting {
            self.serve_waiting();
        }
    }

    /// Looks again at all who wait for keys.
    fn serve_waiting(&mut self) {
        for db in 0..self.keyspace.database_count() {
            for key in self.keyspace.waiting.in_db(db) {
                self.keyspace.changes.ready_keys.push(db, &key);
            }
        }
        self.deliver_if_any(None);
    }
}

/// Whether a request would change a key that is leaving. One that changes all keys would, too.
pub(crate) fn changes_leaving(
    server: &ServerState,
    db: usize,
    command: &Command,
    request: Request<'_>,
) -> bool {
    if !command.has(flag::WRITE | flag::MAY_REPLICATE) {
        return false;
    }
    let leaving = &server.migrations.leaving;
    match key_finder::keys_of(command, request) {
        Some(keys) if !keys.is_empty() => {
            keys.iter().any(|key| leaving.contains(db, request.arg(key.arg)))
        }
        // It fails by itself if its arguments make no sense.
        _ => command.has(flag::WRITE),
    }
}

/// The same for the request of a session, with all that it queued before EXEC.
pub(crate) fn must_wait(cx: &Context<'_>, request: Request<'_>) -> bool {
    let db = cx.session.db;
    let command = cx.server.registry.row(cx.row).command;
    match &cx.session.transaction {
        Some(held) if command.has(flag::RUNS_QUEUED) => held.queued.iter().any(|(row, queued)| {
            let command = cx.server.registry.row(*row).command;
            changes_leaving(cx.server, db, command, queued.as_request())
        }),
        _ => changes_leaving(cx.server, db, command, request),
    }
}

/// What RESTORE says when its slot went away while a large payload was decoded.
const LOST_SLOT: CommandError =
    CommandError::text("TRYAGAIN The slot was moved while the value was decoded: try again");

/// What a script is told that would change a key on its way elsewhere.
pub(crate) const LEAVING: CommandError =
    CommandError::text("TRYAGAIN The key is being moved to another server: try again");

/// The same for a script that has written something already.
pub(crate) const LEAVING_LATE: CommandError =
    CommandError::text("ERR The key is being moved to another server, and the script has written");
