//! The append-only file as a whole, where a story says more than a seed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use store_persist::aof::{
    AppendFile, Encoder, Event, FsyncPolicy, Job, Layout, Manifest, Output, Phase, Settings,
    make_plan,
};
use store_persist::disk::{Disk, SimulatedDisk, exists};
use store_resp::OwnedRequest;

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

/// Writes the bases that are asked for, and returns the files that a thread is to remove. It says
/// that it has.
fn drive(file: &mut AppendFile, disk: &SimulatedDisk) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    while let Some(output) = file.poll_output() {
        match output {
            Output::WriteBase { generation, path, .. } => {
                write_base(disk, &path).unwrap();
                file.handle_event(0, Event::BaseWritten { generation, path, result: Ok(()) });
            }
            Output::Work(Job::Remove { generation, paths }) => {
                removed.extend(paths.iter().cloned());
                file.handle_event(0, Event::Removed { generation, paths });
            }
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

/// A file with `policy` on, whose data is about to be replaced.
fn left_behind(disk: &SimulatedDisk, policy: FsyncPolicy) -> (AppendFile, Settings) {
    let settings = Settings { policy, ..settings() };
    let mut file = AppendFile::new(Arc::new(disk.clone()), settings.clone());
    file.open(settings.clone(), Manifest::default(), |path| write_base(disk, path)).unwrap();
    let request = OwnedRequest::from_args([&b"SET"[..], b"old", b"1"]);
    file.add(0, [(0, request.as_request())].into_iter());
    file.flush(0).unwrap();
    drive(&mut file, disk);
    file.handle_data_leaving(0);
    (file, settings)
}

#[test]
fn files_of_data_that_was_replaced_count_for_no_start_whenever_the_machine_crashes() {
    for seed in 0..60 {
        let disk = SimulatedDisk::seeded(seed);
        let (mut file, settings) = left_behind(&disk, FsyncPolicy::Always);
        if seed % 3 > 0 {
            file.handle_data_replaced();
            file.apply(0, settings.clone());
            file.begin_due_rewrite(0, true);
            assert!(file.facts().breaks_promise, "nothing counts yet");
        }
        if seed % 3 < 2 {
            let plan = make_plan(&disk.crash(), &settings.layout).unwrap();
            assert!(plan.parts.is_empty() && plan.superseded.is_some(), "seed {seed}");
            continue;
        }
        assert!(exists(&disk, &settings.layout.superseded_manifest()));
        let removed = drive(&mut file, &disk);
        assert!(!file.facts().breaks_promise && file.phase() == Phase::On);
        assert!(!exists(&disk, &settings.layout.superseded_manifest()), "nothing is set aside");
        let counted = file.files().unwrap();
        assert!(removed.iter().all(|path| !counted.contains(path)), "{removed:?}");
        let plan = make_plan(&disk.crash(), &settings.layout).unwrap();
        assert!(!plan.parts.is_empty(), "seed {seed}: the new data counts");
    }
}

/// A thread that removes what was set aside is late: another full sync comes before it.
#[test]
fn a_late_removal_takes_nothing_that_was_set_aside_meanwhile() {
    let disk = SimulatedDisk::seeded(1);
    let (mut file, settings) = left_behind(&disk, FsyncPolicy::Always);
    let mut late = Vec::new();
    for _ in 0..2 {
        file.handle_data_replaced();
        file.apply(0, settings.clone());
        file.begin_due_rewrite(0, true);
        while let Some(output) = file.poll_output() {
            match output {
                Output::WriteBase { generation, path, .. } => {
                    write_base(&disk, &path).unwrap();
                    file.handle_event(0, Event::BaseWritten { generation, path, result: Ok(()) });
                }
                Output::Work(Job::Remove { generation, paths }) => late.push((generation, paths)),
                Output::Warn(line) => panic!("{line}"),
                _ => {}
            }
        }
        assert_eq!(file.phase(), Phase::On);
        let request = OwnedRequest::from_args([&b"SET"[..], b"new", b"1"]);
        file.add(0, [(0, request.as_request())].into_iter());
        file.flush(0).unwrap();
        file.handle_data_leaving(0);
        for (generation, paths) in late.drain(..) {
            paths.iter().for_each(|path| _ = disk.remove(path));
            file.handle_event(0, Event::Removed { generation, paths });
        }
        let plan = make_plan(&disk, &settings.layout).unwrap();
        assert!(plan.parts.is_empty() && plan.superseded.is_some());
    }
}

#[test]
fn what_was_set_aside_is_kept_when_the_new_data_never_came() {
    let disk = SimulatedDisk::seeded(1);
    let (mut file, settings) = left_behind(&disk, FsyncPolicy::EverySecond);
    // Twice: the second time there is something in the way of the first.
    for round in 0..2 {
        file.apply(0, settings.clone());
        assert!(!file.facts().breaks_promise, "a second is lost at most, and more is not promised");
        file.begin_due_rewrite(0, true);
        let removed = drive(&mut file, &disk);
        assert!(removed.iter().all(|path| !path.ends_with("f.aof.1.incr.aof")), "{removed:?}");
        file.handle_data_leaving(0);
        let plan = make_plan(&disk, &settings.layout).unwrap();
        assert!(plan.parts.is_empty() && plan.superseded.is_some(), "round {round}");
        assert!(exists(&disk, &settings.layout.path_of("f.aof.1.incr.aof")));
    }
    file.handle_data_replaced();
    file.apply(0, settings.clone());
    file.begin_due_rewrite(0, true);
    let removed = drive(&mut file, &disk);
    assert!(removed.iter().any(|path| path.ends_with("f.aof.1.incr.aof")), "{removed:?}");
}
