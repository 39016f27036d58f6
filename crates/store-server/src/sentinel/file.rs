//! `sentinel.conf`: locked for as long as the process lives, written by a thread.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use store_engine::LogLevel;
use store_replica::Moment;

use crate::event_loop::Message;
use crate::persistence::Mailbox;
use crate::replace_file::{is_at, lock, replace_file_by};

/// Between attempts to write a file that could not be written.
const AGAIN: Duration = Duration::from_secs(1);
/// A write that takes longer is worth a line in the log.
const SLOW: Duration = Duration::from_secs(2);

/// What became of a text.
#[derive(Debug)]
pub(crate) struct Written {
    text: String,
    /// The new file, locked.
    result: io::Result<File>,
}

/// ```text
/// idle ─ write ─► writing ─► idle
///   ▲                └─ failed ─► again after a second, with the newest text ─► writing
/// ```
pub(crate) struct ConfigFile {
    path: PathBuf,
    /// Two sentinels with one file forget each other's votes.
    lock: File,
    mailbox: Mailbox,
    is_writing: bool,
    /// When the write that runs is worth a line in the log.
    slow_at: Option<Moment>,
    /// What could not be written, and when that is tried again.
    failed: Option<(String, Moment)>,
}

impl ConfigFile {
    /// Opens and locks it, and reads its text. Fails with what to do when another process has it.
    pub(super) fn open(path: PathBuf, mailbox: Mailbox) -> io::Result<(Self, String)> {
        /// Attempts to lock a file that is replaced at the same moment.
        const OPENS_MAX: usize = 10;
        for _ in 0..OPENS_MAX {
            let mut file = File::open(&path)?;
            if lock(&file).is_ok() && is_at(&file, &path) {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                let opened = Self {
                    path,
                    lock: file,
                    mailbox,
                    is_writing: false,
                    slow_at: None,
                    failed: None,
                };
                return Ok((opened, text));
            }
        }
        Err(io::Error::other(format!(
            "{} is in use by another sentinel: end that one, or write another file (each sentinel \
             needs its own, with an id of its own)",
            path.display()
        )))
    }

    /// Whether the file lacks what this sentinel knows.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Writes a text, or keeps it for the next attempt. Until it is written there is no other one,
    /// unless writing fails.
    pub(crate) fn write(&mut self, now: Moment, text: String) {
        match &mut self.failed {
            Some((failed, _)) => *failed = text,
            None => self.begin(now, text),
        }
    }

    /// A disk that hangs is told once per write.
    pub(super) fn complain_if_slow(&mut self, now: Moment) -> Option<(LogLevel, String)> {
        self.slow_at.take_if(|at| *at <= now)?;
        let line = format!(
            "WARNING: writing {} takes long. Sentinel watches on, but gives no votes and leads no \
             failover meanwhile: see what its disk does",
            self.path.display()
        );
        Some((LogLevel::Warning, line))
    }

    pub(super) fn try_again(&mut self, now: Moment) {
        if let Some((text, at)) = &mut self.failed
            && *at <= now
            && !self.is_writing
        {
            *at = now + AGAIN;
            let text = text.clone();
            self.begin(now, text);
        }
    }

    fn begin(&mut self, now: Moment, text: String) {
        self.is_writing = true;
        self.slow_at = Some(now + SLOW);
        let (path, mailbox, copy) = (self.path.clone(), self.mailbox.clone(), text.clone());
        let work = move || {
            let result = replace_file_by(&path, text.as_bytes(), lock);
            mailbox.post(Message::SentinelFile(Written { text, result }));
        };
        let thread = std::thread::Builder::new().name("tenure-file".to_owned()).spawn(work);
        if let Err(error) = thread {
            let written = Written { text: copy, result: Err(error) };
            self.mailbox.post(Message::SentinelFile(written));
        }
    }

    /// What the log is to say about it, when that is news.
    pub(super) fn finish(&mut self, now: Moment, written: Written) -> Option<(LogLevel, String)> {
        (self.is_writing, self.slow_at) = (false, None);
        let path = self.path.display();
        let result = written.result.map(|file| self.lock = file);
        match (result, self.failed.take()) {
            (Ok(()), None) => None,
            (Ok(()), Some((newest, _))) if newest != written.text => {
                // It has changed since: the newest text follows at once.
                self.failed = Some((newest, now));
                None
            }
            (Ok(()), Some(_)) => {
                Some((LogLevel::Notice, format!("{path} is written again: voting goes on")))
            }
            (Err(_), Some((newest, _))) => {
                self.failed = Some((newest, now + AGAIN));
                None
            }
            (Err(error), None) => {
                self.failed = Some((written.text, now + AGAIN));
                let text = format!(
                    "WARNING: Sentinel was not able to save the new configuration on disk!!!: \
                     {path}: {error}. It gives no votes and leads no failover until it can: make \
                     the file and its folder writable, and free the disk"
                );
                Some((LogLevel::Warning, text))
            }
        }
    }
}
