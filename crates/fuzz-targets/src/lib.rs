//! What is fuzzed: every parser that reads bytes from outside, as a function of bytes.
//!
//! A [`Target`] takes any bytes and must neither panic nor hang nor take all memory; many also
//! check that two ways to read the same bytes agree. Two programs drive the same functions:
//! - `cargo xtask fuzz`, our own driver: seeded mutations of a corpus, on the stable toolchain;
//! - `cargo fuzz` in the folder `fuzz/`, guided by coverage, on a nightly toolchain.
//!
//! ```
//! let target = fuzz_targets::find("request").unwrap();
//! (target.run)(b"*1\r\n$4\r\nPING\r\n*-1\r\n");
//! ```

mod clock;
mod mutate;
mod targets;

pub use mutate::{INPUT_MAX, Mutator};
pub use targets::{TARGETS, Target, find};
