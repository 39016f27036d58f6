//! Two servers and the words between them.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod failover;
mod hostile;
mod link;
mod pair;
mod primary;
mod real;
