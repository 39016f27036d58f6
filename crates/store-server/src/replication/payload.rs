//! The payload of a full sync: all keys of one moment, encoded once on a thread for all replicas
//! that wait for it.
//!
//! ```text
//! loop ── snapshot_turn ─► parts ─► thread: FileWriter ─► Window: chunks ─► each replica's socket
//!                                           └─ to disk ─► file ─────────► each replica's socket
//! ```
//! The window is bounded: the thread waits while the slowest replica has not read so much of it.
//! Whoever reads nothing is closed by `repl-timeout`, and the others go on.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use store_engine::{Engine, SnapshotTurn};
use store_persist::rdb::{FileWriter, Head, Part};
use store_replica::{SessionId, SnapshotTarget};

use crate::persistence::KeyDelay;

/// What is encoded and written at once.
const CHUNK_LEN: usize = 128 * 1024;
/// What is encoded ahead of the slowest replica.
const WINDOW_MAX: usize = 8 * 1024 * 1024;
/// The walk goes on when so little waits to be encoded.
const REFILL_BYTES: usize = 4 * 1024 * 1024;
/// Time per turn of the loop for the walk, as for files.
const TURN_US: u64 = 1000;

/// What a payload needs to begin.
pub(crate) struct PayloadJob {
    pub(crate) target: SnapshotTarget,
    pub(crate) head: Head,
    /// Whether keys follow the head: the engine's snapshot has begun.
    pub(crate) has_keys: bool,
    /// `rdb-key-save-delay`.
    pub(crate) key_delay_us: i64,
}

/// What a replica gets next.
pub(crate) enum Next<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Nothing for now.
    Nothing,
    /// It has all of it.
    End,
}

/// How far a replica is.
struct Reader {
    session: SessionId,
    offset: u64,
}

/// One payload, as the loop sees it.
pub(crate) struct Payload {
    target: SnapshotTarget,
    /// None once the thread has all it will get.
    parts: Option<Sender<Vec<Part>>>,
    /// The result, once: how long it is, or why it is not whole.
    results: Receiver<Result<u64, String>>,
    shared: Arc<Shared>,
    /// Whether the engine's snapshot is this payload's.
    walks: bool,
    /// Whether the walk can go on at once.
    is_busy: bool,
    /// Bytes from `first` on, in order.
    chunks: VecDeque<Vec<u8>>,
    first: u64,
    /// Its length, once it is whole.
    len: Option<u64>,
    /// Where it lies, with target disk.
    file: Option<File>,
    scratch: Vec<u8>,
    readers: Vec<Reader>,
}

impl Payload {
    /// Starts the thread. It calls `wake` when it has something for the loop. `folder` is where a
    /// payload lies that goes to disk first.
    pub(crate) fn begin(
        job: PayloadJob,
        folder: &Path,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let file = match job.target {
            SnapshotTarget::Sockets => None,
            SnapshotTarget::Disk => Some(nameless_file(folder)?),
        };
        let target = job.target;
        let of_thread = file.as_ref().map(File::try_clone).transpose()?;
        let shared = Arc::new(Shared::new(Box::new(wake)));
        let (parts, received) = channel();
        let (result, results) = channel();
        let is_walking = job.has_keys;
        let sink = Sink { shared: Arc::clone(&shared), file: of_thread };
        let thread = std::thread::Builder::new().name("tenure-sync".to_owned());
        thread.spawn(move || {
            let failed = Err("the thread that encodes it has panicked".to_owned());
            let shared = Arc::clone(&sink.shared);
            let mut word = ReportOnDrop { sender: result, result: failed, shared: &shared };
            word.result = encode(sink, &job, &received, &shared).map_err(|e| e.to_string());
        })?;
        Ok(Self {
            target,
            parts: Some(parts).filter(|_| is_walking),
            results,
            shared,
            walks: is_walking,
            is_busy: is_walking,
            chunks: VecDeque::new(),
            first: 0,
            len: None,
            file,
            scratch: Vec::new(),
            readers: Vec::new(),
        })
    }

    /// These replicas get it.
    pub(crate) fn set_readers(&mut self, sessions: Vec<SessionId>) {
        self.readers = sessions.into_iter().map(|session| Reader { session, offset: 0 }).collect();
    }

    pub(crate) fn forget_reader(&mut self, session: SessionId) {
        self.readers.retain(|reader| reader.session != session);
        self.drop_read();
    }

    pub(crate) fn has_reader(&self, session: SessionId) -> bool {
        self.readers.iter().any(|reader| reader.session == session)
    }

    /// Whether the loop should come back without sleeping.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Walks for a while. Fails with the reason why the snapshot was given up.
    pub(crate) fn walk(
        &mut self,
        engine: &mut Engine,
        now_us: impl Fn() -> u64,
    ) -> Result<(), String> {
        let until_us = now_us() + TURN_US;
        self.is_busy = false;
        while self.walks {
            match engine.snapshot_turn(self.shared.ahead_bytes.load(Ordering::SeqCst)) {
                SnapshotTurn::More(parts) => self.hand_over(parts),
                SnapshotTurn::Waiting(parts) => {
                    self.hand_over(parts);
                    if self.waits() {
                        return Ok(());
                    }
                }
                SnapshotTurn::Done(parts) => {
                    self.hand_over(parts);
                    self.walks = false;
                    // An empty list is the end; a thread that is gone has told why.
                    let _ = self.parts.take().map(|sender| sender.send(Vec::new()));
                }
                SnapshotTurn::Abandoned(reason) => {
                    self.walks = false;
                    return Err(reason);
                }
                SnapshotTurn::Settling | SnapshotTurn::Idle => self.walks = false,
            }
            if self.walks && now_us() >= until_us {
                self.is_busy = true;
                return Ok(());
            }
        }
        Ok(())
    }

    fn waits(&self) -> bool {
        self.shared.loop_waits.store(true, Ordering::SeqCst);
        // What was encoded between looking and waiting may have been the last of it.
        self.shared.ahead_bytes.load(Ordering::SeqCst) >= REFILL_BYTES
    }

    fn hand_over(&mut self, parts: Vec<Part>) {
        if let Some(sender) = self.parts.as_ref().filter(|_| !parts.is_empty()) {
            let bytes: usize = parts.iter().map(Part::own_bytes).sum();
            self.shared.ahead_bytes.fetch_add(bytes, Ordering::SeqCst);
            // A thread that is gone has told why.
            let _ = sender.send(parts);
        }
    }

    /// Takes what was encoded. The result comes once: how long it is, or why it is not whole.
    pub(crate) fn take_encoded(&mut self) -> Option<Result<u64, String>> {
        self.chunks.extend(std::mem::take(&mut self.shared.window().encoded));
        let result = self.results.try_recv().ok()?;
        // The last chunk may have come since.
        self.chunks.extend(std::mem::take(&mut self.shared.window().encoded));
        self.len = result.as_ref().ok().copied();
        Some(result)
    }

    /// Whether it goes to disk first.
    pub(crate) fn target(&self) -> SnapshotTarget {
        self.target
    }

    /// Whether it lies in a file.
    pub(crate) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether it is whole, and all who waited for it have it.
    pub(crate) fn is_read(&self) -> bool {
        self.len.is_some() && self.readers.is_empty()
    }

    /// What a replica gets next.
    pub(crate) fn next(&mut self, session: SessionId) -> io::Result<Next<'_>> {
        let found = self.readers.iter().find(|reader| reader.session == session);
        let Some(offset) = found.map(|reader| reader.offset) else { return Ok(Next::Nothing) };
        if self.len == Some(offset) {
            return Ok(Next::End);
        }
        if let Some(file) = &self.file {
            let Some(len) = self.len else { return Ok(Next::Nothing) };
            let wanted = CHUNK_LEN.min((len - offset) as usize);
            self.scratch.resize(wanted, 0);
            file.read_exact_at(&mut self.scratch, offset)?;
            return Ok(Next::Bytes(&self.scratch));
        }
        let mut begin = self.first;
        for chunk in &self.chunks {
            let end = begin + chunk.len() as u64;
            if offset < end {
                return Ok(Next::Bytes(&chunk[(offset - begin) as usize..]));
            }
            begin = end;
        }
        Ok(Next::Nothing)
    }

    /// So many bytes of [`next`](Self::next) were written.
    pub(crate) fn advance(&mut self, session: SessionId, len: usize) {
        for reader in self.readers.iter_mut().filter(|reader| reader.session == session) {
            reader.offset += len as u64;
        }
        self.drop_read();
    }

    /// What all have read makes room for more.
    fn drop_read(&mut self) {
        let Some(slowest) = self.readers.iter().map(|reader| reader.offset).min() else { return };
        let mut freed = 0;
        while let Some(chunk) = self.chunks.front()
            && self.first + chunk.len() as u64 <= slowest
        {
            freed += chunk.len();
            self.first += chunk.len() as u64;
            self.chunks.pop_front();
        }
        if freed > 0 {
            self.shared.window().bytes -= freed;
            self.shared.room.notify_one();
        }
    }

    /// Gives it up, and the engine's snapshot with it.
    pub(crate) fn cancel(self, engine: &mut Engine) {
        if self.walks {
            engine.abandon_snapshot();
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.shared.window().is_cancelled = true;
        self.shared.room.notify_one();
    }
}

/// What loop and thread share.
struct Shared {
    /// Bytes of parts handed over and not encoded.
    ahead_bytes: AtomicUsize,
    /// Whether the walk waits for them.
    loop_waits: AtomicBool,
    window: Mutex<Window>,
    room: Condvar,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Window {
    /// Encoded, and the loop has yet to take it.
    encoded: Vec<Vec<u8>>,
    /// Bytes that were encoded and that not all replicas have read.
    bytes: usize,
    /// Nobody wants it any more.
    is_cancelled: bool,
}

impl Shared {
    fn new(wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            ahead_bytes: AtomicUsize::new(0),
            loop_waits: AtomicBool::new(false),
            window: Mutex::default(),
            room: Condvar::new(),
            wake,
        }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        !self.window().is_cancelled
    }
}

/// Where the thread's bytes go.
struct Sink {
    shared: Arc<Shared>,
    file: Option<File>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(file) = &mut self.file {
            return match self.shared.is_wanted() {
                true => file.write(bytes),
                false => Err(io::Error::other("nobody waits for it any more")),
            };
        }
        let chunk = &bytes[..bytes.len().min(CHUNK_LEN)];
        let is_full = |window: &mut Window| window.bytes >= WINDOW_MAX && !window.is_cancelled;
        let waited = self.shared.room.wait_while(self.shared.window(), is_full);
        let mut window = waited.unwrap_or_else(PoisonError::into_inner);
        if window.is_cancelled {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        window.bytes += chunk.len();
        window.encoded.push(chunk.to_vec());
        drop(window);
        (self.shared.wake)();
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Encodes until the end. Returns how many bytes it came to.
fn encode(
    sink: Sink,
    job: &PayloadJob,
    received: &Receiver<Vec<Part>>,
    shared: &Shared,
) -> io::Result<u64> {
    let out = BufWriter::with_capacity(CHUNK_LEN, sink);
    let mut writer = FileWriter::begin(out, &job.head)?;
    if job.has_keys {
        encode_keys(&mut writer, job, received, shared)?;
    }
    let (mut out, len) = writer.finish()?;
    out.flush()?;
    Ok(len)
}

/// Encodes parts until the empty list that ends them.
fn encode_keys(
    writer: &mut FileWriter<BufWriter<Sink>>,
    job: &PayloadJob,
    received: &Receiver<Vec<Part>>,
    shared: &Shared,
) -> io::Result<()> {
    let mut delay = KeyDelay::new(job.key_delay_us);
    loop {
        // The loop gave the snapshot up, or is gone.
        let parts = received.recv().map_err(io::Error::other)?;
        if parts.is_empty() {
            return Ok(());
        }
        for part in parts {
            writer.part(&part)?;
            delay.wait(part.entries() as u64, &|| shared.is_wanted());
            let bytes = part.own_bytes();
            drop(part);
            let ahead = shared.ahead_bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
            if ahead < REFILL_BYTES && shared.loop_waits.swap(false, Ordering::SeqCst) {
                (shared.wake)();
            }
        }
    }
}

/// What the loop is told when the thread ends, be it by a panic, which has printed itself.
struct ReportOnDrop<'a> {
    sender: Sender<Result<u64, String>>,
    result: Result<u64, String>,
    shared: &'a Shared,
}

impl Drop for ReportOnDrop<'_> {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(0));
        // A loop that is gone needs no result.
        let _ = self.sender.send(result);
        (self.shared.wake)();
    }
}

/// A file that is gone with the process, however that ends.
fn nameless_file(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!("temp-{}-replicas.rdb", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
