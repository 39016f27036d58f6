//! The formats from outside.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod append_file;
mod append_log;
mod histories;
mod rdb;
