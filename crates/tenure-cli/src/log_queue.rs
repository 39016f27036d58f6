//! What goes to stderr, behind a queue: whoever leads never waits for a reader of its log.
//!
//! In: lines, from any thread. Out: the same lines on stderr, written by a thread of their own.
//! Where stderr is stalled, full or closed, lines are dropped and counted; the count is written as
//! soon as something can be written again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure::core::text::escaped_json;

/// The most that waits, in bytes: some thousand lines. Older ones are worth more than newer ones,
/// because they say how it began.
const WAITING_MAX: usize = 256 * 1024;
/// The stack of the thread that writes; it calls nothing but the system.
const STACK_SIZE: usize = 64 * 1024;

static QUEUE: LogQueue = LogQueue::new();
static STARTED: OnceLock<bool> = OnceLock::new();

/// Lines on their way to stderr.
struct LogQueue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that were lost since the last that was written.
    dropped: u64,
    /// A line is being written just now.
    is_writing: bool,
}

impl LogQueue {
    const fn new() -> Self {
        let waiting = Waiting { lines: VecDeque::new(), bytes: 0, dropped: 0, is_writing: false };
        LogQueue { waiting: Mutex::new(waiting), changed: Condvar::new() }
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
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            waiting.bytes -= line.len();
            waiting.is_writing = true;
            let dropped = waiting.dropped;
            drop(waiting);
            let written = match dropped {
                0 => write(&line),
                _ => write(&lost(dropped)).and_then(|()| write(&line)),
            };
            waiting = self.lock();
            waiting.is_writing = false;
            match written {
                Ok(()) => waiting.dropped -= dropped,
                Err(_) => waiting.dropped += 1,
            }
        }
    }

    /// Waits until everything is written, for at most `limit`.
    fn flush(&self, limit: Duration) {
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), limit, is_busy));
    }
}

fn lost(lines: u64) -> Vec<u8> {
    format!("tenure: {lines} log lines were lost: stderr could not be written in time\n").into()
}

/// From here on, lines go through the queue. A second call changes nothing. Without a thread they
/// are written by whoever has something to say, as before.
pub(crate) fn start() {
    STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("log".to_owned()).stack_size(STACK_SIZE);
        thread.spawn(|| QUEUE.serve(write_to_stderr)).is_ok()
    });
}

/// Writes `text` to stderr, now or soon. That it cannot be written is nobody's failure.
pub(crate) fn write(text: &[u8]) {
    match STARTED.get() {
        Some(true) => QUEUE.push(text),
        _ => drop(write_to_stderr(text)),
    }
}

/// Waits for what was said, for at most `limit`: before the process ends, never while it leads.
pub(crate) fn flush(limit: Duration) {
    if STARTED.get() == Some(&true) {
        QUEUE.flush(limit);
    }
}

/// Without the standard library's lock: a thread that is stuck here must not hold up a panic.
fn write_to_stderr(text: &[u8]) -> io::Result<()> {
    let stderr = io::stderr();
    let mut left = text;
    while !left.is_empty() {
        match rustix::io::write(stderr.as_fd(), left) {
            Ok(written) => left = &left[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
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
        let queue: &'static LogQueue = Box::leak(Box::new(LogQueue::new()));
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
        queue.flush(Duration::from_secs(60));
        drop(answers);
        queue.push(b"two\n");
        let seen: Vec<String> = lines.iter().take(3).collect();
        assert!(seen[1].contains("1 log lines were lost") && seen[2] == "two\n", "{seen:?}");
    }

    #[test]
    fn a_flush_has_a_bound() {
        let (queue, _answers, _lines) = with_slow_reader();
        queue.push(b"one\n");
        queue.flush(Duration::from_millis(10));
    }
}
