//! The store's files: snapshots and the append-only file, as Redis 7.0 writes them.
//!
//! Formats over `Read` and `Write`: bytes in, values out and back. No file, no thread, no clock;
//! whoever drives it opens the files, and decides when to write and when to sync.

pub mod aof;
pub mod disk;
pub mod rdb;
