//! One direction of one connection: read, wait, write.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::rule::Rule;

/// What one read takes at most.
const READ_BYTES_MAX: usize = 16 * 1024;

/// What waits in one direction of one connection at most; then the sender has to wait.
const QUEUED_BYTES_MAX: usize = 1024 * 1024;

/// Bytes on their way from one socket to the other.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    queue: VecDeque<Chunk>,
    queued: usize,
    /// Not before this moment, for the pause between slices.
    next_write_at: Option<Instant>,
    /// Bytes passed on since the rule was set.
    moved: u64,
    /// How the sender ended, and when the other side is to know.
    source_end: Option<(End, Instant)>,
    /// The other side was told of the end, or takes no more.
    finished: bool,
}

#[derive(Debug)]
struct Chunk {
    due_at: Instant,
    bytes: Vec<u8>,
    written: usize,
}

/// How a sender ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

/// What a turn of writing came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Go on.
    Going,
    /// The limit of the rule is reached: cut.
    LimitReached,
    /// The sender reset the connection: do so, too.
    Reset,
}

impl Pipe {
    pub(super) fn rule_changed(&mut self) {
        self.moved = 0;
        self.next_write_at = None;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    pub(super) fn wants_to_read(&self, rule: Rule) -> bool {
        let has_room = self.queued < QUEUED_BYTES_MAX;
        self.source_end.is_none() && !self.finished && has_room && rule != Rule::HalfOpen
    }

    /// When there is something to write or to swallow or an end to tell, if the rule says so.
    pub(super) fn wants_to_write_at(&self, rule: Rule, now: Instant) -> Option<Instant> {
        if self.finished || rule == Rule::HalfOpen {
            return None;
        }
        if rule == Rule::Swallow {
            return (!self.queue.is_empty()).then_some(now);
        }
        let due_at = match (self.queue.front(), self.source_end) {
            (Some(chunk), _) => chunk.due_at,
            (None, Some((_, due_at))) => due_at,
            (None, None) => return None,
        };
        Some(due_at.max(self.next_write_at.unwrap_or(due_at)))
    }

    /// Reads once, and returns what came.
    pub(super) fn read(&mut self, mut source: &TcpStream, rule: Rule) -> Option<Vec<u8>> {
        let mut bytes = vec![0; READ_BYTES_MAX];
        let outcome = source.read(&mut bytes);
        let due_at = match rule {
            Rule::Delay(delay) => Instant::now() + delay,
            _ => Instant::now(),
        };
        match outcome {
            Ok(0) => self.source_end = Some((End::Closed, due_at)),
            Ok(count) => {
                bytes.truncate(count);
                self.queued += count;
                self.queue.push_back(Chunk { due_at, bytes: bytes.clone(), written: 0 });
                return Some(bytes);
            }
            Err(error) if is_for_later(error.kind()) => {}
            Err(_) => self.source_end = Some((End::Reset, due_at)),
        }
        None
    }

    /// Writes or swallows what is due, at most `bytes_max`, and adds its length to `moved`.
    pub(super) fn flush(
        &mut self,
        sink: &TcpStream,
        rule: Rule,
        bytes_max: u64,
        moved: &mut u64,
    ) -> Flushed {
        let moved_max = *moved + bytes_max;
        let now = Instant::now();
        while self.wants_to_write_at(rule, now).is_some_and(|at| at <= now) {
            if self.is_at_limit(rule) {
                return Flushed::LimitReached;
            }
            if self.queue.is_empty() {
                return self.forward_end(sink);
            }
            let room = usize::try_from(moved_max - *moved).unwrap_or(usize::MAX);
            let Some(written) = self.write_once(sink, rule, room) else { break };
            *moved += written as u64;
        }
        if self.is_at_limit(rule) { Flushed::LimitReached } else { Flushed::Going }
    }

    fn is_at_limit(&self, rule: Rule) -> bool {
        matches!(rule, Rule::CutAfter { bytes, .. } if self.moved >= bytes)
    }

    /// `None` when nothing can be written now.
    fn write_once(&mut self, mut sink: &TcpStream, rule: Rule, room: usize) -> Option<usize> {
        let chunk = self.queue.front_mut()?;
        let rest = &chunk.bytes[chunk.written..];
        let piece_max = match rule {
            Rule::Slice { bytes, .. } => bytes.max(1),
            Rule::CutAfter { bytes, .. } => {
                usize::try_from(bytes - self.moved).unwrap_or(usize::MAX)
            }
            _ => rest.len(),
        };
        let piece = &rest[..rest.len().min(piece_max).min(room)];
        if piece.is_empty() {
            return None;
        }
        if rule == Rule::Swallow {
            let swallowed = piece.len();
            self.account(swallowed, rule);
            return Some(swallowed);
        }
        match sink.write(piece) {
            Ok(written) => {
                self.account(written, rule);
                Some(written)
            }
            Err(error) if is_for_later(error.kind()) => None,
            Err(_) => {
                // The receiver is gone. Its own direction reads the reset and passes it on.
                self.finished = true;
                None
            }
        }
    }

    fn account(&mut self, written: usize, rule: Rule) {
        let chunk = self.queue.front_mut().expect("a chunk was just written from");
        chunk.written += written;
        if chunk.written == chunk.bytes.len() {
            self.queue.pop_front();
        }
        self.queued -= written;
        self.moved += written as u64;
        if let Rule::Slice { pause, .. } = rule {
            self.next_write_at = Some(Instant::now() + pause);
        }
    }

    fn forward_end(&mut self, sink: &TcpStream) -> Flushed {
        self.finished = true;
        match self.source_end {
            Some((End::Reset, _)) => Flushed::Reset,
            _ => {
                // A receiver that is gone already need not be told.
                let _ = sink.shutdown(std::net::Shutdown::Write);
                Flushed::Going
            }
        }
    }
}

/// `NotConnected`: the connection to the server is not there yet.
fn is_for_later(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}
