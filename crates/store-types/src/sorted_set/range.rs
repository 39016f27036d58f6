//! Walking a sorted set from either end.

use super::member_and_score;
use super::small::score_of;
use crate::element::Element;
use crate::listpack::Listpack;
use crate::pairs::Pairs;
use crate::tree::Items;

/// Members in order with their scores, from either end.
#[derive(Clone)]
pub struct SortedRange<'a>(pub(super) RangeForm<'a>);

#[derive(Clone)]
pub(super) enum RangeForm<'a> {
    /// Both ends walk the whole listpack; the ranks left end the walk.
    Small {
        pack: &'a Listpack,
        front: Option<Pairs<'a>>,
        back: Option<Pairs<'a>>,
        start: usize,
        end: usize,
    },
    Large(Items<'a>),
}

impl<'a> Iterator for SortedRange<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            RangeForm::Large(items) => items.next().map(member_and_score),
            RangeForm::Small { pack, front, start, end, .. } => {
                if *start >= *end {
                    return None;
                }
                let pairs = front.get_or_insert_with(|| Pairs::starting_at(pack, *start));
                *start += 1;
                pairs.next().map(|(member, score)| (member, score_of(score)))
            }
        }
    }

    #[inline]
    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        match &mut self.0 {
            RangeForm::Large(items) => items.skip_front(count),
            RangeForm::Small { front, start, end, .. } => {
                *front = None;
                *start = start.saturating_add(count).min(*end);
            }
        }
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            RangeForm::Small { start, end, .. } => end - start,
            RangeForm::Large(items) => items.len(),
        };
        (left, Some(left))
    }
}

impl DoubleEndedIterator for SortedRange<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            RangeForm::Large(items) => items.next_back().map(member_and_score),
            RangeForm::Small { pack, back, start, end, .. } => {
                if *start >= *end {
                    return None;
                }
                let pairs = back.get_or_insert_with(|| Pairs::ending_at(pack, *end));
                *end -= 1;
                pairs.next_back().map(|(member, score)| (member, score_of(score)))
            }
        }
    }
}

impl ExactSizeIterator for SortedRange<'_> {}
