//! Sessions in WAIT, by the offset that they wait for.

use std::collections::BTreeMap;

use crate::moment::Moment;
use crate::output::SessionId;

/// What one session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    offset: u64,
    count: usize,
    session: SessionId,
}

/// Sessions in WAIT. As many as there are sessions at most.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    waiting: BTreeMap<Wait, Option<Moment>>,
}

impl Waits {
    /// `session` waits until `count` replicas have `offset`, or until `until`.
    pub(crate) fn add(
        &mut self,
        session: SessionId,
        offset: u64,
        count: usize,
        until: Option<Moment>,
    ) {
        self.waiting.insert(Wait { offset, count, session }, until);
    }

    /// The session is gone, or something else ended its wait.
    pub(crate) fn remove(&mut self, session: SessionId) {
        self.waiting.retain(|wait, _| wait.session != session);
    }

    /// Whether anybody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the next wait ends by time.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        self.waiting.values().flatten().min().copied()
    }

    /// Takes out those that are over: enough of `acks` (sorted, greatest first), or `now` is late.
    pub(crate) fn take_done(&mut self, now: Moment, acks: &[u64]) -> Vec<(SessionId, usize)> {
        let mut done = Vec::new();
        self.waiting.retain(|wait, until| {
            let count = acks.partition_point(|ack| *ack >= wait.offset);
            let is_over = count >= wait.count || until.is_some_and(|until| until <= now);
            if is_over {
                done.push((wait.session, count));
            }
            !is_over
        });
        done
    }

    /// Ends all of them.
    pub(crate) fn take_all(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.waiting).into_keys().map(|wait| wait.session).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_enough_acks_or_with_its_time() {
        let mut waits = Waits::default();
        waits.add(SessionId(1), 100, 2, None);
        waits.add(SessionId(2), 200, 1, Some(Moment::from_ms(50)));
        assert_eq!(waits.take_done(Moment::from_ms(1), &[150, 99]), []);
        assert_eq!(waits.take_done(Moment::from_ms(2), &[150, 100]), [(SessionId(1), 2)]);
        assert_eq!(waits.next_end(), Some(Moment::from_ms(50)));
        assert_eq!(waits.take_done(Moment::from_ms(50), &[150, 100]), [(SessionId(2), 0)]);
        assert!(waits.is_empty());
    }
}
