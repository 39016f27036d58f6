//! The values of the store and their encodings.
//!
//! Bytes in, bytes out: no clock, no I/O, no threads, no notion of commands or keys. Compact
//! encodings are those of Redis 7.0 byte for byte, so that saving and loading them are copies.

pub mod glob;
pub mod number;

mod damage;
mod element;

pub mod intset;
pub mod listpack;

pub use damage::Damaged;
pub use element::Element;
