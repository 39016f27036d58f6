//! Consumer groups: XGROUP and XACK.

use store_types::{Group as StreamGroup, Stream, StreamId};

use super::super::prelude::*;
use super::id;

pub(super) fn no_group(group: &[u8], key: &[u8]) -> CommandError {
    let text = [b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"];
    CommandError::new(text.concat())
}

/// The same complaint where it is open whether the key or the group is missing.
pub(super) fn no_key_or_group(key: &[u8], group: &[u8], behind: &str) -> CommandError {
    let text = [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"];
    CommandError::new([&text.concat(), behind.as_bytes()].concat())
}

pub(super) fn no_such_form(container: &str, subcommand: &[u8]) -> CommandError {
    let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
    text.extend(subcommand.iter().take(128));
    text.extend(format!("'. Try {container} HELP.").into_bytes());
    CommandError::new(text)
}

const KEY_MUST_EXIST: CommandError = CommandError::text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
     use the MKSTREAM option to create an empty stream automatically.",
);

/// The options of CREATE and SETID.
#[derive(Default)]
struct GroupOptions {
    makes_stream: bool,
    entries_read: Option<u64>,
}

fn parse_options(request: Request<'_>, is_create: bool) -> Result<GroupOptions, CommandError> {
    let (mut options, mut at) = (GroupOptions::default(), 5);
    while let Some(word) = request.get(at) {
        if is_create && is_word(word, "MKSTREAM") {
            options.makes_stream = true;
            at += 1;
        } else if is_word(word, "ENTRIESREAD")
            && let Some(number) = request.get(at + 1)
        {
            options.entries_read = match integer(number)? {
                -1 => None,
                count => Some(u64::try_from(count).map_err(|_| {
                    CommandError::text("ERR value for ENTRIESREAD must be positive or -1")
                })?),
            };
            at += 2;
        } else {
            return Err(no_such_form("XGROUP", request.arg(1)));
        }
    }
    Ok(options)
}

pub(super) fn xgroup_create(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_options(request, true)?;
    let (key, name) = (request.arg(2), request.arg(3));
    let stream = cx.db.peek_as::<Stream>(key)?;
    let is_new = stream.is_none();
    if is_new && !options.makes_stream {
        return Err(KEY_MUST_EXIST);
    }
    if request.len() > 8 {
        return Err(no_such_form("XGROUP", request.arg(1)));
    }
    let last_id = stream.map_or(StreamId::MIN, Stream::last_id);
    let id = match request.arg(4) {
        b"$" => last_id,
        text => id::parse(text, 0)?,
    };
    let group = StreamGroup::new(id, options.entries_read);
    let created = cx.db.write_or_create(key, Stream::new)?.create_group(name, group);
    if is_new {
        cx.db.signal_modified(key);
    }
    if !created {
        return Err(CommandError::text("BUSYGROUP Consumer Group name already exists"));
    }
    cx.db.dirty += 1;
    cx.db.notify(event_class::STREAM, "xgroup-create", key);
    cx.reply.ok();
    Ok(())
}

pub(super) fn xgroup_setid(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_options(request, false)?;
    let (key, name) = (request.arg(2), request.arg(3));
    let mut stream = cx.db.write_as::<Stream>(key)?.ok_or(KEY_MUST_EXIST)?;
    let last_id = stream.last_id();
    let group = stream.group_mut(name).ok_or_else(|| no_group(name, key))?;
    if !matches!(request.len(), 5 | 7) {
        return Err(no_such_form("XGROUP", request.arg(1)));
    }
    let id = match request.arg(4) {
        b"$" => last_id,
        text => id::parse_or_extreme(text, 0)?,
    };
    group.set_id(id, options.entries_read);
    drop(stream);
    cx.db.dirty += 1;
    cx.db.notify(event_class::STREAM, "xgroup-setid", key);
    cx.reply.ok();
    Ok(())
}

pub(super) fn xgroup_destroy(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, name) = (request.arg(2), request.arg(3));
    let mut stream = cx.db.write_as::<Stream>(key)?.ok_or(KEY_MUST_EXIST)?;
    let removed = stream.remove_group(name);
    drop(stream);
    if removed {
        cx.db.dirty += 1;
        cx.db.notify(event_class::STREAM, "xgroup-destroy", key);
        // Who waits in the group is to learn that it is gone.
        cx.db.signal_ready(key);
    }
    cx.reply.integer(i64::from(removed));
    Ok(())
}

pub(super) fn xgroup_createconsumer(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, name) = (request.arg(2), request.arg(3));
    let now = cx.db.now_ms() as i64;
    let mut stream = cx.db.write_as::<Stream>(key)?.ok_or(KEY_MUST_EXIST)?;
    let group = stream.group_mut(name).ok_or_else(|| no_group(name, key))?;
    let created = group.create_consumer(request.arg(4), now);
    drop(stream);
    if created {
        cx.db.dirty += 1;
        cx.db.notify(event_class::STREAM, "xgroup-createconsumer", key);
    }
    cx.reply.integer(i64::from(created));
    Ok(())
}

pub(super) fn xgroup_delconsumer(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, name) = (request.arg(2), request.arg(3));
    let mut stream = cx.db.write_as::<Stream>(key)?.ok_or(KEY_MUST_EXIST)?;
    let group = stream.group_mut(name).ok_or_else(|| no_group(name, key))?;
    let had_pending = group.remove_consumer(request.arg(4));
    drop(stream);
    if had_pending.is_some() {
        cx.db.dirty += 1;
        cx.db.notify(event_class::STREAM, "xgroup-delconsumer", key);
    }
    cx.reply.count(had_pending.unwrap_or(0));
    Ok(())
}

pub(super) fn xgroup_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    super::super::help::reply(
        cx,
        "XGROUP",
        &[
            ("CREATE <key> <group> <id|$> [option]", "Create a group that read up to the id."),
            ("  MKSTREAM", "Create the stream as well."),
            ("  ENTRIESREAD <count>", "How many entries lie at or before the id."),
            ("CREATECONSUMER <key> <group> <consumer>", "Create a consumer of the group."),
            ("DELCONSUMER <key> <group> <consumer>", "Remove a consumer from the group."),
            ("DESTROY <key> <group>", "Remove the group."),
            ("SETID <key> <group> <id|$> [ENTRIESREAD <count>]", "Move the group to the id."),
        ],
    );
    Ok(())
}

pub(super) fn xack(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, name) = (request.arg(1), request.arg(2));
    let group = cx.db.read_as::<Stream>(key)?.and_then(|stream| stream.group(name));
    if group.is_none() {
        cx.reply.integer(0);
        return Ok(());
    }
    let ids = id::parse_all(request, 3)?;
    let mut stream = cx.db.write_as::<Stream>(key)?;
    let group = stream.as_mut().and_then(|stream| stream.group_mut(name));
    let acknowledged =
        group.map_or(0, |group| ids.iter().filter(|id| group.acknowledge(**id)).count());
    drop(stream);
    cx.db.dirty += acknowledged as u64;
    cx.reply.count(acknowledged);
    Ok(())
}
