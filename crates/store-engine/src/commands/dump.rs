//! Values as payloads: DUMP, RESTORE and the row of MIGRATE.

use store_types::dump::{self as format, Value as Loaded};
use store_types::lzf::Compressor;

use super::prelude::*;
use super::strings::stored;
use crate::command::flag;
use crate::keyspace::{Data, Expiry, NewValue, Value, saved};
use crate::migration::commands::{decoded, migrate, migrate_passwords, migrated_keys};
use crate::session::session_flag;

const RESTORE_KEYS: &[KeySpec] = &[KeySpec::one(1, OW | UPDATE)];
const MIGRATE_KEYS: &[KeySpec] = &[
    KeySpec::one(3, RW | ACCESS | DELETE),
    KeySpec::all_after("KEYS", -2, 0, RW | ACCESS | DELETE | INCOMPLETE),
];
const CATEGORIES: u32 = category::KEYSPACE | category::DANGEROUS;

const RESTORE: &[HistoryEntry] = &[
    ("3.0.0", "Takes REPLACE."),
    ("5.0.0", "Takes ABSTTL."),
    ("5.0.0", "Takes IDLETIME and FREQ."),
];

pub(super) const TABLE: &[Command] = &[
    Command::new("dump", Exactly(2), READ, dump)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::KEYSPACE)
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.6.0", "O(N)", "The value at a key as a payload.")
        .arguments("key#k@0"),
    Command::new("migrate", AtLeast(6), WRITE | MOVES_KEYS, migrate)
        .secrets_found_by(migrate_passwords)
        .keys(MIGRATE_KEYS)
        .keys_found_by(migrated_keys)
        .categories(CATEGORIES)
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.6.0", "O(N)", "Moves keys to another server.")
        .arguments(
            "host#s port#i key_or_empty_string#o(key#k@0 empty_string#t=) \
             destination-db#i timeout#i ?copy#t=COPY^3.0.0 ?replace#t=REPLACE^3.0.0 \
             ?authentication#o(?password#s=AUTH^4.0.7 \
             ?username_password#b=AUTH2^6.0.0(username#s password#s)) \
             ?*key#k@1=KEYS^3.0.6",
        )
        .history(&[
            ("3.0.0", "Takes COPY and REPLACE."),
            ("3.0.6", "Takes KEYS."),
            ("4.0.7", "Takes AUTH."),
            ("6.0.0", "Takes AUTH2."),
        ]),
    Command::new("restore", AtLeast(4), WRITE | GROWS, restore)
        .keys(RESTORE_KEYS)
        .categories(CATEGORIES)
        .docs(Group::Generic, "2.6.0", "O(N)", "Creates a key from a payload.")
        .arguments(
            "key#k@0 ttl#i serialized-value#s ?replace#t=REPLACE^3.0.0 \
             ?absttl#t=ABSTTL^5.0.0 ?seconds#i=IDLETIME^5.0.0 ?frequency#i=FREQ^5.0.0",
        )
        .history(RESTORE),
    Command::new("restore-asking", AtLeast(4), WRITE | GROWS | ASKING | SYSTEM, restore)
        .keys(RESTORE_KEYS)
        .categories(CATEGORIES)
        .docs(Group::Server, "3.0.0", "O(N)", "RESTORE under the name that clusters use.")
        .arguments(
            "key#k@0 ttl#i serialized-value#s ?replace#t=REPLACE^3.0.0 \
             ?absttl#t=ABSTTL^5.0.0 ?seconds#i=IDLETIME^5.0.0 ?frequency#i=FREQ^5.0.0",
        )
        .history(RESTORE),
];

fn dump(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let is_compressed = cx.server.config.settings().snapshot.compresses;
    let Some(value) = cx.db.read(request.arg(1)) else {
        cx.reply.null();
        return Ok(());
    };
    let mut scratch = [0; 20];
    let mut compressor = is_compressed.then(Compressor::new);
    cx.reply.bulk(&format::dump(saved(value, &mut scratch), compressor.as_mut()));
    Ok(())
}

/// The options of RESTORE.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

fn parse_options(request: Request<'_>) -> Result<RestoreOptions, CommandError> {
    let (mut options, mut at) = (RestoreOptions::default(), 4);
    while let Some(word) = request.get(at) {
        let value = request.get(at + 1);
        if is_word(word, "REPLACE") {
            options.replaces = true;
        } else if is_word(word, "ABSTTL") {
            options.is_absolute = true;
        } else if is_word(word, "IDLETIME")
            && options.frequency.is_none()
            && let Some(value) = value
        {
            let error = CommandError::text("ERR Invalid IDLETIME value, must be >= 0");
            options.idle_seconds = Some(u64::try_from(integer(value)?).map_err(|_| error)?);
            at += 1;
        } else if is_word(word, "FREQ")
            && options.idle_seconds.is_none()
            && let Some(value) = value
        {
            let error = CommandError::text("ERR Invalid FREQ value, must be >= 0 and <= 255");
            options.frequency = Some(u8::try_from(integer(value)?).map_err(|_| error)?);
            at += 1;
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

/// Whether a node has moved a key and did not wait for the answer: the key is still there, and may
/// have moved another time since, with another value.
fn was_given_up(cx: &Context<'_>) -> bool {
    let command = cx.server.registry.row(cx.row).command;
    command.has(flag::ASKING) && cx.session.has(session_flag::HUNG_UP)
}

fn restore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_options(request)?;
    let key = request.arg(1);
    if was_given_up(cx) {
        return Err(CommandError::text("ERR The node that moved this key waits no more"));
    }
    if !options.replaces && cx.db.contains(key) {
        return Err(CommandError::text("BUSYKEY Target key name already exists."));
    }
    let ttl = integer(request.arg(2))?;
    if ttl < 0 {
        return Err(CommandError::text("ERR Invalid TTL value, must be >= 0"));
    }
    // Nothing is touched before the whole payload has been found to be sound.
    let Some(value) = decoded(cx, request)? else { return Ok(()) };
    let base = if options.is_absolute { 0 } else { cx.db.now_ms() as i64 };
    let ends_at = (ttl != 0).then(|| ttl.wrapping_add(base));
    let ends_at = ends_at.map(|at| u64::try_from(at).unwrap_or(0));
    let was_there = cx.db.remove(key, cx.db.freeing.server_del);
    cx.reply.ok();
    if ends_at.is_some_and(|at| cx.db.is_over(at as i64)) {
        if was_there {
            cx.db.changed(event_class::GENERIC, "del", key);
            cx.propagate_instead(&[b"DEL", key]);
        }
        return Ok(());
    }
    insert(cx, key, value, ends_at);
    cx.db.set_access(key, options.idle_seconds, options.frequency);
    cx.db.changed(event_class::GENERIC, "restore", key);
    if let Some(at) = ends_at.filter(|_| !options.is_absolute && cx.db.changes.propagating) {
        let mut absolute = request.to_owned_with(&[(2, at.to_string().as_bytes())]);
        absolute.push(b"ABSTTL");
        cx.propagate_owned(absolute);
    }
    Ok(())
}

fn insert(cx: &mut Context<'_>, key: &[u8], value: Loaded, ends_at: Option<u64>) {
    let expiry = ends_at.map_or(Expiry::Clear, Expiry::At);
    let data = match value {
        Loaded::String(bytes) => return cx.db.set(key, stored(&bytes), expiry),
        Loaded::List(list) => Data::List(list),
        Loaded::Hash(hash) => Data::Hash(hash),
        Loaded::Set(set) => Data::Set(set),
        Loaded::SortedSet(set) => Data::SortedSet(set),
        Loaded::Stream(stream) => Data::Stream(stream),
    };
    cx.db.set(key, NewValue::Object(Box::new(Value::new(data))), expiry);
}
