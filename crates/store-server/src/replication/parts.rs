//! Parts of a payload on their way from the loop to the thread that reads them.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::incoming::IncomingEvent;
use crate::event_loop::Message;
use crate::persistence::Mailbox;

/// Bytes that may wait for the thread. The primary waits meanwhile.
const WAITING_MAX: usize = 8 * 1024 * 1024;

/// The two ends for payload `number`. The thread tells the loop by `mailbox` when there is room
/// again.
pub(super) fn parts(number: u64, mailbox: Mailbox) -> (PartsSender, PartsReader) {
    let (sender, receiver) = channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let reader = PartsReader {
        receiver,
        current: Vec::new(),
        at: 0,
        waiting: Arc::clone(&waiting),
        mailbox,
    };
    (PartsSender { number, sender: Some(sender), waiting, received: 0 }, reader)
}

/// The loop's end.
pub(crate) struct PartsSender {
    /// Tells payloads apart.
    number: u64,
    sender: Option<Sender<Vec<u8>>>,
    waiting: Arc<AtomicUsize>,
    received: u64,
}

impl PartsSender {
    /// Takes the next part.
    pub(crate) fn push(&mut self, part: Vec<u8>) {
        self.received += part.len() as u64;
        self.waiting.fetch_add(part.len(), Ordering::AcqRel);
        // A thread that failed has told so.
        let _ = self.sender.as_ref().map(|sender| sender.send(part));
    }

    /// All of it came: an event tells what has become of it.
    pub(crate) fn finish(&mut self) {
        self.sender = None;
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
}

/// What the thread reads: parts as they come, until there are no more.
pub(super) struct PartsReader {
    receiver: Receiver<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    waiting: Arc<AtomicUsize>,
    mailbox: Mailbox,
}

impl Read for PartsReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            let done = self.current.len();
            let before = self.waiting.fetch_sub(done, Ordering::AcqRel);
            if before >= WAITING_MAX && before - done < WAITING_MAX {
                self.mailbox.post(Message::Payload(IncomingEvent::HasRoom));
            }
            (self.current, self.at) = (Vec::new(), 0);
            match self.receiver.recv() {
                Ok(part) => self.current = part,
                Err(_) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.current.len() - self.at);
        buffer[..count].copy_from_slice(&self.current[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
