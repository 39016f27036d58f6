//! Sentinel as Redis 7.0 speaks it, without sockets, clocks and files.
//!
//! In flow order:
//! - [`Configuration`]: `sentinel.conf` as text and as state;
//! - [`Sentinel`]: one sentinel. It pings servers and other sentinels, reads their [`Report`]s
//!   (INFO) and [`Hello`]s, decides with the others whether a primary is down, votes, and makes
//!   a replica the primary;
//! - [`Output`]: what is to be done, in order.
//!
//! ```
//! use store_replica::Moment;
//! use store_sentinel::{Configuration, Draw, Output, RunId, Sentinel, Timing};
//!
//! let file = "sentinel monitor mymaster 10.0.0.1 6379 2\n";
//! let configuration = Configuration::parse(file).unwrap();
//! let id = RunId::parse(b"0123456789012345678901234567890123456789").unwrap();
//! let draw = Draw::new(|_limit| 0);
//! let mut sentinel = Sentinel::new(Moment::default(), configuration, id, Timing::default(), draw);
//! sentinel.handle_time(Moment::default());
//! let outputs: Vec<Output> = std::iter::from_fn(|| sentinel.next_output()).collect();
//! assert!(outputs.iter().any(|output| matches!(output, Output::Dial { .. })));
//! ```

mod admin;
mod agree;
mod choose;
mod config;
mod core;
mod describe;
mod discover;
mod epoch;
mod event;
mod failover;
mod group;
mod hello;
mod history;
mod info;
mod instance;
mod links;
mod output;
mod saving;
mod scripts;
mod sentinel;
mod settings;
mod watch;

pub use admin::{AdminRequest, Surroundings};
pub use config::{ConfigError, Configuration, GroupConfiguration, KnownPeer};
pub use event::{Event, EventKind, Level};
pub use failover::{FailoverRefused, FailoverStep};
pub use group::Group;
pub use hello::{HELLO_CHANNEL, Hello};
pub use info::{Report, ReportedRole};
pub use links::LinkId;
pub use output::{DownAnswer, DownQuestion, Output, Question, Vote};
pub use saving::FileOutcome;
pub use scripts::{ScriptEnd, ScriptId};
pub use sentinel::Sentinel;
pub use settings::{Draw, Globals, GroupSettings, RunId, Timing};
