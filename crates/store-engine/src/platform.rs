//! What only the driver can do while a command waits for it.

use std::io::Read;
use std::path::Path;

use store_persist::rdb::Part;

use crate::config::{Config, Setting};
use crate::persistence::snapshot::SaveJob;

/// What the process uses, for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Physical memory of the machine in bytes.
    pub machine_bytes: u64,
    /// Microseconds of processor time in the kernel.
    pub cpu_system_us: u64,
    /// Microseconds of processor time in the program.
    pub cpu_user_us: u64,
}

/// A setting that the driver cannot apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRefused {
    /// Its name.
    pub setting: &'static str,
    /// The reason, for the client.
    pub reason: String,
    /// A line for the log, if the text for the client is that of Redis.
    pub log: Option<String>,
}

/// The driver as the engine sees it. The engine itself touches neither files nor the system.
pub trait Platform: Send {
    /// What the process uses now.
    fn usage(&self) -> Usage;

    /// The allocator's name, for INFO.
    fn allocator_name(&self) -> &str {
        "unknown"
    }

    /// MEMORY PURGE: makes the allocator return free memory to the system, if it can.
    fn give_back_memory(&self) {}

    /// Replaces the text of the configuration file with what `renew` makes of it. Fails with a
    /// reason for the client.
    fn rewrite_config(&self, path: &str, renew: &dyn Fn(&str) -> String) -> Result<(), String>;

    /// Applies settings that CONFIG SET is about to change and that concern the outside, such as
    /// ports and certificates. `_named` were given, also with the value that they have. It may
    /// complete a value, for example the path of a folder. If it fails, nothing changes.
    fn follow_settings(
        &self,
        _before: &Config,
        _after: &mut Config,
        _named: &[&Setting],
    ) -> Result<(), SettingRefused> {
        Ok(())
    }

    /// The text of a file. Fails with a reason for the client.
    fn read_file(&self, path: &str) -> Result<String, String>;

    /// Replaces a file: the old one stays until the new one is complete. Fails with a reason for
    /// the client.
    fn write_file(&self, path: &str, text: &[u8]) -> Result<(), String>;

    /// Whether files can be written at all: if not, nothing is saved automatically.
    fn keeps_files(&self) -> bool;

    /// Whether there is an append-only file where the settings say.
    fn has_append_file(&self, _config: &Config) -> bool {
        false
    }

    /// Writes a snapshot file while everybody waits: the old one stays until the new one is
    /// complete and on the disk. `next` returns its parts, then `None`. Fails with a reason.
    fn save_snapshot(
        &self,
        job: &SaveJob,
        next: &mut dyn FnMut() -> Option<Vec<Part>>,
    ) -> Result<(), String>;

    /// Opens a file to be read. Fails with a reason.
    fn open_file(&self, path: &Path) -> Result<Box<dyn Read>, String>;

    /// Fills `bytes` with random bytes that nobody can guess. Returns `false` if there is no source
    /// for them.
    fn fill_secret(&self, bytes: &mut [u8]) -> bool;
}

/// A platform without files and system, for tests of the engine alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlatform;

impl Platform for NoPlatform {
    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn rewrite_config(&self, _: &str, _: &dyn Fn(&str) -> String) -> Result<(), String> {
        Err("there is no file".to_owned())
    }

    fn read_file(&self, _: &str) -> Result<String, String> {
        Err("there is no file".to_owned())
    }

    fn write_file(&self, _: &str, _: &[u8]) -> Result<(), String> {
        Err("there is no file".to_owned())
    }

    fn keeps_files(&self) -> bool {
        false
    }

    fn save_snapshot(
        &self,
        _: &SaveJob,
        _: &mut dyn FnMut() -> Option<Vec<Part>>,
    ) -> Result<(), String> {
        Err("there is no file".to_owned())
    }

    fn open_file(&self, _: &Path) -> Result<Box<dyn Read>, String> {
        Err("there is no file".to_owned())
    }

    fn fill_secret(&self, _: &mut [u8]) -> bool {
        false
    }
}
