//! At most so many calls of a dependency at a time, so that one that hangs does not take all
//! threads and tasks of the program with it.
//!
//! | | [`Permits`] | [`Threads`] |
//! |---|---|---|
//! | where a call runs | where it was made | on a thread of a fixed pool |
//! | when all places are taken | it is refused at once | it may wait in a queue, then it is refused |
//! | time-out | the call's own | for every call, also one that never returns |
//! | what it adds | less than a microsecond | two changes of thread |
//!
//! Use [`Permits`] if calls have a time-out of their own, and [`Threads`] if they may block for
//! ever. One bulkhead per dependency: a shared one would let the slowest take all places.
//!
//! ```
//! use store_client::bulkhead::{Permits, Threads};
//!
//! let stock = Permits::new("stock", 8)?;
//! let answer = stock.call(|| 40 + 2)?;
//! assert_eq!(answer, 42);
//!
//! let prices = Threads::builder("prices", 4).queue_max(16).build()?;
//! assert_eq!(prices.call(|| 40 + 2)?, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod permits;
mod pool;
mod threads;

pub use error::{BulkheadError, CallError};
pub use permits::{Permit, PermitCounts, Permits};
pub use pool::ThreadCounts;
pub use threads::{Threads, ThreadsBuilder, WhenFull};
