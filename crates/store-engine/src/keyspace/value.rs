//! The kinds of values that are not strings.

use store_types::{Hash, List, Set, SortedSet, Stream};

use super::object::Object;

/// A value that is not a string, by kind.
#[derive(Clone)]
pub enum Data {
    /// A list.
    List(List),
    /// A hash.
    Hash(Hash),
    /// A set.
    Set(Set),
    /// A sorted set.
    SortedSet(SortedSet),
    /// A stream.
    Stream(Stream),
}

/// A value that is not a string, with the bytes it was last found to take.
///
/// It is measured at each change: values keep count of what they allocate. Only streams add up
/// their groups, so those with many of them are measured less often.
#[derive(Clone)]
pub struct Value {
    pub(super) data: Data,
    counted_bytes: usize,
    changes_left: usize,
}

/// One change in so many groups leads to measuring again, so that a change costs the same
/// however many there are.
const GROUPS_PER_CHANGE: usize = 16;

impl Value {
    /// Measures and holds `data`.
    pub fn new(data: Data) -> Self {
        let mut value = Self { data, counted_bytes: 0, changes_left: 0 };
        value.measure();
        value
    }

    /// The value by kind.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Bytes of memory behind the value as last measured, without the value's own size.
    pub fn memory(&self) -> usize {
        self.counted_bytes
    }

    /// To be called after a change; measures if it is time.
    pub(super) fn count_change(&mut self) {
        match self.changes_left.checked_sub(1) {
            Some(left) => self.changes_left = left,
            None => self.measure(),
        }
    }

    fn measure(&mut self) {
        self.changes_left = match &self.data {
            Data::Stream(stream) => stream.groups().len() / GROUPS_PER_CHANGE,
            _ => 0,
        };
        self.counted_bytes = match &self.data {
            Data::List(list) => list.heap_bytes(),
            Data::Hash(hash) => hash.heap_bytes(),
            Data::Set(set) => set.heap_bytes(),
            Data::SortedSet(set) => set.heap_bytes(),
            Data::Stream(stream) => stream.heap_bytes(),
        };
    }

    /// The kind as TYPE names it.
    pub fn type_name(&self) -> &'static str {
        match &self.data {
            Data::List(_) => "list",
            Data::Hash(_) => "hash",
            Data::Set(_) => "set",
            Data::SortedSet(_) => "zset",
            Data::Stream(_) => "stream",
        }
    }

    /// The form as OBJECT ENCODING names it.
    pub fn encoding_name(&self) -> &'static str {
        match &self.data {
            Data::List(list) => list.encoding().name(),
            Data::Hash(hash) => hash.encoding().name(),
            Data::Set(set) => set.encoding().name(),
            Data::SortedSet(set) => set.encoding().name(),
            Data::Stream(stream) => stream.encoding().name(),
        }
    }
}

/// Makes a type the kind of the variant of the same name.
macro_rules! object {
    ($kind:ident) => {
        impl Object for $kind {
            fn of(data: &Data) -> Option<&Self> {
                if let Data::$kind(value) = data { Some(value) } else { None }
            }

            fn of_mut(data: &mut Data) -> Option<&mut Self> {
                if let Data::$kind(value) = data { Some(value) } else { None }
            }

            fn into_data(self) -> Data {
                Data::$kind(self)
            }
        }
    };
}

object!(List);
object!(Hash);
object!(Set);
object!(SortedSet);
object!(Stream);
