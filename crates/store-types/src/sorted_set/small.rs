//! The small form: members and scores alternate in one listpack, in order.

use std::cmp::Ordering;

use super::Inserted;
use crate::element::Element;
use crate::listpack::{EntryOffset, Listpack};
use crate::number::{exact_integer, format_f64, parse_f64};

#[inline]
pub(super) fn find(pack: &Listpack, member: &[u8]) -> Option<EntryOffset> {
    pack.find(pack.first()?, member, 1)
}

pub(super) fn move_small(
    pack: &mut Listpack,
    place: EntryOffset,
    member: &[u8],
    score: f64,
) -> Inserted {
    let from = score_of(pack.get(pack.next(place).expect("a score follows its member")));
    if from == score {
        return Inserted::Unchanged;
    }
    pack.remove_from(place, 2);
    insert_small(pack, member, score);
    Inserted::Moved { from }
}

pub(super) fn insert_small(pack: &mut Listpack, member: &[u8], score: f64) {
    let mut place = pack.first();
    while let Some(at) = place {
        let next = pack.next(at).expect("a score follows its member");
        let other = score_of(pack.get(next));
        let after =
            other > score || (other == score && pack.get(at).compare(member) == Ordering::Greater);
        if after {
            break;
        }
        place = pack.next(next);
    }
    let mut text = Vec::new();
    let score = score_element(score, &mut text);
    match place {
        Some(place) => {
            pack.insert_before(place, Element::Bytes(member));
            pack.insert_after(place, score);
        }
        None => {
            pack.push_back(member);
            let last = pack.last().expect("just pushed");
            pack.insert_after(last, score);
        }
    }
}

pub(super) fn push_score(pack: &mut Listpack, score: f64) {
    match score_element(score, &mut Vec::new()) {
        Element::Int(integer) => pack.push_back_int(integer),
        Element::Bytes(text) => pack.push_back(text),
    }
}

/// A score as it is stored: an integer where it is one, seventeen digits of text otherwise.
fn score_element(score: f64, text: &mut Vec<u8>) -> Element<'_> {
    match exact_integer(score) {
        Some(integer) => Element::Int(integer),
        None => {
            format_f64(text, score);
            Element::Bytes(text)
        }
    }
}

/// The score in a listpack that was checked on the way in.
#[inline]
pub(super) fn score_of(element: Element<'_>) -> f64 {
    checked_score(element).expect("checked on the way in")
}

#[inline]
pub(super) fn checked_score(element: Element<'_>) -> Option<f64> {
    match element {
        Element::Int(integer) => Some(integer as f64),
        Element::Bytes(text) => parse_f64(text),
    }
}
