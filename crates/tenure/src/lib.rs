//! Elect one leader among many processes, and make that leadership safe to act on.
//!
//! A leader holds a lease. This library tells it exactly how long it may act, stops its work
//! before anybody else can begin, and numbers each leadership with a growing token. What it cannot
//! do is reach into the resource that the leader writes to: a process may be frozen between its
//! last check and its write. **Only a token that the resource itself checks gives mutual
//! exclusion.** Send [`Term::token`] along wherever the resource can compare it.
//!
//! ```no_run
//! use tenure::Tenure;
//! # async fn work(_token: tenure::Token) {}
//! # async fn example() -> Result<(), tenure::Error> {
//! let tenure = Tenure::connect("redis://127.0.0.1").await?;
//! let election = tenure.election("nightly-report").start().await?;
//! election.run_while_leader(|term| async move { work(term.token()).await }).await?;
//! # Ok(()) }
//! ```
//!
//! The main types: a [`Tenure`] is the client, made by a [`TenureBuilder`]. An [`Election`] is a
//! handle on the election for one resource, made by an [`ElectionBuilder`]. A [`Term`] is the guard
//! that work holds while it leads. An [`Observer`] only reads, a [`Job`] runs once, a [`Lock`] is
//! held for a while, [`testing`] holds elections in memory with a clock that the test moves, and
//! [`blocking`] is for programs without an async runtime.
//!
//! The library needs no particular runtime: a client has a thread of its own, and its futures can
//! be awaited anywhere.

mod alarm;
pub mod backend;
pub mod blocking;
mod builder;
mod client;
mod clock;
pub mod config;
#[cfg(feature = "cron")]
mod cron;
mod deadlines;
mod driver;
mod election;
mod error;
mod events;
pub mod fence;
mod fork;
mod identity;
mod latest;
pub mod leader_only;
mod listener;
mod lock;
mod memory;
mod observe;
mod once;
mod operate;
mod state;
mod status;
mod term;
pub mod testing;
mod tick_state;
mod trace;

pub use builder::TenureBuilder;
pub use client::Tenure;
pub use election::{Election, ElectionBuilder, OnLoss};
pub use error::Error;
pub use events::{Events, Lagged};
pub use listener::ListenerHandle;
pub use lock::{Lock, LockGuard};
pub use memory::MemoryBackend;
pub use observe::{Changes, Leadership, Observation, Observer, Vacancy};
pub use once::{Job, NotStarted, OnceOutcome, Tick};
pub use operate::AskOutcome;
pub use status::{Counts, Status, Watch};
pub use tenure_backend::Secret;
pub use term::Term;
pub use tick_state::TickState;

pub use tenure_core::protocol::{
    CloseReason, HistoryEntry, HistoryKind, LostWhy, Member, MemberRecord, ServerTime, TickOutcome,
    Token, Wish, WishKind,
};
pub use tenure_core::{
    Event, EventKind, Failback, InstanceId, Moment, NameError, Reason, Resource, Role, SeenLeader,
    StoreError, StoreErrorKind, Timing, TimingError,
};
#[cfg(feature = "macros")]
pub use tenure_macros::leader_only;

/// The pages whose code blocks are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/library.md")]
    struct Tour;
}
