//! The decisions of `tenure run` and of its guard.
//!
//! Two state machines, one per process. In: readings of a clock, and what happened to the term, the
//! guard and processes. Out: one ordered stream of things to do. No clock, no system call, no
//! thread: the command's `run` module does what the machines say and decides nothing, and the
//! simulation in this crate's tests plays the kernel, the programs and whatever can go wrong.
//!
//! ```
//! use tenure_core::Moment;
//! use tenure_run::{Deadline, Output, Wrapper};
//!
//! let (now, end) = (Moment::from_nanos(1), Moment::from_nanos(9_000_000_000));
//! let mut wrapper = Wrapper::new();
//! wrapper.begin(now, Deadline { kill_at: end, ends_at: end });
//! // Nothing is started before it is known who is there already, and before there is a guard.
//! assert_eq!(wrapper.poll_output(), Some(Output::ListStrays(None)));
//! assert_eq!(wrapper.poll_output(), Some(Output::ListChildren));
//! assert_eq!(wrapper.poll_output(), Some(Output::StartGuard));
//! assert_eq!(wrapper.poll_output(), None);
//! ```

mod guard;
mod orders;
mod process;
mod wrapper;

pub use guard::{Guard, GuardMessage, GuardOutput, Lateness, MarkedSearch};
pub use orders::{NumberedOrder, ORDER_LEN, Order, REPLY_LEN, Reply};
pub use process::{Deadline, Ending, KillAnswer, Leader, ListedChild, ListedStray, Pid, Stray};
pub use wrapper::{
    GuardTrouble, Output, RunOutcome, SentSignal, StartError, Wrapper, WrapperMessage,
};
