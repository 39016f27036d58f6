//! Walking a list from either end.

use std::ops::Range;

use super::{Form, List};
use crate::element::Element;
use crate::listpack;

/// Elements between two indexes, from either end. The number left is what ends the walk: the two
/// ends may stand in one node.
#[derive(Clone)]
pub struct ListRange<'a> {
    list: &'a List,
    start: usize,
    end: usize,
    front: Option<(usize, listpack::Iter<'a>)>,
    back: Option<(usize, listpack::Iter<'a>)>,
}

impl<'a> ListRange<'a> {
    pub(super) fn new(list: &'a List, range: Range<usize>) -> Self {
        let end = range.end.min(list.len());
        Self { list, start: range.start.min(end), end, front: None, back: None }
    }

    /// The node that holds the element `index`, from that element on.
    fn enter_front(&self, index: usize) -> (usize, listpack::Iter<'a>) {
        let (node, within) = self.list.locate(index).expect("the range lies in the list");
        let pack = self.list.pack(node);
        (node, pack.iter_from(pack.seek(within).expect("the node holds this index")))
    }

    /// The node that holds the element `index`, up to that element.
    fn enter_back(&self, index: usize) -> (usize, listpack::Iter<'a>) {
        let (node, within) = self.list.locate(index).expect("the range lies in the list");
        let pack = self.list.pack(node);
        (node, pack.iter_through(pack.seek(within).expect("the node holds this index")))
    }
}

impl<'a> Iterator for ListRange<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.start >= self.end {
            return None;
        }
        if self.front.is_none() {
            self.front = Some(self.enter_front(self.start));
        }
        self.start += 1;
        let (node, elements) = self.front.as_mut()?;
        if let Some(element) = elements.next() {
            return Some(element);
        }
        *node += 1;
        *elements = self.list.pack(*node).iter();
        elements.next()
    }

    fn nth(&mut self, count: usize) -> Option<Element<'a>> {
        self.front = None;
        self.start = self.start.saturating_add(count).min(self.end);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.start, Some(self.end - self.start))
    }
}

impl DoubleEndedIterator for ListRange<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.start >= self.end {
            return None;
        }
        self.end -= 1;
        if self.back.is_none() {
            self.back = Some(self.enter_back(self.end));
        }
        let (node, elements) = self.back.as_mut()?;
        if let Some(element) = elements.next_back() {
            return Some(element);
        }
        *node -= 1;
        *elements = self.list.pack(*node).iter();
        elements.next_back()
    }
}

impl ExactSizeIterator for ListRange<'_> {}

impl std::fmt::Debug for ListRange<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = matches!(self.list.form, Form::Row(_));
        write!(formatter, "ListRange({}..{}, row: {nodes})", self.start, self.end)
    }
}
