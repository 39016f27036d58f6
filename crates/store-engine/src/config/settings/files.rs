//! What is kept in files.

use std::path::PathBuf;

use store_persist::aof::{self, FsyncPolicy, Layout};

use super::super::Texts;
use crate::persistence::snapshot::SavePoint;

/// The snapshot file, and the folder of all files.
#[derive(Clone, Debug)]
pub struct SnapshotSettings {
    /// `dir`: the folder of all files.
    pub folder: PathBuf,
    /// `dbfilename`; empty for none, which Redis allows.
    pub file_name: String,
    /// `save`: when a snapshot is taken by itself.
    pub(crate) points: Vec<SavePoint>,
    /// `rdbcompression`.
    pub compresses: bool,
    /// `rdbchecksum`.
    pub checksums: bool,
    /// `rdb-key-save-delay`.
    pub save_delay_us: i64,
    /// `key-load-delay`.
    pub load_delay_us: i64,
    /// `stop-writes-on-bgsave-error`.
    pub stops_writes: bool,
}

/// The append-only file.
#[derive(Clone, Debug)]
pub struct AppendSettings {
    /// What its machine goes by.
    pub file: aof::Settings,
    /// `aof-load-truncated`.
    pub may_cut: bool,
}

impl SnapshotSettings {
    /// Whether snapshots are taken without being asked for.
    pub fn is_automatic(&self) -> bool {
        !self.points.is_empty()
    }

    /// The snapshot file; none without a name.
    pub fn path(&self) -> Option<PathBuf> {
        (!self.file_name.is_empty()).then(|| self.folder.join(&self.file_name))
    }

    pub(super) fn read(texts: &Texts) -> Self {
        Self {
            folder: PathBuf::from(texts.text("dir")),
            file_name: texts.text("dbfilename").to_owned(),
            points: SavePoint::parse_all(texts.text("save")),
            compresses: texts.is_on("rdbcompression"),
            checksums: texts.is_on("rdbchecksum"),
            save_delay_us: texts.number("rdb-key-save-delay"),
            load_delay_us: texts.number("key-load-delay"),
            stops_writes: texts.is_on("stop-writes-on-bgsave-error"),
        }
    }
}

impl AppendSettings {
    pub(super) fn read(texts: &Texts) -> Self {
        let file = aof::Settings {
            is_wanted: texts.is_on("appendonly"),
            layout: Layout {
                dir: PathBuf::from(texts.text("dir")),
                folder_name: texts.text("appenddirname").to_owned(),
                file_name: texts.text("appendfilename").to_owned(),
            },
            policy: match texts.text("appendfsync") {
                "always" => FsyncPolicy::Always,
                "no" => FsyncPolicy::Never,
                _ => FsyncPolicy::EverySecond,
            },
            has_timestamps: texts.is_on("aof-timestamp-enabled"),
            has_sums: texts.is_on("aof-checksum"),
            rests_on_rewrite: texts.is_on("no-appendfsync-on-rewrite"),
            has_rdb_base: texts.is_on("aof-use-rdb-preamble"),
            growth_percentage: texts.number("auto-aof-rewrite-percentage") as u64,
            rewrite_size_min: texts.number("auto-aof-rewrite-min-size") as u64,
        };
        Self { file, may_cut: texts.is_on("aof-load-truncated") }
    }
}
