//! What goes to stderr or stdout, behind a queue: whoever leads never waits for a reader.
//!
//! In: lines, from any thread. Out: the same lines on the stream, written by a thread of their own
//! once the queue was started. Where the stream is stalled, full or closed, lines are dropped and
//! counted; the count is written as soon as something can be written again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tenure_core::text::escaped_json;
use tokio::sync::Notify;

use crate::logging::{self, Level};

/// The most that waits, in bytes: some thousand lines. Older ones are worth more than newer ones,
/// because they say how it began.
const WAITING_MAX: usize = 256 * 1024;
/// The stack of the thread that writes; it calls nothing but the system.
const STACK_SIZE: usize = 64 * 1024;

/// How long a command that prints and ends waits for a reader of what it says beside its result.
const TALK_TIMEOUT: Duration = Duration::from_secs(1);
/// A pipe that can be written takes so much at once.
const PIECE_LEN: usize = 4096;

/// Talk.
pub(crate) static STDERR: LogQueue = LogQueue::new(Stream::Stderr);
/// Results. Only commands that last start this one: whoever prints and ends may wait for a reader.
pub(crate) static STDOUT: LogQueue = LogQueue::new(Stream::Stdout);

/// Lines on their way to a stream.
pub(crate) struct LogQueue {
    stream: Stream,
    /// Whether there is a thread that writes.
    started: OnceLock<bool>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Everything is written, or abandoned.
    idle: Notify,
    /// Nobody has read for too long, and something was dropped.
    is_stalled: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
enum Stream {
    Stdout,
    Stderr,
}

struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that were lost since the last that was written.
    dropped: u64,
    /// A line is being written just now.
    is_writing: bool,
    /// Why the last line could not be written.
    failed: Option<io::Error>,
}

impl LogQueue {
    const fn new(stream: Stream) -> Self {
        let waiting = Waiting {
            lines: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            is_writing: false,
            failed: None,
        };
        LogQueue {
            stream,
            started: OnceLock::new(),
            waiting: Mutex::new(waiting),
            changed: Condvar::new(),
            idle: Notify::const_new(),
            is_stalled: AtomicBool::new(false),
        }
    }

    /// From here on, nobody who writes waits. A second call changes nothing. Without a thread,
    /// lines are written by whoever has something to say, as before.
    pub(crate) fn start(&'static self) {
        self.started.get_or_init(|| {
            let thread = std::thread::Builder::new().name("log".to_owned()).stack_size(STACK_SIZE);
            thread.spawn(|| self.serve(|line| self.stream.write(line))).is_ok()
        });
    }

    /// Writes `text`, now or soon. Fails only where it is written now.
    pub(crate) fn write(&self, text: &[u8]) -> io::Result<()> {
        match self.started.get() {
            Some(true) => {
                self.push(text);
                Ok(())
            }
            _ => match self.stream {
                Stream::Stdout => self.stream.write(text),
                Stream::Stderr => self.write_within(TALK_TIMEOUT, text),
            },
        }
    }

    /// Writes `text` without the thread, and gives up when nobody reads for so long.
    fn write_within(&self, limit: Duration, text: &[u8]) -> io::Result<()> {
        for piece in text.chunks(PIECE_LEN) {
            let is_stalled = self.is_stalled.load(Ordering::Relaxed);
            let limit = if is_stalled { Duration::ZERO } else { limit };
            if !self.stream.takes_more_within(limit) {
                self.is_stalled.store(true, Ordering::Relaxed);
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.write(piece)?;
        }
        Ok(())
    }

    /// Whether something is still to be written.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock().is_busy()
    }

    /// Waits until everything is written. Fails if the last of it could not be.
    pub(crate) async fn written(&self) -> io::Result<()> {
        loop {
            let mut idle = pin!(self.idle.notified());
            // From before the look, so that nothing is missed.
            idle.as_mut().enable();
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            idle.await;
        }
    }

    /// How it went; `None` while something is still to be written.
    fn outcome(&self) -> Option<io::Result<()>> {
        let mut waiting = self.lock();
        (!waiting.is_busy()).then(|| waiting.failed.take().map_or(Ok(()), Err))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nobody panics while holding it, and a log must not spread a panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes + line.len() > WAITING_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.to_vec());
        drop(waiting);
        self.changed.notify_all();
    }

    /// Writes lines for as long as the process lives.
    fn serve(&self, write: impl Fn(&[u8]) -> io::Result<()>) {
        let mut waiting = self.lock();
        loop {
            let Some(line) = waiting.lines.pop_front() else {
                self.changed.notify_all();
                self.idle.notify_waiters();
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            waiting.bytes -= line.len();
            waiting.is_writing = true;
            let dropped = waiting.dropped;
            drop(waiting);
            let written = match dropped {
                0 => write(&line),
                _ => write(&self.stream.lost(dropped)).and_then(|()| write(&line)),
            };
            waiting = self.lock();
            waiting.is_writing = false;
            match written {
                Ok(()) => {
                    waiting.dropped -= dropped;
                    waiting.failed = None;
                }
                Err(error) => {
                    waiting.dropped += 1;
                    waiting.failed = Some(error);
                }
            }
        }
    }

    /// Waits until everything is written, for at most `limit`: before the process ends, never while
    /// it leads.
    pub(crate) fn flush(&self, limit: Duration) {
        if self.started.get() == Some(&true) {
            self.wait_until_idle(limit);
        }
    }

    fn wait_until_idle(&self, limit: Duration) {
        let is_busy = |waiting: &mut Waiting| waiting.is_busy();
        drop(self.changed.wait_timeout_while(self.lock(), limit, is_busy));
    }
}

impl Waiting {
    fn is_busy(&self) -> bool {
        self.is_writing || !self.lines.is_empty()
    }
}

impl Stream {
    /// Whether it can be written without waiting, within that time. A stream that is broken can:
    /// the error comes when it is written.
    fn takes_more_within(self, limit: Duration) -> bool {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let stream = match self {
            Stream::Stdout => stdout.as_fd(),
            Stream::Stderr => stderr.as_fd(),
        };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
        poll(&mut [PollFd::new(&stream, PollFlags::OUT)], Some(&limit)) != Ok(0)
    }

    fn word(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }

    fn lost(self, lines: u64) -> Vec<u8> {
        let stream = self.word();
        let text = format!("{lines} log lines were lost: {stream} could not be written in time");
        match self {
            Stream::Stdout => format!("tenure: {text}\n").into(),
            Stream::Stderr => format!("{}\n", logging::line(Level::Warn, &text)).into(),
        }
    }

    /// Without the standard library's locks: a thread that is stuck here must not hold up a panic.
    fn write(self, text: &[u8]) -> io::Result<()> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let stream = match self {
            Stream::Stdout => stdout.as_fd(),
            Stream::Stderr => stderr.as_fd(),
        };
        let mut left = text;
        while !left.is_empty() {
            match rustix::io::write(stream, left) {
                Ok(written) => left = &left[written..],
                Err(Errno::INTR) => {}
                // Whoever shares the stream with us made it so; the result is wanted all the same.
                Err(Errno::AGAIN) => {
                    match poll(&mut [PollFd::new(&stream, PollFlags::OUT)], None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// From here on, lines for stderr go through the queue.
pub(crate) fn start() {
    STDERR.start();
}

/// Writes `text` to stderr, now or soon. That it cannot be written is nobody's failure.
pub(crate) fn write(text: &[u8]) {
    let _ = STDERR.write(text);
}

/// Waits for what was said and for results, for at most `limit` each.
pub(crate) fn flush(limit: Duration) {
    STDOUT.flush(limit);
    STDERR.flush(limit);
}

/// A writer of log lines; it never fails. What deceives is written as an escape that JSON knows: a
/// line may quote what others wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(escaped_json(&String::from_utf8_lossy(bytes)).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A queue whose reader takes a line whenever it is told to.
    fn with_slow_reader()
    -> (&'static LogQueue, mpsc::Sender<io::Result<()>>, mpsc::Receiver<String>) {
        let queue: &'static LogQueue = Box::leak(Box::new(LogQueue::new(Stream::Stderr)));
        let (answers, next_answer) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        std::thread::spawn(move || {
            queue.serve(|line| {
                let _ = written.send(String::from_utf8_lossy(line).into_owned());
                next_answer.recv().unwrap_or(Ok(()))
            });
        });
        (queue, answers, lines)
    }

    #[test]
    fn a_reader_that_stalls_costs_lines_and_nothing_else() {
        let (queue, answers, lines) = with_slow_reader();
        let line = vec![b'x'; 1000];
        for _ in 0..1000 {
            queue.push(&line);
        }
        let dropped = queue.lock().dropped;
        assert!(dropped > 700, "{dropped} of a thousand lines of 1 kB were dropped");
        drop(answers);
        lines.iter().find(|line| line.contains("log lines were lost")).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told_later() {
        let (queue, answers, lines) = with_slow_reader();
        queue.push(b"one\n");
        answers.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        queue.wait_until_idle(Duration::from_secs(60));
        drop(answers);
        queue.push(b"two\n");
        let seen: Vec<String> = lines.iter().take(3).collect();
        assert!(seen[1].contains("1 log lines were lost") && seen[2] == "two\n", "{seen:?}");
    }

    #[test]
    fn a_flush_has_a_bound() {
        let (queue, _answers, _lines) = with_slow_reader();
        queue.push(b"one\n");
        queue.wait_until_idle(Duration::from_millis(10));
    }
}
