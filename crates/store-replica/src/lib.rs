//! Replication as Redis 7.0 speaks it, without sockets, clocks and files.
//!
//! In flow order:
//! - [`History`]: which data a server has, by the id of a history and an offset in it;
//! - [`Stream`], [`Backlog`]: writes as bytes, kept once for all who read them;
//! - [`Replication`]: one server. As a primary it decides who gets what ([`Replica`]), as a replica
//!   it follows a link, and FAILOVER turns one into the other;
//! - [`Output`]: what is to be done, in order.
//!
//! ```
//! use store_replica::{Moment, Output, Replication, Secrets, SessionId, Settings};
//! use store_resp::OwnedRequest;
//!
//! let secrets = Secrets::new(|bytes| bytes.fill(7));
//! let mut primary = Replication::new(Moment::default(), Settings::default(), secrets);
//! let words = OwnedRequest::from_args([&b"PSYNC"[..], b"?", b"-1"]);
//! primary.handle_psync(Moment::default(), SessionId(1), words.as_request());
//! assert_eq!(primary.sync_counts().full, 1);
//! ```

mod backlog;
mod failover;
mod history;
mod intake;
mod link;
mod moment;
mod output;
mod primary;
mod replica;
mod replication;
mod settings;
mod stream;
mod sync;
mod waits;

pub use backlog::Backlog;
pub use failover::{FailoverError, FailoverPhase, FailoverRequest};
pub use history::{History, ID_LEN, ReplicationId, SecondHistory, Secrets};
pub use intake::Transaction;
pub use link::{FAILED_WRITES_MAX, LinkPhase, REFUSED_LOADS_MAX, asks_for_ack};
pub use moment::Moment;
pub use output::{
    CloseReason, Event, Facts, FailoverEvent, LinkFault, Output, Role, SessionId, SnapshotContent,
    SnapshotNeeds, SnapshotTarget,
};
pub use replica::{Replica, ReplicaState};
pub use replication::{Access, ExpiryMode, Replication, SyncCounts};
pub use settings::{Address, BlockSize, Login, OutputLimit, Settings};
pub use stream::{Command, Stream};
