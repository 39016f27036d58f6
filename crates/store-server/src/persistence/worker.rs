//! The thread for what takes long on a disk: syncing and removing files.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;

use mio::Waker;
use store_persist::aof::{Event, Job};
use store_persist::disk::Disk;

use crate::event_loop::Message;

/// Jobs that wait: one sync at a time, and a list of files per rewrite.
const JOBS_MAX: usize = 16;

/// What threads tell.
#[derive(Debug)]
pub(crate) enum FileEvent {
    /// What they were asked to do is done, or cannot be.
    Done(Event),
    /// The walk for a base may go on. Being told is all it takes.
    BaseWaits,
}

/// How the loop is told.
#[derive(Clone)]
pub(crate) struct Mailbox {
    pub(crate) messages: Sender<Message>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    pub(crate) fn tell(&self, event: FileEvent) {
        self.post(Message::File(event));
    }

    /// A loop that is gone does not want to know.
    pub(crate) fn post(&self, message: Message) {
        if self.messages.send(message).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

/// A thread that is started with the first job, and ends with the value.
pub(super) struct Worker {
    disk: Arc<dyn Disk>,
    mailbox: Mailbox,
    running: Option<(SyncSender<Job>, JoinHandle<()>)>,
}

impl Worker {
    pub(super) fn new(disk: Arc<dyn Disk>, mailbox: Mailbox) -> Self {
        Self { disk, mailbox, running: None }
    }

    pub(super) fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Hands on a job. Fails when there is no thread to be had.
    pub(super) fn give(&mut self, job: Job) -> io::Result<()> {
        if self.running.is_none() {
            let (sender, jobs) = sync_channel(JOBS_MAX);
            let (disk, mailbox) = (Arc::clone(&self.disk), self.mailbox.clone());
            let thread = std::thread::Builder::new()
                .name("tenure-files".to_owned())
                .spawn(move || jobs.iter().for_each(|job| mailbox.tell(work(&*disk, job))))?;
            self.running = Some((sender, thread));
        }
        let Some((sender, _)) = &self.running else { return Ok(()) };
        sender.send(job).map_err(|_| io::Error::other("the thread for files is gone"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.running.take() {
            drop(sender);
            // A panic has printed itself.
            let _ = thread.join();
        }
    }
}

fn work(disk: &dyn Disk, job: Job) -> FileEvent {
    FileEvent::Done(match job {
        Job::Sync { generation, file, number } => {
            Event::Synced { generation, number, result: file.sync() }
        }
        Job::Remove { generation, paths } => {
            for path in &paths {
                // One that stays is listed as history, and tried again at the next start.
                let _ = disk.remove(path);
            }
            Event::Removed { generation, paths }
        }
    })
}
