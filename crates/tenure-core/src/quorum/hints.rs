//! Hints count when a majority gave them.

use std::collections::VecDeque;

use crate::protocol::Hint;

use super::Quorum;

/// How many different hints are counted at once; the oldest is forgotten first.
const HINTS_COUNTED_MAX: usize = 16;

/// Counts which nodes gave which hint.
#[derive(Debug)]
pub struct HintCount {
    quorum: Quorum,
    counted: VecDeque<Counted>,
}

#[derive(Debug)]
struct Counted {
    hint: Hint,
    heard_from: Vec<usize>,
}

impl HintCount {
    /// Nothing heard yet.
    pub fn new(quorum: Quorum) -> Self {
        HintCount { quorum, counted: VecDeque::new() }
    }

    /// A node gave a hint. Answers it when with this node a majority has given it; later copies
    /// from others are part of the same one.
    pub fn hear(&mut self, node: usize, hint: Hint) -> Option<Hint> {
        let at = self.counted.iter().position(|counted| counted.hint == hint);
        let known = at.and_then(|at| self.counted.remove(at));
        let mut heard_from = known.map(|counted| counted.heard_from).unwrap_or_default();
        if heard_from.contains(&node) {
            // The same node again: something new happened that looks alike.
            heard_from.clear();
        }
        heard_from.push(node);
        let is_enough = heard_from.len() == self.quorum.majority();
        if self.counted.len() == HINTS_COUNTED_MAX {
            self.counted.pop_front();
        }
        self.counted.push_back(Counted { hint: hint.clone(), heard_from });
        is_enough.then_some(hint)
    }
}
