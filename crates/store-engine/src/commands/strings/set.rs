//! Reading and setting whole strings.

use store_resp::SHARED_MIN;

use super::super::expire::{TimeUnit, deadline};
use super::super::prelude::*;
use super::{reply_shared, stored_arg};
use crate::keyspace::changes::KeyEvent;
use crate::keyspace::{Expiry, StringRef};
use crate::notifications;

pub(super) fn get(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    match cx.db.read_string(request.arg(1))? {
        Some(StringRef::Bytes(bytes)) if bytes.len() < SHARED_MIN => cx.reply.bulk(bytes),
        Some(StringRef::Bytes(_)) => reply_shared(cx, request.arg(1), |bytes| 0..bytes.len()),
        Some(StringRef::Integer(number)) => cx.reply.bulk_integer(number),
        None => cx.reply.null(),
    }
    Ok(())
}

pub(super) fn mget(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.reply.array(request.len() - 1);
    for key in request.args_from(1) {
        match cx.db.read_string(key) {
            Ok(Some(text)) if text.len() < SHARED_MIN => {
                cx.reply.bulk(text.bytes(&mut [0; 20]));
            }
            Ok(Some(_)) => reply_shared(cx, key, |bytes| 0..bytes.len()),
            // A value of another kind counts as absent here.
            Ok(None) | Err(_) => cx.reply.null(),
        }
    }
    Ok(())
}

/// When SET sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    Absent,
    Present,
}

/// The options of SET and GETEX.
struct SetOptions {
    condition: Condition,
    returns_old: bool,
    persists: bool,
    expiry: Option<ExpiryArgument>,
    keeps_expiry: bool,
}

/// When the key shall end: given as an argument, in this unit, relative or not.
#[derive(Clone, Copy)]
struct ExpiryArgument {
    arg: usize,
    unit: TimeUnit,
    is_absolute: bool,
}

/// SET reads only with GET.
pub(super) fn access_of_set(request: Request<'_>) -> u32 {
    let gets = request.args_from(3).any(|arg| is_word(arg, "GET"));
    if gets { RW | ACCESS | UPDATE } else { OW | UPDATE }
}

pub(super) fn set(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, value) = (request.arg(1), request.arg(2));
    if request.len() == 3 {
        cx.db.set(key, stored_arg(request, 2), Expiry::Clear);
        cx.db.changed(event_class::STRING, "set", key);
        cx.reply.ok();
        return Ok(());
    }
    let options = parse_options(request, 3, "SET")?;
    let ends_at = expiry_moment(cx, request, options.expiry, "set")?;
    if options.returns_old {
        get(cx, request)?;
    }
    if !set_if(cx, request, &options, ends_at) {
        if !options.returns_old {
            cx.reply.null();
        }
        return Ok(());
    }
    if let Some(at) = ends_at {
        cx.db.notify(event_class::GENERIC, "expire", key);
        let at = at.to_string();
        cx.propagate_instead(&[b"SET", key, value, b"PXAT", at.as_bytes()]);
    } else if options.returns_old || options.condition != Condition::Always {
        let keep: &[&[u8]] = &[b"SET", key, value, b"KEEPTTL"];
        cx.propagate_instead(&keep[..if options.keeps_expiry { 4 } else { 3 }]);
    }
    if !options.returns_old {
        cx.reply.ok();
    }
    Ok(())
}

fn set_if(
    cx: &mut Context<'_>,
    request: Request<'_>,
    options: &SetOptions,
    ends_at: Option<u64>,
) -> bool {
    let key = request.arg(1);
    let blocked_by = match options.condition {
        Condition::Always => None,
        Condition::Absent => Some(true),
        Condition::Present => Some(false),
    };
    if blocked_by.is_some_and(|presence| cx.db.contains(key) == presence) {
        return false;
    }
    let expiry = match ends_at {
        Some(at) => Expiry::At(at),
        None if options.keeps_expiry => Expiry::Keep,
        None => Expiry::Clear,
    };
    cx.db.set(key, stored_arg(request, 2), expiry);
    cx.db.changed(event_class::STRING, "set", key);
    true
}

fn parse_options(
    request: Request<'_>,
    first: usize,
    command: &str,
) -> Result<SetOptions, CommandError> {
    let is_set = command == "SET";
    let mut options = SetOptions {
        condition: Condition::Always,
        returns_old: false,
        persists: false,
        expiry: None,
        keeps_expiry: false,
    };
    let mut at = first;
    while let Some(word) = request.get(at) {
        let free = options.expiry.is_none() && !options.keeps_expiry && !options.persists;
        let is = |name| is_word(word, name);
        let condition_free = |taken| is_set && options.condition != taken;
        if is("NX") && condition_free(Condition::Present) {
            options.condition = Condition::Absent;
        } else if is("XX") && condition_free(Condition::Absent) {
            options.condition = Condition::Present;
        } else if is("GET") && is_set {
            options.returns_old = true;
        } else if is("KEEPTTL") && is_set && options.expiry.is_none() {
            options.keeps_expiry = true;
        } else if is("PERSIST") && !is_set && options.expiry.is_none() {
            options.persists = true;
        } else if free && at + 1 < request.len() && expiry_word(word).is_some() {
            let (unit, is_absolute) = expiry_word(word).ok_or(CommandError::SYNTAX)?;
            at += 1;
            options.expiry = Some(ExpiryArgument { arg: at, unit, is_absolute });
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

/// With GET, SET replies before it sets.
pub(super) fn told_behind_set(request: Request<'_>, event: &KeyEvent) -> bool {
    request.args_from(3).any(|word| is_word(word, "GET")) && notifications::changes(request, event)
}

fn expiry_word(word: &[u8]) -> Option<(TimeUnit, bool)> {
    let words = [
        ("EX", TimeUnit::Seconds, false),
        ("PX", TimeUnit::Milliseconds, false),
        ("EXAT", TimeUnit::Seconds, true),
        ("PXAT", TimeUnit::Milliseconds, true),
    ];
    let found = words.into_iter().find(|(name, ..)| is_word(word, name));
    found.map(|(_, unit, is_absolute)| (unit, is_absolute))
}

/// The unix millisecond an expiry option means; it must be positive.
fn expiry_moment(
    cx: &Context<'_>,
    request: Request<'_>,
    ends: Option<ExpiryArgument>,
    command: &str,
) -> Result<Option<u64>, CommandError> {
    let Some(ends) = ends else { return Ok(None) };
    let amount = integer(request.arg(ends.arg))?;
    let base = if ends.is_absolute { 0 } else { cx.db.now_ms() };
    let invalid = || CommandError::new(format!("ERR invalid expire time in '{command}' command"));
    if amount <= 0 {
        return Err(invalid());
    }
    deadline(amount, ends.unit, base).map(|at| Some(at as u64)).ok_or_else(invalid)
}

pub(super) fn setnx(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let is_new = !cx.db.contains(key);
    if is_new {
        cx.db.set(key, stored_arg(request, 2), Expiry::Clear);
        cx.db.changed(event_class::STRING, "set", key);
    }
    cx.reply.integer(i64::from(is_new));
    Ok(())
}

pub(super) fn setex(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    set_with_expiry(cx, request, TimeUnit::Seconds, "setex")
}

pub(super) fn psetex(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    set_with_expiry(cx, request, TimeUnit::Milliseconds, "psetex")
}

fn set_with_expiry(
    cx: &mut Context<'_>,
    request: Request<'_>,
    unit: TimeUnit,
    command: &str,
) -> CommandResult {
    let (key, value) = (request.arg(1), request.arg(3));
    let ends = ExpiryArgument { arg: 2, unit, is_absolute: false };
    if let Some(at) = expiry_moment(cx, request, Some(ends), command)? {
        cx.db.set(key, stored_arg(request, 3), Expiry::At(at));
        cx.db.changed(event_class::STRING, "set", key);
        cx.db.notify(event_class::GENERIC, "expire", key);
        let at = at.to_string();
        cx.propagate_instead(&[b"SET", key, value, b"PXAT", at.as_bytes()]);
    }
    cx.reply.ok();
    Ok(())
}

pub(super) fn getset(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    get(cx, request)?;
    let (key, value) = (request.arg(1), request.arg(2));
    cx.db.set(key, stored_arg(request, 2), Expiry::Clear);
    cx.db.changed(event_class::STRING, "set", key);
    cx.propagate_instead(&[b"SET", key, value]);
    Ok(())
}

pub(super) fn getdel(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    get(cx, request)?;
    let key = request.arg(1);
    let freeing = cx.db.freeing.user_del;
    if cx.db.delete_freeing(key, freeing) {
        cx.propagate_instead(&[freeing.command(), key]);
    }
    Ok(())
}

pub(super) fn getex(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_options(request, 2, "GETEX")?;
    let key = request.arg(1);
    if cx.db.read_string(key)?.is_none() {
        cx.reply.null();
        return Ok(());
    }
    let ends_at = expiry_moment(cx, request, options.expiry, "getex")?;
    match cx.db.peek_string(key)? {
        Some(text) if text.len() < SHARED_MIN => cx.reply.bulk(text.bytes(&mut [0; 20])),
        Some(_) => reply_shared(cx, key, |bytes| 0..bytes.len()),
        None => cx.reply.null(),
    }
    match ends_at {
        Some(at) if cx.db.is_over(at as i64) => {
            let freeing = cx.db.freeing.expire;
            cx.db.delete_freeing(key, freeing);
            cx.propagate_instead(&[freeing.command(), key]);
        }
        Some(at) => {
            cx.db.set_expires_at(key, Some(at));
            cx.db.changed(event_class::GENERIC, "expire", key);
            let at = at.to_string();
            cx.propagate_instead(&[b"PEXPIREAT", key, at.as_bytes()]);
        }
        None if options.persists && cx.db.expires_at(key).flatten().is_some() => {
            cx.db.set_expires_at(key, None);
            cx.db.changed(event_class::GENERIC, "persist", key);
            cx.propagate_instead(&[b"PERSIST", key]);
        }
        None => {}
    }
    Ok(())
}

pub(super) fn mset(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    check_pairs(request, "mset")?;
    set_pairs(cx, request);
    cx.reply.ok();
    Ok(())
}

pub(super) fn msetnx(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    check_pairs(request, "msetnx")?;
    let keys = request.args_from(1).step_by(2);
    let all_new = keys.into_iter().all(|key| !cx.db.contains(key));
    if all_new {
        set_pairs(cx, request);
    }
    cx.reply.integer(i64::from(all_new));
    Ok(())
}

fn check_pairs(request: Request<'_>, command: &str) -> CommandResult {
    if request.len().is_multiple_of(2) {
        let text = format!("ERR wrong number of arguments for '{command}' command");
        return Err(CommandError::new(text));
    }
    Ok(())
}

fn set_pairs(cx: &mut Context<'_>, request: Request<'_>) {
    for at in (1..request.len()).step_by(2) {
        let key = request.arg(at);
        cx.db.set(key, stored_arg(request, at + 1), Expiry::Clear);
        cx.db.changed(event_class::STRING, "set", key);
    }
}
