//! The snapshot file: everything the store holds at one moment, as Redis 7.0 writes it.
//!
//! ```text
//! file    REDIS0010 | (AUX name value)* | (FUNCTION code)* | record* | END | CRC-64
//! record  SELECTDB n | RESIZEDB keys volatile
//!         [EXPIRETIME_MS at] [IDLE seconds | FREQ counter] type key value
//! ```
//!
//! Two stages write it, so that whoever holds the data is busy for as short as possible. An
//! [`Encoder`] beside the data turns entries into [`Part`]s: small ones are copied, large ones
//! shared. A [`FileWriter`], on any thread, does the rest: large values, compression, checksum.
//! [`FileReader`] reads every version from 1 to 10.

mod encoder;
mod error;
mod file_reader;
mod file_writer;
mod part;

pub use encoder::Encoder;
pub use error::{Fault, RdbError};
pub use file_reader::{FileReader, Item, LoadedEntry, Mended, Record, TextEntry};
pub use file_writer::{FileWriter, Head, WriteOptions};
pub use part::{Access, EntryHead, Part, Run, SavedEntry, SavedValue};

/// The version that is written; later ones are refused.
pub const VERSION: u16 = store_types::dump::VERSION;
/// The first version from which files end in a checksum.
const CHECKSUM_SINCE: u16 = 5;
/// What every file begins with; four digits of the version follow.
const MAGIC: &[u8; 5] = b"REDIS";

/// Bytes that are not a value's type.
mod opcode {
    pub(super) const FUNCTION: u8 = 245;
    pub(super) const FUNCTION_PRE_GA: u8 = 246;
    pub(super) const MODULE_AUX: u8 = 247;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const AUX: u8 = 250;
    pub(super) const RESIZE_DB: u8 = 251;
    pub(super) const EXPIRE_TIME_MS: u8 = 252;
    pub(super) const EXPIRE_TIME: u8 = 253;
    pub(super) const SELECT_DB: u8 = 254;
    pub(super) const END: u8 = 255;
}
