//! One connected client: its stream, and the bytes between stream and engine.

use std::io::{self, IoSlice, Read, Write};

use store_engine::SessionId;
use store_resp::{Output, OwnedRequest, RequestParser};

use crate::stream::Stream;

/// A buffer that grew beyond this for one large request or reply is given back afterwards.
const KEPT_CAPACITY_MAX: usize = 64 * 1024;
/// An output buffer that grew beyond this goes to whoever writes much next, unless there is one
/// already: so many such clients use one that stays in the processor's cache.
pub(crate) const OWN_OUTPUT_MAX: usize = 16 * 1024;
/// A buffer that grew beyond this for one large reply is given back to the system.
const SPARE_OUTPUT_MAX: usize = 256 * 1024;

/// Replies of this length that a client does not take are kept without spare room behind them.
const SEALED_MIN: usize = 64 * 1024;
/// A read of a large argument that brings less than this has emptied the stream, most likely.
const DRAINED_MIN: usize = 16 * 1024;
/// Pieces given to the system at once.
const SLICES_MAX: usize = 16;

/// Whether and when a client is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseState {
    /// Not yet.
    Open,
    /// As soon as its output is written.
    AfterOutput,
    /// At the end of the turn.
    Now,
}

/// Bytes that came and wait. What is done with goes by large pieces: to move the rest for each
/// request would take as long as there are requests, each time.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// Where those begin that are not done with.
    start: usize,
}

impl Input {
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn reserve(&mut self, count: usize) {
        self.bytes.reserve(count);
    }

    /// So many at the front are done with.
    fn drop_front(&mut self, count: usize) {
        self.start += count;
        if self.is_empty() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_CAPACITY_MAX {
                self.bytes = Vec::new();
            }
        } else if self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: Stream,
    pub(crate) session: SessionId,
    pub(crate) parser: RequestParser,
    /// A request with large arguments that has to wait for the end of a pause.
    pub(crate) parked: Option<OwnedRequest>,
    /// Bytes that are no whole request yet, or wait for the session to be free.
    pub(crate) input: Input,
    pub(crate) closing: CloseState,
    /// Whether it is in the list of clients to write to.
    pub(crate) wants_write: bool,
    /// Whether the stream took less than it was given: there will be an event when it takes more.
    pub(crate) is_choked: bool,
    /// Whether bytes of it wait to be run in this turn.
    pub(crate) has_arrived: bool,
    /// Whether it is in the list of clients to read from in the next turn.
    pub(crate) waits_to_read: bool,
    /// Whether the stream may have more to read.
    pub(crate) may_read: bool,
    /// Since when its output has been beyond the soft limit, unix milliseconds.
    pub(crate) over_soft_since_ms: Option<u64>,
    /// Bytes it was last found to hold.
    pub(crate) counted_memory: usize,
}

/// What a read came to.
pub(crate) enum ReadOutcome {
    /// So many bytes at the front of the buffer.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The client is gone.
    Ended,
    /// The client is gone, or sends what makes no sense to TLS.
    Failed(io::Error),
}

impl Client {
    pub(crate) fn new(stream: Stream, session: SessionId) -> Self {
        Self {
            stream,
            session,
            parser: RequestParser::taking_large(),
            parked: None,
            input: Input::default(),
            closing: CloseState::Open,
            wants_write: false,
            is_choked: false,
            has_arrived: false,
            waits_to_read: false,
            may_read: true,
            over_soft_since_ms: None,
            counted_memory: 0,
        }
    }

    /// Reads once, straight into a large argument that is not whole yet. `None` when there is no
    /// such argument, or the stream cannot do it.
    pub(crate) fn read_large(&mut self) -> Option<ReadOutcome> {
        let large = self.parser.large_mut()?;
        let missing = large.missing();
        let body = large.body_mut()?;
        let outcome = self.stream.read_onto(body)?;
        Some(match outcome {
            Ok(0) => ReadOutcome::Ended,
            Ok(count) => {
                large.take_rest(&mut self.input.bytes);
                self.may_read = count >= missing.min(DRAINED_MIN);
                ReadOutcome::Bytes(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.may_read = false;
                ReadOutcome::Nothing
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => ReadOutcome::Bytes(0),
            Err(error) => ReadOutcome::Failed(error),
        })
    }

    /// Reads once into `buffer`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> ReadOutcome {
        loop {
            return match self.stream.read(buffer) {
                Ok(0) => ReadOutcome::Ended,
                Ok(count) => {
                    // Less than asked for means that the stream is empty: the next bytes will
                    // come with an event, so asking again would be a system call in vain.
                    self.may_read = count == buffer.len() || self.stream.has_ended();
                    ReadOutcome::Bytes(count)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.may_read = false;
                    ReadOutcome::Nothing
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => ReadOutcome::Failed(error),
            };
        }
    }

    /// Writes as much of `output` as the stream takes, and leaves a large buffer that it does not
    /// need any more in `spare`. Fails when the client is gone.
    pub(crate) fn write(&mut self, output: &mut Output, spare: &mut Vec<u8>) -> io::Result<usize> {
        let mut total = 0;
        self.is_choked = false;
        while !output.is_empty() {
            match self.write_some(output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    output.advance(count);
                    total += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_choked = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.stream.has_unsent() {
            match self.stream.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_choked = true,
                sent => sent?,
            }
        }
        match output.is_empty() {
            true => drop_written(output, spare),
            false => output.settle(SEALED_MIN),
        }
        Ok(total)
    }

    #[inline]
    fn write_some(&mut self, output: &Output) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        match output.next_slices(&mut slices) {
            1 => self.stream.write(&slices[0]),
            count => self.stream.write_vectored(&slices[..count]),
        }
    }

    /// Whether it matters that the stream takes bytes again.
    pub(crate) fn awaits_room(&self) -> bool {
        // A handshake writes by itself.
        self.is_choked || matches!(self.stream, Stream::Tls(_))
    }

    /// Bytes of requests that are not whole yet, and the memory set aside for them.
    pub(crate) fn query_bytes(&self) -> (usize, usize) {
        let (large, large_capacity) = self.parser.large_bytes();
        let parked = self.parked.as_ref().map_or(0, OwnedRequest::memory);
        (self.input.len() + large + parked, self.input.bytes.capacity() + large_capacity + parked)
    }

    /// Keeps what was neither consumed of the bytes in `input`, nor taken by the parser.
    pub(crate) fn drop_consumed(&mut self, consumed: usize) {
        let taken = self.parser.take_taken();
        let kept = self.input.len().saturating_sub(taken).max(consumed);
        self.input.bytes.truncate(self.input.start + kept);
        self.input.drop_front(consumed);
    }
}

/// All is written: a buffer that grew goes to whoever writes much next, or is given back.
fn drop_written(output: &mut Output, spare: &mut Vec<u8>) {
    let capacity = output.capacity();
    let is_wanted = spare.capacity() == 0 && capacity <= SPARE_OUTPUT_MAX;
    if capacity > OWN_OUTPUT_MAX && is_wanted {
        *spare = output.take_buffer();
    } else if capacity > KEPT_CAPACITY_MAX {
        output.clear();
    }
}
