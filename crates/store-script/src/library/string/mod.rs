//! The functions of `string` that look at every byte: ours, so that they tick.

mod format;
mod pattern;
mod substitute;

use std::ffi::c_int;

use self::format::format;
use self::pattern::{BYTES_PER_STEP, Capture, Matcher, Stop};
use self::substitute::gsub;
use super::{Entry, Output};
use crate::context::Context;
use crate::lua::{Raise, Stack};

/// Replacements in `string`.
pub(crate) const ENTRIES: &[Entry] = &[
    (c"find", find),
    (c"format", format),
    (c"gmatch", gmatch),
    (c"gfind", gmatch),
    (c"gsub", gsub),
    (c"lower", lower),
    (c"match", first_match),
    (c"rep", rep),
    (c"reverse", reverse),
    (c"upper", upper),
];

/// Bytes that mean something in a pattern.
const SPECIALS: &[u8] = b"^$*+?.([%-";
/// Bytes that are worked on between two payments.
const PIECE: usize = 4096;

fn find(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let (subject, pattern) = (stack.pin(1)?, stack.pin(2)?);
    let from = start_position(stack, 3, subject.len())?;
    if stack.truth(4) || !has_specials(context, pattern)? {
        let Some(at) = find_plain(context, &subject[from..], pattern)? else {
            stack.push_nil();
            return Ok(1);
        };
        stack.push_number((from + at + 1) as f64);
        stack.push_number((from + at + pattern.len()) as f64);
        return Ok(2);
    }
    let mut matcher = AnchoredMatcher::new(context, subject, pattern);
    let Some((start, end)) = matcher.search(stack, from)? else {
        stack.push_nil();
        return Ok(1);
    };
    stack.push_number((start + 1) as f64);
    stack.push_number(end as f64);
    let captures = matcher.inner.captures();
    Ok(2 + push_captures(stack, subject, captures, None)?)
}

fn first_match(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let (subject, pattern) = (stack.pin(1)?, stack.pin(2)?);
    let from = start_position(stack, 3, subject.len())?;
    let mut matcher = AnchoredMatcher::new(context, subject, pattern);
    match matcher.search(stack, from)? {
        Some(whole) => push_captures(stack, subject, matcher.inner.captures(), Some(whole)),
        None => {
            stack.push_nil();
            Ok(1)
        }
    }
}

/// A matcher that knows whether the pattern must match where the search begins.
struct AnchoredMatcher<'a> {
    inner: Matcher<'a>,
    is_anchored: bool,
}

impl<'a> AnchoredMatcher<'a> {
    fn new(context: &'a Context, subject: &'a [u8], pattern: &'a [u8]) -> Self {
        let rest = pattern.strip_prefix(b"^");
        let inner = Matcher::new(context, subject, rest.unwrap_or(pattern));
        Self { inner, is_anchored: rest.is_some() }
    }

    fn search(
        &mut self,
        stack: &mut Stack<'_>,
        from: usize,
    ) -> Result<Option<(usize, usize)>, Raise> {
        let found = match self.is_anchored {
            true => self.inner.match_at(from).map(|end| end.map(|end| (from, end))),
            false => self.inner.search(from),
        };
        let found = found.map_err(|stop| raise(stack, stop))?;
        self.inner.settle()?;
        Ok(found)
    }
}

/// The iterator's place is its third value; subject and pattern are the two before.
fn gmatch(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    stack.check_bytes(1)?;
    stack.check_bytes(2)?;
    stack.set_top(2);
    stack.push_number(0.0);
    stack.push_closure(next_match, 3);
    Ok(1)
}

fn next_match(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let (subject, pattern) = (stack.closed_bytes(1), stack.closed_bytes(2));
    let from = stack.closed_number(3) as usize;
    // An anchor means nothing here: `^` stands for itself.
    let mut matcher = Matcher::new(context, subject, pattern);
    let found = match from <= subject.len() {
        true => matcher.search(from).map_err(|stop| raise(stack, stop))?,
        false => None,
    };
    matcher.settle()?;
    let Some((start, end)) = found else { return Ok(0) };
    let next = if end == start { end + 1 } else { end };
    stack.set_closed_number(3, next as f64);
    push_captures(stack, subject, matcher.captures(), Some((start, end)))
}

fn raise(stack: &mut Stack<'_>, stop: Stop) -> Raise {
    match stop {
        Stop::Raise(raise) => raise,
        Stop::Malformed(text) => stack.fail(text),
    }
}

/// Pushes all captures; `whole`, if given, stands for all when there are none.
fn push_captures(
    stack: &mut Stack<'_>,
    subject: &[u8],
    captures: &[Capture],
    whole: Option<(usize, usize)>,
) -> Result<c_int, Raise> {
    if stack.reserve(captures.len() + 1).is_err() {
        return Err(stack.fail("stack overflow (too many captures)"));
    }
    if let (Some((start, end)), []) = (whole, captures) {
        push_text(stack, &subject[start..end])?;
        return Ok(1);
    }
    for capture in captures {
        push_capture(stack, subject, *capture)?;
    }
    Ok(captures.len() as c_int)
}

fn push_capture(stack: &mut Stack<'_>, subject: &[u8], capture: Capture) -> Result<(), Raise> {
    match capture {
        Capture::Open { .. } => Err(stack.fail("unfinished capture")),
        Capture::Text { start, end } => push_text(stack, &subject[start..end]),
        Capture::Position(at) => {
            stack.push_number((at + 1) as f64);
            Ok(())
        }
    }
}

/// Pushes a string, and pays for copying it.
fn push_text(stack: &mut Stack<'_>, text: &[u8]) -> Result<(), Raise> {
    stack.context().spend_bytes(text.len())?;
    stack.push_bytes(text)
}

/// Where a search begins: from 1, or from -1 backwards, and at most behind the end.
fn start_position(stack: &Stack<'_>, index: c_int, length: usize) -> Result<usize, Raise> {
    let start = if stack.is_absent(index) { 1 } else { stack.check_c_integer(index)? };
    let start = if start < 0 { start.saturating_add(length as i64 + 1) } else { start };
    Ok(usize::try_from(start - 1).unwrap_or(0).min(length))
}

fn has_specials(context: &Context, pattern: &[u8]) -> Result<bool, Raise> {
    for piece in pattern.chunks(PIECE) {
        context.spend_bytes(piece.len() * 4)?;
        // C's function looks no further than to a zero.
        match piece.iter().find(|byte| **byte == 0 || SPECIALS.contains(byte)) {
            Some(byte) => return Ok(*byte != 0),
            None => continue,
        }
    }
    Ok(false)
}

/// Where `text` first occurs.
fn find_plain(context: &Context, subject: &[u8], text: &[u8]) -> Result<Option<usize>, Raise> {
    let Some((first, rest)) = text.split_first() else { return Ok(Some(0)) };
    let Some(starts) = subject.len().checked_sub(rest.len()) else { return Ok(None) };
    let mut at = 0;
    let mut unpaid = 0;
    while at < starts {
        let piece = &subject[at..starts.min(at + PIECE)];
        let found = piece.iter().position(|byte| byte == first);
        unpaid += 1 + found.unwrap_or(piece.len()) / BYTES_PER_STEP;
        at += found.unwrap_or(piece.len());
        if found.is_some() {
            let same = common_length(context, &subject[at + 1..], rest)?;
            if same == rest.len() {
                context.spend(unpaid as u64)?;
                return Ok(Some(at));
            }
            at += 1;
        }
        if unpaid >= PIECE {
            context.spend(std::mem::take(&mut unpaid) as u64)?;
        }
    }
    context.spend(unpaid as u64)?;
    Ok(None)
}

/// How many pieces' bytes are equal, at least up to the first piece that differs.
fn common_length(context: &Context, subject: &[u8], text: &[u8]) -> Result<usize, Raise> {
    let mut same = 0;
    for (ours, theirs) in text.chunks(PIECE).zip(subject.chunks(PIECE)) {
        if theirs.get(..ours.len()) != Some(ours) {
            break;
        }
        same += ours.len();
        context.spend_bytes(ours.len())?;
    }
    Ok(same)
}

fn upper(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    map_bytes(stack, context, |piece| piece.make_ascii_uppercase())
}

fn lower(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    map_bytes(stack, context, |piece| piece.make_ascii_lowercase())
}

fn map_bytes(
    stack: &mut Stack<'_>,
    context: &Context,
    change: fn(&mut [u8]),
) -> Result<c_int, Raise> {
    let text = stack.pin(1)?;
    let mut output = Output::sized(context, text.len())?;
    for piece in text.chunks(PIECE) {
        let start = output.len();
        output.extend(piece)?;
        change(output.tail_mut(start));
    }
    output.push_onto(stack)?;
    Ok(1)
}

fn reverse(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let text = stack.pin(1)?;
    let mut output = Output::sized(context, text.len())?;
    for piece in text.rchunks(PIECE) {
        let start = output.len();
        output.extend(piece)?;
        output.tail_mut(start).reverse();
    }
    output.push_onto(stack)?;
    Ok(1)
}

/// `string.rep` of Lua 5.1 builds piece by piece and, for the empty string, counts for ever.
fn rep(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let text = stack.pin(1)?;
    let count = usize::try_from(stack.check_integer(2)?).unwrap_or(0);
    let total = text.len().saturating_mul(count);
    if !context.has_memory_for(total) {
        return Err(stack.fail("resulting string too large"));
    }
    let mut output = Output::sized(context, total)?;
    output.extend(&text[..text.len().min(total)])?;
    while output.len() < total {
        // The longest distance at which the text repeats makes the largest pieces.
        let start = output.len() % text.len();
        let piece = (output.len() - start).min(total - output.len()).min(PIECE);
        output.repeat(start, piece)?;
    }
    output.push_onto(stack)?;
    Ok(1)
}
