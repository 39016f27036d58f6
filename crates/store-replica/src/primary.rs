//! The primary's side: who follows, what each one still needs, and how far they all are.

use store_resp::{Request, parse_integer};

use crate::moment::Moment;
use crate::output::{CloseReason, Event, Output, SessionId, SnapshotContent, SnapshotNeeds};
use crate::replica::{Replica, ReplicaState};
use crate::replication::Replication;
use crate::stream::{Command, GETACK, PING};
use crate::sync::Snapshot;

impl Replication {
    /// One unit of writes, which was just applied to the data. Returns the offset behind it, which
    /// a session remembers for WAIT.
    ///
    /// Without a backlog nobody could ask for it, and the offset stands still: the backlog that
    /// is made next therefore begins a new history.
    pub fn feed<'a>(
        &mut self,
        now: Moment,
        unit: impl ExactSizeIterator<Item = Command<'a>>,
    ) -> u64 {
        debug_assert!(self.is_primary(), "a replica passes on what its primary sent");
        if self.backlog.is_some() {
            let is_single = unit.len() == 1;
            let mut unit = unit.peekable();
            match unit.peek() {
                // Most of what is written: it goes as it is.
                Some(only) if is_single && self.stream.selected() == Some(only.db) => {
                    self.append(now, only.bytes);
                }
                _ => {
                    let mut bytes = std::mem::take(&mut self.scratch);
                    bytes.clear();
                    self.stream.encode(unit, &mut bytes);
                    self.append(now, &bytes);
                    self.keep_scratch(bytes);
                }
            }
        }
        self.history.offset()
    }

    /// Bytes of the stream, from here or from the primary above.
    pub(crate) fn append(&mut self, now: Moment, bytes: &[u8]) {
        self.history.grow(bytes.len());
        let Some(backlog) = &mut self.backlog else { return };
        // Who is behind, and what nobody needs any more, is looked at block by block.
        if backlog.append(bytes, self.settings.block_size) > 0 {
            self.close_slow_replicas(now);
            self.trim();
        }
    }

    /// A replica whose part of the stream is over its limit goes; the others lose nothing by it. So
    /// does one that could not be sent what follows, should that ever happen.
    fn close_slow_replicas(&mut self, now: Moment) {
        let end = self.history.offset();
        let (settings, backlog) = (&self.settings, &self.backlog);
        let is_kept = |reader| backlog.as_ref().is_some_and(|backlog| backlog.has(reader));
        let mut slow = Vec::new();
        for replica in self.replicas.iter_mut().filter(|replica| replica.reads()) {
            let is_lost = !is_kept(replica.reader);
            if is_lost || replica.is_over_limit(now, end - replica.reader, settings) {
                slow.push(replica.session);
            }
        }
        for session in slow {
            self.close(now, session, CloseReason::OutputLimit);
        }
    }

    pub(crate) fn trim(&mut self) {
        let readers = self.replicas.iter().filter(|replica| replica.reads());
        let slowest = readers.map(|replica| replica.reader).min();
        if let Some(backlog) = &mut self.backlog {
            backlog.trim(self.settings.backlog_size, slowest);
        }
    }

    /// REPLCONF from a session that is not the link.
    pub fn handle_replconf(&mut self, now: Moment, session: SessionId, request: Request<'_>) {
        let words: Vec<&[u8]> = request.args_from(1).collect();
        if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"ack")) {
            // Newer replicas add what they have on disk; it is not asked for here.
            let offset = words.get(1).and_then(|text| parse_integer(text));
            return self.handle_ack(now, session, offset.unwrap_or(-1));
        }
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return self.reply(session, "-ERR syntax error\r\n");
        }
        let replica = self.replica_or_new(now, session);
        if replica.state != ReplicaState::Greeting {
            // What it gets, and what is kept for it, was decided by what it said before PSYNC.
            return self.reply(session, "+OK\r\n");
        }
        let outcome = pairs.iter().try_for_each(|[name, value]| introduce(replica, name, value));
        match outcome {
            Ok(()) => self.reply(session, "+OK\r\n"),
            Err(text) => self.reply(session, &format!("-ERR {text}\r\n")),
        }
    }

    fn handle_ack(&mut self, now: Moment, session: SessionId, offset: i64) {
        let end = self.history.offset();
        let Some(replica) = self.replicas.iter_mut().find(|r| r.session == session) else { return };
        replica.heard_at = now;
        let offset = u64::try_from(offset).unwrap_or(0);
        if offset > end {
            if !std::mem::replace(&mut replica.has_lied, true) {
                self.log(Event::AckBeyondEnd(session));
            }
            return;
        }
        replica.acked = replica.acked.max(Some(offset));
        if replica.state == ReplicaState::AwaitAck {
            replica.state = ReplicaState::Online;
            self.log(Event::ReplicaOnline(session));
        }
        self.wake_waits(now);
        self.continue_failover(now);
    }

    /// An empty line from a replica: it is busy, and there.
    pub fn handle_newline(&mut self, now: Moment, session: SessionId) {
        if let Some(replica) = self.replicas.iter_mut().find(|r| r.session == session) {
            replica.heard_at = now;
        }
    }

    /// What a replica is sent next of the stream; empty when it has all, or may not have any yet.
    pub fn stream_for(&self, session: SessionId) -> &[u8] {
        let mut only = [&[][..]];
        self.stretches_for(session, &mut only);
        only[0]
    }

    /// The same, with what follows, in as many stretches as there is room for. Returns how many.
    pub fn stretches_for<'a>(&'a self, session: SessionId, into: &mut [&'a [u8]]) -> usize {
        match (self.replica(session), &self.backlog) {
            // One that lacks what is gone is closed with the next block of writes.
            (Some(replica), Some(backlog))
                if replica.is_online() && replica.reads() && backlog.has(replica.reader) =>
            {
                backlog.read_all(replica.reader, into)
            }
            _ => 0,
        }
    }

    /// `len` bytes of [`stream_for`](Self::stream_for) were written to its socket.
    pub fn handle_stream_written(&mut self, session: SessionId, len: usize) {
        let end = self.history.offset();
        if let Some(replica) = self.replicas.iter_mut().find(|r| r.session == session) {
            replica.reader += len as u64;
            assert!(replica.reader <= end, "more was written than there is");
        }
        self.trim();
    }

    /// A session is gone, whoever closed it.
    pub fn handle_session_closed(&mut self, now: Moment, session: SessionId) {
        self.waits.remove(session);
        self.forget_replica(now, session);
    }

    pub(crate) fn close(&mut self, now: Moment, session: SessionId, reason: CloseReason) {
        self.outputs.push_back(Output::Close { session, reason });
        self.forget_replica(now, session);
    }

    fn forget_replica(&mut self, now: Moment, session: SessionId) {
        let Some(index) = self.replicas.iter().position(|r| r.session == session) else { return };
        let replica = self.replicas.remove(index);
        if !self.has_replicas() {
            self.alone_since.get_or_insert(now);
        }
        let is_unwanted = match self.snapshot {
            Some(Snapshot::Running { .. }) => {
                let was_for_it = self.snapshot.is_some_and(|snapshot| snapshot.is_for(&replica));
                was_for_it && self.in_transfer().is_empty()
            }
            // It may have to wait for another one, and the data may go before.
            Some(Snapshot::Asked(needs)) => !self.awaits_snapshot(needs),
            None => false,
        };
        if is_unwanted {
            self.snapshot = None;
            self.outputs.push_back(Output::CancelSnapshot);
        }
        self.trim();
        self.continue_failover(now);
    }

    fn awaits_snapshot(&self, needs: SnapshotNeeds) -> bool {
        let awaits = |it: &Replica| it.is_waiting() && it.needs(&self.settings) == needs;
        self.replicas.iter().any(awaits)
    }

    pub(crate) fn close_replicas(&mut self, now: Moment, reason: CloseReason) {
        let followers = self.replicas.iter().filter(|r| r.state != ReplicaState::Greeting);
        let sessions: Vec<_> = followers.map(|replica| replica.session).collect();
        for session in sessions {
            self.close(now, session, reason);
        }
    }

    /// Whether anybody follows, or is about to.
    pub(crate) fn has_replicas(&self) -> bool {
        self.replicas.iter().any(|replica| replica.state != ReplicaState::Greeting)
    }

    /// How many replicas are online and were heard of within `min-replicas-max-lag`.
    pub fn good_replicas(&self, now: Moment) -> usize {
        let lag_max = self.settings.min_replicas_lag;
        let replicas = self.replicas.iter();
        replicas.filter(|replica| replica.is_online() && replica.lag(now) <= lag_max).count()
    }

    /// Whether writes are refused because too few replicas are good (`NOREPLICAS`).
    pub fn has_too_few_replicas(&self, now: Moment) -> bool {
        let is_asked_for =
            self.settings.min_replicas > 0 && !self.settings.min_replicas_lag.is_zero();
        is_asked_for && self.is_primary() && self.good_replicas(now) < self.settings.min_replicas
    }

    /// WAIT: how many replicas have the bytes up to `offset`, if that is enough. Otherwise the
    /// session waits for [`Output::Waited`], until `until` at the latest.
    pub fn wait(
        &mut self,
        now: Moment,
        session: SessionId,
        offset: u64,
        count: usize,
        until: Option<Moment>,
    ) -> Option<usize> {
        let have = self.acks().partition_point(|ack| *ack >= offset);
        if have >= count || until.is_some_and(|until| until <= now) {
            return Some(have);
        }
        self.waits.add(session, offset, count, until);
        self.ack_wanted = true;
        None
    }

    /// Whether any session waits for replicas to confirm.
    pub fn has_waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Ends a session's WAIT from outside (CLIENT UNBLOCK).
    pub fn stop_waiting(&mut self, session: SessionId) {
        self.waits.remove(session);
    }

    /// Offsets that online replicas have, greatest first.
    fn acks(&self) -> Vec<u64> {
        let online = self.replicas.iter().filter(|replica| replica.is_online());
        let mut acks: Vec<u64> = online.filter_map(|replica| replica.acked).collect();
        acks.sort_unstable_by(|a, b| b.cmp(a));
        acks
    }

    pub(crate) fn wake_waits(&mut self, now: Moment) {
        if self.waits.is_empty() {
            return;
        }
        for (session, count) in self.waits.take_done(now, &self.acks()) {
            self.outputs.push_back(Output::Waited { session, count });
        }
    }

    /// The caller is about to write to sockets: replicas are asked how far they are, once for all
    /// that wait since the last turn.
    pub fn handle_turn_end(&mut self, now: Moment) {
        if std::mem::take(&mut self.ack_wanted) && self.may_feed_by_itself() {
            self.append(now, GETACK);
        }
    }

    /// Asks replicas how far they are when the turn ends, for SHUTDOWN.
    pub fn want_acks(&mut self) {
        self.ack_wanted = true;
    }

    /// The once-a-second work for replicas.
    pub(crate) fn tick_replicas(&mut self, now: Moment) {
        let is_ping_due = now.since(self.pinged_at) >= self.settings.ping_every;
        if is_ping_due {
            self.pinged_at = now;
            if self.has_replicas() && self.may_feed_by_itself() {
                self.append(now, PING);
            }
        }
        self.keep_waiting_replicas_alive();
        self.close_silent_replicas(now);
        self.close_slow_replicas(now);
        self.drop_old_backlog(now);
        self.trim();
        self.start_snapshot_when_due(now);
    }

    /// Only what a primary writes may stand in the stream, and nothing while its end must stand
    /// still.
    fn may_feed_by_itself(&self) -> bool {
        self.is_primary() && !self.is_paused && !self.is_failing_over() && self.backlog.is_some()
    }

    /// An empty line counts nothing before the stream, and would be counted within it.
    fn keep_waiting_replicas_alive(&mut self) {
        let snapshot = self.snapshot;
        let needs_line = |replica: &&Replica| {
            replica.is_waiting() || snapshot.is_some_and(|it| it.is_being_saved_for(replica))
        };
        let sessions: Vec<_> =
            self.replicas.iter().filter(needs_line).map(|replica| replica.session).collect();
        for session in sessions {
            self.reply(session, "\n");
        }
    }

    fn close_silent_replicas(&mut self, now: Moment) {
        let timeout = self.settings.timeout;
        let snapshot = self.snapshot;
        let is_silent = |replica: &&Replica| {
            match replica.state {
                ReplicaState::Greeting | ReplicaState::WaitStart { .. } => false,
                // Whoever does not take its payload holds up others, whatever it says.
                ReplicaState::Transfer => {
                    let is_saved = !snapshot.is_some_and(|it| it.is_being_saved_for(replica));
                    is_saved && now.since(replica.progressed_at) > timeout
                }
                // Those who know no ids send no acks.
                ReplicaState::AwaitAck | ReplicaState::Online => {
                    replica.speaks_psync && replica.lag(now) > timeout
                }
            }
        };
        let silent: Vec<_> = self.replicas.iter().filter(is_silent).map(|r| r.session).collect();
        for session in silent {
            self.close(now, session, CloseReason::Silent);
        }
    }

    /// Without replicas the stream is given up after a while, and with it the name of the history:
    /// from here on writes are no longer counted.
    fn drop_old_backlog(&mut self, now: Moment) {
        let ttl = self.settings.backlog_ttl;
        let is_old = self.alone_since.is_some_and(|since| now.since(since) >= ttl);
        if is_old && !ttl.is_zero() && self.is_primary() && self.backlog.take().is_some() {
            self.renew_history();
            self.alone_since = None;
        }
    }

    /// Where a replica's connection comes from, for one that does not say by itself.
    pub fn set_peer(&mut self, now: Moment, session: SessionId, ip: &str) {
        self.replica_or_new(now, session).peer = ip.to_owned();
    }

    pub(crate) fn replica(&self, session: SessionId) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.session == session)
    }

    pub(crate) fn replica_or_new(&mut self, now: Moment, session: SessionId) -> &mut Replica {
        let index = match self.replicas.iter().position(|replica| replica.session == session) {
            Some(index) => index,
            None => {
                self.replicas.push(Replica::new(session, now));
                self.replicas.len() - 1
            }
        };
        &mut self.replicas[index]
    }
}

/// The address or name of a host is no longer.
const HOST_MAX: usize = 255;

/// What addresses and names of hosts are made of; `%` is of addresses with a zone.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".:-_%".contains(&byte)
}

/// Takes down one thing that a replica says about itself. Fails with the text of the error.
fn introduce(replica: &mut Replica, name: &[u8], value: &[u8]) -> Result<(), String> {
    let is_set = value != b"0";
    match name.to_ascii_lowercase().as_slice() {
        b"listening-port" => {
            let port = parse_integer(value).and_then(|port| u16::try_from(port).ok());
            replica.port = port.ok_or("value is not an integer or out of range")?;
        }
        b"ip-address" => {
            let too_long = "REPLCONF ip-address provided by replica instance is too long";
            let is_short = value.len() <= HOST_MAX;
            is_short.then_some(()).ok_or(too_long)?;
            // INFO shows it, and sentinels read INFO line by line.
            let text = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(is_of_host));
            let text = text.ok_or("REPLCONF ip-address is not the address or name of a host")?;
            replica.ip = Some(text.to_owned()).filter(|text| !text.is_empty());
        }
        // What else it could do is not used here.
        b"capa" if value.eq_ignore_ascii_case(b"eof") => replica.takes_mark = true,
        b"capa" if value.eq_ignore_ascii_case(b"psync2") => replica.knows_second_id = true,
        b"capa" => {}
        b"rdb-only" => replica.payload_only = is_set,
        b"rdb-filter-only" if value.is_empty() => replica.content = SnapshotContent::Nothing,
        b"rdb-filter-only" if value.eq_ignore_ascii_case(b"functions") => {
            replica.content = SnapshotContent::Functions;
        }
        b"rdb-filter-only" => {
            return Err(format!("Unsupported rdb-filter-only option: {}", shown(value)));
        }
        name => {
            return Err(format!("Unrecognized REPLCONF option: {}", shown(name)));
        }
    }
    Ok(())
}

/// What a peer said, fit for an answer: it may be of any length.
fn shown(word: &[u8]) -> String {
    const SHOWN_MAX: usize = 128;
    String::from_utf8_lossy(&word[..word.len().min(SHOWN_MAX)]).escape_debug().to_string()
}
