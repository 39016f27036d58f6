//! A thread that frees what the engine has let go, so that nobody waits for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use store_engine::Garbage;

/// Bytes that may wait to be freed: they are in use still, beyond `maxmemory`. One that is
/// larger is taken when nothing else waits.
const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;
/// With `maxmemory`, a quarter of it may wait, or this much if that is more.
const WAITING_BYTES_MIN: usize = 16 * 1024 * 1024;

/// The thread, started when it is first needed.
#[derive(Default)]
pub(crate) struct FreeingThread {
    worker: Option<Worker>,
    waiting_bytes: usize,
    waiting_objects: usize,
}

struct Worker {
    sender: Sender<Garbage>,
    freed: Arc<Freed>,
    /// What of it was told before.
    told: (usize, usize),
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Freed {
    objects: AtomicUsize,
    bytes: AtomicUsize,
}

impl FreeingThread {
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
        if self.worker.is_none() {
            self.worker = Worker::start().ok();
        }
        let Some(worker) = &self.worker else { return Err(garbage) };
        worker.sender.send(garbage).map_err(|refused| refused.0)?;
        self.waiting_objects += objects;
        self.waiting_bytes += bytes;
        Ok(())
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
    fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        let freed = Arc::new(Freed::default());
        let counts = Arc::clone(&freed);
        let thread = std::thread::Builder::new()
            .name("tenure-freeing".to_owned())
            .spawn(move || free_all(&receiver, &counts))?;
        Ok(Self { sender, freed, told: (0, 0), thread })
    }
}

fn free_all(garbage: &Receiver<Garbage>, freed: &Freed) {
    for garbage in garbage {
        let (objects, bytes) = (garbage.objects(), garbage.bytes());
        drop(garbage);
        freed.bytes.fetch_add(bytes, Ordering::Release);
        freed.objects.fetch_add(objects, Ordering::Release);
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
