//! What lists, hashes, sets and sorted sets share: arguments, replies, waiting.

use std::ops::Range;

use store_resp::ReplyWriter;
use store_types::number::{Extended, parse_f64};
use store_types::{Element, Rng, Set};

use super::prelude::*;
use crate::context::Caller;
use crate::keyspace::{Data, Keyspace, Object, ValueRef};

/// How many picks with repetition one request may ask for. Redis has no limit, and fills its
/// memory with the reply.
pub(super) const PICKS_MAX: usize = 1 << 24;

/// Writes an element as a string.
#[inline]
pub(super) fn reply_element(reply: &mut ReplyWriter, element: Element<'_>) {
    match element {
        Element::Int(value) => reply.bulk_integer(value),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// The value at `key` lost its last element: Redis knows no empty collections.
pub(super) fn remove_emptied(cx: &mut Context<'_>, key: &[u8]) {
    cx.db.take(key);
    cx.db.notify(event_class::GENERIC, "del", key);
}

/// Adds `more` to the changes counted by `changed`, as INFO and save points count elements.
#[inline]
pub(super) fn count_further(cx: &mut Context<'_>, more: usize) {
    cx.db.dirty += more as u64;
}

/// Randomness of its own for one request: choosing goes on while a value is borrowed.
pub(super) fn randomness(cx: &mut Context<'_>) -> Rng {
    Rng::seeded(cx.db.random.next_u64())
}

/// A count from zero on.
pub(super) fn count(arg: &[u8]) -> Result<usize, CommandError> {
    count_from(arg, 0, CommandError::NOT_POSITIVE)
}

/// A count from `min` on; what is none fails with `error`, be it no integer or out of range.
pub(super) fn count_from(
    arg: &[u8],
    min: usize,
    error: CommandError,
) -> Result<usize, CommandError> {
    let number = integer(arg).ok().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number >= min).ok_or(error)
}

/// A count whose sign has a meaning: any integer that can be negated.
pub(super) fn signed_count(arg: &[u8]) -> Result<i64, CommandError> {
    match integer(arg)? {
        i64::MIN => Err(CommandError::text(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// How many keys follow, of a command that says so before them.
pub(super) fn key_count(arg: &[u8]) -> Result<usize, CommandError> {
    count_from(arg, 1, CommandError::text("ERR numkeys should be greater than 0"))
}

/// The indexes from `start` to `end` inclusive, counted from the end when negative.
pub(super) fn index_range(start: i64, end: i64, len: usize) -> Range<usize> {
    let size = len as i64;
    let from_front = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
    let (start, end) = (from_front(start).max(0), from_front(end).min(size - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// What a request asks of HRANDFIELD, ZRANDMEMBER and SRANDMEMBER.
pub(super) enum Picks {
    /// So many different ones, or all there are.
    Distinct(usize),
    /// So many, the same one perhaps several times.
    Repeated(usize),
}

impl Picks {
    /// By the sign of `count`. Fails when there would be too many.
    pub(super) fn of(count: i64) -> Result<Self, CommandError> {
        let picks = count.unsigned_abs() as usize;
        match count {
            0.. => Ok(Self::Distinct(picks)),
            _ if picks > PICKS_MAX => Err(CommandError::OUT_OF_RANGE),
            _ => Ok(Self::Repeated(picks)),
        }
    }
}

/// COUNT and an option such as WITHVALUES behind it, of commands that choose pairs at random.
pub(super) fn pair_picks(
    request: Request<'_>,
    with_second: &str,
) -> Result<(i64, bool), CommandError> {
    let count = signed_count(request.arg(2))?;
    let wants_second = match request.get(3) {
        None => false,
        Some(word) if request.len() == 4 && is_word(word, with_second) => true,
        Some(_) => return Err(CommandError::SYNTAX),
    };
    if wants_second && count.unsigned_abs() > (i64::MAX / 2) as u64 {
        return Err(CommandError::OUT_OF_RANGE);
    }
    Ok((count, wants_second))
}

/// Begins an array of pairs, or of their first halves: pairs are flat in RESP2, and arrays of
/// their own in RESP3.
pub(super) fn begin_pairs(reply: &mut ReplyWriter, count: usize, with_second: bool) {
    reply.array(if with_second && !reply.is_resp3() { 2 * count } else { count });
}

/// Begins one pair of such an array, or its first half.
#[inline]
pub(super) fn begin_pair(reply: &mut ReplyWriter, with_second: bool) {
    if with_second && reply.is_resp3() {
        reply.array(2);
    }
}

/// The set that was read before under `key`.
pub(super) fn look_set<'a>(db: &'a Keyspace, key: &[u8]) -> Option<&'a Set> {
    match db.look(key)? {
        ValueRef::Object(value) => match value.data() {
            Data::Set(set) => Some(set),
            _ => None,
        },
        _ => None,
    }
}

/// How long to wait, in milliseconds; zero for ever.
pub(super) fn timeout_ms(arg: &[u8]) -> Result<u64, CommandError> {
    // What only a wider number can hold is as good as infinite.
    let wide = || Extended::parse(arg).map(|_| f64::INFINITY);
    let seconds = parse_f64(arg)
        .or_else(wide)
        .ok_or(CommandError::text("ERR timeout is not a float or out of range"))?;
    let millis = (seconds * 1000.0).ceil();
    // Too much to count wraps around in Redis, and is called negative.
    if millis < 0.0 || millis >= i64::MAX as f64 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    Ok(millis as u64)
}

/// What LMPOP, ZMPOP and their waiting forms ask for: elements from one side of the first
/// collection that has any.
pub(super) struct PopWish<'r, S> {
    request: Request<'r>,
    keys: Range<usize>,
    pub(super) side: S,
    pub(super) count: usize,
}

impl<'r, S> PopWish<'r, S> {
    /// Parses `numkeys key … SIDE [COUNT n]` from argument `at` on.
    pub(super) fn parse(
        request: Request<'r>,
        at: usize,
        side: impl FnOnce(&[u8]) -> Result<S, CommandError>,
    ) -> Result<Self, CommandError> {
        let first = at + 1;
        let behind = first.saturating_add(key_count(request.arg(at))?);
        let side = side(request.get(behind).ok_or(CommandError::SYNTAX)?)?;
        let count = match (request.get(behind + 1), request.get(behind + 2)) {
            (None, _) => 1,
            (Some(word), Some(count)) if is_word(word, "COUNT") => {
                count_from(count, 1, CommandError::text("ERR count should be greater than 0"))?
            }
            _ => return Err(CommandError::SYNTAX),
        };
        if request.len() > behind + 3 {
            return Err(CommandError::SYNTAX);
        }
        Ok(Self { request, keys: first..behind, side, count })
    }

    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &'r [u8]> + Clone + use<'r, S> {
        let request = self.request;
        self.keys.clone().map(move |at| request.arg(at))
    }
}

/// The first of `keys` that holds a value of kind `T`; of a session that waited, only the key
/// that was signalled counts, and another kind of value there is no failure but none of ours.
pub(super) fn first_filled<'k, T: Object>(
    cx: &mut Context<'_>,
    mut keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Option<&'k [u8]>, CommandError> {
    if let Some(ready) = cx.ready_key {
        let filled = matches!(cx.db.peek_as::<T>(ready), Ok(Some(_)));
        return Ok(keys.find(|key| filled && *key == ready));
    }
    for key in keys {
        if cx.db.peek_as::<T>(key)?.is_some() {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Whether the command may wait at all.
pub(super) fn may_block(cx: &Context<'_>) -> bool {
    !matches!(cx.caller, Caller::Transaction | Caller::Script)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use store_resp::DoubleText;
    use store_types::number::format_f64;

    use super::*;

    proptest! {
        /// ZRANGE and ZSCAN must agree on a score.
        #[test]
        fn a_score_looks_the_same_in_a_reply_and_in_a_listpack(
            bits in any::<u64>(),
            thousandths in -10_000_000_000_i64..10_000_000_000,
        ) {
            for value in [f64::from_bits(bits), thousandths as f64 / 1024.0, thousandths as f64] {
                let mut stored = Vec::new();
                format_f64(&mut stored, value);
                let replied = DoubleText::new(value);
                prop_assert!(value.is_nan() || replied.as_bytes() == stored, "{value}");
            }
        }
    }

    #[test]
    fn indexes_count_from_either_end_and_stay_inside() {
        assert_eq!(index_range(0, -1, 3), 0..3);
        assert_eq!(index_range(-2, 5, 3), 1..3);
        assert_eq!(index_range(i64::MIN, i64::MAX, 3), 0..3);
        assert_eq!(index_range(2, 1, 3), 0..0);
        assert_eq!(index_range(3, 4, 3), 0..0);
        assert_eq!(index_range(0, -4, 3), 0..0);
        assert_eq!(index_range(0, -1, 0), 0..0);
    }
}
