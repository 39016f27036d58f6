//! The append-only file as a whole, where a story says more than a seed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use store_persist::aof::{
    AppendFile, Encoder, Event, FsyncPolicy, Job, Layout, Manifest, Output, Phase, Settings,
};
use store_persist::disk::{Disk, SimulatedDisk, exists};

fn settings() -> Settings {
    Settings {
        is_wanted: true,
        layout: Layout { dir: "d".into(), folder_name: "a".into(), file_name: "f.aof".into() },
        policy: FsyncPolicy::EverySecond,
        has_timestamps: false,
        has_sums: true,
        rests_on_rewrite: false,
        has_rdb_base: false,
        growth_percentage: 0,
        rewrite_size_min: 0,
    }
}

fn write_base(disk: &SimulatedDisk, path: &Path) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    Encoder::begin(&mut bytes);
    let mut file = disk.create(path)?;
    file.write_all(&bytes)?;
    file.sync()
}

/// Writes the bases that are asked for, and returns the files that a thread is to remove.
fn drive(file: &mut AppendFile, disk: &SimulatedDisk) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    while let Some(output) = file.poll_output() {
        match output {
            Output::WriteBase { generation, path, .. } => {
                write_base(disk, &path).unwrap();
                file.handle_event(0, Event::BaseWritten { generation, path, result: Ok(()) });
            }
            Output::Work(Job::Remove { paths, .. }) => removed.extend(paths),
            _ => {}
        }
    }
    removed
}

/// A thread that removes old files is late. Meanwhile the files are gone, with the manifest that
/// knew their numbers, and the file is turned off and on again.
#[test]
fn a_late_removal_does_not_meet_a_new_file_of_that_name() {
    let disk = SimulatedDisk::seeded(1);
    let mut file = AppendFile::new(Arc::new(disk.clone()), settings());
    file.open(settings(), Manifest::default(), |path| write_base(&disk, path)).unwrap();
    file.ask_for_rewrite();
    file.begin_due_rewrite(0, true);
    let late = drive(&mut file, &disk);
    assert!(!late.is_empty(), "the first base is old");
    for path in late.iter().chain(&file.files().unwrap()) {
        disk.remove(path).unwrap();
    }

    file.apply(0, Settings { is_wanted: false, ..settings() });
    file.apply(0, settings());
    file.begin_due_rewrite(0, true);
    drive(&mut file, &disk);
    assert_eq!(file.phase(), Phase::On);
    late.iter().for_each(|path| _ = disk.remove(path));

    for path in file.files().unwrap() {
        assert!(exists(&disk, &path), "{} is listed and gone", path.display());
    }
}
