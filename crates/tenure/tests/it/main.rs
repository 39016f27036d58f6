//! Everything about the library that needs a real server.

// A test that cannot go on ends there.
#![allow(clippy::unwrap_used)]

mod actor;
mod broken;
mod conformance;
mod redis_foreign;
mod redis_hostile;
mod redis_messages;
mod redis_refusal;
mod redis_trouble;
