//! Replies: those of commands become Lua values, and what a script returns becomes a reply.

mod read;
mod write;

pub(crate) use read::push;
pub(crate) use write::{Target, write_error, write_value};

/// A buffer of command replies that grew larger than this is not kept.
pub(crate) const KEPT_MAX: usize = 64 << 10;
