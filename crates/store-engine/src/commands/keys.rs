//! Keys whatever they hold.

use store_types::glob;

use super::prelude::*;
use crate::context::Propagate;
use crate::effects::ServerRequest;
use crate::keyspace::{Entry, Freeing, NewValue, ValueRef};
use crate::persistence::snapshot;

const FLUSH: &[HistoryEntry] = &[("4.0.0", "Takes ASYNC."), ("6.2.0", "Takes SYNC.")];

pub(super) const TABLE: &[Command] = &[
    Command::new("copy", AtLeast(3), WRITE | GROWS, copy)
        .keys(&[KeySpec::one(1, RO | ACCESS), KeySpec::one(2, OW | UPDATE)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "6.2.0", "O(N)", "Copies a key, optionally to another database.")
        .arguments("source#k@0 destination#k@1 ?destination-db#i=DB ?replace#t=REPLACE"),
    Command::new("del", AtLeast(2), WRITE, del)
        .keys(&[KeySpec::all(1, RM | DELETE)])
        .categories(category::KEYSPACE)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "1.0.0", "O(N)", "Removes keys.")
        .arguments("*key#k@0"),
    Command::new("exists", AtLeast(2), READ | FAST, exists)
        .keys(&[KeySpec::all(1, RO)])
        .categories(category::KEYSPACE)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "1.0.0", "O(N)", "How many of the keys exist.")
        .arguments("*key#k@0")
        .history(&[("3.0.3", "Takes several keys.")]),
    Command::new("keys", Exactly(2), READ, keys)
        .categories(category::KEYSPACE | category::DANGEROUS)
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .docs(Group::Generic, "1.0.0", "O(N)", "All keys that match a pattern.")
        .arguments("pattern#p"),
    Command::new("move", Exactly(3), WRITE | FAST, move_key)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "1.0.0", "O(1)", "Moves a key to another database.")
        .arguments("key#k@0 db#i"),
    Command::new("randomkey", Exactly(1), READ, randomkey)
        .categories(category::KEYSPACE)
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .docs(Group::Generic, "1.0.0", "O(1)", "A key chosen at random."),
    Command::new("rename", Exactly(3), WRITE, rename)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, OW | UPDATE)])
        .categories(category::KEYSPACE)
        .docs(
            Group::Generic,
            "1.0.0",
            "O(1)",
            "Renames a key, and replaces a key that has the new name.",
        )
        .arguments("key#k@0 newkey#k@1"),
    Command::new("renamenx", Exactly(3), WRITE | FAST, renamenx)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, OW | INSERT)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "1.0.0", "O(1)", "Renames a key unless the new name is taken.")
        .arguments("key#k@0 newkey#k@1")
        .history(&[("3.2.0", "Both names may be the same.")]),
    Command::new("touch", AtLeast(2), READ | FAST, touch)
        .keys(&[KeySpec::all(1, RO)])
        .categories(category::KEYSPACE)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "3.2.1", "O(N)", "Marks keys as just used.")
        .arguments("*key#k@0"),
    Command::new("type", Exactly(2), READ | FAST, type_of)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "1.0.0", "O(1)", "The kind of value at a key.")
        .arguments("key#k@0"),
    Command::new("unlink", AtLeast(2), WRITE | FAST, unlink)
        .keys(&[KeySpec::all(1, RM | DELETE)])
        .categories(category::KEYSPACE)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "4.0.0", "O(1)", "Removes keys.")
        .arguments("*key#k@0"),
    Command::new("dbsize", Exactly(1), READ | FAST, dbsize)
        .categories(category::KEYSPACE)
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .docs(Group::Server, "1.0.0", "O(1)", "How many keys the database has."),
    Command::new("flushall", AtLeast(1), WRITE, flushall)
        .categories(category::KEYSPACE | category::DANGEROUS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Server, "1.0.0", "O(N)", "Removes all keys of all databases.")
        .arguments("?async#o(async#t=ASYNC^4.0.0 sync#t=SYNC^6.2.0)")
        .history(FLUSH),
    Command::new("flushdb", AtLeast(1), WRITE, flushdb)
        .categories(category::KEYSPACE | category::DANGEROUS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Server, "1.0.0", "O(N)", "Removes all keys of the database.")
        .arguments("?async#o(async#t=ASYNC^4.0.0 sync#t=SYNC^6.2.0)")
        .history(FLUSH),
    Command::new("swapdb", Exactly(3), WRITE | FAST, swapdb)
        .categories(category::KEYSPACE | category::DANGEROUS)
        .docs(Group::Server, "4.0.0", "O(N)", "Exchanges two databases.")
        .arguments("index1#i index2#i"),
];

fn del(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let freeing = cx.db.freeing.user_del;
    remove_all(cx, request, freeing)
}

fn unlink(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    remove_all(cx, request, Freeing::Lazily)
}

fn remove_all(cx: &mut Context<'_>, request: Request<'_>, freeing: Freeing) -> CommandResult {
    let keys = request.args_from(1);
    let removed = keys.filter(|key| cx.db.delete_freeing(key, freeing)).count();
    cx.reply.count(removed);
    Ok(())
}

fn exists(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let there = cx
        .db
        .without_touching(|db| request.args_from(1).filter(|key| db.read(key).is_some()).count());
    cx.reply.count(there);
    Ok(())
}

fn touch(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let there = request.args_from(1).filter(|key| cx.db.read(key).is_some()).count();
    cx.reply.count(there);
    Ok(())
}

fn type_of(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let kind = cx.db.without_touching(|db| db.read(request.arg(1)).map(|value| value.type_name()));
    cx.reply.simple(kind.unwrap_or("none"));
    Ok(())
}

fn keys(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let pattern = request.arg(1);
    let now_ms = cx.db.now_ms();
    let begun = cx.reply.begin();
    let mut count = 0;
    let (db, reply) = (&*cx.db, &mut cx.reply);
    db.for_each(&mut |entry| {
        let lives = entry.expires_at().is_none_or(|at| at >= now_ms);
        if lives && glob::matches(pattern, entry.key(), glob::Case::Sensitive) {
            reply.bulk(entry.key());
            count += 1;
        }
    });
    cx.reply.end_array(begun, count);
    Ok(())
}

fn randomkey(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let key = cx.db.random_key();
    cx.reply.bulk_or_null(key.as_deref());
    Ok(())
}

fn rename(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    move_to(cx, request.arg(1), request.arg(2))?;
    cx.reply.ok();
    Ok(())
}

fn renamenx(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (from, to) = (request.arg(1), request.arg(2));
    if !cx.db.contains(from) {
        return Err(CommandError::NO_SUCH_KEY);
    }
    if cx.db.contains(to) {
        cx.reply.integer(0);
        return Ok(());
    }
    move_to(cx, from, to)?;
    cx.reply.integer(1);
    Ok(())
}

/// Moves a value to another name, over whatever has it.
fn move_to(cx: &mut Context<'_>, from: &[u8], to: &[u8]) -> CommandResult {
    if from == to {
        return if cx.db.contains(from) { Ok(()) } else { Err(CommandError::NO_SUCH_KEY) };
    }
    let entry = cx.db.take(from).ok_or(CommandError::NO_SUCH_KEY)?;
    cx.db.remove(to, cx.db.freeing.server_del);
    cx.db.put(to, entry);
    cx.db.signal_modified(from);
    cx.db.signal_modified(to);
    cx.db.notify(event_class::GENERIC, "rename_from", from);
    cx.db.notify(event_class::GENERIC, "rename_to", to);
    cx.db.dirty += 1;
    Ok(())
}

fn move_key(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.refuse_in_cluster("ERR MOVE is not allowed in cluster mode")?;
    let (key, from) = (request.arg(1), cx.db.selected());
    let to = cx.database(request.arg(2))?;
    if from == to {
        return Err(CommandError::text("ERR source and destination objects are the same"));
    }
    if !cx.db.contains(key) {
        cx.reply.integer(0);
        return Ok(());
    }
    cx.db.select(to);
    let is_taken = cx.db.contains(key);
    cx.db.select(from);
    if is_taken {
        cx.reply.integer(0);
        return Ok(());
    }
    let entry = cx.db.take(key).expect("it was there a moment ago");
    // Redis puts it into its place before it tells anybody.
    cx.db.select(to);
    cx.db.put(key, entry);
    cx.db.select(from);
    cx.db.signal_modified(key);
    cx.db.notify(event_class::GENERIC, "move_from", key);
    cx.db.select(to);
    cx.db.changed(event_class::GENERIC, "move_to", key);
    cx.db.select(from);
    cx.reply.integer(1);
    Ok(())
}

fn copy(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (source, target) = (request.arg(1), request.arg(2));
    let from = cx.db.selected();
    let (mut to, mut replaces) = (from, false);
    let mut at = 3;
    while let Some(word) = request.get(at) {
        if is_word(word, "REPLACE") {
            replaces = true;
        } else if is_word(word, "DB") && at + 1 < request.len() {
            at += 1;
            to = cx.database(request.arg(at))?;
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 1;
    }
    if from != 0 || to != 0 {
        cx.refuse_in_cluster("ERR Copying to another database is not allowed in cluster mode")?;
    }
    if from == to && source == target {
        return Err(CommandError::text("ERR source and destination objects are the same"));
    }
    let Some(entry) = cx.db.read_entry(source) else {
        cx.reply.integer(0);
        return Ok(());
    };
    let (value, expires_at) = (duplicate(entry), entry.expires_at());
    cx.db.select(to);
    if cx.db.contains(target) {
        if !replaces {
            cx.db.select(from);
            cx.reply.integer(0);
            return Ok(());
        }
        cx.db.remove(target, cx.db.freeing.server_del);
    }
    let mut entry = Entry::new(target, value, expires_at);
    entry.set_access(cx.db.access_policy().initial(cx.db.now_ms()));
    cx.db.put(target, entry);
    cx.db.changed(event_class::GENERIC, "copy_to", target);
    cx.db.select(from);
    cx.reply.integer(1);
    Ok(())
}

fn duplicate(entry: &Entry) -> NewValue<'static> {
    match entry.value() {
        ValueRef::Integer(number) => NewValue::Integer(number),
        ValueRef::Bytes(bytes) => match entry.is_edited() {
            true => NewValue::Edited(bytes.to_vec()),
            false => NewValue::Owned(bytes.to_vec()),
        },
        ValueRef::Object(value) => NewValue::Object(Box::new(value.clone())),
    }
}

fn dbsize(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.count(cx.db.len());
    Ok(())
}

fn flushdb(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let freeing = flush_option(cx, request)?;
    let db = cx.db.selected();
    cx.db.dirty += cx.db.flush(db, freeing) as u64;
    // Replicas may have something in a database that is empty here.
    cx.propagate = Propagate::Always;
    cx.db.signal_all_flushed();
    cx.reply.ok();
    Ok(())
}

fn flushall(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let freeing = flush_option(cx, request)?;
    snapshot::stop_saving(cx.db, cx.server, "FLUSHALL");
    for db in 0..cx.db.database_count() {
        cx.db.dirty += cx.db.flush(db, freeing) as u64;
    }
    cx.propagate = Propagate::Always;
    cx.db.signal_all_flushed();
    if !cx.server.saving.points.is_empty() {
        // Else the next start would bring back what was to go.
        save_emptiness(cx);
    }
    cx.reply.ok();
    Ok(())
}

fn save_emptiness(cx: &mut Context<'_>) {
    if let Err(reason) = snapshot::save_now(cx.db, cx.server) {
        let line = format!("Cannot save after FLUSHALL: {reason}");
        cx.server.effects.requests.push(ServerRequest::Log(line));
    }
}

/// How a flush frees memory. Even SYNC does not stall: it is freed in slices.
fn flush_option(cx: &Context<'_>, request: Request<'_>) -> Result<Freeing, CommandError> {
    match request.get(1) {
        None => Ok(cx.db.freeing.user_flush),
        Some(word) if request.len() == 2 && is_word(word, "ASYNC") => Ok(Freeing::Lazily),
        Some(word) if request.len() == 2 && is_word(word, "SYNC") => Ok(Freeing::Now),
        Some(_) => Err(CommandError::SYNTAX),
    }
}

fn swapdb(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.refuse_in_cluster("ERR SWAPDB is not allowed in cluster mode")?;
    let number = |arg, text| {
        let number = store_resp::parse_integer(arg).filter(|n| i32::try_from(*n).is_ok());
        number.ok_or(CommandError::text(text))
    };
    let first = number(request.arg(1), "ERR invalid first DB index")?;
    let second = number(request.arg(2), "ERR invalid second DB index")?;
    let count = cx.db.database_count() as i64;
    if ![first, second].iter().all(|db| (0..count).contains(db)) {
        return Err(CommandError::DB_INDEX);
    }
    cx.db.swap_databases(first as usize, second as usize);
    cx.db.dirty += 1;
    cx.reply.ok();
    Ok(())
}
