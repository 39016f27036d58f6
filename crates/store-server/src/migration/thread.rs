//! The thread that encodes and decodes large values: either may take seconds.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use store_engine::{DecodeRequest, DecodedValue, LeavingPayload, SessionId};

use crate::allocator::{Allocator, free_of_other_thread};
use crate::event_loop::Message;
use crate::persistence::Mailbox;

/// What the thread is asked for. Whoever asks waits for it, so that no more than one per session
/// is in the queue.
enum Work {
    Encode {
        job: u64,
        encoding: u64,
        payload: LeavingPayload,
    },
    Decode {
        session: SessionId,
        request: Box<DecodeRequest>,
    },
    /// What nobody needs any more. To give much memory back takes milliseconds.
    Free(Box<dyn Send>),
    /// The same, where the loop asked for the memory.
    FreeOfLoop(Vec<Vec<u8>>),
}

/// What the thread has done.
#[derive(Debug)]
pub(crate) enum ValueDone {
    /// A value of a migration is ready to be sent.
    Encoded { job: u64, encoding: u64, payload: Vec<u8> },
    /// A payload has become a value.
    Decoded { session: SessionId, request: Box<DecodeRequest>, value: DecodedValue },
}

/// A thread that is started with the first value, and ends with this.
pub(crate) struct ValueThread {
    mailbox: Mailbox,
    allocator: Arc<dyn Allocator>,
    running: Option<(Sender<Work>, JoinHandle<()>)>,
}

impl ValueThread {
    pub(super) fn new(mailbox: Mailbox, allocator: Arc<dyn Allocator>) -> Self {
        Self { mailbox, allocator, running: None }
    }

    /// Has a value encoded. Fails when there is no thread to be had.
    pub(crate) fn encode(
        &mut self,
        job: u64,
        encoding: u64,
        payload: LeavingPayload,
    ) -> io::Result<()> {
        self.give(Work::Encode { job, encoding, payload })
    }

    /// Has a payload decoded. Fails when there is no thread to be had.
    pub(crate) fn decode(
        &mut self,
        session: SessionId,
        request: Box<DecodeRequest>,
    ) -> io::Result<()> {
        self.give(Work::Decode { session, request })
    }

    /// Frees what is not needed any more.
    pub(crate) fn free(&mut self, spent: impl Send + 'static) {
        // Without a thread it is freed here.
        let _ = self.give(Work::Free(Box::new(spent)));
    }

    /// Frees a payload that was restored.
    pub(crate) fn free_payload(&mut self, request: DecodeRequest) {
        let _ = self.give(Work::FreeOfLoop(request.into_payload()));
    }

    fn give(&mut self, work: Work) -> io::Result<()> {
        if self.running.is_none() {
            let (sender, works) = channel();
            let (mailbox, allocator) = (self.mailbox.clone(), Arc::clone(&self.allocator));
            let thread =
                std::thread::Builder::new().name("tenure-values".to_owned()).spawn(move || {
                    for work in works {
                        match do_it(work) {
                            Some(done) => mailbox.post(Message::Value(done)),
                            // Or the loop would do it, in the middle of a turn.
                            None => allocator.give_back(),
                        }
                    }
                })?;
            self.running = Some((sender, thread));
        }
        let Some((sender, _)) = &self.running else { return Ok(()) };
        sender.send(work).map_err(|_| io::Error::other("the thread for values is gone"))
    }
}

impl Drop for ValueThread {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.running.take() {
            drop(sender);
            // A panic has printed itself.
            let _ = thread.join();
        }
    }
}

fn do_it(work: Work) -> Option<ValueDone> {
    match work {
        Work::Encode { job, encoding, payload } => {
            Some(ValueDone::Encoded { job, encoding, payload: payload.encode() })
        }
        Work::Decode { session, request } => {
            let value = request.decode();
            Some(ValueDone::Decoded { session, request, value })
        }
        Work::Free(spent) => {
            drop(spent);
            None
        }
        Work::FreeOfLoop(buffers) => {
            buffers.into_iter().for_each(free_of_other_thread);
            None
        }
    }
}
