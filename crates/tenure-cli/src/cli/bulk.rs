//! `--pipe`: commands from standard input in bulk, with progress.
//!
//! Requests go out and replies come in at the same time, so that neither side waits for the other
//! with full buffers. An ECHO of random words at the end tells that the last reply is there.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use store_resp::{Limits, Parsed, ProtocolError, RequestParser};

use super::args::Work;
use super::client::{RequestOutcome, print};
use super::clock::Stopwatch;
use super::connection::{Connection, encode};
use super::error::ClientError;
use super::progress::{Done, Progress};
use super::target::Target;
use crate::output;

/// Bytes of input read at once.
const READ_MAX: usize = 64 * 1024;
/// Above this many bytes that wait to be sent, no input is read.
const UNSENT_MAX: usize = 256 * 1024;
/// A request longer than this is refused: the store would refuse it, too.
const REQUEST_MAX: usize = 1024 * 1024 * 1024;
/// Errors shown; the rest is only counted.
const ERRORS_SHOWN_MAX: u64 = 10;
/// How often the loop looks up when nothing happens.
const LOOK_UP_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Sends everything and waits for the last reply.
pub(super) fn run(target: &Target, work: &Work) -> Result<RequestOutcome, ClientError> {
    let connection = Connection::open(target)?;
    connection.stream.set_nonblocking(true).map_err(ClientError::Local)?;
    let mut bulk = Bulk {
        connection,
        input: Input::new(),
        unsent: Vec::new(),
        sent: 0,
        marker: marker(),
        state: State::Reading,
        done: Done::default(),
        progress: Progress::new(size_of_input()),
    };
    let outcome = bulk.run(Duration::from_secs(work.pipe_timeout));
    bulk.progress.finish(&bulk.done);
    let Done { replies, errors, .. } = bulk.done;
    print(format!("errors: {errors}, replies: {replies}\n").as_bytes())?;
    outcome?;
    Ok(if errors > 0 { RequestOutcome::ErrorReply } else { RequestOutcome::Fine })
}

/// ```text
/// Reading ── input ends ──► Sending ── all sent ──► Waiting ── ECHO answered ──► Finished
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reading,
    Sending,
    Waiting,
    Finished,
}

struct Bulk {
    connection: Connection,
    input: Input,
    unsent: Vec<u8>,
    /// How much of `unsent` has gone out.
    sent: usize,
    marker: String,
    state: State,
    done: Done,
    progress: Progress,
}

impl Bulk {
    fn run(&mut self, silence_max: Duration) -> Result<(), ClientError> {
        let mut silent_since = Stopwatch::start();
        while self.state != State::Finished {
            let ready = self.wait()?;
            if ready.input {
                self.read_input()?;
            }
            let moved = self.send()? | self.receive()?;
            if moved || self.state == State::Reading {
                silent_since = Stopwatch::start();
            }
            if !silence_max.is_zero() && silent_since.reading() > silence_max {
                let seconds = silence_max.as_secs();
                return Err(ClientError::Lost(format!("silent for {seconds} s")));
            }
            self.progress.tell(&self.done);
        }
        Ok(())
    }

    /// Waits until input, the socket or a moment to look up is there.
    fn wait(&self) -> Result<Ready, ClientError> {
        let wants_input = self.state == State::Reading && self.unsent.len() < UNSENT_MAX;
        let wants_write = !self.unsent.is_empty() || self.connection.stream.wants_write();
        let socket = if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let stdin = io::stdin();
        let mut wanted = [
            PollFd::new(&self.connection.stream, socket),
            PollFd::new(&stdin, if wants_input { PollFlags::IN } else { PollFlags::empty() }),
        ];
        match poll(&mut wanted[..1 + usize::from(wants_input)], Some(&LOOK_UP_EVERY)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ClientError::Local(error.into())),
        }
        Ok(Ready { input: wants_input && !wanted[1].revents().is_empty() })
    }

    fn read_input(&mut self) -> Result<(), ClientError> {
        let count = self.input.read()?;
        self.done.bytes += count as u64;
        while let Some(next) = self.input.next(&mut self.unsent) {
            match next {
                Next::Request => self.done.commands += 1,
                Next::Unreadable(text) => self.tell_error(&text),
                Next::Broken(text) => {
                    self.tell_error(&text);
                    self.state = State::Sending;
                    return Ok(());
                }
            }
        }
        if count == 0 {
            if let Some(text) = self.input.unfinished(self.done.commands) {
                self.tell_error(&text);
            }
            self.state = State::Sending;
        }
        Ok(())
    }

    fn tell_error(&mut self, text: &str) {
        self.done.errors += 1;
        if self.done.errors <= ERRORS_SHOWN_MAX {
            self.progress.make_room();
            eprintln!("tenure cli: {text}");
        }
        if self.done.errors == ERRORS_SHOWN_MAX {
            eprintln!("tenure cli: further errors are only counted");
        }
    }

    /// Sends what the socket takes; true when it took something.
    fn send(&mut self) -> Result<bool, ClientError> {
        if self.state == State::Sending && self.unsent.is_empty() {
            encode(&mut self.unsent, &["ECHO", &self.marker]);
            self.state = State::Waiting;
        }
        let before = self.sent;
        while self.sent < self.unsent.len() {
            match self.connection.stream.write(&self.unsent[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ClientError::Lost(error.to_string())),
            }
        }
        let moved = self.sent > before;
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.unsent.shrink_to(UNSENT_MAX);
            self.sent = 0;
        }
        match self.connection.stream.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                Err(ClientError::Lost(error.to_string()))
            }
            _ => Ok(moved),
        }
    }

    /// Counts what has come back; true when something has.
    fn receive(&mut self) -> Result<bool, ClientError> {
        match self.connection.read_once() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(ClientError::Lost(error.to_string())),
        }
        let last = format!("${}\r\n{}\r\n", self.marker.len(), self.marker).into_bytes();
        let (mut replies, mut is_last, mut failed) = (0, false, Vec::new());
        self.connection.take_frames(|frame| match frame {
            [b'>', ..] => {}
            _ if frame == last => is_last = true,
            [b'-' | b'!', ..] => {
                replies += 1;
                failed.push((replies, text_of(frame)));
            }
            _ => replies += 1,
        })?;
        for (at, text) in failed {
            self.tell_error(&format!("command {}: {text}", self.done.replies + at));
        }
        self.done.replies += replies;
        // Inside MULTI the ECHO is queued, and answered as every command there.
        if self.state == State::Waiting && self.done.replies > self.done.commands {
            self.done.replies = self.done.commands;
            is_last = true;
        }
        if is_last {
            self.state = State::Finished;
        }
        Ok(true)
    }
}

struct Ready {
    input: bool,
}

/// The text of an error reply, on one line and harmless.
fn text_of(frame: &[u8]) -> String {
    let text = String::from_utf8_lossy(&frame[1..]);
    output::plain(text.trim_end())
}

/// Words that no other reply consists of.
fn marker() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("tenure-{:016x}{:016x}", random(), random())
}

/// `None` where standard input is no file.
fn size_of_input() -> Option<u64> {
    let stat = rustix::fs::fstat(io::stdin()).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    is_file.then_some(stat.st_size.unsigned_abs())
}

/// Requests out of standard input, in RESP or as lines.
struct Input {
    bytes: Vec<u8>,
    start: usize,
    parser: RequestParser,
    line: u64,
}

/// What stood next in the input.
enum Next {
    /// A request, which was appended to what is sent.
    Request,
    /// A line that is no command; the next one may be.
    Unreadable(String),
    /// Nothing behind this can be read.
    Broken(String),
}

impl Input {
    fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, parser: RequestParser::default(), line: 1 }
    }

    /// Reads once; 0 at the end. A last line without an end gets one.
    fn read(&mut self) -> Result<usize, ClientError> {
        self.bytes.drain(..self.start);
        self.start = 0;
        let filled = self.bytes.len();
        self.bytes.resize(filled + READ_MAX, 0);
        let outcome = io::stdin().lock().read(&mut self.bytes[filled..]);
        self.bytes.truncate(filled + *outcome.as_ref().unwrap_or(&0));
        let count = outcome.map_err(ClientError::Local)?;
        if count == 0 && self.bytes.first().is_some_and(|first| *first != b'*') {
            self.bytes.push(b'\n');
        }
        Ok(count)
    }

    /// The next request, copied to `out` in RESP. `None` while bytes are missing.
    fn next(&mut self, out: &mut Vec<u8>) -> Option<Next> {
        loop {
            let bytes = &self.bytes[self.start..];
            match self.parser.parse(bytes, &Limits::default()) {
                Ok(Parsed::Incomplete) if bytes.len() > REQUEST_MAX => {
                    return Some(Next::Broken(format!(
                        "line {}: the command is longer than {REQUEST_MAX} bytes",
                        self.line
                    )));
                }
                Ok(Parsed::Incomplete) => return None,
                Ok(Parsed::Empty { consumed }) => self.pass(consumed),
                Ok(Parsed::Request { consumed }) => {
                    if bytes[0] == b'*' {
                        out.extend_from_slice(&bytes[..consumed]);
                    } else {
                        let words: Vec<&[u8]> = self.parser.request(bytes).args_from(0).collect();
                        encode(out, &words);
                    }
                    self.pass(consumed);
                    return Some(Next::Request);
                }
                Err(error) => return Some(self.refuse(error)),
            }
        }
    }

    fn refuse(&mut self, error: ProtocolError) -> Next {
        let text = format!("line {}: {error}", self.line);
        let bytes = &self.bytes[self.start..];
        let end = bytes.iter().position(|byte| *byte == b'\n');
        match end {
            Some(end) if bytes[0] != b'*' => {
                self.parser.reset();
                self.pass(end + 1);
                Next::Unreadable(text)
            }
            _ => Next::Broken(text),
        }
    }

    fn pass(&mut self, consumed: usize) {
        let passed = &self.bytes[self.start..self.start + consumed];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.start += consumed;
        self.parser.clear();
    }

    /// What is wrong with the end of the input, if anything.
    fn unfinished(&self, commands: u64) -> Option<String> {
        let is_rest = self.start < self.bytes.len();
        is_rest.then(|| format!("the input ends in the middle of command {}", commands + 1))
    }
}
