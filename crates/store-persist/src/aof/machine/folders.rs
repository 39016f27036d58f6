//! The folder of the files: another one by CONFIG SET dir, or one that somebody emptied.
//!
//! ```text
//! dir changes ─► stays where it is ── next rewrite ─► appended to both ── base listed ─► moved
//! files gone  ─► writes are refused, and a rewrite is due ── base listed ─► whole again
//! ```

use std::io;
use std::sync::Arc;

use super::{AppendFile, Base, State};
use crate::aof::layout::Layout;
use crate::aof::log::{AppendError, AppendLog, AppendSettings, FsyncPolicy, Job};
use crate::aof::plan::make_plan;

/// Between two looks whether the files are still there. A look is a few calls of the system, and
/// what is written in between may be acknowledged and not be in any file.
const LOOK_MS: u64 = 1000;

impl AppendFile {
    /// Where the files lie that count; `None` unless units are appended to them.
    pub fn layout(&self) -> Option<&Layout> {
        match &self.state {
            State::On(log) | State::Rewriting(log, _) => Some(log.layout()),
            _ => None,
        }
    }

    /// A rewrite that is due cannot begin.
    pub fn refuse_rewrite(&mut self, now_ms: u64, reason: &str) {
        self.rewrite_wanted = false;
        self.rewrite_failed(now_ms, reason);
    }

    /// Makes sure that an end loses nothing that was taken: all is written, durable, and under
    /// its name. Fails with what is to be told.
    ///
    /// Without a first base that counts an end would lose everything: it has to wait for it, or is
    /// refused where [`start_failure`](super::AofFacts::start_failure) says why there is none.
    pub fn prepare_end(&mut self, now_ms: u64) -> Result<(), String> {
        if let State::Starting(_) = self.state {
            return Err(self.try_for_end());
        }
        self.tries_for_end = false;
        self.write_all(now_ms).map_err(|error: AppendError| error.to_string())?;
        match self.log().and_then(AppendLog::find_missing) {
            None => Ok(()),
            Some(path) => {
                // All is written anew, and the next end will do.
                self.looked_at_ms = 0;
                self.look_for_files(now_ms);
                Err(format!("{} was removed or replaced", path.display()))
            }
        }
    }

    /// Tries once more where the first base has failed: the disk may have room again. Says what
    /// an end waits for, or why it cannot be.
    fn try_for_end(&mut self) -> String {
        let Some(reason) = self.facts.start_failure.clone() else {
            return "its first base is not written yet".to_owned();
        };
        self.tries_for_end = !self.tries_for_end;
        if self.tries_for_end {
            self.facts.start_failure = None;
            self.rewrite_wanted = true;
        }
        format!("its first base cannot be written: {reason}")
    }

    /// Whether the files lie elsewhere than the settings say.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.layout().is_some_and(|layout| *layout != self.settings.layout)
    }

    /// The setting `dir` changed.
    pub(super) fn follow_folder(&mut self) {
        let is_moving = |log: &AppendLog| *log.layout() != self.settings.layout;
        if self.moving.as_ref().is_some_and(is_moving) {
            self.drop_base();
            self.rewrite_wanted = true;
        }
        if self.is_elsewhere() {
            self.warn_of_folder();
        }
    }

    pub(super) fn warn_of_folder(&mut self) {
        let Some(folder) = self.layout().map(Layout::folder) else { return };
        self.warn(format!(
            "The AOF is in {}, and dir is another folder now. It moves there with the next rewrite: \
             run BGREWRITEAOF. Until then start the server with the dir of before.",
            folder.display()
        ));
    }

    /// From here on units go to both folders, and to the new one alone once it has a base.
    pub(super) fn begin_move(&mut self, now_ms: u64, generation: u64) -> io::Result<()> {
        let (disk, layout) = (Arc::clone(&self.disk), self.settings.layout.clone());
        let mut manifest = make_plan(&*disk, &layout).map_err(io::Error::other)?.manifest;
        manifest.continue_numbers(self.used);
        let log = AppendLog::begin_unlisted(disk, layout, manifest, now_ms, generation)?;
        self.moving = Some(log);
        Ok(())
    }

    /// The base is there: the new folder counts. What fails leaves `log`, which has everything.
    pub(super) fn finish_move(
        &mut self,
        now_ms: u64,
        log: AppendLog,
        base: &Base,
    ) -> io::Result<Job> {
        let mut moving = self.moving.take().expect("the caller has looked");
        self.use_up_numbers(log.manifest().numbers());
        let job = moving.finish_switch(now_ms, base.is_rdb, &base.path());
        self.use_up_numbers(moving.manifest().numbers());
        if job.is_err() {
            moving.discard_unlisted();
            self.state = State::On(log);
            return job;
        }
        let (from, to) = (log.layout().folder(), moving.layout().folder());
        let (from, to) = (from.display(), to.display());
        self.state = State::On(moving);
        self.warn(format!("The AOF moved to {to}. Its files in {from} are old: remove them."));
        job
    }

    /// Writes what waits for the new folder. It promises nothing yet, so an error ends the move
    /// and nothing else, and nobody waits for a sync.
    pub(super) fn flush_moving(&mut self, now_ms: u64) {
        let settings =
            AppendSettings { policy: FsyncPolicy::EverySecond, ..self.append_settings() };
        let Some(log) = &mut self.moving else { return };
        let flushed = log.flush(now_ms, &settings);
        let trouble = log.trouble().map(|trouble| trouble.reason.clone());
        match (flushed, trouble) {
            (Ok(job), None) => self.outputs.extend(job.map(super::Output::Work)),
            (Err(error), _) => self.rewrite_failed(now_ms, &error.to_string()),
            (Ok(_), Some(reason)) => self.rewrite_failed(now_ms, &reason),
        }
    }

    /// Somebody may remove files of ours while they are open, and writes would go on into nothing.
    pub(super) fn look_for_files(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.looked_at_ms) < LOOK_MS {
            return;
        }
        self.looked_at_ms = now_ms;
        let (State::On(log) | State::Rewriting(log, _)) = &mut self.state else { return };
        let Some(path) = log.find_missing() else { return };
        log.note_missing(now_ms, &path);
        self.warn(format!(
            "{} was removed or replaced while the server runs. Writes are refused until all data \
             is written anew.",
            path.display()
        ));
        if let State::Rewriting(..) = self.state
            && self.moving.is_none()
        {
            // What it would list is gone.
            self.rewrite_failed(now_ms, "a file of it was removed");
            self.retry_at_ms = now_ms;
        }
    }
}
