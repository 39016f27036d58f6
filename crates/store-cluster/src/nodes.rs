//! The table of nodes.

use std::ops::{Index, IndexMut};

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use crate::id::NodeId;
use crate::node::{Node, NodeIndex};

/// Nodes of one cluster, at most: a stranger that invents names must not fill the memory.
pub const NODES_MAX: usize = 4096;

/// All nodes that are known, myself among them.
#[derive(Clone, Debug)]
pub struct Nodes {
    places: Vec<Option<Node>>,
    by_id: HashMap<NodeId, NodeIndex, FixedState>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { places: Vec::new(), by_id: HashMap::with_hasher(FixedState::with_seed(0)) }
    }
}

impl Nodes {
    /// Adds a node whose id is new. `None` when the table is full.
    pub(crate) fn add(&mut self, node: Node) -> Option<NodeIndex> {
        if self.len() >= NODES_MAX || self.by_id.contains_key(&node.id) {
            return None;
        }
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.by_id.insert(node.id, place as NodeIndex);
        self.places[place] = Some(node);
        Some(place as NodeIndex)
    }

    pub(crate) fn remove(&mut self, index: NodeIndex) -> Option<Node> {
        let node = self.places.get_mut(usize::from(index))?.take()?;
        self.by_id.remove(&node.id);
        Some(node)
    }

    /// Gives a node another name, which must be free.
    pub(crate) fn rename(&mut self, index: NodeIndex, id: NodeId) {
        let old = std::mem::replace(&mut self[index].id, id);
        self.by_id.remove(&old);
        self.by_id.insert(id, index);
    }

    /// Where the node with this id is.
    pub fn find(&self, id: NodeId) -> Option<NodeIndex> {
        self.by_id.get(&id).copied()
    }

    /// The node at a place, if there is one.
    pub fn get(&self, index: NodeIndex) -> Option<&Node> {
        self.places.get(usize::from(index))?.as_ref()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// How many places there are, used or not.
    pub(crate) fn places(&self) -> NodeIndex {
        self.places.len() as NodeIndex
    }

    /// All nodes with their places.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIndex, &Node)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(index, node)| Some((index as NodeIndex, node.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (NodeIndex, &mut Node)> {
        let places = self.places.iter_mut().enumerate();
        places.filter_map(|(index, node)| Some((index as NodeIndex, node.as_mut()?)))
    }

    /// Those who follow `master`.
    pub fn replicas_of(&self, master: NodeIndex) -> impl Iterator<Item = (NodeIndex, &Node)> {
        self.iter().filter(move |(_, node)| node.master == Some(master))
    }
}

impl Index<NodeIndex> for Nodes {
    type Output = Node;

    fn index(&self, index: NodeIndex) -> &Node {
        self.places[usize::from(index)].as_ref().expect("places in use are kept up to date")
    }
}

impl IndexMut<NodeIndex> for Nodes {
    fn index_mut(&mut self, index: NodeIndex) -> &mut Node {
        self.places[usize::from(index)].as_mut().expect("places in use are kept up to date")
    }
}
