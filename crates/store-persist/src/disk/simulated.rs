//! A disk in memory that crashes.
//!
//! Every file has two contents: what programs see, and what is durable. A crash keeps the durable
//! one, and of what came behind it a piece whose length the seed decides, now and then with zeros
//! behind it: the length of a file can reach the disk before its bytes. The same goes for names:
//! a created, renamed or removed one is durable once its folder was synced, and before that a
//! crash may keep it or not.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use store_types::Rng;

use super::{Disk, DiskFile, SyncFile, folder_of};

/// Where files lie that are gone after a crash.
const VOLATILE: &str = "/volatile";

/// What goes wrong, and from when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Once so many more bytes are written, writes fail for want of space.
    FullAfter(u64),
    /// Every write takes half of what it is given, and at least a byte.
    ShortWrites,
    /// Writes fail.
    WritesFail,
    /// Syncs of files fail, and what was not durable before never will be.
    SyncsFail,
    /// Syncs say that they worked, and do nothing: a disk that lies, or a program that does not
    /// ask. For tests that must notice.
    SyncsLie,
}

/// What goes wrong at one operation of the disk, counted from the moment it is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleFault {
    /// There is no space left. Where none is needed, all is well.
    Full,
    /// The operation fails. A sync that does drops what was not durable.
    Fails,
    /// A write takes only half of it.
    Short,
    /// Power is lost before it: nothing more reaches the disk.
    PowerLoss,
}

/// A kind of error that the program under test pretends not to see, so that tests can show that
/// they would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredError {
    /// Renames that fail say that they worked.
    Renames,
    /// Syncs of files that fail say that they worked, as long as a program waits for them.
    Syncs,
    /// The first sync of a file that was opened to be continued does nothing.
    FirstSyncs,
    /// Files are not removed where they should be.
    Removals,
}

/// Operations that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Open,
    Write,
    Sync,
    Rename,
    Remove,
    SyncFolder,
    SetLen,
}

/// A disk in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    /// Handles of before a crash are dead: their process is.
    life: u64,
}

#[derive(Debug)]
struct State {
    random: Rng,
    files: Vec<File>,
    /// Names as programs see them, and as they would be after a crash at the latest sync.
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// Renames that are not durable yet: from where, to where, which file.
    renames: Vec<(PathBuf, PathBuf, usize)>,
    folders: Vec<PathBuf>,
    fault: Option<Fault>,
    life: u64,
    syncs: u64,
    /// How many operations there were, and which of them go wrong.
    operations: u64,
    single_faults: BTreeMap<u64, SingleFault>,
    ignored: Option<IgnoredError>,
    has_power: bool,
    /// Whether a file that was to be removed is still there, because the disk failed.
    kept_a_file: bool,
}

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// What failed syncs have dropped of the bytes: from where to where.
    lost: Option<(usize, usize)>,
    /// Whether it was opened to be continued, and not synced since.
    is_continued: bool,
}

impl SimulatedDisk {
    /// An empty disk whose crashes the seed decides.
    pub fn seeded(seed: u64) -> Self {
        let state = State {
            random: Rng::seeded(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            renames: Vec::new(),
            folders: Vec::new(),
            fault: None,
            life: 0,
            syncs: 0,
            operations: 0,
            single_faults: BTreeMap::new(),
            ignored: None,
            has_power: true,
            kept_a_file: false,
        };
        Self { state: Arc::new(Mutex::new(state)), life: 0 }
    }

    /// Makes things go wrong from now on, or right again.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }

    /// Lets one operation go wrong: the one that comes after `later` others.
    pub fn plan_single_fault(&self, later: u64, single_fault: SingleFault) {
        let mut state = self.lock();
        let at = state.operations + 1 + later;
        state.single_faults.insert(at, single_fault);
    }

    /// Nothing goes wrong any more.
    pub fn forget_single_faults(&self) {
        self.lock().single_faults.clear();
    }

    /// Makes the program under test blind for one kind of error.
    pub fn ignore(&self, ignored: Option<IgnoredError>) {
        self.lock().ignored = ignored;
    }

    /// Whether a file has bytes that programs see and no sync will ever make durable.
    pub fn has_lost_bytes(&self) -> bool {
        let state = self.lock();
        state.names.values().any(|file| state.files[*file].lost.is_some())
    }

    /// Whether a removal has ever failed for another reason than that there was no such file.
    pub fn kept_a_file(&self) -> bool {
        self.lock().kept_a_file
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Whether power was lost, so that only [`crash`](Self::crash) can follow.
    pub fn is_dead(&self) -> bool {
        !self.lock().has_power
    }

    /// The process is killed and the machine lives: everything written is there, durable or not.
    /// What was opened before is dead; the returned disk is the same one for the next process.
    pub fn kill(&self) -> Self {
        let mut state = self.lock();
        state.life += 1;
        state.single_faults.clear();
        let life = state.life;
        drop(state);
        Self { state: Arc::clone(&self.state), life }
    }

    /// How many syncs were asked for.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The machine loses power and starts again. What was opened before is dead; the returned
    /// disk is the same one in its next life.
    pub fn crash(&self) -> Self {
        let mut state = self.lock();
        state.life += 1;
        state.fault = None;
        state.single_faults.clear();
        state.has_power = true;
        let State { random, files, names, durable_names, renames, .. } = &mut *state;
        for file in files.iter_mut() {
            file.crash(random);
        }
        names.retain(|path, _| !path.starts_with(VOLATILE));
        durable_names.retain(|path, _| !path.starts_with(VOLATILE));
        renames.retain(|(_, to, _)| !to.starts_with(VOLATILE));
        let mut settled = Vec::new();
        for (from, to, file) in renames.drain(..) {
            // Either both names have changed or none has.
            if random.below(2) == 0 {
                durable_names.remove(&from);
                durable_names.insert(to.clone(), file);
            }
            settled.extend([from, to]);
        }
        let paths: Vec<PathBuf> = names.keys().chain(durable_names.keys()).cloned().collect();
        for path in paths {
            // A change of a name that was not synced may have reached the disk or not.
            let is_open = names.get(&path) != durable_names.get(&path) && !settled.contains(&path);
            if is_open && random.below(2) == 0 {
                match names.get(&path).copied() {
                    Some(file) => durable_names.insert(path, file),
                    None => durable_names.remove(&path),
                };
            }
        }
        *names = durable_names.clone();
        let life = state.life;
        drop(state);
        Self { state: Arc::clone(&self.state), life }
    }

    /// Changes the bytes of a file behind everybody's back.
    pub fn damage(&self, path: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.lock();
        let file = state.find(path)?;
        damage(&mut state.files[file].bytes);
        state.files[file].durable = state.files[file].bytes.clone();
        Ok(())
    }

    /// Poisoned or not: a test that panicked elsewhere must not hide behind this.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn living(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.life != self.life {
            return Err(io::Error::other("the machine has crashed"));
        }
        Ok(state)
    }

    fn handle(&self, file: usize) -> Box<dyn DiskFile> {
        Box::new(Handle { disk: self.clone(), file })
    }
}

impl State {
    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Counts an operation, and says what goes wrong with it.
    fn begin(&mut self, operation: Operation) -> io::Result<Option<SingleFault>> {
        if !self.has_power {
            return Err(io::Error::other("the machine has no power"));
        }
        self.operations += 1;
        let single_fault = self.single_faults.remove(&self.operations);
        let needs_space = !matches!(operation, Operation::Sync | Operation::Remove);
        match single_fault {
            Some(SingleFault::PowerLoss) => {
                self.has_power = false;
                Err(io::Error::other("the machine has no power"))
            }
            Some(SingleFault::Full) if needs_space => Err(io::ErrorKind::StorageFull.into()),
            Some(SingleFault::Fails) if operation != Operation::Sync => {
                Err(io::Error::other("injected error"))
            }
            other => Ok(other),
        }
    }

    fn make(&mut self, path: &Path) -> usize {
        if let Ok(file) = self.find(path) {
            // As the system does: whoever has it open sees it emptied.
            self.files[file].cut(0);
            return file;
        }
        self.files.push(File::default());
        self.names.insert(path.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }

    /// How much of a write of `len` bytes is taken.
    fn admit(&mut self, len: usize) -> io::Result<usize> {
        if self.begin(Operation::Write)? == Some(SingleFault::Short) {
            return Ok(len.div_ceil(2));
        }
        match &mut self.fault {
            Some(Fault::WritesFail) => Err(io::Error::other("injected write error")),
            Some(Fault::ShortWrites) => Ok(len.div_ceil(2)),
            Some(Fault::FullAfter(0)) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::FullAfter(left)) => {
                let taken = (len as u64).min(*left);
                *left -= taken;
                Ok(taken as usize)
            }
            _ => Ok(len),
        }
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.syncs += 1;
        let single_fault = self.begin(Operation::Sync)?;
        let fault = self.fault;
        let file = &mut self.files[file];
        if self.ignored == Some(IgnoredError::FirstSyncs) && std::mem::take(&mut file.is_continued)
        {
            return Ok(());
        }
        match fault {
            _ if single_fault == Some(SingleFault::Fails) => {
                file.lose();
                Err(io::Error::other("injected sync error"))
            }
            Some(Fault::SyncsFail) => {
                file.lose();
                Err(io::Error::other("injected sync error"))
            }
            Some(Fault::SyncsLie) => Ok(()),
            _ => {
                // Pages that a failed sync dropped are clean: later syncs do not write them.
                file.durable = file.bytes.clone();
                if let Some((start, end)) = file.lost {
                    file.durable[start..end].fill(0);
                }
                Ok(())
            }
        }
    }
}

impl File {
    /// What is written behind the cut is new, whatever a sync dropped there before.
    fn cut(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.lost = self.lost.map(|(start, end)| (start, end.min(len)));
        self.lost = self.lost.filter(|(start, end)| start < end);
    }

    /// A sync failed: what was not durable never will be.
    fn lose(&mut self) {
        let start = self.lost.map_or(self.durable.len(), |(start, _)| start);
        self.lost = (start < self.bytes.len()).then_some((start, self.bytes.len()));
    }

    /// Keeps what is durable, and some of the rest.
    fn crash(&mut self, random: &mut Rng) {
        if self.bytes == self.durable {
            return;
        }
        let common = self.bytes.iter().zip(&self.durable).take_while(|(a, b)| a == b).count();
        if common < self.durable.len() {
            // Cut or overwritten without a sync: either of the two.
            if random.below(2) == 0 {
                self.durable = self.bytes.clone();
            }
        } else {
            let fresh = self.bytes.len() - common;
            let kept = random.below(fresh + 1);
            self.durable.extend(&self.bytes[common..common + kept]);
            if random.below(4) == 0 {
                let zeros = random.below(fresh - kept + 1);
                self.durable.resize(self.durable.len() + zeros, 0);
            }
        }
        self.bytes = self.durable.clone();
        self.lost = None;
    }
}

struct Handle {
    disk: SimulatedDisk,
    file: usize,
}

impl Write for Handle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.living()?;
        let taken = state.admit(bytes.len())?;
        let file = self.file;
        state.files[file].bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for Handle {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.living()?;
        let synced = state.sync(self.file);
        if state.ignored == Some(IgnoredError::Syncs) { Ok(()) } else { synced }
    }

    fn syncer(&self) -> io::Result<Arc<dyn SyncFile>> {
        Ok(Arc::new(Handle { disk: self.disk.clone(), file: self.file }))
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.disk.living()?;
        state.begin(Operation::SetLen)?;
        state.files[self.file].cut(len as usize);
        Ok(())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.disk.living()?.find(path).is_ok_and(|file| file == self.file))
    }
}

impl SyncFile for Handle {
    fn sync(&self) -> io::Result<()> {
        self.disk.living()?.sync(self.file)
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.living()?;
        state.begin(Operation::Open)?;
        let file = state.make(path);
        drop(state);
        Ok(self.handle(file))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.living()?;
        state.begin(Operation::Open)?;
        let file = state.find(path).unwrap_or_else(|_| state.make(path));
        state.files[file].is_continued = true;
        drop(state);
        Ok(self.handle(file))
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let state = self.living()?;
        let file = state.find(path)?;
        Ok(Box::new(io::Cursor::new(state.files[file].bytes.clone())))
    }

    fn volatile_folder(&self) -> Option<PathBuf> {
        Some(PathBuf::from(VOLATILE))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.living()?;
        match state.begin(Operation::Rename) {
            Err(_) if state.ignored == Some(IgnoredError::Renames) => return Ok(()),
            begun => _ = begun?,
        }
        let file = state.find(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), file);
        state.renames.push((from.to_owned(), to.to_owned(), file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.living()?;
        let begun = state.begin(Operation::Remove);
        state.kept_a_file |= begun.is_err();
        begun?;
        state.find(path)?;
        if state.ignored != Some(IgnoredError::Removals) {
            state.names.remove(path);
        }
        Ok(())
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let mut state = self.living()?;
        state.begin(Operation::SetLen)?;
        let file = state.find(path)?;
        state.files[file].cut(len as usize);
        state.sync(file)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        let state = self.living()?;
        let file = state.find(path)?;
        Ok(state.files[file].bytes.len() as u64)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.living()?.folders.push(path.to_owned());
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.living()?;
        let inside = state.names.keys().filter(|name| folder_of(name) == path);
        Ok(inside
            .filter_map(|name| Some(name.file_name()?.to_string_lossy().into_owned()))
            .collect())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.living()?;
        state.begin(Operation::SyncFolder)?;
        if state.fault == Some(Fault::SyncsLie) {
            return Ok(());
        }
        let State { names, durable_names, renames, .. } = &mut *state;
        renames.retain(|(_, to, _)| folder_of(to) != path);
        durable_names.retain(|name, _| folder_of(name) != path);
        let inside = names.iter().filter(|(name, _)| folder_of(name) == path);
        durable_names.extend(inside.map(|(name, file)| (name.clone(), *file)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{read_small, replace};

    fn write(disk: &SimulatedDisk, path: &str, bytes: &[u8], syncs: bool) {
        let mut file = disk.append(Path::new(path)).unwrap();
        file.write_all(bytes).unwrap();
        if syncs {
            file.sync().unwrap();
        }
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_at_most_a_torn_piece_of_the_rest() {
        let mut shorter = 0;
        for seed in 0..200 {
            let disk = SimulatedDisk::seeded(seed);
            write(&disk, "f/a", b"safe", true);
            disk.sync_folder(Path::new("f")).unwrap();
            write(&disk, "f/a", &[b'x'; 2000], false);
            let disk = disk.crash();
            let bytes = read_small(&disk, Path::new("f/a"), 1 << 20).unwrap();
            assert!(bytes.starts_with(b"safe") && bytes.len() <= 2004, "seed {seed}");
            shorter += usize::from(bytes.len() < 2004);
        }
        assert!(shorter > 100, "crashes tear");
    }

    #[test]
    fn a_name_without_a_synced_folder_may_be_gone() {
        let there = |seed| {
            let disk = SimulatedDisk::seeded(seed);
            write(&disk, "f/a", b"safe", true);
            disk.crash().size(Path::new("f/a")).is_ok()
        };
        let kept = (0..100).filter(|seed| there(*seed)).count();
        assert!((10..90).contains(&kept), "{kept} of 100");
    }

    #[test]
    fn replacing_leaves_the_old_bytes_or_the_new() {
        let (path, beside) = (Path::new("f/a"), Path::new("f/b"));
        for seed in 0..100 {
            let disk = SimulatedDisk::seeded(seed);
            replace(&disk, path, beside, b"old").unwrap();
            let mut file = disk.create(beside).unwrap();
            file.write_all(b"new").unwrap();
            file.sync().unwrap();
            disk.rename(beside, path).unwrap();
            let bytes = read_small(&disk.crash(), path, 10).unwrap();
            assert!(bytes == b"old" || bytes == b"new", "seed {seed}: {bytes:?}");
        }
    }

    #[test]
    fn what_a_failed_sync_dropped_stays_lost() {
        let disk = SimulatedDisk::seeded(1);
        write(&disk, "f/a", b"first", true);
        disk.sync_folder(Path::new("f")).unwrap();
        disk.set_fault(Some(Fault::SyncsFail));
        let mut file = disk.append(Path::new("f/a")).unwrap();
        file.write_all(b"second").unwrap();
        file.sync().unwrap_err();
        disk.set_fault(None);
        file.sync().unwrap();
        let bytes = read_small(&disk.crash(), Path::new("f/a"), 100).unwrap();
        assert_eq!(bytes, b"first\0\0\0\0\0\0");
    }

    #[test]
    fn writes_can_be_short_and_the_disk_full() {
        let disk = SimulatedDisk::seeded(1);
        let mut file = disk.create(Path::new("f/a")).unwrap();
        disk.set_fault(Some(Fault::ShortWrites));
        assert_eq!(file.write(b"12345").unwrap(), 3);
        disk.set_fault(Some(Fault::FullAfter(2)));
        assert_eq!(file.write(b"12345").unwrap(), 2);
        assert_eq!(file.write(b"5").unwrap_err().kind(), io::ErrorKind::StorageFull);
        let crashed = disk.crash();
        assert!(file.write(b"6").is_err(), "the process is dead");
        drop(crashed);
    }
}
