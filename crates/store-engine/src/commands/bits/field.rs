//! BITFIELD: integers of any width anywhere in a string.

use super::super::prelude::*;
use super::{bit_at, checked_offset, set_bit_at};
use crate::context::Propagate;
use crate::keyspace::StringRef;

/// `u8`, `i16`: how an integer is kept.
#[derive(Clone, Copy)]
struct Kind {
    is_signed: bool,
    bits: u32,
}

/// What happens when a value does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct Operation {
    action: Action,
    kind: Kind,
    offset: usize,
    overflow: Overflow,
}

/// BITFIELD may do nothing but read. What makes no sense counts as a change.
pub(super) fn access_of_bitfield(request: Request<'_>) -> u32 {
    let mut at = 2;
    while let Some(word) = request.get(at) {
        at += match word {
            word if is_word(word, "GET") => 3,
            word if is_word(word, "OVERFLOW") => 2,
            _ => return RW | ACCESS | UPDATE,
        };
    }
    if at == request.len() { RO | ACCESS } else { RW | ACCESS | UPDATE }
}

pub(super) fn bitfield(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let operations = parse(cx, request)?;
    if operations.iter().all(|operation| operation.action == Action::Get) {
        return read(cx, request.arg(1), &operations);
    }
    write(cx, request.arg(1), &operations)
}

pub(super) fn bitfield_ro(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let operations = parse(cx, request)?;
    if operations.iter().any(|operation| operation.action != Action::Get) {
        let text = "ERR BITFIELD_RO only supports the GET subcommand";
        return Err(CommandError::text(text));
    }
    read(cx, request.arg(1), &operations)
}

fn parse(cx: &Context<'_>, request: Request<'_>) -> Result<Vec<Operation>, CommandError> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut at = 2;
    while let Some(word) = request.get(at) {
        let left = request.len() - at - 1;
        if is_word(word, "OVERFLOW") && left >= 1 {
            overflow = parse_overflow(request.arg(at + 1))?;
            at += 2;
            continue;
        }
        let takes_value = is_word(word, "SET") || is_word(word, "INCRBY");
        let wanted = if takes_value { 3 } else { 2 };
        if !(takes_value || is_word(word, "GET")) || left < wanted {
            return Err(CommandError::SYNTAX);
        }
        let kind = parse_kind(request.arg(at + 1))?;
        let offset = parse_offset(cx, request.arg(at + 2), kind)?;
        let action = match takes_value {
            false => Action::Get,
            true if is_word(word, "SET") => Action::Set(integer(request.arg(at + 3))?),
            true => Action::Add(integer(request.arg(at + 3))?),
        };
        operations.push(Operation { action, kind, offset, overflow });
        at += wanted + 1;
    }
    Ok(operations)
}

fn parse_overflow(word: &[u8]) -> Result<Overflow, CommandError> {
    match word.to_ascii_uppercase().as_slice() {
        b"WRAP" => Ok(Overflow::Wrap),
        b"SAT" => Ok(Overflow::Saturate),
        b"FAIL" => Ok(Overflow::Fail),
        _ => Err(CommandError::text("ERR Invalid OVERFLOW type specified")),
    }
}

fn parse_kind(word: &[u8]) -> Result<Kind, CommandError> {
    let invalid = CommandError::text(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported \
         but i64 is.",
    );
    let (is_signed, digits) = match word {
        [b'i', digits @ ..] => (true, digits),
        [b'u', digits @ ..] => (false, digits),
        _ => return Err(invalid),
    };
    let bits_max = if is_signed { 64 } else { 63 };
    match store_resp::parse_integer(digits) {
        Some(bits) if (1..=bits_max).contains(&bits) => Ok(Kind { is_signed, bits: bits as u32 }),
        _ => Err(invalid),
    }
}

/// `100` counts bits, `#3` counts integers of the kind.
fn parse_offset(cx: &Context<'_>, word: &[u8], kind: Kind) -> Result<usize, CommandError> {
    let bits = i64::from(kind.bits);
    let first = match word {
        [b'#', digits @ ..] => {
            store_resp::parse_integer(digits).and_then(|number| number.checked_mul(bits))
        }
        digits => store_resp::parse_integer(digits),
    };
    checked_offset(cx, first)
}

fn read(cx: &mut Context<'_>, key: &[u8], operations: &[Operation]) -> CommandResult {
    let bytes = cx.db.read_string(key)?.map(StringRef::to_vec).unwrap_or_default();
    cx.reply.array(operations.len());
    for operation in operations {
        cx.reply.integer(load(&bytes, operation.kind, operation.offset));
    }
    Ok(())
}

fn write(cx: &mut Context<'_>, key: &[u8], operations: &[Operation]) -> CommandResult {
    let mut bytes = cx.db.peek_string(key)?.map(StringRef::to_vec).unwrap_or_default();
    let writes = operations.iter().filter(|operation| operation.action != Action::Get);
    let end = writes.map(|write| write.offset + write.kind.bits as usize).max().unwrap_or(0);
    let is_longer = end.div_ceil(8) > bytes.len();
    if is_longer {
        super::check_len(cx, end.div_ceil(8), 0)?;
        bytes.resize(end.div_ceil(8), 0);
    }
    let mut changes = 0;
    cx.reply.array(operations.len());
    for operation in operations {
        let (answer, changed) = apply(&mut bytes, operation, is_longer);
        match answer {
            Some(value) => cx.reply.integer(value),
            None => cx.reply.null(),
        }
        changes += u64::from(changed);
    }
    cx.db.edit_string(key, |text| *text = bytes);
    if changes > 0 {
        cx.db.changed(event_class::STRING, "setbit", key);
        cx.db.dirty += changes - 1;
    } else if is_longer {
        // No value fitted, and yet the string grew: Redis keeps that from its file and replicas.
        cx.propagate = Propagate::Always;
        cx.db.signal_modified(key);
    }
    Ok(())
}

/// What to answer, null when the value did not fit and must, and whether anything changed.
fn apply(bytes: &mut [u8], operation: &Operation, is_longer: bool) -> (Option<i64>, bool) {
    let (kind, offset) = (operation.kind, operation.offset);
    let before = load(bytes, kind, offset);
    let (value, amount) = match operation.action {
        Action::Get => return (Some(before), false),
        Action::Set(value) => (value, 0),
        Action::Add(amount) => (before, amount),
    };
    let Some(after) = fit(value, amount, kind, operation.overflow) else { return (None, false) };
    store(bytes, kind, offset, after);
    let answer = if matches!(operation.action, Action::Set(_)) { before } else { after };
    (Some(answer), is_longer || before != after)
}

/// What is kept of `value + amount`.
fn fit(value: i64, amount: i64, kind: Kind, overflow: Overflow) -> Option<i64> {
    let sum = value.wrapping_add(amount);
    let Some(limit) = limit_passed(value, amount, kind) else { return Some(sum) };
    match overflow {
        Overflow::Fail => None,
        Overflow::Saturate => Some(limit),
        Overflow::Wrap => Some(extended(sum as u64, kind)),
    }
}

/// The limit of the kind that `value + amount` passes, if it does.
///
/// Distances to the limits are taken modulo 2⁶⁴ as Redis takes them, so that values far outside
/// of the kind saturate at the same end as there.
fn limit_passed(value: i64, amount: i64, kind: Kind) -> Option<i64> {
    if !kind.is_signed {
        // An unsigned field sees a negative number as a very large one.
        let (value, max) = (value as u64, (1u64 << kind.bits) - 1);
        let room = max.wrapping_sub(value) as i64;
        return if value > max || amount > 0 && amount > room {
            Some(max as i64)
        } else if amount < 0 && amount < (value as i64).wrapping_neg() {
            Some(0)
        } else {
            None
        };
    }
    let max = i64::MAX >> (64 - kind.bits);
    let min = -max - 1;
    let (room_up, room_down) = (max.wrapping_sub(value), min.wrapping_sub(value));
    let narrow = kind.bits < 64;
    if value > max || narrow && amount > room_up || value >= 0 && amount > 0 && amount > room_up {
        Some(max)
    } else if value < min
        || narrow && amount < room_down
        || value < 0 && amount < 0 && amount < room_down
    {
        Some(min)
    } else {
        None
    }
}

fn load(bytes: &[u8], kind: Kind, offset: usize) -> i64 {
    let mut value = 0u64;
    for at in offset..offset + kind.bits as usize {
        value = value << 1 | u64::from(bit_at(bytes, at));
    }
    extended(value, kind)
}

/// The low bits of `value` as the kind reads them.
fn extended(value: u64, kind: Kind) -> i64 {
    let unused = 64 - kind.bits;
    match kind.is_signed {
        true => ((value << unused) as i64) >> unused,
        false => (value << unused >> unused) as i64,
    }
}

fn store(bytes: &mut [u8], kind: Kind, offset: usize, value: i64) {
    for index in 0..kind.bits {
        let on = value >> (kind.bits - 1 - index) & 1 == 1;
        set_bit_at(bytes, offset + index as usize, on);
    }
}
