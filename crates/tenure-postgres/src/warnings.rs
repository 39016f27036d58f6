//! What people should know about the store and its connection, told once with the next answer.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The most different warnings that are remembered: more would be one warning in many shapes.
const REMEMBERED_MAX: usize = 64;

/// Warnings on their way, and those that were told before.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    told: BTreeSet<String>,
    waiting: Vec<String>,
}

impl Warnings {
    /// Tells a warning with the next answer, unless it was told before.
    pub(crate) fn tell(&self, warning: String) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.told.len() < REMEMBERED_MAX && inner.told.insert(warning.clone()) {
            inner.waiting.push(warning);
        }
    }

    /// What is to be told now.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_told_once() {
        let warnings = Warnings::default();
        warnings.tell("leaky".into());
        warnings.tell("leaky".into());
        assert_eq!(warnings.take(), ["leaky"]);
        warnings.tell("leaky".into());
        assert!(warnings.take().is_empty());
        (0..1000).for_each(|number| warnings.tell(number.to_string()));
        assert!(warnings.take().len() < REMEMBERED_MAX);
    }
}
