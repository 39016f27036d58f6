//! Lists: listpacks in a row.
//!
//! One node while small, a row of nodes beyond, as Redis' quicklist divides and joins them: the
//! saved bytes of equal lists are equal. Nodes of a long list sit behind `Arc`, so that a copy
//! shares them and a change copies one.

mod fill;
mod iter;
mod nodes;

use std::ops::Range;

use fill::Fill;
pub use iter::ListRange;
use nodes::Nodes;

use crate::element::Element;
use crate::limits::{Encoding, Limits};
use crate::listpack::Listpack;

/// A single node larger than this is kept as a long list is, so that a copy shares it.
const SINGLE_BYTES_MAX: usize = 64 * 1024;

/// The end from which a list is searched or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head: `LPUSH` and `LPOP`.
    Front,
    /// The tail: `RPUSH` and `RPOP`.
    Back,
}

/// A list of elements.
///
/// ```
/// # use store_types::{Element, End, Limits, List};
/// let mut list = List::new();
/// list.push(End::Back, b"a", &Limits::default());
/// list.push(End::Front, b"7", &Limits::default());
/// assert_eq!(list.get(0), Some(Element::Int(7)));
/// assert_eq!(list.pop_with(End::Back, |element| element.to_vec()), Some(b"a".to_vec()));
/// ```
#[derive(Clone)]
pub struct List {
    form: Form,
}

#[derive(Clone)]
enum Form {
    Single(Listpack),
    Row(Box<Nodes>),
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    /// An empty list.
    pub fn new() -> Self {
        Self { form: Form::Single(Listpack::new()) }
    }

    /// How many elements there are.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Single(pack) => pack.len(),
            Form::Row(nodes) => nodes.len(),
        }
    }

    /// Whether there is none; the key should go then.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match &self.form {
            Form::Single(pack) => pack.is_empty(),
            Form::Row(nodes) => nodes.len() == 0,
        }
    }

    /// How it is kept: Redis 7.0 has one name for all lists.
    pub fn encoding(&self) -> Encoding {
        Encoding::Quicklist
    }

    /// Allocated bytes.
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Single(pack) => pack.heap_bytes(),
            Form::Row(nodes) => size_of::<Nodes>() + nodes.heap_bytes(),
        }
    }

    /// The listpacks, from front to back.
    pub fn nodes(&self) -> impl Iterator<Item = &Listpack> {
        (0..self.node_count()).map(|index| self.pack(index))
    }

    /// How many listpacks there are.
    pub fn node_count(&self) -> usize {
        match &self.form {
            Form::Single(_) => 1,
            Form::Row(nodes) => nodes.row().len(),
        }
    }

    /// Appends a whole node, as loading does. Empty ones are left out.
    pub fn push_node(&mut self, pack: Listpack) {
        if pack.is_empty() {
            return;
        }
        if self.is_empty() && pack.as_bytes().len() <= SINGLE_BYTES_MAX {
            self.form = Form::Single(pack);
            return;
        }
        self.row().push_node(pack);
    }

    /// Adds an element at one end.
    #[inline]
    pub fn push(&mut self, end: End, element: &[u8], limits: &Limits) {
        let fill = Fill(limits.list_node_size);
        if let Form::Single(pack) = &mut self.form
            && (pack.is_empty() || fill.allows_insert(pack, element.len()))
        {
            match end {
                End::Front => pack.push_front(element),
                End::Back => pack.push_back(element),
            }
            return self.share_if_large();
        }
        self.row().push(end, element, fill);
    }

    /// Takes an element from one end and hands it to `read`.
    #[inline]
    pub fn pop_with<R>(&mut self, end: End, read: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        match &mut self.form {
            Form::Single(pack) => {
                let place = match end {
                    End::Front => pack.first()?,
                    End::Back => pack.last()?,
                };
                let result = read(pack.get(place));
                pack.remove(place);
                Some(result)
            }
            Form::Row(nodes) => {
                let result = nodes.pop_with(end, read)?;
                self.settle();
                Some(result)
            }
        }
    }

    /// The element with this index.
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        let (node, within) = self.locate(index)?;
        let pack = self.pack(node);
        pack.seek(within).map(|place| pack.get(place))
    }

    /// Replaces the element with this index; `false` when there is none.
    pub fn set(&mut self, index: usize, element: &[u8]) -> bool {
        let Some((node, within)) = self.locate(index) else { return false };
        self.change(node, |pack| {
            let place = pack.seek(within).expect("just located");
            pack.replace(place, Element::Bytes(element));
        });
        self.share_if_large();
        true
    }

    /// Inserts before the element with this index; `false` when there is none.
    pub fn insert_before(&mut self, index: usize, element: &[u8], limits: &Limits) -> bool {
        self.insert(index, element, Side::Before, limits)
    }

    /// Inserts after the element with this index; `false` when there is none.
    pub fn insert_after(&mut self, index: usize, element: &[u8], limits: &Limits) -> bool {
        self.insert(index, element, Side::After, limits)
    }

    fn insert(&mut self, index: usize, element: &[u8], side: Side, limits: &Limits) -> bool {
        let Some((node, within)) = self.locate(index) else { return false };
        let fill = Fill(limits.list_node_size);
        match &mut self.form {
            Form::Single(pack) if fill.allows_insert(pack, element.len()) => {
                nodes::insert_beside(pack, within, element, side);
            }
            _ => self.row().insert(node, within, element, side, fill),
        }
        self.settle();
        true
    }

    /// Removes up to `count` elements equal to `wanted`, searching from one end; returns how many.
    pub fn remove(&mut self, wanted: &[u8], count: usize, from: End) -> usize {
        let mut removed = 0;
        let node_count = self.node_count();
        for step in 0..node_count {
            if removed == count {
                break;
            }
            let node = match from {
                End::Front => step,
                End::Back => node_count - 1 - step,
            };
            let found = find_in(self.pack(node), wanted, count - removed, from);
            if found.is_empty() {
                continue;
            }
            removed += found.len();
            self.change(node, |pack| {
                for &index in found.iter().rev() {
                    pack.remove_range(index, 1);
                }
            });
        }
        self.drop_empty_nodes();
        removed
    }

    /// Removes the elements with these indexes; returns how many there were.
    pub fn remove_range(&mut self, range: Range<usize>) -> usize {
        let end = range.end.min(self.len());
        let count = end.saturating_sub(range.start);
        if count > 0 {
            match &mut self.form {
                Form::Single(pack) => pack.remove_range(range.start, count),
                Form::Row(nodes) => nodes.remove_range(range.start, count),
            }
            self.settle();
        }
        count
    }

    /// The elements with these indexes, from either end.
    pub fn range(&self, range: Range<usize>) -> ListRange<'_> {
        ListRange::new(self, range)
    }

    /// All elements, from either end.
    pub fn iter(&self) -> ListRange<'_> {
        self.range(0..self.len())
    }

    #[inline]
    fn pack(&self, node: usize) -> &Listpack {
        match &self.form {
            Form::Single(pack) => pack,
            Form::Row(nodes) => nodes.row()[node].pack(),
        }
    }

    fn change<R>(&mut self, node: usize, change: impl FnOnce(&mut Listpack) -> R) -> R {
        match &mut self.form {
            Form::Single(pack) => change(pack),
            Form::Row(nodes) => nodes.change(node, change),
        }
    }

    /// The node of an index, and the index within it.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        match &self.form {
            Form::Single(pack) => (index < pack.len()).then_some((0, index)),
            Form::Row(nodes) => nodes.locate(index),
        }
    }

    /// The row form, entered if need be.
    fn row(&mut self) -> &mut Nodes {
        if let Form::Single(pack) = &mut self.form {
            let nodes = Nodes::from_pack(std::mem::take(pack));
            self.form = Form::Row(Box::new(nodes));
        }
        match &mut self.form {
            Form::Row(nodes) => nodes,
            Form::Single(_) => unreachable!("entered above"),
        }
    }

    /// Enters the row form when the single node is too large to be copied lightly.
    #[inline]
    fn share_if_large(&mut self) {
        if let Form::Single(pack) = &self.form
            && pack.as_bytes().len() > SINGLE_BYTES_MAX
        {
            self.row();
        }
    }

    fn drop_empty_nodes(&mut self) {
        if let Form::Row(nodes) = &mut self.form {
            nodes.drop_empty();
            self.settle();
        }
    }

    /// Leaves the row form when one small node remains.
    fn settle(&mut self) {
        let Form::Row(nodes) = &mut self.form else { return };
        match nodes.row().len() {
            0 => self.form = Form::Single(Listpack::new()),
            1 if nodes.row()[0].pack().as_bytes().len() <= SINGLE_BYTES_MAX => {
                let pack = nodes.take_only();
                self.form = Form::Single(pack);
            }
            _ => {}
        }
    }
}

/// Which side of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// Ascending indexes of up to `count` elements equal to `wanted`, the first found from `from`.
fn find_in(pack: &Listpack, wanted: &[u8], count: usize, from: End) -> Vec<usize> {
    let mut found = Vec::new();
    for (index, element) in pack.iter().enumerate() {
        if element == *wanted {
            found.push(index);
            if from == End::Front && found.len() == count {
                break;
            }
        }
    }
    if from == End::Back && found.len() > count {
        found.drain(..found.len() - count);
    }
    found
}

impl std::fmt::Debug for List {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
