//! What a row of the command table says.
//!
//! The table is the only list of commands: dispatch, COMMAND, ACL, key extraction and the
//! documentation read it.

use store_resp::Request;
use store_script::{Flags as ScriptFlags, Interpreter};

use crate::context::Context;
use crate::error::CommandResult;
use crate::key_finder::FoundKey;
use crate::keyspace::changes::KeyEvent;

/// Finds the keys of a request if no specification can describe their positions. `None` if the
/// arguments are invalid.
pub type FindKeys = fn(Request<'_>) -> Option<Vec<FoundKey>>;

/// The function behind a row. All gates have been passed; the reply goes to `cx.reply`, and an
/// error replaces whatever was written.
pub type Run = fn(&mut Context<'_>, Request<'_>) -> CommandResult;

/// Returns the positions of arguments that are passwords, which MONITOR and SLOWLOG must not show.
pub type FindSecrets = fn(Request<'_>) -> Vec<usize>;

/// Returns what a request does with its keys, as bits of [`access`], if that depends on its
/// arguments.
pub type FindAccess = fn(Request<'_>) -> u32;

/// Returns the flags of the script that a request runs, from its first line or its library. `None`
/// if there are none or the script is not found.
pub type FindScriptFlags = fn(&Interpreter, script: &[u8]) -> Option<ScriptFlags>;

/// What changed in which version of Redis.
pub type HistoryEntry = (&'static str, &'static str);

/// Whether a session is told about an event of its own request after the reply.
pub type TellBehind = fn(Request<'_>, &KeyEvent) -> bool;

/// How many arguments a command takes, its own name included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// This many.
    Exactly(usize),
    /// This many or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether a request of `len` arguments fits.
    #[inline]
    pub fn admits(self, len: usize) -> bool {
        match self {
            Arity::Exactly(count) => len == count,
            Arity::AtLeast(count) => len >= count,
        }
    }

    /// The number in the reply to COMMAND: negative for a minimum.
    pub fn code(self) -> i64 {
        match self {
            Arity::Exactly(count) => count as i64,
            Arity::AtLeast(count) => -(count as i64),
        }
    }
}

/// What a command does, as far as gates and clients must know.
pub mod flag {
    /// Changes data.
    pub const WRITE: u32 = 1 << 0;
    /// Reads data and changes none.
    pub const READ: u32 = 1 << 1;
    /// May need memory: refused when there is none left.
    pub const GROWS: u32 = 1 << 2;
    /// For administrators.
    pub const ADMIN: u32 = 1 << 3;
    /// About channels.
    pub const PUBSUB: u32 = 1 << 4;
    /// Not allowed in scripts.
    pub const NO_SCRIPT: u32 = 1 << 5;
    /// May block the client.
    pub const BLOCKING: u32 = 1 << 6;
    /// Allowed while data is loaded.
    pub const LOADING: u32 = 1 << 7;
    /// Allowed on a replica with stale data.
    pub const STALE: u32 = 1 << 8;
    /// Not shown to MONITOR.
    pub const SKIP_MONITOR: u32 = 1 << 9;
    /// Not in the slow log.
    pub const SKIP_SLOWLOG: u32 = 1 << 10;
    /// Allowed on a slot being imported.
    pub const ASKING: u32 = 1 << 11;
    /// Takes constant or logarithmic time.
    pub const FAST: u32 = 1 << 12;
    /// Allowed before authentication.
    pub const NO_AUTH: u32 = 1 << 13;
    /// The keys that the table describes may be absent.
    pub const NO_MANDATORY_KEYS: u32 = 1 << 14;
    /// Allowed while a script runs for too long.
    pub const ALLOW_BUSY: u32 = 1 << 15;
    /// Not allowed inside MULTI.
    pub const NO_MULTI: u32 = 1 << 16;
    /// Not allowed during asynchronous loading.
    pub const NO_ASYNC_LOADING: u32 = 1 << 17;
    /// The positions of keys depend on the arguments.
    pub const MOVABLE_KEYS: u32 = 1 << 18;
    /// May write though it is not a write command: PFCOUNT, scripts.
    pub const MAY_REPLICATE: u32 = 1 << 19;
    /// May run a script, during which other clients must be served.
    pub const RUNS_SCRIPTS: u32 = 1 << 20;
    /// Runs between MULTI and EXEC, where everything else is queued.
    pub const RUNS_IN_MULTI: u32 = 1 << 21;
    /// Runs what was queued since MULTI: the gates check all of that, too.
    pub const RUNS_QUEUED: u32 = 1 << 22;
    /// Ends a transaction without running it, so it needs no memory.
    pub const DROPS_QUEUED: u32 = 1 << 23;
    /// Allowed for a subscribed session in RESP2.
    pub const ALLOW_SUBSCRIBED: u32 = 1 << 24;
    /// Returns the error that writes get while the disk or a replica has a problem, so that probes
    /// see it.
    pub const TELLS_TROUBLE: u32 = 1 << 25;
    /// May end the server, also while a script runs.
    pub const ENDS_SERVER: u32 = 1 << 26;
    /// Does not use up CLIENT CACHING. Set on a container, this holds for all its subcommands.
    pub const KEEPS_CACHING: u32 = 1 << 27;
    /// For other servers or for tests, which COMMAND DOCS shows.
    pub const SYSTEM: u32 = 1 << 28;
    /// A sentinel has it, too. On a container, with all its subcommands.
    pub const SENTINEL: u32 = 1 << 29;

    /// Moves keys of slots that are on their way, so it works in those.
    pub const MOVES_KEYS: u32 = 1 << 30;
    /// Returns the replication offset, which must then include all earlier writes.
    pub const TELLS_OFFSET: u32 = 1 << 31;

    /// Names in the order in which COMMAND tells them.
    pub(crate) const NAMES: &[(u32, &str)] = &[
        (WRITE, "write"),
        (READ, "readonly"),
        (GROWS, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NO_SCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (ASKING, "asking"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (ALLOW_BUSY, "allow_busy"),
        (NO_MULTI, "no_multi"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (MOVABLE_KEYS, "movablekeys"),
    ];
}

/// ACL categories.
pub mod category {
    use super::{Command, Group, flag};

    /// About the keyspace as such.
    pub const KEYSPACE: u32 = 1 << 0;
    /// Reads keys.
    pub const READ: u32 = 1 << 1;
    /// Writes keys.
    pub const WRITE: u32 = 1 << 2;
    /// Sets.
    pub const SET: u32 = 1 << 3;
    /// Sorted sets.
    pub const SORTED_SET: u32 = 1 << 4;
    /// Lists.
    pub const LIST: u32 = 1 << 5;
    /// Hashes.
    pub const HASH: u32 = 1 << 6;
    /// Strings.
    pub const STRING: u32 = 1 << 7;
    /// Bitmaps.
    pub const BITMAP: u32 = 1 << 8;
    /// HyperLogLog.
    pub const HYPERLOGLOG: u32 = 1 << 9;
    /// Geo.
    pub const GEO: u32 = 1 << 10;
    /// Streams.
    pub const STREAM: u32 = 1 << 11;
    /// Channels.
    pub const PUBSUB: u32 = 1 << 12;
    /// Administration.
    pub const ADMIN: u32 = 1 << 13;
    /// Fast.
    pub const FAST: u32 = 1 << 14;
    /// Not fast.
    pub const SLOW: u32 = 1 << 15;
    /// Blocking.
    pub const BLOCKING: u32 = 1 << 16;
    /// Dangerous.
    pub const DANGEROUS: u32 = 1 << 17;
    /// About the connection.
    pub const CONNECTION: u32 = 1 << 18;
    /// Transactions.
    pub const TRANSACTION: u32 = 1 << 19;
    /// Scripts.
    pub const SCRIPTING: u32 = 1 << 20;

    /// Names in the order in which COMMAND and ACL CAT list them.
    pub const NAMES: &[(u32, &str)] = &[
        (KEYSPACE, "keyspace"),
        (READ, "read"),
        (WRITE, "write"),
        (SET, "set"),
        (SORTED_SET, "sortedset"),
        (LIST, "list"),
        (HASH, "hash"),
        (STRING, "string"),
        (BITMAP, "bitmap"),
        (HYPERLOGLOG, "hyperloglog"),
        (GEO, "geo"),
        (STREAM, "stream"),
        (PUBSUB, "pubsub"),
        (ADMIN, "admin"),
        (FAST, "fast"),
        (SLOW, "slow"),
        (BLOCKING, "blocking"),
        (DANGEROUS, "dangerous"),
        (CONNECTION, "connection"),
        (TRANSACTION, "transaction"),
        (SCRIPTING, "scripting"),
    ];

    /// All categories of a command: those its row names, and those that follow from its flags.
    pub fn of(command: &Command) -> u32 {
        let has = |flag| command.flags & flag != 0;
        let follows = [
            (has(flag::WRITE), WRITE),
            (has(flag::READ) && command.group != Group::Scripting, READ),
            (has(flag::ADMIN), ADMIN | DANGEROUS),
            (has(flag::PUBSUB), PUBSUB),
            (has(flag::FAST), FAST),
            (has(flag::BLOCKING), BLOCKING),
            (!has(flag::FAST), SLOW),
        ];
        let follow = follows.iter().filter(|(applies, _)| *applies).map(|(_, category)| category);
        follow.fold(command.categories, |all, category| all | category)
    }
}

/// The chapter of the documentation a command is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    PubSub,
    Transactions,
    Connection,
    Server,
    Scripting,
    HyperLogLog,
    Cluster,
    Geo,
    Stream,
    Bitmap,
    Sentinel,
}

impl Group {
    /// The name in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::PubSub => "pubsub",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::HyperLogLog => "hyperloglog",
            Group::Cluster => "cluster",
            Group::Geo => "geo",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
            Group::Sentinel => "sentinel",
        }
    }
}

/// Which arguments of a request are channels, for ACL rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// None.
    None,
    /// The first one.
    First,
    /// All.
    All,
    /// All, and they are patterns.
    Patterns,
}

/// A command that should not be used any more, and what to use instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deprecated {
    /// The version of Redis.
    pub since: &'static str,
    /// What to use.
    pub instead: &'static str,
}

/// One row of the table.
///
/// A row is written as a chain: `Command::new("get", Exactly(2), READ | FAST, get)`, then keys,
/// categories and docs.
#[derive(Debug)]
pub struct Command {
    /// The name in lower case; for a subcommand, only its own part.
    pub name: &'static str,
    /// How many arguments.
    pub arity: Arity,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Bits of [`category`] that do not follow from the flags.
    pub categories: u32,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// Finds its keys if the specifications are not enough.
    pub find_keys: Option<FindKeys>,
    /// What it does with its keys, if that depends on the arguments.
    pub find_access: Option<FindAccess>,
    /// Which arguments are channels.
    pub channels: Channels,
    /// Which arguments are passwords.
    pub find_secrets: Option<FindSecrets>,
    /// The flags of the script that it runs.
    pub find_script_flags: Option<FindScriptFlags>,
    /// Hints for clients, as in Redis 7.0.
    pub tips: &'static [&'static str],
    /// Chapter of the documentation.
    pub group: Group,
    /// The first version of Redis that had it.
    pub since: &'static str,
    /// Cost, in O-notation.
    pub complexity: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Its arguments, in the notation that `commands/docs` describes.
    pub arguments: &'static str,
    /// What changed since.
    pub history: &'static [HistoryEntry],
    /// What to use instead, if it is deprecated.
    pub deprecated: Option<Deprecated>,
    /// Rows of the second word, such as CONFIG GET.
    pub subcommands: &'static [Command],
    /// Which of the events that it causes its own session is told about after the reply instead of
    /// before.
    pub told_behind: Option<TellBehind>,
    /// What it does. A container without a function of its own has [`Command::container`].
    pub run: Run,
}

impl Command {
    /// A row without keys and docs.
    pub const fn new(name: &'static str, arity: Arity, flags: u32, run: Run) -> Self {
        Self {
            name,
            arity,
            flags,
            categories: 0,
            keys: &[],
            find_keys: None,
            find_access: None,
            channels: Channels::None,
            find_secrets: None,
            find_script_flags: None,
            tips: &[],
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            arguments: "",
            history: &[],
            deprecated: None,
            subcommands: &[],
            told_behind: None,
            run,
        }
    }

    /// A row that only leads to its subcommands.
    pub const fn container(name: &'static str, subcommands: &'static [Command]) -> Self {
        let mut row = Self::new(name, Arity::AtLeast(2), 0, crate::gate::run_container);
        row.subcommands = subcommands;
        row
    }

    /// Adds subcommands to a command that also does something without one.
    pub const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self
    }

    /// Sets which events the session itself is told about after the reply.
    pub const fn told_behind(mut self, told_behind: TellBehind) -> Self {
        self.told_behind = Some(told_behind);
        self
    }

    /// Sets where its keys are.
    pub const fn keys(mut self, keys: &'static [KeySpec]) -> Self {
        self.keys = keys;
        self
    }

    /// Sets a function that finds the keys if specifications cannot describe all of them.
    pub const fn keys_found_by(mut self, find_keys: FindKeys) -> Self {
        self.find_keys = Some(find_keys);
        self
    }

    /// Sets a function that returns what is done with the keys.
    pub const fn access_found_by(mut self, find_access: FindAccess) -> Self {
        self.find_access = Some(find_access);
        self
    }

    /// Sets which arguments are channels.
    pub const fn channels(mut self, channels: Channels) -> Self {
        self.channels = channels;
        self
    }

    /// Sets a function that finds passwords among the arguments.
    pub const fn secrets_found_by(mut self, find_secrets: FindSecrets) -> Self {
        self.find_secrets = Some(find_secrets);
        self
    }

    /// Sets a function that returns the flags of the script that it runs.
    pub const fn script_flags_found_by(mut self, find_script_flags: FindScriptFlags) -> Self {
        self.find_script_flags = Some(find_script_flags);
        self
    }

    /// Adds flags: for containers, which have none of their own.
    pub const fn also(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }

    /// Adds categories to those that follow from the flags.
    pub const fn categories(mut self, categories: u32) -> Self {
        self.categories = categories;
        self
    }

    /// Sets hints for clients.
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    /// Sets its documentation.
    pub const fn docs(
        mut self,
        group: Group,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Self {
        self.group = group;
        self.since = since;
        self.complexity = complexity;
        self.summary = summary;
        self
    }

    /// Sets its arguments.
    pub const fn arguments(mut self, arguments: &'static str) -> Self {
        self.arguments = arguments;
        self
    }

    /// Sets what changed in later versions of Redis.
    pub const fn history(mut self, history: &'static [HistoryEntry]) -> Self {
        self.history = history;
        self
    }

    /// Marks it as deprecated since a version, and says what to use instead.
    pub const fn deprecated(mut self, since: &'static str, instead: &'static str) -> Self {
        self.deprecated = Some(Deprecated { since, instead });
        self
    }

    /// Whether any of the flags is set.
    #[inline]
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }
}

/// What a command does with a key.
pub mod access {
    /// Reads and writes.
    pub const RW: u32 = 1 << 0;
    /// Reads.
    pub const RO: u32 = 1 << 1;
    /// Overwrites, whatever was there.
    pub const OW: u32 = 1 << 2;
    /// Removes.
    pub const RM: u32 = 1 << 3;
    /// Returns or copies content.
    pub const ACCESS: u32 = 1 << 4;
    /// Changes content.
    pub const UPDATE: u32 = 1 << 5;
    /// Adds content, destroying none.
    pub const INSERT: u32 = 1 << 6;
    /// Deletes content.
    pub const DELETE: u32 = 1 << 7;
    /// Only looks like a key.
    pub const NOT_KEY: u32 = 1 << 8;
    /// The specification does not find all keys.
    pub const INCOMPLETE: u32 = 1 << 9;
    /// What it does depends on the arguments.
    pub const VARIABLE: u32 = 1 << 10;

    /// Names as COMMAND tells them.
    pub(crate) const NAMES: &[(u32, &str)] = &[
        (RW, "RW"),
        (RO, "RO"),
        (OW, "OW"),
        (RM, "RM"),
        (ACCESS, "access"),
        (UPDATE, "update"),
        (INSERT, "insert"),
        (DELETE, "delete"),
        (NOT_KEY, "not_key"),
        (INCOMPLETE, "incomplete"),
        (VARIABLE, "variable_flags"),
    ];
}

/// Where to begin to look for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this argument.
    Index(usize),
    /// Behind this word, looked for from an argument on; from the end when negative.
    Keyword(&'static str, i64),
    /// Only the command's own code knows.
    Unknown,
}

/// How keys follow from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Every `step`-th argument up to `last`: relative to the beginning, or to the end when
    /// negative. With a `limit` of 2, only half of the rest.
    Range {
        /// Last key.
        last: i64,
        /// Distance of keys.
        step: usize,
        /// Divider of what is left, or zero.
        limit: usize,
    },
    /// As many as the argument there says, from the one behind it.
    Counted,
    /// Only the command's own code knows.
    Unknown,
}

/// Where the keys are among the arguments of a command, and what is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where to begin.
    pub begin: Begin,
    /// How to go on.
    pub find: Find,
    /// Bits of [`access`].
    pub access: u32,
}

impl KeySpec {
    /// One key, at argument `index`.
    pub const fn one(index: usize, access: u32) -> Self {
        Self::range(index, 0, 1, access)
    }

    /// Keys from argument `first` to the last argument.
    pub const fn all(first: usize, access: u32) -> Self {
        Self::range(first, -1, 1, access)
    }

    /// Keys from argument `first`, each `step`, to `last` (relative, or from the end).
    pub const fn range(first: usize, last: i64, step: usize, access: u32) -> Self {
        Self { begin: Begin::Index(first), find: Find::Range { last, step, limit: 0 }, access }
    }

    /// As many keys as argument `index` says, right after it.
    pub const fn counted(index: usize, access: u32) -> Self {
        Self { begin: Begin::Index(index), find: Find::Counted, access }
    }

    /// One key after a word.
    pub const fn after(word: &'static str, from: i64, access: u32) -> Self {
        let find = Find::Range { last: 0, step: 1, limit: 0 };
        Self { begin: Begin::Keyword(word, from), find, access }
    }

    /// The first `1/limit` of the arguments after a word; all of them with `limit` 0.
    pub const fn all_after(word: &'static str, from: i64, limit: usize, access: u32) -> Self {
        let find = Find::Range { last: -1, step: 1, limit };
        Self { begin: Begin::Keyword(word, from), find, access }
    }

    /// Keys that no rule finds.
    pub const fn unknown(access: u32) -> Self {
        Self { begin: Begin::Unknown, find: Find::Unknown, access }
    }
}
