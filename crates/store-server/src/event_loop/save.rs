//! Snapshots to files: a slice per turn, and the last one before the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;
use store_engine::{SaveFailure, SaveJob};

use super::EventLoop;
use crate::persistence::snapshot::Generations;
use crate::server::LogLevel;

/// What the loop shares with its handle and with threads of its own.
pub(crate) struct Ties {
    pub(crate) waker: Arc<Waker>,
    pub(crate) generations: Generations,
    /// Whether the server is to end even if it cannot save.
    pub(crate) is_forced: Arc<AtomicBool>,
}

impl EventLoop {
    pub(super) fn begin_save(&mut self, job: SaveJob) {
        let line = format!("Background saving started, file={}", job.path.display());
        self.log(LogLevel::Notice, &line);
        let waker = self.ties.waker.clone();
        // A loop that cannot be woken looks once its clients have something to say.
        self.saver.begin(job, &mut self.engine, move || _ = waker.wake());
    }

    pub(super) fn cancel_save(&mut self) {
        self.ties.generations.advance();
    }

    /// Goes on with the snapshot, if one is being saved.
    pub(super) fn walk(&mut self) {
        let clock = &self.clock;
        let Some(result) = self.saver.turn(&mut self.engine, || clock.now_us()) else { return };
        match &result {
            Ok(bytes) => {
                self.log(LogLevel::Notice, &format!("DB saved on disk, bytes={bytes}"));
                self.log(LogLevel::Notice, "Background saving terminated with success");
            }
            Err(SaveFailure::Cancelled) => {
                self.log(LogLevel::Notice, "Background saving cancelled");
            }
            Err(SaveFailure::Failed(reason)) => {
                self.log(LogLevel::Warning, &format!("Background saving error: {reason}"));
            }
        }
        self.engine.finish_save(self.now_us, result.map(drop));
    }

    /// Saves what is to be saved. False when that fails and the server goes on for it.
    pub(super) fn may_end(&mut self) -> bool {
        if self.is_settled {
            return true;
        }
        let Err(reason) = self.engine.save_before_end(self.clock.now_us(), false) else {
            return true;
        };
        let is_forced = self.ties.is_forced.load(Ordering::SeqCst);
        let fate = if is_forced { "its data is lost" } else { "it cannot end" };
        self.log(LogLevel::Warning, &format!("The server cannot save, so {fate}: {reason}"));
        self.is_stopping = is_forced;
        is_forced
    }
}
