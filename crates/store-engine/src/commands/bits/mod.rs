//! Strings as rows of bits, the first the highest of the first byte.

mod field;

use super::prelude::*;
use super::strings::check_len;
use crate::keyspace::{Expiry, NewValue, StringRef};
use crate::notifications;
use field::{bitfield, bitfield_ro};

const BITS: &[HistoryEntry] = &[("7.0.0", "Takes BYTE and BIT.")];

pub(super) const TABLE: &[Command] = &[
    Command::new("bitcount", AtLeast(2), READ, bitcount)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::BITMAP)
        .docs(Group::Bitmap, "2.6.0", "O(N)", "Counts the set bits of a string.")
        .arguments("key#k@0 ?index#b(start#i end#i ?index_unit#o^7.0.0(byte#t=BYTE bit#t=BIT))")
        .history(BITS),
    Command::new("bitfield", AtLeast(2), WRITE | GROWS, bitfield)
        .access_found_by(field::access_of_bitfield)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE | VARIABLE)])
        .categories(category::BITMAP)
        .docs(
            Group::Bitmap,
            "3.2.0",
            "O(1)",
            "Reads and writes integers of any width within a string.",
        )
        .arguments(
            "key#k@0 ?*operation#o(encoding_offset#b=GET(encoding#s offset#i) \
             write#b(?wrap_sat_fail#o=OVERFLOW(wrap#t=WRAP sat#t=SAT fail#t=FAIL) \
             write_operation#o(encoding_offset_value#b=SET(encoding#s offset#i \
             value#i) encoding_offset_increment#b=INCRBY(encoding#s offset#i \
             increment#i))))",
        ),
    Command::new("bitfield_ro", AtLeast(2), READ | FAST, bitfield_ro)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::BITMAP)
        .docs(Group::Bitmap, "6.0.0", "O(1)", "Reads integers of any width within a string.")
        .arguments("key#k@0 ?*+encoding_offset#b=GET(encoding#s offset#i)"),
    Command::new("bitop", AtLeast(4), WRITE | GROWS, bitop)
        .keys(&[KeySpec::one(2, OW | UPDATE), KeySpec::all(3, RO | ACCESS)])
        .categories(category::BITMAP)
        .docs(Group::Bitmap, "2.6.0", "O(N)", "Combines strings bit by bit.")
        .arguments("operation#s destkey#k@0 *key#k@1"),
    Command::new("bitpos", AtLeast(3), READ, bitpos)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::BITMAP)
        .docs(Group::Bitmap, "2.8.7", "O(N)", "The first set or clear bit of a string.")
        .arguments(
            "key#k@0 bit#i ?index#b(start#i ?end_index#b(end#i \
             ?index_unit#o^7.0.0(byte#t=BYTE bit#t=BIT)))",
        )
        .history(BITS),
    Command::new("getbit", Exactly(3), READ | FAST, getbit)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::BITMAP)
        .docs(Group::Bitmap, "2.2.0", "O(1)", "One bit of a string.")
        .arguments("key#k@0 offset#i"),
    Command::new("setbit", Exactly(4), WRITE | GROWS, setbit)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::BITMAP)
        .docs(
            Group::Bitmap,
            "2.2.0",
            "O(1)",
            "Sets one bit of a string and returns its previous value.",
        )
        .arguments("key#k@0 offset#i value#i"),
];

const OFFSET: CommandError = CommandError::text("ERR bit offset is not an integer or out of range");

/// Parses the offset of a bit within the longest string there may be.
fn bit_offset(cx: &Context<'_>, arg: &[u8]) -> Result<usize, CommandError> {
    let offset = store_resp::parse_integer(arg).ok_or(OFFSET)?;
    checked_offset(cx, Some(offset))
}

fn checked_offset(cx: &Context<'_>, offset: Option<i64>) -> Result<usize, CommandError> {
    let bytes_max = super::strings::string_max(cx);
    let offset = offset.and_then(|offset| usize::try_from(offset).ok()).ok_or(OFFSET)?;
    if offset / 8 < bytes_max { Ok(offset) } else { Err(OFFSET) }
}

#[inline]
fn bit_at(bytes: &[u8], offset: usize) -> bool {
    bytes.get(offset / 8).is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

fn set_bit_at(bytes: &mut [u8], offset: usize, on: bool) {
    let mask = 1 << (7 - offset % 8);
    if on {
        bytes[offset / 8] |= mask;
    } else {
        bytes[offset / 8] &= !mask;
    }
}

fn getbit(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let offset = bit_offset(cx, request.arg(2))?;
    let text = cx.db.read_string(request.arg(1))?;
    let on = text.is_some_and(|text| bit_at(text.bytes(&mut [0; 20]), offset));
    cx.reply.integer(i64::from(on));
    Ok(())
}

fn setbit(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let offset = bit_offset(cx, request.arg(2))?;
    let on = match store_resp::parse_integer(request.arg(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(CommandError::text("ERR bit is not an integer or out of range")),
    };
    let (before, len) = match cx.db.peek_string(key)? {
        Some(text) => (bit_at(text.bytes(&mut [0; 20]), offset), text.len()),
        None => (false, 0),
    };
    let is_longer = offset / 8 >= len;
    check_len(cx, offset / 8 + 1, 0)?;
    cx.db.edit_string(key, |bytes| {
        if is_longer {
            bytes.resize(offset / 8 + 1, 0);
        }
        set_bit_at(bytes, offset, on);
    });
    if is_longer || before != on {
        cx.db.changed(event_class::STRING, "setbit", key);
    }
    cx.reply.integer(i64::from(before));
    Ok(())
}

/// Whether positions count bytes or bits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    Bytes,
    Bits,
}

fn parse_counting(word: &[u8]) -> Result<Counting, CommandError> {
    match word {
        word if is_word(word, "BIT") => Ok(Counting::Bits),
        word if is_word(word, "BYTE") => Ok(Counting::Bytes),
        _ => Err(CommandError::SYNTAX),
    }
}

/// The bits from `start` to `end` inclusive as a half-open range, or `None` when it is empty.
fn bit_range(
    len: usize,
    (start, end): (i64, i64),
    counting: Counting,
) -> Option<std::ops::Range<usize>> {
    let unit = if counting == Counting::Bits { 1 } else { 8 };
    let total = (len * 8 / unit) as i64;
    let from_front = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(total - 1));
    (start <= end).then(|| start as usize * unit..(end as usize + 1) * unit)
}

fn bitcount(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let Some(text) = cx.db.read_string(request.arg(1))? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let (limits, counting) = match request.len() {
        2 => ((0, -1), Counting::Bytes),
        4 | 5 => {
            let limits = (integer(request.arg(2))?, integer(request.arg(3))?);
            if limits.0 < 0 && limits.1 < 0 && limits.0 > limits.1 {
                cx.reply.integer(0);
                return Ok(());
            }
            (limits, request.get(4).map_or(Ok(Counting::Bytes), parse_counting)?)
        }
        _ => return Err(CommandError::SYNTAX),
    };
    let mut scratch = [0; 20];
    let bytes = text.bytes(&mut scratch);
    let range = bit_range(bytes.len(), limits, counting);
    let count = range.map_or(0, |range| count_bits(bytes, range));
    cx.reply.count(count);
    Ok(())
}

/// Eight bytes at a time: by single bytes it would take several times as long.
fn count_ones(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let ones = |word: &[u8; 8]| u64::from_ne_bytes(*word).count_ones() as usize;
    let in_rest: usize = rest.iter().map(|byte| byte.count_ones() as usize).sum();
    words.iter().map(ones).sum::<usize>() + in_rest
}

fn count_bits(bytes: &[u8], range: std::ops::Range<usize>) -> usize {
    let (first, last) = (range.start / 8, (range.end - 1) / 8);
    let whole = count_ones(&bytes[first..=last]);
    let before = (first * 8..range.start).filter(|at| bit_at(bytes, *at)).count();
    let behind = (range.end..(last + 1) * 8).filter(|at| bit_at(bytes, *at)).count();
    whole - before - behind
}

fn bitpos(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let wanted = match integer(request.arg(2))? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::text("ERR The bit argument must be 1 or 0.")),
    };
    let Some(text) = cx.db.read_string(request.arg(1))? else {
        cx.reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    if request.len() > 6 {
        return Err(CommandError::SYNTAX);
    }
    let start = request.get(3).map_or(Ok(0), integer)?;
    let counting = request.get(5).map_or(Ok(Counting::Bytes), parse_counting)?;
    let end = request.get(4).map(integer).transpose()?;
    let mut scratch = [0; 20];
    let bytes = text.bytes(&mut scratch);
    let position = match bit_range(bytes.len(), (start, end.unwrap_or(-1)), counting) {
        None => -1,
        Some(range) => match first_bit(bytes, range, wanted) {
            Some(at) => at as i64,
            // Without an end, clear bits go on for ever behind the string.
            None if !wanted && end.is_none() => bytes.len() as i64 * 8,
            None => -1,
        },
    };
    cx.reply.integer(position);
    Ok(())
}

fn first_bit(bytes: &[u8], range: std::ops::Range<usize>, wanted: bool) -> Option<usize> {
    let useless = if wanted { 0x00 } else { 0xff };
    let mut at = range.start;
    while at < range.end {
        if at.is_multiple_of(8) && bytes[at / 8] == useless {
            at += 8;
        } else if bit_at(bytes, at) == wanted {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

/// What BITOP does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

fn bitop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (word, target) = (request.arg(1), request.arg(2));
    let operation = match word.to_ascii_uppercase().as_slice() {
        b"AND" => Operation::And,
        b"OR" => Operation::Or,
        b"XOR" => Operation::Xor,
        b"NOT" if request.len() == 4 => Operation::Not,
        b"NOT" => {
            let text = "ERR BITOP NOT must be called with a single source key.";
            return Err(CommandError::text(text));
        }
        _ => return Err(CommandError::SYNTAX),
    };
    let mut sources = Vec::with_capacity(request.len() - 3);
    for key in request.args_from(3) {
        let text = cx.db.read_string(key)?;
        sources.push(text.map(StringRef::to_vec).unwrap_or_default());
    }
    let len = sources.iter().map(Vec::len).max().unwrap_or(0);
    if len == 0 {
        cx.db.delete_target(target);
        cx.reply.integer(0);
        return Ok(());
    }
    let result = combined(&sources, len, operation);
    cx.db.set(target, NewValue::Edited(result), Expiry::Clear);
    cx.db.changed(event_class::STRING, "set", target);
    cx.reply.count(len);
    Ok(())
}

/// Combines byte by byte; shorter strings count as filled up with zeros.
fn combined(sources: &[Vec<u8>], len: usize, operation: Operation) -> Vec<u8> {
    let mut result = sources[0].clone();
    result.resize(len, 0);
    if operation == Operation::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for source in &sources[1..] {
        let filled = source.iter().copied().chain(std::iter::repeat(0));
        for (byte, other) in result.iter_mut().zip(filled) {
            match operation {
                Operation::And => *byte &= other,
                Operation::Or => *byte |= other,
                Operation::Xor => *byte ^= other,
                Operation::Not => {}
            }
        }
    }
    result
}
