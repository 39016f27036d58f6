//! Data on disk: loaded before clients are served, durable before replies leave, whole at the end.

use std::io;
use std::sync::mpsc::Sender;
use std::time::Duration;
use store_engine::LogLevel;

use mio::Events;
use store_persist::aof::AppendError;

use super::EventLoop;
use super::wait::Gap;
use crate::persistence::{Loader, Step};
use crate::server::StartError;

/// Told once: data is loaded and clients are served, or why not.
pub(crate) type Ready = Sender<Result<(), StartError>>;

impl EventLoop {
    /// Loads data in slices, and answers clients between them. The inner result says why the
    /// data cannot be served.
    pub(super) fn load(
        &mut self,
        loader: Option<Loader>,
        events: &mut Events,
    ) -> io::Result<Result<(), String>> {
        let Some(mut loader) = loader else {
            let now_ms = self.clock.now_us() / 1000;
            return Ok(self.persistence.open_without_data(now_ms, &mut self.engine));
        };
        let loaded = loop {
            if self.is_stopping {
                return Ok(Err("stopped while data was loaded".to_owned()));
            }
            let clock = &self.clock;
            let step = loader.step(&mut self.engine, &|| clock.now_us());
            for (level, line) in std::mem::take(&mut loader.notes) {
                self.log(level, &line);
            }
            match step {
                Ok(Step::Done(loaded)) => break loaded,
                Ok(Step::More) => self.serve_between(events)?,
                Err(reason) => return Ok(Err(reason)),
            }
        };
        if let Some(history) = loaded.history {
            self.restore_history(history);
        }
        let now_ms = self.clock.now_us() / 1000;
        let opened = self.persistence.open(now_ms, &mut self.engine, loaded);
        self.write_notes();
        Ok(opened)
    }

    /// A turn without waiting for anything.
    fn serve_between(&mut self, events: &mut Events) -> io::Result<()> {
        match self.poll.poll(events, Some(Duration::ZERO)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        self.begin_turn(Gap::Pause);
        self.turn(events);
        self.end_turn();
        Ok(())
    }

    /// Loads the append-only file again while everybody waits. The server ends when it cannot.
    #[cold]
    pub(super) fn load_again(&mut self) {
        let now_us = self.clock.now_us();
        let loader = self.persistence.appended(now_us / 1000, &self.engine);
        let loaded = loader.and_then(|mut loader| {
            self.engine.forget_all(now_us);
            let clock = &self.clock;
            loop {
                match loader.step(&mut self.engine, &|| clock.now_us()) {
                    Ok(Step::More) => {}
                    Ok(Step::Done(_)) => return Ok(loader.notes),
                    Err(reason) => {
                        // Or what it loaded so far would be appended once more.
                        loader.give_up(&mut self.engine);
                        return Err(reason);
                    }
                }
            }
        });
        match loaded {
            Ok(notes) => notes.iter().for_each(|(level, line)| self.log(*level, line)),
            Err(reason) => self.end_with(format!("DEBUG LOADAOF: {reason}")),
        }
    }

    /// What replies promise is kept before they leave; when it cannot be, they do not leave.
    #[inline]
    pub(super) fn make_durable(&mut self) {
        let kept = self.persistence.before_replies(self.now_us / 1000, &mut self.engine);
        if let Err(error) = kept {
            self.end_for(&error);
        }
        if self.persistence.has_notes() {
            self.write_notes();
        }
    }

    #[cold]
    fn end_for(&mut self, error: &AppendError) {
        self.end_with(format!(
            "Can't recover from AOF write error when the AOF fsync policy is 'always': {error}. \
             Exiting: free the disk and start again"
        ));
    }

    /// No reply leaves any more.
    pub(super) fn end_with(&mut self, reason: String) {
        self.failure = Some(reason);
        self.is_stopping = true;
        self.clients.to_write.clear();
    }

    /// Nothing follows: what is to be kept is made durable.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let closed = match self.failure.take() {
            Some(reason) => Err(reason),
            None => {
                let now_ms = self.clock.now_us() / 1000;
                let closed = self.persistence.close(now_ms, &mut self.engine);
                closed.map_err(|error| error.to_string())
            }
        };
        self.close_cluster();
        // A save that is nearly done does not take the name any more: the folder is given up.
        self.shared.generations.advance();
        self.persistence.folders.release();
        self.write_notes();
        closed.map_err(|reason| {
            self.log(LogLevel::Warning, &reason);
            io::Error::other(reason)
        })
    }

    fn write_notes(&mut self) {
        for (level, line) in self.persistence.take_notes() {
            self.log(level, &line);
        }
    }
}
