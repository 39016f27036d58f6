//! The order of large sorted sets: a B+ tree that counts.
//!
//! Every inner node knows how many items lie under each child, so a rank is one walk down, and a
//! range by score, by member or by rank is a range of ranks. Nodes sit behind `Arc`: a copy of the
//! tree shares them and a change copies one path. For that reason leaves are not linked; walking
//! on to the next leaf is another walk down, once per leaf.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::text::Text;

/// Items in a leaf: two kilobytes, a few cache lines to search and one small copy per change.
const LEAF_MAX: usize = 64;
/// Children of an inner node.
const INNER_MAX: usize = 32;
/// A node with fewer joins a neighbour.
const FILL_MIN: usize = 4;

/// A member with its score. Ordered by score, then by bytes.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) score: f64,
    pub(crate) member: Text,
}

impl Item {
    #[inline]
    pub(crate) fn compare(&self, score: f64, member: &[u8]) -> Ordering {
        // No score is NaN, and the two zeros are equal.
        match self.score.partial_cmp(&score) {
            Some(Ordering::Equal) | None => self.member.as_bytes().cmp(member),
            Some(order) => order,
        }
    }
}

/// Items in order, with their ranks.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Arc<Node>,
    len: usize,
    /// Allocated bytes of all nodes, kept as they change: the engine asks after every write.
    bytes: usize,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Item>),
    Inner(Vec<Child>),
}

/// A subtree. All its items are at or above `low`, all items to its left are below.
#[derive(Clone, Debug)]
struct Child {
    low: Item,
    count: usize,
    node: Arc<Node>,
}

/// Where in its tree a node lies: at the outer edges a full node is not halved, so that items that
/// arrive in order fill their leaves.
#[derive(Clone, Copy)]
struct Edge {
    first: bool,
    last: bool,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let root = Arc::new(Node::Leaf(Vec::new()));
        Self { len: 0, bytes: root.own_bytes(), root }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many items come first for which `is_before` holds. It must hold for a prefix of the
    /// order and for nothing after that.
    pub(crate) fn count_before(&self, is_before: impl Fn(&Item) -> bool) -> usize {
        let mut rank = 0;
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => return rank + items.partition_point(&is_before),
                Node::Inner(children) => {
                    let index = children[1..].partition_point(|child| is_before(&child.low));
                    rank += children[..index].iter().map(|child| child.count).sum::<usize>();
                    node = &children[index].node;
                }
            }
        }
    }

    /// Adds an item that is not there.
    pub(crate) fn insert(&mut self, item: Item) {
        self.len += 1;
        let edge = Edge { first: true, last: true };
        let Some(right) = insert(&mut self.root, item, edge, &mut self.bytes) else { return };
        let left = Child {
            low: Item { score: f64::NEG_INFINITY, member: Text::new(b"") },
            count: self.len - right.count,
            node: self.root.clone(),
        };
        self.root = Arc::new(Node::Inner(vec![left, right]));
        self.bytes += self.root.own_bytes();
    }

    /// Removes the item with this score and member; `false` when there is none.
    pub(crate) fn remove(&mut self, score: f64, member: &[u8]) -> bool {
        if !remove(&mut self.root, score, member, &mut self.bytes) {
            return false;
        }
        self.len -= 1;
        while let Node::Inner(children) = &*self.root
            && children.len() == 1
        {
            let only = children[0].node.clone();
            self.bytes -= self.root.own_bytes();
            self.root = only;
        }
        true
    }

    /// The items with these ranks, from either end.
    pub(crate) fn range(&self, ranks: Range<usize>) -> Items<'_> {
        let end = ranks.end.min(self.len);
        let start = ranks.start.min(end);
        Items { tree: self, start, end, front: [].iter(), back: [].iter() }
    }

    /// The leaf that holds the item with this rank, and the item's index in it.
    fn leaf_at(&self, mut rank: usize) -> (&[Item], usize) {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => return (items, rank),
                Node::Inner(children) => {
                    let mut index = 0;
                    while rank >= children[index].count {
                        rank -= children[index].count;
                        index += 1;
                    }
                    node = &children[index].node;
                }
            }
        }
    }

    /// Allocated bytes without the members' own.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes
    }
}

/// Inserts under `node`; returns the right half if the node had to be divided.
fn insert(node: &mut Arc<Node>, item: Item, edge: Edge, bytes: &mut usize) -> Option<Child> {
    let before = node.own_bytes();
    let divided = match Arc::make_mut(node) {
        Node::Leaf(items) => insert_into_leaf(items, item, edge),
        Node::Inner(children) => insert_below(children, item, edge, bytes),
    };
    *bytes = *bytes + node.own_bytes() - before;
    *bytes += divided.as_ref().map_or(0, |child| child.node.own_bytes());
    divided
}

fn insert_below(
    children: &mut Vec<Child>,
    item: Item,
    edge: Edge,
    bytes: &mut usize,
) -> Option<Child> {
    let index = child_of(children, item.score, item.member.as_bytes());
    let edge =
        Edge { first: edge.first && index == 0, last: edge.last && index + 1 == children.len() };
    let child = &mut children[index];
    child.count += 1;
    let right = insert(&mut child.node, item, edge, bytes)?;
    child.count -= right.count;
    children.insert(index + 1, right);
    divide_inner(children, edge)
}

fn insert_into_leaf(items: &mut Vec<Item>, item: Item, edge: Edge) -> Option<Child> {
    let at = items.partition_point(|other| {
        other.compare(item.score, item.member.as_bytes()) == Ordering::Less
    });
    if items.len() < LEAF_MAX {
        items.insert(at, item);
        return None;
    }
    let right = if edge.last && at == items.len() {
        vec![item]
    } else if edge.first && at == 0 {
        std::mem::replace(items, vec![item])
    } else {
        let mut right = items.split_off(LEAF_MAX / 2);
        match at.checked_sub(LEAF_MAX / 2) {
            Some(at) if at > 0 => right.insert(at, item),
            _ => items.insert(at, item),
        }
        items.shrink_to_fit();
        right
    };
    let low = right[0].clone();
    Some(Child { low, count: right.len(), node: Arc::new(Node::Leaf(right)) })
}

fn divide_inner(children: &mut Vec<Child>, edge: Edge) -> Option<Child> {
    if children.len() <= INNER_MAX {
        return None;
    }
    let at = match edge {
        Edge { last: true, .. } => children.len() - FILL_MIN,
        Edge { first: true, .. } => FILL_MIN,
        _ => children.len() / 2,
    };
    let right = children.split_off(at);
    let low = right[0].low.clone();
    let count = right.iter().map(|child| child.count).sum();
    Some(Child { low, count, node: Arc::new(Node::Inner(right)) })
}

#[inline]
fn child_of(children: &[Child], score: f64, member: &[u8]) -> usize {
    children[1..].partition_point(|child| child.low.compare(score, member) != Ordering::Greater)
}

fn remove(node: &mut Arc<Node>, score: f64, member: &[u8], bytes: &mut usize) -> bool {
    let before = node.own_bytes();
    let removed = match Arc::make_mut(node) {
        Node::Leaf(items) => match items.binary_search_by(|item| item.compare(score, member)) {
            Ok(at) => {
                items.remove(at);
                true
            }
            Err(_) => false,
        },
        Node::Inner(children) => remove_below(children, score, member, bytes),
    };
    *bytes = *bytes + node.own_bytes() - before;
    removed
}

fn remove_below(children: &mut Vec<Child>, score: f64, member: &[u8], bytes: &mut usize) -> bool {
    let index = child_of(children, score, member);
    if !remove(&mut children[index].node, score, member, bytes) {
        return false;
    }
    children[index].count -= 1;
    if children[index].node.width() < FILL_MIN && children.len() > 1 {
        join(children, index, bytes);
    }
    true
}

/// Joins a thin child with a neighbour, and divides the two anew when they do not fit in one.
fn join(children: &mut Vec<Child>, index: usize, bytes: &mut usize) {
    let at = index.saturating_sub(1);
    let right = children.remove(at + 1);
    let left = &mut children[at];
    *bytes -= left.node.own_bytes() + right.node.own_bytes();
    left.count += right.count;
    let surplus = match (Arc::make_mut(&mut left.node), &*right.node) {
        (Node::Leaf(items), Node::Leaf(more)) => {
            items.extend(more.iter().cloned());
            (items.len() > LEAF_MAX).then(|| {
                let right = items.split_off(items.len() / 2);
                let low = right[0].clone();
                Child { low, count: right.len(), node: Arc::new(Node::Leaf(right)) }
            })
        }
        (Node::Inner(inner), Node::Inner(more)) => {
            // The first child's bound may be the tree's own; under a joint parent it is a real one.
            let from = inner.len();
            inner.extend(more.iter().cloned());
            inner[from].low = right.low;
            divide_inner(inner, Edge { first: false, last: false })
        }
        _ => unreachable!("all leaves lie at one depth"),
    };
    *bytes += left.node.own_bytes();
    if let Some(surplus) = surplus {
        left.count -= surplus.count;
        *bytes += surplus.node.own_bytes();
        children.insert(at + 1, surplus);
    }
}

impl Node {
    /// Allocated bytes of this node, counters included, without those below it.
    fn own_bytes(&self) -> usize {
        const NODE: usize = size_of::<Node>() + 16;
        match self {
            Self::Leaf(items) => NODE + items.capacity() * size_of::<Item>(),
            Self::Inner(children) => NODE + children.capacity() * size_of::<Child>(),
        }
    }

    fn width(&self) -> usize {
        match self {
            Self::Leaf(items) => items.len(),
            Self::Inner(children) => children.len(),
        }
    }
}

/// Items in order, from either end. The ranks left are what ends the walk: the two ends may stand
/// in one leaf.
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    tree: &'a Tree,
    start: usize,
    end: usize,
    front: std::slice::Iter<'a, Item>,
    back: std::slice::Iter<'a, Item>,
}

impl Items<'_> {
    /// Leaves out the next `count` items without walking over them.
    pub(crate) fn skip_front(&mut self, count: usize) {
        self.front = [].iter();
        self.start = self.start.saturating_add(count).min(self.end);
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a Item;

    #[inline]
    fn next(&mut self) -> Option<&'a Item> {
        if self.start >= self.end {
            return None;
        }
        if self.front.len() == 0 {
            let (items, at) = self.tree.leaf_at(self.start);
            self.front = items[at..].iter();
        }
        self.start += 1;
        self.front.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.start, Some(self.end - self.start))
    }
}

impl DoubleEndedIterator for Items<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.start >= self.end {
            return None;
        }
        self.end -= 1;
        if self.back.len() == 0 {
            let (items, at) = self.tree.leaf_at(self.end);
            self.back = items[..=at].iter();
        }
        self.back.next_back()
    }
}

impl ExactSizeIterator for Items<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rng::Rng;

    fn check_node(node: &Node, root: bool) -> usize {
        match node {
            Node::Leaf(items) => {
                assert!(items.len() <= LEAF_MAX && (root || !items.is_empty()));
                items.len()
            }
            Node::Inner(children) => {
                assert!(children.len() <= INNER_MAX && !children.is_empty());
                for child in children {
                    assert_eq!(check_node(&child.node, false), child.count);
                }
                children.iter().map(|child| child.count).sum()
            }
        }
    }

    fn bytes_below(node: &Node) -> usize {
        match node {
            Node::Leaf(_) => node.own_bytes(),
            Node::Inner(children) => {
                let below: usize = children.iter().map(|child| bytes_below(&child.node)).sum();
                node.own_bytes() + below
            }
        }
    }

    fn check(tree: &Tree, model: &[(i32, Vec<u8>)]) {
        assert_eq!(check_node(&tree.root, true), tree.len());
        assert_eq!(bytes_below(&tree.root), tree.heap_bytes());
        let found: Vec<_> = tree
            .range(0..usize::MAX)
            .map(|item| (item.score as i32, item.member.as_bytes().to_vec()))
            .collect();
        assert_eq!(found, model);
        let back = tree.range(0..tree.len()).rev().map(|item| item.score as i32);
        assert!(back.eq(model.iter().rev().map(|(score, _)| *score)));
        for (rank, (score, member)) in model.iter().enumerate().step_by(7) {
            let score = f64::from(*score);
            let before = tree.count_before(|item| item.compare(score, member) == Ordering::Less);
            assert_eq!(before, rank);
        }
    }

    fn item(score: i32, member: &[u8]) -> Item {
        Item { score: f64::from(score), member: Text::new(member) }
    }

    #[test]
    fn items_in_order_fill_their_leaves_from_either_side() {
        for descending in [false, true] {
            let mut tree = Tree::new();
            for step in 0..10_000 {
                tree.insert(item(if descending { -step } else { step }, b"m"));
            }
            let bytes = tree.heap_bytes();
            assert!(bytes < 10_000 * 40, "{bytes} bytes for 10,000 items in order");
            assert_eq!(check_node(&tree.root, true), 10_000);
        }
    }

    #[test]
    fn a_big_tree_stays_in_order_through_random_changes() {
        let mut rng = Rng::seeded(11);
        let mut tree = Tree::new();
        let mut model: Vec<(i32, Vec<u8>)> = Vec::new();
        for phase in 0..4 {
            for _ in 0..4_000 {
                let score = rng.below(500) as i32;
                let member = format!("m{}", rng.below(50)).into_bytes();
                let removes = rng.below(10) < if phase % 2 == 0 { 2 } else { 9 };
                match (model.binary_search(&(score, member.clone())), removes) {
                    (Ok(at), true) => {
                        assert!(tree.remove(f64::from(score), &member));
                        model.remove(at);
                    }
                    (Err(_), true) => assert!(!tree.remove(f64::from(score), &member)),
                    (Err(at), false) => {
                        tree.insert(item(score, &member));
                        model.insert(at, (score, member));
                    }
                    (Ok(_), false) => {}
                }
            }
            check(&tree, &model);
        }
        for (score, member) in std::mem::take(&mut model) {
            assert!(tree.remove(f64::from(score), &member));
        }
        check(&tree, &model);
    }

    #[test]
    fn a_copy_is_not_touched_by_later_changes() {
        let mut tree = Tree::new();
        (0..1_000).for_each(|score| tree.insert(item(score, b"m")));
        let pinned = tree.clone();
        (0..900).for_each(|score| assert!(tree.remove(f64::from(score), b"m")));
        assert_eq!(bytes_below(&tree.root), tree.heap_bytes());
        assert!(pinned.range(0..1_000).map(|item| item.score as i32).eq(0..1_000));
    }

    proptest! {
        #[test]
        fn both_ends_of_a_range_meet_in_the_middle(
            len in 0_i32..500, start in 0_usize..500, end in 0_usize..600, turns: Vec<bool>
        ) {
            let mut tree = Tree::new();
            (0..len).for_each(|score| tree.insert(item(score, b"m")));
            let all: Vec<i32> = (0..len).collect();
            let end = end.min(all.len());
            let mut model = all[start.min(end)..end].iter();
            let mut items = tree.range(start..end);
            for front in turns.into_iter().chain(std::iter::repeat_n(true, 600)) {
                let (found, expected) = if front {
                    (items.next(), model.next())
                } else {
                    (items.next_back(), model.next_back())
                };
                prop_assert_eq!(found.map(|item| item.score as i32), expected.copied());
            }
        }
    }
}
