//! When keys end.

use super::prelude::*;
use crate::keyspace::changes::KeyEvent;
use crate::notifications;

const CONDITION: &[HistoryEntry] = &[("7.0.0", "Takes NX, XX, GT and LT.")];
const MISSING: &[HistoryEntry] = &[("2.8.0", "Answers -2 when there is no key.")];

pub(super) const TABLE: &[Command] = &[
    Command::new("expire", AtLeast(3), WRITE | FAST, expire)
        .told_behind(told_behind)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "1.0.0", "O(1)", "Makes a key expire after seconds.")
        .arguments("key#k@0 seconds#i ?condition#o^7.0.0(nx#t=NX xx#t=XX gt#t=GT lt#t=LT)")
        .history(CONDITION),
    Command::new("expireat", AtLeast(3), WRITE | FAST, expireat)
        .told_behind(told_behind)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "1.2.0", "O(1)", "Makes a key expire at a unix second.")
        .arguments(
            "key#k@0 unix-time-seconds#u ?condition#o^7.0.0(nx#t=NX xx#t=XX gt#t=GT \
             lt#t=LT)",
        )
        .history(CONDITION),
    Command::new("expiretime", Exactly(2), READ | FAST, expiretime)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "7.0.0", "O(1)", "The unix second at which a key expires.")
        .arguments("key#k@0"),
    Command::new("persist", Exactly(2), WRITE | FAST, persist)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "2.2.0", "O(1)", "Removes the expiry of a key.")
        .arguments("key#k@0"),
    Command::new("pexpire", AtLeast(3), WRITE | FAST, pexpire)
        .told_behind(told_behind)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "2.6.0", "O(1)", "Makes a key expire after milliseconds.")
        .arguments("key#k@0 milliseconds#i ?condition#o^7.0.0(nx#t=NX xx#t=XX gt#t=GT lt#t=LT)")
        .history(CONDITION),
    Command::new("pexpireat", AtLeast(3), WRITE | FAST, pexpireat)
        .told_behind(told_behind)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "2.6.0", "O(1)", "Makes a key expire at a unix millisecond.")
        .arguments(
            "key#k@0 unix-time-milliseconds#u ?condition#o^7.0.0(nx#t=NX xx#t=XX \
             gt#t=GT lt#t=LT)",
        )
        .history(CONDITION),
    Command::new("pexpiretime", Exactly(2), READ | FAST, pexpiretime)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "7.0.0", "O(1)", "The unix millisecond at which a key expires.")
        .arguments("key#k@0"),
    Command::new("pttl", Exactly(2), READ | FAST, pttl)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::KEYSPACE)
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.6.0", "O(1)", "Milliseconds until a key expires.")
        .arguments("key#k@0")
        .history(MISSING),
    Command::new("ttl", Exactly(2), READ | FAST, ttl)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::KEYSPACE)
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "1.0.0", "O(1)", "Seconds until a key expires.")
        .arguments("key#k@0")
        .history(MISSING),
];

/// A key whose end is over is removed before the reply.
fn told_behind(request: Request<'_>, event: &KeyEvent) -> bool {
    event.name != "del" && notifications::most(request, event)
}

/// In what unit a time was given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
}

/// The unix millisecond `amount` units after `base_ms`, or `None` when that overflows.
pub(super) fn deadline(amount: i64, unit: TimeUnit, base_ms: u64) -> Option<i64> {
    let factor = if unit == TimeUnit::Seconds { 1000 } else { 1 };
    amount.checked_mul(factor)?.checked_add_unsigned(base_ms)
}

fn expire(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let base = cx.db.now_ms();
    set_expiry(cx, request, TimeUnit::Seconds, base)
}

fn pexpire(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let base = cx.db.now_ms();
    set_expiry(cx, request, TimeUnit::Milliseconds, base)
}

fn expireat(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    set_expiry(cx, request, TimeUnit::Seconds, 0)
}

fn pexpireat(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    set_expiry(cx, request, TimeUnit::Milliseconds, 0)
}

/// The conditions NX, XX, GT and LT.
#[derive(Default)]
struct Conditions {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_earlier: bool,
}

impl Conditions {
    /// Whether a key that ends at `current` may be made to end at `at`.
    fn admit(&self, current: Option<u64>, at: i64) -> bool {
        let current = current.map(|current| current as i64);
        !(self.only_without && current.is_some()
            || self.only_with && current.is_none()
            || self.only_later && current.is_none_or(|current| at <= current)
            || self.only_earlier && current.is_some_and(|current| at >= current))
    }
}

fn parse_conditions(request: Request<'_>) -> Result<Conditions, CommandError> {
    let mut conditions = Conditions::default();
    for word in request.args_from(3) {
        match word.to_ascii_uppercase().as_slice() {
            b"NX" => conditions.only_without = true,
            b"XX" => conditions.only_with = true,
            b"GT" => conditions.only_later = true,
            b"LT" => conditions.only_earlier = true,
            _ => {
                let text = [b"ERR Unsupported option ", word].concat();
                return Err(CommandError::new(text));
            }
        }
    }
    let Conditions { only_without, only_with, only_later, only_earlier } = conditions;
    if only_without && (only_with || only_later || only_earlier) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(CommandError::text(text));
    }
    if only_later && only_earlier {
        let text = "ERR GT and LT options at the same time are not compatible";
        return Err(CommandError::text(text));
    }
    Ok(conditions)
}

fn set_expiry(
    cx: &mut Context<'_>,
    request: Request<'_>,
    unit: TimeUnit,
    base_ms: u64,
) -> CommandResult {
    let key = request.arg(1);
    let conditions = parse_conditions(request)?;
    let amount = integer(request.arg(2))?;
    let at = deadline(amount, unit, base_ms).ok_or_else(|| {
        let name = cx.server.registry.row(cx.row).command.name;
        CommandError::new(format!("ERR invalid expire time in '{name}' command"))
    })?;
    let Some(current) = cx.db.expires_at(key) else {
        cx.reply.integer(0);
        return Ok(());
    };
    if !conditions.admit(current, at) {
        cx.reply.integer(0);
        return Ok(());
    }
    if cx.db.is_over(at) {
        let freeing = cx.db.freeing.expire;
        cx.db.delete_freeing(key, freeing);
        cx.propagate_instead(&[freeing.command(), key]);
    } else {
        cx.db.set_expires_at(key, Some(at.max(0) as u64));
        cx.db.changed(event_class::GENERIC, "expire", key);
        let at = at.to_string();
        cx.propagate_instead(&[b"PEXPIREAT", key, at.as_bytes()]);
    }
    cx.reply.integer(1);
    Ok(())
}

fn persist(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let had_expiry = cx.db.expires_at(key).flatten().is_some();
    if had_expiry {
        cx.db.set_expires_at(key, None);
        cx.db.changed(event_class::GENERIC, "persist", key);
    }
    cx.reply.integer(i64::from(had_expiry));
    Ok(())
}

fn ttl(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let base = cx.db.now_ms();
    reply_expiry(cx, request, |at| to_seconds(at.saturating_sub(base)))
}

fn pttl(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let base = cx.db.now_ms();
    reply_expiry(cx, request, |at| at.saturating_sub(base))
}

fn expiretime(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_expiry(cx, request, to_seconds)
}

fn pexpiretime(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_expiry(cx, request, |at| at)
}

/// Seconds, rounded to the nearest.
fn to_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

fn reply_expiry(
    cx: &mut Context<'_>,
    request: Request<'_>,
    tell: impl FnOnce(u64) -> u64,
) -> CommandResult {
    let key = request.arg(1);
    let is_there = cx.db.without_touching(|db| db.read(key).is_some());
    let answer = match cx.db.expires_at(key).flatten() {
        _ if !is_there => -2,
        None => -1,
        Some(at) => tell(at) as i64,
    };
    cx.reply.integer(answer);
    Ok(())
}
