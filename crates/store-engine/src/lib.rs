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
//! Each family is one file (or folder) in `commands/` with its table and its functions; a family
//! that keeps more than keys has its `commands` beside that, such as `acl/commands.rs`. The row is
//! the only place that knows the command: nothing else may ask for its name. A command of a known
//! family is a row and a function there; nothing else has to be registered.
//!
//! 1. **Row.** In the family's `pub(super) const TABLE: &[Command]`, in alphabetical order:
//!
//!    ```text
//!    Command::new("llen", Exactly(2), READ | FAST, llen)
//!        .keys(&[KeySpec::one(1, RO)])
//!        .categories(category::LIST)
//!        .docs(Group::List, "1.0.0", "O(1)", "One sentence.")
//!        .arguments("key#k@0"),
//!    ```
//!    A new family is a file that begins with `use super::prelude::*;`, a `mod` line and a line of
//!    `TABLES` in `commands/mod.rs`. Subcommands are rows in a table of their own:
//!    `Command::container("config", CONFIG_SUBCOMMANDS)`.
//! 2. **Flags** say what the gates let through ([`flag`]): a command that changes data is `WRITE`,
//!    one that may make it larger is `GROWS`, too; one that only reads is `READ`. What has no flag
//!    yet gets one there, or a field of [`Command`]. COMMAND tells those that are in `flag::NAMES`.
//! 3. **Keys** are [`KeySpec`]s with bits of [`access`]; the rules of users rest on them. Where
//!    their places follow from options, `.keys_found_by` has a function for it, and
//!    `.access_found_by` where what is done with them does. `.channels` says which arguments are
//!    channels, `.secrets_found_by` which are passwords.
//! 4. **Docs.** `.arguments` in the notation of `commands/docs`, `.history`, `.deprecated`. For a
//!    command of Redis the test `command_docs` prints what differs.
//! 5. **Function.** `fn llen(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult`.
//!    Arguments are `request.arg(1)` (0 is the name); arity, ACL and the rest were checked.
//!    The reply goes straight to `cx.reply`; `Err(CommandError)` replaces it.
//! 6. **Values.** `cx.db` is the selected database: [`Keyspace::read_as`] to read,
//!    [`Keyspace::write_as`] / [`Keyspace::write_or_create`] to change a value of a kind
//!    (memory is counted when the guard goes out of scope; do not hold it over other calls),
//!    [`Keyspace::take`] for what became empty. Kinds are the variants of [`Data`], with the
//!    methods of `store_types`; settings about encodings are `cx.server.limits`, randomness is
//!    `cx.db.random`. `commands/collection.rs` has what several families share.
//! 7. **Tell.** After a change: `cx.db.changed(event_class::LIST, "lpush", key)`: it counts the
//!    change, breaks WATCH, invalidates tracking and records the keyspace event. No call means
//!    nothing is propagated. `cx.db.notify` for a further event of the same change, such as
//!    `del` when the last element went. `cx.db.signal_ready(key)` when blocked sessions may
//!    find what they wait for. A session that listens to its own events hears of them before the
//!    reply; where Redis tells them behind it, the row says `.told_behind(notifications::most)`.
//! 8. **Propagate.** The request itself is propagated when `dirty` grew. What depends on time
//!    or chance says `cx.propagate_instead(&[…])` with absolute times and chosen members.
//! 9. **Block.** `cx.block(request, keys, timeout_ms, TimeoutReply::NullArray)`: the engine runs
//!    the same function again (`cx.caller == Caller::Resumed`) when a key was signalled.
//! 10. **Test.** Lines in `store-server/tests/it/cases/<family>.txt` (a new file is named in
//!     `compare.rs`) and templates in `generate.rs` there: the same words go to us and to
//!     redis-server. `UPDATE_DOCS=1 cargo test -p store-server --test it commands_page` writes
//!     docs/commands.md, which lists the commands of Redis. A command that Redis does not have is
//!     tested in `store-server/tests/it/server.rs` and described in docs/store.md instead.
//!
//! Fields of `cx` can be borrowed apart: hold a value of `cx.db` while writing to `cx.reply`.

// The door: requests of sessions, one at a time.
mod engine;
mod session;

// The gates, and the row they find.
mod command;
mod gate;
mod key_finder;
mod registry;

// What the row's function gets, and how long it takes.
mod context;
mod error;
mod measure;

// What it works on: keys, and everything but the keys.
mod eviction;
mod keyspace;
mod rates;
mod state;

// The functions. What keeps more than keys has its commands beside that.
mod acl;
mod cluster;
mod commands;
mod config;
mod latency;
mod migration;
mod persistence;
mod pubsub;
mod replication;
mod scripting;
mod sentinel;
mod slots;
mod slow_log;
mod tracking;

// What leaves the engine: told to other sessions, fetched by the driver, or asked of it.
mod busy;
mod effects;
mod notifications;
mod platform;

/// The version of Redis whose clients we serve.
pub const REDIS_VERSION: &str = "7.0.15";

pub use busy::{Busy, BusyDecision, BusyHandler, NoBusyHandler};
pub use cluster::{BusLink, ClusterState, KilledLinks, MessageCounts};
pub use command::{
    Arity, Begin, Channels, Command, Deprecated, Find, FindAccess, FindKeys, FindScriptFlags,
    FindSecrets, Group, HistoryEntry, KeySpec, Run, TellBehind, access, category, flag,
};
pub use config::{
    AnnounceSettings, AppendSettings, ClientAuth, ClientSettings, ClusterSettings, Config,
    ConfigError, EndpointType, Include, Kind, ListenSettings, LoadMode, LogSettings, OomMode,
    OomSettings, OutputLimit, OutputLimits, Permission, ProcessSettings, ReplicaSettings, SETTINGS,
    Setting, SettingDifference, Settings, ShutdownOptions, SnapshotSettings, Supervision,
    SystemLogSettings, TlsSettings, argument_lines, name_matches, parse_arguments,
    parse_arguments_including, parse_file, parse_file_including, rewrite_file,
};
pub use context::{Caller, Context, Propagate, integer, integer_within, integer32, is_word};
pub use effects::{Effects, ServerRequest, Unblock};
pub use engine::{Engine, ExecuteOutcome, NextTick};
pub use error::{CommandError, CommandResult};
pub use eviction::Eviction;
pub use key_finder::{FoundKey, keys_of};
pub use keyspace::changes::{
    Audience, Changes, KeyEvent, LostWatch, Notification, NotificationQueue, ReadyKeys, Unit,
    WatchedNow, event_class,
};
pub use keyspace::memory::size_class;
pub use keyspace::{
    AccessPolicy, Data, Entry, Expiry, Freeing, FreeingSettings, FreeingStats, Garbage, KeyStats,
    Keyspace, NewValue, Object, PrefetchHandle, SnapshotForm, SnapshotKind, SnapshotProgress,
    SnapshotTurn, StringRef, Value, ValueMut, ValueRef, WaitingKeys, Watches,
};
pub use latency::{EventSamples, Histogram, LatencyMonitor};
pub use migration::{
    DecodeRequest, DecodedValue, LeavingPayload, LeavingValue, MigrateRequest, Migrations,
};
pub use persistence::aside::{Aside, AsideData};
pub use persistence::load::LoadFailure;
pub use persistence::snapshot::{
    EndedKeys, LoadOptions, LoadProgress, LoadReport, SaveFailure, SaveJob, SavePoint, Saving,
    check_snapshot, fact,
};
pub use persistence::{AofFacts, Loading, PersistenceStatus};
pub use platform::{NoPlatform, Platform, SettingRefused, Usage};
pub use pubsub::{PubSub, Subscriptions, TopicKind};
pub use rates::{Amounts, RateMeter};
pub use registry::{CallStats, Registry, Row, RowId};
pub use replication::{
    Applied, Asker, BacklogFacts, LinkFacts, ReplicaFacts, ReplicationFacts, ReplicationRequest,
};
pub use scripting::Scripting;
pub use sentinel::{SentinelFacts, SentinelRequest};
pub use session::{
    Blocked, Origin, Session, SessionId, Sessions, TimeoutReply, Transaction, session_flag,
};
pub use slow_log::{SlowLog, SlowRequest};
pub use state::{DebugSwitches, Identity, Measured, Pause, ServerState, Stats, server_gate};
pub use store_script::LogLevel;
pub use tracking::{Tracking, TrackingMode, TrackingTable};
