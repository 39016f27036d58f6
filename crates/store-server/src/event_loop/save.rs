//! Snapshots: their files are written while clients go on.

use std::sync::atomic::Ordering;

use store_engine::{LogLevel, SaveFailure, SaveJob};
use store_persist::disk::folder_of;

use super::EventLoop;

impl EventLoop {
    /// Saves what is to be saved. False when that fails and the server goes on for it.
    pub(super) fn may_end(&mut self) -> bool {
        if self.is_settled || self.failure.is_some() {
            return true;
        }
        let signal = self.stop_signal;
        let options =
            signal.map(|signal| signal.shutdown_options(self.engine.config())).unwrap_or_default();
        if !options.now && !self.may_leave_replicas() {
            return false;
        }
        let aof = &self.engine.state().persistence.aof;
        let has_no_base = aof.is_starting && aof.start_failure.is_none();
        if options.nosave && (!has_no_base || options.force) {
            return true;
        }
        let now_us = self.clock.now_us();
        let appended = self.persistence.prepare_end(now_us / 1000, &mut self.engine);
        if appended.is_err() && !options.force && self.awaits_base() {
            return false;
        }
        self.waits_for_rewrite = false;
        if options.nosave {
            return true;
        }
        let appended = appended.map_err(|reason| format!("the append-only file: {reason}"));
        let saved = self.engine.save_before_end(now_us, options.save);
        let Err(reason) = saved.and(appended) else { return true };
        let is_forced = self.shared.is_forced.load(Ordering::SeqCst) || options.force;
        let result = if is_forced { "its data is lost" } else { "it cannot end" };
        self.log(LogLevel::Warning, &format!("The server cannot save, so {result}: {reason}"));
        self.is_stopping = is_forced;
        self.hold_for_end(false);
        self.replication.has_waited = false;
        is_forced
    }

    /// Whether what is missing in the append-only file is being written, or is going to be: the end
    /// comes behind it.
    fn awaits_base(&mut self) -> bool {
        let aof = &self.engine.state().persistence.aof;
        let begins = aof.is_starting && aof.start_failure.is_none();
        if !aof.is_rewriting && !begins {
            return false;
        }
        if !std::mem::replace(&mut self.waits_for_rewrite, true) {
            self.log(LogLevel::Notice, "The server ends when the append-only file is rewritten");
        }
        true
    }

    pub(super) fn begin_save(&mut self, job: SaveJob) {
        let line = format!("Background saving started, file={}", job.path.display());
        self.log(LogLevel::Notice, &line);
        if let Err(reason) = self.persistence.folders.own(folder_of(&job.path)) {
            return self.saver.refuse(&mut self.engine, reason);
        }
        let waker = self.shared.waker.clone();
        // A loop that cannot be woken looks once its clients have something to say.
        self.saver.begin(job, &mut self.engine, move || _ = waker.wake());
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
}
