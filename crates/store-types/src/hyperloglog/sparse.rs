//! Registers as runs, while most of them are zero.
//!
//! ```text
//! 00nnnnnn             n + 1 registers are zero
//! 01nnnnnn nnnnnnnn    n + 1 registers are zero
//! 1vvvvvnn             n + 1 registers are v + 1
//! ```
//!
//! A change divides one run and then joins neighbours just as far as Redis does, so that the bytes
//! stay the same after the same additions.

use std::ops::Range;

use super::{HEADER, REGISTER_COUNT};
use crate::damage::Damaged;

/// One run of 16,384 zeros.
pub(super) const EMPTY: [u8; 2] = [0x7f, 0xff];
/// The highest register a run can say.
const VALUE_MAX: u8 = 32;
/// The longest run of a value.
const VALUE_RUN_MAX: usize = 4;
/// The longest run of zeros in one byte.
const SHORT_ZEROS_MAX: usize = 64;
/// Runs looked at for joining after a change.
const JOIN_MAX: usize = 5;

/// What a change of a register came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SparseUpdate {
    Unchanged,
    Changed,
    /// Not representable within the limit: use the dense form.
    TooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zeros,
    Value(u8),
}

/// One run as it is in the bytes.
#[derive(Clone, Copy, Debug)]
struct Run {
    kind: Kind,
    length: usize,
    /// Its own size.
    bytes: usize,
}

fn read(runs: &[u8], at: usize) -> Option<Run> {
    let first = *runs.get(at)?;
    let low = usize::from(first & 0x3f);
    Some(match first >> 6 {
        0 => Run { kind: Kind::Zeros, length: low + 1, bytes: 1 },
        1 => {
            // Redis finds the zero behind its strings where the second byte is missing.
            let second = runs.get(at + 1).copied().unwrap_or(0);
            let length = (low << 8 | usize::from(second)) + 1;
            Run { kind: Kind::Zeros, length, bytes: 2 }
        }
        _ => {
            let value = (first >> 2 & 0x1f) + 1;
            Run { kind: Kind::Value(value), length: usize::from(first & 3) + 1, bytes: 1 }
        }
    })
}

fn push_zeros(out: &mut Vec<u8>, length: usize) {
    match length {
        0 => {}
        1..=SHORT_ZEROS_MAX => out.push((length - 1) as u8),
        _ => out.extend_from_slice(&[0x40 | ((length - 1) >> 8) as u8, (length - 1) as u8]),
    }
}

fn push_value(out: &mut Vec<u8>, value: u8, length: usize) {
    if length > 0 {
        out.push(value_byte(value, length));
    }
}

fn value_byte(value: u8, length: usize) -> u8 {
    0x80 | (value - 1) << 2 | (length - 1) as u8
}

/// Calls `visit` with the value and the registers of every run that is not zero.
pub(super) fn for_each_run(
    runs: &[u8],
    mut visit: impl FnMut(u8, Range<usize>),
) -> Result<(), Damaged> {
    let (mut at, mut first) = (0, 0);
    while at < runs.len() {
        let run = read(runs, at).ok_or(damaged())?;
        let end = first + run.length;
        if end > REGISTER_COUNT {
            return Err(damaged());
        }
        if let Kind::Value(value) = run.kind {
            visit(value, first..end);
        }
        at += run.bytes;
        first = end;
    }
    if first == REGISTER_COUNT { Ok(()) } else { Err(damaged()) }
}

/// Raises the register `index` to `count` in a whole value, header included.
pub(super) fn set(
    value: &mut Vec<u8>,
    index: usize,
    count: u8,
    bytes_max: usize,
) -> Result<SparseUpdate, Damaged> {
    if count > VALUE_MAX {
        return Ok(SparseUpdate::TooLarge);
    }
    let Found { at, previous, first, run } = find(&value[HEADER..], index)?;
    if matches!(run.kind, Kind::Value(old) if old >= count) {
        return Ok(SparseUpdate::Unchanged);
    }
    let mut divided = Vec::with_capacity(5);
    let after = first + run.length - 1 - index;
    match run.kind {
        Kind::Zeros => {
            push_zeros(&mut divided, index - first);
            push_value(&mut divided, count, 1);
            push_zeros(&mut divided, after);
        }
        Kind::Value(old) => {
            push_value(&mut divided, old, index - first);
            push_value(&mut divided, count, 1);
            push_value(&mut divided, old, after);
        }
    }
    let grows = divided.len() > run.bytes;
    if grows && value.len() + divided.len() - run.bytes > bytes_max {
        return Ok(SparseUpdate::TooLarge);
    }
    // The second byte of the last run may be missing: as in Redis, it counts all the same.
    let (from, len) = (HEADER + at, value.len() + divided.len() - run.bytes);
    let end = value.len().min(from + run.bytes);
    value.splice(from..end, divided);
    value.truncate(len);
    join(value, HEADER + previous);
    Ok(SparseUpdate::Changed)
}

/// The run that covers a register.
struct Found {
    at: usize,
    /// Where the run before it starts, or where it starts itself when it is the first.
    previous: usize,
    /// Its first register.
    first: usize,
    run: Run,
}

fn find(runs: &[u8], index: usize) -> Result<Found, Damaged> {
    let (mut at, mut previous, mut first) = (0, 0, 0);
    loop {
        let run = read(runs, at).ok_or(damaged())?;
        if index < first + run.length {
            return Ok(Found { at, previous, first, run });
        }
        previous = at;
        at += run.bytes;
        first += run.length;
    }
}

/// Joins neighbouring runs of one value, looking at a few runs from `at` on.
fn join(value: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOIN_MAX {
        let Some(run) = read(value, at) else { break };
        if let (Kind::Value(same), Some(next)) = (run.kind, read(value, at + 1))
            && next.kind == run.kind
            && run.length + next.length <= VALUE_RUN_MAX
        {
            value[at + 1] = value_byte(same, run.length + next.length);
            value.remove(at);
            continue;
        }
        at += run.bytes;
    }
}

pub(super) fn describe(runs: &[u8]) -> String {
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(run) = read(runs, at) {
        parts.push(match (run.kind, run.bytes) {
            (Kind::Zeros, 1) => format!("z:{}", run.length),
            (Kind::Zeros, _) => format!("Z:{}", run.length),
            (Kind::Value(value), _) => format!("v:{value},{}", run.length),
        });
        at += run.bytes;
    }
    parts.join(" ")
}

fn damaged() -> Damaged {
    Damaged::new("HyperLogLog", "its runs do not cover the registers")
}
