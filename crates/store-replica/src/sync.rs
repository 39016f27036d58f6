//! How a replica gets its data: the decision between all and the rest, and snapshots for many.

use std::collections::BTreeSet;
use std::time::Duration;

use store_resp::{Request, parse_integer};

use crate::history::ReplicationId;
use crate::moment::Moment;
use crate::output::{CloseReason, Event, Output, SessionId, SnapshotNeeds, SnapshotTarget};
use crate::replica::{Replica, ReplicaState};
use crate::replication::Replication;

/// Payloads at most that are whole, and that somebody has still to read: each takes disk or memory.
/// Whoever reads none of its payload is closed by `repl-timeout`.
const UNREAD_MAX: usize = 4;

/// The snapshot for replicas that is asked for, or made. Once its payload is whole, the next one
/// may begin, however long its readers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// The caller was asked to begin it.
    Asked(SnapshotNeeds),
    /// It runs. On sockets its payload is sent as it is made; on disk once it is whole.
    Running { needs: SnapshotNeeds, number: u64 },
}

impl Snapshot {
    pub(crate) fn is_for(self, replica: &Replica) -> bool {
        let Snapshot::Running { number, .. } = self else { return false };
        replica.state == ReplicaState::Transfer && replica.snapshot == number
    }

    /// Whether it is being saved for this replica, which gets nothing meanwhile.
    pub(crate) fn is_being_saved_for(self, replica: &Replica) -> bool {
        let is_for_disk = match self {
            Snapshot::Asked(_) => false,
            Snapshot::Running { needs, .. } => needs.target == SnapshotTarget::Disk,
        };
        is_for_disk && self.is_for(replica)
    }
}

impl Replication {
    /// SYNC: a payload and the stream, for those who know no ids.
    pub fn handle_sync(&mut self, now: Moment, session: SessionId) {
        if self.refuses_to_sync(session) {
            return;
        }
        self.replica_or_new(now, session).speaks_psync = false;
        self.begin_full_sync(now, session, false, 0);
    }

    /// `PSYNC id offset [FAILOVER]`: a replica says what it has and gets the rest.
    pub fn handle_psync(&mut self, now: Moment, session: SessionId, request: Request<'_>) {
        let (Some(id), Some(offset)) = (request.get(1), request.get(2)) else {
            return self.reply(session, "-ERR wrong number of arguments for 'psync' command\r\n");
        };
        let Some(offset) = parse_integer(offset) else {
            return self.reply(session, "-ERR value is not an integer or out of range\r\n");
        };
        let id = ReplicationId::parse(id);
        if request.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"failover"))
            && !self.take_over(now, session, id)
        {
            return;
        }
        if self.refuses_to_sync(session) {
            return;
        }
        let wants_all = self.replica_or_new(now, session).payload_only;
        // The peer counts from one: it names the first byte that it lacks.
        let has = u64::try_from(offset).ok().and_then(|offset| offset.checked_sub(1));
        let may_continue = |(id, has): &(_, _)| !wants_all && self.can_continue(*id, *has);
        match id.zip(has).filter(may_continue) {
            Some((_, has)) => self.begin_partial_sync(now, session, has),
            None => self.begin_full_sync(now, session, id.is_some(), has.unwrap_or(0)),
        }
    }

    /// Whether the first `has` bytes of `id` are ours, and all bytes behind them are still there. A
    /// backlog that is still to be trimmed may have more than a replica may lack.
    fn can_continue(&self, id: ReplicationId, has: u64) -> bool {
        let is_kept = self.backlog.as_ref().is_some_and(|backlog| backlog.has(has));
        let may_lack = |lacks: u64| self.settings.unsent_max().is_none_or(|max| lacks <= max);
        is_kept
            && self.history.includes(id, has)
            && may_lack(self.history.offset().saturating_sub(has))
    }

    fn refuses_to_sync(&mut self, session: SessionId) -> bool {
        let is_known = self.replica(session).is_some_and(|r| r.state != ReplicaState::Greeting);
        if is_known {
            return true;
        }
        let refusal = if self.is_failing_over() {
            "-NOMASTERLINK Can't SYNC while failing over\r\n"
        } else if !self.is_primary() && !self.is_linked() {
            "-NOMASTERLINK Can't SYNC while not connected with my master\r\n"
        } else {
            return false;
        };
        self.reply(session, refusal);
        true
    }

    fn begin_partial_sync(&mut self, now: Moment, session: SessionId, has: u64) {
        let id = self.history.id();
        let replica = self.replica_or_new(now, session);
        replica.state = ReplicaState::Online;
        replica.reader = has;
        replica.heard_at = now;
        let answer = match replica.knows_second_id {
            true => format!("+CONTINUE {id}\r\n"),
            false => "+CONTINUE\r\n".to_owned(),
        };
        self.reply(session, &answer);
        self.alone_since = None;
        self.counts.partial_done += 1;
        let bytes = self.history.offset() - has;
        self.log(Event::PartialSync { session, bytes });
    }

    fn begin_full_sync(&mut self, now: Moment, session: SessionId, was_refused: bool, had: u64) {
        self.counts.full += 1;
        self.counts.partial_refused += u64::from(was_refused);
        if self.backlog.is_none() {
            self.renew_history();
            self.create_backlog();
        }
        let replica = self.replica_or_new(now, session);
        replica.state = ReplicaState::WaitStart { since: now };
        replica.heard_at = now;
        self.alone_since = None;
        self.log(Event::FullSync { session, was_refused, had });
        self.start_snapshot_when_due(now);
    }

    /// Asks for a snapshot once somebody waits, nothing runs, and others had time to join.
    pub(crate) fn start_snapshot_when_due(&mut self, now: Moment) {
        let Some(due_at) = self.snapshot_due_at() else { return };
        if due_at > now {
            return;
        }
        let first = self.replicas.iter().find(|replica| replica.is_waiting());
        let needs = first.expect("somebody waits").needs(&self.settings);
        self.snapshot = Some(Snapshot::Asked(needs));
        self.outputs.push_back(Output::StartSnapshot(needs));
    }

    /// When the next snapshot should begin, if one should.
    pub(crate) fn snapshot_due_at(&self) -> Option<Moment> {
        if self.snapshot.is_some() || self.unread_payloads() >= UNREAD_MAX {
            return None;
        }
        let mut waiting = self.replicas.iter().filter(|replica| replica.is_waiting());
        let first = waiting.next()?;
        let ReplicaState::WaitStart { since } = first.state else { return None };
        let needs = first.needs(&self.settings);
        let same = 1 + waiting.filter(|replica| replica.needs(&self.settings) == needs).count();
        let max = self.settings.diskless_max_replicas;
        let is_at_once = needs.target == SnapshotTarget::Disk || (max > 0 && same >= max);
        let delay = if is_at_once { Duration::ZERO } else { self.settings.diskless_delay };
        Some(since + delay)
    }

    /// Payloads that are whole, and that somebody has still to read.
    fn unread_payloads(&self) -> usize {
        let is_made = |replica: &&Replica| {
            let is_running = self.snapshot.is_some_and(|snapshot| snapshot.is_for(replica));
            replica.state == ReplicaState::Transfer && !is_running
        };
        let made = self.replicas.iter().filter(is_made);
        made.map(|replica| replica.snapshot).collect::<BTreeSet<_>>().len()
    }

    /// The snapshot that was asked for has begun: it holds exactly the data of this moment. All who
    /// wait for one like it are told its offset, and get the stream from there on.
    pub fn handle_snapshot_started(&mut self, now: Moment) {
        let Some(Snapshot::Asked(needs)) = self.snapshot else { return };
        let mark = self.secrets.digits();
        self.snapshots_begun += 1;
        let number = self.snapshots_begun;
        self.snapshot = Some(Snapshot::Running { needs, number });
        let (id, offset) = (self.history.id(), self.history.offset());
        let mut lines = Vec::new();
        for replica in &mut self.replicas {
            if !replica.is_waiting() || replica.needs(&self.settings) != needs {
                continue;
            }
            replica.state = ReplicaState::Transfer;
            replica.reader = offset;
            replica.snapshot = number;
            replica.mark = Some(mark).filter(|_| needs.target == SnapshotTarget::Sockets);
            (replica.heard_at, replica.progressed_at) = (now, now);
            let mut line = String::new();
            if replica.speaks_psync {
                line = format!("+FULLRESYNC {id} {offset}\r\n");
            }
            if needs.target == SnapshotTarget::Sockets {
                let mark = std::str::from_utf8(&mark).expect("a mark is hexadecimal digits");
                line.push_str(&format!("$EOF:{mark}\r\n"));
            }
            lines.push((replica.session, line));
        }
        // Their sessions have no database selected; raw bytes of a primary above are not ours to
        // change, and there the payload names the database.
        self.forget_selected();
        if lines.is_empty() {
            self.snapshot = None;
            self.outputs.push_back(Output::CancelSnapshot);
        }
        for (session, line) in lines {
            self.reply(session, &line);
        }
    }

    /// The payload of the running snapshot is whole and has `len` bytes. From disk it is sent to
    /// all who wait for it now. It is the caller's from here on, until nobody reads it any more.
    pub fn handle_snapshot_made(&mut self, now: Moment, len: u64) {
        let Some(Snapshot::Running { needs, .. }) = self.snapshot else { return };
        if needs.target == SnapshotTarget::Disk {
            for session in self.in_transfer() {
                self.handle_progress(now, session);
                self.reply(session, &format!("${len}\r\n"));
            }
        }
        self.snapshot = None;
        self.start_snapshot_when_due(now);
    }

    /// Sessions that get the running snapshot's payload.
    pub fn in_transfer(&self) -> Vec<SessionId> {
        let Some(snapshot) = self.snapshot else { return Vec::new() };
        let chosen = self.replicas.iter().filter(|replica| snapshot.is_for(replica));
        chosen.map(|replica| replica.session).collect()
    }

    /// A replica took some bytes of its payload, or has all that there are so far.
    pub fn handle_progress(&mut self, now: Moment, session: SessionId) {
        let replica = self.replicas.iter_mut().find(|r| r.session == session);
        if let Some(replica) = replica.filter(|r| r.state == ReplicaState::Transfer) {
            (replica.heard_at, replica.progressed_at) = (now, now);
        }
    }

    /// The whole payload has been handed to a replica's socket.
    pub fn handle_payload_sent(&mut self, now: Moment, session: SessionId) {
        let Some(replica) = self.replicas.iter_mut().find(|r| r.session == session) else { return };
        if replica.state != ReplicaState::Transfer {
            return;
        }
        let is_payload_only = replica.payload_only;
        replica.heard_at = now;
        let mark = replica.mark.take();
        replica.state = match mark {
            Some(_) => ReplicaState::AwaitAck,
            None => ReplicaState::Online,
        };
        if let Some(mark) = mark {
            self.outputs.push_back(Output::Reply { session, bytes: mark.to_vec() });
        }
        if is_payload_only {
            self.close(now, session, CloseReason::PayloadOnly);
        } else if mark.is_none() {
            self.log(Event::ReplicaOnline(session));
        }
        self.start_snapshot_when_due(now);
    }

    /// The snapshot could not be begun, or not be made: its replicas are closed.
    pub fn handle_snapshot_failed(&mut self, now: Moment) {
        let Some(snapshot) = self.snapshot.take() else { return };
        let settings = &self.settings;
        let is_hit = |replica: &&Replica| match snapshot {
            Snapshot::Asked(needs) => replica.is_waiting() && replica.needs(settings) == needs,
            Snapshot::Running { .. } => snapshot.is_for(replica),
        };
        let hit: Vec<_> = self.replicas.iter().filter(is_hit).map(|r| r.session).collect();
        for session in hit {
            if matches!(snapshot, Snapshot::Asked(_)) {
                self.reply(session, "-ERR BGSAVE failed, replication can't continue\r\n");
            }
            self.close(now, session, CloseReason::SnapshotFailed);
        }
        self.start_snapshot_when_due(now);
    }
}
