//! A payload that arrives from the primary. A thread keeps it in a file until it is whole, so that
//! neither the loop waits for the disk nor memory grows with the data.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use store_persist::disk::{Disk, DiskFile};

use crate::event_loop::Message;
use crate::persistence::Mailbox;

/// Bytes that may wait to be written. The primary waits meanwhile.
const WAITING_MAX: usize = 8 * 1024 * 1024;

/// What the thread tells.
#[derive(Debug)]
pub(crate) enum IncomingEvent {
    /// There is room again. Being told is all it takes.
    HasRoom,
    /// The payload of this number is in its file, with so many bytes; or cannot be.
    Written { number: u64, result: io::Result<u64> },
}

enum Job {
    Part(Vec<u8>),
    Finish,
}

/// The payload, and the file that it goes to. The file goes with it.
pub(crate) struct Incoming {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    number: u64,
    jobs: Sender<Job>,
    waiting: Arc<AtomicUsize>,
    received: u64,
}

impl Incoming {
    /// Makes the file, in the folder of all files. `number` tells payloads apart. Fails when the
    /// disk does, or there is no thread to be had.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        folder: &Path,
        number: u64,
        mailbox: Mailbox,
    ) -> io::Result<Self> {
        let path = folder.join(format!("temp-{}.{number}.rdb", std::process::id()));
        let file = disk.create(&path)?;
        let (jobs, received) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let writer = Writer { number, file, waiting: Arc::clone(&waiting), mailbox };
        let incoming = Self { disk, path, number, jobs, waiting, received: 0 };
        std::thread::Builder::new()
            .name("tenure-payload".to_owned())
            .spawn(move || writer.run(&received))?;
        Ok(incoming)
    }

    /// Takes the next part.
    pub(crate) fn push(&mut self, part: Vec<u8>) {
        self.received += part.len() as u64;
        self.waiting.fetch_add(part.len(), Ordering::AcqRel);
        // A thread that failed has told so.
        let _ = self.jobs.send(Job::Part(part));
    }

    /// All of it came: an event tells when it is in the file.
    pub(crate) fn finish(&self) {
        let _ = self.jobs.send(Job::Finish);
    }

    /// Whether more may come.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Acquire) < WAITING_MAX
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // What it has is of no use to anybody else.
        let _ = self.disk.remove(&self.path);
    }
}

/// The thread's side.
struct Writer {
    number: u64,
    file: Box<dyn DiskFile>,
    waiting: Arc<AtomicUsize>,
    mailbox: Mailbox,
}

impl Writer {
    /// Ends when the payload is whole, cannot be written, or is given up.
    fn run(mut self, jobs: &Receiver<Job>) {
        let Some(result) = self.write_all(jobs).transpose() else { return };
        let number = self.number;
        self.mailbox.post(Message::Payload(IncomingEvent::Written { number, result }));
    }

    /// `None` when it was given up.
    fn write_all(&mut self, jobs: &Receiver<Job>) -> io::Result<Option<u64>> {
        let mut written = 0;
        for job in jobs {
            let Job::Part(part) = job else {
                self.file.flush()?;
                return Ok(Some(written));
            };
            self.file.write_all(&part)?;
            written += part.len() as u64;
            let before = self.waiting.fetch_sub(part.len(), Ordering::AcqRel);
            if before >= WAITING_MAX && before - part.len() < WAITING_MAX {
                self.mailbox.post(Message::Payload(IncomingEvent::HasRoom));
            }
        }
        Ok(None)
    }
}
