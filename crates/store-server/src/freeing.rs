//! A thread that frees what the engine has let go, so that nobody waits for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread::JoinHandle;

use store_engine::Garbage;

use crate::allocator::Allocator;

/// Bytes that may wait to be freed: they are in use still, beyond `maxmemory`. One that is
/// larger is taken when nothing else waits.
const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;
/// With `maxmemory`, a quarter of it may wait, or this much if that is more.
const WAITING_BYTES_MIN: usize = 16 * 1024 * 1024;

/// Bytes freed between two times that the thread tells the allocator.
const GIVEN_BACK_MIN: usize = 8 * 1024 * 1024;

/// The thread, started when it is first needed.
pub(crate) struct FreeingThread {
    allocator: Arc<dyn Allocator>,
    worker: Option<Worker>,
    waiting_bytes: usize,
    waiting_objects: usize,
}

struct Worker {
    sender: Sender<Work>,
    freed: Arc<Freed>,
    /// What of it was told before.
    told: (usize, usize),
    thread: JoinHandle<()>,
}

enum Work {
    Free(Garbage),
    /// To tell the allocator.
    GiveBack,
}

#[derive(Default)]
struct Freed {
    objects: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether the allocator is to be told, and was not yet: once is enough for all who ask.
    is_asked: AtomicBool,
}

impl FreeingThread {
    pub(crate) fn new(allocator: Arc<dyn Allocator>) -> Self {
        Self { allocator, worker: None, waiting_bytes: 0, waiting_objects: 0 }
    }

    /// Has garbage freed. Gives it back when too much waits already by the measure of
    /// `maxmemory`, 0 without one, or when there is no thread to be had.
    pub(crate) fn free(&mut self, garbage: Garbage, memory_max: usize) -> Result<(), Garbage> {
        let (objects, bytes) = (garbage.objects(), garbage.bytes());
        let waiting_max = match memory_max {
            0 => WAITING_BYTES_MAX,
            _ => (memory_max / 4).clamp(WAITING_BYTES_MIN, WAITING_BYTES_MAX),
        };
        let is_full = self.waiting_bytes.saturating_add(bytes) > waiting_max;
        if is_full && self.waiting_bytes > 0 {
            return Err(garbage);
        }
        let Some(worker) = self.worker() else { return Err(garbage) };
        if let Err(SendError(Work::Free(garbage))) = worker.sender.send(Work::Free(garbage)) {
            return Err(garbage);
        }
        self.waiting_objects += objects;
        self.waiting_bytes += bytes;
        Ok(())
    }

    /// Has the thread give back to the system what is free by now. False when there is no thread
    /// to be had.
    pub(crate) fn give_back(&mut self) -> bool {
        self.worker().is_some_and(|worker| {
            worker.freed.is_asked.swap(true, Ordering::AcqRel)
                || worker.sender.send(Work::GiveBack).is_ok()
        })
    }

    fn worker(&mut self) -> Option<&Worker> {
        if self.worker.is_none() {
            self.worker = Worker::start(&self.allocator).ok();
        }
        self.worker.as_ref()
    }

    /// Whether anything is known to wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting_objects > 0
    }

    /// Objects and bytes freed since the last call, if anything waited at all.
    #[inline]
    pub(crate) fn take_freed(&mut self) -> Option<(usize, usize)> {
        if self.waiting_objects == 0 {
            return None;
        }
        let worker = self.worker.as_mut()?;
        // Objects first: the thread counts them last, so their bytes are told with them or before.
        let objects = worker.freed.objects.load(Ordering::Acquire);
        let bytes = worker.freed.bytes.load(Ordering::Acquire);
        let notifications =
            (objects.wrapping_sub(worker.told.0), bytes.wrapping_sub(worker.told.1));
        worker.told = (objects, bytes);
        self.waiting_objects -= notifications.0;
        self.waiting_bytes -= notifications.1;
        Some(notifications)
    }
}

impl Worker {
    fn start(allocator: &Arc<dyn Allocator>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let freed = Arc::new(Freed::default());
        let (counts, allocator) = (Arc::clone(&freed), Arc::clone(allocator));
        let thread = std::thread::Builder::new()
            .name("tenure-freeing".to_owned())
            .spawn(move || work(&receiver, &counts, &*allocator))?;
        Ok(Self { sender, freed, told: (0, 0), thread })
    }
}

fn work(works: &Receiver<Work>, freed: &Freed, allocator: &dyn Allocator) {
    let mut kept = 0;
    for work in works {
        if let Work::Free(garbage) = work {
            let (objects, bytes) = (garbage.objects(), garbage.bytes());
            drop(garbage);
            freed.bytes.fetch_add(bytes, Ordering::Release);
            freed.objects.fetch_add(objects, Ordering::Release);
            kept += bytes;
            if kept < GIVEN_BACK_MIN {
                continue;
            }
        } else {
            freed.is_asked.store(false, Ordering::Release);
        }
        allocator.give_back();
        kept = 0;
    }
}

impl Drop for FreeingThread {
    fn drop(&mut self) {
        if let Some(Worker { sender, thread, .. }) = self.worker.take() {
            drop(sender);
            // It ends when all is freed; a panic has printed itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread::ThreadId;

    use super::*;

    /// Notes which threads have told it.
    #[derive(Default)]
    struct Listening(Mutex<Vec<ThreadId>>);

    /// The first call does not return before a gate is opened; counts them.
    #[derive(Default)]
    struct Slow {
        gate: Mutex<()>,
        calls: AtomicUsize,
    }

    impl Allocator for Slow {
        fn name(&self) -> &str {
            "slow"
        }

        fn give_back(&self) {
            self.calls.fetch_add(1, Ordering::SeqCst);
            drop(self.gate.lock().unwrap());
        }
    }

    #[test]
    fn who_asks_while_the_thread_is_at_it_asks_once() {
        let allocator = Arc::new(Slow::default());
        let mut freeing = FreeingThread::new(Arc::clone(&allocator) as Arc<dyn Allocator>);
        let gate = allocator.gate.lock().unwrap();
        assert!((0..1000).all(|_| freeing.give_back()));
        drop(gate);
        drop(freeing);
        // One that it was at, and one for all who asked meanwhile.
        assert!((1..=2).contains(&allocator.calls.load(Ordering::SeqCst)));
    }

    impl Allocator for Listening {
        fn name(&self) -> &str {
            "listening"
        }

        fn give_back(&self) {
            self.0.lock().unwrap().push(std::thread::current().id());
        }
    }

    #[test]
    fn memory_is_given_back_by_the_thread() {
        let allocator = Arc::new(Listening::default());
        let mut freeing = FreeingThread::new(Arc::clone(&allocator) as Arc<dyn Allocator>);
        assert!(freeing.give_back());
        assert!(!freeing.is_busy(), "nothing waits for it");
        // The thread ends when all is done.
        drop(freeing);
        let told = allocator.0.lock().unwrap();
        assert!(told.len() == 1 && told[0] != std::thread::current().id(), "{told:?}");
    }
}
