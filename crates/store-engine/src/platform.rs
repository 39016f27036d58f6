//! What only the driver can do, and a command must wait for.

use std::io::Read;
use std::path::Path;

use store_persist::rdb::Part;

use crate::config::{Config, Setting};
use crate::persistence::snapshot::SaveJob;

/// What the process uses, as INFO tells.
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

/// A setting that the driver cannot follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRefused {
    /// Its name.
    pub setting: &'static str,
    /// Why, for the client.
    pub reason: String,
    /// What the log has to say about it, where the words for the client are those of Redis.
    pub log: Option<String>,
}

/// The driver as the engine sees it. The engine itself touches neither files nor the system.
pub trait Platform: Send {
    /// What the process uses now.
    fn usage(&self) -> Usage;

    /// The allocator's name, as INFO tells.
    fn allocator_name(&self) -> &str {
        "unknown"
    }

    /// MEMORY PURGE: has the allocator give what is free back to the system, if it can.
    fn give_back_memory(&self) {}

    /// Replaces the text of the configuration file by what `renew` makes of it. Fails with a
    /// reason for the client.
    fn rewrite_config(&self, path: &str, renew: &dyn Fn(&str) -> String) -> Result<(), String>;

    /// Follows settings that CONFIG SET is about to change and that concern the outside, such
    /// as ports and certificates. `_named` were named, also those that keep their value. It may
    /// give one its whole name, such as a folder. When it fails, nothing changes.
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

    /// Writes a file anew: the old one stays until the new one is whole. Fails with a reason
    /// for the client.
    fn write_file(&self, path: &str, text: &[u8]) -> Result<(), String>;

    /// Whether there is a place for files at all: without one, nothing is saved by itself.
    fn keeps_files(&self) -> bool;

    /// Whether there is an append-only file where the settings say.
    fn has_append_file(&self, _config: &Config) -> bool {
        false
    }

    /// Writes a snapshot file while everybody waits: the old one stays until the new one is
    /// whole and on the disk. `next` gives its parts until it gives none. Fails with a reason.
    fn save_snapshot(
        &self,
        job: &SaveJob,
        next: &mut dyn FnMut() -> Option<Vec<Part>>,
    ) -> Result<(), String>;

    /// Opens a file to be read. Fails with a reason.
    fn open_file(&self, path: &Path) -> Result<Box<dyn Read>, String>;

    /// Fills `bytes` with what nobody can guess. False when there is no such thing.
    fn fill_secret(&self, bytes: &mut [u8]) -> bool;
}

/// A platform that knows nothing, for tests of the engine alone.
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
