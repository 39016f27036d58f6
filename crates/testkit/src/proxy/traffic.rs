//! What was sent through the proxy, so that a test can say what must never have been.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::rule::{Direction, PerDirection};

/// Per direction. Older traffic is forgotten; a test that asks about it is told so.
const REMEMBERED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A moment in the traffic: see [`Proxy::mark`](super::Proxy::mark).
#[derive(Debug, Clone, Copy, Default)]
pub struct Mark(PerDirection<u64>);

/// What one direction carried, in the order in which it was sent. Swallowed bytes are among it.
#[derive(Debug, Clone)]
pub struct Traffic {
    pieces: Vec<Piece>,
    complete: bool,
}

/// Bytes of one connection that the proxy read at once.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The connection: the first that was accepted is 1.
    pub connection: u64,
    /// When the proxy read them.
    pub read_at: Instant,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Traffic {
    /// Whether one connection carried this text, be it in several pieces.
    ///
    /// # Panics
    /// When it is not there but older traffic has been forgotten, so that nobody can tell. Ask
    /// since a later mark.
    #[must_use]
    #[track_caller]
    pub fn contains(&self, text: impl AsRef<[u8]>) -> bool {
        let text = text.as_ref();
        let found = self.streams().values().any(|stream| holds(stream, text));
        assert!(found || self.complete, "the traffic's oldest part is forgotten: cannot tell");
        found
    }

    /// The pieces one by one.
    ///
    /// # Panics
    /// When older traffic has been forgotten.
    #[must_use]
    #[track_caller]
    pub fn pieces(&self) -> &[Piece] {
        assert!(self.complete, "the traffic's oldest part is forgotten: ask since a later mark");
        &self.pieces
    }

    /// Whether there was none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.complete
    }

    /// The bytes of each connection, joined.
    #[must_use]
    pub fn streams(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut streams = BTreeMap::<u64, Vec<u8>>::new();
        for piece in &self.pieces {
            streams.entry(piece.connection).or_default().extend(&piece.bytes);
        }
        streams
    }
}

fn holds(stream: &[u8], text: &[u8]) -> bool {
    text.is_empty() || stream.windows(text.len()).any(|window| window == text)
}

/// The proxy's memory of what it read.
#[derive(Debug, Default)]
pub(super) struct TrafficLog(PerDirection<OneWay>);

#[derive(Debug, Default)]
struct OneWay {
    pieces: VecDeque<Piece>,
    remembered: usize,
    /// All bytes ever read.
    total: u64,
}

impl TrafficLog {
    pub(super) fn add(&mut self, direction: Direction, piece: Piece) {
        let log = &mut self.0[direction];
        log.total += piece.bytes.len() as u64;
        log.remembered += piece.bytes.len();
        log.pieces.push_back(piece);
        while log.remembered > REMEMBERED_BYTES_MAX {
            let oldest = log.pieces.pop_front().expect("bytes are remembered in pieces");
            log.remembered -= oldest.bytes.len();
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(PerDirection::new(
            self.0[Direction::ToServer].total,
            self.0[Direction::ToClient].total,
        ))
    }

    pub(super) fn since(&self, mark: Mark, direction: Direction) -> Traffic {
        let log = &self.0[direction];
        let mark = mark.0[direction];
        let mut begins_at = log.total - log.remembered as u64;
        let complete = begins_at <= mark;
        // Marks are taken between two reads, so they never fall into a piece.
        let mut pieces = Vec::new();
        for piece in &log.pieces {
            if begins_at >= mark {
                pieces.push(piece.clone());
            }
            begins_at += piece.bytes.len() as u64;
        }
        Traffic { pieces, complete }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(connection: u64, bytes: &[u8]) -> Piece {
        Piece { connection, read_at: Instant::now(), bytes: bytes.to_vec() }
    }

    #[test]
    fn a_word_is_found_across_the_pieces_of_one_connection_only() {
        let mut log = TrafficLog::default();
        log.add(Direction::ToServer, piece(1, b"SET ow"));
        log.add(Direction::ToServer, piece(2, b"PING ne"));
        log.add(Direction::ToServer, piece(1, b"ner"));
        let traffic = log.since(Mark::default(), Direction::ToServer);
        assert!(traffic.contains("owner"));
        assert!(!traffic.contains("owne ner"));
        assert!(!traffic.contains("ner PING"), "words do not run across connections");
        assert!(log.since(Mark::default(), Direction::ToClient).is_empty());
    }

    #[test]
    fn traffic_before_a_mark_is_left_out() {
        let mut log = TrafficLog::default();
        log.add(Direction::ToServer, piece(1, b"before"));
        let mark = log.mark();
        log.add(Direction::ToServer, piece(1, b"after"));
        let traffic = log.since(mark, Direction::ToServer);
        assert!(traffic.contains("after") && !traffic.contains("before"));
    }

    #[test]
    #[should_panic(expected = "cannot tell")]
    fn nobody_claims_to_know_what_was_forgotten() {
        let mut log = TrafficLog::default();
        log.add(Direction::ToServer, piece(1, b"forgotten"));
        log.add(Direction::ToServer, piece(1, &vec![b'x'; REMEMBERED_BYTES_MAX]));
        let _ = log.since(Mark::default(), Direction::ToServer).contains("forgotten");
    }

    #[test]
    fn what_was_forgotten_before_a_mark_does_no_harm() {
        let mut log = TrafficLog::default();
        log.add(Direction::ToServer, piece(1, &vec![b'x'; REMEMBERED_BYTES_MAX]));
        let mark = log.mark();
        log.add(Direction::ToServer, piece(1, b"new"));
        assert!(!log.since(mark, Direction::ToServer).contains("xx"));
    }
}
