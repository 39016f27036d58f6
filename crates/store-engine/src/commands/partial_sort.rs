//! Sorting of which only a part is wanted.
//!
//! Which of several equal elements come first is visible to clients, so it is done the way Redis
//! does it: a stable sort for everything, and for a part the quicksort of Bentley and McIlroy
//! ("Engineering a Sort Function", 1993) that leaves alone what lies outside of the part.

use std::cmp::Ordering;
use std::ops::Range;

/// Shorter runs are sorted by insertion.
const INSERTION_MAX: usize = 6;
/// Longer runs choose their pivot among nine.
const NINTHER_MIN: usize = 41;

/// Sorts so that the elements of `wanted` are those that a full sort would put there.
pub(super) fn partial_sort<T>(
    items: &mut [T],
    wanted: Range<usize>,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) {
    if wanted.is_empty() {
        return;
    }
    if wanted == (0..items.len()) {
        items.sort_by(compare);
    } else {
        quicksort(items, 0, &wanted, &mut compare);
    }
}

/// `offset` is where `items` begin in what is sorted as a whole.
fn quicksort<T>(
    mut items: &mut [T],
    mut offset: usize,
    wanted: &Range<usize>,
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) {
    loop {
        if items.len() <= INSERTION_MAX {
            return insertion_sort(items, compare);
        }
        let pivot = choose_pivot(items, compare);
        items.swap(0, pivot);
        let (smaller, larger) = partition(items, compare);
        let (len, is_wanted) = (items.len(), |offset: usize, len: usize| {
            len > 1 && wanted.start < offset + len && offset < wanted.end
        });
        if is_wanted(offset, smaller) {
            quicksort(&mut items[..smaller], offset, wanted, compare);
        }
        if !is_wanted(offset + len - larger, larger) {
            return;
        }
        items = &mut items[len - larger..];
        offset += len - larger;
    }
}

fn insertion_sort<T>(items: &mut [T], compare: &mut impl FnMut(&T, &T) -> Ordering) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && compare(&items[at - 1], &items[at]).is_gt() {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

fn choose_pivot<T>(items: &[T], compare: &mut impl FnMut(&T, &T) -> Ordering) -> usize {
    let last = items.len() - 1;
    let (mut low, mut middle, mut high) = (0, items.len() / 2, last);
    if items.len() == INSERTION_MAX + 1 {
        return middle;
    }
    if items.len() >= NINTHER_MIN {
        let step = items.len() / 8;
        low = median(items, [0, step, 2 * step], compare);
        middle = median(items, [middle - step, middle, middle + step], compare);
        high = median(items, [last - 2 * step, last - step, last], compare);
    }
    median(items, [low, middle, high], compare)
}

fn median<T>(
    items: &[T],
    [a, b, c]: [usize; 3],
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) -> usize {
    let mut less = |x: usize, y: usize| compare(&items[x], &items[y]).is_lt();
    if less(a, b) {
        if less(b, c) {
            b
        } else if less(a, c) {
            c
        } else {
            a
        }
    } else if compare(&items[b], &items[c]).is_gt() {
        b
    } else if compare(&items[a], &items[c]).is_lt() {
        a
    } else {
        c
    }
}

/// Puts what is less than the first element in front, what is greater behind, and what is equal
/// between them. Returns how many are less and how many are greater.
///
/// Equal ones are gathered at both ends first: `[equal | less | … | greater | equal]`.
fn partition<T>(items: &mut [T], compare: &mut impl FnMut(&T, &T) -> Ordering) -> (usize, usize) {
    let len = items.len();
    let (mut equal_front, mut less_end) = (1, 1);
    // One past the last element that is not known to be greater, and the same for equal ones.
    let (mut greater_start, mut equal_back) = (len, len);
    loop {
        while less_end < greater_start {
            match compare(&items[less_end], &items[0]) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    items.swap(equal_front, less_end);
                    equal_front += 1;
                }
                Ordering::Less => {}
            }
            less_end += 1;
        }
        while less_end < greater_start {
            match compare(&items[greater_start - 1], &items[0]) {
                Ordering::Less => break,
                Ordering::Equal => {
                    items.swap(greater_start - 1, equal_back - 1);
                    equal_back -= 1;
                }
                Ordering::Greater => {}
            }
            greater_start -= 1;
        }
        if less_end >= greater_start {
            break;
        }
        items.swap(less_end, greater_start - 1);
        less_end += 1;
        greater_start -= 1;
    }
    let (less, greater) = (less_end - equal_front, equal_back - greater_start);
    swap_runs(items, 0, less_end, equal_front.min(less));
    swap_runs(items, less_end, len, greater.min(len - equal_back));
    (less, greater)
}

/// Exchanges the `count` elements from `start` on with the `count` before `end`.
fn swap_runs<T>(items: &mut [T], start: usize, end: usize, count: usize) {
    for step in 0..count {
        items.swap(start + step, end - count + step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store_types::Rng;

    #[test]
    fn the_wanted_part_is_that_of_a_full_sort() {
        let mut random = Rng::seeded(3);
        for len in [0, 1, 2, 6, 7, 8, 40, 41, 100, 1000] {
            for distinct in [1, 3, 1000] {
                let items: Vec<usize> = (0..len).map(|_| random.below(distinct)).collect();
                let mut sorted = items.clone();
                sorted.sort_unstable();
                for (start, end) in [(0, len), (0, len / 3), (len / 4, len / 2), (len / 2, len)] {
                    let mut partly = items.clone();
                    partial_sort(&mut partly, start..end, Ord::cmp);
                    assert_eq!(partly[start..end], sorted[start..end], "{len} {distinct}");
                    partly.sort_unstable();
                    assert_eq!(partly, sorted, "nothing is lost");
                }
            }
        }
    }
}
