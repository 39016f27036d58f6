//! `sentinel.conf`, written by a thread.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use store_engine::LogLevel;
use store_replica::Moment;

use crate::event_loop::Message;
use crate::persistence::Mailbox;
use crate::replace_file::replace_file;

/// Between attempts to write a file that could not be written.
const AGAIN: Duration = Duration::from_secs(1);

/// What became of a text.
#[derive(Debug)]
pub(crate) struct Written {
    text: String,
    pub(super) result: io::Result<()>,
}

/// ```text
/// idle ─ write ─► writing ─► idle
///   ▲                └─ failed ─► again after a second, with the newest text ─► writing
/// ```
/// While it has failed nothing waits for it; instead no votes are given and asked for.
pub(crate) struct ConfigFile {
    path: PathBuf,
    mailbox: Mailbox,
    is_writing: bool,
    /// What could not be written, and when that is tried again.
    failed: Option<(String, Moment)>,
}

impl ConfigFile {
    pub(super) fn new(path: PathBuf, mailbox: Mailbox) -> Self {
        Self { path, mailbox, is_writing: false, failed: None }
    }

    /// Whether what is to be said has to wait.
    pub(super) fn is_writing(&self) -> bool {
        self.is_writing && self.failed.is_none()
    }

    /// Whether the file lacks what this sentinel knows.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Writes a text, or keeps it for the next attempt.
    pub(super) fn write(&mut self, text: String) {
        match &mut self.failed {
            Some((failed, _)) => *failed = text,
            None => self.begin(text),
        }
    }

    pub(super) fn try_again(&mut self, now: Moment) {
        if let Some((text, at)) = &mut self.failed
            && *at <= now
            && !self.is_writing
        {
            *at = now + AGAIN;
            let text = text.clone();
            self.begin(text);
        }
    }

    fn begin(&mut self, text: String) {
        self.is_writing = true;
        let (path, mailbox, copy) = (self.path.clone(), self.mailbox.clone(), text.clone());
        let work = move || {
            let result = replace_file(&path, text.as_bytes());
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
        self.is_writing = false;
        let path = self.path.display();
        match (written.result, self.failed.take()) {
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
