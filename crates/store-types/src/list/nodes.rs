//! The row of nodes of a long list.

use std::collections::VecDeque;
use std::sync::Arc;

use super::fill::Fill;
use super::{End, Side};
use crate::element::Element;
use crate::listpack::Listpack;
use crate::share::fetch_counters;

/// One listpack of the row; its count is kept beside it, so that finding an index reads one run of
/// memory.
#[derive(Clone)]
pub(super) struct Node {
    pack: Arc<Listpack>,
    count: usize,
}

impl Node {
    fn new(pack: Listpack) -> Self {
        Self { count: pack.len(), pack: Arc::new(pack) }
    }

    fn of_one(element: &[u8]) -> Self {
        let mut pack = Listpack::with_capacity(element.len() + 11);
        pack.push_back(element);
        Self::new(pack)
    }

    #[inline]
    pub(super) fn pack(&self) -> &Listpack {
        &self.pack
    }

    /// Allocated bytes of the node, counters included.
    #[inline]
    fn heap_bytes(&self) -> usize {
        self.pack.heap_bytes() + size_of::<Listpack>() + 16
    }
}

/// The nodes and the number of elements in all of them. No node is empty between calls.
pub(super) struct Nodes {
    row: VecDeque<Node>,
    len: usize,
    /// Allocated bytes of all nodes, kept as they change: the engine asks after every write.
    bytes: usize,
}

impl Clone for Nodes {
    fn clone(&self) -> Self {
        fetch_counters(self.row.iter().map(|node| &node.pack));
        Self { row: self.row.clone(), ..*self }
    }
}

impl Nodes {
    pub(super) fn from_pack(pack: Listpack) -> Self {
        let mut nodes = Self { row: VecDeque::new(), len: 0, bytes: 0 };
        if !pack.is_empty() {
            nodes.push_node(pack);
        }
        nodes
    }

    #[inline]
    pub(super) fn row(&self) -> &VecDeque<Node> {
        &self.row
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes + self.row.capacity() * size_of::<Node>()
    }

    pub(super) fn push_node(&mut self, pack: Listpack) {
        self.insert_node(self.row.len(), Node::new(pack));
    }

    fn insert_node(&mut self, at: usize, node: Node) {
        self.len += node.count;
        self.bytes += node.heap_bytes();
        self.row.insert(at, node);
    }

    fn remove_node(&mut self, at: usize) -> Node {
        let node = self.row.remove(at).expect("the caller has seen this node");
        self.len -= node.count;
        self.bytes -= node.heap_bytes();
        node
    }

    /// Changes a node and keeps the totals.
    #[inline]
    pub(super) fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Listpack) -> R) -> R {
        let node = &mut self.row[at];
        self.bytes -= node.heap_bytes();
        self.len -= node.count;
        let result = change(Arc::make_mut(&mut node.pack));
        node.count = node.pack.len();
        self.len += node.count;
        self.bytes += node.heap_bytes();
        result
    }

    /// Takes the listpack of the only node.
    pub(super) fn take_only(&mut self) -> Listpack {
        Arc::unwrap_or_clone(self.remove_node(0).pack)
    }

    pub(super) fn push(&mut self, end: End, element: &[u8], fill: Fill) {
        let has_room = |node: &&Node| fill.allows_insert(&node.pack, element.len());
        let last = self.row.len().saturating_sub(1);
        match end {
            End::Front if self.row.front().filter(has_room).is_some() => {
                self.change(0, |pack| pack.push_front(element));
            }
            End::Back if self.row.back().filter(has_room).is_some() => {
                self.change(last, |pack| pack.push_back(element));
            }
            End::Front => self.insert_node(0, Node::of_one(element)),
            End::Back => self.insert_node(self.row.len(), Node::of_one(element)),
        }
    }

    pub(super) fn pop_with<R>(
        &mut self,
        end: End,
        read: impl FnOnce(Element<'_>) -> R,
    ) -> Option<R> {
        let at = match end {
            End::Front => 0,
            End::Back => self.row.len().checked_sub(1)?,
        };
        self.row.get(at)?;
        let result = self.change(at, |pack| {
            let place = match end {
                End::Front => pack.first()?,
                End::Back => pack.last()?,
            };
            let result = read(pack.get(place));
            pack.remove(place);
            Some(result)
        });
        if self.row[at].count == 0 {
            self.remove_node(at);
        }
        result
    }

    /// The node of an index and the index within it, walked to from the nearer end.
    pub(super) fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        if index <= self.len / 2 {
            let mut left = index;
            for (node, entry) in self.row.iter().enumerate() {
                if left < entry.count {
                    return Some((node, left));
                }
                left -= entry.count;
            }
        } else {
            let mut start = self.len;
            for (node, entry) in self.row.iter().enumerate().rev() {
                start -= entry.count;
                if index >= start {
                    return Some((node, index - start));
                }
            }
        }
        None
    }

    pub(super) fn drop_empty(&mut self) {
        let empty = self.row.iter().filter(|node| node.count == 0);
        self.bytes -= empty.map(Node::heap_bytes).sum::<usize>();
        self.row.retain(|node| node.count > 0);
    }

    pub(super) fn remove_range(&mut self, start: usize, count: usize) {
        let Some((mut node, mut within)) = self.locate(start) else { return };
        let mut left = count;
        // Whole nodes fall out in one step: LTRIM of a long list must not shift them one by one.
        let mut whole = 0..0;
        while left > 0 && node < self.row.len() {
            let removed = (self.row[node].count - within).min(left);
            if removed == self.row[node].count {
                whole = if whole.is_empty() { node..node + 1 } else { whole.start..node + 1 };
            } else {
                self.change(node, |pack| pack.remove_range(within, removed));
            }
            left -= removed;
            within = 0;
            node += 1;
        }
        for node in self.row.drain(whole) {
            self.len -= node.count;
            self.bytes -= node.heap_bytes();
        }
    }

    /// Inserts beside the element `within` the node `at`, by the rules of Redis' quicklist.
    pub(super) fn insert(
        &mut self,
        at: usize,
        within: usize,
        element: &[u8],
        side: Side,
        fill: Fill,
    ) {
        if fill.allows_insert(&self.row[at].pack, element.len()) {
            return self.change(at, |pack| insert_beside(pack, within, element, side));
        }
        let at_edge = match side {
            Side::Before => within == 0,
            Side::After => within + 1 == self.row[at].count,
        };
        if !at_edge {
            return self.insert_by_splitting(at, within, element, side, fill);
        }
        let neighbour = match side {
            Side::Before => at.checked_sub(1),
            Side::After => Some(at + 1),
        };
        let neighbour = neighbour.filter(|&at| {
            self.row.get(at).is_some_and(|node| fill.allows_insert(&node.pack, element.len()))
        });
        match (neighbour, side) {
            (Some(at), Side::Before) => self.change(at, |pack| pack.push_back(element)),
            (Some(at), Side::After) => self.change(at, |pack| pack.push_front(element)),
            (None, _) => {
                let at = at + usize::from(side == Side::After);
                self.insert_node(at, Node::of_one(element));
            }
        }
    }

    /// Divides the node at the element, puts the new element at the cut, then joins what fits.
    fn insert_by_splitting(
        &mut self,
        at: usize,
        within: usize,
        element: &[u8],
        side: Side,
        fill: Fill,
    ) {
        let cut = within + usize::from(side == Side::After);
        let back = self.change(at, |pack| {
            let mut back = pack.split_off(cut);
            match side {
                Side::Before => pack.push_back(element),
                Side::After => back.push_front(element),
            }
            back
        });
        self.insert_node(at + 1, Node::new(back));
        // The half that keeps the element beside which was inserted is the centre of the joining.
        let centre = match side {
            Side::Before => at + 1,
            Side::After => at,
        };
        self.merge_around(centre, fill);
    }

    /// Joins, where they fit: the two nodes before, the two after, then the centre with both.
    fn merge_around(&mut self, mut centre: usize, fill: Fill) {
        if centre >= 2 && self.merge(centre - 2, fill) {
            centre -= 1;
        }
        self.merge(centre + 1, fill);
        if centre >= 1 && self.merge(centre - 1, fill) {
            centre -= 1;
        }
        self.merge(centre, fill);
    }

    /// Joins a node with the one after it if the two fit into one.
    fn merge(&mut self, at: usize, fill: Fill) -> bool {
        let (Some(left), Some(right)) = (self.row.get(at), self.row.get(at + 1)) else {
            return false;
        };
        if !fill.allows_merge(&left.pack, &right.pack) {
            return false;
        }
        let right = self.remove_node(at + 1);
        self.change(at, |pack| pack.append(&right.pack));
        true
    }
}

#[cfg(test)]
impl Nodes {
    /// The totals, counted anew.
    pub(super) fn counted(&self) -> (usize, usize) {
        let len = self.row.iter().map(|node| node.pack.len()).sum();
        let bytes: usize = self.row.iter().map(Node::heap_bytes).sum();
        (len, bytes + self.row.capacity() * size_of::<Node>())
    }
}

/// Inserts beside the element with this index.
pub(super) fn insert_beside(pack: &mut Listpack, index: usize, element: &[u8], side: Side) {
    let place = pack.seek(index).expect("the index was located in this node");
    match side {
        Side::Before => pack.insert_before(place, Element::Bytes(element)),
        Side::After => pack.insert_after(place, Element::Bytes(element)),
    }
}
