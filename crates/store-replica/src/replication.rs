//! One server's replication: its history, whom it follows, and who follows it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backlog::Backlog;
use crate::failover::FailoverState;
use crate::history::{History, ReplicationId, Secrets};
use crate::link::Link;
use crate::moment::Moment;
use crate::output::{CloseReason, Event, Facts, Output, Role, SessionId};
use crate::replica::Replica;
use crate::settings::{Address, Settings};
use crate::stream::{KEPT_MAX, Stream};
use crate::sync::Snapshot;
use crate::waits::Waits;

/// How often a server looks after its peers, as in Redis.
const TICK: Duration = Duration::from_secs(1);

/// How often replicas got what, for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    /// Everything.
    pub full: u64,
    /// What they lacked.
    pub partial_done: u64,
    /// Everything, although they had asked for less.
    pub partial_refused: u64,
}

/// What a request is about to do with a key that may have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A client reads.
    Read,
    /// A client writes.
    Write,
    /// The stream of the primary, or a file that is loaded.
    Replay,
}

/// What becomes of a key that has expired when somebody meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryMode {
    /// It is deleted, and replicas are told.
    Own,
    /// It is not there for the client, and not deleted: that is the primary's to do, or would move
    /// an offset that must stand still.
    Hide,
    /// It is there: whether it had ended before a change was decided by the primary.
    Ignore,
    /// It is deleted here alone: this replica takes writes that nobody else has.
    Drop,
}

/// One server's replication. The owner of the data owns this, too: an offset moves in the same call
/// as the write that it counts.
///
/// `handle_*` and commands come in, each with a reading of the clock; [`poll_output`] gives what is
/// to be done, in order, and ends with [`Output::WaitUntil`].
///
/// What must stay true:
/// - *There is a backlog exactly while the history describes the data.* Without one, writes are not
///   counted, so whoever makes one begins a new history.
/// - *Only applied bytes count*: in acks, in PSYNC, in what is passed on and in what is saved.
///
/// [`poll_output`]: Self::poll_output
#[derive(Debug)]
pub struct Replication {
    pub(crate) settings: Settings,
    pub(crate) secrets: Secrets,
    pub(crate) history: History,
    pub(crate) stream: Stream,
    pub(crate) backlog: Option<Backlog>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) snapshots_begun: u64,
    pub(crate) waits: Waits,
    pub(crate) link: Option<Link>,
    /// The database that the stream from above has selected at the applied offset.
    pub(crate) link_db: usize,
    pub(crate) failover: FailoverState,
    pub(crate) is_paused: bool,
    pub(crate) ack_wanted: bool,
    pub(crate) alone_since: Option<Moment>,
    pub(crate) ticked_at: Moment,
    pub(crate) pinged_at: Moment,
    pub(crate) counts: SyncCounts,
    pub(crate) scratch: Vec<u8>,
    pub(crate) outputs: VecDeque<Output>,
}

impl Replication {
    /// A primary without replicas whose data nobody knows.
    pub fn new(now: Moment, settings: Settings, mut secrets: Secrets) -> Self {
        let id = ReplicationId::draw(&mut secrets);
        Self {
            settings,
            secrets,
            history: History::new(id),
            stream: Stream::default(),
            backlog: None,
            replicas: Vec::new(),
            snapshot: None,
            snapshots_begun: 0,
            waits: Waits::default(),
            link: None,
            link_db: 0,
            failover: FailoverState::None,
            is_paused: false,
            ack_wanted: false,
            alone_since: None,
            ticked_at: now,
            pinged_at: now,
            counts: SyncCounts::default(),
            scratch: Vec::new(),
            outputs: VecDeque::new(),
        }
    }

    /// The data was loaded from a snapshot that says of itself `facts`; call it before anything
    /// else. `role` is what the server starts as: a replica asks to go on from there; a primary
    /// goes its own way from there, and those who have no more may follow.
    pub fn restore(&mut self, now: Moment, facts: Facts, role: &Role) {
        self.history.replace(facts.id, facts.offset);
        self.link_db = facts.db;
        self.create_backlog();
        if *role == Role::Primary {
            let id = ReplicationId::draw(&mut self.secrets);
            self.history.shift(id);
            self.alone_since = Some(now);
        }
    }

    /// What describes the data now, for a snapshot of it; `None` when nothing does.
    pub fn facts(&self) -> Option<Facts> {
        self.backlog.as_ref()?;
        let db = self.stream_db();
        Some(Facts { id: self.history.id(), offset: self.history.offset(), db })
    }

    /// The database that whoever has read the stream to its end has selected.
    fn stream_db(&self) -> usize {
        let own = self.stream.selected().filter(|_| self.is_primary());
        own.unwrap_or(self.link_db)
    }

    /// The next write names its database. What readers have selected until then stays known.
    pub(crate) fn forget_selected(&mut self) {
        self.link_db = self.stream_db();
        self.stream.forget_selected();
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Other settings. A smaller backlog is trimmed with the next write.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Whether this server takes writes of its own.
    pub fn is_primary(&self) -> bool {
        self.link.is_none()
    }

    /// Its role.
    pub fn role(&self) -> Role {
        match &self.link {
            None => Role::Primary,
            Some(link) => Role::Replica(link.primary().clone()),
        }
    }

    /// Whether it follows the primary there.
    pub fn follows(&self, host: &str, port: u16) -> bool {
        let is_it = |it: &Address| it.host == host && it.port == port;
        self.link.as_ref().is_some_and(|link| is_it(link.primary()))
    }

    /// Its history.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The part of the stream that is kept, if it is.
    pub fn backlog(&self) -> Option<&Backlog> {
        self.backlog.as_ref()
    }

    /// Who follows, or tells about itself before it does.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// How often replicas got what.
    pub fn sync_counts(&self) -> SyncCounts {
        self.counts
    }

    /// The history gets another name, of which no replica knows (DEBUG CHANGE-REPL-ID).
    pub fn change_id(&mut self) {
        self.renew_history();
    }

    /// Clients are paused or not, for whatever reason. While they are, nothing is fed that was not
    /// written by a client.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// What becomes of a key that has expired.
    pub fn expiry_mode(&self, access: Access) -> ExpiryMode {
        match (access, self.is_primary()) {
            (Access::Replay, _) => ExpiryMode::Ignore,
            (_, true) if self.is_paused || self.is_failing_over() => ExpiryMode::Hide,
            (_, true) => ExpiryMode::Own,
            (Access::Read, false) => ExpiryMode::Hide,
            (Access::Write, false) => ExpiryMode::Drop,
        }
    }

    /// REPLICAOF host port. Whether anything changed: `false` when it is followed already, and then
    /// it is dialled now if it was left alone for a while.
    pub fn follow(&mut self, now: Moment, primary: Address) -> bool {
        if self.link.as_ref().is_some_and(|link| *link.primary() == primary) {
            self.dial_soon(now);
            return false;
        }
        self.end_failover_unfinished();
        self.begin_following(now, primary);
        true
    }

    /// This server's history becomes what the new primary is asked to continue.
    pub(crate) fn begin_following(&mut self, now: Moment, primary: Address) {
        self.forget_selected();
        self.end_link();
        // Sessions that wait are told by the caller, with the change of role.
        self.waits.take_all();
        self.link = Some(Link::new(now, primary.clone()));
        self.outputs.push_back(Output::Become(Role::Replica(primary)));
        self.close_replicas(now, CloseReason::HistoryChanged);
        self.dial_when_due(now);
    }

    /// REPLICAOF NO ONE, or an election: this server goes its own way. A primary stays one.
    pub fn promote(&mut self, now: Moment) {
        if self.is_primary() {
            return;
        }
        self.forget_selected();
        self.end_link();
        self.end_failover_unfinished();
        let id = ReplicationId::draw(&mut self.secrets);
        match self.backlog {
            Some(_) => self.history.shift(id),
            None => self.history.renew(id),
        }
        self.alone_since = Some(now);
        self.outputs.push_back(Output::Become(Role::Primary));
        self.close_replicas(now, CloseReason::HistoryChanged);
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Moment) {
        if now.since(self.ticked_at) >= TICK {
            self.ticked_at = now;
            self.tick_replicas(now);
            self.tick_link(now);
        }
        self.start_snapshot_when_due(now);
        self.wake_waits(now);
        self.dial_when_due(now);
        self.continue_failover(now);
    }

    /// Whether there is something to do, beside waiting.
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// The next thing to do; after the last one, when to call [`handle_time`](Self::handle_time).
    pub fn poll_output(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or_else(|| Output::WaitUntil(self.wakes_at()))
    }

    fn wakes_at(&self) -> Option<Moment> {
        let has_peers = self.has_replicas() || self.link.is_some() || self.alone_since.is_some();
        let tick = has_peers.then(|| self.ticked_at + TICK);
        let times = [
            tick,
            self.snapshot_due_at(),
            self.waits.next_end(),
            self.dial_at(),
            self.failover_ends_at(),
        ];
        times.into_iter().flatten().min()
    }

    /// The scratch goes back.
    pub(crate) fn keep_scratch(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        bytes.shrink_to(KEPT_MAX);
        self.scratch = bytes;
    }

    pub(crate) fn renew_history(&mut self) {
        let id = ReplicationId::draw(&mut self.secrets);
        self.history.renew(id);
    }

    pub(crate) fn create_backlog(&mut self) {
        self.backlog = Some(Backlog::new(self.history.offset()));
    }

    pub(crate) fn reply(&mut self, session: SessionId, text: &str) {
        self.outputs.push_back(Output::Reply { session, bytes: text.as_bytes().to_vec() });
    }

    pub(crate) fn log(&mut self, event: Event) {
        self.outputs.push_back(Output::Log(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Command;

    #[test]
    fn what_a_large_unit_took_is_given_back() {
        let now = Moment::default();
        let secrets = Secrets::new(|bytes| bytes.fill(7));
        let mut replication = Replication::new(now, Settings::default(), secrets);
        replication.create_backlog();
        let bytes = vec![b'x'; 10 * KEPT_MAX];
        // It names its database, so it is copied once more.
        replication.feed(now, [Command { db: 3, bytes: &bytes }].into_iter());
        assert!(replication.history.offset() > bytes.len() as u64);
        assert!(replication.scratch.capacity() <= KEPT_MAX);
    }
}
