//! The replica's side: the connection to the primary, from the first PING to the stream.

use std::collections::VecDeque;
use std::time::Duration;

use store_resp::{Request, parse_integer};

use crate::history::ReplicationId;
use crate::intake::{Intake, Part, Transaction};
use crate::moment::Moment;
use crate::output::{CloseReason, Event, LinkFault, Output};
use crate::replication::Replication;
use crate::settings::Address;

/// How long to wait before a connection that came to nothing is opened again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long to wait at most before a payload is asked for again that could not be loaded. Each one
/// costs the primary a snapshot of all its data, and the next is likely to be like the last.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// Payloads in a row that this server does not take, before no more is asked for: each costs the
/// primary a snapshot of all its data, and only somebody who changes that data can help.
pub const REFUSED_LOADS_MAX: u32 = 4;
/// The same for writes that could not be applied, each soon after the payload before it.
pub const FAILED_WRITES_MAX: u32 = 6;
/// How much of a primary's error is kept for the log.
const TEXT_MAX: usize = 256;

/// How far the link has come.
///
/// ```text
/// Connect ─► Connecting ─► Handshake: PING, then AUTH, REPLCONF …, then PSYNC
///    ▲                        │ +FULLRESYNC              │ +CONTINUE
///    │                        ▼                          ▼
///    ├── lost ─────────── Transfer ─► Loading ─────► Connected
///    │                                  └─ refused ──────┴─ a write fails, again and again
///    └── an operator ─────────────────────────────► Stopped
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
enum LinkState {
    Connect {
        at: Moment,
    },
    /// What the primary has is not taken here: nothing is asked for until an operator says so.
    Stopped,
    Connecting,
    /// What was asked and not answered, in order.
    Handshake(VecDeque<Step>),
    Transfer,
    /// The payload is being loaded. The connection may be lost meanwhile; the data is good.
    Loading {
        is_cut: bool,
    },
    Connected,
}

/// What INFO and ROLE call the state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPhase {
    /// It waits to connect.
    Connect,
    /// It connects.
    Connecting,
    /// Words are exchanged.
    Handshake,
    /// Data arrives or is loaded.
    Sync,
    /// The stream is followed.
    Connected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ping,
    Auth,
    /// Something about this server, which a primary need not understand.
    Introduction,
    /// What was asked for: more of this server's history, or everything.
    Psync {
        is_partial: bool,
    },
}

/// What `+FULLRESYNC` promised.
#[derive(Clone, Copy, Debug)]
struct FullSync {
    /// `None` from a primary that knows no ids.
    history: Option<(ReplicationId, u64)>,
}

#[derive(Debug)]
pub(crate) struct Link {
    primary: Address,
    state: LinkState,
    intake: Intake,
    heard_at: Moment,
    sync: Option<FullSync>,
    speaks_psync: bool,
    down_since: Option<Moment>,
    /// Payloads of this primary in a row that could not be loaded.
    failed_loads: u32,
    /// Those among them that were whole, and are not taken here.
    refused_loads: u32,
    /// Writes of this primary that could not be applied, each soon after the payload before it.
    failed_writes: u32,
    synced_at: Moment,
}

impl Link {
    pub(crate) fn new(now: Moment, primary: Address) -> Self {
        Self {
            primary,
            state: LinkState::Connect { at: now },
            intake: Intake::new(),
            heard_at: now,
            sync: None,
            speaks_psync: true,
            down_since: Some(now),
            failed_loads: 0,
            refused_loads: 0,
            failed_writes: 0,
            synced_at: now,
        }
    }

    pub(crate) fn primary(&self) -> &Address {
        &self.primary
    }

    fn awaits_psync_answer(&self) -> bool {
        matches!(
            &self.state,
            LinkState::Handshake(steps) if matches!(steps.front(), Some(Step::Psync { .. }))
        )
    }

    /// How long to wait after a payload that could not be loaded: each time twice as long.
    fn pause_after_failed_load(&mut self) -> Duration {
        self.failed_loads = self.failed_loads.saturating_add(1);
        pause_after(self.failed_loads)
    }

    /// The same after a write that could not be applied, unless the payload before it did for a
    /// good while.
    fn pause_after_failed_write(&mut self, now: Moment) -> Duration {
        let was_good = now.since(self.synced_at) > 2 * RETRY_AFTER_MAX;
        self.failed_writes = if was_good { 1 } else { self.failed_writes.saturating_add(1) };
        pause_after(self.failed_writes)
    }

    /// Back to the beginning; what was read and not applied is forgotten.
    fn reset(&mut self, at: Moment) {
        self.state = LinkState::Connect { at };
        self.intake = Intake::new();
        self.sync = None;
        self.speaks_psync = true;
    }
}

impl Replication {
    /// How far the link is; `None` on a primary.
    pub fn link_phase(&self) -> Option<LinkPhase> {
        Some(match self.link.as_ref()?.state {
            LinkState::Connect { .. } | LinkState::Stopped => LinkPhase::Connect,
            LinkState::Connecting => LinkPhase::Connecting,
            LinkState::Handshake(_) => LinkPhase::Handshake,
            LinkState::Transfer | LinkState::Loading { .. } => LinkPhase::Sync,
            LinkState::Connected => LinkPhase::Connected,
        })
    }

    /// Whether the stream of a primary is followed.
    pub fn is_linked(&self) -> bool {
        self.link_phase() == Some(LinkPhase::Connected)
    }

    /// How long nothing has come from the primary.
    pub fn link_silence(&self, now: Moment) -> Option<Duration> {
        self.link.as_ref().map(|link| now.since(link.heard_at))
    }

    /// How long the stream has not been followed; `None` while it is.
    pub fn link_down_for(&self, now: Moment) -> Option<Duration> {
        self.link.as_ref()?.down_since.map(|since| now.since(since))
    }

    /// Bytes of the stream that have arrived, applied or not.
    pub fn read_offset(&self) -> u64 {
        let pending = self.link.as_ref().filter(|_| self.is_linked());
        self.history.offset() + pending.map_or(0, |link| link.intake.pending() as u64)
    }

    /// Whether more bytes from the primary are wanted now. Not while a payload is loaded, nor while
    /// requests that arrived wait to be applied.
    pub fn wants_link_bytes(&self) -> bool {
        const PENDING_MAX: usize = 1024 * 1024;
        let Some(link) = &self.link else { return false };
        let is_behind = link.intake.pending() > PENDING_MAX && !link.intake.needs_more();
        !link.intake.is_held() && !is_behind
    }

    /// How long the primary is left alone from now on; `None` while it is not.
    pub fn dials_in(&self, now: Moment) -> Option<Duration> {
        self.dial_at().map(|at| at.since(now))
    }

    /// Whether the primary is left alone until an operator names it again: what it has was refused
    /// here too often.
    pub fn is_link_stopped(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.state == LinkState::Stopped)
    }

    /// The operator names the primary that is followed already: it is not waited any longer.
    pub(crate) fn dial_soon(&mut self, now: Moment) {
        let Some(link) = &mut self.link else { return };
        (link.failed_loads, link.refused_loads, link.failed_writes) = (0, 0, 0);
        match &mut link.state {
            LinkState::Connect { at } => *at = now.min(*at),
            LinkState::Stopped => link.state = LinkState::Connect { at: now },
            _ => {}
        }
        self.dial_when_due(now);
    }

    /// Whether PSYNC was asked, and the answer is still to come.
    pub(crate) fn awaits_psync_answer(&self) -> bool {
        self.link.as_ref().is_some_and(Link::awaits_psync_answer)
    }

    pub(crate) fn dial_at(&self) -> Option<Moment> {
        match self.link.as_ref()?.state {
            LinkState::Connect { at } => Some(at),
            _ => None,
        }
    }

    pub(crate) fn dial_when_due(&mut self, now: Moment) {
        let is_due = self.dial_at().is_some_and(|at| at <= now);
        let Some(link) = self.link.as_mut().filter(|_| is_due) else { return };
        link.state = LinkState::Connecting;
        link.heard_at = now;
        self.outputs.push_back(Output::Dial(link.primary.clone()));
    }

    /// The connection to the primary is open.
    pub fn handle_link_up(&mut self, now: Moment) {
        let Some(link) = &mut self.link else { return };
        if link.state != LinkState::Connecting {
            return;
        }
        link.state = LinkState::Handshake(VecDeque::from([Step::Ping]));
        link.heard_at = now;
        self.send_words(&[b"PING"]);
    }

    /// The connection to the primary is lost, or could not be opened.
    pub fn handle_link_down(&mut self, now: Moment) {
        let Some(link) = &mut self.link else { return };
        match link.state {
            LinkState::Connect { .. } | LinkState::Stopped => {}
            LinkState::Loading { .. } => link.state = LinkState::Loading { is_cut: true },
            // Whoever followed comes back at once: the backlog may be short.
            LinkState::Connected => self.begin_again(now, now),
            _ => self.begin_again(now, now + RETRY_AFTER),
        }
    }

    /// Bytes from the primary.
    pub fn handle_link_bytes(&mut self, now: Moment, bytes: &[u8]) {
        let Some(link) = &mut self.link else { return };
        let is_closed = matches!(link.state, LinkState::Connect { .. } | LinkState::Stopped);
        if is_closed || link.state == LinkState::Connecting {
            return;
        }
        link.heard_at = now;
        link.intake.push(bytes);
        loop {
            let Some(link) = &mut self.link else { return };
            match link.intake.next_part() {
                Ok(Some(part)) => self.handle_part(now, part),
                Ok(None) => break,
                Err(_) => return self.fail_link(now, LinkFault::Protocol),
            }
        }
        let pending = self.link.as_ref().map_or(0, |link| link.intake.pending());
        if pending > self.settings.intake_max {
            self.fail_link(now, LinkFault::TooLong);
        }
    }

    fn handle_part(&mut self, now: Moment, part: Part) {
        match part {
            Part::Newline => {}
            Part::Line(line) => self.handle_line(now, &line),
            // When the old data goes is the caller's to say: `handle_data_forgotten`.
            Part::PayloadBegins => {}
            Part::PayloadRefused(line) => {
                self.log(Event::LinkRefused(printable(&line)));
                self.fail_link(now, LinkFault::TransferAborted);
            }
            Part::Payload(bytes) => self.outputs.push_back(Output::Payload(bytes)),
            Part::PayloadEnds => {
                if let Some(link) = &mut self.link {
                    link.state = LinkState::Loading { is_cut: false };
                }
                self.outputs.push_back(Output::Load);
            }
        }
    }

    /// Whether the payload is of the history that this server's data has.
    pub fn is_own_history(&self) -> bool {
        let sync = self.link.as_ref().and_then(|link| link.sync);
        let is_described = self.backlog.is_some();
        is_described
            && sync.and_then(|sync| sync.history).is_some_and(|(id, _)| id == self.history.id())
    }

    /// The caller is about to drop the old data, or to put other data in its place: nothing
    /// describes it any more, and nobody may follow it. Only the caller knows when that is, so it
    /// says so in the same step, before it touches anything; until then the old data is a part of
    /// the history that can be continued.
    pub fn handle_data_forgotten(&mut self, now: Moment) {
        self.backlog = None;
        self.renew_history();
        self.close_replicas(now, CloseReason::DataReplaced);
    }

    fn handle_line(&mut self, now: Moment, line: &[u8]) {
        let Some(link) = &mut self.link else { return };
        let LinkState::Handshake(steps) = &mut link.state else {
            return self.fail_link(now, LinkFault::Protocol);
        };
        let Some(step) = steps.pop_front() else {
            return self.fail_link(now, LinkFault::Protocol);
        };
        let is_last = steps.is_empty();
        let is_error = line.first() == Some(&b'-');
        let is_status = line.first() == Some(&b'+');
        match step {
            Step::Psync { is_partial } => return self.handle_psync_answer(now, line, is_partial),
            _ if !is_error && !is_status => {
                self.log(Event::LinkRefused(printable(line)));
                return self.fail_link(now, LinkFault::Protocol);
            }
            Step::Ping if is_status || may_go_on(line) => return self.introduce_itself(),
            Step::Ping | Step::Auth if is_error => {
                self.log(Event::LinkRefused(printable(line)));
                return self.fail_link(now, LinkFault::Refused);
            }
            Step::Introduction if is_error => self.log(Event::StepRefused(printable(line))),
            _ => {}
        }
        if is_last {
            self.ask_for_data();
        }
    }

    /// All of it at once: it saves round trips, and the answers come in order.
    fn introduce_itself(&mut self) {
        let mut steps = VecDeque::new();
        if let Some(login) = self.settings.login.clone() {
            let user = login.user.as_deref().map(str::as_bytes);
            let words: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(user).chain([&login.password[..]]).collect();
            self.send_words(&words);
            steps.push_back(Step::Auth);
        }
        let port = self.settings.listening_port.to_string();
        self.send_words(&[b"REPLCONF", b"listening-port", port.as_bytes()]);
        steps.push_back(Step::Introduction);
        if let Some(ip) = self.settings.announce_ip.clone() {
            self.send_words(&[b"REPLCONF", b"ip-address", ip.as_bytes()]);
            steps.push_back(Step::Introduction);
        }
        self.send_words(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"]);
        steps.push_back(Step::Introduction);
        if let Some(link) = &mut self.link {
            link.state = LinkState::Handshake(steps);
        }
    }

    /// PSYNC: names the first byte that is lacking, or nothing when the data is nobody's.
    fn ask_for_data(&mut self) {
        let is_partial = self.backlog.is_some();
        let id = self.history.id();
        let next = (self.history.offset() + 1).to_string();
        let mut words: Vec<&[u8]> = match is_partial {
            true => vec![b"PSYNC", id.as_str().as_bytes(), next.as_bytes()],
            false => vec![b"PSYNC", b"?", b"-1"],
        };
        if self.asks_to_take_over() {
            words.push(b"FAILOVER");
        }
        self.send_words(&words);
        if let Some(link) = &mut self.link {
            link.state = LinkState::Handshake(VecDeque::from([Step::Psync { is_partial }]));
        }
    }

    fn handle_psync_answer(&mut self, now: Moment, line: &[u8], is_partial: bool) {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        match words.as_slice() {
            [b"+FULLRESYNC", id, offset] => {
                let offset = parse_integer(offset).and_then(|offset| u64::try_from(offset).ok());
                match ReplicationId::parse(id).zip(offset) {
                    Some(_) if self.refuses_payload(now) => {}
                    Some(history) => self.begin_transfer(Some(history)),
                    None => self.fail_link(now, LinkFault::Protocol),
                }
            }
            [b"+CONTINUE", rest @ ..] if is_partial && rest.len() <= 1 => {
                self.continue_history(now, rest.first().and_then(|id| ReplicationId::parse(id)));
            }
            [word, ..] if word.first() == Some(&b'-') => self.handle_refusal(now, line),
            _ => self.fail_link(now, LinkFault::Protocol),
        }
    }

    fn handle_refusal(&mut self, now: Moment, line: &[u8]) {
        if self.handle_failover_refusal(now, line) {
            return;
        }
        let is_for_now = line.starts_with(b"-NOMASTERLINK") || line.starts_with(b"-LOADING");
        if is_for_now {
            self.log(Event::LinkNotReady(printable(line)));
            return self.close_and_retry(now);
        }
        // A primary that knows no PSYNC, or wants none of it.
        self.log(Event::StepRefused(printable(line)));
        self.outputs.push_back(Output::LinkSend(b"SYNC\r\n".to_vec()));
        self.begin_transfer(None);
    }

    pub(crate) fn ask_again(&mut self) {
        self.ask_for_data();
    }

    pub(crate) fn close_and_retry(&mut self, now: Moment) {
        self.outputs.push_back(Output::LinkClose);
        self.begin_again(now, now + RETRY_AFTER);
    }

    /// What this server has is what the primary has; the rest follows.
    fn continue_history(&mut self, now: Moment, id: Option<ReplicationId>) {
        let Some(link) = &mut self.link else { return };
        link.state = LinkState::Connected;
        (link.down_since, link.failed_loads, link.refused_loads) = (None, 0, 0);
        link.intake.expect_stream();
        if let Some(id) = id.filter(|id| *id != self.history.id()) {
            self.history.adopt(id);
            // They ask again, get what they lack, and learn the new name.
            self.close_replicas(now, CloseReason::HistoryChanged);
        }
        self.finish_failover();
        self.outputs.push_back(Output::Linked { db: self.link_db });
        self.log(Event::LinkContinued);
    }

    fn begin_transfer(&mut self, history: Option<(ReplicationId, u64)>) {
        let Some(link) = &mut self.link else { return };
        link.state = LinkState::Transfer;
        link.speaks_psync = history.is_some();
        link.sync = Some(FullSync { history });
        link.intake.expect_payload();
        self.log(Event::LinkTransfer(history));
        self.finish_failover();
    }

    /// The payload is the data now, with `db` selected in its stream; or it could not be loaded.
    pub fn handle_loaded(&mut self, now: Moment, loaded: Option<usize>) {
        let Some(link) = &self.link else { return };
        let is_cut = match link.state {
            LinkState::Loading { is_cut } => is_cut,
            // What has come of it is enough to know that it is of no use.
            LinkState::Transfer if loaded.is_none() => false,
            _ => return,
        };
        let Some(db) = loaded else {
            return self.fail_load(now);
        };
        self.handle_data_forgotten(now);
        let Some(link) = &mut self.link else { return };
        match link.sync.take().and_then(|sync| sync.history) {
            Some((id, offset)) => self.history.replace(id, offset),
            None => {
                let id = ReplicationId::draw(&mut self.secrets);
                self.history.replace(id, 0);
            }
        }
        (link.heard_at, link.synced_at) = (now, now);
        (link.failed_loads, link.refused_loads) = (0, 0);
        self.link_db = db;
        self.create_backlog();
        self.log(Event::LinkSynced);
        if is_cut {
            return self.begin_again(now, now);
        }
        if let Some(link) = &mut self.link {
            link.state = LinkState::Connected;
            link.down_since = None;
            link.intake.expect_stream();
        }
        self.outputs.push_back(Output::Linked { db });
        self.send_ack();
    }

    /// The payload is whole, and something in it is not taken here: the next one is likely to have
    /// it, too. In place of [`handle_loaded`](Self::handle_loaded).
    pub fn handle_refused(&mut self, now: Moment) {
        let Some(link) = &mut self.link else { return };
        if !matches!(link.state, LinkState::Transfer | LinkState::Loading { .. }) {
            return;
        }
        link.refused_loads += 1;
        let is_last = link.refused_loads >= REFUSED_LOADS_MAX;
        self.fail_load(now);
        if is_last {
            self.stop_link(LinkFault::Unreadable);
        }
    }

    /// Nothing more is asked for. The link is closed already.
    fn stop_link(&mut self, fault: LinkFault) {
        if let Some(link) = &mut self.link {
            link.state = LinkState::Stopped;
        }
        self.log(Event::LinkStopped(fault));
    }

    fn fail_load(&mut self, now: Moment) {
        let Some(link) = &mut self.link else { return };
        let pause = link.pause_after_failed_load();
        self.log(Event::LinkFailed(LinkFault::Unreadable));
        self.outputs.push_back(Output::LinkClose);
        self.begin_again(now, now + pause);
    }

    /// The next request of the primary's stream, to be applied and then confirmed by
    /// [`handle_applied`](Self::handle_applied).
    pub fn next_request(&mut self, now: Moment) -> Option<Request<'_>> {
        if !self.is_linked() {
            return None;
        }
        // Asked twice, because what is returned borrows from all of this.
        if let Err(fault) = self.link.as_mut()?.intake.find_request(self.settings.intake_max) {
            self.fail_link(now, fault);
            return None;
        }
        self.link.as_ref()?.intake.found_request()
    }

    /// The request was applied by a session that has `db` selected now. Within a transaction
    /// nothing counts until it ends.
    pub fn handle_applied(&mut self, now: Moment, db: usize, transaction: Transaction) {
        let Some(link) = &mut self.link else { return };
        if link.state != LinkState::Connected {
            return;
        }
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        link.intake.applied(transaction, |raw| bytes.extend_from_slice(raw));
        if transaction == Transaction::Closed {
            self.link_db = db;
            self.append(now, &bytes);
        }
        self.keep_scratch(bytes);
    }

    /// The request cannot be applied, and nothing behind it may be. It is asked for again, since an
    /// operator may change that.
    pub fn handle_inapplicable(&mut self, now: Moment) {
        self.fail_link(now, LinkFault::Inapplicable);
    }

    /// The request waits for its EXEC, and `memory` is behind all that do.
    pub fn handle_queued(&mut self, now: Moment, db: usize, memory: usize) {
        if memory > self.settings.transaction_max {
            return self.fail_link(now, LinkFault::TooLong);
        }
        self.handle_applied(now, db, Transaction::Open);
    }

    /// The request was to change data, and failed here, or a part of it did. Whoever confirmed what
    /// follows would be counted as having it: nothing describes the data any more, and all of the
    /// primary's is asked for, less often each time. Where clients may write to this replica, its
    /// data is not the primary's anyway, and it goes on.
    pub fn handle_failed_write(&mut self, now: Moment, db: usize) {
        if !self.settings.read_only {
            return self.handle_applied(now, db, Transaction::Closed);
        }
        let Some(link) = &mut self.link else { return };
        if link.state != LinkState::Connected {
            return;
        }
        let pause = link.pause_after_failed_write(now);
        let is_last = link.failed_writes >= FAILED_WRITES_MAX;
        self.handle_data_forgotten(now);
        self.log(Event::LinkFailed(LinkFault::FailedWrite));
        self.outputs.push_back(Output::LinkClose);
        self.begin_again(now, now + pause);
        if is_last {
            self.stop_link(LinkFault::FailedWrite);
        }
    }

    /// `REPLCONF GETACK` in the stream: the answer tells what was applied before it.
    pub fn handle_getack(&mut self) {
        if self.is_linked() {
            self.send_ack();
        }
    }

    fn send_ack(&mut self) {
        if self.link.as_ref().is_some_and(|link| link.speaks_psync) {
            let offset = self.history.offset().to_string();
            self.send_words(&[b"REPLCONF", b"ACK", offset.as_bytes()]);
        }
    }

    /// The once-a-second work of the link.
    pub(crate) fn tick_link(&mut self, now: Moment) {
        let timeout = self.settings.timeout;
        let Some(link) = &self.link else { return };
        let is_silent = now.since(link.heard_at) > timeout;
        match link.state {
            LinkState::Connect { .. } | LinkState::Stopped => {}
            LinkState::Loading { is_cut: true } => {}
            LinkState::Loading { is_cut: false } => {
                self.outputs.push_back(Output::LinkSend(b"\n".to_vec()));
            }
            _ if is_silent => self.fail_link(now, LinkFault::Silent),
            LinkState::Connected => self.send_ack(),
            _ => {}
        }
    }

    pub(crate) fn fail_link(&mut self, now: Moment, fault: LinkFault) {
        self.log(Event::LinkFailed(fault));
        self.close_and_retry(now);
    }

    /// Forgets what was read and not applied, and connects anew at `at`.
    fn begin_again(&mut self, now: Moment, at: Moment) {
        let Some(link) = &mut self.link else { return };
        if matches!(link.state, LinkState::Transfer | LinkState::Loading { .. }) {
            self.outputs.push_back(Output::DropPayload);
        }
        let was_asked = link.awaits_psync_answer();
        // The data is as old as the last word of the primary, whenever the loss was noticed.
        let was_linked = link.state == LinkState::Connected;
        link.down_since.get_or_insert(if was_linked { link.heard_at } else { now });
        link.reset(at);
        if was_asked {
            self.remember_unanswered_failover();
        }
    }

    /// This server follows nobody, or somebody else.
    pub(crate) fn end_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        if matches!(link.state, LinkState::Transfer | LinkState::Loading { .. }) {
            self.outputs.push_back(Output::DropPayload);
        }
        if !matches!(link.state, LinkState::Connect { .. } | LinkState::Stopped) {
            self.outputs.push_back(Output::LinkClose);
        }
    }

    fn send_words(&mut self, words: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.outputs.push_back(Output::LinkSend(bytes));
    }
}

/// Whether a request of the stream asks how much was applied: it is no write, and is answered by
/// [`Replication::handle_getack`].
pub fn asks_for_ack(request: Request<'_>) -> bool {
    let is_word = |at: usize, word: &[u8]| request.arg(at).eq_ignore_ascii_case(word);
    request.len() == 3 && is_word(0, b"REPLCONF") && is_word(1, b"GETACK")
}

/// How long to wait after the `count`th failure in a row: each time twice as long.
fn pause_after(count: u32) -> Duration {
    let pause = 1_u32.checked_shl(count - 1).unwrap_or(u32::MAX);
    RETRY_AFTER.saturating_mul(pause).min(RETRY_AFTER_MAX)
}

/// Errors to PING that only say that a login comes first.
fn may_go_on(line: &[u8]) -> bool {
    [&b"-NOAUTH"[..], b"-NOPERM", b"-ERR operation not permitted"]
        .iter()
        .any(|prefix| line.starts_with(prefix))
}

/// A primary's words, fit for a log.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(TEXT_MAX)]);
    text.escape_debug().to_string()
}
