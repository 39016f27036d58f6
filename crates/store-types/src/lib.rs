//! The values of the store and their encodings.
//!
//! Bytes in, bytes out: no clock, no I/O, no threads, no notion of commands or keys. Compact
//! encodings are those of Redis 7.0 byte for byte, so that saving and loading them are copies.
//! Large values live in nodes behind `Arc`: a clone costs as much as there are nodes, shares them
//! all, and a later change copies the one it touches.
//!
//! ```
//! use store_types::dump::{Value, dump, restore};
//! use store_types::{Limits, SortedSet};
//!
//! let limits = Limits::default();
//! let mut scores = SortedSet::new();
//! scores.insert(b"ada", 36.0, &limits);
//! let payload = dump(Value::SortedSet(scores).as_ref(), None);
//! let Ok(Value::SortedSet(scores)) = restore(&payload, &limits) else { panic!("it is ours") };
//! assert_eq!(scores.score(b"ada"), Some(36.0));
//! ```

pub mod crc64;
pub mod geo;
pub mod glob;
pub mod lzf;
pub mod number;

mod damage;
mod element;
mod limits;
mod rng;
mod share;
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
