//! The row of nodes of a long list.

use std::collections::VecDeque;
use std::sync::Arc;

use super::fill::Fill;
use super::{End, Side};
use crate::element::Element;
use crate::listpack::Listpack;

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
}

/// The nodes and the number of elements in all of them. No node is empty between calls.
#[derive(Clone)]
pub(super) struct Nodes {
    row: VecDeque<Node>,
    len: usize,
}

impl Nodes {
    pub(super) fn from_pack(pack: Listpack) -> Self {
        let mut nodes = Self { row: VecDeque::new(), len: 0 };
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
        const SHARED: usize = size_of::<Listpack>() + 16;
        let packs: usize = self.row.iter().map(|node| node.pack.heap_bytes() + SHARED).sum();
        packs + self.row.capacity() * size_of::<Node>()
    }

    pub(super) fn push_node(&mut self, pack: Listpack) {
        let node = Node::new(pack);
        self.len += node.count;
        self.row.push_back(node);
    }

    /// Takes the listpack of the only node.
    pub(super) fn take_only(&mut self) -> Listpack {
        self.len = 0;
        let node = self.row.pop_front().expect("there is one node");
        Arc::unwrap_or_clone(node.pack)
    }

    pub(super) fn push(&mut self, end: End, element: &[u8], fill: Fill) {
        self.len += 1;
        let node = match end {
            End::Front => self.row.front_mut(),
            End::Back => self.row.back_mut(),
        };
        match (node, end) {
            (Some(node), _) if fill.allows_insert(&node.pack, element.len()) => {
                let pack = Arc::make_mut(&mut node.pack);
                match end {
                    End::Front => pack.push_front(element),
                    End::Back => pack.push_back(element),
                }
                node.count += 1;
            }
            (_, End::Front) => self.row.push_front(Node::of_one(element)),
            (_, End::Back) => self.row.push_back(Node::of_one(element)),
        }
    }

    pub(super) fn pop_with<R>(
        &mut self,
        end: End,
        read: impl FnOnce(Element<'_>) -> R,
    ) -> Option<R> {
        let node = match end {
            End::Front => self.row.front_mut()?,
            End::Back => self.row.back_mut()?,
        };
        let pack = Arc::make_mut(&mut node.pack);
        let place = match end {
            End::Front => pack.first()?,
            End::Back => pack.last()?,
        };
        let result = read(pack.get(place));
        pack.remove(place);
        node.count -= 1;
        self.len -= 1;
        if node.count == 0 {
            match end {
                End::Front => self.row.pop_front(),
                End::Back => self.row.pop_back(),
            };
        }
        Some(result)
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

    pub(super) fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Listpack) -> R) -> R {
        let node = &mut self.row[at];
        let result = change(Arc::make_mut(&mut node.pack));
        self.len -= node.count;
        node.count = node.pack.len();
        self.len += node.count;
        result
    }

    pub(super) fn drop_empty(&mut self) {
        self.row.retain(|node| node.count > 0);
    }

    pub(super) fn remove_range(&mut self, start: usize, count: usize) {
        let Some((first, mut within)) = self.locate(start) else { return };
        let mut node = first;
        let mut left = count;
        while left > 0 && node < self.row.len() {
            let removed = (self.row[node].count - within).min(left);
            if removed == self.row[node].count {
                self.row[node].count = 0;
                self.len -= removed;
            } else {
                self.change(node, |pack| pack.remove_range(within, removed));
            }
            left -= removed;
            within = 0;
            node += 1;
        }
        // Whole nodes fall out in one step: LTRIM of a long list must not shift them one by one.
        let first_empty = (first..node).find(|&node| self.row[node].count == 0).unwrap_or(node);
        let last_empty = (first_empty..node).take_while(|&node| self.row[node].count == 0).last();
        if let Some(last_empty) = last_empty {
            self.row.drain(first_empty..=last_empty);
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
                self.row.insert(at + usize::from(side == Side::After), Node::of_one(element));
                self.len += 1;
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
        let pack = Arc::make_mut(&mut self.row[at].pack);
        let mut back = pack.split_off(cut);
        match side {
            Side::Before => pack.push_back(element),
            Side::After => back.push_front(element),
        }
        self.row[at].count = self.row[at].pack.len();
        self.row.insert(at + 1, Node::new(back));
        self.len += 1;
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
        let right = self.row.remove(at + 1).expect("looked at above");
        let left = &mut self.row[at];
        Arc::make_mut(&mut left.pack).append(&right.pack);
        left.count += right.count;
        true
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
