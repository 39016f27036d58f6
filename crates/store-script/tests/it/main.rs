//! Scripts against the interpreter, and the same scripts against a real server.
#![allow(clippy::unwrap_used, reason = "in tests, to fail is to tell")]
#![allow(clippy::disallowed_methods, reason = "tests talk to real servers; the crate does not")]

mod real;
mod store;

mod cache;
mod chains;
mod functions;
mod hostile;
mod kill;
mod properties;
mod same_words;
mod sandbox;
