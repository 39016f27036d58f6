//! Lines that something else writes, collected as they come.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// More than any test writes in its time; keeps a program gone wild from eating the memory.
const LINES_MAX: usize = 200_000;

/// A longer line is cut into several.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Collects the lines of a pipe or socket on a thread of its own, so that the writer never blocks.
#[derive(Debug)]
pub(crate) struct Lines {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    /// How many lines were dropped from the front, by being taken or for want of room.
    dropped: usize,
    ended: bool,
}

impl Lines {
    pub(crate) fn collect(source: impl Read + Send + 'static) -> Self {
        let shared = Arc::<Shared>::default();
        let reader = thread::Builder::new().name("testkit-lines".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.read_all(source)
        });
        Self { shared, reader: Some(reader.expect("a test process may start a thread")) }
    }

    /// The lines that are there now.
    pub(crate) fn snapshot(&self) -> Vec<String> {
        self.shared.lock().lines.iter().cloned().collect()
    }

    /// Removes and returns the oldest line, waiting for one if there is none. `None` when the
    /// bound passes or the writer is gone.
    pub(crate) fn take_next(&self, bound: Duration) -> Option<String> {
        let deadline = Instant::now() + bound;
        let mut state = self.shared.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.dropped += 1;
                return Some(line);
            }
            if state.ended {
                return None;
            }
            state = self.shared.wait(state, deadline)?;
        }
    }

    /// Waits for a line for which `wanted` holds and returns it, leaving all lines in place.
    /// `None` when the bound passes or the writer is gone.
    pub(crate) fn find(
        &self,
        bound: Duration,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Option<String> {
        let deadline = Instant::now() + bound;
        let mut looked_at = 0;
        let mut state = self.shared.lock();
        loop {
            let unseen = looked_at.max(state.dropped) - state.dropped;
            if let Some(line) = state.lines.iter().skip(unseen).find(|line| wanted(line)) {
                return Some(line.clone());
            }
            looked_at = state.dropped + state.lines.len();
            if state.ended {
                return None;
            }
            state = self.shared.wait(state, deadline)?;
        }
    }

    /// Forgets the lines that are there now.
    pub(crate) fn clear(&self) {
        let mut state = self.shared.lock();
        state.dropped += state.lines.len();
        state.lines.clear();
    }

    /// Waits for the writer's end. Call only once the writer is known to end.
    pub(crate) fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading lines does not panic");
        }
    }
}

impl Shared {
    fn read_all(&self, source: impl Read) {
        let mut source = BufReader::new(source);
        let mut bytes = Vec::new();
        // A read error is the end of the stream to us: the writer is gone or was cut off.
        while let Ok(1..) = source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
            let line = String::from_utf8_lossy(&bytes);
            self.push(line.trim_end_matches(['\r', '\n']).to_owned());
            bytes.clear();
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn push(&self, line: String) {
        let mut state = self.lock();
        if state.lines.len() == LINES_MAX {
            state.lines.pop_front();
            state.dropped += 1;
        }
        state.lines.push_back(line);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking predicate leaves the lines as good as they were.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
    ) -> Option<MutexGuard<'a, State>> {
        let left = deadline.checked_duration_since(Instant::now())?;
        let (state, _) =
            self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use super::*;
    use crate::GENEROUS;

    #[test]
    fn lines_are_found_in_place_and_taken_in_order() {
        let lines = Lines::collect(&b"one\r\ntwo\nthree"[..]);
        assert_eq!(lines.find(GENEROUS, |line| line == "three").unwrap(), "three");
        assert_eq!(lines.snapshot(), ["one", "two", "three"]);
        assert_eq!(lines.take_next(GENEROUS).unwrap(), "one");
        assert_eq!(lines.take_next(GENEROUS).unwrap(), "two");
        assert_eq!(lines.take_next(GENEROUS).unwrap(), "three");
        assert_eq!(lines.take_next(GENEROUS), None, "the writer is gone");
    }

    #[test]
    fn an_open_but_silent_writer_is_waited_for_no_longer_than_the_bound() {
        let (reader, mut writer) = pipe().unwrap();
        let lines = Lines::collect(reader);
        assert_eq!(lines.take_next(Duration::from_millis(5)), None);
        writer.write_all(b"late\n").unwrap();
        assert_eq!(lines.take_next(GENEROUS).unwrap(), "late");
    }

    #[test]
    fn cleared_lines_are_not_found_again() {
        let lines = Lines::collect(&b"old\n"[..]);
        lines.find(GENEROUS, |line| line == "old").unwrap();
        lines.clear();
        assert_eq!(lines.find(GENEROUS, |line| line == "old"), None);
    }
}
