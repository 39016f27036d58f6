//! Snapshot files: written beside the one they replace, and given its name once they are safe.
//!
//! ```text
//! loop ── snapshot_turn ─► parts ─► thread: encode, compress, write ─► sync, rename, sync folder
//!   ▲                                                                            │
//!   └──────────────── how much waits (ahead_bytes), Message::SaveFinished ◄──────┘
//! ```

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use store_engine::{Engine, SaveFailure, SaveJob, SnapshotTurn};
use store_persist::disk::{Disk, DiskFile, folder_of};
use store_persist::rdb::{FileWriter, Part};

use super::delay::KeyDelay;

/// Written between two syncs, so that the last one is not a long wait for everybody's disk.
const SYNC_BYTES: u64 = 32 * 1024 * 1024;
const WRITE_BYTES: usize = 256 * 1024;
/// The loop is woken when so little is left to write.
const REFILL_BYTES: usize = 4 * 1024 * 1024;
/// Time per turn of the loop for the walk. With the requests of a turn it stays well under 5 ms.
const TURN_US: u64 = 1000;

/// Which of a server's snapshots is the newest: an older one must not take its name back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generations(Arc<Mutex<u64>>);

impl Generations {
    /// Makes all snapshots begun so far obsolete.
    pub(crate) fn advance(&self) -> u64 {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *newest += 1;
        *newest
    }

    /// Whether no newer snapshot has begun.
    fn is_newest(&self, generation: u64) -> bool {
        self.while_newest(generation, || ()).is_some()
    }

    /// Does `work` unless a newer snapshot has begun; none can begin meanwhile.
    fn while_newest<T>(&self, generation: u64, work: impl FnOnce() -> T) -> Option<T> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (*newest == generation).then(work)
    }
}

/// A snapshot file that has not got its name yet. Dropped, it vanishes.
pub(crate) struct SnapshotFile {
    disk: Arc<dyn Disk>,
    temporary: PathBuf,
    path: PathBuf,
    file: Option<FileWriter<BufWriter<Box<dyn DiskFile>>>>,
    synced: u64,
}

impl SnapshotFile {
    /// Begins the file of a job; `purpose` tells files of one process apart.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        job: &SaveJob,
        purpose: &str,
    ) -> Result<Self, String> {
        let name = job.path.file_name().unwrap_or_default().to_string_lossy();
        let process = std::process::id();
        let temporary = job.path.with_file_name(format!("temp-{process}-{purpose}-{name}"));
        let file = disk
            .create(&temporary)
            .and_then(|file| {
                let out = BufWriter::with_capacity(WRITE_BYTES, file);
                // What it begins with may be too much already.
                FileWriter::begin(out, &job.head).inspect_err(|_| _ = disk.remove(&temporary))
            })
            .map_err(|error| about(&temporary, &error))?;
        Ok(Self { disk, temporary, path: job.path.clone(), file: Some(file), synced: 0 })
    }

    /// Writes a part.
    pub(crate) fn part(&mut self, part: &Part) -> Result<(), String> {
        let file = self.file.as_mut().expect("only finish takes it");
        let mut write = || {
            file.part(part)?;
            if file.written() - self.synced > SYNC_BYTES {
                self.synced = file.written();
                file.sync(|out| {
                    out.flush()?;
                    out.get_mut().sync()
                })?;
            }
            Ok(())
        };
        write().map_err(|error| about(&self.temporary, &error))
    }

    /// Brings the file to the disk, then gives it its name, unless `generation` is obsolete by
    /// then. Returns its length.
    pub(crate) fn finish(
        mut self,
        generations: &Generations,
        generation: u64,
    ) -> Result<u64, SaveFailure> {
        let file = self.file.take().expect("finish is called once");
        let write = || {
            let (out, written) = file.finish()?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.sync()?;
            Ok(written)
        };
        let failed = |error: io::Error| SaveFailure::Failed(about(&self.path, &error));
        let written = write().map_err(failed)?;
        let renamed = generations.while_newest(generation, || {
            self.disk.rename(&self.temporary, &self.path)?;
            // A name is on the disk only once its folder is.
            self.disk.sync_folder(folder_of(&self.path))
        });
        match renamed {
            Some(result) => result.map(|()| written).map_err(failed),
            None => Err(SaveFailure::Cancelled),
        }
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        // After a rename there is nothing left under this name.
        let _ = self.disk.remove(&self.temporary);
    }
}

fn about(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Removes what processes that are gone have left half-written beside the file at `path`.
pub(crate) fn remove_leftovers(disk: &dyn Disk, path: &Path) {
    let Ok(names) = disk.list(folder_of(path)) else { return };
    let ending = format!("-{}", path.file_name().unwrap_or_default().to_string_lossy());
    for name in names {
        let process = name
            .strip_prefix("temp-")
            .and_then(|rest| rest.strip_suffix(&ending))
            .and_then(|rest| rest.split('-').next())
            .and_then(|digits| digits.parse::<u32>().ok());
        if process.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists()) {
            // Whoever cannot remove it cannot write a snapshot either, and learns it then.
            let _ = disk.remove(&path.with_file_name(name));
        }
    }
}

/// Writes a snapshot while everybody waits.
pub(crate) fn save(
    disk: Arc<dyn Disk>,
    job: &SaveJob,
    generations: &Generations,
    next: &mut dyn FnMut() -> Option<Vec<Part>>,
) -> Result<(), String> {
    let generation = generations.advance();
    let mut file = SnapshotFile::create(disk, job, "save")?;
    let mut delay = KeyDelay::new(job.key_delay_us);
    while let Some(parts) = next() {
        for part in &parts {
            file.part(part)?;
            delay.wait(part.entries() as u64, &|| true);
        }
    }
    match file.finish(generations, generation) {
        Ok(_) => Ok(()),
        Err(SaveFailure::Failed(reason)) => Err(reason),
        Err(SaveFailure::Cancelled) => Err("a newer snapshot was begun".to_owned()),
    }
}

/// How a save in the background ended: bytes written, or why not.
pub(crate) type SaveResult = Result<u64, SaveFailure>;

/// What the thread is told. Bounded by the engine, which abandons a snapshot whose parts wait.
enum Work {
    Parts(Vec<Part>),
    End,
}

/// What loop and thread share.
#[derive(Debug, Default)]
struct Shared {
    /// Bytes of parts handed over and not written.
    ahead_bytes: AtomicUsize,
    /// Whether the walk waits for them.
    loop_waits: AtomicBool,
}

/// A save in the background, as the loop sees it.
struct BackgroundSave {
    /// None once the thread has all it will get.
    work: Option<Sender<Work>>,
    /// The result, once.
    results: Receiver<SaveResult>,
    shared: Arc<Shared>,
    /// Why the walk gave it up.
    abandoned: Option<String>,
    /// Whether the running snapshot is this save's.
    walks: bool,
}

impl BackgroundSave {
    /// Starts the thread that writes the file of `job`; it calls `wake` when it has something to
    /// tell.
    fn start(
        disk: Arc<dyn Disk>,
        job: SaveJob,
        generations: Generations,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (work, received) = channel();
        let (result, results) = channel();
        let shared = Arc::new(Shared::default());
        let generation = generations.advance();
        let of_thread = shared.clone();
        std::thread::Builder::new().name("tenure-save".to_owned()).spawn(move || {
            let failed = Err(SaveFailure::Failed(PANICKED.to_owned()));
            let mut word = ReportOnDrop { sender: result, result: failed, wake: &wake };
            let is_wanted = || generations.is_newest(generation);
            let written = write(disk, &job, &received, &of_thread, &wake, &is_wanted);
            word.result = written.and_then(|file| file.finish(&generations, generation));
        })?;
        Ok(Self { work: Some(work), results, shared, abandoned: None, walks: true })
    }

    /// A save that has ended before it began.
    fn failed(reason: String) -> Self {
        let (result, results) = channel();
        let sent = result.send(Err(SaveFailure::Failed(reason)));
        sent.expect("the other end is in hand");
        Self { work: None, results, shared: Arc::default(), abandoned: None, walks: false }
    }

    /// Walks one slice and hands over what was found.
    fn slice(&mut self, engine: &mut Engine) -> SliceEnd {
        let ahead_bytes = self.shared.ahead_bytes.load(Ordering::SeqCst);
        match engine.snapshot_turn(ahead_bytes) {
            SnapshotTurn::More(parts) => {
                self.hand_over(parts);
                SliceEnd::More
            }
            SnapshotTurn::Waiting(parts) => {
                self.hand_over(parts);
                self.wait()
            }
            SnapshotTurn::Done(parts) => {
                self.hand_over(parts);
                self.send(Work::End);
                self.work = None;
                SliceEnd::Ends
            }
            SnapshotTurn::Abandoned(reason) => {
                // Without an end, the thread throws the file away.
                self.work = None;
                SliceEnd::Abandoned(reason)
            }
            SnapshotTurn::Settling | SnapshotTurn::Idle => SliceEnd::Ends,
        }
    }

    fn wait(&self) -> SliceEnd {
        self.shared.loop_waits.store(true, Ordering::SeqCst);
        // What was written between looking and waiting may have been the last of it.
        match self.shared.ahead_bytes.load(Ordering::SeqCst) < REFILL_BYTES {
            true => SliceEnd::More,
            false => SliceEnd::Waits,
        }
    }

    fn hand_over(&mut self, parts: Vec<Part>) {
        if !parts.is_empty() {
            let bytes: usize = parts.iter().map(Part::own_bytes).sum();
            self.shared.ahead_bytes.fetch_add(bytes, Ordering::SeqCst);
            self.send(Work::Parts(parts));
        }
    }

    fn send(&self, work: Work) {
        if let Some(sender) = &self.work {
            // A thread that is gone has told why.
            let _ = sender.send(work);
        }
    }
}

/// What the loop is told when the thread ends, be it by a panic, which has printed itself.
struct ReportOnDrop<'a> {
    sender: Sender<SaveResult>,
    result: SaveResult,
    wake: &'a dyn Fn(),
}

const PANICKED: &str = "the thread that writes it has panicked";

impl Drop for ReportOnDrop<'_> {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Err(SaveFailure::Cancelled));
        // A loop that is gone needs no result.
        let _ = self.sender.send(result);
        (self.wake)();
    }
}

/// Saves in the background for the loop: one at a time.
pub(crate) struct Saver {
    disk: Arc<dyn Disk>,
    generations: Generations,
    running: Option<BackgroundSave>,
    /// Whether the walk can go on at once.
    is_busy: bool,
}

impl Saver {
    pub(crate) fn new(disk: Arc<dyn Disk>, generations: Generations) -> Self {
        Self { disk, generations, running: None, is_busy: false }
    }

    /// A snapshot began.
    pub(crate) fn begin(
        &mut self,
        job: SaveJob,
        engine: &mut Engine,
        wake: impl Fn() + Send + 'static,
    ) {
        let disk = Arc::clone(&self.disk);
        match BackgroundSave::start(disk, job, self.generations.clone(), wake) {
            Ok(started) => self.running = Some(started),
            Err(error) => self.refuse(engine, format!("there is no thread to write it: {error}")),
        }
        self.is_busy = true;
    }

    /// A snapshot began, and its file cannot be written.
    pub(crate) fn refuse(&mut self, engine: &mut Engine, reason: String) {
        engine.abandon_snapshot();
        self.running = Some(BackgroundSave::failed(reason));
        self.is_busy = true;
    }

    /// Whether the loop should come back without sleeping.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Walks for a while. Returns how the save ended, once it has.
    pub(crate) fn turn(
        &mut self,
        engine: &mut Engine,
        now_us: impl Fn() -> u64,
    ) -> Option<SaveResult> {
        let save = self.running.as_mut()?;
        let until_us = now_us() + TURN_US;
        self.is_busy = false;
        while save.walks {
            match save.slice(engine) {
                SliceEnd::More if now_us() < until_us => {}
                SliceEnd::More => {
                    self.is_busy = true;
                    break;
                }
                SliceEnd::Waits => break,
                SliceEnd::Ends => save.walks = false,
                SliceEnd::Abandoned(reason) => {
                    save.walks = false;
                    save.abandoned = Some(reason);
                }
            }
        }
        let result = save.results.try_recv().ok()?;
        if save.walks {
            // The file cannot be written; nobody takes further parts.
            engine.abandon_snapshot();
            self.is_busy = false;
        }
        let abandoned = self.running.take().and_then(|save| save.abandoned);
        // The walk's reason is the better one: the thread knows only that no more came.
        match (result, abandoned) {
            (Err(_), Some(reason)) => Some(Err(SaveFailure::Failed(reason))),
            (result, _) => Some(result),
        }
    }
}

/// What a slice of the walk came to.
enum SliceEnd {
    /// There is more to do at once.
    More,
    /// The thread has to catch up.
    Waits,
    /// The walk is over.
    Ends,
    /// The snapshot was given up.
    Abandoned(String),
}

fn write(
    disk: Arc<dyn Disk>,
    job: &SaveJob,
    received: &Receiver<Work>,
    shared: &Shared,
    wake: &dyn Fn(),
    is_wanted: &dyn Fn() -> bool,
) -> Result<SnapshotFile, SaveFailure> {
    let mut file = SnapshotFile::create(disk, job, "bgsave").map_err(SaveFailure::Failed)?;
    let mut delay = KeyDelay::new(job.key_delay_us);
    loop {
        let parts = match received.recv() {
            Ok(Work::Parts(parts)) => parts,
            Ok(Work::End) => return Ok(file),
            // The loop gave the snapshot up, or is gone.
            Err(_) => return Err(SaveFailure::Cancelled),
        };
        for part in parts {
            file.part(&part).map_err(SaveFailure::Failed)?;
            delay.wait(part.entries() as u64, is_wanted);
            let bytes = part.own_bytes();
            drop(part);
            let ahead = shared.ahead_bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
            if ahead < REFILL_BYTES && shared.loop_waits.swap(false, Ordering::SeqCst) {
                wake();
            }
        }
    }
}
