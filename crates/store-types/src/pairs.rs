//! Listpacks that hold pairs: field and value, member and score.

use crate::damage::Damaged;
use crate::element::Element;
use crate::listpack::{Iter, Listpack};
use crate::rng::Rng;
use crate::table::hash;

/// The pairs of a listpack, from either end.
#[derive(Clone)]
pub(crate) struct Pairs<'a> {
    elements: Iter<'a>,
}

impl<'a> Pairs<'a> {
    #[inline]
    pub(crate) fn new(pack: &'a Listpack) -> Self {
        Self { elements: pack.iter() }
    }

    /// The pairs from this index on.
    pub(crate) fn starting_at(pack: &'a Listpack, index: usize) -> Self {
        let place = pack.seek(2 * index).expect("the index is below the count");
        Self { elements: pack.iter_from(place) }
    }

    /// The pairs before this index, which is not zero.
    pub(crate) fn ending_at(pack: &'a Listpack, index: usize) -> Self {
        let place = pack.seek(2 * index - 1).expect("the index is within the count");
        Self { elements: pack.iter_through(place) }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.elements.next()?, self.elements.next()?))
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let second = self.elements.next_back()?;
        Some((self.elements.next_back()?, second))
    }
}

/// One pair at random.
pub(crate) fn random<'a>(pack: &'a Listpack, rng: &mut Rng) -> Option<(Element<'a>, Element<'a>)> {
    let count = pack.len() / 2;
    let place = pack.seek(2 * rng.below(count.max(1)))?;
    let mut pair = pack.iter_from(place);
    Some((pair.next()?, pair.next()?))
}

/// `count` distinct pairs at random, all of them if there are no more.
pub(crate) fn sample<'a>(
    pack: &'a Listpack,
    rng: &mut Rng,
    count: usize,
) -> Vec<(Element<'a>, Element<'a>)> {
    let mut remaining = pack.len() / 2;
    let mut wanted = count.min(remaining);
    let mut picked = Vec::with_capacity(wanted);
    for pair in Pairs::new(pack) {
        if rng.chooses(wanted, remaining) {
            picked.push(pair);
            wanted -= 1;
        }
        remaining -= 1;
    }
    picked
}

/// Foreign pairs are pairs, at least one, and no first element comes twice.
pub(crate) fn check(pack: &Listpack, kind: &'static str) -> Result<(), Damaged> {
    let count = pack.len();
    if count == 0 || !count.is_multiple_of(2) {
        return Err(Damaged::new(kind, "not a sequence of pairs"));
    }
    let firsts = pack.iter().step_by(2);
    if has_duplicates(firsts, count / 2) {
        return Err(Damaged::new(kind, "an element comes twice"));
    }
    Ok(())
}

/// Compares hashes first: loading a file checks every small hash in it.
fn has_duplicates<'a>(elements: impl Iterator<Item = Element<'a>> + Clone, count: usize) -> bool {
    const COMPARE_ALL_MAX: usize = 8;
    if count <= COMPARE_ALL_MAX {
        return elements
            .clone()
            .enumerate()
            .any(|(index, element)| elements.clone().take(index).any(|other| other == element));
    }
    let mut hashes: Vec<u64> =
        elements.clone().map(|element| element.with_bytes(|bytes| hash(0, bytes))).collect();
    hashes.sort_unstable();
    if hashes.windows(2).all(|pair| pair[0] != pair[1]) {
        return false;
    }
    let mut texts: Vec<Vec<u8>> = elements.map(Element::to_vec).collect();
    texts.sort_unstable();
    texts.windows(2).any(|pair| pair[0] == pair[1])
}
