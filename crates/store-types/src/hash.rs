//! Hashes: field → value.

use crate::damage::Damaged;
use crate::element::Element;
use crate::limits::{Encoding, Limits};
use crate::listpack::{EntryOffset, Listpack};
use crate::pairs::{self, Pairs};
use crate::rng::Rng;
use crate::table::{Keyed, Table};
use crate::text::Text;

/// A hash: one listpack of alternating fields and values while small, a table beyond.
///
/// ```
/// # use store_types::{Element, Hash, Limits};
/// let limits = Limits::default();
/// let mut hash = Hash::new();
/// assert!(hash.insert(b"age", b"41", &limits));
/// assert!(!hash.insert(b"age", b"42", &limits));
/// assert_eq!(hash.get(b"age"), Some(Element::Int(42)));
/// ```
#[derive(Clone)]
pub struct Hash {
    form: Form,
}

#[derive(Clone)]
enum Form {
    Small(Listpack),
    Large(Box<Table<Field>>),
}

/// A field of a large hash.
#[derive(Clone)]
struct Field {
    name: Text,
    value: Text,
}

impl Keyed for Field {
    #[inline]
    fn key(&self) -> &[u8] {
        self.name.as_bytes()
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        self.name.heap_bytes() + self.value.heap_bytes()
    }
}

impl Field {
    #[inline]
    fn elements(&self) -> (Element<'_>, Element<'_>) {
        (Element::Bytes(self.name.as_bytes()), Element::Bytes(self.value.as_bytes()))
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl Hash {
    /// An empty hash.
    pub fn new() -> Self {
        Self { form: Form::Small(Listpack::new()) }
    }

    /// An empty hash that will soon hold `count` fields.
    pub fn with_capacity(count: usize, limits: &Limits) -> Self {
        if count <= limits.hash_listpack_entries_max {
            return Self::new();
        }
        Self { form: Form::Large(Box::new(Table::with_capacity(limits.hash_seed, count))) }
    }

    /// Takes a listpack of fields and values. As in Redis only their number may convert it, not
    /// their length.
    ///
    /// # Errors
    /// [`Damaged`] when a value is missing, a field comes twice, or there is none.
    pub fn from_listpack(pack: Listpack, limits: &Limits) -> Result<Self, Damaged> {
        pairs::check(&pack, "hash")?;
        let too_many = pack.len() / 2 > limits.hash_listpack_entries_max;
        let mut hash = Self { form: Form::Small(pack) };
        if too_many {
            hash.convert(limits);
        }
        Ok(hash)
    }

    /// How many fields there are.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Small(pack) => pack.len() / 2,
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
            Form::Small(_) => Encoding::Listpack,
            Form::Large(_) => Encoding::Hashtable,
        }
    }

    /// The bytes of the small form.
    pub fn as_listpack(&self) -> Option<&Listpack> {
        match &self.form {
            Form::Small(pack) => Some(pack),
            Form::Large(_) => None,
        }
    }

    /// Allocated bytes.
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Small(pack) => pack.heap_bytes(),
            Form::Large(table) => size_of::<Table<Field>>() + table.heap_bytes(),
        }
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        match &self.form {
            Form::Small(pack) => {
                let place = find(pack, field)?;
                pack.next(place).map(|value| pack.get(value))
            }
            Form::Large(table) => {
                table.get(field).map(|entry| Element::Bytes(entry.value.as_bytes()))
            }
        }
    }

    /// Whether the field is there.
    #[inline]
    pub fn contains(&self, field: &[u8]) -> bool {
        match &self.form {
            Form::Small(pack) => find(pack, field).is_some(),
            Form::Large(table) => table.get(field).is_some(),
        }
    }

    /// Sets a field; `true` when it is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        if let Form::Small(pack) = &self.form {
            let longest = field.len().max(value.len());
            let fits = longest <= limits.hash_listpack_value_max
                && pack.has_room_for(field.len() + value.len());
            if !fits {
                self.convert(limits);
            }
        }
        match &mut self.form {
            Form::Small(pack) => {
                let added = insert_small(pack, field, value);
                if added && pack.len() / 2 > limits.hash_listpack_entries_max {
                    self.convert(limits);
                }
                added
            }
            Form::Large(table) => {
                let replaced = table.update(field, |entry| entry.value = Text::new(value));
                if replaced.is_none() {
                    let (name, value) = (Text::new(field), Text::new(value));
                    table.insert_with(field, || Field { name, value });
                }
                replaced.is_none()
            }
        }
    }

    /// Removes a field; `false` when it was not there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.form {
            Form::Small(pack) => match find(pack, field) {
                Some(place) => {
                    pack.remove_from(place, 2);
                    true
                }
                None => false,
            },
            Form::Large(table) => table.remove(field).is_some(),
        }
    }

    /// All fields with their values: in order of insertion while small, in any order beyond.
    pub fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
        let (small, large) = match &self.form {
            Form::Small(pack) => (Some(Pairs::new(pack)), None),
            Form::Large(table) => (None, Some(table.iter().map(Field::elements))),
        };
        small.into_iter().flatten().chain(large.into_iter().flatten())
    }

    /// Visits about `count` fields from `cursor` on and returns the next cursor, zero at the end.
    /// A small hash is visited whole.
    pub fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) -> u64 {
        match &self.form {
            Form::Small(pack) => {
                Pairs::new(pack).for_each(|(field, value)| visit(field, value));
                0
            }
            Form::Large(table) => table.scan(cursor, count, |entry| {
                let (field, value) = entry.elements();
                visit(field, value);
            }),
        }
    }

    /// One field at random.
    pub fn random(&self, rng: &mut Rng) -> Option<(Element<'_>, Element<'_>)> {
        match &self.form {
            Form::Small(pack) => pairs::random(pack, rng),
            Form::Large(table) => table.random(rng).map(Field::elements),
        }
    }

    /// `count` distinct fields at random, all of them if there are no more.
    pub fn sample(&self, rng: &mut Rng, count: usize) -> Vec<(Element<'_>, Element<'_>)> {
        match &self.form {
            Form::Small(pack) => pairs::sample(pack, rng, count),
            Form::Large(table) => {
                table.sample(rng, count).into_iter().map(Field::elements).collect()
            }
        }
    }

    fn convert(&mut self, limits: &Limits) {
        let Form::Small(pack) = &self.form else { return };
        let mut table = Table::with_capacity(limits.hash_seed, pack.len() / 2 + 1);
        for (field, value) in Pairs::new(pack) {
            field.with_bytes(|name| {
                table.insert_with(name, || Field {
                    name: Text::new(name),
                    value: value.with_bytes(Text::new),
                })
            });
        }
        self.form = Form::Large(Box::new(table));
    }
}

#[inline]
fn find(pack: &Listpack, field: &[u8]) -> Option<EntryOffset> {
    pack.find(pack.first()?, field, 1)
}

fn insert_small(pack: &mut Listpack, field: &[u8], value: &[u8]) -> bool {
    let existing = find(pack, field).and_then(|place| pack.next(place));
    match existing {
        Some(place) => pack.replace(place, Element::Bytes(value)),
        None => {
            pack.push_back(field);
            pack.push_back(value);
        }
    }
    existing.is_none()
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::Rng;

    #[test]
    fn it_converts_past_its_limits_and_never_back() {
        let limits = Limits { hash_listpack_entries_max: 2, ..Limits::default() };
        let mut hash = Hash::new();
        hash.insert(b"a", b"1", &limits);
        hash.insert(b"b", &[b'x'; 64], &limits);
        assert_eq!(hash.encoding(), Encoding::Listpack);
        let mut long = hash.clone();
        long.insert(b"b", &[b'x'; 65], &limits);
        assert_eq!(long.encoding(), Encoding::Hashtable);
        hash.insert(b"c", b"3", &limits);
        assert_eq!(hash.encoding(), Encoding::Hashtable);
        hash.remove(b"c");
        hash.remove(b"b");
        assert_eq!((hash.encoding(), hash.len()), (Encoding::Hashtable, 1));
    }

    #[test]
    fn a_listpack_with_a_field_twice_is_refused() {
        let elements = [b"a", b"1", b"b", b"2", b"a", b"3"].map(|b| Element::Bytes(b));
        for (count, good) in [(0, false), (1, false), (2, true), (4, true), (6, false)] {
            let pack = elements.iter().take(count).copied().collect();
            assert_eq!(Hash::from_listpack(pack, &Limits::default()).is_ok(), good, "{count}");
        }
    }

    proptest! {
        #[test]
        fn a_hash_behaves_as_a_map(
            limit in 0_usize..40,
            steps in proptest::collection::vec((0_u32..60, any::<i16>(), 0_u8..4), 0..300),
        ) {
            let limits = Limits { hash_listpack_entries_max: limit, ..Limits::default() };
            let mut hash = Hash::new();
            let mut model = BTreeMap::new();
            for (field, value, kind) in steps {
                let field = format!("{field}").into_bytes();
                let value = format!("{value}").repeat(usize::from(kind) * 3 + 1).into_bytes();
                if kind == 0 {
                    prop_assert_eq!(hash.remove(&field), model.remove(&field).is_some());
                } else {
                    let added = hash.insert(&field, &value, &limits);
                    prop_assert_eq!(added, model.insert(field.clone(), value).is_none());
                }
                let expected = model.get(&field).cloned();
                prop_assert_eq!(hash.get(&field).map(Element::to_vec), expected);
                prop_assert_eq!(hash.len(), model.len());
            }
            let all: BTreeMap<_, _> =
                hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
            prop_assert_eq!(&all, &model);
            let mut rng = Rng::seeded(limit as u64);
            let sample = hash.sample(&mut rng, 10);
            prop_assert_eq!(sample.len(), model.len().min(10));
            for (field, value) in sample {
                prop_assert_eq!(model.remove(&field.to_vec()), Some(value.to_vec()));
            }
        }
    }
}
