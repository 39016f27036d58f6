//! Which files are to be loaded, in what order, and the move from the one file of old.

use std::io;
use std::path::PathBuf;

use super::encode::Increment;
use super::layout::Layout;
use super::manifest::{FileKind, ListedFile, Manifest, ManifestError};
use crate::disk::{self, Disk};

/// A manifest is a few lines.
const MANIFEST_LEN_MAX: u64 = 1024 * 1024;

/// Why there is nothing to load from, though there is something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The disk fails.
    #[error("{}: {error}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The manifest makes no sense.
    #[error("the manifest {} is damaged, {error}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Which line, and why.
        #[source]
        error: ManifestError,
    },
    /// There is data, and no manifest that lists it.
    #[error("{} has data, but {} is not there or lists nothing", path.display(), manifest.display())]
    Unlisted {
        /// The file.
        path: PathBuf,
        /// The manifest.
        manifest: PathBuf,
    },
    /// A listed file is not there.
    #[error("{} is listed in {} but is not there", path.display(), manifest.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The manifest.
        manifest: PathBuf,
    },
}

/// One file to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it is.
    pub path: PathBuf,
    /// Its name in the manifest.
    pub name: String,
    /// Its length now.
    pub len: u64,
    /// Whether it may be cut short: only the last that has a byte may, since what follows the
    /// others would not fit behind less.
    pub is_last: bool,
    /// The increments that are listed before it: it may say how long one of them was.
    pub before: Vec<Increment>,
}

/// What there is to load.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The files that count, as listed.
    pub manifest: Manifest,
    /// Files in order; none in an empty store.
    pub parts: Vec<Part>,
    /// The manifest of data that a full sync replaced, if it is there. Nothing of it is loaded.
    pub superseded: Option<PathBuf>,
    /// Whether the one file of a server before Redis 7.0 was moved into the folder.
    pub was_upgraded: bool,
}

/// Looks what there is to load. A single file of old is moved into the folder and listed as its
/// base, as Redis 7.0 does.
pub fn make_plan(disk: &dyn Disk, layout: &Layout) -> Result<Plan, PlanError> {
    let mut manifest = read_manifest(disk, layout)?;
    if manifest.is_empty() {
        manifest.history.extend(find_unlisted(disk, layout)?);
    }
    let was_upgraded = disk::exists(disk, &layout.single_file())
        && is_upgrade(disk, layout, &manifest)
        && upgrade(disk, layout, &mut manifest)?;
    let files: Vec<&ListedFile> = manifest.base.iter().chain(&manifest.increments).collect();
    let mut parts = Vec::new();
    let mut before = Vec::new();
    for file in files {
        let path = layout.path_of(&file.name);
        let len = match disk.size(&path) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(PlanError::Missing { path, manifest: layout.manifest() });
            }
            Err(error) => return Err(PlanError::Disk { path, error }),
        };
        parts.push(Part {
            path,
            name: file.name.clone(),
            len,
            is_last: false,
            before: before.clone(),
        });
        if file.kind == FileKind::Increment {
            before.push(Increment { sequence: file.sequence, len });
        }
    }
    // Where the next file could not be listed for sure, it has no byte and this one goes on.
    let last = parts.iter().rposition(|part| part.len > 0).unwrap_or(0);
    parts.iter_mut().skip(last).for_each(|part| part.is_last = true);
    let superseded = layout.superseded_manifest();
    let superseded = Some(superseded).filter(|path| disk::exists(disk, path));
    Ok(Plan { manifest, parts, superseded, was_upgraded })
}

pub(super) fn read_manifest(disk: &dyn Disk, layout: &Layout) -> Result<Manifest, PlanError> {
    let path = layout.manifest();
    match disk::read_small(disk, &path, MANIFEST_LEN_MAX) {
        Ok(bytes) => Manifest::parse(&bytes).map_err(|error| PlanError::Manifest { path, error }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Manifest::default()),
        Err(error) => Err(PlanError::Disk { path, error }),
    }
}

/// The manifest that somebody was about to let count when they were killed. Empty when there is
/// none.
pub(super) fn begun_manifest(disk: &dyn Disk, layout: &Layout) -> Manifest {
    let begun = disk::read_small(disk, &layout.new_manifest(), MANIFEST_LEN_MAX);
    begun.ok().and_then(|bytes| Manifest::parse(&bytes).ok()).unwrap_or_default()
}

/// What counted before a full sync replaced it. Empty when there is nothing.
pub(super) fn superseded_manifest(disk: &dyn Disk, layout: &Layout) -> Manifest {
    let bytes = disk::read_small(disk, &layout.superseded_manifest(), MANIFEST_LEN_MAX);
    bytes.ok().and_then(|bytes| Manifest::parse(&bytes).ok()).unwrap_or_default()
}

/// All data is about to be replaced: what the manifest lists counts no more, and stays. Where
/// something was set aside before and is still there, this joins it.
///
/// Fails, and what counted does, when the disk does. True when there was something.
pub(super) fn set_aside(disk: &dyn Disk, layout: &Layout) -> io::Result<bool> {
    let current = read_manifest(disk, layout).map_err(io::Error::other)?;
    let (manifest, aside) = (layout.manifest(), layout.superseded_manifest());
    let is_joined = disk::exists(disk, &aside);
    if current.is_empty() {
        // The disk may have failed behind the rename of the last time.
        if is_joined {
            disk.sync_folder(&layout.folder())?;
        }
        return Ok(false);
    }
    let left_over = highest_left_over(disk, layout, &current)?;
    if is_joined || left_over.is_some() {
        let mut all = current;
        if is_joined {
            let listed = all.base.into_iter().chain(all.increments).chain(all.history);
            let listed = listed.map(|file| ListedFile { kind: FileKind::History, ..file });
            let joining: Vec<ListedFile> = listed.collect();
            all = superseded_manifest(disk, layout);
            all.history.extend(joining);
        }
        all.history.extend(left_over);
        disk::replace(disk, &aside, &layout.new_manifest(), all.to_text().as_bytes())?;
        disk.sync_folder(&layout.folder())?;
        disk.remove(&manifest)?;
    } else {
        disk.rename(&manifest, &aside)?;
    }
    disk.sync_folder(&layout.folder())?;
    Ok(true)
}

/// An entry with the highest number of an increment in the folder, if that is higher than those of
/// the list: a crash left it, and it must not pass for what is written after this. The entry names
/// the list itself, so that nobody removes a file for it that may be another's.
fn highest_left_over(
    disk: &dyn Disk,
    layout: &Layout,
    current: &Manifest,
) -> io::Result<Option<ListedFile>> {
    let names = disk.list(&layout.folder())?;
    let parsed = names.iter().filter_map(|name| layout.parse_name(name));
    let increments = parsed.filter(|(kind, _)| *kind == FileKind::Increment);
    let highest = increments.map(|(_, number)| number).max().unwrap_or(0);
    let name = layout.superseded_name();
    let entry = ListedFile { name, sequence: highest, kind: FileKind::History };
    Ok((highest > current.numbers().increment).then_some(entry))
}

/// Without a manifest there is nothing to load, unless it was lost: then there are increments that
/// have something in them, since nothing is promised before there is a manifest. What a manifest
/// was about to list when power was lost is no loss: such files are history.
fn find_unlisted(disk: &dyn Disk, layout: &Layout) -> Result<Vec<ListedFile>, PlanError> {
    let folder = layout.folder();
    let begun = begun_manifest(disk, layout);
    let superseded = superseded_manifest(disk, layout);
    let names = disk.list(&folder).map_err(|error| PlanError::Disk { path: folder, error })?;
    let mut history = Vec::new();
    for name in names {
        let Some((kind, sequence)) = layout.parse_name(&name) else { continue };
        // What was left over and listed nowhere when files were set aside has a lower number than
        // theirs, and what is written afterwards a higher one.
        if superseded.lists(&name) || sequence <= superseded.numbers().increment {
            continue;
        }
        let path = layout.path_of(&name);
        if begun.lists(&name) {
            history.push(ListedFile { name, sequence, kind: FileKind::History });
        } else if kind == FileKind::Increment && disk.size(&path).is_ok_and(|len| len > 0) {
            return Err(PlanError::Unlisted { path, manifest: layout.manifest() });
        }
    }
    Ok(history)
}

/// The file in `dir` counts when no other does, or when a crash came between listing and moving
/// it.
fn is_upgrade(disk: &dyn Disk, layout: &Layout, manifest: &Manifest) -> bool {
    match &manifest.base {
        None => manifest.increments.is_empty(),
        Some(base) => {
            manifest.increments.is_empty()
                && base.name == layout.file_name
                && !disk::exists(disk, &layout.path_of(&base.name))
        }
    }
}

/// Lists the file first and moves it then: a crash in between is seen and finished.
fn upgrade(disk: &dyn Disk, layout: &Layout, manifest: &mut Manifest) -> Result<bool, PlanError> {
    let name = layout.file_name.clone();
    manifest.base = Some(ListedFile { name: name.clone(), sequence: 1, kind: FileKind::Base });
    manifest.base_sequence = 1;
    let work = || -> io::Result<()> {
        disk.make_folder(&layout.folder())?;
        disk.sync_folder(&layout.dir)?;
        write_manifest(disk, layout, manifest)?;
        disk.rename(&layout.single_file(), &layout.path_of(&name))?;
        disk.sync_folder(&layout.folder())?;
        disk.sync_folder(&layout.dir)
    };
    work().map_err(|error| PlanError::Disk { path: layout.single_file(), error })?;
    Ok(true)
}

/// Writes the manifest anew.
pub(super) fn write_manifest(
    disk: &dyn Disk,
    layout: &Layout,
    manifest: &Manifest,
) -> io::Result<()> {
    prepare_manifest(disk, layout, manifest)?;
    commit_manifest(disk, layout)
}

/// Where nothing counts, what a crash left is history, and only a manifest that was begun says so.
/// It goes before another one is begun in its place: a crash could leave neither.
pub(super) fn remove_begun(
    disk: &dyn Disk,
    layout: &Layout,
    manifest: &mut Manifest,
) -> io::Result<()> {
    if !manifest.is_empty() || manifest.history.is_empty() {
        return Ok(());
    }
    for file in &manifest.history {
        match disk.remove(&layout.path_of(&file.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    disk.sync_folder(&layout.folder())?;
    let names: Vec<String> = manifest.history.drain(..).map(|file| file.name).collect();
    manifest.pass_over(layout, &names);
    Ok(())
}

/// Writes a manifest that does not count yet.
pub(super) fn prepare_manifest(
    disk: &dyn Disk,
    layout: &Layout,
    manifest: &Manifest,
) -> io::Result<()> {
    let mut file = disk.create(&layout.new_manifest())?;
    file.write_all(manifest.to_text().as_bytes())?;
    file.sync()
}

/// Lets the manifest that was prepared count.
pub(super) fn commit_manifest(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    disk.rename(&layout.new_manifest(), &layout.manifest())?;
    disk.sync_folder(&layout.folder())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::SimulatedDisk;

    fn layout() -> Layout {
        Layout { dir: "d".into(), folder_name: "a".into(), file_name: "f.aof".into() }
    }

    fn put(disk: &SimulatedDisk, path: &str, text: &str) {
        let path = Path::new(path);
        disk::replace(disk, path, Path::new("d/beside"), text.as_bytes()).unwrap();
    }

    #[test]
    fn an_empty_folder_has_nothing_to_load() {
        let plan = make_plan(&SimulatedDisk::seeded(1), &layout()).unwrap();
        assert!(plan.parts.is_empty() && plan.manifest.is_empty());
    }

    #[test]
    fn a_single_file_is_moved_and_listed_whenever_the_machine_crashes() {
        for seed in 0..50 {
            let disk = SimulatedDisk::seeded(seed);
            put(&disk, "d/f.aof", "*1\r\n$4\r\nPING\r\n");
            // In the middle: listed, and not moved yet.
            if seed % 2 == 0 {
                put(&disk, "d/a/f.aof.manifest", "file f.aof seq 1 type b\n");
            }
            let disk = disk.crash();
            let plan = make_plan(&disk, &layout()).unwrap();
            assert!(plan.was_upgraded, "seed {seed}");
            let disk = disk.crash();
            let plan = make_plan(&disk, &layout()).unwrap();
            assert!(!plan.was_upgraded && plan.parts.len() == 1, "seed {seed}");
            assert_eq!(plan.parts[0].path, Path::new("d/a/f.aof"));
        }
    }

    #[test]
    fn a_listed_file_that_is_not_there_is_named() {
        let disk = SimulatedDisk::seeded(1);
        put(&disk, "d/a/f.aof.manifest", "file f.aof.1.incr.aof seq 1 type i\n");
        let error = make_plan(&disk, &layout()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "d/a/f.aof.1.incr.aof is listed in d/a/f.aof.manifest but is not there"
        );
    }

    #[test]
    fn a_damaged_manifest_is_told_with_its_line() {
        let disk = SimulatedDisk::seeded(1);
        put(&disk, "d/a/f.aof.manifest", "file f.aof.1.incr.aof seq x type i\n");
        let error = make_plan(&disk, &layout()).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
