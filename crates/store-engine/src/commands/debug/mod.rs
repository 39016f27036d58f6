//! DEBUG: the harmless part, which tests of clients and servers use.

mod digest;
mod protocol;

use store_resp::OwnedRequest;
use store_types::dump::{self, save_value};

use super::prelude::*;
use crate::config::rewrite_whole_file;
use crate::effects::ServerRequest;
use crate::gate;
use crate::keyspace::{Data, Entry, Expiry, Freeing, NewValue, ValueRef};
use crate::persistence::snapshot::{self, LoadOptions};
use crate::replication::{self, ReplicationRequest};
use crate::session::session_flag;

pub(super) const TABLE: &[Command] = &[Command::new(
    "debug",
    AtLeast(2),
    ADMIN | NO_SCRIPT | LOADING | STALE | SYSTEM,
    debug,
)
.docs(Group::Server, "1.0.0", "O(1)", "Looks inside, for tests.")];

/// One thing to do.
struct Subcommand {
    name: &'static str,
    arity: crate::command::Arity,
    run: crate::command::Run,
}

const fn subcommand(
    name: &'static str,
    arity: crate::command::Arity,
    run: crate::command::Run,
) -> Subcommand {
    Subcommand { name, arity, run }
}

/// Redis has no table of these, so COMMAND must not tell of them.
const SUBCOMMANDS: &[Subcommand] = &[
    subcommand("aof-flush-sleep", Exactly(3), aof_flush_sleep),
    subcommand("change-repl-id", Exactly(2), change_repl_id),
    subcommand("client-eviction", Exactly(2), client_eviction),
    subcommand("clusterlink", Exactly(5), crate::cluster::debug::kill_links),
    subcommand("config-rewrite-force-all", Exactly(2), rewrite_whole_config),
    subcommand("digest", Exactly(2), digest::digest),
    subcommand("digest-value", AtLeast(2), digest::digest_value),
    subcommand("drop-cluster-packet-filter", Exactly(3), crate::cluster::debug::drop_packets),
    subcommand("error", Exactly(3), error),
    subcommand("help", Exactly(2), help),
    subcommand("htstats", AtLeast(3), htstats),
    subcommand("htstats-key", AtLeast(3), htstats_key),
    subcommand("listpack", Exactly(3), listpack),
    subcommand("log", Exactly(3), log),
    subcommand("object", AtLeast(3), object),
    subcommand("pause-cron", Exactly(3), pause_cron),
    subcommand("populate", AtLeast(3), populate),
    subcommand("protocol", Exactly(3), protocol::protocol),
    subcommand("quicklist", AtLeast(3), quicklist),
    subcommand("quicklist-packed-threshold", Exactly(3), packed_threshold),
    subcommand("loadaof", Exactly(2), load_aof),
    subcommand("reload", AtLeast(2), reload),
    subcommand("replicate", AtLeast(3), replicate),
    subcommand("replybuffer", Exactly(4), replybuffer),
    subcommand("sdslen", Exactly(3), sdslen),
    subcommand("set-active-expire", Exactly(3), set_active_expire),
    subcommand("set-disable-deny-scripts", Exactly(3), let_scripts_administrate),
    subcommand("set-skip-checksum-validation", Exactly(3), skip_checksums),
    subcommand("sleep", Exactly(3), sleep),
    subcommand("structsize", Exactly(2), structsize),
];

/// What would end, block or change the server behind everybody's back.
const REFUSED: &[&str] = &[
    "assert",
    "crash-and-abort",
    "crash-and-recover",
    "leak",
    "mallctl",
    "mallctl-str",
    "oom",
    "panic",
    "restart",
    "segfault",
    "stringmatch-test",
];

fn debug(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !crate::config::commands::allows(cx, cx.server.config.settings().clients.debug_command) {
        return Err(CommandError::text(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        ));
    }
    let name = request.arg(1);
    let found = SUBCOMMANDS.iter().find(|known| is_word(name, known.name));
    if let Some(found) = found.filter(|found| found.arity.admits(request.len())) {
        return (found.run)(cx, request);
    }
    if REFUSED.iter().any(|known| is_word(name, known)) {
        let name = String::from_utf8_lossy(name).to_uppercase();
        let text = format!("ERR DEBUG {name} is refused by this server");
        return Err(CommandError::new(text));
    }
    Err(super::help::wrong_arguments("DEBUG", request))
}

fn sleep(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    /// Nobody tests with more; the whole server rests.
    const SECONDS_MAX: f64 = 60.0;
    let text = String::from_utf8_lossy(request.arg(2));
    let seconds: f64 = text.trim().parse().unwrap_or(0.0);
    let seconds = if seconds.is_finite() { seconds.clamp(0.0, SECONDS_MAX) } else { 0.0 };
    cx.server.effects.rest_us = (seconds * 1e6) as u64;
    cx.session.flags |= session_flag::RESTS;
    cx.reply.ok();
    Ok(())
}

/// Whether a switch is to be on: any number but zero.
fn is_on(request: Request<'_>) -> bool {
    let text = String::from_utf8_lossy(request.arg(2));
    text.trim().parse::<i64>().unwrap_or(0) != 0
}

fn set_active_expire(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.db.set_active_expiry(is_on(request));
    cx.reply.ok();
    Ok(())
}

fn pause_cron(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.server.debug.pauses_cron = is_on(request);
    cx.reply.ok();
    Ok(())
}

fn let_scripts_administrate(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.server.debug.scripts_administrate = is_on(request);
    cx.reply.ok();
    Ok(())
}

fn skip_checksums(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.server.debug.skips_checksums = is_on(request);
    cx.reply.ok();
    Ok(())
}

fn aof_flush_sleep(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    /// Nobody tests with more; the whole server rests.
    const US_MAX: u64 = 60_000_000;
    let text = String::from_utf8_lossy(request.arg(2));
    cx.server.debug.flush_sleep_us = text.trim().parse::<u64>().unwrap_or(0).min(US_MAX);
    cx.reply.ok();
    Ok(())
}

/// Reply buffers are as large as what is in them, so there is nothing to turn off or to wait for.
fn replybuffer(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !is_word(request.arg(2), "PEAK-RESET-TIME") && !is_word(request.arg(2), "RESIZING") {
        return Err(super::help::wrong_arguments("DEBUG", request));
    }
    cx.reply.ok();
    Ok(())
}

fn rewrite_whole_config(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    crate::config::commands::rewrite(cx, rewrite_whole_file)
}

/// Saves, empties and loads the server. NOSAVE loads what was saved before, NOFLUSH keeps what is
/// there, and MERGE lets keys of the file replace it.
fn reload(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (mut saves, mut flushes, mut options) = (true, true, LoadOptions::default());
    for word in request.args_from(2) {
        match () {
            () if is_word(word, "NOSAVE") => saves = false,
            () if is_word(word, "NOFLUSH") => flushes = false,
            () if is_word(word, "MERGE") => options.merges = true,
            () => {
                return Err(CommandError::text(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                ));
            }
        }
    }
    if cx.server.scripting.interpreter.is_none() {
        // The file has libraries, and the interpreter is at work.
        return Err(CommandError::text("ERR DEBUG RELOAD cannot run inside a script"));
    }
    let failed = |reason: String| CommandError::new(format!("ERR {reason}"));
    if saves {
        snapshot::save_now(cx.db, cx.server).map_err(failed)?;
    }
    let path = snapshot::path(cx.server);
    let refused = |error| format!("{}: {error}", path.display());
    // Loaded aside first: what cannot be loaded must not take the place of what is there.
    let file = cx.server.platform.open_file(&path).map_err(failed)?;
    let now_us = cx.db.now_ms() * 1000;
    snapshot::load_aside(cx.server, file, now_us).map_err(|error| failed(refused(error)))?;
    let file = cx.server.platform.open_file(&path).map_err(failed)?;
    if flushes {
        (0..cx.db.database_count()).for_each(|db| _ = cx.db.flush(db, Freeing::Now));
        if let Some(interpreter) = cx.server.scripting.interpreter.as_mut() {
            interpreter.flush_libraries();
        }
    }
    let loaded = snapshot::load(cx.db, cx.server, file, options, &mut |_| {});
    if let Err(error) = loaded {
        // The file is another by now, or has keys that are there: a part of it is in memory.
        let reason = format!("DEBUG RELOAD: {}", refused(error));
        cx.server.effects.requests.push(ServerRequest::Fail(reason.clone()));
        return Err(failed(reason));
    }
    cx.reply.ok();
    Ok(())
}

/// Loads the append-only file again, before the reply leaves, also one that is not continued any
/// more. A file that cannot be loaded ends the server, as in Redis.
fn load_aof(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let aof = &cx.server.persistence.aof;
    if !aof.is_on && !cx.server.platform.has_append_file(&cx.server.config) {
        return Err(CommandError::text(
            "ERR There is no append-only file to load: CONFIG SET appendonly yes makes one",
        ));
    }
    if aof.is_rewriting || aof.is_scheduled {
        return Err(CommandError::text(
            "ERR The append-only file is being written anew: try again when INFO says \
             aof_rewrite_in_progress:0",
        ));
    }
    cx.server.effects.requests.push(ServerRequest::LoadAof);
    cx.reply.ok();
    Ok(())
}

fn change_repl_id(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    replication::commands::hold(cx, request, ReplicationRequest::ChangeId)
}

/// Replicas run what this server does not.
fn replicate(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let told = OwnedRequest::from_args(request.args_from(2));
    gate::propagate_to_replicas(cx, told);
    cx.reply.ok();
    Ok(())
}

fn client_eviction(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    if cx.server.config.settings().clients.memory_max == 0 {
        return Err(CommandError::text("ERR maxmemory-clients is disabled."));
    }
    cx.reply.verbatim("txt", b"");
    Ok(())
}

fn error(_: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    Err(CommandError::new(request.arg(2)))
}

fn log(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let line = format!("DEBUG LOG: {}", String::from_utf8_lossy(request.arg(2)));
    cx.server.effects.requests.push(ServerRequest::Log(line));
    cx.reply.ok();
    Ok(())
}

/// The value as files keep it.
fn saved_value<'a>(value: ValueRef<'a>, scratch: &'a mut [u8; 20]) -> dump::ValueRef<'a> {
    match value {
        ValueRef::Integer(number) => {
            dump::ValueRef::String(store_resp::format_integer(number, scratch))
        }
        ValueRef::Bytes(bytes) => dump::ValueRef::String(bytes),
        ValueRef::Object(value) => match value.data() {
            Data::List(list) => dump::ValueRef::List(list),
            Data::Hash(hash) => dump::ValueRef::Hash(hash),
            Data::Set(set) => dump::ValueRef::Set(set),
            Data::SortedSet(set) => dump::ValueRef::SortedSet(set),
            Data::Stream(stream) => dump::ValueRef::Stream(stream),
        },
    }
}

fn object(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let node_size = cx.server.limits.list_node_size;
    let policy = cx.db.access_policy();
    let now_ms = cx.db.now_ms();
    let entry = cx.db.stored_entry(request.arg(2)).ok_or(CommandError::NO_SUCH_KEY)?;
    let mut saved = Vec::new();
    let mut compressor = store_types::lzf::Compressor::default();
    let mut writer = dump::Writer::new(&mut saved, Some(&mut compressor));
    save_value(saved_value(entry.value(), &mut [0; 20]), &mut writer);
    let (bits, idle) = (entry.access(), policy.idle_seconds(entry.access(), now_ms));
    let mut text = format!(
        "Value at:{:p} refcount:{} encoding:{} serializedlength:{} lru:{bits} \
         lru_seconds_idle:{idle}",
        std::ptr::from_ref(entry),
        super::object::reference_count(cx.server, entry),
        super::object::encoding_name(entry),
        saved.len(),
    );
    if let ValueRef::Object(value) = entry.value()
        && let Data::List(list) = value.data()
    {
        let nodes = list.node_count();
        let bytes: usize = list.nodes().map(|node| node.as_bytes().len()).sum();
        let each = list.len() as f64 / nodes.max(1) as f64;
        text.push_str(&format!(
            " ql_nodes:{nodes} ql_avg_node:{each:.2} ql_listpack_max:{node_size} \
             ql_compressed:0 ql_uncompressed_size:{bytes}"
        ));
    }
    cx.reply.simple(&text);
    Ok(())
}

fn sdslen(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let entry = cx.db.stored_entry(request.arg(2)).ok_or(CommandError::NO_SUCH_KEY)?;
    let ValueRef::Bytes(value) = entry.value() else {
        return Err(CommandError::text("ERR Not an sds encoded string."));
    };
    let (key, len, memory) = (entry.key().len(), value.len(), entry.memory());
    cx.reply.simple(&format!(
        "key_sds_len:{key}, key_sds_avail:0, key_zmalloc: {key}, val_sds_len:{len}, \
         val_sds_avail:0, val_zmalloc: {memory}"
    ));
    Ok(())
}

fn listpack(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let entry = cx.db.stored_entry(request.arg(2)).ok_or(CommandError::NO_SUCH_KEY)?;
    if super::object::encoding_name(entry) != "listpack" {
        return Err(CommandError::text("ERR Not a listpack encoded object."));
    }
    cx.reply.simple("Listpack structure printed on stdout");
    Ok(())
}

fn quicklist(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let entry = cx.db.stored_entry(request.arg(2)).ok_or(CommandError::NO_SUCH_KEY)?;
    if super::object::encoding_name(entry) != "quicklist" {
        return Err(CommandError::text("ERR Not a quicklist encoded object."));
    }
    cx.reply.simple("Quicklist structure printed on stdout");
    Ok(())
}

fn packed_threshold(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    const BYTES_MAX: i64 = 4 << 30;
    let text = String::from_utf8_lossy(request.arg(2));
    let bytes = crate::config::parse_memory(&text).filter(|bytes| (0..BYTES_MAX).contains(bytes));
    if bytes.is_none() {
        let text = "ERR argument must be a memory value bigger than 1 and smaller than 4gb";
        return Err(CommandError::text(text));
    }
    cx.reply.ok();
    Ok(())
}

fn structsize(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let text = format!("bits:{} robj:0 dictentry:{} ", usize::BITS, size_of::<Entry>());
    cx.reply.bulk(text.as_bytes());
    Ok(())
}

fn htstats(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let db = integer(request.arg(2))?;
    let db = usize::try_from(db).ok().filter(|db| *db < cx.db.database_count());
    let db = db.ok_or(CommandError::text("ERR Out of range database"))?;
    let (keys, volatile) = cx.db.counts(db);
    let text = format!(
        "[Dictionary HT]\n number of elements: {keys}\n[Expires HT]\n number of elements: \
         {volatile}\n"
    );
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn htstats_key(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let entry = cx.db.stored_entry(request.arg(2)).ok_or(CommandError::NO_SUCH_KEY)?;
    let count = match entry.value() {
        ValueRef::Object(value) => match (value.data(), value.encoding_name()) {
            (Data::Hash(hash), "hashtable") => Some(hash.len()),
            (Data::Set(set), "hashtable") => Some(set.len()),
            (Data::SortedSet(set), "skiplist") => Some(set.len()),
            _ => None,
        },
        ValueRef::Integer(_) | ValueRef::Bytes(_) => None,
    };
    let text = "ERR The value stored at the specified key is not represented using an hash table";
    let count = count.ok_or(CommandError::text(text))?;
    cx.reply.verbatim("txt", format!(" number of elements: {count}\n").as_bytes());
    Ok(())
}

fn populate(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    /// Keys and bytes that one request may make: more is no test any more.
    const KEYS_MAX: i64 = 100_000_000;
    const SIZE_MAX: i64 = 512 * 1024 * 1024;
    if request.len() > 5 {
        return Err(super::help::wrong_arguments("DEBUG", request));
    }
    let positive = |arg: &[u8], max: i64| {
        let number = store_resp::parse_integer(arg).filter(|number| (0..=max).contains(number));
        number.ok_or(CommandError::NOT_POSITIVE)
    };
    let count = positive(request.arg(2), KEYS_MAX)?;
    let prefix = request.get(3).unwrap_or(b"key");
    let size = match request.get(4) {
        Some(size) => positive(size, SIZE_MAX)? as usize,
        None => 0,
    };
    for number in 0..count {
        let mut key = prefix.to_vec();
        key.extend_from_slice(format!(":{number}").as_bytes());
        if cx.db.contains(&key) {
            continue;
        }
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            value.resize(size, 0);
        }
        cx.db.set(&key, NewValue::Bytes(&value), Expiry::Clear);
        cx.db.signal_modified(&key);
    }
    cx.reply.ok();
    Ok(())
}

fn help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    super::help::reply(
        cx,
        "DEBUG",
        &[
            ("AOF-FLUSH-SLEEP <microsec>", "Rest before the append-only file is written."),
            ("CLUSTERLINK KILL <to|from|all> <node-id>", "Close connections of the bus."),
            ("CONFIG-REWRITE-FORCE-ALL", "CONFIG REWRITE of all settings."),
            ("DIGEST", "A signature of all keys and values."),
            ("DIGEST-VALUE <key> [<key> ...]", "Signatures of values."),
            ("DROP-CLUSTER-PACKET-FILTER <type>", "Drop packets of a kind; -1 for none."),
            ("ERROR <string>", "Answer with an error."),
            ("HTSTATS <dbid>", "Counts of a database."),
            ("LOADAOF", "Load the append-only file again."),
            ("LOG <message>", "Write to the log."),
            ("OBJECT <key>", "How a value is kept."),
            ("PAUSE-CRON <0|1>", "Whether anything happens by itself."),
            ("POPULATE <count> [<prefix>] [<size>]", "Make keys for tests."),
            ("PROTOCOL <type>", "Answer with a value of this type."),
            ("RELOAD [MERGE] [NOFLUSH] [NOSAVE]", "Save, empty and load the server."),
            ("SET-ACTIVE-EXPIRE <0|1>", "Whether ended keys are looked for."),
            ("SET-DISABLE-DENY-SCRIPTS <0|1>", "Whether scripts may administrate."),
            ("SET-SKIP-CHECKSUM-VALIDATION <0|1>", "Whether checksums count."),
            ("SLEEP <seconds>", "Let the whole server rest."),
        ],
    );
    Ok(())
}
