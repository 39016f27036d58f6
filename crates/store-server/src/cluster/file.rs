//! nodes.conf: locked for as long as the process lives, written by a thread, replaced as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use store_cluster::SavedClaim;
use store_engine::LogLevel;

use crate::event_loop::Message;
use crate::persistence::Mailbox;
use crate::replace_file::{is_at, lock, replace_file_by};

/// Between attempts to write a file that could not be written.
const AGAIN_MS: u64 = 1_000;
/// A change that nothing relies on waits so long for others.
const LAZY_MS: u64 = 100;
/// Attempts to lock a file that is replaced at the same moment.
const OPENS_MAX: usize = 10;
/// As redis-server makes it.
const NEW_MODE: u32 = 0o644;

/// What became of a text.
#[derive(Debug)]
pub(crate) struct Written {
    number: u64,
    claim: SavedClaim,
    /// The new file, locked.
    result: io::Result<File>,
}

#[derive(Clone)]
struct Newest {
    number: u64,
    text: String,
    claim: SavedClaim,
}

/// ```text
/// idle ─ write ─► writing ─► idle
///   ▲                └─ failed ─► again after a second, with the newest text ─► writing
/// ```
/// While it has failed nothing waits for it; instead the machine knows that it must not rely on it.
pub(crate) struct NodesFile {
    path: PathBuf,
    /// Other processes find it locked.
    lock: File,
    mailbox: Option<Mailbox>,
    /// The newest text, its number, and when it is to be written.
    newest: Option<Newest>,
    due_at_ms: Option<u64>,
    number: u64,
    on_disk: u64,
    /// What the file on disk claims.
    saved: SavedClaim,
    writing: Option<JoinHandle<()>>,
    has_failed: bool,
}

/// Opens and locks nodes.conf; makes it if there is none. Returns its text, empty for a new node.
/// Fails with the reason and the next step.
pub(crate) fn open_nodes_file(path: &Path) -> Result<(NodesFile, String), String> {
    let name = path.display();
    let unusable = |error: io::Error| {
        format!(
            "cannot use {name}: {error}; make it readable and writable for this user, or choose \
             another file with cluster-config-file"
        )
    };
    for _ in 0..OPENS_MAX {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(NEW_MODE)
            .open(path)
            .map_err(unusable)?;
        if lock(&file).is_err() {
            return Err(format!(
                "{name} is in use by another node of a cluster: end that one, or choose another \
                 file with cluster-config-file (each node needs its own)"
            ));
        }
        if !is_at(&file, path) {
            // It was replaced between being opened and being locked.
            continue;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unusable)?;
        let file = NodesFile {
            path: path.to_owned(),
            lock: file,
            mailbox: None,
            newest: None,
            due_at_ms: None,
            number: 0,
            on_disk: 0,
            saved: None,
            writing: None,
            has_failed: false,
        };
        return Ok((file, text));
    }
    Err(format!("{name} is replaced all the time by another program: end it"))
}

impl NodesFile {
    pub(super) fn with_mailbox(self, mailbox: Mailbox) -> Self {
        Self { mailbox: Some(mailbox), ..self }
    }

    /// The file has this already.
    pub(super) fn with_saved(self, saved: SavedClaim) -> Self {
        Self { saved, ..self }
    }

    /// What the file claims.
    pub(crate) fn saved(&self) -> SavedClaim {
        self.saved
    }

    /// Whether the file lacks what this node knows, and cannot be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether what stands behind the write of this number may be said.
    pub(super) fn lets_pass(&self, number: u64) -> bool {
        self.on_disk >= number || self.has_failed
    }

    /// Writes a text: at once, or soon where nothing waits for it. Returns its number.
    pub(super) fn write(
        &mut self,
        now_ms: u64,
        text: String,
        claim: SavedClaim,
        is_urgent: bool,
    ) -> u64 {
        self.number += 1;
        self.newest = Some(Newest { number: self.number, text, claim });
        let due_at_ms = if is_urgent { now_ms } else { now_ms + LAZY_MS };
        if !self.has_failed {
            self.due_at_ms = Some(self.due_at_ms.map_or(due_at_ms, |at| at.min(due_at_ms)));
        }
        self.work(now_ms);
        self.number
    }

    /// When [`work`](Self::work) is wanted.
    pub(crate) fn wakes_at_ms(&self) -> Option<u64> {
        self.due_at_ms.filter(|_| self.writing.is_none())
    }

    /// Begins to write what is due.
    pub(crate) fn work(&mut self, now_ms: u64) {
        if self.writing.is_some() || self.due_at_ms.is_none_or(|at| at > now_ms) {
            return;
        }
        let (Some(newest), Some(mailbox)) = (&self.newest, &self.mailbox) else { return };
        self.due_at_ms = None;
        let Newest { number, text, claim } = newest.clone();
        let (path, mailbox) = (self.path.clone(), mailbox.clone());
        let work = move || {
            let result = replace_file_by(&path, text.as_bytes(), lock);
            mailbox.post(Message::NodesFile(Written { number, claim, result }));
        };
        match std::thread::Builder::new().name("tenure-nodes".to_owned()).spawn(work) {
            Ok(thread) => self.writing = Some(thread),
            Err(_) => self.due_at_ms = Some(now_ms + AGAIN_MS),
        }
    }

    /// What the log is to say about it, when that is news.
    pub(crate) fn finish(&mut self, now_ms: u64, written: Written) -> Option<(LogLevel, String)> {
        if let Some(thread) = self.writing.take() {
            // It has posted its last word.
            let _ = thread.join();
        }
        let path = self.path.display().to_string();
        match written.result {
            Ok(file) => {
                self.lock = file;
                self.on_disk = self.on_disk.max(written.number);
                self.saved = written.claim;
                if self.number > self.on_disk {
                    self.due_at_ms.get_or_insert(now_ms);
                } else {
                    self.newest = None;
                }
                let had_failed = std::mem::replace(&mut self.has_failed, false);
                self.work(now_ms);
                had_failed.then(|| {
                    (
                        LogLevel::Notice,
                        format!("{path} is written again: this node votes and stands again"),
                    )
                })
            }
            Err(error) => {
                self.due_at_ms = Some(now_ms + AGAIN_MS);
                let had_failed = std::mem::replace(&mut self.has_failed, true);
                (!had_failed).then(|| {
                    let text = format!(
                        "Cannot write {path}: {error}. This node gives no votes, stands for no \
                         election and takes no slots over until it can: make the file and its \
                         folder writable, and free the disk"
                    );
                    (LogLevel::Warning, text)
                })
            }
        }
    }

    /// The server ends: what was not written yet is.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if let Some(thread) = self.writing.take() {
            let _ = thread.join();
        }
        match self.newest.take() {
            Some(newest) => {
                self.lock = replace_file_by(&self.path, newest.text.as_bytes(), lock)?;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
