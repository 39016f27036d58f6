//! The Lua virtual machine, and all of this crate's `unsafe`.
//!
//! Why not mlua's own functions and values: an error raised from one of its callbacks reaches the
//! script as a userdata where Redis gives a string or a table; its references are limited to 8,000
//! at a time and panic beyond, which `redis.call("DEL", unpack(many))` reaches; its hooks leave
//! `pcall` and coroutines to swallow a kill. So mlua brings the vendored Lua, the allocator with
//! its limit, and the life of the state; calls go through the C interface from here.
//!
//! # What keeps this sound
//!
//! Lua raises errors by `longjmp`, which must never cross a Rust frame that owns something:
//! - **L1** a function of [`entry`], [`guard`], [`table`], [`frozen`] or [`vm`] that may raise owns
//!   nothing;
//! - **L2** everywhere else nothing raises. The memory limit is lifted ([`Vm`]), so allocation
//!   does not fail, and [`Stack`] offers only calls that raise for no other reason. Growth is
//!   checked by [`Stack`] instead, which answers [`Raise::Memory`].

mod call;
mod chains;
mod entry;
mod frozen;
mod guard;
mod memory;
mod print;
mod slot;
mod stack;
mod table;
mod vm;

pub(crate) use call::Handler;
pub(crate) use entry::{KILLED, Native, Raise, SourceLine};
pub(crate) use frozen::Frozen;
pub(crate) use guard::{Guarded, wrap_load};
pub(crate) use memory::{Memory, Reach};
pub(crate) use print::{CValue, format_value};
pub(crate) use slot::HostSlot;
pub(crate) use stack::{Kind, Stack};
pub(crate) use table::set_table_functions;
pub(crate) use vm::{CallError, Function, Vm};
