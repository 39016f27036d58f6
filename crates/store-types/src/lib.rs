//! The values of the store and their encodings.
//!
//! Bytes in, bytes out: no clock, no I/O, no threads, no notion of commands or keys. Compact
//! encodings are those of Redis 7.0 byte for byte, so that saving and loading them are copies.

pub mod crc16;
pub mod crc64;
pub mod geo;
pub mod glob;
pub mod lzf;
pub mod number;
pub mod sha1;

mod damage;
mod element;
mod limits;
mod rng;
mod text;

pub mod intset;
pub mod listpack;
mod pairs;
mod table;
mod tree;

pub mod hyperloglog;

mod hash;
mod list;
mod set;
mod sorted_set;
mod stream;

pub mod dump;

pub use damage::Damaged;
pub use element::Element;
pub use hash::Hash;
pub use limits::{Encoding, Limits};
pub use list::{End, List, ListRange};
pub use rng::Rng;
pub use set::Set;
pub use sorted_set::{Inserted, MemberBound, ScoreBound, SortedRange, SortedSet};
pub use stream::{
    Consumer, Fields, Group, Pending, Stream, StreamEntry, StreamId, StreamParts, StreamRange,
    StreamRangeBack, Trim, TrimTo,
};
