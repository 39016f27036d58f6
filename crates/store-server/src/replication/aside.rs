//! A payload that is loaded as it arrives, beside the data in use. A thread decodes it, so the loop
//! only hands parts on, and takes the data once it is whole.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use store_engine::{Aside, SessionId};

use super::incoming::{IncomingEvent, WAITING_MAX};
use crate::event_loop::Message;
use crate::persistence::{KeyDelay, Mailbox};

/// How clients are served meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// From the old data: it is an earlier state of the same history.
    OldData,
    /// They are told that data is loaded.
    Refusals(SessionId),
}

/// Records that are decoded at once.
const SLICE_LEN: usize = 256;

/// What is to be loaded, and how.
pub(crate) struct Begin {
    pub(crate) aside: Aside,
    pub(crate) now_us: u64,
    /// Tells payloads apart.
    pub(crate) number: u64,
    pub(crate) meanwhile: Meanwhile,
    /// `key-load-delay`.
    pub(crate) load_delay_us: i64,
}

/// The loop's side.
pub(crate) struct IncomingAside {
    number: u64,
    parts: Option<Sender<Vec<u8>>>,
    waiting: Arc<AtomicUsize>,
    received: u64,
    pub(crate) meanwhile: Meanwhile,
}

impl IncomingAside {
    /// Begins to load. Fails when there is no thread to be had.
    pub(crate) fn begin(begin: Begin, mailbox: Mailbox) -> io::Result<Self> {
        let Begin { aside, now_us, number, meanwhile, load_delay_us } = begin;
        let (parts, received) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut input = Parts {
            parts: received,
            current: Vec::new(),
            at: 0,
            waiting: Arc::clone(&waiting),
            mailbox: mailbox.clone(),
        };
        let load = move || {
            let mut delay = KeyDelay::new(load_delay_us);
            let slice_len = if delay.is_none() { SLICE_LEN } else { 1 };
            let mut records = || {
                delay.wait(slice_len as u64, &|| true);
                slice_len
            };
            let result = aside.load(now_us, &mut input, &mut records);
            if result.is_ok() {
                // It is whole once its end was told.
                let _ = io::copy(&mut input, &mut io::sink());
            }
            let result = result.map(Box::new).map_err(|error| error.to_string());
            mailbox.post(Message::Payload(IncomingEvent::LoadedAside { number, result }));
        };
        std::thread::Builder::new().name("tenure-payload".to_owned()).spawn(load)?;
        Ok(Self { number, parts: Some(parts), waiting, received: 0, meanwhile })
    }

    pub(crate) fn push(&mut self, part: Vec<u8>) {
        self.received += part.len() as u64;
        self.waiting.fetch_add(part.len(), Ordering::AcqRel);
        // A thread that failed has told so.
        let _ = self.parts.as_ref().map(|parts| parts.send(part));
    }

    /// All of it came: an event tells when it is loaded.
    pub(crate) fn finish(&mut self) {
        self.parts = None;
    }

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
struct Parts {
    parts: Receiver<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    waiting: Arc<AtomicUsize>,
    mailbox: Mailbox,
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            let done = self.current.len();
            let before = self.waiting.fetch_sub(done, Ordering::AcqRel);
            if before >= WAITING_MAX && before - done < WAITING_MAX {
                self.mailbox.post(Message::Payload(IncomingEvent::HasRoom));
            }
            (self.current, self.at) = (Vec::new(), 0);
            match self.parts.recv() {
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
