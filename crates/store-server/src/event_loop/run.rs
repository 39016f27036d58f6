//! Requests: parsed ahead in batches, run in order, measured together.

use std::ops::Range;
use std::time::Duration;

use store_engine::{Applied, Engine, ExecuteOutcome, LogLevel, SessionId, session_flag};
use store_resp::{Limits, Parsed, ProtocolError, Request};

use super::write::limit_of;
use super::{EventLoop, UNAUTHENTICATED_OUTPUT_MAX};
use crate::busy::BusyLoop;
use crate::client::{Client, CloseState, OWN_OUTPUT_MAX};

/// Requests of one client parsed ahead, so that their memory is fetched while others run.
const BATCH_MAX: usize = 16;
/// Quick requests run between two looks at the clock: a few microseconds.
const QUICK_MAX: usize = 64;

/// A turn that has lasted this long may have been too long for the other nodes of a cluster.
const LONG_TURN_US: u64 = 100_000;
/// Replies of one client that are written while its further requests have yet to run.
const EARLY_WRITE_LEN: usize = 64 * 1024;

/// A parsed request that waits for its turn in the batch.
pub(super) struct Pending {
    start: usize,
    end: usize,
    spans: Range<usize>,
}

/// Why no more requests were gathered.
enum Gathered {
    /// The batch is full, or what follows must wait.
    Full,
    /// What follows from `start` on is no whole request.
    Incomplete { start: usize },
    /// What follows is no request at all.
    Malformed(ProtocolError),
}

impl EventLoop {
    /// Runs requests until one is incomplete or the session cannot go on. Returns how many
    /// bytes are done with.
    pub(super) fn run_requests(&mut self, client: &mut Client, bytes: &[u8]) -> usize {
        let Some(session) = self.engine.session_mut(client.session) else { return bytes.len() };
        if session.has(session_flag::BLOCKED) {
            return 0;
        }
        if session.has(session_flag::REPLICA) {
            self.replication.hear(client.session);
        } else {
            session.output.lend(&mut self.spare_output);
        }
        if client.parked.is_some() && !self.run_parked(client) {
            return 0;
        }
        let mut consumed = 0;
        while client.closing == CloseState::Open {
            let end = self.gather(client, bytes, consumed);
            let ran = self.run_batch(client, bytes, &mut consumed);
            if self.is_past_hard_limit(client) {
                self.log(LogLevel::Warning, "Closing client that asks for more than it reads");
                client.closing = CloseState::Now;
                self.clients.to_close.push(client.session.slot());
                return bytes.len();
            }
            self.write_early(client, EARLY_WRITE_LEN);
            match (ran, end) {
                (ExecuteOutcome::Blocked | ExecuteOutcome::Postponed, _) => {
                    client.parser.reset();
                    break;
                }
                // What else it sent does not matter any more.
                (ExecuteOutcome::Closing, _) => {
                    consumed = bytes.len();
                    break;
                }
                (ExecuteOutcome::Ready | ExecuteOutcome::Rest, Gathered::Full) => {
                    client.parser.clear()
                }
                (ExecuteOutcome::Ready | ExecuteOutcome::Rest, Gathered::Incomplete { start }) => {
                    client.parser.clear();
                    consumed = start;
                    break;
                }
                (ExecuteOutcome::Ready | ExecuteOutcome::Rest, Gathered::Malformed(error)) => {
                    self.refuse(client, error);
                    consumed = bytes.len();
                }
            }
        }
        self.write_early(client, OWN_OUTPUT_MAX);
        self.clients.want_write(client);
        consumed
    }

    /// Whether replies that wait for the client are beyond its hard limit: asked after each
    /// batch, since one read can ask for any amount of them.
    fn is_past_hard_limit(&mut self, client: &Client) -> bool {
        let limits = self.engine.config().settings().clients.output_limits;
        let Some(session) = self.engine.session_mut(client.session) else { return false };
        let unread = session.output.unread();
        let hard = match session.has(session_flag::NEEDS_AUTH) {
            true => UNAUTHENTICATED_OUTPUT_MAX,
            false => limit_of(&limits, session).hard,
        };
        hard > 0 && unread > hard
    }

    /// Parses the next requests of a client, as many as are run at once.
    fn gather(&mut self, client: &mut Client, bytes: &[u8], start: usize) -> Gathered {
        self.batch.clear();
        let authenticated = self.is_authenticated(client.session);
        let bulk_max = self.engine.config().settings().clients.bulk_max;
        let limits = Limits { authenticated, bulk_max, ..Limits::default() };
        let mut at = start;
        while self.batch.len() < BATCH_MAX {
            let rest = &bytes[at..];
            // The parser keeps one inline request, so such a one runs alone.
            let is_inline = !rest.is_empty() && rest[0] != b'*';
            if is_inline && !self.batch.is_empty() {
                break;
            }
            match client.parser.parse(rest, &limits) {
                Ok(Parsed::Incomplete) => return Gathered::Incomplete { start: at },
                Ok(Parsed::Empty { consumed }) => at += consumed,
                Ok(Parsed::Request { consumed }) => {
                    let spans = client.parser.last_spans();
                    self.batch.push(Pending { start: at, end: at + consumed, spans });
                    at += consumed;
                    // Logging in changes what the next request may be.
                    if is_inline || !authenticated {
                        break;
                    }
                }
                Err(error) => return Gathered::Malformed(error),
            }
        }
        Gathered::Full
    }

    /// Runs the gathered requests, as far as the session goes along.
    fn run_batch(
        &mut self,
        client: &mut Client,
        bytes: &[u8],
        consumed: &mut usize,
    ) -> ExecuteOutcome {
        let id = client.session;
        let batch = std::mem::take(&mut self.batch);
        let parser = &client.parser;
        let request =
            |pending: &Pending| parser.request_at(&bytes[pending.start..], pending.spans.clone());
        if batch.len() > 1 {
            self.engine.prefetch(id, batch.iter().map(request));
        }
        let mut outcome = ExecuteOutcome::Ready;
        for pending in &batch {
            let request = request(pending);
            if self.engine.has_units() && self.engine.tells_offset(request) {
                self.feed_early();
            }
            outcome = match self.engine.needs_busy_handler(request) {
                true => self.execute_with(id, request),
                false => self.engine.execute(self.now_us, id, request),
            };
            if outcome == ExecuteOutcome::Postponed {
                // Its bytes stay, and are read again when the session is resumed; large arguments
                // are no longer among them.
                *consumed = pending.start;
                if request.has_shared() {
                    client.parked = Some(request.to_owned());
                    *consumed = pending.end;
                }
                break;
            }
            if outcome == ExecuteOutcome::Rest {
                std::thread::sleep(Duration::from_micros(self.engine.effects().rest_us));
                outcome = ExecuteOutcome::Ready;
            }
            *consumed = pending.end;
            if !self.engine.was_quick(request) || self.engine.unmeasured() == QUICK_MAX {
                self.measure_requests(Some((id, request)));
            }
            if outcome != ExecuteOutcome::Ready {
                break;
            }
        }
        self.batch = batch;
        outcome
    }

    /// Runs a request that was held back. False when it is held back again, or the client cannot
    /// go on after it.
    #[cold]
    fn run_parked(&mut self, client: &mut Client) -> bool {
        let Some(parked) = client.parked.take() else { return true };
        let request = parked.as_request();
        let outcome = match self.engine.needs_busy_handler(request) {
            true => self.execute_with(client.session, request),
            false => self.engine.execute(self.now_us, client.session, request),
        };
        if outcome == ExecuteOutcome::Postponed {
            client.parked = Some(parked);
            return false;
        }
        self.measure_requests(Some((client.session, request)));
        self.clients.want_write(client);
        matches!(outcome, ExecuteOutcome::Ready | ExecuteOutcome::Rest)
    }

    /// Runs a request that may take long, serving other clients meanwhile.
    fn execute_with(&mut self, id: SessionId, request: Request<'_>) -> ExecuteOutcome {
        self.with_busy_loop(|engine, now_us, busy_loop| {
            engine.execute_with(now_us, id, request, busy_loop)
        })
    }

    /// The same for a request of the primary.
    pub(super) fn apply_with(&mut self, id: SessionId, request: Request<'_>) -> Applied {
        self.with_busy_loop(|engine, now_us, busy_loop| {
            engine.apply_request_with(now_us, id, request, busy_loop)
        })
    }

    fn with_busy_loop<T>(
        &mut self,
        run: impl FnOnce(&mut Engine, u64, &mut BusyLoop<'_>) -> T,
    ) -> T {
        self.hand_out_arrivals();
        let mut busy_loop = BusyLoop {
            poll: &mut self.poll,
            clients: &mut self.clients,
            acceptor: &mut self.acceptor,
            messages: &self.messages,
            clock: &self.clock,
            persistence: &mut self.persistence,
            running: self.running,
            peers: &mut self.peers,
            replication: &mut self.replication,
            migrations: &mut self.migrations,
            nodes_written: &mut self.nodes_written,
            cluster: self.cluster.as_mut().filter(|driver| driver.is_started),
            may_write: true,
            is_stopping: &mut self.is_stopping,
            stop_signal: &mut self.stop_signal,
            is_forced: &self.shared.is_forced,
            scratch: None,
        };
        let outcome = run(&mut self.engine, self.now_us, &mut busy_loop);
        let was_busy = busy_loop.scratch.is_some();
        self.follow_acceptor();
        if was_busy {
            // The system tells each event once, and told these while the script ran.
            self.peers.look_everywhere(self.poll.registry(), self.running.millis());
            self.look_at_bus();
        }
        outcome
    }

    /// Reads the clock, and charges the time since it was last read to what ran meanwhile.
    pub(super) fn measure_requests(&mut self, last: Option<(SessionId, Request<'_>)>) {
        let before = std::mem::replace(&mut self.now_us, self.clock.now_us());
        self.engine.finish(last, self.now_us - before);
        if self.now_us - self.turn_started_us > LONG_TURN_US {
            // Another node may have taken its place meanwhile.
            self.tell_cluster_time();
        }
    }

    pub(super) fn is_authenticated(&mut self, id: SessionId) -> bool {
        let session = self.engine.session_mut(id);
        session.is_some_and(|session| !session.has(session_flag::NEEDS_AUTH))
    }

    fn refuse(&mut self, client: &mut Client, error: ProtocolError) {
        if let Some(session) = self.engine.session_mut(client.session) {
            let line = format!("-ERR Protocol error: {error}\r\n");
            session.output.extend_from_slice(line.as_bytes());
        }
        client.closing = CloseState::AfterOutput;
    }
}
