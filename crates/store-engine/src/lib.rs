//! The store itself: keys, commands and sessions behind one door, without I/O.
//!
//! ```text
//! Engine::execute(now, session, request)
//!   gate    lookup ► arity ► auth ► ACL ► memory ► pub/sub ► queue (MULTI) or
//!   call    run the row's function ► counters ► propagated unit
//!   deliver watchers, events, tracking, blocked sessions
//! ► reply in the session's output, the rest in Effects
//! ```
//!
//! # How to add a command
//!
//! 1. **Row.** Each family is one file (or folder) in `commands/` with a
//!    `pub(super) const TABLE: &[Command]`; a new family is named once in `commands/mod.rs`.
//!    `Command::new("llen", Exactly(2), READ | FAST, llen)`, then `.keys(&[KeySpec::one(1, RO)])`,
//!    `.categories(category::LIST)`, `.docs(Group::List, "1.0.0", "O(1)", "One sentence.")`.
//!    Subcommands are rows in a table of their own under `Command::container`.
//! 2. **Function.** `fn llen(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult`.
//!    Arguments are `request.arg(1)` (0 is the name); arity, ACL and the rest were checked.
//!    The reply goes straight to `cx.reply`; `Err(CommandError)` replaces it.
//! 3. **Keys.** `cx.db` is the selected database: [`Keyspace::read_as`] to read,
//!    [`Keyspace::write_as`] / [`Keyspace::write_or_create`] to change a value of a kind
//!    (memory is counted when the guard goes out of scope; do not hold it over other calls),
//!    [`Keyspace::take`] for what became empty. Kinds are the variants of [`Data`];
//!    settings about encodings are `cx.server.limits`, randomness is `cx.db.random`.
//! 4. **Tell.** After a change: `cx.db.changed(event_class::LIST, "lpush", key)`: it counts the
//!    change, breaks WATCH, invalidates tracking and records the keyspace event. No call means
//!    nothing is propagated. `cx.db.notify` for a further event of the same change, such as
//!    `del` when the last element went. `cx.db.signal_ready(key)` when blocked sessions may
//!    find what they wait for.
//! 5. **Propagate.** The request itself is propagated when `dirty` grew. What depends on time
//!    or chance says `cx.propagate_instead(&[…])` with absolute times and chosen members.
//! 6. **Block.** `cx.block(request, keys, timeout_ms, TimeoutReply::NullArray)`: the engine runs
//!    the same function again (`cx.caller == Caller::Resumed`) when a key was signalled.
//! 7. **Test.** Lines in `store-server/tests/it/cases/<family>.txt` and a generator table in
//!    `tests/it/generate.rs`: the same words go to us and to redis-server.
//!
//! Fields of `cx` can be borrowed apart: hold a value of `cx.db` while writing to `cx.reply`.

mod acl;
mod attend;
mod command;
mod commands;
mod config;
mod context;
mod effects;
mod engine;
mod error;
mod eviction;
mod gate;
mod host;
mod key_finder;
mod keyspace;
mod latency;
mod load;
mod measure;
mod persistence;
mod pubsub;
mod rates;
mod registry;
mod scripting;
mod session;
mod slow_log;
mod snapshot;
mod state;
mod tracking;

/// The version of Redis whose clients we serve.
pub const REDIS_VERSION: &str = "7.0.15";

pub use attend::{Attendant, Attended, Busy, NoAttendant};
pub use command::{
    Arity, Begin, Command, Find, FindKeys, Group, KeySpec, Run, TellBehind, access, category, flag,
};
pub use config::{
    AppendSettings, ClientAuth, ClientSettings, Config, ConfigError, EndWish, Include, Kind,
    ListenSettings, LogSettings, OomMode, OomSettings, OutputLimit, OutputLimits, Permission,
    ProcessSettings, Remark, SETTINGS, Setting, Settings, SnapshotSettings, Supervision,
    SystemLogSettings, TlsSettings, argument_lines, name_matches, parse_arguments,
    parse_arguments_including, parse_file, parse_file_including, rewrite_file,
};
pub use context::{Caller, Context, Propagate, integer, integer_within, integer32, is_word};
pub use effects::{
    Effects, KeyEvent, LostWatch, News, NewsQueue, ReadyKeys, ServerRequest, Unblock, Unit,
    event_class,
};
pub use engine::{Engine, NextTick, Outcome};
pub use error::{CommandError, CommandResult};
pub use eviction::Eviction;
pub use host::{Host, NoHost, SettingRefused, Usage};
pub use key_finder::{FoundKey, keys_of};
pub use keyspace::memory::size_class;
pub use keyspace::{
    AccessPolicy, Data, Entry, Expiry, Foreseen, Freeing, FreeingSettings, FreeingStats, Garbage,
    KeyStats, Keyspace, NewValue, Object, SnapshotForm, SnapshotKind, SnapshotProgress,
    SnapshotTurn, StringRef, Value, ValueMut, ValueRef, WaitingKeys, Watches,
};
pub use latency::{EventSamples, Histogram, LatencyMonitor};
pub use load::LoadFailure;
pub use persistence::{AofFacts, Loading, Persistence};
pub use pubsub::{PubSub, Subscriptions, TopicKind};
pub use rates::{Amounts, RateMeter};
pub use registry::{CallStats, Registry, Row, RowId};
pub use scripting::Scripting;
pub use session::{
    Blocked, Origin, Session, SessionId, Sessions, TimeoutReply, Transaction, session_flag,
};
pub use slow_log::{SlowLog, SlowRequest};
pub use snapshot::{
    LoadOptions, LoadProgress, LoadReport, SaveFailure, SaveJob, SavePoint, Saving, check_snapshot,
    fact,
};
pub use state::{DebugSwitches, Identity, Measured, Pause, ServerState, Stats, server_gate};
pub use store_script::LogLevel;
pub use tracking::{Tracking, TrackingMode, TrackingTable};
