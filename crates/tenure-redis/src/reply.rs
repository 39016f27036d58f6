//! From a script's reply to an answer. The server is not trusted: whatever does not have exactly
//! the expected shape is an error, and every number has its bounds. What others may have written
//! into the store is no reason to reject an answer: numbers are brought into their bounds, and what
//! cannot be read of wishes, members and history is left out and said.

use std::time::Duration;

use redis::Value;
use tenure_core::protocol::{
    Answer, CloseReason, HistoryEntry, HistoryKind, LostWhy, MEMBERS_LISTED_MAX, Member, Outcome,
    Request, TickOutcome, View, Wish, WishKind,
};
use tenure_core::{InstanceId, ServerTime, Token, record_text};

use super::fenced::FenceReply;
use super::text::{cleaned, escaped};

/// The longest time that an answer tells, in milliseconds: a hundred years. Others may write more.
const MILLIS_MAX: u64 = 100 * 366 * 24 * 60 * 60 * 1000;
/// The latest clock reading that is believed, in microseconds: tokens must stay below 2^53.
const CLOCK_MAX: u64 = Token::MAX.get();
/// The most warnings that an answer carries.
const WARNINGS_MAX: usize = 32;

/// What is wrong with a reply.
pub(super) type Fault = String;

/// The call number that a reply carries, if it looks like one of ours at all.
pub(super) fn number_of(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else { return None };
    number(parts.first()?).ok()
}

/// The answer in the reply to `request`.
pub(super) fn parse(request: &Request, reply: &Value) -> Result<Answer, Fault> {
    let parts = list(reply)?;
    let [_number, kind, details, view, wish, warnings, members, rest @ ..] = parts else {
        return Err(format!("a reply of {} parts", parts.len()));
    };
    let [first, second] = list(details)? else {
        return Err("a reply without its two details".into());
    };
    let warnings = list(warnings)?.iter().take(WARNINGS_MAX).map(text);
    let warnings = warnings.map(|warning| Ok(cleaned(&warning?)));
    let mut warnings = warnings.collect::<Result<Vec<_>, Fault>>()?;
    let mut view = parse_view(view)?;
    view.wish = parse_wish(wish).unwrap_or_else(|fault| {
        warnings.push(format!("a wish that cannot be read is left out: {fault}"));
        None
    });
    if lists_members(request) {
        view.members = Some(parse_members(members, &mut warnings)?);
    }
    let outcome = match text(kind)?.as_str() {
        "history" => Outcome::History(parse_history(rest, &mut warnings)?),
        kind => parse_outcome(kind, first, second)?,
    };
    Ok(Answer { outcome, view, warnings })
}

/// What a fence said.
pub(super) fn parse_fence(reply: &Value) -> Result<FenceReply, Fault> {
    let [_number, kind, highest] = list(reply)? else {
        return Err("a list that has not three parts".into());
    };
    match text(kind)?.as_str() {
        "written" => Ok(FenceReply::Written),
        "stale" => Ok(FenceReply::Stale { highest: term(highest)? }),
        other => Err(format!("an outcome called {:?}", cleaned(other))),
    }
}

fn lists_members(request: &Request) -> bool {
    match request {
        Request::Acquire(acquire) => acquire.members,
        Request::Observe { members } | Request::Beat { members, .. } => *members,
        _ => false,
    }
}

fn parse_outcome(kind: &str, first: &Value, second: &Value) -> Result<Outcome, Fault> {
    Ok(match kind {
        "granted" => Outcome::Granted { token: term(first)? },
        "held" => Outcome::Held,
        "refused" => Outcome::AttemptRefused,
        "quarantine" => {
            Outcome::Quarantine { left: millis(first)?, reason: cleaned(&text(second)?) }
        }
        "reserved" => Outcome::Reserved { left: millis(first)? },
        "delayed" => Outcome::Delayed { left: millis(first)? },
        "paused" => Outcome::Paused { left: millis(first)? },
        "conflict" => Outcome::Conflict { what: cleaned(&text(first)?) },
        "renewed" => Outcome::Renewed,
        "released" => Outcome::Released,
        "abandoned" => Outcome::Abandoned { was_granted: flag(first)? },
        "transferred" => Outcome::Transferred { token: term(first)? },
        "done" => Outcome::Done,
        "no-such-term" => Outcome::NoSuchTerm,
        "tick-runs" => Outcome::TickRuns,
        "tick-unknown" => Outcome::TickUnknown,
        "tick-done" => Outcome::TickDone(match text(first)?.as_str() {
            "ok" => TickOutcome::Succeeded,
            _ => TickOutcome::Failed(cleaned(&text(second)?)),
        }),
        "tick-unfinished" => Outcome::TickUnfinished { by: id(first)?, token: token(second)? },
        "lost" => Outcome::Lost(match text(first)?.as_str() {
            "vanished" => LostWhy::KeyVanished,
            "held" => LostWhy::HeldBy(id(second)?),
            "other" => LostWhy::OtherTerm(token(second)?),
            _ => LostWhy::Overwritten(cleaned(&text(second)?)),
        }),
        other => return Err(format!("an outcome called {:?}", cleaned(other))),
    })
}

fn parse_view(view: &Value) -> Result<View, Fault> {
    let parts = list(view)?;
    let [
        exists,
        holder,
        pttl,
        known,
        foreign,
        now,
        incarnation,
        paused,
        reserved,
        unconfirmed,
        why,
    ] = parts
    else {
        return Err(format!("a view of {} parts", parts.len()));
    };
    let exists = flag(exists)?;
    let pttl = match text(pttl)?.as_str() {
        "-1" | "-2" => None,
        _ => Some(millis(pttl)?),
    };
    Ok(View {
        holder: if exists { Some(id(holder)?) } else { None },
        pttl,
        token: token(known)?,
        foreign: flag(foreign)?,
        reserved: flag(reserved)?,
        unconfirmed: flag(unconfirmed)?,
        quarantine_why: Some(cleaned(&text(why)?)).filter(|why| !why.is_empty()),
        partial: false,
        server_time: clock(now)?,
        incarnation: cleaned(&text(incarnation)?),
        wish: None,
        paused_for: Some(millis(paused)?).filter(|left| !left.is_zero()),
        members: None,
    })
}

fn parse_wish(wish: &Value) -> Result<Option<Wish>, Fault> {
    let parts = list(wish)?;
    if parts.is_empty() {
        return Ok(None);
    }
    let [kind, to, by, addressed, until, refused] = parts else {
        return Err(format!("a wish of {} parts", parts.len()));
    };
    let kind = match text(kind)?.as_str() {
        "resign" => WishKind::Resign,
        "hand-over" => WishKind::HandOver { to: text(to)? },
        // A wish of a newer version: nothing that this program could fulfil.
        _ => return Ok(None),
    };
    let refused = Some(cleaned(&text(refused)?)).filter(|reason| !reason.is_empty());
    Ok(Some(Wish { kind, by: id(by)?, token: token(addressed)?, until: clock(until)?, refused }))
}

fn parse_members(members: &Value, warnings: &mut Vec<String>) -> Result<Vec<Member>, Fault> {
    let listed = list(members)?.iter().take(MEMBERS_LISTED_MAX);
    let count = listed.len();
    let parsed: Vec<_> = listed.filter_map(|member| parse_member(member).ok()).collect();
    if parsed.len() < count {
        let unreadable = count - parsed.len();
        warnings.push(format!("{unreadable} members cannot be read: left out"));
    }
    Ok(parsed)
}

fn parse_member(member: &Value) -> Result<Member, Fault> {
    let [name, beat, told] = list(member)? else {
        return Err("a member that has not three parts".into());
    };
    let beat_ms = number(beat)?.min(CLOCK_MAX / 1000);
    let beat_at = ServerTime(beat_ms * 1000);
    let told = text(told)?;
    let (since, told) = told.split_once(' ').unwrap_or(("", ""));
    let record = record_text::decode(told);
    let since = since.parse().ok().filter(|since| (1..=CLOCK_MAX).contains(since));
    // A forger cannot be ready for longer than it has been heard of, nor from the future on.
    let ready_since = since.filter(|_| record.ready).map(ServerTime);
    Ok(Member { id: id(name)?, record, ready_since, beat_at })
}

fn parse_history(rest: &[Value], warnings: &mut Vec<String>) -> Result<Vec<HistoryEntry>, Fault> {
    let [entries] = rest else { return Err("history without entries".into()) };
    let entries = list(entries)?;
    // Entries that this version does not know are skipped: others may write here.
    let fields = |entry| match list(entry).ok()? {
        [_, fields] => parse_entry(list(fields).ok()?),
        _ => None,
    };
    let parsed: Vec<_> = entries.iter().filter_map(fields).collect();
    if parsed.len() < entries.len() {
        let unreadable = entries.len() - parsed.len();
        warnings.push(format!("{unreadable} entries of the history cannot be read: left out"));
    }
    Ok(parsed)
}

fn parse_entry(fields: &[Value]) -> Option<HistoryEntry> {
    let field = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        pairs.find(|pair| text(&pair[0]).is_ok_and(|found| found == name)).map(|pair| &pair[1])
    };
    let detail = || Some(cleaned(&text(field("detail")?).ok()?));
    let what = match text(field("what")?).ok()?.as_str() {
        "granted" => HistoryKind::Granted,
        "closed" => {
            let reason = CloseReason::parse(&text(field("reason")?).ok()?)?;
            HistoryKind::Closed { reason, detail: detail()? }
        }
        "quarantined" => HistoryKind::Quarantined { detail: detail()? },
        _ => return None,
    };
    Some(HistoryEntry {
        at: clock(field("at")?).ok()?,
        id: id(field("id")?).ok()?,
        token: token(field("token")?).ok()?,
        what,
    })
}

fn list(value: &Value) -> Result<&[Value], Fault> {
    match value {
        Value::Array(parts) => Ok(parts),
        other => Err(format!("{} instead of a list", kind_of(other))),
    }
}

fn bytes(value: &Value) -> Result<&[u8], Fault> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        other => Err(format!("{} instead of a text", kind_of(other))),
    }
}

fn text(value: &Value) -> Result<String, Fault> {
    bytes(value).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn id(value: &Value) -> Result<InstanceId, Fault> {
    bytes(value).map(|bytes| InstanceId::seen(&escaped(bytes)))
}

fn number(value: &Value) -> Result<u64, Fault> {
    let digits = bytes(value)?;
    let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let parsed = std::str::from_utf8(digits).ok().filter(|_| is_plain).and_then(|d| d.parse().ok());
    parsed.ok_or_else(|| format!("{:?} instead of a number", cleaned(&escaped(digits))))
}

fn bounded(value: &Value, max: u64) -> Result<u64, Fault> {
    match number(value)? {
        number if number <= max => Ok(number),
        number => Err(format!("{number}, which exceeds {max}")),
    }
}

/// A token, where zero stands for none.
fn token(value: &Value) -> Result<Option<Token>, Fault> {
    bounded(value, Token::MAX.get()).map(Token::new)
}

/// A token under which somebody leads: never "none".
fn term(value: &Value) -> Result<Token, Fault> {
    token(value)?.ok_or_else(|| "a term without token".into())
}

fn millis(value: &Value) -> Result<Duration, Fault> {
    number(value).map(|millis| Duration::from_millis(millis.min(MILLIS_MAX)))
}

fn clock(value: &Value) -> Result<ServerTime, Fault> {
    bounded(value, CLOCK_MAX).map(ServerTime)
}

fn flag(value: &Value) -> Result<bool, Fault> {
    match bytes(value)? {
        b"1" => Ok(true),
        b"0" => Ok(false),
        other => Err(format!("{:?} instead of a flag", cleaned(&escaped(other)))),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nothing",
        Value::Int(_) => "an integer",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a text",
        Value::Array(_) | Value::Set(_) => "a list",
        Value::Map(_) => "a map",
        _ => "something else",
    }
}
