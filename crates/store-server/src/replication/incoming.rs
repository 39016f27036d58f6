//! A payload that arrives from the primary and is kept in a file until it is whole. A thread
//! writes it and looks at every record on the way, so that neither the loop waits for the disk nor
//! memory grows with the data, and the old data goes for nothing that cannot be loaded.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store_engine::{Aside, AsideData};
use store_persist::disk::{Disk, DiskFile};
use store_persist::rdb::RdbError;

use super::parts::{PartsReader, PartsSender, parts};
use crate::event_loop::Message;
use crate::persistence::Mailbox;

/// What the thread tells.
#[derive(Debug)]
pub(crate) enum IncomingEvent {
    /// There is room again. Being told is all it takes.
    HasRoom,
    /// The payload of this number is in its file, and can be loaded; or not.
    Written { number: u64, result: Result<Written, IncomingFailure> },
    /// The payload of this number was loaded aside; or cannot be.
    LoadedAside { number: u64, result: Result<Box<AsideData>, RdbError> },
}

/// What is in a file.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) keys: u64,
}

/// Why a payload is of no use.
#[derive(Debug)]
pub(crate) enum IncomingFailure {
    /// The file could not be written.
    Disk(io::Error),
    /// It cannot be loaded.
    Payload(RdbError),
}

/// The payload, and the file that it goes to. The file goes with it.
pub(crate) struct Incoming {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    pub(crate) parts: PartsSender,
}

impl Incoming {
    /// Makes the file, in the folder of all files. `number` tells payloads apart; `aside` is what
    /// looks at the records. Fails when the disk does, or there is no thread to be had.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        folder: &Path,
        number: u64,
        aside: Aside,
        mailbox: Mailbox,
    ) -> io::Result<Self> {
        let path = folder.join(format!("temp-{}.{number}.rdb", std::process::id()));
        let file = disk.create(&path)?;
        let (parts, input) = parts(number, mailbox.clone());
        let incoming = Self { disk, path, parts };
        let mut copying = Copying { input, file, written: 0, failure: None };
        let write = move || {
            let result = copying.write_all(aside);
            mailbox.post(Message::Payload(IncomingEvent::Written { number, result }));
        };
        std::thread::Builder::new().name("tenure-payload".to_owned()).spawn(write)?;
        Ok(incoming)
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

/// What is read of the payload is written to the file.
struct Copying {
    input: PartsReader,
    file: Box<dyn DiskFile>,
    written: u64,
    failure: Option<io::Error>,
}

impl Copying {
    fn write_all(&mut self, aside: Aside) -> Result<Written, IncomingFailure> {
        let checked = aside.check(&mut *self);
        if let Some(error) = self.failure.take() {
            return Err(IncomingFailure::Disk(error));
        }
        let report = checked.map_err(IncomingFailure::Payload)?;
        self.file.flush().map_err(IncomingFailure::Disk)?;
        Ok(Written { bytes: self.written, keys: report.keys })
    }
}

impl Read for Copying {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        if let Err(error) = self.file.write_all(&buffer[..count]) {
            let told = io::Error::from(error.kind());
            self.failure = Some(error);
            return Err(told);
        }
        self.written += count as u64;
        Ok(count)
    }
}
