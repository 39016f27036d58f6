//! Data on disk: loaded before clients are served, durable before replies leave, whole at the end.

use std::io;
use std::sync::mpsc::Sender;
use std::time::Duration;

use mio::Events;
use store_persist::aof::AppendError;

use super::EventLoop;
use crate::persistence::{Loader, Step};
use crate::server::{LogLevel, StartError};

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
        let Some(mut loader) = loader else { return Ok(Ok(())) };
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
                Ok(Step::More) => self.serve(events, Some(Duration::ZERO))?,
                Err(reason) => return Ok(Err(reason)),
            }
        };
        let now_ms = self.clock.now_us() / 1000;
        let opened = self.persistence.open(now_ms, &mut self.engine, loaded);
        self.write_notes();
        Ok(opened)
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
        self.failure = Some(format!(
            "Can't recover from AOF write error when the AOF fsync policy is 'always': {error}. \
             Exiting: free the disk and start again"
        ));
        self.is_stopping = true;
        self.to_write.clear();
    }

    /// Nothing follows: what is to be kept is made durable.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let closed = match self.failure.take() {
            Some(reason) => Err(reason),
            None => self.persistence.close(&mut self.engine).map_err(|error| error.to_string()),
        };
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
