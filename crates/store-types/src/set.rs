//! Sets of distinct members.

use crate::element::Element;
use crate::intset::Intset;
use crate::limits::{Encoding, Limits};
use crate::number::parse_i64;
use crate::rng::Rng;
use crate::table::{Keyed, Table};
use crate::text::Text;

/// Redis never keeps more integers than this in an intset, whatever the setting.
const INTSET_ENTRIES_MAX: usize = 1 << 30;

/// A set: an intset while all members are integers and few, a table otherwise.
///
/// ```
/// # use store_types::{Limits, Set};
/// let mut set = Set::new();
/// assert!(set.insert(b"7", &Limits::default()));
/// assert!(!set.insert(b"7", &Limits::default()));
/// assert!(set.contains(b"7"));
/// ```
#[derive(Clone)]
pub struct Set {
    form: Form,
}

#[derive(Clone)]
enum Form {
    Small(Intset),
    Large(Box<Table<Text>>),
}

impl Keyed for Text {
    #[inline]
    fn key(&self) -> &[u8] {
        self.as_bytes()
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        Text::heap_bytes(self)
    }
}

impl Default for Set {
    fn default() -> Self {
        Self::new()
    }
}

impl Set {
    /// An empty set.
    pub fn new() -> Self {
        Self { form: Form::Small(Intset::new()) }
    }

    /// An empty set that will soon hold `count` members; with more than an intset may hold it
    /// starts as a table.
    pub fn with_capacity(count: usize, limits: &Limits) -> Self {
        if count <= limits.set_intset_entries_max.min(INTSET_ENTRIES_MAX) {
            return Self::new();
        }
        Self { form: Form::Large(Box::new(Table::with_capacity(limits.hash_seed, count))) }
    }

    /// Takes an intset, and converts it when it is over the limit.
    pub fn from_intset(integers: Intset, limits: &Limits) -> Self {
        let over = integers.len() > limits.set_intset_entries_max;
        let mut set = Self { form: Form::Small(integers) };
        if over {
            set.convert(limits);
        }
        set
    }

    /// How many members there are.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Small(integers) => integers.len(),
            Form::Large(table) => table.len(),
        }
    }

    /// Whether there is none; the key should go then.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How it is kept.
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Form::Small(_) => Encoding::Intset,
            Form::Large(_) => Encoding::Hashtable,
        }
    }

    /// The bytes of the small form.
    pub fn as_intset(&self) -> Option<&Intset> {
        match &self.form {
            Form::Small(integers) => Some(integers),
            Form::Large(_) => None,
        }
    }

    /// Allocated bytes.
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Small(integers) => integers.heap_bytes(),
            Form::Large(table) => size_of::<Table<Text>>() + table.heap_bytes(),
        }
    }

    /// Whether `member` is in the set.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.form {
            Form::Small(integers) => {
                parse_i64(member).is_some_and(|value| integers.contains(value))
            }
            Form::Large(table) => table.get(member).is_some(),
        }
    }

    /// [`Self::contains`] for a member of another set.
    #[inline]
    pub fn contains_element(&self, member: Element<'_>) -> bool {
        match (&self.form, member) {
            (Form::Small(integers), Element::Int(value)) => integers.contains(value),
            _ => member.with_bytes(|bytes| self.contains(bytes)),
        }
    }

    /// Adds a member; `false` when it was there.
    pub fn insert(&mut self, member: &[u8], limits: &Limits) -> bool {
        if let Form::Small(integers) = &mut self.form {
            if let Some(value) = parse_i64(member) {
                let added = integers.insert(value);
                if integers.len() > limits.set_intset_entries_max.min(INTSET_ENTRIES_MAX) {
                    self.convert(limits);
                }
                return added;
            }
            self.convert(limits);
        }
        match &mut self.form {
            Form::Large(table) => table.insert_with(member, || Text::new(member)),
            Form::Small(_) => unreachable!("converted above"),
        }
    }

    /// Removes a member; `false` when it was not there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.form {
            Form::Small(integers) => parse_i64(member).is_some_and(|value| integers.remove(value)),
            Form::Large(table) => table.remove(member).is_some(),
        }
    }

    /// All members: ascending in an intset, in any order in a table.
    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        let (small, large) = match &self.form {
            Form::Small(integers) => (Some(integers.iter().map(Element::Int)), None),
            Form::Large(table) => (None, Some(table.iter().map(element))),
        };
        small.into_iter().flatten().chain(large.into_iter().flatten())
    }

    /// Visits about `count` members from `cursor` on and returns the next cursor, zero at the end.
    /// An intset is visited whole.
    pub fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'a>),
    ) -> u64 {
        match &self.form {
            Form::Small(integers) => {
                integers.iter().for_each(|value| visit(Element::Int(value)));
                0
            }
            Form::Large(table) => table.scan(cursor, count, |text| visit(element(text))),
        }
    }

    /// One member at random.
    pub fn random(&self, rng: &mut Rng) -> Option<Element<'_>> {
        match &self.form {
            Form::Small(integers) => {
                integers.get(rng.below(integers.len().max(1))).map(Element::Int)
            }
            Form::Large(table) => table.random(rng).map(element),
        }
    }

    /// `count` distinct members at random, all of them if there are no more.
    pub fn sample(&self, rng: &mut Rng, count: usize) -> Vec<Element<'_>> {
        match &self.form {
            Form::Small(integers) => {
                let mut remaining = integers.len();
                let mut wanted = count.min(remaining);
                let chosen = integers.iter().filter(|_| {
                    let chosen = rng.chooses(wanted, remaining);
                    wanted -= usize::from(chosen);
                    remaining -= 1;
                    chosen
                });
                chosen.map(Element::Int).collect()
            }
            Form::Large(table) => table.sample(rng, count).into_iter().map(element).collect(),
        }
    }

    fn convert(&mut self, limits: &Limits) {
        let Form::Small(integers) = &self.form else { return };
        let mut table = Table::with_capacity(limits.hash_seed, integers.len() + 1);
        for value in integers.iter() {
            Element::Int(value)
                .with_bytes(|member| table.insert_with(member, || Text::new(member)));
        }
        self.form = Form::Large(Box::new(table));
    }
}

#[inline]
fn element(text: &Text) -> Element<'_> {
    Element::Bytes(text.as_bytes())
}

impl std::fmt::Debug for Set {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Rng;

    #[test]
    fn a_member_that_is_no_integer_makes_a_table() {
        let limits = Limits { set_intset_entries_max: 3, ..Limits::default() };
        let mut set = Set::new();
        for member in [b"3", b"1", b"2"] {
            set.insert(member, &limits);
        }
        assert_eq!(set.encoding(), Encoding::Intset);
        let mut many = set.clone();
        many.insert(b"4", &limits);
        assert_eq!(many.encoding(), Encoding::Hashtable);
        set.insert(b"03", &limits);
        assert_eq!((set.encoding(), set.len()), (Encoding::Hashtable, 4));
        assert!(set.contains_element(Element::Int(3)));
    }

    proptest! {
        #[test]
        fn a_set_behaves_as_a_set(
            limit in 0_usize..40,
            text_from in 0_i32..80,
            steps in proptest::collection::vec((0_i32..60, 0_u8..3), 0..300),
        ) {
            let limits = Limits { set_intset_entries_max: limit, ..Limits::default() };
            let mut set = Set::new();
            let mut model = BTreeSet::new();
            for (number, kind) in steps {
                let prefix = if number >= text_from { "m" } else { "" };
                let member = format!("{prefix}{number}").into_bytes();
                if kind == 0 {
                    prop_assert_eq!(set.remove(&member), model.remove(&member));
                } else {
                    prop_assert_eq!(set.insert(&member, &limits), model.insert(member.clone()));
                }
                prop_assert_eq!(set.contains(&member), model.contains(&member));
                prop_assert_eq!(set.len(), model.len());
            }
            let all: BTreeSet<_> = set.iter().map(Element::to_vec).collect();
            prop_assert_eq!(&all, &model);
            let mut rng = Rng::seeded(limit as u64);
            prop_assert_eq!(set.random(&mut rng).is_some(), !model.is_empty());
            let sample = set.sample(&mut rng, 10);
            prop_assert_eq!(sample.len(), model.len().min(10));
            prop_assert!(sample.into_iter().all(|member| model.remove(&member.to_vec())));
        }
    }
}
