//! The process as the engine asks about it, and files it wants changed.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use store_engine::{Config, LogLevel, Platform, SaveJob, Setting, SettingRefused, Usage};
use store_persist::disk::{Disk, exists, folder_of};
use store_persist::rdb::Part;

use crate::allocator::Allocator;
use crate::oom_score::OomScore;
use crate::persistence::snapshot::{self, Generations};
use crate::persistence::{DataFolders, layout};
use crate::replace_file::replace_file;
use crate::sockets::Sockets;

/// The process this server runs in.
#[derive(Clone)]
pub(crate) struct Process {
    sockets: Sockets,
    /// Where data lies.
    disk: Arc<dyn Disk>,
    /// Shared with the saves in the background.
    generations: Generations,
    folders: DataFolders,
    allocator: Arc<dyn Allocator>,
    oom_score: OomScore,
}

impl Process {
    pub(crate) fn new(
        sockets: &Sockets,
        disk: Arc<dyn Disk>,
        generations: &Generations,
        folders: &DataFolders,
        allocator: &Arc<dyn Allocator>,
    ) -> Self {
        Self {
            sockets: sockets.clone(),
            disk,
            generations: generations.clone(),
            folders: folders.clone(),
            allocator: Arc::clone(allocator),
            oom_score: OomScore::default(),
        }
    }

    /// Settings of the process itself, at the start. The server can do without what fails.
    pub(crate) fn prepare(&self, config: &Config, log: &mut dyn FnMut(LogLevel, &str)) {
        if let Err(error) = self.oom_score.apply(config) {
            log(LogLevel::Warning, &format!("oom-score-adj: {error}"));
        }
    }
}

impl Platform for Process {
    fn usage(&self) -> Usage {
        let page = rustix::param::page_size() as u64;
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second();
        let (user, system) = cpu_ticks().unwrap_or_default();
        Usage {
            resident_bytes: resident_pages().unwrap_or(0) * page,
            machine_bytes: machine_bytes().unwrap_or(0),
            cpu_system_us: system * tick_us,
            cpu_user_us: user * tick_us,
        }
    }

    fn allocator_name(&self) -> &str {
        self.allocator.name()
    }

    fn give_back_memory(&self) {
        self.allocator.give_back();
    }

    fn rewrite_config(&self, path: &str, renew: &dyn Fn(&str) -> String) -> Result<(), String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        self.write_file(path, renew(&text).as_bytes())
    }

    fn follow_settings(
        &self,
        before: &Config,
        after: &mut Config,
        named: &[&Setting],
    ) -> Result<(), SettingRefused> {
        // One that is named again may be gone by now.
        if !self.folders.is_simulated() && named.iter().any(|setting| setting.name == DIR) {
            name_folder(before, after)?;
        }
        allow_clients(before, after)?;
        self.oom_score.follow(before, after)?;
        self.sockets.follow(before, after)
    }

    fn read_file(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(path).map_err(|error| error.to_string())
    }

    fn write_file(&self, path: &str, text: &[u8]) -> Result<(), String> {
        replace_file(Path::new(path), text).map_err(|error| error.to_string())
    }

    fn keeps_files(&self) -> bool {
        true
    }

    fn has_append_file(&self, config: &Config) -> bool {
        exists(&*self.disk, &layout(config).manifest())
    }

    fn save_snapshot(
        &self,
        job: &SaveJob,
        next: &mut dyn FnMut() -> Option<Vec<Part>>,
    ) -> Result<(), String> {
        self.folders.own(folder_of(&job.path))?;
        snapshot::save(Arc::clone(&self.disk), job, &self.generations, next)
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn io::Read>, String> {
        match self.disk.read(path) {
            Ok(file) => Ok(file),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    fn fill_secret(&self, bytes: &mut [u8]) -> bool {
        let source = fs::File::open("/dev/urandom");
        source.and_then(|mut source| io::Read::read_exact(&mut source, bytes)).is_ok()
    }
}

/// The setting that says where files are.
const DIR: &str = "dir";

/// `dir` must be a folder, and is told by its whole name. What is relative begins where data lay
/// until now.
fn name_folder(before: &Config, after: &mut Config) -> Result<(), SettingRefused> {
    let folder_before = &before.settings().snapshot.folder;
    let asked = &after.settings().snapshot.folder;
    let path = folder_before.join(asked);
    let found = match asked.as_os_str().is_empty() {
        true => Err(io::ErrorKind::NotFound.into()),
        false => fs::read_dir(&path).and_then(|_| fs::canonicalize(&path)),
    };
    let named = found.map_err(|error| match error.raw_os_error() {
        None => "No such file or directory".to_owned(),
        Some(number) => error.to_string().replace(&format!(" (os error {number})"), ""),
    });
    let setting = Config::find(DIR).expect("it is in the table");
    named
        .and_then(|path| match path.to_str() {
            Some(path) => after.set(setting, &[path]),
            None => Err("the name of the folder is not UTF-8: give it another".to_owned()),
        })
        .map_err(|reason| SettingRefused { setting: DIR, reason, log: None })
}

/// `maxclients` may grow only as far as there are descriptors: the limit belongs to the process
/// around us.
fn allow_clients(before: &Config, after: &Config) -> Result<(), SettingRefused> {
    /// Descriptors for files and listeners, besides those of clients.
    const DESCRIPTORS_KEPT: u64 = 32;
    let wanted = after.settings().clients.count_max as u64;
    let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let served = allowed.unwrap_or(u64::MAX).saturating_sub(DESCRIPTORS_KEPT);
    if wanted <= before.settings().clients.count_max as u64 || wanted <= served {
        return Ok(());
    }
    let text = "The operating system is not able to handle the specified number of clients";
    let reason = format!("{text}, try with {served}");
    Err(SettingRefused { setting: "maxclients", reason, log: None })
}

/// Time in user and system mode, the twelfth and thirteenth word behind the program's name.
fn cpu_ticks() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut words = stat.rsplit(')').next()?.split_whitespace().skip(11);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The second number of statm.
fn resident_pages() -> Option<u64> {
    fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Resident memory that no file stands behind: what was allocated, but not the program itself.
pub(crate) fn private_bytes() -> Option<usize> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_whitespace().skip(1).map_while(|word| word.parse::<usize>().ok());
    let (resident, of_files) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(of_files) * rustix::param::page_size())
}

fn machine_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
