//! The same words to our values and to a real Redis server: equal bytes come out.
//!
//! Every run is seeded; a failure names the seed, which repeats it.

// A test talks to a real server, which the crate itself never does; its helpers may panic.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod collections;
mod formats;
mod geo;
mod hyperloglog;
mod lists;
mod redis;
mod streams;
mod texts;
