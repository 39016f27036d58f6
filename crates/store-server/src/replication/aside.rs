//! A payload that is loaded as it arrives, beside the data in use. A thread decodes it, so the loop
//! only hands parts on, and takes the data once it is whole.

use std::io;

use store_engine::{Aside, SessionId};

use super::incoming::IncomingEvent;
use super::parts::{PartsSender, parts};
use crate::event_loop::Message;
use crate::persistence::{KeyDelay, Mailbox};

/// How clients are served meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhileLoading {
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
    pub(crate) meanwhile: WhileLoading,
    /// `key-load-delay`.
    pub(crate) load_delay_us: i64,
}

/// The loop's side.
pub(crate) struct IncomingAside {
    pub(crate) parts: PartsSender,
    pub(crate) meanwhile: WhileLoading,
}

impl IncomingAside {
    /// Begins to load. Fails when there is no thread to be had.
    pub(crate) fn begin(begin: Begin, mailbox: Mailbox) -> io::Result<Self> {
        let Begin { aside, now_us, number, meanwhile, load_delay_us } = begin;
        let (parts, mut input) = parts(number, mailbox.clone());
        let load = move || {
            let mut delay = KeyDelay::new(load_delay_us);
            let slice_len = if delay.is_none() { SLICE_LEN } else { 1 };
            let mut records = || {
                delay.wait(slice_len as u64, &|| true);
                slice_len
            };
            let result = aside.load(now_us, &mut input, &mut records).map(Box::new);
            mailbox.post(Message::Payload(IncomingEvent::LoadedAside { number, result }));
        };
        std::thread::Builder::new().name("tenure-payload".to_owned()).spawn(load)?;
        Ok(Self { parts, meanwhile })
    }
}
