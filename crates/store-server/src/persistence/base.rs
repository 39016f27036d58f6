//! The base of the append-only file: all keys of one moment, written on a thread of its own.
//!
//! ```text
//! loop ── snapshot_turn ─► parts ─► thread: encode, write, sync ─► FileEvent::BaseWritten
//! ```
//! It is a snapshot file, or with `aof-use-rdb-preamble no` a file of requests: RESTORE for every
//! key, which says of a value what no shorter request could.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use store_engine::{Engine, SnapshotForm, SnapshotKind, SnapshotTurn};
use store_persist::aof::{Encoder, Event};
use store_persist::disk::{Disk, DiskFile};
use store_persist::rdb::{FileWriter, Head, Part, SavedEntry};
use store_resp::OwnedRequest;
use store_types::dump;

use super::delay::KeyDelay;
use super::worker::{FileEvent, Mailbox};

const WRITE_LEN: usize = 256 * 1024;
/// Slices of the walk per turn of the loop: about a millisecond.
const SLICES_MAX: usize = 3;
/// The walk goes on when so little waits to be written.
const REFILL_BYTES: usize = 4 * 1024 * 1024;

/// What a turn came to.
pub(super) enum BaseTurn {
    More,
    /// The thread has all of it, and will tell.
    HandedOver,
    Failed(String),
}

/// What loop and thread share.
#[derive(Default)]
struct Shared {
    /// Bytes of parts handed over and not written.
    ahead_bytes: AtomicUsize,
    /// Whether the walk waits for them.
    loop_waits: AtomicBool,
    /// Whether the file was given up before the thread had all of it.
    is_dropped: AtomicBool,
}

/// A base being written. Parts that wait are bounded by the engine, which gives up a snapshot
/// that is written too slowly.
pub(super) struct BaseWriter {
    /// Which base it is.
    pub(super) generation: u64,
    pub(super) path: PathBuf,
    parts: Sender<Vec<Part>>,
    shared: Arc<Shared>,
    is_handed_over: bool,
}

impl Drop for BaseWriter {
    fn drop(&mut self) {
        self.shared.is_dropped.store(!self.is_handed_over, Ordering::SeqCst);
    }
}

impl BaseWriter {
    /// Takes a snapshot of this moment, and starts the thread that writes it to `path`.
    pub(super) fn begin(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        engine: &mut Engine,
        now_us: u64,
        is_rdb: bool,
        generation: u64,
        mailbox: Mailbox,
    ) -> io::Result<Self> {
        let file = BaseFile::begin(&**disk, &path, engine, is_rdb)?;
        let (disk, at) = (Arc::clone(disk), path.clone());
        let form = form(engine, is_rdb);
        if !engine.start_snapshot(now_us, SnapshotKind::Rewrite, form) {
            return Err(io::Error::other("another snapshot is not over yet"));
        }
        let delay = KeyDelay::new(engine.config().settings().snapshot.save_delay_us);
        let (parts, received) = channel();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("tenure-rewrite".to_owned());
        let spawned = thread.spawn(move || {
            let result = Some(Err(PANICKED.to_owned()));
            let mut word = ReportOnDrop { mailbox, generation, path, result };
            let written = write_parts(file, &received, &of_thread, &word.mailbox, delay);
            if !matches!(written, Some(Ok(()))) {
                // Nobody wants it, and it takes room. Here, since a large one takes time.
                let _ = disk.remove(&word.path);
            }
            word.result = written.map(|written| written.map_err(|error| error.to_string()));
        });
        if let Err(error) = spawned {
            engine.abandon_snapshot();
            return Err(error);
        }
        Ok(Self { generation, path: at, parts, shared, is_handed_over: false })
    }

    /// Whether there is nothing to do before the thread says so.
    pub(super) fn waits(&self) -> bool {
        self.shared.loop_waits.load(Ordering::SeqCst)
    }

    pub(super) fn turn(&mut self, engine: &mut Engine) -> BaseTurn {
        for _ in 0..SLICES_MAX {
            if self.waits() {
                break;
            }
            let ahead = self.shared.ahead_bytes.load(Ordering::SeqCst);
            match engine.snapshot_turn(ahead) {
                SnapshotTurn::More(parts) => self.hand_over(parts),
                SnapshotTurn::Waiting(parts) => {
                    self.hand_over(parts);
                    self.wait();
                }
                SnapshotTurn::Done(parts) => {
                    self.hand_over(parts);
                    // An empty list is the end; without one the thread throws the file away. A
                    // thread that is gone has told why.
                    let _ = self.parts.send(Vec::new());
                    self.is_handed_over = true;
                    return BaseTurn::HandedOver;
                }
                SnapshotTurn::Abandoned(reason) => return BaseTurn::Failed(reason),
                SnapshotTurn::Settling => {}
                SnapshotTurn::Idle => return BaseTurn::Failed("the snapshot is gone".to_owned()),
            }
        }
        BaseTurn::More
    }

    fn wait(&self) {
        self.shared.loop_waits.store(true, Ordering::SeqCst);
        // What was written between looking and waiting may have been the last of it.
        if self.shared.ahead_bytes.load(Ordering::SeqCst) < REFILL_BYTES {
            self.shared.loop_waits.store(false, Ordering::SeqCst);
        }
    }

    fn hand_over(&self, parts: Vec<Part>) {
        if !parts.is_empty() {
            let bytes: usize = parts.iter().map(Part::own_bytes).sum();
            self.shared.ahead_bytes.fetch_add(bytes, Ordering::SeqCst);
            // A thread that is gone has told why.
            let _ = self.parts.send(parts);
        }
    }
}

/// What the loop is told when the thread ends, be it by a panic, which has printed itself.
struct ReportOnDrop {
    mailbox: Mailbox,
    generation: u64,
    path: PathBuf,
    result: Option<Result<(), String>>,
}

const PANICKED: &str = "the thread that writes the base has panicked";

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        if let Some(result) = self.result.take() {
            let (generation, path) = (self.generation, std::mem::take(&mut self.path));
            self.mailbox.tell(FileEvent::Done(Event::BaseWritten { generation, path, result }));
        }
    }
}

/// Writes until the end. `None` when nobody wants the file any more.
fn write_parts(
    mut file: BaseFile,
    received: &Receiver<Vec<Part>>,
    shared: &Shared,
    mailbox: &Mailbox,
    mut delay: KeyDelay,
) -> Option<io::Result<()>> {
    let is_wanted = || !shared.is_dropped.load(Ordering::SeqCst);
    loop {
        let parts = received.recv().ok()?;
        if parts.is_empty() {
            return Some(file.finish());
        }
        for part in parts {
            if let Err(error) = file.part(&part) {
                return Some(Err(error));
            }
            delay.wait(part.entries() as u64, &is_wanted);
            let bytes = part.own_bytes();
            let ahead = shared.ahead_bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
            if ahead < REFILL_BYTES && shared.loop_waits.swap(false, Ordering::SeqCst) {
                mailbox.tell(FileEvent::BaseWaits);
            }
        }
    }
}

/// Writes all keys to `path` while everybody waits: before the first client is served.
pub(super) fn write_base_now(
    disk: &dyn Disk,
    path: &Path,
    engine: &mut Engine,
    now_us: u64,
    is_rdb: bool,
) -> io::Result<()> {
    let mut file = BaseFile::begin(disk, path, engine, is_rdb)?;
    let form = form(engine, is_rdb);
    if !engine.start_snapshot(now_us, SnapshotKind::Rewrite, form) {
        return Err(io::Error::other("another snapshot is not over yet"));
    }
    loop {
        let (parts, is_last) = match engine.snapshot_turn(0) {
            SnapshotTurn::More(parts) | SnapshotTurn::Waiting(parts) => (parts, false),
            SnapshotTurn::Done(parts) => (parts, true),
            SnapshotTurn::Abandoned(reason) => return Err(io::Error::other(reason)),
            SnapshotTurn::Settling | SnapshotTurn::Idle => (Vec::new(), true),
        };
        parts.iter().try_for_each(|part| file.part(part))?;
        if is_last {
            return file.finish();
        }
    }
}

fn form(engine: &Engine, is_rdb: bool) -> SnapshotForm {
    match is_rdb {
        true => SnapshotForm::Rdb { compresses: engine.config().settings().snapshot.compresses },
        false => SnapshotForm::Entries,
    }
}

type Output = BufWriter<Box<dyn DiskFile>>;

enum BaseFile {
    Snapshot(FileWriter<Output>),
    Requests(RequestFile),
}

impl BaseFile {
    fn begin(disk: &dyn Disk, path: &Path, engine: &Engine, is_rdb: bool) -> io::Result<Self> {
        let output = BufWriter::with_capacity(WRITE_LEN, disk.create(path)?);
        let head = engine.snapshot_head(true);
        Ok(match is_rdb {
            true => Self::Snapshot(FileWriter::begin(output, &head)?),
            false => Self::Requests(RequestFile::begin(output, &head)?),
        })
    }

    fn part(&mut self, part: &Part) -> io::Result<()> {
        match (self, part) {
            (Self::Snapshot(file), part) => file.part(part),
            (Self::Requests(file), Part::Entry(entry)) => file.entry(entry),
            // Entries come one by one, so this selects a database, and they say theirs.
            (Self::Requests(_), Part::Run(_)) => Ok(()),
        }
    }

    fn finish(self) -> io::Result<()> {
        let output = match self {
            Self::Snapshot(file) => file.finish()?.0,
            Self::Requests(file) => file.finish()?,
        };
        output.into_inner().map_err(io::IntoInnerError::into_error)?.sync()
    }
}

/// Keys as requests that make them.
struct RequestFile {
    output: Output,
    encoder: Encoder,
    /// Not written yet, and covered by the next checksum.
    bytes: Vec<u8>,
}

impl RequestFile {
    fn begin(output: Output, head: &Head) -> io::Result<Self> {
        let mut file = Self { output, encoder: Encoder::new(), bytes: Vec::new() };
        Encoder::begin(&mut file.bytes);
        file.output.write_all(&file.bytes)?;
        file.bytes.clear();
        for code in &head.functions {
            file.add(0, &[b"FUNCTION", b"LOAD", code])?;
        }
        Ok(file)
    }

    fn entry(&mut self, entry: &SavedEntry) -> io::Result<()> {
        let payload = dump::dump(entry.value.as_ref(), None);
        let ends = entry.expires_at.unwrap_or(0).to_string();
        let words: [&[u8]; 5] = [b"RESTORE", &entry.key, ends.as_bytes(), &payload, b"ABSTTL"];
        self.add(entry.db, &words)
    }

    fn add(&mut self, db: usize, words: &[&[u8]]) -> io::Result<()> {
        let request = OwnedRequest::from_args(words.iter().copied());
        self.encoder.add([(db, request.as_request())].into_iter(), &mut self.bytes);
        if self.bytes.len() >= WRITE_LEN { self.seal() } else { Ok(()) }
    }

    fn seal(&mut self) -> io::Result<()> {
        Encoder::seal(&mut self.bytes, 0);
        self.output.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<Output> {
        if !self.bytes.is_empty() {
            self.seal()?;
        }
        Ok(self.output)
    }
}
