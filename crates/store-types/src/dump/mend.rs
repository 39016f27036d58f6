//! Values that no server writes and redis-server takes all the same, as it looks at few of their
//! bytes: what has been put there by RESTORE comes with its snapshots and its stream. They are read
//! as redis-server answers questions about them, and made whole.
//!
//! What would leave it with wrong counts or half an element is refused here, too.

use super::reader::{LoadError, Reader};
use super::{Value, code, ziplist};
use crate::intset::Intset;
use crate::limits::Limits;
use crate::listpack::Listpack;
use crate::pairs::Pairs;
use crate::{Element, Hash, Inserted, Set, SortedSet};

/// How much of a score redis-server looks at.
const SCORE_LEN_MAX: usize = 127;

/// Reads a value that contradicts itself. `None` when it cannot be made whole.
pub(super) fn load_value(code: u8, reader: &mut Reader<'_>, limits: &Limits) -> Option<Value> {
    match code {
        code::SET_INTSET => load_intset(reader, limits).map(Value::Set),
        code::ZSET => load_text_scores(reader, limits).map(Value::SortedSet),
        code::ZSET_LISTPACK => sorted_set(&load_pack(reader)?, limits).map(Value::SortedSet),
        code::ZSET_ZIPLIST => {
            let pack = ziplist::to_listpack(&reader.string().ok()?).ok()?;
            sorted_set(&pack, limits).map(Value::SortedSet)
        }
        code::HASH => load_hash(reader, limits).map(Value::Hash),
        code::HASH_LISTPACK => hash(&load_pack(reader)?, limits).map(Value::Hash),
        _ => None,
    }
}

fn load_pack(reader: &mut Reader<'_>) -> Option<Listpack> {
    Listpack::from_bytes(reader.string().ok()?.into_owned()).ok()
}

/// One that is out of order, or has a number twice.
fn load_intset(reader: &mut Reader<'_>, limits: &Limits) -> Option<Set> {
    let integers = Intset::from_unordered(reader.string().ok()?.into_owned()).ok()?;
    Some(Set::from_intset(integers, limits))
}

/// Scores with something behind the number.
fn load_text_scores(reader: &mut Reader<'_>, limits: &Limits) -> Option<SortedSet> {
    let mut set = SortedSet::new();
    for _ in 0..reader.length().ok()? {
        let member = reader.string().ok()?;
        let parse = |text: &[u8]| number_in_front(text).ok_or(LoadError::Empty);
        let score = reader.text_double_by(parse).ok()?;
        let is_new = !score.is_nan() && set.insert(&member, score, limits) == Inserted::Added;
        is_new.then_some(())?;
    }
    Some(set)
}

/// Pairs that are out of order or have a member twice, of which the first counts; scores that are
/// no numbers.
fn sorted_set(pack: &Listpack, limits: &Limits) -> Option<SortedSet> {
    let mut set = SortedSet::new();
    for (member, score) in pairs(pack)? {
        let score = match score {
            Element::Int(score) => score as f64,
            Element::Bytes(text) => {
                number_in_front(&text[..text.len().min(SCORE_LEN_MAX)]).unwrap_or(0.0)
            }
        };
        if score.is_nan() {
            return None;
        }
        member.with_bytes(|member| {
            if set.score(member).is_none() {
                set.insert(member, score, limits);
            }
        });
    }
    Some(set)
}

/// Fields that come twice, of which the first counts.
fn hash(pack: &Listpack, limits: &Limits) -> Option<Hash> {
    let mut hash = Hash::new();
    for (field, value) in pairs(pack)? {
        field.with_bytes(|field| {
            value.with_bytes(|value| {
                if hash.get(field).is_none() {
                    hash.insert(field, value, limits);
                }
            });
        });
    }
    Some(hash)
}

fn load_hash(reader: &mut Reader<'_>, limits: &Limits) -> Option<Hash> {
    let count = reader.length().ok()?;
    // It notices them in larger ones, and refuses them.
    if count > limits.hash_listpack_entries_max as u64 {
        return None;
    }
    let mut hash = Hash::new();
    for _ in 0..count {
        let (field, value) = (reader.string().ok()?, reader.string().ok()?);
        if hash.get(&field).is_none() {
            hash.insert(&field, &value, limits);
        }
    }
    Some(hash)
}

fn pairs(pack: &Listpack) -> Option<Pairs<'_>> {
    let is_paired = !pack.is_empty() && pack.len().is_multiple_of(2);
    is_paired.then(|| Pairs::new(pack))
}

/// The number that a text begins with, as `strtod` finds it.
fn number_in_front(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii_start();
    let parse = |len: usize| {
        let text = &text[..len];
        let decimal = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        decimal.or_else(|| crate::number::parse_f64(text))
    };
    (1..=text.len()).rev().find_map(parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_front_are_those_of_strtod() {
        for (text, number) in [
            ("1e3x", Some(1000.0)),
            (" \t2.5 3", Some(2.5)),
            ("1e", Some(1.0)),
            ("1e400", Some(f64::INFINITY)),
            ("-infinite", Some(f64::NEG_INFINITY)),
            ("0x10q", Some(16.0)),
            (".5.5", Some(0.5)),
            ("x1", None),
            ("", None),
            ("\u{e9}", None),
        ] {
            assert_eq!(number_in_front(text.as_bytes()), number, "{text:?}");
        }
        assert!(number_in_front(b"nano").unwrap().is_nan());
    }
}
