//! A payload that arrives from the primary. A thread keeps it in a file until it is whole, so that
//! neither the loop waits for the disk nor memory grows with the data.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use store_engine::AsideData;
use store_persist::disk::{Disk, DiskFile};
use store_types::crc64::crc64;

use crate::event_loop::Message;
use crate::persistence::Mailbox;

/// Bytes that may wait to be written. The primary waits meanwhile.
pub(super) const WAITING_MAX: usize = 8 * 1024 * 1024;

/// What the thread tells.
#[derive(Debug)]
pub(crate) enum IncomingEvent {
    /// There is room again. Being told is all it takes.
    HasRoom,
    /// The payload of this number is in its file, with so many bytes; or cannot be.
    Written { number: u64, result: io::Result<u64> },
    /// The payload of this number was loaded aside; or cannot be.
    LoadedAside { number: u64, result: Result<Box<AsideData>, String> },
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
        checksum: Checksum,
        mailbox: Mailbox,
    ) -> io::Result<Self> {
        let path = folder.join(format!("temp-{}.{number}.rdb", std::process::id()));
        let file = disk.create(&path)?;
        let (jobs, received) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let writer = Writer { number, file, checksum, waiting: Arc::clone(&waiting), mailbox };
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

/// The checksum at the end of a payload, looked at before the old data goes for it.
#[derive(Default)]
pub(crate) struct Checksum {
    is_wanted: bool,
    sum: u64,
    head: Vec<u8>,
    /// The last bytes so far, which may be the checksum.
    tail: Vec<u8>,
}

impl Checksum {
    /// `rdbchecksum`.
    pub(crate) fn wanted(is_wanted: bool) -> Self {
        Self { is_wanted, ..Self::default() }
    }

    fn add(&mut self, part: &[u8]) {
        const HEAD_LEN: usize = b"REDIS0000".len();
        if !self.is_wanted {
            return;
        }
        let missing = HEAD_LEN - self.head.len();
        self.head.extend_from_slice(&part[..missing.min(part.len())]);
        // All but the last eight bytes, wherever parts are cut.
        let known = self.tail.len() + part.len();
        let from_tail = known.saturating_sub(8).min(self.tail.len());
        self.sum = crc64(self.sum, &self.tail[..from_tail]);
        self.tail.drain(..from_tail);
        let from_part = part.len().saturating_sub(8 - self.tail.len());
        self.sum = crc64(self.sum, &part[..from_part]);
        self.tail.extend_from_slice(&part[from_part..]);
    }

    /// Fails when the payload is not what was sent. One that has none, or is no snapshot at all,
    /// is for the loader to judge.
    fn check(&self) -> io::Result<()> {
        const FIRST_WITH_CHECKSUM: u32 = 5;
        let version = self.head.strip_prefix(b"REDIS").and_then(|it| std::str::from_utf8(it).ok());
        let version = version.and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        let told = <[u8; 8]>::try_from(&self.tail[..]).map_or(0, u64::from_le_bytes);
        match version < FIRST_WITH_CHECKSUM || told == 0 || told == self.sum {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is wrong")),
        }
    }
}

/// The thread's side.
struct Writer {
    number: u64,
    file: Box<dyn DiskFile>,
    checksum: Checksum,
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
                self.checksum.check()?;
                return Ok(Some(written));
            };
            self.file.write_all(&part)?;
            self.checksum.add(&part);
            written += part.len() as u64;
            let before = self.waiting.fetch_sub(part.len(), Ordering::AcqRel);
            if before >= WAITING_MAX && before - part.len() < WAITING_MAX {
                self.mailbox.post(Message::Payload(IncomingEvent::HasRoom));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_right_however_the_payload_is_cut() {
        let mut payload = b"REDIS0010 some data and its end \xff".to_vec();
        payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
        let check = |payload: &[u8], len: usize| {
            let mut checksum = Checksum::wanted(true);
            payload.chunks(len).for_each(|part| checksum.add(part));
            checksum.check().is_ok()
        };
        for len in 1..=payload.len() {
            assert!(check(&payload, len), "in parts of {len}");
        }
        payload[12] ^= 1;
        assert!(!check(&payload, 7), "a bit is another one");
        assert!(check(b"HTTP/1.1 400 Bad Request", 7), "no snapshot, so nothing to compare");
    }
}
