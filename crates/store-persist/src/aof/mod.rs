//! The append-only file: every change as a request, in files that a manifest lists.
//!
//! ```text
//! settings, commands, time, threads ─► AppendFile (its life: off, starting, on, rewriting, failed)
//! units ─► encode ─► AppendLog (buffer, write, sync, rewrite) ─► appendonlydir/
//!                      appendonly.aof.1.base.rdb  all keys at the last rewrite
//!                      appendonly.aof.1.incr.aof  what changed since, one or more of them
//!                      appendonly.aof.manifest    which files count, in order
//! appendonlydir/ ─► Plan (which files, in order) ─► CommandReader ─► requests to run again
//! ```
//! Names, manifest and contents are those of Redis 7.0.

mod check;
mod encode;
mod layout;
mod log;
mod machine;
mod manifest;
mod plan;
mod reader;
mod rewrite;

pub use check::{Damage, Report, check};
pub use encode::{Encoder, Increment};
pub use layout::Layout;
pub use log::{AppendError, AppendLog, AppendSettings, FsyncPolicy, Job, Switch, Trouble};
pub use machine::{AofFacts, AppendFile, Event, Output, Phase, Settings};
pub use manifest::{FileKind, ListedFile, Manifest, ManifestError};
pub use plan::{Part, Plan, PlanError, make_plan};
pub use reader::{AofError, CommandReader, has_preamble, is_snapshot};
pub use rewrite::create_base;
